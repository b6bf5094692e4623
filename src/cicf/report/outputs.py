"""Where what is made of runs may be written."""

from pathlib import Path

from cicf.core import ConfigError


def check_place(output: Path) -> None:
    """Refuse to write into the folder of a run, whose files are its only record."""
    for folder in output.absolute().parents:
        if any((folder / name).exists() for name in ("config.json", "result.json")):
            raise ConfigError(f"-o {output} lies in the folder of a run; name a file elsewhere")
