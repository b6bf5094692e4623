"""Products of matrices by the library that is fastest at them.

torch leaves them to MKL, whose kernels for AVX-512 are for Intel's processors alone. oneDNN, which
torch has for convolutions, uses it on any: 177 instead of 115 GFLOP/s for 64 rows and 9216 x 4096
weights on two cores of an AMD EPYC. It adds up in one long row, so that its rounding error is twice
that of MKL: for slopes and directions, not for values on which a ReLU turns.
"""

from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor


def product(a: Float[Tensor, "m k"], b: Float[Tensor, "k n"]) -> Float[Tensor, "m n"]:
    """Return the product of two matrices; as torch's own where it may be differentiated."""
    # The operator of oneDNN has no derivative.
    is_recorded = torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    is_plain = a.dtype == torch.float32 == b.dtype and a.device.type == "cpu" == b.device.type
    if is_recorded or not (is_plain and _is_dense(a) and _is_dense(b) and _has_onednn()):
        return a @ b
    found: Tensor = torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], "")
    return found


def _is_dense(a: Float[Tensor, "m k"]) -> bool:
    """Tell whether rows or columns lie without gaps; for others oneDNN is 600 times slower."""
    return a.numel() > 0 and (a.is_contiguous() or a.t().is_contiguous())


@cache
def has_wide_kernels() -> bool:
    """Tell whether torch's direct kernels use AVX-512."""
    return "AVX512" in torch.backends.cpu.get_cpu_capability()


@cache
def _has_onednn() -> bool:
    """Tell whether oneDNN's products are there and, by AVX-512, faster than MKL's."""
    is_there = torch.backends.mkldnn.is_available() and hasattr(
        torch.ops.mkldnn, "_linear_pointwise"
    )
    return is_there and has_wide_kernels()
