"""The commands. Only here is anything printed; torch is imported when a command needs it."""

from cicf.cli.app import main

__all__ = ["main"]
