"""Distributions of vectors: normal ones with any covariance, and independent components as one event."""

from __future__ import annotations

import math
from typing import Any

from firebrick.core.errors import ConfigError, OutOfRangeError, ShapeError
from firebrick.core.operands import describe
from firebrick.core.settings import whole
from firebrick.core.tensor import Tensor
from firebrick.distributions.base import Distribution, Value, one_of
from firebrick.functions.elementwise import equal, greater, log, square
from firebrick.functions.linalg import diagonal
from firebrick.functions.linear import matmul
from firebrick.functions.matrices import cholesky, solve_triangular
from firebrick.functions.movement import broadcast_to, matrix_transpose
from firebrick.functions.statistical import sum as sum_
from firebrick.functions.triangles import tril
from firebrick.functions.utility import all as all_
from firebrick.random import Generator
from firebrick.random.defaults import source_of
from firebrick.random.settings import ANY, check_values


class MultivariateNormal(Distribution):
    """Normal vectors of n numbers.

    Args:
        loc: Floating tensor [..., n]: the mean.
        covariance: Positive definite matrices [..., n, n].
        scale_tril: In its place, lower triangular L [..., n, n] with a positive diagonal: the covariance is L Lᵀ.

    Attributes:
        scale_tril: L.

    Raises:
        LinAlgError: A covariance is not positive definite.

    Example:
        >>> import firebrick as fb
        >>> d = fb.distributions.MultivariateNormal(fb.zeros(2), fb.eye(2))
        >>> round(d.log_prob(fb.zeros(2)).item(), 4)
        -1.8379
    """

    reparametrised = True
    loc: Tensor
    scale_tril: Tensor

    def __init__(self, loc: Tensor, covariance: Tensor | None = None, *, scale_tril: Tensor | None = None) -> None:
        given = one_of("MultivariateNormal", covariance=covariance, scale_tril=scale_tril)
        factor = cholesky(covariance) if given == "covariance" and covariance is not None else scale_tril
        held: Any = loc
        if not isinstance(held, Tensor) or not isinstance(factor, Tensor):
            raise ConfigError("MultivariateNormal: loc and the matrices are tensors", f"loc={loc!r:.60}", "use fb.asarray")
        if loc.ndim < 1 or factor.ndim < 2 or factor.shape[-2:] != (loc.shape[-1],) * 2:
            raise ShapeError(
                "MultivariateNormal: loc is [..., n], and matrices are [..., n, n]",
                f"{describe('loc', loc)} and {describe(given, factor)}", "check the sizes",
            )  # fmt: skip
        self._take({"loc": (loc[..., None], ANY), "scale_tril": (factor, ANY)}, events=2)
        if given == "scale_tril" and factor.device.engine != "meta" and factor.size:
            held = factor.detach()
            check_values(
                lambda: all_(equal(held, tril(held))) & all_(greater(diagonal(held), 0.0)),
                lambda: OutOfRangeError(
                    "MultivariateNormal: scale_tril is lower triangular, with a positive diagonal",
                    describe("scale_tril", factor), "pass fb.linalg.cholesky(covariance), or covariance= itself",
                    op="MultivariateNormal",
                ),
            )  # fmt: skip
        self.loc = self.loc[..., 0]
        self.event_shape = self.event_shape[:1]

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        source = source_of(type(self).__name__, generator, self.device)
        z = source.normal((*shape, *self.event_shape), dtype=self.dtype, device=self.device)
        return matmul(self.scale_tril, z[..., None])[..., 0] + self.loc

    def log_prob(self, value: Value, /) -> Tensor:
        x = self._value(value)
        if x.shape[-1:] != self.event_shape:
            raise ShapeError(
                f"MultivariateNormal: value has {self.event_shape[0]} numbers last", describe("value", x), "check its last axis"
            )
        apart = solve_triangular(self.scale_tril, (x - self.loc)[..., None], upper=False)[..., 0]
        return (sum_(square(apart), axis=-1) + self.event_shape[0] * math.log(2 * math.pi)) * -0.5 - self.half_log_det()

    def half_log_det(self) -> Tensor:
        """Half of the logarithm of the covariance's determinant.

        Example:
            >>> import firebrick as fb
            >>> fb.distributions.MultivariateNormal(fb.zeros(2), fb.eye(2)).half_log_det().item()
            0.0
        """
        return sum_(log(diagonal(self.scale_tril)), axis=-1)

    @property
    def covariance(self) -> Tensor:
        """L Lᵀ."""
        return matmul(self.scale_tril, matrix_transpose(self.scale_tril))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return sum_(square(self.scale_tril), axis=-1)

    def entropy(self) -> Tensor:
        return self.half_log_det() + self.event_shape[0] * (0.5 + 0.5 * math.log(2 * math.pi))


class Independent(Distribution):
    """A batch of independent distributions as one distribution: its last axes are those of an event.

    Args:
        base: Distribution.
        axes: How many axes of its batch, counted from the last, become axes of an event.

    Example:
        >>> import firebrick as fb
        >>> d = fb.distributions.Independent(fb.distributions.Normal(fb.zeros((5, 3)), 1.0), 1)
        >>> d.log_prob(fb.zeros((5, 3))).shape
        (5,)
    """

    def __init__(self, base: Distribution, axes: int) -> None:
        count = whole("Independent", "axes", axes, 0)
        if count > len(base.shape):
            raise ConfigError(f"Independent: base has {count} axes or more", repr(base), "take fewer")
        self.base, self.axes = base, count
        at = len(base.shape) - count
        self.shape, self.event_shape = base.shape[:at], (*base.shape[at:], *base.event_shape)
        self.device, self.dtype = base.device, base.dtype

    @property
    def reparametrised(self) -> bool:  # type: ignore[override]
        """Whether gradients pass through ``rsample``."""
        return self.base.reparametrised

    def _draw(self, shape: tuple[int, ...], generator: Generator | None) -> Tensor:
        return self.base._draw((*shape, *self.base.shape[len(self.shape) :]), generator)

    def _summed(self, x: Tensor) -> Tensor:
        return sum_(x, axis=tuple(range(-self.axes, 0))) if self.axes else x

    def log_prob(self, value: Value, /) -> Tensor:
        return self._summed(self.base.log_prob(value))

    @property
    def mean(self) -> Tensor:
        return self.base.mean

    @property
    def variance(self) -> Tensor:
        return self.base.variance

    def entropy(self) -> Tensor:
        return self._summed(broadcast_to(self.base.entropy(), self.base.shape))
