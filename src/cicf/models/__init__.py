"""Networks cut at Z."""

from cicf.core.torchvision_cpu import import_torchvision

import_torchvision()

from cicf.models.backbones import ARCHITECTURES, Architecture, build_model  # noqa: E402
from cicf.models.digits_cnn import DigitsCnn  # noqa: E402
from cicf.models.split import SplitModel, modules_until  # noqa: E402
from cicf.models.weights import Loaded, load_weights  # noqa: E402

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
