"""Normalisation layers: batch, instance, group, layer and RMS norm."""

from __future__ import annotations

from typing import Any

from firebrick.autodiff.tape import no_grad, repeating
from firebrick.core.commit import Commit
from firebrick.core.docstrings import documented_like
from firebrick.core.dtypes import int64
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.operands import describe
from firebrick.core.settings import number
from firebrick.core.shapes import normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.functions.creation import full
from firebrick.functions.elementwise import astype
from firebrick.functions.normalisation import (
    batch_norm,
    batch_norm_with_statistics,
    group_norm,
    instance_norm_with_statistics,
    layer_norm,
    local_response_norm,
    rms_norm,
)
from firebrick.functions.statistical import mean as mean_of
from firebrick.nn import initial
from firebrick.nn.checks import check_sizes
from firebrick.nn.joint import joint, joint_batch_norm
from firebrick.nn.module import Module
from firebrick.nn.parameter import Buffer

RUNNING, COUNT = frozenset(("running_mean", "running_var")), "num_batches_tracked"
"""Names of the buffers that follow the means of batches."""


class _ChannelNorm(Module):
    """What batch and instance norm share: parameters a channel, and running statistics of what training saw.

    The parameters start from ones (weight) and zeros (bias), the running mean from zeros and the running variance from ones.
    """

    _ranks: tuple[int, ...] = ()
    _layout = ""
    _usual = True  # default of affine and of track_running_stats

    def __init__(
        self, features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, *, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        name = type(self).__name__
        check_sizes(name, 0, features=features)
        if momentum is not None and not 0.0 <= momentum <= 1.0:
            raise ConfigError(
                f"{name}: momentum lies in [0, 1], or is None for the average over all batches", f"momentum = {momentum!r}",
                "pass the weight of the newest batch, e.g. 0.1",
            )  # fmt: skip
        self.features, self.momentum = features, momentum
        self.eps = number(type(self).__name__, "eps", eps, least=0)
        how: dict[str, Any] = {"dtype": dtype, "device": device}
        self.weight = initial.constant((features,), 1.0, **how) if affine else None
        self.bias = initial.constant((features,), 0.0, **how) if affine else None
        self.running_mean: Tensor | None = None
        self.running_var: Tensor | None = None
        self.num_batches_tracked: Tensor | None = None
        if track_running_stats:
            self.running_mean = Buffer(initial.constant((features,), 0.0, **how).detach())
            self.running_var = Buffer(initial.constant((features,), 1.0, **how).detach())
            self.num_batches_tracked = Buffer(full((), 0, dtype=int64, device=device))

    def _check(self, x: Tensor) -> None:
        if x.ndim not in self._ranks or x.shape[1] != self.features:
            held = "" if self.weight is None else f" and {describe('weight', self.weight)}"
            raise ShapeError(
                f"{type(self).__name__}: x is {self._layout.format(self.features)}", f"{describe('x', x)}{held}",
                "reshape x, or build the layer with its number of channels",
            )  # fmt: skip

    def _track(self, mean: Tensor, var: Tensor, count: int) -> None:
        """Move the running statistics towards a batch's mean and biased variance of ``count`` values each."""
        if repeating():
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        with no_grad():
            dt = self.running_mean.dtype
            mean = astype(mean.detach(), dt, copy=False)
            var = astype(var.detach(), dt, copy=False) * (count / (count - 1))
            batches = self.num_batches_tracked + 1
            newest = 1.0 / astype(batches, dt) if self.momentum is None else self.momentum
            commit = Commit()
            commit.rebind(self.running_mean, self.running_mean + (mean - self.running_mean) * newest)
            commit.rebind(self.running_var, self.running_var + (var - self.running_var) * newest)
            commit.rebind(self.num_batches_tracked, batches)
            commit.apply()

    def describe(self) -> str:
        more = [("eps", self.eps, 1e-5), ("momentum", self.momentum, 0.1), ("affine", self.weight is not None, self._usual),
                ("track_running_stats", self.running_mean is not None, self._usual)]  # fmt: skip
        return ", ".join([str(self.features), *(f"{n}={v!r}" for n, v, usual in more if v != usual)])


class _BatchNorm(_ChannelNorm):
    def forward(self, x: Tensor) -> Tensor:
        """Normalise x by the batch in training, by the running statistics in evaluation.

        Args:
            x: Floating tensor [batch, features, ...], with as many further axes as the layer takes.
        """
        self._check(x)
        if not self.training and self.running_mean is not None:
            return batch_norm(
                x, weight=self.weight, bias=self.bias, mean=self.running_mean, variance=self.running_var, eps=self.eps
            )
        at = joint.get() if self.training and self.features else None
        if at is not None:
            y, mean, var, count = joint_batch_norm(x, self.weight, self.bias, self.eps, at)
        else:
            y, mean, var = batch_norm_with_statistics(x, self.weight, self.bias, self.eps, type(self).__name__)
            count = x.size // max(1, self.features)
        if self.training and self.running_mean is not None and self.features:
            self._track(mean, var, count)
        return y


class BatchNorm1d(_BatchNorm):
    """y = (x - mean) / √(variance + eps) · weight + bias for each channel, over the batch (and length).

    In training, mean and biased variance are those of the batch, and the running statistics move towards them, with the
    unbiased variance: running ← (1 - momentum) · running + momentum · batch. In evaluation the running statistics are used.
    Weight and running variance start from ones, bias and running mean from zeros.

    Args:
        features: Number of channels.
        eps: Added to the variance.
        momentum: Weight of the newest batch in the running statistics; None averages over all batches.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics; without them, evaluation uses the batch's as well.
        dtype: Dtype of parameters and statistics; the device's default float by default.
        device: Device of parameters and statistics.

    Attributes:
        weight: Parameter [features], or None.
        bias: Parameter [features], or None.
        running_mean: Buffer [features], or None.
        running_var: Buffer [features], or None.
        num_batches_tracked: Buffer [] of int64, or None.

    Source: Ioffe, Szegedy, "Batch Normalization", arXiv:1502.03167.

    Example:
        >>> import firebrick as fb
        >>> norm = fb.nn.BatchNorm1d(1, eps=0.0)
        >>> norm(fb.asarray([[1.0], [3.0]])).tolist(), [round(v, 4) for v in norm.running_var.tolist()]
        ([[-1.0], [1.0]], [1.1])
    """

    _ranks, _layout = (2, 3), "[batch, {0}] or [batch, {0}, length]"


@documented_like(BatchNorm1d)
class BatchNorm2d(_BatchNorm):
    """``BatchNorm1d`` for images [batch, features, height, width].

    Example:
        >>> import firebrick as fb
        >>> fb.nn.BatchNorm2d(3)(fb.ones((2, 3, 4, 4))).shape
        (2, 3, 4, 4)
    """

    _ranks, _layout = (4,), "[batch, {0}, height, width]"


@documented_like(BatchNorm1d)
class BatchNorm3d(_BatchNorm):
    """``BatchNorm1d`` for volumes [batch, features, depth, height, width].

    Example:
        >>> import firebrick as fb
        >>> fb.nn.BatchNorm3d(3)(fb.ones((2, 3, 2, 4, 4))).shape
        (2, 3, 2, 4, 4)
    """

    _ranks, _layout = (5,), "[batch, {0}, depth, height, width]"


class _InstanceNorm(_ChannelNorm):
    _usual = False

    def __init__(
        self, features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
        track_running_stats: bool = False, *, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(features, eps, momentum, affine, track_running_stats, dtype=dtype, device=device)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each channel of each sample; in evaluation by running statistics, if they are tracked.

        Args:
            x: Floating tensor [batch, features, *image], with as many axes of the image as in the name of the layer.
        """
        self._check(x)
        if not self.training and self.running_mean is not None:
            return batch_norm(
                x, weight=self.weight, bias=self.bias, mean=self.running_mean, variance=self.running_var, eps=self.eps
            )
        y, mean, var = instance_norm_with_statistics(x, self.weight, self.bias, self.eps, type(self).__name__)
        if self.training and self.running_mean is not None and mean.size:
            with no_grad():
                mean, var = mean_of(mean.detach(), axis=0), mean_of(var.detach(), axis=0)
            self._track(mean, var, x.size // (x.shape[0] * self.features))
        return y


class InstanceNorm1d(_InstanceNorm):
    """y = (x - mean) / √(variance + eps) · weight + bias for each channel of each sample.

    Args:
        features: Number of channels.
        eps: Added to the (biased) variance.
        momentum: Weight of the newest batch in the running statistics; None averages over all batches.
        affine: Whether there are weight and bias.
        track_running_stats: Whether evaluation uses running statistics (the mean over samples of those of training).
        dtype: Dtype of parameters and statistics; the device's default float by default.
        device: Device of parameters and statistics.

    Attributes:
        weight: Parameter [features], or None.
        bias: Parameter [features], or None.
        running_mean: Buffer [features], or None.
        running_var: Buffer [features], or None.
        num_batches_tracked: Buffer [] of int64, or None.

    Source: Ulyanov, Vedaldi, Lempitsky, "Instance Normalization", arXiv:1607.08022.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.InstanceNorm1d(1, eps=0.0)(fb.asarray([[[1.0, 3.0]], [[5.0, 9.0]]])).tolist()
        [[[-1.0, 1.0]], [[-1.0, 1.0]]]
    """

    _ranks, _layout = (3,), "[batch, {0}, length]"


@documented_like(InstanceNorm1d)
class InstanceNorm2d(_InstanceNorm):
    """``InstanceNorm1d`` for images [batch, features, height, width].

    Example:
        >>> import firebrick as fb
        >>> fb.nn.InstanceNorm2d(3)(fb.ones((2, 3, 4, 4))).shape
        (2, 3, 4, 4)
    """

    _ranks, _layout = (4,), "[batch, {0}, height, width]"


@documented_like(InstanceNorm1d)
class InstanceNorm3d(_InstanceNorm):
    """``InstanceNorm1d`` for volumes [batch, features, depth, height, width].

    Example:
        >>> import firebrick as fb
        >>> fb.nn.InstanceNorm3d(3)(fb.ones((2, 3, 2, 4, 4))).shape
        (2, 3, 2, 4, 4)
    """

    _ranks, _layout = (5,), "[batch, {0}, depth, height, width]"


class GroupNorm(Module):
    """y = (x - mean) / √(variance + eps) · weight + bias over groups of channels of each sample.

    Weight starts from ones, bias from zeros.

    Args:
        groups: Number of groups; divides the channels.
        features: Number of channels.
        eps: Added to the (biased) variance.
        affine: Whether there are weight and bias.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [features], or None.
        bias: Parameter [features], or None.

    Source: Wu, He, "Group Normalization", arXiv:1803.08494.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.GroupNorm(2, 4)(fb.ones((1, 4, 3, 3))).shape
        (1, 4, 3, 3)
    """

    def __init__(
        self, groups: int, features: int, eps: float = 1e-5, affine: bool = True, *, dtype: Any = None, device: Any = None
    ) -> None:
        check_sizes("GroupNorm", groups=groups, features=features)
        if features % groups:
            raise ConfigError(
                "GroupNorm: groups divides features", f"groups = {groups}, features = {features}", "choose a divisor"
            )
        self.groups, self.features = groups, features
        self.eps = number("GroupNorm", "eps", eps, least=0)
        self.weight = initial.constant((features,), 1.0, dtype=dtype, device=device) if affine else None
        self.bias = initial.constant((features,), 0.0, dtype=dtype, device=device) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [batch, features, ...].

        Args:
            x: Floating tensor [batch, features, ...].
        """
        if x.ndim < 2 or x.shape[1] != self.features:
            raise ShapeError(
                f"GroupNorm: x is [batch, {self.features}, ...]", describe("x", x),
                "reshape x, or build the layer with its number of channels",
            )  # fmt: skip
        return group_norm(x, self.groups, self.weight, self.bias, eps=self.eps)

    def describe(self) -> str:
        return f"{self.groups}, {self.features}, eps={self.eps}" + ("" if self.weight is not None else ", affine=False")


class LocalResponseNorm(Module):
    """y = x / (k + alpha · mean of x² over neighbouring channels)^beta; see ``fb.local_response_norm``.

    Args:
        size: Number of neighbouring channels, itself among them.
        alpha: Weight of the mean square.
        beta: Exponent.
        k: Added to the mean square.

    Source: Krizhevsky, Sutskever, Hinton, "ImageNet Classification with Deep Convolutional Neural Networks", 2012.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.LocalResponseNorm(5)(fb.ones((1, 8, 3, 3))).shape
        (1, 8, 3, 3)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        check_sizes("LocalResponseNorm", size=size)
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [batch, channels, length, ...].

        Args:
            x: Floating tensor [batch, channels, length, ...].
        """
        return local_response_norm(x, self.size, alpha=self.alpha, beta=self.beta, k=self.k)

    def describe(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LayerNorm(Module):
    """y = (x - mean) / √(variance + eps) · weight + bias over the last axes.

    Weight starts from ones, bias from zeros.

    Args:
        features: Size of the last axis, or sizes of the last axes.
        eps: Added to the (biased) variance.
        affine: Whether there are weight and bias.
        bias: Whether there is a bias beside the weight.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight: Parameter [*features], or None.
        bias: Parameter [*features], or None.

    Source: Ba, Kiros, Hinton, "Layer Normalization", arXiv:1607.06450.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.LayerNorm(2, eps=0.0)(fb.asarray([[1.0, 3.0]])).tolist()
        [[-1.0, 1.0]]
    """

    def __init__(
        self, features: int | tuple[int, ...], eps: float = 1e-5, affine: bool = True, bias: bool = True, *,
        dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        self.features = features
        self.eps = number("LayerNorm", "eps", eps, least=0)
        shape = _sizes("LayerNorm", features)
        self.weight = initial.constant(shape, 1.0, dtype=dtype, device=device) if affine else None
        self.bias = initial.constant(shape, 0.0, dtype=dtype, device=device) if affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [..., *features].

        Args:
            x: Floating tensor [..., *features].
        """
        _check_last("LayerNorm", x, self.features, self.weight)
        return layer_norm(x, weight=self.weight, bias=self.bias, shape=self.features, eps=self.eps)

    def describe(self) -> str:
        return f"{self.features}, eps={self.eps}" + ("" if self.weight is not None else ", affine=False")


class RMSNorm(Module):
    """y = x / √(mean(x²) + eps) · weight over the last axes.

    Weight starts from ones.

    Args:
        features: Size of the last axis, or sizes of the last axes.
        eps: Added to the mean square; the smallest step from 1 of x's dtype by default.
        affine: Whether there is a weight.
        dtype: Dtype of the parameter; the device's default float by default.
        device: Device of the parameter.

    Attributes:
        weight: Parameter [*features], or None.

    Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.RMSNorm(2, eps=0.0)(fb.asarray([[3.0, -3.0]])).tolist()
        [[1.0, -1.0]]
    """

    def __init__(
        self, features: int | tuple[int, ...], eps: float | None = None, affine: bool = True, *, dtype: Any = None,
        device: Any = None,
    ) -> None:  # fmt: skip
        self.features = features
        self.eps = None if eps is None else number("RMSNorm", "eps", eps, least=0)
        self.weight = initial.constant(_sizes("RMSNorm", features), 1.0, dtype=dtype, device=device) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [..., *features].

        Args:
            x: Floating tensor [..., *features].
        """
        _check_last("RMSNorm", x, self.features, self.weight)
        return rms_norm(x, weight=self.weight, shape=self.features, eps=self.eps)

    def describe(self) -> str:
        return f"{self.features}, eps={self.eps}" + ("" if self.weight is not None else ", affine=False")


def _sizes(name: str, features: Any) -> tuple[int, ...]:
    shape = normalize_shape(features, name)
    if not shape:
        raise ConfigError(f"{name}: features names at least one axis", f"features = {features!r}", "pass an int or several")
    return shape


def _check_last(name: str, x: Tensor, features: int | tuple[int, ...], weight: Tensor | None) -> None:
    shape = features if isinstance(features, (tuple, list)) else (features,)
    if x.ndim < len(shape) or x.shape[x.ndim - len(shape) :] != tuple(shape):
        held = "" if weight is None else f" and {describe('weight', weight)}"
        raise ShapeError(
            f"{name}: x is [..., {', '.join(map(str, shape))}]", f"{describe('x', x)}{held}",
            "reshape x, or build the layer with its number of features",
        )  # fmt: skip
