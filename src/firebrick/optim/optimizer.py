"""``Optimizer``: what every optimizer shares: its parameters, the step counter, the moments, and their state.

``update(model, grads)`` computes new values with untracked tensor operations and rebinds each parameter's handle. Step
counter and learning rate are 0-d tensors; what depends on them alone is computed once for all parameters of a device and
dtype, so a parameter costs only the few operations that touch its elements. Parameters narrower than float32 are updated in
float32, in which their moments are kept, and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import no_grad
from firebrick.core.bind import constant, describe
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, float32
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, DeviceMismatchError, GradientError, OperandError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.functions.creation import zeros
from firebrick.functions.elementwise import astype
from firebrick.nn import Module, Parameter, StateError
from firebrick.optim.schedule import Schedule, from_state, schedule, to_state
from firebrick.optim.schedule import constant as constant_rate

Target = Module | Sequence[Parameter]
Scalars = tuple[Tensor, ...]


class Optimizer:
    """Base of optimizers. A subclass names its ``settings`` and ``moments`` and writes ``_scalars`` and ``_new``.

    Args:
        model: The module, or the list of parameters, to update. Frozen parameters may be among them.
        lr: Learning rate: a number, or a schedule of the number of updates done.

    Raises:
        ConfigError: There is no parameter, or a setting has no meaning.
    """

    settings: ClassVar[tuple[str, ...]] = ()
    moments: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: Target, lr: float | Schedule) -> None:
        self._parameters = _named(model)
        if not self._parameters:
            raise ConfigError(
                "an optimizer needs parameters", type(model).__name__, "pass a module or a list of its parameters"
            )
        self.schedule = schedule(lr)
        self._moments: dict[str, dict[str, Tensor]] = {m: {} for m in self.moments}
        self._missed: dict[str, int] = {}
        self._constants: dict[tuple[float, DType, Device], Tensor] = {}
        home = self._parameters[0][1].device
        self._step = constant(0, as_dtype(home.backend.default_int(home)), home)

    # what subclasses write

    def _scalars(self, t: Tensor, lr: Tensor) -> Scalars:
        """0-d tensors that depend on nothing but t (the number of this update, from 1) and the learning rate."""
        raise NotImplementedError

    def _new(self, p: Tensor, g: Tensor, moments: list[Tensor], scalars: Scalars) -> tuple[Tensor, list[Tensor]]:
        """New values of a parameter and of its moments."""
        raise NotImplementedError

    def _constant(self, value: float, like: Tensor) -> Tensor:
        """A 0-d constant beside ``like``, made once."""
        key = (value, like.dtype, like.device)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = constant(value, like.dtype, like.device)
        return found

    # updating

    def update(self, model: Target, grads: Gradients) -> None:
        """Change the parameters by their gradients. A parameter without one is left as it is, with its moments.

        Args:
            model: The module or list of parameters that the optimizer was made for.
            grads: From ``fb.value_and_grad`` or ``fb.backward``, taken since the last update.

        Raises:
            ConfigError: ``model`` holds other parameters than the optimizer; nothing was changed.
            GradientError: No parameter has a gradient, or one was rebound since the forward pass; nothing was changed.
            ShapeError, DeviceMismatchError: A gradient does not fit its parameter; nothing was changed.
        """
        self._check_target(model)
        found = self._gradients(grads)
        with no_grad():
            self._advance(found)

    def _check_target(self, model: Target) -> None:
        given = _named(model)
        if len(given) == len(self._parameters) and all(a is b for (_, a), (_, b) in zip(given, self._parameters, strict=True)):
            return
        theirs, ours = {id(p) for _, p in given}, {id(p) for _, p in self._parameters}
        new = [n for n, p in given if id(p) not in ours]
        gone = [n for n, p in self._parameters if id(p) not in theirs]
        if not new and not gone:
            return
        parts = [f"{what}: {', '.join(names)}" for what, names in (("unknown to it", new), ("not there", gone)) if names]
        raise ConfigError(
            f"{type(self).__name__}.update: the model holds the parameters that the optimizer was made for",
            "; ".join(parts),
            "make the optimizer after the model is complete, and pass the same model; a fork has parameters of its own",
        )

    def _gradients(self, grads: Any) -> list[Tensor | None]:
        if not isinstance(grads, Gradients):
            raise OperandError(
                f"{type(self).__name__}.update: grads are fb.Gradients",
                type(grads).__name__,
                "take them from fb.value_and_grad(fn)(model, …), whose first argument is the module",
            )
        found: list[Tensor | None] = []
        for _, p in self._parameters:
            g = None if p.frozen else grads.get(p)
            if g is not None and (g.shape != p.shape or g.device is not p.device):
                kind = ShapeError if g.shape != p.shape else DeviceMismatchError
                raise kind(
                    f"{type(self).__name__}.update: a gradient has its parameter's shape and device",
                    f"{describe('parameter', p)} and {describe('gradient', g)}",
                    "reduce or move it before the update",
                )
            found.append(g)
        if all(g is None for g in found):
            raise GradientError(
                f"{type(self).__name__}.update: some parameter has a gradient",
                f"{len(grads)} gradients, none of them of these {len(found)} parameters",
                "differentiate by the model that is updated, and see that not all of it is frozen",
            )
        return found

    def _advance(self, found: list[Tensor | None]) -> None:
        before = self._step
        after = before + self._constant(1, before)
        shared: dict[tuple[Device, DType, int], Scalars] = {}
        for (name, p), g in zip(self._parameters, found, strict=True):
            missed = self._missed.get(name, 0)
            if g is None:
                self._missed[name] = missed + 1
                continue
            dt = p.dtype if p.dtype.itemsize >= 4 else float32
            scalars = shared.get((p.device, dt, missed))
            if scalars is None:
                t = astype((after if not missed else after - missed).to(p.device), dt)
                lr = self.schedule(astype(before.to(p.device), dt))
                scalars = shared[p.device, dt, missed] = self._scalars(t, lr)
            held = self._held(name, p, dt)
            if dt is p.dtype:
                new, moments = self._new(p.detach(), g, held, scalars)
            else:
                new, moments = self._new(astype(p.detach(), dt), astype(g, dt), held, scalars)
                new = astype(new, p.dtype)
            p._rebind(new)
            for m, value in zip(held, moments, strict=True):
                m._rebind(value)
        before._rebind(after)

    def _held(self, name: str, p: Tensor, dt: DType) -> list[Tensor]:
        """The moments of a parameter, on its device; zeros at first."""
        out = []
        for held in self._moments.values():
            m = held.get(name)
            if m is None:
                m = held[name] = zeros(p.shape, dtype=dt, device=p.device)
            elif m.device is not p.device or m.dtype is not dt:
                m = held[name] = astype(m, dt, copy=False).to(p.device).detach()
            out.append(m)
        return out

    # settings and state

    @property
    def step(self) -> int:
        """Number of updates done."""
        return int(self._step)

    @property
    def learning_rate(self) -> float:
        """The rate of the next update; assigning a number or a schedule changes it from then on."""
        if isinstance(self.schedule, constant_rate):
            return self.schedule.lr  # as it was given, not rounded to the parameters' dtype
        with no_grad():
            return float(self.schedule(astype(self._step, _rate_dtype(self._parameters[0][1]))))

    @learning_rate.setter
    def learning_rate(self, lr: float | Schedule) -> None:
        self.schedule = schedule(lr)

    def state_dict(self) -> dict[str, Any]:
        """All that a run resumed from here needs, as a plain tree: settings, schedule, step and moments by parameter name."""
        return {
            "optimizer": type(self).__name__,
            "settings": {s: getattr(self, s) for s in self.settings},
            "schedule": to_state(self.schedule),
            "step": self._step.detach(),
            "missed": {n: k for n, k in self._missed.items() if k},
            "moments": {m: {n: t.detach() for n, t in held.items()} for m, held in self._moments.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a ``state_dict()`` (its tensors may be NumPy arrays): training goes on bit for bit.

        Raises:
            StateError: It is of another kind of optimizer, or names or shapes differ; nothing was changed.
        """
        own, kind = dict(self._parameters), type(self).__name__
        if state.get("optimizer") != kind:
            raise StateError(
                f"{kind}: a state of the same kind of optimizer", str(state.get("optimizer")), f"make it of a {kind}"
            )
        parts = ("moments", "step", "settings", "schedule", "missed")
        if absent := [p for p in parts if p not in state]:
            raise StateError(
                f"{kind}: a state holds {', '.join(parts)}", f"no {', '.join(absent)}", "take it from state_dict()"
            )
        wrong = []
        for m in self.moments:
            for n, t in state["moments"].get(m, {}).items():
                if n not in own:
                    wrong.append(f"{m} of {n}: there is no such parameter")
                elif tuple(t.shape) != own[n].shape:
                    wrong.append(f"{m} of {n}: {list(t.shape)} for {list(own[n].shape)}")
                elif not as_dtype(t.dtype).is_floating:
                    wrong.append(f"{m} of {n}: {t.dtype}, which is no floating dtype")
        if wrong:
            raise StateError(
                f"{kind}: moments have the names and shapes of the parameters",
                "; ".join(wrong),
                "build the model with the same settings. Nothing was loaded",
            )
        moments = {m: {n: _placed(t, own[n].device) for n, t in state["moments"].get(m, {}).items()} for m in self.moments}
        step = constant(int(np.asarray(_host(state["step"]))), self._step.dtype, self._step.device)
        for s in self.settings:
            value = state["settings"][s]
            setattr(self, s, tuple(value) if isinstance(value, list) else value)
        self.schedule = from_state(state["schedule"], self.schedule)
        self._missed = {n: int(k) for n, k in state["missed"].items()}
        self._moments, self._step = moments, step

    def __repr__(self) -> str:
        shown = ", ".join([f"lr={self.schedule!r}", *(f"{s}={getattr(self, s)!r}" for s in self.settings)])
        return f"{type(self).__name__}({shown}, {len(self._parameters)} parameters)"


def _named(model: Any) -> list[tuple[str, Parameter]]:
    """Parameters with unique names, each once."""
    if isinstance(model, Module):
        return model.named_parameters()
    if not isinstance(model, (list, tuple)):
        raise ConfigError("a module or a list of parameters is updated", type(model).__name__, "pass one of these")
    out: list[tuple[str, Parameter]] = []
    seen: set[int] = set()
    names: set[str] = set()
    for i, p in enumerate(model):
        if not isinstance(p, Parameter):
            raise ConfigError("parameters are updated", f"parameters[{i}]: {type(p).__name__}", "wrap it in nn.Parameter")
        if id(p) not in seen:
            seen.add(id(p))
            name = p.label if p.label and p.label not in names else f"parameters[{i}]"
            names.add(name)
            out.append((name, p))
    return out


def _rate_dtype(p: Tensor) -> DType:
    return p.dtype if p.dtype.itemsize >= 4 else float32


def _host(t: Any) -> Any:
    return t.numpy() if isinstance(t, Tensor) else t


def _placed(t: Any, device: Device) -> Tensor:
    if isinstance(t, Tensor):
        return t.detach().to(device).detach()
    placed: Tensor = hooks.from_host(np.asarray(t), device)
    return placed


def check_range(where: str, name: str, value: Any, low: float, high: float) -> None:
    """Raise ConfigError unless ``value`` is a number in [low, high)."""
    if not (isinstance(value, (int, float)) and low <= value < high):
        raise ConfigError(
            f"{where}: {name} lies in [{low:g}, {high:g})", f"{name} = {value!r}", "see the class's documentation"
        )
