"""`cicf preset`: what the values of a preset are."""

from typing import Annotated, Any

import typer

from cicf.cli.options import Values
from cicf.cli.show import print_line


def preset(
    name: Annotated[str, typer.Argument(help="recommended, paper, paper-literal or cpu.")],
    data: Annotated[str, typer.Option(help="A benchmark, demo, confounded, or a folder.")] = "pacs",
    method: Annotated[str, typer.Option(help="The method.")] = "cicf",
    augment: Annotated[str, typer.Option(help="basic, autoaugment or none.")] = "basic",
    model: Annotated[str | None, typer.Option(help="A network other than the preset's.")] = None,
) -> None:
    """Print all values of a preset, as a file for cicf train DATA --config FILE."""
    import tomli_w

    from cicf.experiment import recipe
    from cicf.experiment.presets import EMBEDDED, MEANINGS

    over: Values = {"method": {"name": method}, "data": {"augment": augment}}
    if model is not None:
        over["model"] = {"name": model}
    config = recipe(data, over, preset=name)
    meaning = next(text for each, text in MEANINGS.items() if each == name)
    values = _without_none(config.model_dump(mode="python", exclude={"machine", "seed"}))
    root = "" if data in EMBEDDED else " --root DIR"
    print_line(f"# Preset {name}: {meaning}.")
    print_line(f"# cicf train {data}{root} --target DOMAIN --config THIS_FILE")
    print_line(tomli_w.dumps(values))


def _without_none(values: dict[str, Any]) -> Values:
    """Return nested values without those that TOML has no word for, which are all defaults."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }
