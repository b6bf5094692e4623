"""The commands of docs/reproduce.md are commands that there are, with options that they have."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from cicf.cli.app import app

TEXT = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
COMMANDS = sorted({line.split("#")[0].strip() for line in re.findall(r"cicf [^`\n]+", TEXT)})


def test_there_is_a_command_for_every_table() -> None:
    benches = [command for command in COMMANDS if "--preset paper" in command]
    assert {command.split()[2] for command in benches} == {
        "pacs",
        "digits-dg",
        "office-home",
        "vlcs",
    }
    assert any("resnet50" in command for command in benches)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_and_its_options_exist(command: str) -> None:
    # Parsed only: the images of the benchmarks do not come with the package.
    here, words = get_command(app), shlex.split(command)[1:]
    while hasattr(here, "commands"):
        here = here.commands[words.pop(0)]
    assert here.make_context(here.name, words).params
