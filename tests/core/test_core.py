"""Streams, errors, batches and replay."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cicf.core import did_you_mean
from cicf.core.batch import batch_size, chunks, take
from cicf.core.replay import RandomSource
from cicf.core.streams import generator, stream_seed

names = st.lists(st.text(max_size=5) | st.integers(-5, 5), max_size=3)


@given(seed=st.integers(0, 100), a=names, b=names)
def test_streams_differ_by_name_and_repeat_by_name(
    seed: int, a: list[str | int], b: list[str | int]
) -> None:
    assert stream_seed(seed, *a) == stream_seed(seed, *a)
    assert (stream_seed(seed, *a) == stream_seed(seed, *b)) == (a == b)
    assert 0 <= stream_seed(seed, *a) < 2**63


def test_streams_do_not_touch_the_global_state() -> None:
    before = torch.get_rng_state()
    first, second = (torch.rand(4, generator=generator(3, "clusters")) for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_hint_names_the_nearest_or_all() -> None:
    assert did_you_mean("layr1", ["layer1", "stem"]) == "did you mean 'layer1'?"
    assert did_you_mean("zzz", ["layer1", "stem"]) == "choose one of 'layer1', 'stem'"


def test_pieces_of_a_batch_put_together_are_the_batch() -> None:
    batch = {"x": torch.arange(10), "more": [torch.randn(10, 2), None]}
    parts = list(chunks(batch, 4))
    assert [batch_size(part) for part in parts] == [4, 4, 2]
    assert torch.equal(torch.cat([part["x"] for part in parts]), batch["x"])
    assert take(batch, torch.tensor([3, 1]))["x"].tolist() == [3, 1]


def test_restored_source_draws_again_what_it_drew() -> None:
    stream = torch.Generator().manual_seed(1)
    source = RandomSource([torch.device("cpu")], [stream])
    state = source.capture()
    first = torch.rand(3), torch.rand(3, generator=stream)
    source.restore(state)
    assert torch.equal(torch.rand(3), first[0])
    assert torch.equal(torch.rand(3, generator=stream), first[1])


def test_torchvision_imports_whatever_it_was_built_for() -> None:
    script = (
        "from cicf.core.torchvision_cpu import import_torchvision; import_torchvision();"
        "import torchvision; import_torchvision(); print(torchvision.models.resnet18().fc)"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "Linear" in found.stdout, found.stderr


def test_torchvision_import_repairs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from cicf.core import torchvision_cpu

    def broken(name: str) -> None:
        raise RuntimeError(f"{name}: another error")

    monkeypatch.setattr(torchvision_cpu.importlib, "import_module", broken)
    with pytest.raises(RuntimeError, match="another error"):
        torchvision_cpu.import_torchvision()
