"""The step on networks that people use: residual, fully convolutional, attention."""

from collections.abc import Callable

import pytest
import torch
from tests.support.unrolled import distance, stepped_gradients, unrolled_gradients
from torch import nn

from cicf import Intervention, cross_entropy_per_sample
from cicf.core.torchvision_cpu import import_torchvision

import_torchvision()
from torchvision import models  # noqa: E402
from torchvision.models.convnext import CNBlockConfig  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("float64")]

Case = tuple[Callable[[], nn.Module], tuple[str, ...], int, dict[str, object]]
CASES: dict[str, Case] = {
    "resnet18": (
        lambda: models.resnet18(num_classes=4),
        ("conv1", "bn1", "relu", "maxpool"),
        32,
        {"batch_norm": "frozen", "chunk": 2},
    ),
    "mobilenet": (
        lambda: models.mobilenet_v2(num_classes=4, dropout=0.0),
        ("features.0", "features.1"),
        32,
        {"batch_norm": "frozen"},
    ),
    "vit": (
        lambda: models.VisionTransformer(16, 8, 2, 2, 16, 32, num_classes=4),
        ("conv_proj",),
        16,
        {"chunk": 2},
    ),
    "swin": (
        lambda: models.SwinTransformer(
            [2, 2], 16, [2, 2], [2, 2], [2, 2], num_classes=4, stochastic_depth_prob=0.0
        ),
        ("features.0",),
        16,
        {"chunk": 3},
    ),
    "convnext": (
        lambda: models.ConvNeXt(
            [CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)], num_classes=4
        ),
        ("features.0", "features.1"),
        16,
        {"chunk": 2},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_step_is_exact_on(name: str) -> None:
    build, h, side, options = CASES[name]
    model = build()
    batches = [(torch.randn(m, 3, side, side), torch.randint(4, (m,))) for m in (4, 3)]
    terms = Intervention(model, alpha=0.05, h=h, **options).backward(*batches)
    if options.get("batch_norm") == "frozen":
        model.eval()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = unrolled_gradients(
            model, *batches, loss=cross_entropy_per_sample, alpha=0.05, h=h
        )
    assert terms.is_exact
    assert distance(stepped_gradients(model), expected) < 1e-10
