"""The table of kernels, and how uint16, uint32, uint64 and the 8-bit floats, for which PyTorch has few, run on those of others.

Moving and comparing bits does not depend on the sign, and sums and products wrap alike. The rest of uint16 and
uint32 arithmetic fits into int64 and is cut back to size. The rest of uint64 is not supported. The 8-bit floats are moved
only, as bytes, or cast.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from firebrick.backends.torch import attention, contraction, elementwise, linalg, pooling, random, reduction, special, structure
from firebrick.backends.torch.memory import FIREBRICK, TORCH, aval
from firebrick.backends.torch.precision import Kernel
from firebrick.core.dtypes import DType, float8_e4m3fn, float8_e5m2, uint16, uint32, uint64
from firebrick.core.op import Op

KERNELS: dict[str, Kernel] = {
    **elementwise.KERNELS, **reduction.KERNELS, **structure.KERNELS, **contraction.KERNELS, **attention.KERNELS,
    **pooling.KERNELS, **random.KERNELS, **linalg.KERNELS, **special.KERNELS,
}  # fmt: skip

UNSIGNED = frozenset({uint16, uint32, uint64})
_BYTES = {TORCH[d]: torch.uint8 for d in (float8_e4m3fn, float8_e5m2)}
SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64, **_BYTES}
_OWN = frozenset({"cast", "random_bits", "random_uniform"})
_BITWISE = frozenset({
    "reshape", "permute", "broadcast_to", "slice", "flip", "split", "to_device", "pad", "concat", "take", "gather", "scatter",
    "slice_update", "where", "equal", "not_equal", "add", "subtract", "multiply", "negative", "sum", "prod",
    "matmul", "index_add", "scatter_add", "cumulative_sum", "cumulative_prod", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_invert", "bitwise_left_shift",
})  # fmt: skip


def _values(op: Op, dtypes: tuple[Any, ...]) -> list[Any]:
    """The dtypes of the operands that are computed with: all but indices, which kernels take in any dtype."""
    return [d for i, d in enumerate(dtypes) if op.operand(i).name != "indices"]


def supports(op: Op, dtypes: tuple[DType, ...]) -> bool:
    """Whether ``run`` can run an op on these dtypes."""
    if op.name not in KERNELS:
        return False
    return uint64 not in _values(op, dtypes) or op.name in _BITWISE or op.name in _OWN


def run(op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
    """Run one op; ``out`` is written if the kernel can, and is the result then."""
    for x in inputs:
        if x.dtype in SIGNED:
            return _run_unsigned(op, inputs, params)
    if out is not None and (function := elementwise.into(op.name, out.is_complex())) is not None:
        return function(*inputs, out=out)
    return KERNELS[op.name](*inputs, **params)


def _run_unsigned(op: Op, inputs: tuple[Any, ...], params: dict[str, Any]) -> Any:
    kernel = KERNELS[op.name]
    unsigned = next((d for d in _values(op, tuple(x.dtype for x in inputs)) if d in SIGNED), None)
    if unsigned is None or op.name in _OWN:
        return kernel(*inputs, **params)
    moves = op.name in _BITWISE or unsigned in _BYTES
    if op.name == "pad":
        value = np.asarray(params["value"]).astype(FIREBRICK[unsigned].np)
        params = {**params, "value": value.view(np.uint8) if unsigned in _BYTES else value.astype(np.int64)}
    held = tuple(
        x if x.dtype is not unsigned or op.operand(i).name == "indices"
        else x.view(SIGNED[unsigned]) if moves else x.to(torch.int64)
        for i, x in enumerate(inputs)
    )  # fmt: skip
    result = kernel(*held, **params)
    if moves:
        if isinstance(result, tuple):
            return tuple(r.view(unsigned) for r in result)
        return result if result.dtype is torch.bool else result.view(unsigned)
    inferred = op.infer(*(aval(x) for x in inputs), **params)
    if not isinstance(result, tuple):
        return result.to(TORCH[inferred.dtype])
    return tuple(r.to(TORCH[a.dtype]) for r, a in zip(result, inferred, strict=True))


def fast_kernel(op: Op, dtypes: tuple[DType, ...]) -> Kernel | None:
    """The kernel itself, for elementwise ops on dtypes that need no detour."""
    if UNSIGNED.intersection(dtypes):
        return None
    return elementwise.plain(op.name, any(d.kind == "complex" for d in dtypes))
