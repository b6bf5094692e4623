"""A network cut at Z into h, before it, and f, after it."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from cicf.core import ConfigError, did_you_mean
from cicf.core.modes import outputs_of


class SplitModel(nn.Module):
    """Is a network and the names of what lies before Z; its forward is the network's own.

    `stages` are the modules that put out Z_0, Z_1, …; empty where they are not known.
    """

    def __init__(
        self, network: nn.Module, *, cut: str, before: Sequence[str], stages: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.network = network
        self.cut = cut
        self.before = tuple(before)
        self.stages = tuple(stages)

    def forward(self, x: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n classes"]:
        """Return the logits."""
        logits: Tensor = self.network(x)
        return logits

    @property
    def h(self) -> tuple[str, ...]:
        """Return the names of the modules before Z, as `Intervention` takes them."""
        return tuple(f"network.{name}" for name in self.before)


def modules_until(
    network: nn.Module,
    name: str,
    image: Float[Tensor, "1 channels height width"],
    *,
    stages: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the modules that have run once the named one has put out its value.

    Found by running one image; a module that has only begun by then is entered, not taken whole.
    `stages` are other names that a wrong one may have meant.
    """
    modules = dict(network.named_modules())
    if name not in modules or not name:
        hint = did_you_mean(name, [*stages, *(known for known in modules if known)])
        raise ConfigError(f"cut={name!r} is no stage and no module of the network; {hint}")
    done = [each for each, _ in outputs_of(network, image) if each]
    if name not in done:
        raise ConfigError(f"cut={name!r} takes no part in the forward; name a module that does")
    run = done[: done.index(name) + 1]
    return tuple(each for each in run if not _is_inside(each, run))


def _is_inside(name: str, others: Sequence[str]) -> bool:
    return any(name.startswith(other + ".") for other in others)
