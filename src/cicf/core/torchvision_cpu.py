"""Imports torchvision where its wheel was built for CUDA and torch was not."""

import importlib
import sys
from types import ModuleType

import torch

_MISSING_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def torchvision(part: str) -> ModuleType:
    """Return a part of torchvision, such as `models`.

    It is imported where it is needed, because that takes as long as importing torch.
    """
    import_torchvision()
    return importlib.import_module(f"torchvision.{part}")


def import_torchvision() -> None:
    """Import torchvision, declaring the two operators whose absence stops its import on CPU torch.

    Only the schemas are declared: box suppression stays unavailable, and nothing here needs it.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for schema in _MISSING_OPERATORS:
            torch.library.define(
                "torchvision::" + schema.split("(")[0], schema[schema.index("(") :]
            )
        importlib.import_module("torchvision")
