"""The methods, one file each; none imports another."""

from cicf.method import MethodConfig
from cicf.methods.cicf import Cicf, CicfConfig
from cicf.methods.erm import Erm, ErmConfig
from cicf.methods.maml import Maml, MamlConfig
from cicf.methods.matchdg import MatchDg, MatchDgConfig
from cicf.methods.mmld import Mmld, MmldConfig

METHODS: dict[str, type[MethodConfig]] = {
    "erm": ErmConfig,
    "maml": MamlConfig,
    "cicf": CicfConfig,
    "matchdg": MatchDgConfig,
    "mmld": MmldConfig,
}
"""The options of every method, by name."""

__all__ = [
    "METHODS",
    "Cicf",
    "CicfConfig",
    "Erm",
    "ErmConfig",
    "Maml",
    "MamlConfig",
    "MatchDg",
    "MatchDgConfig",
    "Mmld",
    "MmldConfig",
]
