"""``Optimizer``: what every optimizer shares: its parameters in groups, the step counter, the moments, and their state.

``update(model, grads)`` computes all new values with untracked tensor operations, then rebinds the handles of parameters,
moments and counters together: an interrupt leaves a whole update or none. Step counter and learning rate are 0-d tensors;
what depends on them alone is computed once for all parameters of a group, device and dtype, so a parameter costs only the few
operations that touch its elements. Parameters narrower than float32 are updated in float32, in which their moments are kept,
and rounded once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import no_grad, unrecorded
from firebrick.autodiff.transforms import check_constants
from firebrick.core.commit import Commit
from firebrick.core.constants import constant
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, float32
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, DeviceMismatchError, GradientError, OperandError, ShapeError
from firebrick.core.hooks import changed, hooks
from firebrick.core.operands import describe
from firebrick.core.other_names import OF_OPTIMIZERS, UnknownNameError
from firebrick.core.settings import python_settings
from firebrick.core.tensor import Tensor
from firebrick.functions.creation import filler
from firebrick.functions.elementwise import astype, expm1, log, where
from firebrick.graph.repeated import Repeats
from firebrick.graph.replays import updated
from firebrick.graph.trace import new_state
from firebrick.nn import Module, Parameter, StateError
from firebrick.optim.answers import no_parameters, updates
from firebrick.optim.checks import check_beside, check_target, parameters_for
from firebrick.optim.groups import Group, Rows, check_flags, group_from_state, group_state, make_groups, plain_settings
from firebrick.optim.rates import constant as constant_rate
from firebrick.optim.repeated_update import TOGETHER, RepeatedUpdate, Row, operands_of
from firebrick.optim.restoring import (
    MALFORMED,
    Expected,
    check_like_constructor,
    check_missed,
    check_moments,
    count,
    rebuilt,
    wrong_kind,
)
from firebrick.optim.schedule import Schedule, from_state, plateaus, reduce_on_plateau, schedule, to_state

Target = Module | Sequence[Parameter]
Scalars = tuple[Tensor, ...]
Updated = tuple[Tensor, list[Tensor]]


class Optimizer(ABC):
    """Base of optimizers. A subclass writes ``new_values``, and what it needs of the following:

    - ``moments``, names of tensors that each parameter has, such as averages of its gradients; ``scalar_moments``, those of
      them that are one number a parameter; ``kept``, which of them a parameter has; ``start``, what they start from;
    - ``scalars``, what depends on the number of the update and the learning rate alone, computed once for all parameters;
    - ``check``, which raises ``ConfigError`` for settings without meaning.

    Its settings are a frozen dataclass, given to ``super().__init__``. State, groups, schedules, frozen parameters, half
    precision and ``fb.jit`` are the base's work: the methods compute with tensors and keep nothing.

    Args:
        model: The module, or the list of parameters, to update. Frozen parameters may be among them.
        lr: Learning rate: a number, or a schedule of the number of updates done.
        settings: Its further settings, a dataclass.
        groups: Dicts of parameters with settings of their own. ``params`` is a name pattern ("*.bias") or a list of them, a
            module, a list of parameters, or a function of name and parameter; ``lr`` is a rate of their own, ``lr_scale`` a
            factor on the optimizer's, and the other keys are settings. A parameter belongs to the first that takes it; a tied
            one has several names, each of which takes it.

    Attributes:
        groups: The groups; the first holds the parameters that no dict takes.

    Raises:
        ConfigError: There is no parameter, or a setting has no meaning.

    Example:
        >>> from dataclasses import dataclass
        >>> import firebrick as fb
        >>> @dataclass(frozen=True)
        ... class Settings:
        ...     momentum: float = 0.9
        >>> class HeavyBall(fb.optim.Optimizer):
        ...     moments = ("velocity",)
        ...
        ...     def __init__(self, model, lr=0.1, momentum=0.9, groups=()):
        ...         super().__init__(model, lr, Settings(momentum), groups)
        ...
        ...     def new_values(self, p, g, moments, scalars, settings):
        ...         velocity = moments[0] * settings.momentum + g
        ...         return p - velocity * scalars[0], [velocity]
        >>> class Point(fb.nn.Module):
        ...     def __init__(self):
        ...         self.x = fb.nn.Parameter(fb.asarray([1.0, 2.0]))
        >>> point = Point()
        >>> optimizer = HeavyBall(point)
        >>> for _ in range(2):
        ...     loss, gradients = fb.value_and_grad(lambda p: fb.sum(p.x**2))(point)
        ...     optimizer.update(point, gradients)
        >>> [round(x, 4) for x in point.x.tolist()]  # 1 - 0.2 - (0.18 + 0.16), and twice that
        [0.46, 0.92]
    """

    versioned = True  # every attribute that is set raises hooks.settings
    moments: ClassVar[tuple[str, ...]] = ()
    scalar_moments: ClassVar[tuple[str, ...]] = ()  # those of the moments that are one number a parameter

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if "__init__" in cls.__dict__ and cls.__module__.startswith("firebrick."):
            cls.__init__ = python_settings(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, model: Target, lr: float | Schedule, settings: Any, groups: Rows = ()) -> None:
        self._parameters = parameters_for(self, model)
        if not self._parameters:
            raise no_parameters(model)
        if not is_dataclass(settings) or isinstance(settings, type):
            raise ConfigError(
                f"{type(self).__name__}: the settings of an optimizer are a frozen dataclass",
                f"settings={settings!r:.80}",
                "write @dataclass(frozen=True) above class Settings, which may be empty, and pass Settings(…)",
            )
        self.schedule = schedule(lr)
        aliases = model.aliases() if isinstance(model, Module) and groups else {}
        self.groups = make_groups(type(self).__name__, self._parameters, aliases, settings, groups, self.check)
        self._moments: dict[str, dict[str, Tensor]] = {m: {} for m in self.moments}
        self._missed: dict[str, Tensor] = {}
        home = self._parameters[0][1].device
        self._step = constant(0, as_dtype(home.backend.default_int(home)), home)

    if not TYPE_CHECKING:  # for which an unknown attribute is an error by itself

        def __getattr__(self, name: str) -> Any:
            """Raise the error for an attribute that an optimizer has not; it names what to write."""
            raise UnknownNameError(
                f"{type(self).__name__!r} object", name, OF_OPTIMIZERS, lambda: dir(type(self)), "optimizer.{}"
            )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; ``learning_rate`` and ``groups`` have the settings.

        Raises:
            AttributeError: It is a setting under a name that nothing reads; the text says what to assign.
        """
        made_by = type(self).__init__.__module__  # a class with an __init__ of its own may have any attributes
        if made_by.startswith("firebrick.") and not hasattr(type(self), name):
            own = (f.name for f in fields(self.settings)) if "groups" in vars(self) else ()
            settings = {n: f"optimizer.groups[0].settings = dataclasses.replace(optimizer.settings, {n}=…)" for n in own}
            if name in (names := {**OF_OPTIMIZERS, **settings}):
                raise UnknownNameError(f"{type(self).__name__!r} object", name, names, (), "")
        object.__setattr__(self, name, value)
        changed(self, name)

    # what subclasses write

    @abstractmethod
    def new_values(self, p: Tensor, g: Tensor, moments: list[Tensor], scalars: Scalars, settings: Any) -> Updated:
        """The values of a parameter and of its moments after an update.

        Args:
            p: The parameter's value; of one narrower than float32, in float32.
            g: Its gradient, of the same shape, dtype and device.
            moments: Those that ``kept`` names, in that order.
            scalars: What ``scalars`` returned.
            settings: Of the parameter's group.
        """

    def scalars(self, t: Tensor, lr: Tensor, step: Tensor, settings: Any) -> Scalars:
        """0-d tensors that all parameters of a group, device and dtype share; by default the learning rate alone.

        Args:
            t: Number of this update, from 1; for a parameter that had no gradient in some of them, of those where it had one.
            lr: The learning rate.
            step: Number of updates done, which schedules among the settings are functions of.
            settings: Of the group.
        """
        return (lr,)

    @classmethod
    def check(cls, settings: Any) -> None:
        """Raise ConfigError for settings without meaning.

        Args:
            settings: Settings of a group, a dataclass.
        """

    def kept(self, p: Tensor, settings: Any) -> tuple[str, ...]:
        """The moments that a parameter has with these settings.

        Args:
            p: The parameter.
            settings: Of its group.
        """
        return self.moments

    def start(self, moment: str, settings: Any) -> float:
        """What all elements of a moment start from.

        Args:
            moment: Its name, one of ``moments``.
            settings: Of the parameter's group.
        """
        return 0.0

    # what they use

    def value(self, setting: float | Schedule, step: Tensor) -> Tensor:
        """A setting that may be a schedule, as a 0-d tensor.

        Args:
            setting: Number, or schedule.
            step: Number of updates done, a 0-d tensor.
        """
        return setting(step) if callable(setting) else self._constant(float(setting), step)

    def complement(self, setting: float | Schedule, step: Tensor) -> Tensor:
        """1 minus such a setting.

        Args:
            setting: Number, or schedule.
            step: Number of updates done, a 0-d tensor.
        """
        return 1.0 - setting(step) if callable(setting) else self._constant(1.0 - setting, step)

    def complement_of_power(self, setting: float | Schedule, t: Tensor, step: Tensor) -> Tensor:
        """1 - settingᵗ, without cancellation.

        Args:
            setting: Number, or schedule.
            t: Exponent, a 0-d tensor.
            step: Number of updates done, a 0-d tensor.
        """
        if callable(setting):
            return -expm1(t * log(setting(step)))
        return -expm1(t * self._constant(math.log(setting), t)) if setting else self._constant(1.0, t)

    def decayed(self, p: Tensor, g: Tensor, weight_decay: float) -> Tensor:
        """g with the gradient of weight_decay · ‖p‖² / 2.

        Args:
            p: Value of the parameter.
            g: Its gradient.
            weight_decay: Factor of the parameter.
        """
        return g + p * self._constant(weight_decay, p) if weight_decay else g

    def _constant(self, value: float, like: Tensor) -> Tensor:
        """A 0-d constant beside ``like``."""
        return constant(value, like.dtype, like.device)

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """The parameters that it updates, frozen ones among them, with their names."""
        return list(self._parameters)

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
        check_target(f"{type(self).__name__}.update", model, self._parameters)
        if hooks.tracing:
            check_beside(f"{type(self).__name__}.update", [*self._state(), ("the step counter", self._step)], self._parameters)
        found = self._gradients(grads)
        unrecorded(self._computed, found, grads.valid).apply()

    def _computed(self, found: list[Tensor | None], valid: Tensor | None) -> Commit:
        with ExitStack() as long_lived:
            for device in {p.device for _, p in self._parameters}:
                long_lived.enter_context(device.backend.memory_persistent_allocations(device))
            return self._advance(found, valid)

    def _gradients(self, grads: Any) -> list[Tensor | None]:
        if not isinstance(grads, Gradients):
            raise OperandError(
                f"{type(self).__name__}.update: grads are fb.Gradients",
                type(grads).__name__,
                "take them from fb.value_and_grad(fn)(model, …), whose first argument is the module",
            )
        check_constants(f"{type(self).__name__}.update", grads)
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

    def _advance(self, found: list[Tensor | None], valid: Tensor | None) -> Commit:
        """What an update changes, which is all computed but not changed yet."""
        commit = Commit()
        before = self._step
        after = before + self._constant(1, before)
        again = _AGAIN.get(self)
        if again is not None and valid is None and again.run(self, commit, found, (before, after)):
            commit.rebind(before, after)
            return commit
        group_of = {n: i for i, group in enumerate(self.groups) for n in group.names}
        one = self._constant(1, before)
        shared: dict[tuple[int, Device, DType, str | None], Scalars] = {}
        rows, begun = list[Row](), _Begun()
        for (name, p), g in zip(self._parameters, found, strict=True):
            missed = self._missed.get(name)
            if g is None:
                if missed is None:
                    missed = new_state(lambda: constant(0, before.dtype, before.device), before)
                    begun.keep(commit, "_missed", self._missed, name, missed)
                commit.rebind(missed, chosen(valid, missed + one, missed))
                continue
            dt = p.dtype if p.dtype.itemsize >= 4 else float32
            key = (group_of[name], p.device, dt, None if missed is None else name)
            group = self.groups[key[0]]
            scalars = shared.get(key)
            if scalars is None:
                counters = (before, after) if missed is None else (before, after, missed)
                scalars = shared[key] = self._scalars(group, dt, p.device, counters)
            handles = self._held(name, p, dt, group.settings, commit, begun)
            rows.append(Row(key[0], dt, p, g, handles, scalars))
        for handle, value in zip([h for r in rows for h in (r.p, *r.handles)], self._values(rows, valid), strict=True):
            commit.rebind(handle, value)
        commit.rebind(before, chosen(valid, after, before))
        for attribute in begun.attributes:
            changed(self, attribute)
        if not (valid is not None or begun.attributes or self._missed or hooks.tracing) and len(rows) == len(found):
            _AGAIN[self] = RepeatedUpdate(self, rows, list(shared))
        return commit

    def _scalars(self, group: Group, dt: DType, device: Device, counters: Sequence[Tensor]) -> Scalars:
        """What all parameters of a group, device and dtype share; of constant rates and settings, by a program.

        Args:
            group: The group.
            dt: The dtype that the parameters are updated in.
            device: Their device.
            counters: Number of updates before this one and after it; if the parameter had no gradient in some, their number.
        """
        rate = group.schedule or self.schedule
        fixed = type(rate) is constant_rate

        def compute(before: Tensor, after: Tensor, *more: Tensor) -> Scalars:
            t = astype((after - more[0] if len(counters) > 2 else after).to(device), dt)
            step = astype(before.to(device), dt)
            lr = more[-1] if fixed else rate(step)
            if group.lr_scale != 1.0:
                lr = lr * self._constant(group.lr_scale, lr)
            return self.scalars(t, lr, step, group.settings)

        if not fixed:
            return compute(*counters)
        settings = plain_settings(group.settings) if self._ours else None
        key = None if settings is None else (type(self), settings, dt, device, group.lr_scale, len(counters))
        return tuple(updated(key, compute, (*counters, rate(constant(0, dt, device)))))

    @property
    def _ours(self) -> bool:
        """Whether its class is Firebrick's; a user's may compute other things of equal parameters."""
        return type(self).__module__.startswith("firebrick.")

    def _values(self, rows: Sequence[Row], valid: Tensor | None) -> Sequence[Tensor]:
        """The new values of all parameters and their moments, in the order of the rows."""
        operands, kinds, own, end = operands_of(rows)
        if valid is not None:
            operands.append(valid)
        key = self._key(kinds, valid is None) if len(rows) <= TOGETHER else None
        compute = partial(self._all, kinds, own, end, Repeats() if self._ours else None)
        return updated(key, compute, operands)

    def _key(self, kinds: Any, always: bool) -> Any:
        """What the update of parameters of these kinds depends on besides its operands; None if that cannot be known."""
        settings = tuple([plain_settings(group.settings) for group in self.groups])
        return None if not self._ours or None in settings else (type(self), settings, kinds, always)

    def _all(
        self, kinds: Sequence[tuple[int, DType, int, int, int]], own: int, end: int, repeats: Repeats | None, *operands: Tensor
    ) -> list[Tensor]:  # fmt: skip
        """``_values`` of tensors one after another: parameters with gradients and moments, scalars from ``own`` on, and from
        ``end`` on whether the update is valid."""
        found, first, valid = list[Tensor](), 0, operands[end:]
        for group, dt, moments, start, length in kinds:
            settings, after = self.groups[group].settings, first + 2 + moments
            given = [*operands[first:after], *operands[own + start : own + start + length], *valid]
            first = after
            compute = partial(self._computed_of, dt, settings, moments, moments + length)
            found += compute(*given) if repeats is None else repeats((group, dt, moments), compute, given)
        return found

    def _updated(
        self, dt: DType, settings: Any, p: Tensor, g: Tensor, handles: Sequence[Tensor], scalars: Scalars, valid: Tensor | None
    ) -> list[Tensor]:  # fmt: skip
        """The new values of a parameter and of its moments, computed in a dtype."""
        held = [m if m.dtype is dt and m.device is p.device else astype(m, dt, copy=False).to(p.device) for m in handles]
        if dt is p.dtype:
            new, moments = self._fitting(self.new_values(p, g, held, scalars, settings), p, held)
        else:
            wide = astype(p, dt)
            new, moments = self._fitting(self.new_values(wide, astype(g, dt), held, scalars, settings), wide, held)
            new = astype(new, p.dtype)
        made = chosen(valid, new, p)
        return [made, *(chosen(valid, value, m) for value, m in zip(moments, held, strict=True))]

    def _fitting(self, given: Any, p: Tensor, held: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor]]:
        """What ``new_values`` returned; ConfigError if it is no new value of the parameter and of each moment."""
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], (list, tuple)):
            found = [given[0], *given[1]]
            pairs = zip(found, (p, *held), strict=False)
            same = all(isinstance(a, Tensor) and (a.shape, a.dtype) == (b.shape, b.dtype) for a, b in pairs)
            if same and len(found) == 1 + len(held):
                return given[0], given[1]
        raise ConfigError(
            f"{type(self).__name__}.new_values returns a pair: the new value of the parameter, {p.aval}, and a list of its new "
            f"moments, {len(held)} of the same kind",
            _shown(given),
            "return p, [moment, …]; cast or reshape what differs",
        )

    def _computed_of(
        self, dt: DType, settings: Any, moments: int, scalars: int, p: Tensor, g: Tensor, *more: Tensor
    ) -> list[Tensor]:  # fmt: skip
        """``_updated`` of tensors one after another: moments, scalars from ``moments`` on, and from ``scalars`` on whether the
        update is valid."""
        valid = more[scalars] if len(more) > scalars else None
        return self._updated(dt, settings, p, g, more[:moments], more[moments:scalars], valid)

    def _held(self, name: str, p: Tensor, dt: DType, settings: Any, commit: Commit, begun: _Begun) -> list[Tensor]:
        """The handles of a parameter's moments."""
        out = []
        for moment in self.kept(p, settings):
            held = self._moments[moment]
            m = held.get(name)
            if m is None:
                shape, start = () if moment in self.scalar_moments else p.shape, self.start(moment, settings)
                make = begun.make.get((shape, start, dt, p.device))
                if make is None:
                    make = begun.make[shape, start, dt, p.device] = filler(shape, start, dtype=dt, device=p.device)
                m = new_state(make, self._step)
                begun.keep(commit, "_moments", held, name, m)
            elif m.shape != p.shape and moment not in self.scalar_moments:
                raise ShapeError(
                    f"{type(self).__name__}.update: the moments of a parameter have its shape",
                    f"{describe(name, p.detach())} and {describe(moment, m)}",
                    "make a new optimizer: the moments of before are not those of this parameter",
                )
            out.append(m)
        return out

    # settings and state

    def _state(self) -> list[tuple[str, Tensor]]:
        return [(n, t) for held in (*self._moments.values(), self._missed) for n, t in held.items()]

    @property
    def step(self) -> int:
        """Number of updates done."""
        return updates(self._step)

    @property
    def counter(self) -> Tensor:
        """Number of updates done, as a 0-d tensor, which nobody waits for."""
        return self._step.detach()

    @property
    def learning_rate(self) -> float:
        """The rate of the next update; assigning a number or a schedule changes it from then on."""
        if isinstance(self.schedule, constant_rate):
            return self.schedule.lr  # as it was given, not rounded to the parameters' dtype
        with no_grad():
            return float(self.schedule(astype(self._step, _rate_dtype(self._parameters[0][1]))))

    @learning_rate.setter
    def learning_rate(self, lr: float | Schedule) -> None:
        rate = schedule(lr)
        with no_grad():  # a schedule that keeps tensors makes them now, so that a step that was traced before is found again
            for dtype, device in {(_rate_dtype(p), p.device) for _, p in self._parameters}:
                rate(astype(self._step.to(device), dtype))
        self.schedule = rate

    @property
    def settings(self) -> Any:
        """The settings of the parameters that are in no group of their own."""
        return self.groups[0].settings

    def plateaus(self) -> list[reduce_on_plateau]:
        """The schedules that wait for a metric, of all groups, each once."""
        found = [p for rate in (self.schedule, *(g.schedule for g in self.groups)) if rate for p in plateaus(rate)]
        return list({id(p): p for p in found}.values())

    def state_dict(self) -> dict[str, Any]:
        """All that a run resumed from here needs, as a plain tree: groups with their settings, schedule, step, and moments by
        parameter name."""
        return {
            "optimizer": type(self).__name__,
            "groups": [group_state(g) for g in self.groups],
            "schedule": to_state(self.schedule),
            "step": self._step.detach(),
            "missed": {n: k for n, t in self._missed.items() if (k := int(t))},
            "moments": {m: {n: t.detach() for n, t in held.items()} for m, held in self._moments.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a ``state_dict()`` (its tensors may be NumPy arrays): training goes on bit for bit.

        Args:
            state: What ``state_dict()`` returned.

        Raises:
            StateError: It is of another kind of optimizer or of another version's; groups, names, shapes or dtypes differ; a
                moment of an updated parameter is missing; or a setting is none that the constructor takes. Nothing was changed.
            ConfigError: A schedule of it is a function of the caller's own, and there is none in its place; likewise.
        """
        own, kind = dict(self._parameters), type(self).__name__
        if state.get("optimizer") != kind:
            raise wrong_kind(kind, state)
        parts = ("moments", "step", "groups", "schedule", "missed")
        if absent := [p for p in parts if p not in state]:
            raise StateError(
                f"{kind}: a state holds {', '.join(parts)}",
                f"no {', '.join(absent)}, as in a checkpoint of a version before optimizers had groups",
                "load the model alone, load_checkpoint(path).load_into(model), with a new optimizer. Nothing was loaded",
            )
        try:
            theirs = [{str(n) for n in g["names"]} for g in state["groups"]]
        except MALFORMED as e:
            raise StateError(
                f"{kind}: groups of a state are a list with the names of their parameters", f"{type(e).__name__}: {e}",
                "take the state from state_dict(). Nothing was loaded",
            ) from e  # fmt: skip
        ours = [set(g.names) for g in self.groups]
        if theirs != ours:
            moved = sorted({n for a, b in zip(theirs, ours, strict=False) for n in a ^ b})
            raise StateError(
                f"{kind}: a state of the same parameters in the same groups",
                f"{len(theirs)} groups for {len(ours)}" + (f"; elsewhere: {', '.join(moved[:8])}" if moved else ""),
                "build the model and the optimizer with the same settings. Nothing was loaded",
            )
        step = count(kind, "step", state["step"])
        missed = check_missed(kind, state["missed"], set(own), step)
        groups = [
            rebuilt(kind, "groups", partial(self._group, g, current))
            for g, current in zip(state["groups"], self.groups, strict=True)
        ]
        rate = rebuilt(kind, "a learning rate", lambda: schedule(from_state(state["schedule"], self.schedule)))
        expected = {
            n: Expected(
                self.kept(own[n], g.settings) if step > missed.get(n, 0) else (),
                {m: () if m in self.scalar_moments else own[n].shape for m in self.moments},
                _rate_dtype(own[n]),
            )
            for g in groups
            for n in g.names
        }
        check_moments(kind, state["moments"], expected)
        moments = {m: {n: placed(t, own[n].device) for n, t in state["moments"].get(m, {}).items()} for m in self.moments}
        home = self._parameters[0][1].device
        self.groups, self.schedule = groups, rate
        self._missed = {n: constant(k, self._step.dtype, home) for n, k in missed.items()}
        self._moments, self._step = moments, constant(step, self._step.dtype, home)

    def _group(self, state: Mapping[str, Any], current: Group) -> Group:
        """A group of a state, whose settings are checked like those of the constructor."""
        found = group_from_state(state, current)
        kind = type(self).__name__
        check_like_constructor(kind, lambda s: check_flags(kind, s), found.settings)
        check_like_constructor(kind, self.check, found.settings)
        return found

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={getattr(self.settings, f.name)!r}" for f in fields(self.settings))
        groups = f" in {len(self.groups)} groups" if len(self.groups) > 1 else ""
        return f"{type(self).__name__}(lr={self.schedule!r}, {shown}, {len(self._parameters)} parameters{groups})"


_AGAIN: WeakKeyDictionary[Optimizer, RepeatedUpdate] = WeakKeyDictionary()


class _Begun:
    """The state that begins with one update.

    Attributes:
        make: Functions that make it, by shape, value, dtype and device: few for many parameters.
        attributes: The optimizer's attributes that hold it.
    """

    def __init__(self) -> None:
        self.make: dict[tuple[tuple[int, ...], float, DType, Device], Callable[[], Tensor]] = {}
        self.attributes: set[str] = set()

    def keep(self, commit: Commit, attribute: str, held: dict[str, Tensor], name: str, new: Tensor) -> None:
        """Keep a new tensor from the commit on."""
        commit.call(dict.__setitem__, held, name, new)
        self.attributes.add(attribute)


def chosen(valid: Tensor | None, new: Tensor, old: Tensor) -> Tensor:
    """What an update makes of a tensor: the new value, but the old one where the update is not ``valid``."""
    return new if valid is None else where(valid.to(old.device), new, old)


def _rate_dtype(p: Tensor) -> DType:
    return p.dtype if p.dtype.itemsize >= 4 else float32


def host(t: Any) -> Any:
    """A tensor as a NumPy array; anything else as it is."""
    return t.numpy() if isinstance(t, Tensor) else t


def placed(t: Any, device: Device) -> Tensor:
    """A tensor or array as a tensor on a device."""
    if isinstance(t, Tensor):
        return t.detach().to(device).detach()
    placed: Tensor = hooks.from_host(np.asarray(t), device)
    return placed


def _shown(given: Any) -> str:
    """Tensors by shape and dtype, in lists and tuples."""
    if isinstance(given, (list, tuple)):
        inner = ", ".join(map(_shown, given))
        return f"[{inner}]" if isinstance(given, list) else f"({inner})"
    return str(given.aval) if isinstance(given, Tensor) else f"{type(given).__name__} {given!r:.40}"
