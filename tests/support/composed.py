"""A loss inside of CICF's step, against unrolled autograd with the same random draws."""

import math

import torch
from tests.support.methods import draw_for, given_for
from tests.support.unrolled import distance, stepped_gradients, unrolled_gradients
from torch import Tensor

from cicf.data.domains import DomainDataset
from cicf.method import MethodConfig
from cicf.methods import CicfConfig
from cicf.models.split import SplitModel

Gradients = dict[str, Tensor | None]


def gap_inside_cicf(base: MethodConfig, model: SplitModel, data: DomainDataset) -> float:
    """Return how far CICF's gradient of this loss is from that of unrolled autograd, relatively.

    The larger gap of two: pass 3 by the graphs of pass 1, and by playing its draws again.
    """
    return max(_gap(base, model, data, keeps_graphs=keeps) for keeps in (True, False))


def _gap(
    base: MethodConfig, model: SplitModel, data: DomainDataset, *, keeps_graphs: bool
) -> float:
    config = CicfConfig(
        base=base, alpha=0.1, max_step_ratio=math.inf, chunk=None, keeps_graphs=keeps_graphs
    )
    method = config.build(given_for(model, data))
    assert method.base is not None
    model.train()
    model.zero_grad()
    draw = draw_for(method, data)
    torch.manual_seed(5)
    expected = unrolled_gradients(model, draw.inner, draw.outer, loss=method.base, alpha=0.1)
    torch.manual_seed(5)
    method.backward(draw)
    own = {f"loss.{name}": p.grad for name, p in method.base.named_parameters()}
    found: Gradients = {**stepped_gradients(model), **own}
    torch.manual_seed(5)
    plain = unrolled_gradients(model, draw.inner, draw.outer, loss=method.base, alpha=0.0)
    assert distance(plain, expected) > 1e-3, "the step must matter"
    return distance(found, expected)
