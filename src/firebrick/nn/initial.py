"""Initial parameters: drawn by the host reference in float64, rounded to the parameter's dtype, then moved.

So a model starts from the same numbers on every device, and in float32 from the rounded ones of float64. Each function
makes a parameter of a shape, or gives one that is there new values: ``initial.zeros(layer.bias)``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, erf, prod, sqrt
from typing import Any

import numpy as np

from firebrick.autodiff.tape import no_grad
from firebrick.backends.registry import find_device
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, float64
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, DTypeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import number, python_settings
from firebrick.core.shapes import normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype
from firebrick.nn.checks import check_choice, check_sizes
from firebrick.nn.parameter import Parameter
from firebrick.random import Generator, initial_generator, row_offset

Target = tuple[int, ...] | Parameter
Host = np.ndarray[Any, Any]
_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": sqrt(2.0), "selu": 0.75}


def gain(nonlinearity: str, slope: float = 0.01) -> float:
    """The factor of weights before a nonlinearity, so that signals keep their variance.

    Args:
        nonlinearity: "linear", "sigmoid", "tanh", "relu", "leaky_relu" or "selu".
        slope: Of "leaky_relu" below 0.

    Source: He et al., "Delving Deep into Rectifiers", arXiv:1502.01852; the values are PyTorch's.

    Example:
        >>> import firebrick as fb
        >>> round(fb.nn.initial.gain("relu"), 4)
        1.4142
    """
    check_choice("gain", "nonlinearity", nonlinearity, [*_GAINS, "leaky_relu"])
    number("gain", "slope", slope)
    return sqrt(2.0 / (1.0 + slope**2)) if nonlinearity == "leaky_relu" else _GAINS[nonlinearity]


@python_settings
def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and outputs of a weight [out, in, …]: what one output sums over, and what one input goes to.

    Args:
        shape: Sizes of the weight, at least two: outputs, inputs, then those of a kernel.

    Returns:
        (fan in, fan out): in · size of the kernel, and out · size of the kernel.

    Raises:
        ShapeError: The shape has fewer than two axes.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.fans((16, 8, 3, 3))
        (72, 144)
    """
    if len(shape) < 2:
        raise ShapeError("fans: a weight is [out, in, …]", f"shape {shape}", "use initial.uniform or initial.normal for it")
    field = prod(shape[2:])
    return shape[1] * field, shape[0] * field


@answers_arguments
def uniform(
    shape: Target, *, bound: float = 1.0, generator: Generator | None = None, dtype: Any = None, device: Any = None
) -> Parameter:
    """A parameter drawn from U(-bound, bound).

    Args:
        shape: Sizes; or a parameter, which gets the values.
        bound: Largest magnitude.
        generator: Where the numbers come from; ``fb.random.initial_generator()`` by default.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.uniform((2, 3), bound=0.5).shape
        (2, 3)
    """
    bound = number("uniform", "bound", bound, least=0)
    return _fill("uniform", shape, lambda s, g: _uniform(s, -bound, bound, g), generator, dtype, device)


@answers_arguments
def normal(
    shape: Target, *, std: float = 1.0, mean: float = 0.0, generator: Generator | None = None, dtype: Any = None,
    device: Any = None,
) -> Parameter:  # fmt: skip
    """A parameter drawn from N(mean, std²).

    Args:
        shape: Sizes; or a parameter, which gets the values.
        std: Standard deviation.
        mean: Mean.
        generator: Where the numbers come from; ``fb.random.initial_generator()`` by default.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.normal((4,), std=0.02).shape
        (4,)
    """
    std, mean = number("normal", "std", std, least=0), number("normal", "mean", mean)
    return _fill("normal", shape, lambda s, g: _normal(s, g) * std + mean, generator, dtype, device)


@answers_arguments
def trunc_normal(
    shape: Target, *, std: float = 1.0, mean: float = 0.0, low: float = -2.0, high: float = 2.0,
    generator: Generator | None = None, dtype: Any = None, device: Any = None,
) -> Parameter:  # fmt: skip
    """A parameter drawn from N(mean, std²) within [low, high]; other arguments as for ``uniform``.

    Args:
        shape: Sizes; or a parameter, which gets the values.
        std: Standard deviation before truncation.
        mean: Mean before truncation.
        low: Least value.
        high: Largest value.
        generator: Where the numbers come from; ``fb.random.initial_generator()`` by default.
        dtype: Floating dtype; the device's default float by default.
        device: Device of the parameter.

    Raises:
        ConfigError: ``std`` is not > 0, or the range is empty or without any probability.

    Source: Wichura, "Algorithm AS 241: The Percentage Points of the Normal Distribution", 1988.

    Example:
        >>> import firebrick as fb
        >>> bool(fb.all(fb.abs(fb.nn.initial.trunc_normal((100,), std=0.02, low=-0.04, high=0.04)) <= 0.04))
        True
    """
    for name, value in (("std", std), ("mean", mean), ("low", low), ("high", high)):
        number("trunc_normal", name, value)
    if not std > 0 or not low < high:
        raise ConfigError(
            "trunc_normal: std is > 0 and low < high", f"std = {std!r}, low = {low!r}, high = {high!r}", "change them"
        )
    # of both tails the one that holds the range is counted from its end, where probabilities are exact
    a, b = (low - mean) / std, (high - mean) / std
    sign = -1.0 if a > 0 else 1.0
    a, b = (-b, -a) if a > 0 else (a, b)
    first, last = (0.5 * (1.0 + erf(t / sqrt(2.0))) for t in (a, b))
    if not first < last:
        raise ConfigError(
            "trunc_normal: the range holds some of the distribution",
            f"[{low!r}, {high!r}] of N({mean!r}, {std!r}²)",
            "move the range towards the mean",
        )

    def draw(s: tuple[int, ...], g: Generator) -> Host:
        drawn = normal_quantile(np.maximum(_uniform(s, first, last, g), np.nextafter(0.0, 1.0)))
        return np.clip(sign * drawn * std + mean, low, high)

    return _fill("trunc_normal", shape, draw, generator, dtype, device)


@answers_arguments
def xavier_uniform(
    shape: Target, gain: float = 1.0, *, generator: Generator | None = None, dtype: Any = None, device: Any = None
) -> Parameter:
    """A parameter drawn from U(-b, b) with b = gain · √(6 / (fan in + fan out)).

    Args:
        shape: Sizes [out, in, …]; or a parameter, which gets the values.
        gain: What the bound is multiplied by; see ``gain``.
        generator: Where the numbers come from; ``fb.random.initial_generator()`` by default.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Raises:
        ShapeError: The shape has fewer than two axes.

    Source: Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural networks", AISTATS 2010.

    Example:
        >>> import firebrick as fb
        >>> bool(fb.all(fb.abs(fb.nn.initial.xavier_uniform((4, 2))) <= 1.0))
        True
    """
    gain = number("xavier_uniform", "gain", gain, least=0)

    def draw(s: tuple[int, ...], g: Generator) -> Host:
        bound = gain * sqrt(6.0 / max(1, sum(fans(s))))
        return _uniform(s, -bound, bound, g)

    return _fill("xavier_uniform", shape, draw, generator, dtype, device)


@answers_arguments
def xavier_normal(
    shape: Target, gain: float = 1.0, *, generator: Generator | None = None, dtype: Any = None, device: Any = None
) -> Parameter:
    """A parameter drawn from N(0, s²) with s = gain · √(2 / (fan in + fan out)).

    Args:
        shape: Sizes [out, in, …]; or a parameter, which gets the values.
        gain: What the standard deviation is multiplied by; see ``gain``.
        generator: Where the numbers come from; ``fb.random.initial_generator()`` by default.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Raises:
        ShapeError: The shape has fewer than two axes.

    Source: Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural networks", AISTATS 2010.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.xavier_normal((4, 2)).shape
        (4, 2)
    """
    gain = number("xavier_normal", "gain", gain, least=0)
    return _fill(
        "xavier_normal", shape, lambda s, g: _normal(s, g) * (gain * sqrt(2.0 / max(1, sum(fans(s))))), generator, dtype, device
    )


@answers_arguments
def kaiming_uniform(
    shape: Target, slope: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", *,
    generator: Generator | None = None, dtype: Any = None, device: Any = None,
) -> Parameter:  # fmt: skip
    """U(-b, b) with b = gain · √(3 / fan); other arguments as for ``uniform``.

    Args:
        shape: Sizes [out, in, …]; or a parameter, which gets the values.
        slope: Of "leaky_relu" below 0.
        mode: "fan_in", which keeps the size of signals, or "fan_out", which keeps that of gradients.
        nonlinearity: What follows the weights; see ``gain``.
        generator: Where the numbers come from; ``fb.random.initial_generator()`` by default.
        dtype: Floating dtype; the device's default float by default.
        device: Device of the parameter.

    Source: He et al., "Delving Deep into Rectifiers", arXiv:1502.01852.

    Example:
        >>> import firebrick as fb
        >>> bool(fb.all(fb.abs(fb.nn.initial.kaiming_uniform((4, 6))) <= 1.0))
        True
    """
    times = gain(nonlinearity, slope)

    def draw(s: tuple[int, ...], g: Generator) -> Host:
        bound = times * sqrt(3.0 / _fan("kaiming_uniform", s, mode))
        return _uniform(s, -bound, bound, g)

    return _fill("kaiming_uniform", shape, draw, generator, dtype, device)


@answers_arguments
def kaiming_normal(
    shape: Target, slope: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", *,
    generator: Generator | None = None, dtype: Any = None, device: Any = None,
) -> Parameter:  # fmt: skip
    """A parameter drawn from N(0, s²) with s = gain / √fan.

    Args:
        shape: Sizes [out, in, …]; or a parameter, which gets the values.
        slope: Of "leaky_relu" below 0.
        mode: "fan_in", which keeps the size of signals, or "fan_out", which keeps that of gradients.
        nonlinearity: What follows the weights; see ``gain``.
        generator: Where the numbers come from; ``fb.random.initial_generator()`` by default.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Raises:
        ShapeError: The shape has fewer than two axes.

    Source: He et al., "Delving Deep into Rectifiers", arXiv:1502.01852.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.kaiming_normal((8, 4, 3, 3), mode="fan_out", nonlinearity="relu").shape
        (8, 4, 3, 3)
    """
    times = gain(nonlinearity, slope)

    def draw(s: tuple[int, ...], g: Generator) -> Host:
        return _normal(s, g) * (times / sqrt(_fan("kaiming_normal", s, mode)))

    return _fill("kaiming_normal", shape, draw, generator, dtype, device)


@answers_arguments
def orthogonal(
    shape: Target, gain: float = 1.0, *, generator: Generator | None = None, dtype: Any = None, device: Any = None
) -> Parameter:
    """A matrix [out, in · …] whose rows (or columns, where they are fewer) are orthogonal and of length ``gain``.

    Args:
        shape: Sizes [out, in, …]; or a parameter, which gets the values.
        gain: Length of the rows or columns.
        generator: Where the numbers come from; ``fb.random.initial_generator()`` by default.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Raises:
        ShapeError: The shape has fewer than two axes.

    Source: Saxe, McClelland, Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear neural
    networks", arXiv:1312.6120.

    Example:
        >>> import firebrick as fb
        >>> w = fb.nn.initial.orthogonal((2, 3))
        >>> bool(fb.all(fb.abs(w @ w.mT - fb.eye(2)) < 1e-6))
        True
    """

    gain = number("orthogonal", "gain", gain)

    def draw(s: tuple[int, ...], g: Generator) -> Host:
        if len(s) < 2:
            raise ShapeError("orthogonal: a weight is [out, in, …]", f"shape {s}", "use another initialiser for it")
        rows, columns = s[0], prod(s[1:])
        q, r = np.linalg.qr(_normal((max(rows, columns), min(rows, columns)), g))
        q = q * np.where(np.diag(r) < 0, -1.0, 1.0)  # without this, QR's choice of signs would show in the distribution
        return gain * (q.T if rows < columns else q).reshape(s)

    return _fill("orthogonal", shape, draw, generator, dtype, device)


@answers_arguments
def sparse(
    shape: Target, sparsity: float, std: float = 0.01, *, generator: Generator | None = None, dtype: Any = None,
    device: Any = None,
) -> Parameter:  # fmt: skip
    """A matrix [out, in] drawn from N(0, std²), with the share ``sparsity`` of each column set to 0.

    Args:
        shape: Sizes [out, in]; or a parameter, which gets the values.
        sparsity: Share of zeros in each column, in [0, 1]; their number is rounded up.
        std: Standard deviation of the others.
        generator: Where the numbers come from; ``fb.random.initial_generator()`` by default.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Raises:
        ConfigError: ``sparsity`` lies outside [0, 1].
        ShapeError: The shape is not of two axes.

    Source: Martens, "Deep learning via Hessian-free optimization", ICML 2010.

    Example:
        >>> import firebrick as fb
        >>> fb.sum(fb.nn.initial.sparse((10, 4), 0.75) == 0.0).item()
        32
    """
    std = number("sparse", "std", std, least=0)
    if not 0.0 <= number("sparse", "sparsity", sparsity) <= 1.0:
        raise ConfigError("sparse: sparsity lies in [0, 1]", repr(sparsity), "pass the share of zeros")

    def draw(s: tuple[int, ...], g: Generator) -> Host:
        if len(s) != 2:
            raise ShapeError("sparse: a weight is [out, in]", f"shape {s}", "use another initialiser for it")
        order = np.argsort(_uniform(s, 0.0, 1.0, g), axis=0, kind="stable")
        values = _normal(s, g) * std
        np.put_along_axis(values, order[: ceil(sparsity * s[0])], 0.0, axis=0)
        return values

    return _fill("sparse", shape, draw, generator, dtype, device)


@answers_arguments
def constant(shape: Target, value: float, *, dtype: Any = None, device: Any = None) -> Parameter:
    """A parameter whose elements are all ``value``.

    Args:
        shape: Sizes; or a parameter, which gets the values.
        value: Number that every element is.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.constant((2,), 1.0).tolist()
        [1.0, 1.0]
    """
    value = number("constant", "value", value)
    return _fill("constant", shape, lambda s, g: np.full(s, value, np.float64), None, dtype, device)


@answers_arguments
def zeros(shape: Target, *, dtype: Any = None, device: Any = None) -> Parameter:
    """A parameter of zeros.

    Args:
        shape: Sizes; or a parameter, which gets the values.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Example:
        >>> import firebrick as fb
        >>> layer = fb.nn.Linear(2, 3)
        >>> fb.nn.initial.zeros(layer.bias).tolist()
        [0.0, 0.0, 0.0]
    """
    return constant(shape, 0.0, dtype=dtype, device=device)


@answers_arguments
def ones(shape: Target, *, dtype: Any = None, device: Any = None) -> Parameter:
    """A parameter of ones.

    Args:
        shape: Sizes; or a parameter, which gets the values.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.ones((2,)).tolist()
        [1.0, 1.0]
    """
    return constant(shape, 1.0, dtype=dtype, device=device)


@answers_arguments
def identity(shape: Target, *, dtype: Any = None, device: Any = None) -> Parameter:
    """A matrix [out, in] with ones on its diagonal.

    Args:
        shape: Sizes [out, in]; or a parameter, which gets the values.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Raises:
        ShapeError: The shape is not of two axes.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.identity((2, 3)).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """

    def draw(s: tuple[int, ...], g: Generator) -> Host:
        if len(s) != 2:
            raise ShapeError("identity: a weight is [out, in]", f"shape {s}", "use initial.dirac for a convolution's")
        return np.eye(*s)

    return _fill("identity", shape, draw, None, dtype, device)


@python_settings
@answers_arguments
def dirac(shape: Target, groups: int = 1, *, dtype: Any = None, device: Any = None) -> Parameter:
    """Kernels [out, in / groups, size, …] of a convolution that returns its channels unchanged, as many as there are.

    Args:
        shape: Sizes [out, in / groups, size, …]; or a parameter, which gets the values.
        groups: Groups of the convolution; each passes its own channels on.
        dtype: Floating dtype; the device's default float by default. Not with a parameter.
        device: Device of the parameter. Not with a parameter.

    Raises:
        ShapeError: The shape has fewer than three axes, or ``groups`` does not divide out.

    Source: Zagoruyko, Komodakis, "DiracNets", arXiv:1706.00388.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.initial.dirac((1, 1, 3)).tolist()
        [[[0.0, 1.0, 0.0]]]
    """
    check_sizes("dirac", groups=groups)

    def draw(s: tuple[int, ...], g: Generator) -> Host:
        if len(s) < 3 or s[0] % groups:
            raise ShapeError(
                "dirac: kernels are [out, in / groups, size, …], and groups divides out", f"shape {s}, groups {groups}", "check"
            )
        values = np.zeros(s)
        each = s[0] // groups
        for i in range(min(each, s[1])):
            place: tuple[Any, ...] = (slice(i, None, each), i, *(k // 2 for k in s[2:]))
            values[place] = 1.0
        return values

    return _fill("dirac", shape, draw, None, dtype, device)


# how they are drawn


def _uniform(shape: tuple[int, ...], low: float, high: float, g: Generator) -> Host:
    return g.uniform(shape, low=low, high=high, dtype=float64, device="numpy").numpy()


def _normal(shape: tuple[int, ...], g: Generator) -> Host:
    return g.normal(shape, dtype=float64, device="numpy").numpy()


def _fan(name: str, shape: tuple[int, ...], mode: str) -> int:
    check_choice(name, "mode", mode, ("fan_in", "fan_out"))
    return max(1, fans(shape)[mode == "fan_out"])


def _fill(
    name: str, target: Any, draw: Callable[[tuple[int, ...], Generator], Host], generator: Generator | None, dtype: Any,
    device: Any,
) -> Parameter:  # fmt: skip
    """A new parameter with drawn values, or the given one with them."""
    given = isinstance(target, Parameter)
    if given and (dtype is not None or device is not None):
        raise ConfigError(
            f"{name}: a parameter keeps its dtype and device", describe("parameter", target), "leave dtype and device out"
        )
    if isinstance(target, Tensor) and not given:
        raise ConfigError(
            f"{name}: the first argument is a shape or a parameter", describe("shape", target), "wrap it with nn.Parameter"
        )
    goal, dt = (target.device, target.dtype) if given else _target(dtype, device)
    shape = target.shape if given else normalize_shape(target, name)
    with no_grad(), row_offset(0):
        drawn = np.ascontiguousarray(draw(shape, generator or initial_generator())).reshape(shape)
        rounded = astype(hooks.from_host(drawn, find_device("numpy")), dt, copy=False)
        with goal.backend.memory_persistent_allocations(goal):
            values = hooks.from_host(rounded.numpy(), goal)
    if not given:
        return Parameter(values)
    target._rebind(values)
    return target  # type: ignore[no-any-return]


def _target(dtype: Any, device: Any) -> tuple[Device, DType]:
    goal = find_device(device)
    dt = as_dtype(goal.backend.default_float(goal) if dtype is None else dtype)
    if dt.kind != "float":
        raise DTypeError("a parameter has a floating dtype", dt.name, "pass e.g. dtype=fb.float32")
    return goal, dt


# the middle of the distribution, and its tails near and far: numerators and denominators, highest powers first
_MIDDLE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_NEAR = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip
_FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)  # fmt: skip


def normal_quantile(p: Host) -> Host:
    """x with Φ(x) = p, for p in (0, 1), by AS 241: correct to about 1e-16 of x.

    Args:
        p: float64 array of probabilities.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> fb.nn.initial.normal_quantile(np.array([0.5, 0.975])).round(4).tolist()
        [0.0, 1.96]
    """

    def ratio(t: Host, parts: tuple[tuple[float, ...], tuple[float, ...]]) -> Host:
        return np.asarray(np.polyval(parts[0], t) / np.polyval(parts[1], t))

    q = p - 0.5
    r = np.sqrt(-np.log(np.minimum(p, 1.0 - p)))
    tail = np.where(r <= 5.0, ratio(r - 1.6, _NEAR), ratio(r - 5.0, _FAR))
    return np.where(np.abs(q) <= 0.425, q * ratio(0.180625 - q * q, _MIDDLE), np.copysign(tail, q))
