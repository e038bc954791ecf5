"""Continuous distributions: by the inverse of the distribution function where it is elementary, else by rejection.

Parameters are numbers or tensors that broadcast to the shape; gradients by tensors pass through the draws (they are
reparametrised). ``gamma``, ``beta`` and ``dirichlet`` are drawn in float64, where the device has it, and rounded.
"""

from __future__ import annotations

import math
from typing import Any

from firebrick.core.dtypes import DType, float16, float32, float64, limits
from firebrick.core.errors import OutOfRangeError, ShapeError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import (
    astype,
    clip,
    cos,
    equal,
    erf,
    exp,
    greater,
    greater_equal,
    less,
    log,
    log1p,
    logical_and,
    sigmoid,
    sqrt,
    where,
)
from firebrick.functions.normalisation import softmax
from firebrick.functions.special import erfinv
from firebrick.ops.special import gamma_path
from firebrick.random.attempts import until_accepted
from firebrick.random.generator import Generator, shape_first
from firebrick.random.settings import ANY, NONNEGATIVE, POSITIVE, Draw, Parameter, check_values, draw, finished

_ROOT_2 = math.sqrt(2.0)
_LEAST = 2.0**-25
"""What replaces a uniform number that is 0, of which no logarithm is finite."""
_LEAST_MASS = 1e-12
"""Least probability of the interval of a truncated normal distribution."""


def _uniform(d: Draw, dtype: DType | None = None) -> Tensor:
    """Uniform numbers of the precision that the result has."""
    return d.generator._uniform(d.shape, dtype or (float64 if d.dtype is float64 else float32), d.device)


def _above_zero(u: Tensor) -> Tensor:
    return where(equal(u, 0.0), _LEAST, u)


@shape_first
def exponential(
    shape: Any, *, rate: Parameter = 1.0, dtype: Any = None, device: Any = None, generator: Generator | None = None
) -> Tensor:  # fmt: skip
    """Exponentially distributed numbers: -log(1 - u) / rate with u uniform.

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        rate: Number or tensor, > 0; the mean is 1 / rate.
        dtype: Floating dtype; that of tensor parameters or the device's default float by default.
        device: Device or device string; that of tensor parameters or the default device by default.
        generator: Source of the bits; the device's default generator by default.

    Raises:
        ConfigError: A parameter that is a number is out of range.
        OutOfRangeError: An element of a parameter is out of range.
        ShapeError: A parameter does not broadcast to the shape.

    Example:
        >>> import firebrick as fb
        >>> bool(fb.all(fb.random.exponential((5,), rate=2.0) >= 0.0))
        True
    """
    d = draw("exponential", shape, {"rate": (rate, POSITIVE)}, dtype, device, generator)
    x = -log1p(-_uniform(d))
    return finished(d, x / astype(d.parameters["rate"], x.dtype))


@shape_first
def gumbel(
    shape: Any, *, loc: Parameter = 0.0, scale: Parameter = 1.0, dtype: Any = None, device: Any = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Gumbel-distributed numbers: loc - scale · log(-log u) with u uniform in (0, 1).

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        loc: Number or tensor: the mode.
        scale: Number or tensor, ≥ 0.
        dtype: Floating dtype; that of tensor parameters or the device's default float by default.
        device: Device or device string; that of tensor parameters or the default device by default.
        generator: Source of the bits; the device's default generator by default.

    Raises:
        ConfigError: A parameter that is a number is out of range.
        OutOfRangeError: An element of a parameter is out of range.
        ShapeError: A parameter does not broadcast to the shape.

    Example:
        >>> import firebrick as fb
        >>> fb.random.gumbel((2, 3)).shape
        (2, 3)
    """
    d = draw("gumbel", shape, {"loc": (loc, ANY), "scale": (scale, NONNEGATIVE)}, dtype, device, generator)
    x = -log(-log1p(-_above_zero(_uniform(d))))
    return _moved(d, x)


@shape_first
def laplace(
    shape: Any, *, loc: Parameter = 0.0, scale: Parameter = 1.0, dtype: Any = None, device: Any = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Laplace-distributed numbers, of density exp(-|x - loc| / scale) / (2 · scale).

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        loc: Number or tensor: the mean.
        scale: Number or tensor, ≥ 0.
        dtype: Floating dtype; that of tensor parameters or the device's default float by default.
        device: Device or device string; that of tensor parameters or the default device by default.
        generator: Source of the bits; the device's default generator by default.

    Raises:
        ConfigError: A parameter that is a number is out of range.
        OutOfRangeError: An element of a parameter is out of range.
        ShapeError: A parameter does not broadcast to the shape.

    Example:
        >>> import firebrick as fb
        >>> fb.random.laplace((2, 3), scale=2.0).shape
        (2, 3)
    """
    d = draw("laplace", shape, {"loc": (loc, ANY), "scale": (scale, NONNEGATIVE)}, dtype, device, generator)
    u = _above_zero(_uniform(d))
    return _moved(d, where(u < 0.5, log(u * 2.0), -log((1.0 - u) * 2.0)))


def _moved(d: Draw, x: Tensor) -> Tensor:
    scaled = x * astype(d.parameters["scale"], x.dtype, copy=False) + astype(d.parameters["loc"], x.dtype, copy=False)
    return finished(d, scaled)


@shape_first
def truncated_normal(
    shape: Any, *, low: Parameter = -2.0, high: Parameter = 2.0, mean: Parameter = 0.0, std: Parameter = 1.0,
    dtype: Any = None, device: Any = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Normal numbers that lie in [low, high], by the inverse of the distribution function.

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        low: Number or tensor: the least result, which may be -∞.
        high: Number or tensor: the greatest result, which may be ∞.
        mean: Number or tensor: the mean before the rest was cut off.
        std: Number or tensor, > 0: the standard deviation before.
        dtype: Floating dtype; that of tensor parameters or the device's default float by default.
        device: Device or device string; that of tensor parameters or the default device by default.
        generator: Source of the bits; the device's default generator by default.

    Raises:
        ConfigError: A parameter that is a number is out of range.
        OutOfRangeError: An element of a parameter is out of range, or the interval has a probability below 10⁻¹².
        ShapeError: A parameter does not broadcast to the shape.

    Example:
        >>> import firebrick as fb
        >>> x = fb.random.truncated_normal((100,), low=-1.0, high=0.5)
        >>> bool(fb.all((x >= -1.0) & (x <= 0.5)))
        True
    """
    bounded = {k: _finite(v) for k, v in (("low", low), ("high", high))}
    given = {**{k: (v, ANY) for k, v in bounded.items()}, "mean": (mean, ANY), "std": (std, POSITIVE)}
    d = draw("truncated_normal", shape, given, dtype, device, generator)
    p = d.parameters
    first, last = (erf((p[k] - p["mean"]) / (p["std"] * _ROOT_2)) for k in ("low", "high"))
    _check_mass(last.detach() - first.detach())
    u = _uniform(d, d.wide)
    x = erfinv(first + (last - first) * u) * _ROOT_2 * p["std"] + p["mean"]
    return finished(d, clip(x, p["low"], p["high"]))


def _finite(bound: Any) -> Any:
    """Infinite bounds as finite numbers beyond all others."""
    if isinstance(bound, Tensor) and bound.dtype.kind == "float":
        limit = 1e30 if bound.dtype.itemsize > 2 else 6e4
        return clip(bound, -limit, limit)
    return math.copysign(1e30, bound) if isinstance(bound, float) and math.isinf(bound) else bound


def _check_mass(mass: Tensor) -> None:
    if mass.device.engine == "meta" or not mass.size:
        return

    def error() -> OutOfRangeError:
        return OutOfRangeError(
            f"truncated_normal: [low, high] has a probability of {_LEAST_MASS:g} or more", "an interval with less",
            "swap or widen the bounds",
        )  # fmt: skip

    check_values(lambda: greater_equal(mass, 2 * _LEAST_MASS), error)


def _above_nothing(d: Draw, x: Tensor, most: float | None = None) -> Tensor:
    """Numbers whose rounding would reach 0, or their upper bound of 1, at the nearest number that the dtype has inside.

    There a density may be infinite. The least float16 is denormal: normal ones leave out much of a small concentration's mass.
    """
    found = limits(d.dtype)
    return clip(x, float(found.smallest_subnormal if d.dtype is float16 else found.smallest_normal), most)


def _below_one(d: Draw) -> float:
    """The largest number of the dtype below 1."""
    return 1.0 - float(limits(d.dtype).epsneg)


def log_gamma(d: Draw, alpha: Tensor) -> Tensor:
    """Logarithms of standard gamma numbers, with their gradient by alpha.

    Below 1, log Γ-numbers of alpha are those of alpha + 1 plus log(u) / alpha, so small ones do not underflow.

    Source: Marsaglia, Tsang, "A simple method for generating gamma variables", 2000; the gradient: Figurnov, Mohamed, Mnih,
        "Implicit reparameterization gradients", arXiv:1805.08498.
    """
    given, alpha = alpha, alpha.detach()
    small = less(alpha, 1.0)
    up = where(small, alpha + 1.0, alpha)
    third = up - 1.0 / 3.0
    width = 1.0 / sqrt(third * 9.0)

    def attempt(u: Tensor) -> tuple[Tensor, Tensor]:
        x = sqrt(log1p(-u[..., 0]) * -2.0) * cos(u[..., 1] * (2.0 * math.pi))
        root = x * width + 1.0
        inside = greater(root, 0.0)
        safe = where(inside, root, 1.0)
        logarithm = log(safe) * 3.0
        bound = x * x * 0.5 + third * (1.0 - safe * safe * safe + logarithm)
        accepted = less(log(1.0 - u[..., 2]), bound)
        return logarithm, logical_and(inside, accepted)

    drawn = log(third) + until_accepted(d.generator._next_on(d.device), d.shape, 3, d.wide, attempt)
    boost = log1p(-d.generator._uniform(d.shape, d.wide, d.device))
    path: Tensor = gamma_path(where(small, given + 1.0, given), drawn)
    return path + where(small, boost / given, 0.0)


@shape_first
def gamma(
    shape: Any, *, alpha: Parameter, rate: Parameter = 1.0, dtype: Any = None, device: Any = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Gamma-distributed numbers, of density rate^alpha · x^(alpha - 1) · exp(-rate · x) / Γ(alpha).

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        alpha: Number or tensor, > 0: the shape of the distribution, whose mean is alpha / rate.
        rate: Number or tensor, > 0.
        dtype: Floating dtype; that of tensor parameters or the device's default float by default.
        device: Device or device string; that of tensor parameters or the default device by default.
        generator: Source of the bits; the device's default generator by default.

    Raises:
        ConfigError: A parameter that is a number is out of range.
        OutOfRangeError: An element of a parameter is out of range.
        ShapeError: A parameter does not broadcast to the shape.

    Example:
        >>> import firebrick as fb
        >>> bool(fb.all(fb.random.gamma((5,), alpha=2.0) > 0.0))
        True
    """
    d = draw("gamma", shape, {"alpha": (alpha, POSITIVE), "rate": (rate, POSITIVE)}, dtype, device, generator)
    return finished(d, _above_nothing(d, exp(log_gamma(d, d.parameters["alpha"])) / d.parameters["rate"]))


@shape_first
def beta(
    shape: Any, *, a: Parameter, b: Parameter, dtype: Any = None, device: Any = None, generator: Generator | None = None
) -> Tensor:  # fmt: skip
    """Beta-distributed numbers between 0 and 1, which they never are: x / (x + y) with gamma-distributed x and y.

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        a: Number or tensor, > 0.
        b: Number or tensor, > 0; the mean is a / (a + b).
        dtype: Floating dtype; that of tensor parameters or the device's default float by default.
        device: Device or device string; that of tensor parameters or the default device by default.
        generator: Source of the bits; the device's default generator by default.

    Raises:
        ConfigError: A parameter that is a number is out of range.
        OutOfRangeError: An element of a parameter is out of range.
        ShapeError: A parameter does not broadcast to the shape.

    Example:
        >>> import firebrick as fb
        >>> x = fb.random.beta((5,), a=2.0, b=3.0)
        >>> bool(fb.all((x > 0.0) & (x < 1.0)))
        True
    """
    d = draw("beta", shape, {"a": (a, POSITIVE), "b": (b, POSITIVE)}, dtype, device, generator)
    first, second = (log_gamma(d, d.parameters[k]) for k in ("a", "b"))
    return finished(d, _above_nothing(d, sigmoid(first - second), _below_one(d)))


@shape_first
def dirichlet(
    shape: Any, *, alpha: Parameter, dtype: Any = None, device: Any = None, generator: Generator | None = None
) -> Tensor:  # fmt: skip
    """Points of the simplex: along the last axis, numbers > 0 with the sum 1.

    Args:
        shape: Sizes of the axes, as one argument; the last one is the number of components.
        alpha: Number or tensor that broadcasts to the shape, > 0: the concentration of each component.
        dtype: Floating dtype; that of alpha or the device's default float by default.
        device: Device or device string; that of alpha or the default device by default.
        generator: Source of the bits; the device's default generator by default.

    Raises:
        ConfigError: A parameter that is a number is out of range.
        OutOfRangeError: An element of a parameter is out of range.
        ShapeError: The shape has no axis of components, or alpha does not broadcast to it.

    Example:
        >>> import firebrick as fb
        >>> x = fb.random.dirichlet((4, 3), alpha=fb.asarray([1.0, 2.0, 0.5]))
        >>> bool(fb.all(fb.abs(fb.sum(x, axis=-1) - 1.0) < 1e-5))
        True
    """
    d = draw("dirichlet", shape, {"alpha": (alpha, POSITIVE)}, dtype, device, generator)
    if not d.shape:
        raise ShapeError("dirichlet: the last axis of the shape counts the components", f"shape {d.shape}", "pass e.g. (3,)")
    return finished(d, _above_nothing(d, softmax(log_gamma(d, d.parameters["alpha"]), axis=-1)))


__all__ = ["beta", "dirichlet", "exponential", "gamma", "gumbel", "laplace", "truncated_normal"]
