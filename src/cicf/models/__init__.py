"""Networks cut at Z."""

from cicf.models.backbones import ARCHITECTURES, Architecture, build_model
from cicf.models.digits_cnn import DigitsCnn
from cicf.models.split import SplitModel, modules_until
from cicf.models.weights import Loaded, load_weights

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "DigitsCnn",
    "Loaded",
    "SplitModel",
    "build_model",
    "load_weights",
    "modules_until",
]
