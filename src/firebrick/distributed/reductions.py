"""What a reduction over ranks is: terms folded in the order of the ranks, in a stated width, so that its bits never vary.

``sum``, ``prod``, ``max`` and ``min`` fold term after term, rank 0 first. Floats of 16 bits are folded in float32 and rounded
once. A weight multiplies a rank's own term before it leaves the rank, rounded to the term's dtype. Groups of processes and
groups of devices both keep to this, which is why they agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from firebrick.autodiff.tape import constant_above, grad_enabled, no_grad
from firebrick.core.dtypes import DType, float32
from firebrick.core.duals import Dual
from firebrick.core.errors import ConfigError, DTypeError, GradientError, ShapeError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype, multiply

FOLDS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}  # functions of NumPy, torch and Firebrick


def check_fold(where: str, op: str, dtype: DType) -> None:
    """Check that a dtype can be folded.

    Raises:
        ConfigError: There is no such reduction.
        DTypeError: The dtype has no arithmetic, or no order for ``max`` and ``min``.
    """
    if op not in FOLDS:
        raise ConfigError(f"{where}: op is one of {', '.join(FOLDS)}", repr(op), "choose one of these")
    if dtype.kind not in ("int", "uint", "float", "complex"):
        raise DTypeError(f"{where}: reductions take numbers", dtype.name, "cast first, for example to fb.int32 or fb.float32")
    if dtype.kind == "complex" and op in ("max", "min"):
        raise DTypeError(f"{where}: complex numbers have no order", dtype.name, "reduce the real and imaginary parts")


def constants(where: str, terms: Iterable[Tensor]) -> list[Tensor]:
    """The operands of a collective operation, untracked.

    Raises:
        GradientError: One depends on what is differentiated, by which its result would be a constant.
    """
    found = []
    for x in terms:
        data = x.storage.data
        moves = type(data) is Dual and data.tangent is not None and data.level.depth > constant_above.get()
        if (x.node is not None and grad_enabled()) or moves:
            raise GradientError(
                f"{where} is no operation that is differentiated",
                f"{describe('x', x)}, which is tracked" if not moves else f"{describe('x', x)}, which has a tangent",
                "reduce gradients after they are computed, as train.Distributed does; pass x.detach() where x is a constant",
                op=where,
            )
        found.append(x.detach())
    return found


def fold_dtype(dtype: DType) -> DType:
    """The dtype in which terms of ``dtype`` are folded."""
    return float32 if dtype.kind == "float" and dtype.itemsize == 2 else dtype


def weighed(where: str, x: Tensor, op: str, weight: float | None) -> Tensor:
    """A rank's term: ``weight · x``, or ``x`` itself without a weight.

    Raises:
        ConfigError: A weight is given to another reduction than a sum.
        DTypeError: A weight is given to integers.
    """
    if weight is None:
        return x
    if op != "sum":
        raise ConfigError(f"{where}: weights are for sums", f'op="{op}" with weight {weight}', "leave the weight out")
    if x.dtype.kind not in ("float", "complex"):
        raise DTypeError(f"{where}: weights are for floats", x.dtype.name, "cast first, or leave the weight out")
    with no_grad():
        wide = fold_dtype(x.dtype)  # a weight in 16 bits would be too coarse
        return astype(multiply(astype(x.detach(), wide, copy=False), weight), x.dtype, copy=False)


def slices(n: int, size: int) -> list[slice]:
    """``n`` things in a row, shared out among ``size`` ranks as evenly as it goes; some get none if there are few."""
    ends = [n * r // size for r in range(size + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


def rows(where: str, x: Tensor) -> int:
    """The length of the first axis.

    Raises:
        ShapeError: There is no axis.
    """
    if not x.shape:
        raise ShapeError(f"{where}: the first axis is shared out among the ranks", "a 0-d tensor", "reshape it to one axis")
    return x.shape[0]
