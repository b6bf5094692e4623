"""Folders of images, and what they may get wrong."""

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from cicf import DataError
from cicf.data.folder import load_folder
from cicf.data.images import read_image


def write(path: Path, colour: tuple[int, int, int] = (255, 0, 0), kind: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (6, 4), colour).save(path, format=kind)
    return path


def two_classes(root: Path, *domains: str) -> Path:
    for domain in domains or ("",):
        for label in ("cat", "dog"):
            for index in range(3):
                write(root / domain / label / f"{index}.png", (40 * index, 0, 0))
    return root


def test_folders_of_classes_are_one_domain(tmp_path: Path) -> None:
    data = load_folder(two_classes(tmp_path))
    assert data.classes == ("cat", "dog")
    assert data.domains == ("all",)
    assert data.y.tolist() == [0, 0, 0, 1, 1, 1]
    image, label, domain = data[4]
    assert image.shape == (3, 4, 6)
    assert image[0, 0, 0] == 40
    assert (label, domain) == (1, 0)


def test_folders_of_domains_keep_their_names(tmp_path: Path) -> None:
    data = load_folder(two_classes(tmp_path, "Real World", "art"))
    assert data.domains == ("Real World", "art")
    assert data.domain.tolist() == [0] * 6 + [1] * 6
    assert len(data.without("art")) == 6
    assert data.of("art").images.paths[0].parts[-3] == "art"


def test_hidden_and_foreign_files_are_ignored(tmp_path: Path) -> None:
    two_classes(tmp_path)
    write(tmp_path / ".cache" / "cat" / "0.png")
    write(tmp_path / "cat" / ".hidden.png")
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    assert len(load_folder(tmp_path)) == 6


def test_endings_that_lie_are_read_by_their_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.png", kind="JPEG")
    assert read_image(path).shape == (3, 4, 6)


def test_grey_and_transparent_images_become_rgb(tmp_path: Path) -> None:
    for mode in ("L", "RGBA", "P", "1", "I;16"):
        path = tmp_path / "image.png"
        Image.new(mode, (6, 4)).save(path)
        assert read_image(path).shape == (3, 4, 6)


def truncated(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = torch.randint(256, (64, 64, 3), dtype=torch.uint8)
    Image.fromarray(noise.numpy()).save(path)
    path.write_bytes(path.read_bytes()[:4000])
    return path


def test_unreadable_images_are_named_or_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    two_classes(tmp_path)
    bad = truncated(tmp_path / "cat" / "broken.png")
    (tmp_path / "dog" / "text.jpg").write_text("no image")
    with pytest.raises(DataError, match=rf"2 of 8 images cannot be read, the first is {bad}"):
        load_folder(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert len(load_folder(tmp_path, unreadable="left out")) == 6
    assert [record.message for record in caplog.records] == [
        f"left out 2 of 8 images, unreadable:\n  {bad}\n  {tmp_path / 'dog' / 'text.jpg'}"
    ]


def test_folders_that_cannot_be_trained_on_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no folder"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds no images"):
        load_folder(tmp_path)
    write(tmp_path / "one" / "cat" / "0.png")
    write(tmp_path / "one" / "cat" / "1.png")
    with pytest.raises(DataError, match="has one class only, 'cat'"):
        load_folder(tmp_path / "one")
    write(tmp_path / "one" / "dog" / "0.png")
    with pytest.raises(DataError, match=r"class 'dog' of .* has one image"):
        load_folder(tmp_path / "one")
    two_classes(tmp_path / "mixed", "art")
    write(tmp_path / "mixed" / "cat" / "0.png")
    with pytest.raises(DataError, match=r"mixes class/image.jpg \(cat/0.png\)"):
        load_folder(tmp_path / "mixed")


def test_a_domain_may_be_called_all(tmp_path: Path) -> None:
    assert load_folder(two_classes(tmp_path, "all", "art")).domains == ("all", "art")


def test_images_in_the_wrong_place_are_named(tmp_path: Path) -> None:
    deep = write(two_classes(tmp_path / "deep") / "a" / "b" / "c" / "0.png")
    with pytest.raises(DataError, match=f"{deep} lies neither in class/ nor in domain/class/"):
        load_folder(tmp_path / "deep")
    loose = write(two_classes(tmp_path / "loose") / "thumbnail.png")
    with pytest.raises(DataError, match=f"{loose} lies neither"):
        load_folder(tmp_path / "loose")


def test_folder_of_nothing_but_unreadable_images_is_refused(tmp_path: Path) -> None:
    truncated(tmp_path / "cat" / "0.png")
    truncated(tmp_path / "dog" / "0.png")
    with pytest.raises(DataError, match="none of the 2 images"):
        load_folder(tmp_path, unreadable="left out")


def test_subsets_read_the_right_files(tmp_path: Path) -> None:
    data = load_folder(two_classes(tmp_path))
    part = data.subset(torch.tensor([5, 1]))
    assert [int(part[i][0][0, 0, 0]) for i in range(2)] == [80, 40]
    assert part.y.tolist() == [1, 0]


def test_links_to_folders_are_followed(tmp_path: Path) -> None:
    two_classes(tmp_path / "there")
    (tmp_path / "here").mkdir()
    for name in ("cat", "dog"):
        (tmp_path / "here" / name).symlink_to(tmp_path / "there" / name)
    assert len(load_folder(tmp_path / "here")) == 6


def test_images_to_score_may_be_of_one_class(tmp_path: Path) -> None:
    two_classes(tmp_path)
    shutil.rmtree(tmp_path / "dog")
    assert load_folder(tmp_path, is_for_training=False).classes == ("cat",)


def test_images_are_turned_upright(tmp_path: Path) -> None:
    pixels = torch.zeros(4, 6, 3, dtype=torch.uint8)
    pixels[:, :3] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held on its side: the first row is on the right
    Image.fromarray(pixels.numpy()).save(tmp_path / "a.png", exif=exif)
    found = read_image(tmp_path / "a.png")
    assert found.shape == (3, 6, 4)
    assert torch.equal(found[:, :3], torch.full((3, 3, 4), 255, dtype=torch.uint8))
    assert not found[:, 3:].any()


@pytest.mark.parametrize("kind", ["uint16", "float32"])
def test_grey_values_of_many_bits_are_spread_over_eight(tmp_path: Path, kind: str) -> None:
    grey = np.array([[1000, 2000], [3000, 5000]], dtype=kind)
    Image.fromarray(grey).save(tmp_path / "a.tiff")
    found = read_image(tmp_path / "a.tiff")
    assert found[0].tolist() == found[2].tolist() == [[0, 64], [128, 255]]
