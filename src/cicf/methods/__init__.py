"""The methods, one file each; none imports another."""

from cicf.method import MethodConfig
from cicf.methods.ccsa import Ccsa, CcsaConfig
from cicf.methods.cicf import Cicf, CicfConfig
from cicf.methods.coral import Coral, CoralConfig
from cicf.methods.crossgrad import CrossGrad, CrossGradConfig
from cicf.methods.ddaig import Ddaig, DdaigConfig
from cicf.methods.epi_fcr import EpiFcr, EpiFcrConfig
from cicf.methods.erm import Erm, ErmConfig
from cicf.methods.fact import Fact, FactConfig
from cicf.methods.fish import Fish, FishConfig
from cicf.methods.jigen import Jigen, JigenConfig
from cicf.methods.maml import Maml, MamlConfig
from cicf.methods.masf import Masf, MasfConfig
from cicf.methods.matchdg import MatchDg, MatchDgConfig
from cicf.methods.metareg import MetaReg, MetaRegConfig
from cicf.methods.mixstyle import MixStyle, MixStyleConfig
from cicf.methods.mldg import Mldg, MldgConfig
from cicf.methods.mmd_aae import MmdAae, MmdAaeConfig
from cicf.methods.mmld import Mmld, MmldConfig
from cicf.methods.rsc import Rsc, RscConfig

METHODS: dict[str, type[MethodConfig]] = {
    "erm": ErmConfig,
    "maml": MamlConfig,
    "cicf": CicfConfig,
    "ccsa": CcsaConfig,
    "coral": CoralConfig,
    "crossgrad": CrossGradConfig,
    "ddaig": DdaigConfig,
    "epi_fcr": EpiFcrConfig,
    "fact": FactConfig,
    "fish": FishConfig,
    "jigen": JigenConfig,
    "masf": MasfConfig,
    "matchdg": MatchDgConfig,
    "metareg": MetaRegConfig,
    "mixstyle": MixStyleConfig,
    "mldg": MldgConfig,
    "mmd_aae": MmdAaeConfig,
    "mmld": MmldConfig,
    "rsc": RscConfig,
}
"""The options of every method, by name."""

__all__ = [
    "METHODS",
    "Ccsa",
    "CcsaConfig",
    "Cicf",
    "CicfConfig",
    "Coral",
    "CoralConfig",
    "CrossGrad",
    "CrossGradConfig",
    "Ddaig",
    "DdaigConfig",
    "EpiFcr",
    "EpiFcrConfig",
    "Erm",
    "ErmConfig",
    "Fact",
    "FactConfig",
    "Fish",
    "FishConfig",
    "Jigen",
    "JigenConfig",
    "Maml",
    "MamlConfig",
    "Masf",
    "MasfConfig",
    "MatchDg",
    "MatchDgConfig",
    "MetaReg",
    "MetaRegConfig",
    "MixStyle",
    "MixStyleConfig",
    "Mldg",
    "MldgConfig",
    "MmdAae",
    "MmdAaeConfig",
    "Mmld",
    "MmldConfig",
    "Rsc",
    "RscConfig",
]
