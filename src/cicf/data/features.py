"""What k-means looks at: images at low resolution, or what a network makes of them."""

from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from cicf.core import ConfigError, DataError, did_you_mean
from cicf.core.modes import evaluating
from cicf.data.strata import whole_numbers

_BATCH = 256
_PROBES = 8


def pixel_features(
    images: Float[Tensor, "n channels height width"], *, resolution: int = 16
) -> Float[Tensor, "n d"]:
    """Return the images at low resolution, flat; a smaller image is left as it is."""
    if resolution < 1:
        raise ConfigError(f"resolution={resolution} must be at least 1 pixel")
    height, width = (min(side, resolution) for side in images.shape[2:])
    return F.interpolate(images, (height, width), mode="area").flatten(1)


def pooled_features(
    model: nn.Module, images: Float[Tensor, "n ..."], *, layer: str | None = None
) -> Float[Tensor, "n d"]:
    """Return what enters the last linear layer, or what the named layer puts out, averaged.

    The model is run in evaluation mode, without a graph, and left as it was.
    """
    seen: list[Tensor] = []
    with _watched(model, layer, seen), evaluating(model), torch.no_grad():
        model(images)
    if not seen:
        which = "the last linear layer" if layer is None else f"layer={layer!r}"
        raise ConfigError(f"{which} takes no part in the forward; name one that does by layer=...")
    if not isinstance(seen[0], Tensor):
        kind = type(seen[0]).__name__
        raise ConfigError(f"layer={layer!r} puts out a {kind}, not a tensor; name another")
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
    be those of the augmentation; a few are read twice to see that they are not.
    """
    if model is None and layer is not None:
        raise ConfigError(
            f"layer={layer!r} is a layer of a model; pass the model too, by model=..."
        )
    _check_items(dataset)
    like = next(iter(model.parameters()), torch.empty(0)) if model else torch.empty(0)
    features, labels = [], []
    # A generator of its own, or a loader would draw from the global random state.
    loader = DataLoader(
        dataset, batch_size=_BATCH, num_workers=num_workers, generator=torch.Generator()
    )
    for x, y, *_ in loader:
        if model is None:
            features.append(pixel_features(_as_float(x), resolution=resolution))
        else:
            inputs = _as_float(x).to(like)
            features.append(pooled_features(model, inputs, layer=layer).cpu())
        labels.append(whole_numbers(y, "the label"))
    return torch.cat(features), torch.cat(labels)


def _as_float(images: Tensor) -> Float[Tensor, "n ..."]:
    return images if images.is_floating_point() else images / 255


def _check_items(dataset: Dataset[Sequence[object]]) -> None:
    """Refuse a data set whose items are not images of one shape with a label, or are augmented."""
    if not isinstance(dataset, Sized) or len(dataset) == 0:
        raise DataError(
            "the data set has no length, or no images; pass one with dataset[i] and len"
        )
    shapes: dict[tuple[int, ...], int] = {}
    for index in sorted({len(dataset) * k // _PROBES for k in range(_PROBES)}):
        image, again = (_image(dataset[index], index) for _ in range(2))
        shapes.setdefault(tuple(image.shape), index)
        if len(shapes) > 1:
            (first, i), (other, j) = shapes.items()
            raise DataError(
                f"image {i} has shape {list(first)}, image {j} {list(other)}; resize all images to "
                "one shape in the data set's transform"
            )
        if not torch.equal(image, again):
            raise DataError(
                f"the data set gives another image {index} each time it is asked for it; "
                "cluster the images without augmentation"
            )


def _image(item: object, index: int) -> Tensor:
    if not isinstance(item, Sequence) or len(item) < 2 or not isinstance(item[0], Tensor):
        raise DataError(
            f"item {index} of the data set must be (image tensor, label, ...); convert images to "
            "tensors in its transform"
        )
    if item[0].ndim != 3:
        raise DataError(
            f"image {index} has shape {list(item[0].shape)}, but must be [channels, height, width]"
        )
    whole_numbers([item[1]], f"the label of item {index}")
    return item[0]


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


def _pooled(output: Tensor) -> Float[Tensor, "n d"]:
    """Return the mean over places: of a map [n, c, h, w], or of tokens [n, t, c]."""
    if output.ndim == 3:
        return output.mean(dim=1)
    return output.flatten(2).mean(dim=2) if output.ndim > 2 else output
