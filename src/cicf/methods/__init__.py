"""The methods, one file each; none imports another."""

from cicf.method import MethodConfig
from cicf.methods.cicf import Cicf, CicfConfig
from cicf.methods.epi_fcr import EpiFcr, EpiFcrConfig
from cicf.methods.erm import Erm, ErmConfig
from cicf.methods.fish import Fish, FishConfig
from cicf.methods.maml import Maml, MamlConfig
from cicf.methods.metareg import MetaReg, MetaRegConfig

METHODS: dict[str, type[MethodConfig]] = {
    "erm": ErmConfig,
    "maml": MamlConfig,
    "cicf": CicfConfig,
    "epi_fcr": EpiFcrConfig,
    "fish": FishConfig,
    "metareg": MetaRegConfig,
}
"""The options of every method, by name."""

__all__ = [
    "METHODS",
    "Cicf",
    "CicfConfig",
    "EpiFcr",
    "EpiFcrConfig",
    "Erm",
    "ErmConfig",
    "Fish",
    "FishConfig",
    "Maml",
    "MamlConfig",
    "MetaReg",
    "MetaRegConfig",
]
