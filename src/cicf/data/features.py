"""What k-means looks at: images at low resolution, or what a network makes of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from cicf.core import ConfigError, DataError, did_you_mean

_BATCH = 256


def pixel_features(
    images: Float[Tensor, "n channels height width"], *, resolution: int = 16
) -> Float[Tensor, "n d"]:
    """Return the images at low resolution, flat; a smaller image is left as it is."""
    height, width = (min(side, resolution) for side in images.shape[2:])
    return F.interpolate(images, (height, width), mode="area").flatten(1)


def pooled_features(
    model: nn.Module, images: Float[Tensor, "n ..."], *, layer: str | None = None
) -> Float[Tensor, "n d"]:
    """Return what enters the last linear layer, or what the named layer puts out, averaged.

    The model is run in evaluation mode, without a graph, and left as it was.
    """
    seen: list[Tensor] = []
    with _watched(model, layer, seen), _evaluating(model), torch.inference_mode():
        model(images)
    if not seen:
        raise ConfigError(f"layer={layer!r} takes no part in the forward; name one that does")
    return _pooled(seen[0])


def dataset_features(
    dataset: Dataset[Sequence[object]],
    *,
    model: nn.Module | None = None,
    layer: str | None = None,
    resolution: int = 16,
    num_workers: int = 0,
) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Return features and labels of a data set of (image, label, ...), in its own order.

    Without a model the features are pixels. The images must not be augmented, or the clusters would
    be those of the augmentation; one image is read twice to see that they are not.
    """
    _check_same_twice(dataset)
    device = torch.device("cpu") if model is None else next(model.parameters()).device
    features, labels = [], []
    for x, y, *_ in DataLoader(dataset, batch_size=_BATCH, num_workers=num_workers):
        if model is None:
            features.append(pixel_features(x, resolution=resolution))
        else:
            features.append(pooled_features(model, x.to(device), layer=layer).cpu())
        labels.append(torch.as_tensor(y))
    return torch.cat(features), torch.cat(labels)


def _check_same_twice(dataset: Dataset[Sequence[object]]) -> None:
    first, second = dataset[0], dataset[0]
    if not (isinstance(first, Sequence) and len(first) >= 2 and isinstance(first[0], Tensor)):
        raise DataError(
            "an item of the data set must be (image tensor, label, ...); convert images to tensors "
            "in its transform"
        )
    assert isinstance(second[0], Tensor)
    if not torch.equal(first[0], second[0]):
        raise DataError(
            "the data set gives another image each time it is asked for the same one; cluster the "
            "images without augmentation"
        )


@contextmanager
def _watched(model: nn.Module, layer: str | None, seen: list[Tensor]) -> Iterator[None]:
    if layer is None:
        linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
        if not linear:
            raise ConfigError(
                "the model has no linear layer to read the features of; name a layer by layer=..."
            )
        handle = linear[-1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    else:
        modules = dict(model.named_modules())
        if layer not in modules:
            hint = did_you_mean(layer, list(modules)[1:])
            raise ConfigError(f"layer={layer!r} is no module of the model; {hint}")
        handle = modules[layer].register_forward_hook(lambda _, __, output: seen.append(output))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    trained = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in trained:
            module.training = True


def _pooled(output: Tensor) -> Float[Tensor, "n d"]:
    """Return the mean over places: of a map [n, c, h, w], or of tokens [n, t, c]."""
    if output.ndim == 3:
        return output.mean(dim=1)
    return output.flatten(2).mean(dim=2) if output.ndim > 2 else output
