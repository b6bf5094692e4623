"""RunConfig: everything about a run that can be chosen, frozen and typed."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveInt,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from cicf.core import ConfigError, did_you_mean
from cicf.core.frozen import Frozen
from cicf.core.imported import imported
from cicf.data.autoaugment import Policy
from cicf.data.clustering import ClustersConfig
from cicf.data.confounded import CONFOUNDED, STRENGTH, Kind
from cicf.data.sampling import INNER_SIZE, OUTER_SIZE
from cicf.data.transforms import Augment
from cicf.method import MethodConfig
from cicf.methods import METHODS
from cicf.training import AverageConfig, MachineConfig, OptimConfig


class DataConfig(Frozen):
    """Says which images a run learns from, and how they reach the network."""

    name: str
    """`demo`, `confounded`, a benchmark such as `pacs`, a folder with class/*.jpg or
    domain/class/*.jpg, or a manifest, .csv or .jsonl, with path,label[,domain][,split]."""
    root: Path | None = None
    """The folder in which `name` lies; None if it is a path by itself."""
    target: str | None = None
    """The domain that is held out to test on; None to train on all."""
    source: str | None = None
    """The only domain to train on, and to test on the others; None for several."""
    validation: float = Field(default=0.1, gt=0, lt=1)
    """The share of the training images that is held out to choose by, where no split is given."""
    uses_given_split: bool = True
    """Whether images are split as lists or folders that come with them say."""
    skips_unreadable: bool = False
    """Whether to leave out images that cannot be read, instead of stopping."""
    image_size: int | None = Field(default=None, gt=0, le=4096)
    """Side of the images in pixels; None for what the network was made for."""
    normalise: Literal["imagenet", "half"] = "imagenet"
    """Mean and deviation of the colours: those of ImageNet, or one half."""
    augment: Augment = "basic"
    """What happens to training images: `none`, `basic` (flip, translation), `autoaugment`."""
    flips: bool = True
    """Whether training images are mirrored; wrong for digits and letters."""
    policy: Policy = "imagenet"
    """With `autoaugment`, the policy."""
    strength: float | None = Field(default=None, ge=0, le=1)
    """Of `confounded` alone: the share of the training images whose confounder follows the
    label; 0.9 there unless it is set."""
    confounder: Kind | None = None
    """Of `confounded` alone: what lies behind the digits, a `colour` or a photo's `background`;
    `colour` there unless it is set."""

    @property
    def is_confounded(self) -> bool:
        """Tell whether these are the embedded digits with a known confounder."""
        # With a root, it is a folder of that name.
        return self.name == CONFOUNDED and self.root is None

    @model_validator(mode="before")
    @classmethod
    def _with_confounder(cls, values: Any) -> Any:
        """Write down what None means for `confounded`, so that it is part of a run's identity."""
        if not isinstance(values, Mapping) or values.get("name") != CONFOUNDED:
            return values
        meant = {"strength": STRENGTH, "confounder": "colour"} if not values.get("root") else {}
        return {**values, **{k: v for k, v in meant.items() if values.get(k) is None}}

    @model_validator(mode="after")
    def _has_confounder_where_one_is_known(self) -> "DataConfig":
        for option in ("strength", "confounder"):
            value = getattr(self, option)
            if value is not None and not self.is_confounded:
                raise ConfigError(
                    f"data.{option}={value!r} belongs to the data {CONFOUNDED!r}, not to "
                    f"{self.name!r}; leave it out, or train on {CONFOUNDED!r}"
                )
        return self


class ModelConfig(Frozen):
    """Says which network is trained, and where it is cut."""

    name: str = "resnet18"
    """One of ours, any classifier of torchvision, or package.module:builder."""
    cut: str | None = None
    """Where Z is: `input`, `Z_0`, … or after a module; None for Z_0 where stages are known."""
    weights: str = "imagenet"
    """What it starts from: `imagenet`, `none`, or a .safetensors or .pth file."""


class InnerConfig(Frozen):
    """Says how large the inner batch is."""

    size: PositiveInt | None = None
    """M; None for `most`, or fewer where the training set is smaller."""
    most: PositiveInt = INNER_SIZE
    """The largest M that is taken when `size` is None."""


class OuterConfig(Frozen):
    """Says how large the outer batch is."""

    size: PositiveInt | None = None
    """M^l; None for `most`, or fewer where the training set is small."""
    most: PositiveInt = OUTER_SIZE
    """The largest M^l that is taken when `size` is None."""


def method_config(value: Any) -> Any:
    """Return the options of the method that is named, of its own type; other values as they are."""
    return _method_config(value, "method")


def _method_config(value: Any, section: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    name = str(value.get("name", "cicf"))
    kind = method_kind(name, f"{section}.name")
    base = value.get("base")
    if base is not None:
        # By its name, or with options of its own.
        base = {"name": base} if isinstance(base, str) else base
        if "base" not in kind.model_fields:
            shown = base.get("name") if isinstance(base, Mapping) else base
            raise ConfigError(
                f"method.base={shown!r} belongs to the method 'cicf', which takes the loss of "
                f"another; leave it out for {name!r}, or train with cicf"
            )
        value = {**value, "base": _method_config(base, "method.base")}
    try:
        return kind.model_validate({**value, "name": name})
    except ValidationError as error:
        raise ConfigError(_sentence(error, kind, f"{section}.")) from error


def method_kind(name: str, option: str = "method.name") -> type[MethodConfig]:
    """Return the class of a method's options, by the method's name or as package.module:Class."""
    return METHODS.get(name) or _own_method(name, option)


def _own_method(name: str, option: str) -> type[MethodConfig]:
    if ":" not in name:
        raise ConfigError(
            f"{option}={name!r} is not known; name the config class of your own as "
            f"package.module:Config, or {did_you_mean(name, METHODS)}"
        )
    found = imported(name, option=option)
    if not (isinstance(found, type) and issubclass(found, MethodConfig)):
        raise ConfigError(f"{option}={name!r} is no subclass of cicf.method.MethodConfig")
    return found


_ADDED: dict[str, object] = {
    "evaluates_every": 1,
    "method.alpha_ramp": 0,
    "method.alpha_schedule": "constant",
    "method.base": None,
}
"""Options that came later, with what was so before: runs without them keep their names."""


class RunConfig(Frozen):
    """Holds everything about a run that can be chosen."""

    data: DataConfig
    model: ModelConfig = ModelConfig()
    method: Annotated[SerializeAsAny[MethodConfig], BeforeValidator(method_config)] = Field(
        default_factory=METHODS["cicf"]
    )
    inner: InnerConfig = InnerConfig()
    outer: OuterConfig = OuterConfig()
    clusters: ClustersConfig = ClustersConfig()
    optim: OptimConfig = OptimConfig()
    average: AverageConfig = AverageConfig()
    epochs: PositiveInt = 60
    """Passes through the training set, of ⌊N / M^l⌋ steps each."""
    seed: NonNegativeInt = 0
    """What everything random in the run follows from."""
    evaluates_every: PositiveInt = 1
    """Epochs between evaluations, and θ† with them, which takes a pass through the training set;
    the last epoch has one in any case."""
    log_every: PositiveInt = 10
    """Steps between rows in metrics.jsonl."""
    keeps_epochs: bool = False
    """Whether the networks of all epochs are kept and tested, when training has ended."""
    machine: MachineConfig = MachineConfig()

    def identity(self) -> dict[str, Any]:
        """Return all that decides what comes out, as plain values.

        The machine does not, nor does the place of the images, whose fingerprint speaks for them.
        """
        found: dict[str, Any] = json.loads(
            self.model_dump_json(exclude={"machine": True, "data": {"root"}})
        )
        if not self.data.is_confounded:
            # They mean nothing elsewhere.
            del found["data"]["strength"], found["data"]["confounder"]
        if self.average.name == "none":
            # As for runs from before weights could be averaged.
            del found["average"]
        for name, usual in _ADDED.items():
            section, _, option = name.rpartition(".")
            values = found[section] if section else found
            if option in values and values[option] == usual:
                del values[option]
        return found

    def run_id(self, fingerprint: str) -> str:
        """Return a name: words to know the run by, and a hash of what decides the outcome."""
        text = json.dumps([self.identity(), fingerprint], sort_keys=True)
        words = [
            Path(self.data.name).name or Path(self.data.name).resolve().name,
            self.data.target,
            self.data.source and f"from-{self.data.source}",
            self.method.name.rpartition(":")[2],
        ]
        name = re.sub(r"[^\w.-]", "_", "-".join(str(word) for word in words if word))
        return f"{name}-{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def make_config(values: Mapping[str, Any]) -> RunConfig:
    """Return the config that nested dictionaries describe, or say what is wrong with them."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_sentence(error, RunConfig, "")) from error


def option_names(kind: type[Frozen], prefix: str = "") -> Iterator[str]:
    """Yield the names of all options, as `--set` takes them; of the method, only `method.name`."""
    for name, field in kind.model_fields.items():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, MethodConfig):
            yield f"{prefix}{name}.name"
        elif isinstance(nested, type) and issubclass(nested, Frozen):
            yield from option_names(nested, f"{prefix}{name}.")
        else:
            yield prefix + name


def described(config: Frozen, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield every option of a config: its name for `--set`, its value, its meaning."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, Frozen):
            yield from described(value, f"{prefix}{name}.")
        else:
            # As it is written for --set, where a tuple is a list.
            text = json.dumps(value) if isinstance(value, tuple) else str(value)
            yield prefix + name, text, " ".join((field.description or "").split())


def _sentence(error: ValidationError, kind: type[Frozen], prefix: str) -> str:
    """Return the first thing that is wrong, in one sentence."""
    errors = error.errors()
    first = errors[0]
    known = list(option_names(kind, prefix))
    name = prefix + ".".join(str(part) for part in first["loc"])
    section = name.rpartition(".")[0]
    if first["type"] == "extra_forbidden":
        near = [each for each in known if each.startswith(f"{section}.")]
        return f"{name} is no option; {did_you_mean(name, near or known)}"
    if first["type"] == "missing":
        return f"{name} is missing; give it a value"
    rules = [first["msg"]]
    if first["type"] == "model_type":
        own = ", ".join(each for each in known if each.startswith(f"{name}."))
        rules = [f"It has options of its own; set {own}"]
    if first["type"] == "string_type":
        rules = [f"It must be a text; if it is one, quote it, as in {name}='\"a text\"'"]
    if section in known:
        # Below an option lie the types that it may have, of which none fits.
        name = section
        rules = [each["msg"] for each in errors if each["loc"][:-1] == first["loc"][:-1]]
    rule = ", or ".join(each[:1].lower() + each[1:] for each in rules)
    return f"{name}={first['input']!r} cannot be: {rule}"
