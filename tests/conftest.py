"""What all tests share: real data where it is, and a summary of what was skipped and why."""

import os
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
import pytest
import torch


def pytest_configure() -> None:
    """Keep what several tests share away from the user's own decoded images."""
    os.environ["CICF_CACHE"] = str(Path(tempfile.gettempdir()) / f"cicf-tests-{os.getpid()}")


def pytest_unconfigure() -> None:
    """Remove what was kept instead."""
    shutil.rmtree(os.environ["CICF_CACHE"], ignore_errors=True)


@pytest.fixture
def real_data() -> Path:
    """Return the folder of real data sets, or skip with the reason."""
    folder = os.environ.get("CICF_DATA")
    if not folder:
        pytest.skip("CICF_DATA names no folder with real data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all processes of this run of the tests share."""
    own = tmp_path_factory.getbasetemp()
    # The folder of a worker lies in that of the run.
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Start every test from the same random state and from single precision."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float32)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True)
def cache_root(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test a folder of its own for decoded images; it comes to be when it is used."""
    root = tmp_path_factory.getbasetemp() / f"cache-{uuid.uuid4().hex}"
    monkeypatch.setenv("CICF_CACHE", str(root))
    return root


@pytest.fixture
def float64() -> None:
    """Build models and tensors in double precision."""
    torch.set_default_dtype(torch.float64)


@pytest.fixture
def untyped() -> Iterator[None]:
    """Let a wrong value through to our own check, as it gets there outside the tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(autouse=True)
def typed(request: pytest.FixtureRequest) -> None:
    """Check types while short tests run; long ones call the same functions over and over."""
    if request.node.get_closest_marker("slow") is not None:
        request.getfixturevalue("untyped")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests were skipped, and for which reasons."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    terminalreporter.write_line(f"{len(skipped)} tests skipped")
    for reason, count in reasons.items():
        terminalreporter.write_line(f"  {count}: {reason}")
