"""The methods, one file each; none imports another."""

from cicf.method import MethodConfig
from cicf.methods.cicf import Cicf, CicfConfig
from cicf.methods.crossgrad import CrossGrad, CrossGradConfig
from cicf.methods.ddaig import Ddaig, DdaigConfig
from cicf.methods.erm import Erm, ErmConfig
from cicf.methods.fact import Fact, FactConfig
from cicf.methods.maml import Maml, MamlConfig

METHODS: dict[str, type[MethodConfig]] = {
    "erm": ErmConfig,
    "maml": MamlConfig,
    "cicf": CicfConfig,
    "crossgrad": CrossGradConfig,
    "ddaig": DdaigConfig,
    "fact": FactConfig,
}
"""The options of every method, by name."""

__all__ = [
    "METHODS",
    "Cicf",
    "CicfConfig",
    "CrossGrad",
    "CrossGradConfig",
    "Ddaig",
    "DdaigConfig",
    "Erm",
    "ErmConfig",
    "Fact",
    "FactConfig",
    "Maml",
    "MamlConfig",
]
