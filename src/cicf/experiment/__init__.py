"""The composition root: from a config to objects, and from a run to its record."""

from cicf.experiment.loaded import LoadedRun, open_run, read_images
from cicf.experiment.presets import merged
from cicf.experiment.recipes import recipe
from cicf.experiment.run import events, train

__all__ = ["LoadedRun", "events", "merged", "open_run", "read_images", "recipe", "train"]
