"""Mixed precision of a training step: the model's forward and backward pass in bfloat16 or float16, all else in float32.

Parameters, their gradients, moments and averages stay float32; ``fb.autocast`` casts them where a layer uses them, and
gradients come back through that cast. The loss is computed from the model's output in float32. Small gradients vanish in
float16, so there the loss is multiplied by a scale that ``LossScaler`` finds; steps whose gradients overflow by it change
nothing but the scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import unrecorded
from firebrick.backends.contract import STORAGE
from firebrick.core import trees
from firebrick.core.autocast import NARROW, autocast
from firebrick.core.commit import Commit
from firebrick.core.constants import constant
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, float16, float32, int32
from firebrick.core.lines import warn
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import (
    astype,
    isfinite,
    less,
    logical_and,
    minimum,
    where,
)
from firebrick.functions.utility import all as all_
from firebrick.nn import Module
from firebrick.train.errors import LossScaleWarning, TrainingError

Forward = Callable[..., tuple[Tensor, Any]]


class LossScaler:
    """The factor of the loss in float16: as large as gradients allow without overflow.

    It starts from ``scale``, doubles after ``interval`` steps in a row whose gradients were finite, and halves after one whose
    gradients were not. It is tensors, so that a step with it is one graph.

    Args:
        devices: Devices on which it is used; the first one computes the next scale.
        scale: What it starts from.
        interval: Finite steps before it doubles.

    Source: Micikevicius et al., "Mixed Precision Training", arXiv:1710.03740.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import LossScaler
        >>> scaler = LossScaler([fb.device("cpu")], scale=8.0)
        >>> x = fb.asarray([3.0]).require_grad()
        >>> grads = fb.backward(fb.sum(x * x) * scaler.at(x.device))
        >>> scaler.unscale(grads)
        >>> grads[x].tolist(), bool(grads.valid), scaler.scale
        ([6.0], True, 8.0)
    """

    versioned = True
    LARGEST = 2.0**24

    def __init__(self, devices: Sequence[Device], scale: float = 2.0**15, interval: int = 2000) -> None:
        self.interval = interval
        self._told = False
        home = devices[0]
        self._scales = {d: constant(scale, float32, d) for d in devices}
        self._scale, self._good = self._scales[home], constant(0, int32, home)

    @property
    def scale(self) -> float:
        """The factor of the next step (which waits for the device)."""
        return float(self._scale)

    def at(self, device: Device) -> Tensor:
        """The factor as a 0-d tensor on one of the devices.

        Args:
            device: Device or device string.
        """
        return self._scales[device]

    def unscale(self, gradients: Gradients) -> None:
        """Divide gradients of a scaled loss by the scale, in place, and find the next scale.

        Where one of them is NaN or infinite, all become 0 and ``gradients.valid`` False.

        Args:
            gradients: Changed in place.
        """
        unrecorded(self._computed, gradients).apply()

    def _computed(self, gradients: Gradients) -> Commit:
        """What ``unscale`` changes, which is all computed but not changed yet."""
        commit = Commit()
        scale, good = self._scale.detach(), self._good.detach()
        finite = isfinite(scale)
        for _, g in gradients.items():
            finite = logical_and(finite, all_(isfinite(g.detach())).to(finite.device))
        gradients.change(lambda g: _divided(g, scale.to(g.device), finite.to(g.device)), commit)
        commit.call(object.__setattr__, gradients, "valid", finite)
        one = constant(1, good.dtype, good.device)
        none = constant(0, good.dtype, good.device)
        early = less(good + one, self.interval)
        larger = where(early, scale, minimum(scale * 2.0, self.LARGEST))
        commit.rebind(self._scale, where(finite, larger, scale * 0.5))
        commit.rebind(self._good, where(logical_and(finite, early), good + one, none))
        return commit

    def spread(self) -> None:
        """Give the other devices the scale that the first has now."""
        commit = Commit()
        for device, t in self._scales.items():
            if t is not self._scale:
                commit.rebind(t, self._scale.detach().to(device))
        commit.apply()

    def check(self) -> None:
        """Warn, once, of a scale below 1: then gradients overflow that were not scaled up at all."""
        if not self._told and (scale := self.scale) < 1.0:
            self._told = True
            warn(
                f"the loss scale fell to {scale:g}: gradients overflow float16 by themselves, and steps are skipped. "
                'Train with precision="bfloat16", lower the learning rate, or look for a loss that explodes',
                LossScaleWarning,
            )

    def state_dict(self) -> dict[str, Any]:
        """The scale and the finite steps since it last changed, as plain numbers."""
        return {"scale": self.scale, "good": int(self._good)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict()``.

        Args:
            state: What ``state_dict()`` returned.
        """
        home = self._scale.device
        self._scale._rebind(constant(float(state["scale"]), float32, home))
        self._good._rebind(constant(int(state["good"]), int32, home))
        self.spread()


def _divided(g: Tensor, scale: Tensor, finite: Tensor) -> Tensor:
    return where(finite, g / astype(scale, g.dtype, copy=False), 0.0)


@dataclass(frozen=True)
class MixedForward:
    """``forward`` with its model in a narrow dtype: the output and the loss are float32, and the loss is scaled.

    Args:
        forward: Called as ``forward(model, *batch) -> (loss, anything)``.
        dtype: bfloat16 or float16.
        scaler: None leaves the loss as it is.
    """

    forward: Forward
    dtype: DType
    scaler: LossScaler | None

    def __call__(self, model: Module, *batch: Tensor) -> tuple[Tensor, Any]:
        def narrow(*inputs: Any, **named: Any) -> Any:
            with autocast(self.dtype):
                output = model(*inputs, **named)
            return trees.tree_map(_wide, output)

        loss, beside = self.forward(narrow, *batch)
        return (loss if self.scaler is None else loss * self.scaler.at(loss.device)), beside


def _wide(value: Any) -> Any:
    return astype(value, float32) if isinstance(value, Tensor) and value.dtype in NARROW else value


@dataclass(frozen=True)
class Precision:
    """Of a ``Learner``: the dtype that forward and backward passes compute in, and the scale of the loss, in float16."""

    dtype: DType
    scaler: LossScaler | None

    def forward(self, forward: Forward) -> Forward:
        """What is differentiated in place of ``forward``."""
        return MixedForward(forward, self.dtype, self.scaler)

    def unscale(self, gradients: Gradients) -> None:
        """Gradients as those of the loss itself, before they are clipped or used."""
        if self.scaler is not None:
            self.scaler.unscale(gradients)

    def spread(self) -> None:
        """Bring what a step changed to the other devices."""
        if self.scaler is not None:
            self.scaler.spread()

    def check(self) -> None:
        """Warn of what shows that float16 is too narrow."""
        if self.scaler is not None:
            self.scaler.check()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: plain values."""
        return {"dtype": self.dtype.name, **({} if self.scaler is None else self.scaler.state_dict())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``; from that of another precision, the scale is found anew."""
        if self.scaler is not None and "scale" in state:
            self.scaler.load_state_dict(state)


def precision_of(name: str | DType | None, model: Module, devices: Sequence[Device]) -> Precision | None:
    """What ``Learner(precision=name)`` asks for; None for float32.

    Raises:
        TrainingError: It is no narrow dtype, a device does not compute in it, or the model's parameters are narrow themselves.
    """
    asked = str(getattr(name, "name", name))
    if name is None or asked == float32.name:
        return None
    dtype = {d.name: d for d in NARROW}.get(asked)
    if dtype is None:
        raise TrainingError('precision is "float32", "bfloat16" or "float16"', repr(name), "leave it out for float32")
    for device in devices:
        if STORAGE not in device.backend.dtype_usage(device, dtype):
            raise TrainingError(
                f"each device has the dtype of the precision, {dtype.name}", f"{device}, which has not", "choose another one"
            )
    narrow = [describe(n, p.detach()) for n, p in model.named_parameters() if p.dtype in NARROW]
    if narrow:
        raise TrainingError(
            "with a precision, the parameters themselves are float32",
            "; ".join(narrow[:4]) + ("; …" if len(narrow) > 4 else ""),
            "call model.astype(fb.float32) before the optimizer is made",
        )
    return Precision(dtype, LossScaler(devices) if dtype is float16 else None)
