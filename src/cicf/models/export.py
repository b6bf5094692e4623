"""One file to ship: a network, its normalisation and its classes, checked against the network."""

import importlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cicf.core import CicfError, ConfigError
from cicf.core.modes import evaluating
from cicf.core.streams import generator

PerChannel = tuple[float, float, float]
Images = Float[Tensor, "n 3 size size"]
Probabilities = Float[Tensor, "n classes"]
TOLERANCE = 1e-4
FACTS = "cicf.json"
"""The name under which a file holds its classes, image size and kind of input, as JSON."""
_OTHER = {".pt2": ".onnx", ".onnx": ".pt2"}
_BATCHES = (1, 5)
_INPUT = "RGB, float32 in [0, 1], not normalised, of shape [n, 3, image_size, image_size]"


class Exportable(nn.Module):
    """Is a network that normalises its images itself and puts out probabilities."""

    def __init__(self, network: nn.Module, mean: PerChannel, std: PerChannel) -> None:
        super().__init__()
        self.network = network
        self.mean = nn.Buffer(torch.tensor(mean, dtype=torch.float32).view(3, 1, 1))
        self.std = nn.Buffer(torch.tensor(std, dtype=torch.float32).view(3, 1, 1))

    def forward(self, images: Images) -> Probabilities:
        """Return the probability of each class, for RGB images in [0, 1]."""
        logits: Tensor = self.network((images - self.mean) / self.std)
        return torch.softmax(logits, dim=1)


def export_model(
    network: nn.Module,
    path: Path,
    *,
    image_size: int,
    mean: PerChannel,
    std: PerChannel,
    classes: Sequence[str],
) -> float:
    """Write a .pt2 or .onnx file and return how far its probabilities are from the network's.

    The file is loaded back and runs random batches of two sizes. If a probability is off by more
    than `TOLERANCE`, that is an error, and what was at `path` before stays as it was.
    """
    _check_path(path)
    _check_values(network, std)
    model = Exportable(network, mean, std)
    facts = json.dumps({"classes": list(classes), "image_size": image_size, "input": _INPUT})
    shape = (sum(_BATCHES), 3, image_size, image_size)
    images = torch.rand(shape, generator=generator(0, "export"))
    # A folder for whatever exporters leave, beside the path, so that a rename is the last step.
    folder = TemporaryDirectory(dir=path.parent, prefix=".export-")
    with folder as name, evaluating(model), torch.no_grad():
        expected = [_probabilities(model, batch, len(classes)) for batch in images.split(_BATCHES)]
        written = Path(name) / path.name
        try:
            with _silence():
                # Two images: exporters may take a batch of one for a constant.
                _write(model, written, example=images[:2], facts=facts)
                run = _load(written)
                found = [run(batch) for batch in images.split(_BATCHES)]
            difference = float((torch.cat(found) - torch.cat(expected)).abs().max())
        except Exception as error:
            raise CicfError(
                f"the network cannot be written as {path.suffix} ({_reason(error)}); "
                f"try a path that ends in {_OTHER[path.suffix]}"
            ) from error
        _check_difference(difference, path)
        os.replace(written, path)
    return difference


def _check_path(path: Path) -> None:
    if path.suffix not in _OTHER:
        raise ConfigError(
            f"{path} ends in {path.suffix!r}, but the ending says what to write: .pt2 or .onnx"
        )
    if path.is_dir() or not path.parent.is_dir():
        wrong = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
        raise ConfigError(f"{path} {wrong}; name a file in a folder that exists")
    if path.suffix == ".onnx":
        try:
            for module in ("onnx", "onnxscript", "onnxruntime"):
                importlib.import_module(module)
        except ImportError as error:
            raise ConfigError(
                "writing .onnx needs onnx, onnxscript and onnxruntime; install them with: "
                "pip install 'cicf[onnx]'"
            ) from error


def _check_values(network: nn.Module, std: PerChannel) -> None:
    if min(std) <= 0:
        raise ConfigError(f"std={std} divides the images; each of its values must be above 0")
    for name, value in [*network.named_parameters(), *network.named_buffers()]:
        is_other = value.is_floating_point() and value.dtype != torch.float32
        if is_other or value.device.type != "cpu":
            raise ConfigError(
                f"{name} is {value.dtype} on {value.device}, but a file is written from float32 "
                "on the CPU, to run anywhere; pass network.cpu().float()"
            )


def _probabilities(model: Exportable, images: Images, num_classes: int) -> Probabilities:
    try:
        found: Tensor = model(images)
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        raise ConfigError(
            f"the network returns no logits for images of {images.shape[-1]} pixels "
            f"({_reason(error)}); pass a classifier and the image size it was trained with"
        ) from error
    if found.shape != (len(images), num_classes):
        raise ConfigError(
            f"the network returns logits of shape {list(found.shape)} for {len(images)} images, "
            f"but classes names {num_classes}; name each class once, in the order of the logits"
        )
    return found


@contextmanager
def _silence() -> Iterator[None]:
    """Keep what exporters print, log and warn from the user; their errors pass."""
    disabled, sink = logging.root.manager.disable, io.StringIO()
    with redirect_stdout(sink), redirect_stderr(sink), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch|onnx")
        # Unpickling a tree of torch's warns in the name of the standard library.
        warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")
        logging.disable(max(disabled, logging.WARNING))
        try:
            yield
        finally:
            logging.disable(disabled)


def _write(model: Exportable, path: Path, *, example: Images, facts: str) -> None:
    batch = ({0: torch.export.Dim("n", min=1)},)
    # Both formats keep the source of each operation, with the paths of this machine: dropped.
    if path.suffix == ".pt2":
        program = torch.export.export(model, (example,), dynamic_shapes=batch, strict=False)
        for graph in program.graph_module.modules():
            for node in graph.graph.nodes if isinstance(graph, torch.fx.GraphModule) else ():
                node.meta.pop("stack_trace", None)
        torch.export.save(program, path, extra_files={FACTS: facts})
        return
    names = ["probabilities"]
    exported = torch.onnx.export(
        model, (example,), output_names=names, dynamic_shapes=batch, dynamo=True, verbose=False
    )
    assert exported is not None
    for node in exported.model.graph.all_nodes():
        node.metadata_props.clear()
    exported.model.metadata_props[FACTS] = facts
    exported.save(path, external_data=False)


def _load(path: Path) -> Callable[[Images], Probabilities]:
    if path.suffix == ".pt2":
        return torch.export.load(path).module()
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    # Errors only, and one thread: more of them complain where cores are few.
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    # Bytes instead of the path: weights in a second file would not be found.
    cpu = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=cpu)
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def _check_difference(difference: float, path: Path) -> None:
    if not difference <= TOLERANCE:  # true of NaN, as `>` is not
        raise CicfError(
            f"the file for {path} was not kept: its probabilities differ from the network's by "
            f"{difference:.1e}, more than {TOLERANCE:.0e}; make the network deterministic in "
            f"evaluation mode, or try a path that ends in {_OTHER[path.suffix]}"
        )


def _reason(error: BaseException) -> str:
    """Return the first line of what went wrong first; exporters wrap it in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
