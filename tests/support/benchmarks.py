"""Trees of tiny images with the counts and the layouts of the benchmarks, as others ship them.

Counts are written down here from the published tables; nothing is taken from the package.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from PIL import Image

PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
PACS = {
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}
VLCS_CLASSES = ("bird", "car", "chair", "dog", "person")
VLCS = {
    "CALTECH": (237, 123, 118, 67, 870),
    "LABELME": (80, 1209, 88, 42, 1237),
    "PASCAL": (330, 699, 428, 420, 1499),
    "SUN": (20, 932, 1036, 30, 1264),
}
VLCS_TEST = {
    "CALTECH": (71, 37, 35, 20, 261),
    "LABELME": (24, 363, 26, 13, 371),
    "PASCAL": (99, 210, 128, 126, 450),
    "SUN": (6, 280, 311, 9, 379),
}
DOMAINBED_VLCS = {
    "CALTECH": "Caltech101",
    "LABELME": "LabelMe",
    "PASCAL": "VOC2007",
    "SUN": "SUN09",
}
OFFICE_HOME_DOMAINS = ("Art", "Clipart", "Product", "Real World")
OFFICE_HOME = """
Alarm_Clock 74 60 79 86 | Backpack 41 56 99 99 | Batteries 27 64 62 64 | Bed 40 98 43 83
Bike 75 99 44 99 | Bottle 99 99 62 78 | Bucket 40 73 47 80 | Calculator 33 46 81 73
Calendar 20 78 81 68 | Candles 76 99 56 99 | Chair 69 99 99 96 | Clipboards 25 40 65 65
Computer 44 99 96 64 | Couch 40 64 88 76 | Curtains 40 42 75 73 | Desk_Lamp 23 41 83 62
Drill 15 48 67 51 | Eraser 18 40 41 43 | Exit_Sign 21 41 67 81 | Fan 45 50 58 60
File_Cabinet 22 40 71 58 | Flipflops 46 40 99 85 | Flowers 90 99 91 75 | Folder 20 99 90 57
Fork 46 61 41 36 | Glasses 40 52 67 60 | Hammer 40 99 57 52 | Helmet 79 69 90 60
Kettle 46 40 72 72 | Keyboard 18 99 99 75 | Knives 72 53 41 83 | Lamp_Shade 49 40 54 78
Laptop 51 99 99 67 | Marker 20 71 56 23 | Monitor 42 99 98 71 | Mop 32 40 72 46
Mouse 18 76 96 60 | Mug 49 99 41 58 | Notebook 21 83 93 68 | Oven 20 40 68 64
Pan 19 51 70 30 | Paper_Clip 19 40 47 68 | Pen 20 99 60 65 | Pencil 26 99 40 59
Postit_Notes 19 41 38 67 | Printer 18 87 99 52 | Push_Pin 24 40 43 53 | Radio 47 46 43 66
Refrigerator 49 40 59 75 | Ruler 15 67 58 41 | Scissors 20 99 99 77 | Screwdriver 30 75 40 51
Shelf 42 42 49 66 | Sink 41 42 46 77 | Sneakers 46 43 99 88 | Soda 40 61 43 63
Speaker 20 90 99 81 | Spoon 46 60 47 54 | TV 40 99 76 53 | Table 16 80 60 59
Telephone 44 99 58 82 | ToothBrush 43 39 42 85 | Toys 20 99 45 67 | Trash_Can 21 53 93 81
Webcam 16 40 98 49
"""
"""Counts by class in the order of the domains."""


def office_home_counts() -> dict[str, dict[str, int]]:
    """Return the counts of Office-Home by domain and class."""
    rows = [cell.split() for line in OFFICE_HOME.strip().splitlines() for cell in line.split("|")]
    return {
        domain: {row[0]: int(row[place]) for row in rows}
        for place, domain in enumerate(OFFICE_HOME_DOMAINS, start=1)
    }


def tiny(kind: str = "JPEG", grey: int = 0) -> bytes:
    """Return the bytes of an image of 2 x 2 pixels."""
    content = io.BytesIO()
    Image.new("RGB", (2, 2), (grey, grey, grey)).save(content, format=kind)
    return content.getvalue()


def fill(folder: Path, names: Iterable[str], content: bytes | None = None) -> None:
    """Write the same image under many names."""
    folder.mkdir(parents=True, exist_ok=True)
    content = tiny() if content is None else content
    for name in names:
        (folder / name).write_bytes(content)


def names(count: int, start: int = 1) -> list[str]:
    """Return as many names of files."""
    return [f"{number:05d}.jpg" for number in range(start, start + count)]


def domain_class_image(
    root: Path, domains: Iterable[str], classes: Sequence[str], per_class: int = 1
) -> Path:
    """Write domain/class/image, as DomainBed has it."""
    for domain in domains:
        for label in classes:
            fill(root / domain / label, names(per_class))
    return root


def official_office_home(root: Path) -> Path:
    """Write the authors' archive, with the space in the name of a domain and its own lists."""
    top = root / "OfficeHomeDataset_10072016"
    for domain, counts in office_home_counts().items():
        for label, count in counts.items():
            fill(top / domain / label, names(count))
    (top / "imagelist.txt").write_text("Art/Alarm_Clock/00001.jpg\n")
    (top / "ImageInfo.csv").write_text("Index,Path\n1,Art/Alarm_Clock/00001.jpg\n")
    return root


def dassl_office_home(root: Path) -> Path:
    """Write Dassl's copy: lower case, and a split of 9 to 1 as folders."""
    for domain, counts in office_home_counts().items():
        for label, count in counts.items():
            folder = root / "office_home_dg" / domain.lower().replace(" ", "_")
            held = max(1, count // 10)
            fill(folder / "train" / label.lower(), names(count - held))
            fill(folder / "val" / label.lower(), names(held, start=count - held + 1))
    return root


def jigen_vlcs(
    root: Path, counts: Mapping[str, Sequence[int]], test: Mapping[str, Sequence[int]]
) -> Path:
    """Write JiGen's copy: classes by number, four folders, of which `full` repeats two."""
    for domain in counts:
        for label, (count, held) in enumerate(zip(counts[domain], test[domain], strict=True)):
            folder, cross = root / "VLCS" / domain, (count - held) // 10
            train = [f"train_imgs_{number}.jpg" for number in range(count - held - cross)]
            crossval = [f"crossval_imgs_{number}.jpg" for number in range(cross)]
            fill(folder / "train" / str(label), train)
            fill(folder / "crossval" / str(label), crossval)
            fill(folder / "full" / str(label), [*train, *crossval])
            fill(
                folder / "test" / str(label), [f"test_imgs_{number}.jpg" for number in range(held)]
            )
    return root


def domainbed_vlcs(root: Path) -> Path:
    """Write DomainBed's copy with the official counts."""
    for domain, counts in VLCS.items():
        for label, count in zip(VLCS_CLASSES, counts, strict=True):
            fill(root / "VLCS" / DOMAINBED_VLCS[domain] / label, names(count))
    return root


def dassl_pacs(root: Path, *, train: int = 2, crossval: int = 1, base: int = 1) -> Path:
    """Write Dassl's copy: images/, and splits/ with the lists of the authors."""
    for domain in PACS:
        lines: dict[str, list[str]] = {"train": [], "crossval": []}
        for number, label in enumerate(PACS_CLASSES, start=base):
            files = names(train + crossval)
            fill(root / "pacs" / "images" / domain / label, files)
            paths = [f"{domain}/{label}/{name} {number}" for name in files]
            lines["train"] += paths[:train]
            lines["crossval"] += paths[train:]
        lists = {**lines, "test": [*lines["train"], *lines["crossval"]]}
        for part, listed in lists.items():
            write_list(root / "pacs" / "splits" / f"{domain}_{part}_kfold.txt", listed)
    return root


def write_list(path: Path, lines: Iterable[str]) -> None:
    """Write a list file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
