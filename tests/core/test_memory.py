"""What memory there is, how a process keeps it, and what running out of it looks like."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from cicf.core import memory
from cicf.core.memory import SWITCH, free_bytes, is_out_of_memory, keep_memory

CPU = torch.device("cpu")


class Allocator:
    """Stands for the C library, and counts what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []
        self.answer = 1

    def mallopt(self, option: int, value: int) -> int:
        self.told.append((option, value))
        return self.answer


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Allocator]:
    """Give an allocator of one's own to a `keep_memory` that was not called yet."""
    for name in [each for each in os.environ if each.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    monkeypatch.delenv(SWITCH, raising=False)
    found = Allocator()
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: found)
    monkeypatch.setattr(memory.os, "confstr", lambda name: "glibc 2.36", raising=False)
    keep_memory.cache_clear()
    yield found
    keep_memory.cache_clear()


def test_memory_is_kept_by_glibc(allocator: Allocator) -> None:
    assert keep_memory()
    # Numbers from malloc.h: M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD.
    assert [option for option, _ in allocator.told] == [-4, -1, -2]


def test_allocator_is_told_once(allocator: Allocator) -> None:
    assert keep_memory() == keep_memory()
    assert len(allocator.told) == 3


def test_a_lean_process_gives_large_blocks_back(allocator: Allocator) -> None:
    assert keep_memory(is_lean=True)
    told = dict(allocator.told)
    # Numbers from malloc.h: M_MMAP_THRESHOLD, M_MMAP_MAX.
    assert told[-3] == 2**22
    assert told[-4] > 0


def test_what_is_lean_can_change(allocator: Allocator) -> None:
    for is_lean in (True, False):
        keep_memory(is_lean=is_lean)
    assert dict(allocator.told)[-4] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [(SWITCH, "0"), ("MALLOC_ARENA_MAX", "2"), ("GLIBC_TUNABLES", "glibc.malloc.check=3")],
)
def test_settings_of_the_environment_are_left(
    name: str, value: str, allocator: Allocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert not keep_memory()
    assert allocator.told == []


def test_allocator_that_refuses_keeps_nothing(allocator: Allocator) -> None:
    allocator.answer = 0
    assert not keep_memory()


def unknown(name: str) -> str:
    raise ValueError(f"unrecognized configuration name {name}")


@pytest.mark.parametrize("confstr", [unknown, lambda name: None, lambda name: "musl 1.2"])
def test_other_systems_are_left_alone(
    confstr: Callable[[str], str], allocator: Allocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory.os, "confstr", confstr)
    assert not keep_memory()
    assert allocator.told == []


FAULTS = """
import resource, torch
from cicf.core.memory import keep_memory
keep_memory()
def touched():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        torch.ones(8 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
# The first blocks that come back fit none of the same size: small ones took the ends of theirs.
for _ in range(4):
    touched()
print(touched())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of other systems is left alone")
def test_kept_memory_is_not_filled_with_zeros_again() -> None:
    def faults(**variables: str) -> int:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC"))}
        found = subprocess.run(
            [sys.executable, "-c", FAULTS],
            env={**inherited, "OMP_NUM_THREADS": "1", **variables},
            check=True,
            capture_output=True,
            text=True,
        )
        return int(found.stdout)

    given_back = faults(**{SWITCH: "0"})
    if given_back < 100:
        pytest.skip("this system does not count page faults, or gives no memory back")
    assert faults() < given_back / 10


GIB = 1 << 30


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root of a system with 8 GiB free and no control groups."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:   {8 << 20} kB\n")
    monkeypatch.setattr(memory, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path / "cgroup")
    return tmp_path


def limit(folder: Path, most: str, used: int, cache: int = 0, *, is_first: bool = False) -> None:
    """Write what a control group says of its memory."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    names = names if is_first else ("memory.max", "memory.current", "inactive_file")
    (folder / names[0]).write_text(f"{most}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon {used - cache}\n{names[2]} {cache}\n")


@pytest.mark.usefixtures("system")
def test_free_memory_is_what_the_system_says() -> None:
    assert free_bytes(CPU) == 8 * GIB


def test_free_memory_is_within_the_limit_of_the_container(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("0::/\n")
    limit(system / "cgroup", str(3 * GIB), GIB)
    assert free_bytes(CPU) == 2 * GIB


def test_files_that_were_read_do_not_count_as_used(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("0::/\n")
    limit(system / "cgroup", str(3 * GIB), 3 * GIB, cache=2 * GIB)
    assert free_bytes(CPU) == 2 * GIB


def test_free_memory_is_within_the_limits_of_a_job_and_of_what_is_around_it(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("3:cpu,cpuacct:/\n0::/jobs/7/step\n")
    limit(system / "cgroup/jobs/7/step", "max", 0)
    limit(system / "cgroup/jobs/7", str(2 * GIB), GIB)
    limit(system / "cgroup/jobs", str(6 * GIB), GIB)
    assert free_bytes(CPU) == GIB


def test_limits_of_the_first_version_are_honoured(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("4:memory:/job\n0::/\n")
    limit(system / "cgroup/memory/job", str(2 * GIB), GIB, is_first=True)
    assert free_bytes(CPU) == GIB


def test_limit_that_is_passed_leaves_nothing(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("0::/\n")
    limit(system / "cgroup", str(GIB), 2 * GIB)
    assert free_bytes(CPU) == 0


def test_system_that_says_nothing_has_half_of_its_memory_free(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (system / "proc/meminfo").unlink()
    monkeypatch.setattr(memory, "_physical", lambda: 6 * GIB)
    assert free_bytes(CPU) == 3 * GIB


def test_allocation_that_torch_refuses_is_recognised() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_other_allocators_are_recognised(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
        ValueError("can't allocate memory"),
        KeyboardInterrupt(),
    ],
)
def test_other_errors_are_not_those_of_an_allocation(error: BaseException) -> None:
    assert not is_out_of_memory(error)
