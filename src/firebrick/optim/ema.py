"""Averages of parameters along training, which often do better than the parameters themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from firebrick.autodiff.tape import no_grad, unrecorded
from firebrick.core.commit import Commit
from firebrick.core.constants import constant
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, float32
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.hooks import changed, hooks
from firebrick.core.operands import describe
from firebrick.core.settings import python_settings
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype, minimum
from firebrick.nn import StateError
from firebrick.optim.checks import check_beside, check_range, named
from firebrick.optim.optimizer import Target, chosen, placed
from firebrick.optim.restoring import count


class EMA:
    """Exponential moving averages of a model's parameters: a ← d · a + (1 - d) · p after each update.

    They start from the parameters as they are, and are kept in float32 for narrower ones. Buffers are not averaged.

    Args:
        model: Module or list of parameters.
        decay: d, in [0, 1).
        warmup: Whether d is min(decay, (1 + t) / (10 + t)) at update t (from 0), so that the first values are soon forgotten.

    Source: Polyak, Juditsky, "Acceleration of Stochastic Approximation by Averaging", SIAM Journal on Control and
        Optimization 30, 1992.

    Example:
        >>> import firebrick as fb
        >>> model = fb.nn.Linear(1, 1, bias=False)
        >>> ema = fb.optim.EMA(model, decay=0.5)
        >>> before = model.weight.item()
        >>> model.load_state_dict({"weight": fb.asarray([[before + 1.0]])}) and None
        >>> ema.update()
        >>> with ema.applied():
        ...     averaged = model.weight.item()
        >>> round(averaged - before, 3), round(model.weight.item() - before, 3)
        (0.5, 1.0)
    """

    versioned = True

    @python_settings
    def __init__(self, model: Target, decay: float = 0.999, *, warmup: bool = False) -> None:
        check_range("EMA", "decay", decay, 0.0, 1.0)
        self.decay, self.warmup = float(decay), warmup
        self._parameters = named(model)
        self._averages: dict[str, Tensor] = {}
        self._step: Tensor | None = None
        self.reset()

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        changed(self, name)

    def reset(self) -> None:
        """Start again from the present parameters."""
        self._averages = {n: astype(p.detach(), _wide(p.dtype), copy=False).detach() for n, p in self._parameters}
        if self._parameters:
            home = self._parameters[0][1].device
            self._step = constant(0, as_dtype(home.backend.default_int(home)), home)

    @property
    def step(self) -> int:
        """Number of updates done."""
        return 0 if self._step is None else int(self._step)

    @property
    def parameters(self) -> list[tuple[str, Tensor]]:
        """The parameters that are averaged, by name."""
        return list(self._parameters)

    @property
    def averages(self) -> dict[str, Tensor]:
        """The averages by parameter name."""
        return {n: a.detach() for n, a in self._averages.items()}

    def update(self, valid: Tensor | None = None) -> None:
        """Update the averages with the present values of the parameters.

        Args:
            valid: Bool []; where it is False, nothing changes, as in an optimizer's update by gradients that are not.
        """
        if self._step is None:
            return
        if hooks.tracing:
            check_beside("EMA.update", [*self._averages.items(), ("the step counter", self._step)], self._parameters)
        unrecorded(self._computed, self._step, valid).apply()

    def _computed(self, before: Tensor, valid: Tensor | None) -> Commit:
        """What an update changes, which is all computed but not changed yet."""
        commit = Commit()
        rests: dict[tuple[DType, Device], Tensor] = {}
        for name, p in self._parameters:
            dt = _wide(p.dtype)
            rest = rests.get((dt, p.device))
            if rest is None:
                rest = rests[dt, p.device] = self._rest(dt, p.device)
            a = self._beside(name, p)
            new = chosen(valid, a + (astype(p.detach(), dt, copy=False) - a) * rest, a)
            commit.rebind(self._averages[name], new)
        commit.rebind(before, chosen(valid, before + constant(1, before.dtype, before.device), before))
        return commit

    def _rest(self, dt: DType, device: Device) -> Tensor:
        """1 - d."""
        rest = constant(1.0 - self.decay, dt, device)
        if not self.warmup:
            return rest
        assert self._step is not None
        t = astype(self._step.to(device), dt)
        return 1.0 - minimum(constant(self.decay, dt, device), (t + 1.0) / (t + 10.0))

    def _beside(self, name: str, p: Tensor) -> Tensor:
        """The average of a parameter, on its device and of its width."""
        a = self._averages[name]
        if a.shape != p.shape:
            raise ShapeError(
                "EMA: the average of a parameter has its shape",
                f"{describe(name, p.detach())} and {describe('average', a)}",
                "begin anew from the parameters as they are: ema.reset()",
            )
        return astype(a, _wide(p.dtype), copy=False).to(p.device)

    @contextmanager
    def applied(self, *, checked: bool = True) -> Iterator[None]:
        """For a ``with`` block the model has the averages for parameters; after it its own again.

        Args:
            checked: Whether a parameter that was changed within the block, which is lost, raises at the end of the block.
                A cast or a move of the model is none.

        Raises:
            ConfigError: Parameters were changed within the block, as by an optimizer's update. The model has its own again.
        """
        with no_grad():
            averages, own, kept = Commit(), Commit(), [p.detach() for _, p in self._parameters]
            for (name, p), k in zip(self._parameters, kept, strict=True):
                averages.rebind(p, astype(self._beside(name, p), p.dtype))
                own.rebind(p, k)
            try:
                try:
                    averages.apply()
                    before = [p.detach() for _, p in self._parameters]
                    yield
                    lost = self._changed_since(before) if checked else []
                finally:
                    own = self._as_now(kept, own)
                    own.apply()
            except BaseException:
                own.apply()  # again: an interrupt may have come at the beginning of the first time
                raise
            if lost:
                raise ConfigError(
                    "EMA.applied: parameters stay the averages within the block",
                    f"changes of {', '.join(lost[:4])}{', …' if len(lost) > 4 else ''}, which are thrown away at its end",
                    "train and load before or after the block; moments and counters of an optimizer that made updates in it "
                    "stay changed: load its state of before",
                )

    def _as_now(self, kept: list[Tensor], own: Commit) -> Commit:
        """What gives the parameters their own values again: ``own``, or, if the model was cast or moved meanwhile, these values
        in the dtypes and on the devices that it has now."""
        pairs = [(p, k) for (_, p), k in zip(self._parameters, kept, strict=True)]
        if all(p.dtype is k.dtype and p.device is k.device for p, k in pairs):
            return own
        moved = Commit()
        for p, k in pairs:
            moved.rebind(p, astype(k.to(p.device), p.dtype, copy=False).detach())
        return moved

    def _changed_since(self, before: list[Tensor]) -> list[str]:
        """The parameters that have other values than before, though neither cast nor moved."""
        pairs = [
            (name, p.detach(), b)
            for (name, p), b in zip(self._parameters, before, strict=True)
            if p.storage is not b.storage and p.dtype is b.dtype and p.device is b.device
        ]
        if hooks.tracing:  # nothing can be read
            return [name for name, *_ in pairs]
        return [name for name, p, b in pairs if p.numpy().tobytes() != b.numpy().tobytes()]

    def state_dict(self) -> dict[str, Any]:
        """Averages, the number of updates and the settings, as a plain tree."""
        return {"decay": self.decay, "warmup": self.warmup, "step": self.step, "averages": self.averages}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a ``state_dict()`` (its tensors may be NumPy arrays).

        Args:
            state: What ``state_dict()`` returned.

        Raises:
            StateError: Names or shapes differ; nothing was changed.
        """
        own, theirs = dict(self._parameters), state.get("averages", {})
        if absent := [k for k in ("decay", "warmup", "step", "averages") if k not in state]:
            raise StateError(
                "EMA: a state holds decay, warmup, step and averages", f"no {', '.join(absent)}", "take it from state_dict()"
            )
        wrong = [f"{n}: not there" for n in own if n not in theirs]
        wrong += [f"{n}: there is no such parameter" for n in theirs if n not in own]
        wrong += [
            f"{n}: {list(t.shape)} for {list(own[n].shape)}"
            for n, t in theirs.items()
            if n in own and tuple(t.shape) != own[n].shape
        ]
        if wrong:
            raise StateError(
                "EMA: averages have the names and shapes of the parameters",
                "; ".join(wrong),
                "build the model with the same settings. Nothing was loaded",
            )
        decay, warmup, step = state["decay"], state["warmup"], count("EMA", "step", state["step"])
        check_range("EMA", "decay", decay, 0.0, 1.0)
        if not isinstance(warmup, (bool, np.bool_)):
            raise StateError("EMA: warmup of a state is True or False", repr(warmup), "take it from state_dict()")
        self._averages = {n: astype(placed(t, own[n].device), _wide(own[n].dtype), copy=False) for n, t in theirs.items()}
        self.decay, self.warmup = float(decay), bool(warmup)
        if self._step is not None:
            home = self._parameters[0][1].device
            self._step = constant(step, self._step.dtype, home)

    def __repr__(self) -> str:
        return f"EMA(decay={self.decay}, warmup={self.warmup}, {len(self._parameters)} parameters)"


def _wide(dtype: DType) -> DType:
    return dtype if dtype.itemsize >= 4 else float32
