"""The folder of a run: the unit of truth and of resumption."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from cicf.core import DataError
from cicf.core.files import write_text
from cicf.core.frozen import Frozen
from cicf.results.record import Parameters, Record, Selection, Setup

Values = dict[str, Any]  # Any: whatever JSON holds
_Kind = TypeVar("_Kind", bound=Frozen)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Names the files of a run; `result.json` is there only when it has finished."""

    path: Path

    @property
    def config_file(self) -> Path:
        """Return the file with the options of the run."""
        return self.path / "config.json"

    @property
    def setup_file(self) -> Path:
        """Return the file with what the run found before its first step."""
        return self.path / "setup.json"

    @property
    def metrics_file(self) -> Path:
        """Return the file with a line for every logged step and every evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def result_file(self) -> Path:
        """Return the file with the record."""
        return self.path / "result.json"

    @property
    def model_file(self) -> Path:
        """Return the file with the deployed network after the last epoch."""
        return self.path / "model.safetensors"

    def weights_file(self, at: Selection | int, parameters: Parameters) -> Path:
        """Return the file with θ or θ† after the last epoch, after the best, or after one kept."""
        name = f"epoch-{at:04d}" if isinstance(at, int) else at
        return self.path / "weights" / f"{name}-{parameters}.safetensors"

    @property
    def checkpoints(self) -> Path:
        """Return the folder with what an interrupted run goes on from."""
        return self.path / "checkpoints"

    @property
    def has_run(self) -> bool:
        """Tell whether a run was begun here."""
        return self.config_file.exists()

    @property
    def is_finished(self) -> bool:
        """Tell whether the run has ended."""
        return self.result_file.exists()

    def begin(self, config: Values) -> None:
        """Write the options of a new run."""
        write_text(self.config_file, json.dumps(config, indent=2) + "\n")

    def discard(self) -> None:
        """Remove what was written of a run that has not trained."""
        shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
        for path in (self.metrics_file, self.setup_file, self.config_file):
            path.unlink(missing_ok=True)

    def config(self) -> Values:
        """Return the options of the run."""
        if not self.has_run:
            raise DataError(f"{self.path} is no folder of a run; it has no config.json")
        try:
            return TypeAdapter(Values).validate_json(self.config_file.read_bytes())
        except ValidationError as error:
            raise DataError(
                f"{self.config_file} is no JSON object; bring it back, or remove {self.path} and "
                "run it again"
            ) from error

    def write_setup(self, setup: Setup) -> None:
        """Write what the run found before its first step."""
        write_text(self.setup_file, setup.model_dump_json(indent=2) + "\n")

    def setup(self) -> Setup:
        """Return what the run found before its first step."""
        if not self.setup_file.exists():
            raise DataError(f"{self.path} has not begun to train; start it with --resume")
        return _read(Setup, self.setup_file)

    def finish(self, record: Record) -> None:
        """Write the record, which marks the run as finished."""
        write_text(self.result_file, record.model_dump_json(indent=2) + "\n")

    def record(self) -> Record:
        """Return the record of the finished run."""
        if not self.is_finished:
            raise DataError(f"{self.path} has no result.json, so the run has not ended")
        return _read(Record, self.result_file)

    def metrics(self) -> Iterator[Values]:
        """Yield the rows of the metrics; a last one that was cut off by a crash is left out."""
        if not self.metrics_file.exists():
            return
        with self.metrics_file.open(encoding="utf-8") as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield json.loads(line)


def _read(kind: type[_Kind], file: Path) -> _Kind:
    try:
        return kind.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise DataError(
            f"{file} is no {kind.__name__.lower()} that this version reads "
            f"({error.error_count()} fields are wrong); remove {file.parent} and run it again"
        ) from error
