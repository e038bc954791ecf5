"""What all distributions share: parameters that broadcast, samples and logarithms of probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar, Self

from firebrick.core.autocast import NARROW
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, float32, promote
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, ShapeError, UnsupportedError
from firebrick.core.operands import check_devices, check_operand, describe
from firebrick.core.precision import narrowed, widened
from firebrick.core.shapes import broadcast_shapes, normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.functions.creation import full
from firebrick.functions.elementwise import astype, sqrt, where
from firebrick.functions.movement import broadcast_to
from firebrick.random import Generator
from firebrick.random.settings import Bounds, check_parameter, check_rounded

Parameters = Mapping[str, tuple[Any, Bounds]]
Value = Tensor | float


class Distribution:
    """A distribution, or a batch of independent ones: one for each element of its parameters, which broadcast.

    Attributes:
        shape: Shape of the batch.
        event_shape: Shape of one sample; () for numbers.
        device: Device of the parameters and samples.
        dtype: Dtype of the parameters.
        reparametrised: Whether gradients pass through ``rsample``.

    Example:
        >>> import firebrick as fb
        >>> d = fb.distributions.Normal(fb.zeros(3), fb.asarray([[1.0], [2.0]]))
        >>> d.shape, d.event_shape, d.log_prob(fb.zeros(3)).shape
        ((2, 3), (), (2, 3))
    """

    reparametrised: ClassVar[bool] = False
    shape: tuple[int, ...]
    event_shape: tuple[int, ...] = ()
    device: Device
    dtype: DType

    def _take(self, parameters: Parameters, events: int = 0) -> None:
        """Check the parameters, and keep them as tensors of one dtype; all axes but the last ``events`` broadcast."""
        name = type(self).__name__
        tensors = {k: v for k, (v, _) in parameters.items() if isinstance(v, Tensor)}
        check_devices(name, **tensors)
        for key, (value, bounds) in parameters.items():
            check_parameter(name, key, value, bounds)
        like = next(iter(tensors.values()), None)
        empty = full((), 0.0) if like is None else like
        self.device = empty.device
        self.dtype = empty.dtype if empty.dtype.kind == "float" else as_dtype(self.device.backend.default_float(self.device))
        for other in tensors.values():
            if other.dtype.kind == "float":
                self.dtype = promote(self.dtype, other.dtype) or self.dtype
        made = {}
        for key, (value, bounds) in parameters.items():
            if not isinstance(value, Tensor):
                check_rounded(name, key, value, bounds, self.dtype)
            made[key] = (
                astype(value, self.dtype, copy=False)
                if isinstance(value, Tensor)
                else full((), float(value), dtype=self.dtype, device=self.device)
            )
            if made[key].ndim < events:
                raise ShapeError(f"{name}: {key} has {events} axes or more", describe(key, made[key]), "add an axis before it")
        shapes = [x.shape for x in made.values()]
        whole = shapes[0]
        for s in shapes[1:]:
            whole = broadcast_shapes(whole, s, op=name)
        self.shape = whole[: len(whole) - events]
        self.event_shape = whole[len(whole) - events :]
        for key, x in made.items():
            setattr(self, key, broadcast_to(x, whole))

    def sample(self, shape: Any = (), /, *, generator: Generator | None = None) -> Tensor:
        """Samples, through which no gradient passes.

        Args:
            shape: How many: sizes of axes before those of the batch, as one argument.
            generator: Source of the bits; the device's default generator by default.

        Returns:
            Tensor [*shape, *self.shape, *self.event_shape].

        Example:
            >>> import firebrick as fb
            >>> fb.distributions.Normal(fb.zeros(3), 1.0).sample(2).shape
            (2, 3)
        """
        return self._draw((*normalize_shape(shape, type(self).__name__), *self.shape), generator).detach()

    def rsample(self, shape: Any = (), /, *, generator: Generator | None = None) -> Tensor:
        """Samples as functions of the parameters: gradients pass through them.

        Args:
            shape: How many: sizes of axes before those of the batch, as one argument.
            generator: Source of the bits; the device's default generator by default.

        Returns:
            Tensor [*shape, *self.shape, *self.event_shape].

        Raises:
            UnsupportedError: Samples are no such functions: the distribution is discrete.

        Example:
            >>> import firebrick as fb
            >>> slope = fb.grad(lambda m: fb.mean(fb.distributions.Normal(m, 1.0).rsample(10)))
            >>> slope(fb.asarray(0.5)).item()
            1.0
        """
        if not self.reparametrised:
            name = type(self).__name__
            raise UnsupportedError(
                f"{name}.rsample needs samples that are differentiable functions of the parameters", f"{self!r:.80}",
                "use sample, and the gradient of log_prob",
            )  # fmt: skip
        return self._draw((*normalize_shape(shape, type(self).__name__), *self.shape), generator)

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        """Samples of a whole shape, without that of an event."""
        raise NotImplementedError(f"{type(self).__name__} has no _draw: write how its samples are drawn")

    def log_prob(self, value: Value, /) -> Tensor:
        """The logarithm of the density, or of the probability of a discrete distribution; -∞ for impossible values.

        Args:
            value: Number or tensor that broadcasts with the batch; its last axes are those of an event.

        Example:
            >>> import firebrick as fb
            >>> round(fb.distributions.Normal(0.0, 1.0).log_prob(0.0).item(), 4)
            -0.9189
        """
        raise NotImplementedError(f"{type(self).__name__} has no log_prob: write the logarithm of its density or probability")

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError(f"{type(self).__name__} has no mean: write it as a property")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError(f"{type(self).__name__} has no variance: write it as a property")

    @property
    def std(self) -> Tensor:
        """The standard deviation."""
        return sqrt(self.variance)

    def entropy(self) -> Tensor:
        """The entropy, in nats.

        Example:
            >>> import firebrick as fb
            >>> round(fb.distributions.Bernoulli(0.5).entropy().item(), 4)
            0.6931
        """
        raise UnsupportedError(f"the entropy of {type(self).__name__} has no closed form here", repr(self), "estimate it")

    def _value(self, value: Value) -> Tensor:
        """An argument of ``log_prob`` as a tensor of the distribution's dtype."""
        if not isinstance(value, Tensor):
            return full((), float(value), dtype=self.dtype, device=self.device)
        name = type(self).__name__
        check_operand(name, value, "any", "value")
        if value.device is not self.device:
            check_devices(name, value=value, parameters=full((), 0.0, device=self.device))
        dt = self.dtype if value.dtype.kind != "float" else promote(self.dtype, value.dtype) or self.dtype
        return astype(value, dt, copy=False)

    def _widened(self) -> Self:
        """The same with parameters of half precision as float32, in which logarithms of gamma functions do not overflow."""
        if self.dtype not in NARROW:
            return self
        made = copy(self)
        made.dtype = float32
        for key, held in vars(self).items():
            if isinstance(held, Tensor):
                setattr(made, key, widened(held))
            elif isinstance(held, Distribution):
                setattr(made, key, held._widened())
        return made

    def _in_float32(self, x: Tensor) -> Tensor:
        """``log_prob`` of a tensor of half precision, rounded once."""
        found: Tensor = narrowed(self._widened().log_prob(widened(x)), x.dtype)
        return found

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, event_shape={self.event_shape}, dtype={self.dtype.name})"


def inside(possible: Tensor, x: Tensor, otherwise: float) -> Tensor:
    """x where it is possible, else a number of which the formula is finite."""
    return where(possible, x, otherwise)


def one_of(name: str, **given: Any) -> str:
    """The one of two parameters that is given.

    Raises:
        ConfigError: Both are, or none.
    """
    found = [k for k, v in given.items() if v is not None]
    if len(found) != 1:
        raise ConfigError(f"{name}: either {' or '.join(given)} is given", ", ".join(found) or "neither", "give one")
    return found[0]
