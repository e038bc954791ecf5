"""Descriptive statistics beyond the standard's: weighted means, covariance, correlation, areas under curves."""

from __future__ import annotations

from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.operands import check_devices, describe
from firebrick.core.precision import in_float32, in_wide_float32
from firebrick.core.settings import number
from firebrick.core.shapes import normalize_axes, normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.axes import Axis, operand
from firebrick.functions.elementwise import clip
from firebrick.functions.linear import matmul
from firebrick.functions.movement import broadcast_to, matrix_transpose, reshape
from firebrick.functions.scaled import divisor, norm
from firebrick.functions.statistical import mean, sum
from firebrick.functions.utility import diff


@in_wide_float32
def average(x: Tensor, /, axis: Axis = None, *, weights: Tensor | None = None, keepdims: bool = False) -> Tensor:
    """The weighted mean over axes, Σ w·x / Σ w; NaN or infinite where the weights sum to 0.

    Args:
        x: Floating tensor.
        axis: Axis or axes to reduce; all by default.
        weights: Floating tensor of x's shape, or of the length of the one axis; the plain mean without it.
        keepdims: Keep reduced axes with size 1.

    Example:
        >>> import firebrick as fb
        >>> fb.average(fb.asarray([1.0, 5.0]), weights=fb.asarray([3.0, 1.0])).item()
        2.0
    """
    operand("average", x, "floating")
    axes = normalize_axes(axis, x.ndim, "average")
    if weights is None:
        return mean(x, axis=axes, keepdims=keepdims)
    operand("average", weights, "floating", "weights")
    check_devices("average", x=x, weights=weights)
    if weights.shape != x.shape:
        if len(axes) != 1 or weights.shape != (x.shape[axes[0]],):
            raise ShapeError(
                "average: weights must have the shape of x, or one axis as long as the one reduced",
                f"{describe('weights', weights)}, {describe('x', x)}, axis={axis}",
                "broadcast the weights to x's shape",
                op="average",
            )
        weights = broadcast_to(reshape(weights, tuple(d if i in axes else 1 for i, d in enumerate(x.shape))), x.shape)
    return sum(x * weights, axis=axes, keepdims=keepdims) / divisor(sum(weights, axis=axes, keepdims=keepdims))


def _centred(where: str, x: Tensor) -> Tensor:
    operand(where, x, "floating")
    if x.ndim not in (1, 2):
        raise ShapeError(
            f"{where} takes one variable [n] or several [variables, n]", describe("x", x), "put observations into columns",
            op=where,
        )  # fmt: skip
    rows = reshape(x, (1, -1)) if x.ndim == 1 else x
    return rows - mean(rows, axis=1, keepdims=True)


@in_float32
def cov(x: Tensor, /, *, correction: float = 1.0) -> Tensor:
    """Covariances between variables: Σ (x_i - mean_i)(x_j - mean_j) / (n - correction).

    Args:
        x: Floating tensor [variables, n], a variable a row, or [n] for one variable.
        correction: 1 for the unbiased estimate, 0 for the covariance of the sample.

    Returns:
        Tensor [variables, variables]; 0-d for one variable.

    Raises:
        ConfigError: There are no more observations than ``correction``.

    Example:
        >>> import firebrick as fb
        >>> fb.cov(fb.asarray([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    centred = _centred("cov", x)
    correction = number("cov", "correction", correction)
    n = centred.shape[1]
    if n - correction <= 0:
        raise ConfigError(f"cov: correction must be less than the {n} observations", f"correction={correction}", "add some")
    found = matmul(centred, matrix_transpose(centred)) / float(n - correction)
    return reshape(found, ()) if x.ndim == 1 else found


@in_float32
def corrcoef(x: Tensor, /) -> Tensor:
    """Pearson's correlation coefficients between variables, in [-1, 1]; NaN for a variable that does not vary.

    Args:
        x: Floating tensor [variables, n], a variable a row, or [n] for one variable.

    Returns:
        Tensor [variables, variables]; 0-d for one variable.

    Example:
        >>> import firebrick as fb
        >>> fb.corrcoef(fb.asarray([[0.0, 2.0, 0.0, 2.0], [5.0, 1.0, 5.0, 1.0]])).tolist()
        [[1.0, -1.0], [-1.0, 1.0]]
    """
    centred = _centred("corrcoef", x)
    unit = centred / divisor(norm(centred, 1, True))  # squares of large and small numbers would overflow and underflow
    found = clip(matmul(unit, matrix_transpose(unit)), -1.0, 1.0)
    return reshape(found, ()) if x.ndim == 1 else found


@in_float32
def trapezoid(y: Tensor, x: Tensor | None = None, /, *, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The area under a curve by the trapezoidal rule: Σ (x[i+1] - x[i]) · (y[i] + y[i+1]) / 2.

    Args:
        y: Floating tensor: heights along ``axis``.
        x: Floating tensor of y's shape, or [n]: where they were taken; steps of ``dx`` without it.
        dx: Distance of neighbours.
        axis: Axis to integrate along.

    Returns:
        Tensor of y's shape without the axis.

    Example:
        >>> import firebrick as fb
        >>> fb.trapezoid(fb.asarray([0.0, 1.0, 4.0])).item()
        3.0
    """
    operand("trapezoid", y, "floating", "y")
    check_devices("trapezoid", y=y, x=x)
    dx = number("trapezoid", "dx", dx)
    at = normalize_axis(axis, y.ndim, "trapezoid")
    lead = (slice(None),) * at
    sums = y[(*lead, slice(1, None))] + y[(*lead, slice(None, -1))]
    if x is None:
        return sum(sums, axis=at) * (0.5 * dx)
    operand("trapezoid", x, "floating")
    if x.shape == (y.shape[at],):
        x = reshape(x, tuple(-1 if i == at else 1 for i in range(y.ndim)))
    elif x.shape != y.shape:
        raise ShapeError(
            f"trapezoid: x must have the shape of y or {(y.shape[at],)}",
            f"{describe('x', x)}, {describe('y', y)}",
            "give one place a height",
            op="trapezoid",
        )
    return sum(sums * diff(x, axis=at), axis=at) * 0.5
