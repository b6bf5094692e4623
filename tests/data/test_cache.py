"""Decoded images on disk: the same pixels, made once, whatever happens to whoever makes them."""

import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from cicf.data import cache as module
from cicf.data import images as decoding
from cicf.data.cache import Cache, Wanted, clear, default_root, kept
from cicf.data.domains import DomainDataset
from cicf.data.fingerprint import fingerprint
from cicf.data.images import ImageFiles
from cicf.data.transforms import HALF, Transform

SHAPES = ((20, 20), (31, 20), (16, 16), (9, 14))
SIZE, COUNT = 16, 12
TRANSFORM = Transform(SIZE, *HALF, augment="basic")
VIEWS = (TRANSFORM.evaluated_view, *TRANSFORM.trained_views)
ALL = torch.arange(COUNT)


def write_files(folder: Path, count: int = COUNT) -> tuple[Path, ...]:
    """Write images of several shapes, of which half are squares."""
    folder.mkdir()
    paths = tuple(folder / f"{number:03d}.png" for number in range(count))
    stream = torch.Generator().manual_seed(0)
    for number, path in enumerate(paths):
        pixels = torch.randint(256, (*SHAPES[number % 4], 3), generator=stream)
        Image.fromarray(pixels.to(torch.uint8).numpy()).save(path)
    return paths


def dataset(images: ImageFiles) -> DomainDataset:
    zeros = torch.zeros(len(images), dtype=torch.int64)
    return DomainDataset(images, zeros, zeros, ("a", "b"), ("all",))


@pytest.fixture
def files(tmp_path: Path) -> ImageFiles:
    return ImageFiles(write_files(tmp_path / "images"))


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Record every file that is decoded."""
    seen: list[Path] = []
    original = decoding._decoded

    def decoded(file: Path) -> Tensor:
        seen.append(file)
        return original(file)

    monkeypatch.setattr(decoding, "_decoded", decoded)
    return seen


def opened(files: ImageFiles, root: Path) -> ImageFiles:
    return files.kept_in(Cache(root, fingerprint(dataset(files)), count=len(files)))


def filled(files: ImageFiles, root: Path) -> ImageFiles:
    images = opened(files, root)
    list(images.store.add([Wanted(images, VIEWS)]))
    return images


def is_same(found: ImageFiles, files: ImageFiles) -> bool:
    return all(torch.equal(found.view(view, ALL), files.view(view, ALL)) for view in VIEWS)


def test_pixels_are_the_same_with_and_without_it(
    files: ImageFiles, cache_root: Path, decodes: list[Path]
) -> None:
    kept_images = filled(files, cache_root)
    places = torch.tensor([7, 0, 7, 3, 11])
    for view in VIEWS:
        expected = files.view(view, places)
        decodes.clear()
        assert torch.equal(kept_images.view(view, places), expected)
        assert torch.equal(kept_images.take(places).view(view, ALL[:5]), expected)
        assert decodes == []
    training, evaluation = (
        (
            TRANSFORM.training(dataset(each), places, seed=3),
            TRANSFORM.evaluation(dataset(each), places),
        )
        for each in (kept_images, files)
    )
    assert all(torch.equal(a, b) for a, b in zip(training, evaluation, strict=True))


def test_every_image_is_decoded_once(
    files: ImageFiles, cache_root: Path, decodes: list[Path]
) -> None:
    filled(files, cache_root)
    assert sorted(decodes) == sorted(files.paths)
    decodes.clear()
    again = filled(files, cache_root)
    assert is_same(again, again)
    assert decodes == []


def test_what_is_added_later_leaves_the_rest_alone(
    files: ImageFiles, cache_root: Path, decodes: list[Path]
) -> None:
    images = opened(files, cache_root)
    first, second = images.take(ALL[:5]), images.take(ALL[3:])
    list(images.store.add([Wanted(first, VIEWS[:1])]))
    assert sorted(decodes) == sorted(files.paths[:5])
    list(images.store.add([Wanted(second, VIEWS[:1])]))
    assert sorted(decodes) == sorted(files.paths)
    list(images.store.add([Wanted(images, VIEWS)]))
    assert len(decodes) == 2 * COUNT
    decodes.clear()
    assert torch.equal(images.view(VIEWS[1], ALL), files.view(VIEWS[1], ALL))
    assert len(decodes) == COUNT


def test_squares_are_not_stored_twice(files: ImageFiles, cache_root: Path) -> None:
    filled(files, cache_root)
    (folder,) = kept(cache_root)
    sizes = {
        shelf.name: sum(path.stat().st_size for path in shelf.rglob("pixels"))
        for shelf in folder.path.iterdir()
        if shelf.is_dir()
    }
    one, large = 3 * SIZE**2, 3 * 18**2
    assert sizes == {
        "centre-16": COUNT * one,
        "squeezed-16": COUNT // 2 * one,
        "squeezed-18": COUNT * large,
    }


def test_workers_map_the_files_instead_of_getting_a_copy(
    files: ImageFiles, cache_root: Path
) -> None:
    images = filled(files, cache_root)
    sent = pickle.dumps(images)
    assert len(sent) < COUNT * 3 * SIZE**2
    assert is_same(pickle.loads(sent), files)


def test_a_changed_image_is_another_data_set(files: ImageFiles, cache_root: Path) -> None:
    filled(files, cache_root)
    content = files.paths[0].read_bytes()
    files.paths[0].write_bytes(files.paths[1].read_bytes())
    try:
        assert is_same(filled(files, cache_root), files)
        assert len(kept(cache_root)) == 2
    finally:
        files.paths[0].write_bytes(content)


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize("harm", [damaged, cut, Path.unlink])
@pytest.mark.parametrize("name", ["pixels", "index.npz"])
@pytest.mark.parametrize("shelf", ["centre-16", "squeezed-16"])
def test_what_was_damaged_is_made_anew(
    files: ImageFiles, cache_root: Path, harm: object, name: str, shelf: str
) -> None:
    filled(files, cache_root)
    (hurt,) = (cache_root / "v1").glob(f"*/{shelf}/*/{name}")
    harm(hurt)
    again = opened(files, cache_root)
    assert is_same(again, files)
    list(again.store.add([Wanted(again, VIEWS)]))
    assert is_same(again, files)
    assert not hurt.exists()
    assert len(list((cache_root / "v1").glob(f"*/{shelf}/*/{name}"))) == 1


def test_disk_that_is_too_small_is_left_alone(
    files: ImageFiles,
    cache_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    usage = shutil.disk_usage(cache_root.parent)
    need = COUNT * sum(view.bytes for view in VIEWS)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=4 * need - 4))
    images = filled(files, cache_root)
    assert "12 decoded images are not kept, because they would take" in caplog.text
    assert list(cache_root.rglob("pixels")) == []
    assert is_same(images, files)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=4 * need))
    filled(files, cache_root)
    assert len(list(cache_root.rglob("pixels"))) == 3


def test_folder_that_cannot_be_written_is_done_without(
    files: ImageFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    images = filled(files, tmp_path / "file" / "cache")
    assert is_same(images, files)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.text.count("decoded images are not kept: ") == 1
    images.store.mark_checked()
    assert not images.store.is_checked


def test_full_disk_while_writing_leaves_nothing_behind(
    files: ImageFiles,
    cache_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.Writer, "close", full)
    images = filled(files, cache_root)
    assert "No space left on device" in caplog.text
    assert [path for path in cache_root.rglob("*") if path.is_file() and path.name != ".lock"] == []
    assert is_same(images, files)


def test_whoever_is_stopped_midway_leaves_nothing_behind(
    files: ImageFiles, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 2)
    images = opened(files, cache_root)
    adding = images.store.add([Wanted(images, VIEWS)])
    assert [next(adding).done for _ in range(3)] == [0, 2, 4]
    adding.close()
    assert list(cache_root.rglob("pixels")) == []
    assert is_same(filled(files, cache_root), files)


PROGRAM = """
import sys, time
from pathlib import Path
from cicf.data import cache, images
from cicf.data.views import View

root, folder, pause, log = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
decoded = images._decoded

def slow(file):
    time.sleep(pause)
    with open(log, "a") as lines:
        lines.write(f"{file}\\n")
    return decoded(file)

images._decoded = slow
files = images.ImageFiles(tuple(sorted(folder.iterdir())))
store = cache.Cache(root, "data", count=len(files))
files = files.kept_in(store)
for _ in store.add([cache.Wanted(files, (View("centre", 16), View("squeezed", 18)))]):
    pass
"""


def builder(root: Path, files: ImageFiles, log: Path, *, pause: float) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", PROGRAM, root, files.paths[0].parent, str(pause), log]
    return subprocess.Popen([*map(str, words)], env={**os.environ, "OMP_NUM_THREADS": "1"})


@pytest.mark.slow
def test_two_builders_decode_every_image_once(
    files: ImageFiles, cache_root: Path, tmp_path: Path
) -> None:
    log = tmp_path / "decoded"
    both = [builder(cache_root, files, log, pause=0.05) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    assert sorted(log.read_text().split()) == sorted(map(str, files.paths))
    images = files.kept_in(Cache(cache_root, "data", count=COUNT))
    images.store.open(VIEWS[:1])
    assert is_same(images, files)
    assert len(list(cache_root.rglob("pixels"))) == 2


@pytest.mark.slow
def test_killed_builder_is_as_if_it_had_not_been(
    files: ImageFiles, cache_root: Path, tmp_path: Path
) -> None:
    log = tmp_path / "decoded"
    first = builder(cache_root, files, log, pause=0.3)
    while not log.exists():
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    assert len(list(cache_root.rglob("*.part"))) == 2
    images = files.kept_in(Cache(cache_root, "data", count=COUNT))
    list(images.store.add([Wanted(images, VIEWS)]))
    assert is_same(images, files)
    assert list(cache_root.rglob("*.part")) == []


def test_images_that_decode_are_remembered_by_their_content(
    files: ImageFiles, cache_root: Path
) -> None:
    assert not opened(files, cache_root).store.is_checked
    opened(files, cache_root).store.mark_checked()
    assert opened(files, cache_root).store.is_checked
    files.paths[0].write_bytes(files.paths[0].read_bytes()[:60])
    assert not opened(files, cache_root).store.is_checked


def test_cleared_cache_is_empty_and_what_is_open_can_still_be_read(
    files: ImageFiles, cache_root: Path
) -> None:
    images = filled(files, cache_root)
    (found,) = kept(cache_root)
    assert found.images == COUNT
    assert found.bytes > COUNT * 3 * SIZE**2
    clear(cache_root)
    assert kept(cache_root) == []
    assert is_same(images, files)


def test_folder_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CICF_CACHE", "/a")
    assert default_root() == Path("/a")
    monkeypatch.delenv("CICF_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert default_root() == Path("/b/cicf")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/c")
    assert default_root() == Path("/c/.cache/cicf")


def test_gathered_images_are_a_copy(files: ImageFiles, cache_root: Path) -> None:
    images = filled(files, cache_root)
    images.view(VIEWS[0], ALL).zero_()
    assert np.any(images.view(VIEWS[0], ALL).numpy())
