"""The methods, one file each; none imports another."""

from cicf.method import MethodConfig
from cicf.methods.cicf import Cicf, CicfConfig
from cicf.methods.erm import Erm, ErmConfig
from cicf.methods.maml import Maml, MamlConfig
from cicf.methods.masf import Masf, MasfConfig
from cicf.methods.mldg import Mldg, MldgConfig

METHODS: dict[str, type[MethodConfig]] = {
    "erm": ErmConfig,
    "maml": MamlConfig,
    "cicf": CicfConfig,
    "masf": MasfConfig,
    "mldg": MldgConfig,
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
    "Masf",
    "MasfConfig",
    "Mldg",
    "MldgConfig",
]
