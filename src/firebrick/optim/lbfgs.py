"""L-BFGS: steps along an approximation of Newton's direction, made of the last changes of parameters and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import no_grad
from firebrick.autodiff.transforms import check_constants, value_and_grad
from firebrick.core.commit import Commit
from firebrick.core.dtypes import float32, float64
from firebrick.core.errors import ConfigError, DataDependentError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.journal import all_or_none, note_dict
from firebrick.core.lines import user_line
from firebrick.core.operands import describe
from firebrick.core.settings import python_settings
from firebrick.core.tensor import Tensor
from firebrick.functions.creation import zeros
from firebrick.functions.elementwise import abs as abs_
from firebrick.functions.elementwise import astype
from firebrick.functions.movement import concat, reshape
from firebrick.functions.statistical import max as max_
from firebrick.functions.statistical import sum as sum_
from firebrick.nn import Module, StateError
from firebrick.optim.answers import no_parameters
from firebrick.optim.checks import check_range, check_settings, check_target, parameters_for
from firebrick.optim.line_search import Point, strong_wolfe
from firebrick.optim.optimizer import Target, host, placed
from firebrick.optim.restoring import check_like_constructor, count, rebuilt, wrong_kind

_CURVED = 1e-10  # least sᵀy of a change that is remembered


@dataclass(frozen=True)
class LBFGSSettings:
    """Settings of ``LBFGS``, which documents them."""

    iterations: int = 20
    evaluations: int | None = None
    history: int = 100
    line_search: str | None = None
    tolerance_gradient: float = 1e-7
    tolerance_change: float = 1e-9


class LBFGS:
    """Minimises a loss that gives the same value for the same parameters, as over a whole data set.

    Unlike other optimizers it computes the loss itself, several times a step: ``step(model, loss_fn)``. Its vectors, twice
    ``history`` of them, are as long as all parameters together, which lie on one device.

    Args:
        model: Module or list of parameters.
        lr: Length of a step in units of the direction; the first trial of a line search.
        iterations: Most iterations a step.
        evaluations: Most evaluations of the loss a step; 1.25 an iteration by default.
        history: Changes that are remembered.
        line_search: "strong_wolfe", or None for steps of length ``lr`` (the first at most as long as ‖g‖₁ allows).
        tolerance_gradient: Ends where no element of the gradient is larger, or one is NaN.
        tolerance_change: Ends where loss or parameters change less.

    Source: Liu, Nocedal, "On the limited memory BFGS method for large scale optimization", Mathematical Programming 45, 1989.

    Example:
        >>> import firebrick as fb
        >>> model = fb.nn.Linear(2, 1)
        >>> x, y = fb.asarray([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), fb.asarray([[1.0], [2.0], [3.0]])
        >>> opt = fb.optim.LBFGS(model, line_search="strong_wolfe")
        >>> loss = opt.step(model, lambda m: fb.mse_loss(m(x), y))
        >>> fb.mse_loss(model(x), y).item() < 1e-6
        True
    """

    @python_settings
    def __init__(
        self, model: Target, lr: float = 1.0, *, iterations: int = 20, evaluations: int | None = None, history: int = 100,
        line_search: str | None = None, tolerance_gradient: float = 1e-7, tolerance_change: float = 1e-9,
    ) -> None:  # fmt: skip
        self._parameters = parameters_for(self, model)
        if not self._parameters:
            raise no_parameters(model)
        check_range("LBFGS", "lr", lr, 0.0, float("inf"))
        self.settings = LBFGSSettings(iterations, evaluations, history, line_search, tolerance_gradient, tolerance_change)
        self.check(self.settings)
        self.learning_rate = float(lr)
        self.iterations = self.evaluations = 0
        self._length = 0.0
        self._direction: Tensor | None = None
        self._gradient: Tensor | None = None
        self._scale: Tensor | None = None
        self._changes: list[tuple[Tensor, Tensor]] = []  # s and y, oldest first

    @classmethod
    def check(cls, s: LBFGSSettings) -> None:
        """Raise ConfigError for settings without meaning.

        Args:
            s: Settings of a group.
        """
        for name in ("iterations", "history", "evaluations"):
            value = getattr(s, name)
            optional = name == "evaluations" and value is None
            if not optional and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConfigError(f"LBFGS: {name} is an int ≥ 1", repr(value), "see the class's documentation")
        if s.line_search not in (None, "strong_wolfe"):
            raise ConfigError('LBFGS: line_search is "strong_wolfe" or None', repr(s.line_search), "use one of these")
        check_settings("LBFGS", s, sizes=("tolerance_gradient", "tolerance_change"))

    def update(self, model: Target, grads: Gradients) -> None:
        """Refused: a step needs the loss as a function, not gradients at one point.

        Args:
            model: Not used.
            grads: Not used.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(
            "LBFGS computes the loss itself, several times a step", "update(model, grads)", "call step(model, loss_fn)"
        )

    def step(self, model: Module, loss_fn: Callable[[Any], Tensor]) -> Tensor:
        """Take up to ``iterations`` iterations.

        Args:
            model: The module that the optimizer was made for.
            loss_fn: Called as ``loss_fn(model)``; returns a 0-d loss that depends on the parameters alone.

        Returns:
            The loss before the step, untracked. If it raises, parameters and optimizer are as they were before.

        Raises:
            ConfigError: ``model`` holds other parameters than the optimizer, or they lie on several devices.
            DataDependentError: It is called under ``jit``; put the loss function under ``jit`` instead.
        """
        if hooks.trace() is not None:
            raise DataDependentError(
                "LBFGS reads the loss and its slope while it searches, so a step of it is no graph",
                f"LBFGS.step under jit, at {user_line()}",
                "call it outside of jit, with a loss under jit: opt.step(model, fb.jit(loss_fn))",
            )
        check_target("LBFGS.step", model, self._parameters)
        places = {p.device: describe(n, p) for n, p in self._parameters}
        if len(places) > 1:
            raise ConfigError(
                "LBFGS: all parameters are on one device", "; ".join(places.values()), "move the model: model.to(…)"
            )
        return all_or_none(partial(self._step, model, value_and_grad(loss_fn)))

    def _step(self, model: Module, differentiated: Callable[[Any], tuple[Tensor, Gradients]]) -> Tensor:
        note_dict(self.__dict__)

        def evaluate() -> tuple[Tensor, Tensor]:
            loss, grads = differentiated(model)
            check_constants("LBFGS.step", grads)
            self.evaluations += 1
            return loss, self._flat([None if p.frozen else grads.get(p) for _, p in self._parameters])

        before, g = evaluate()
        s, loss, spent = self.settings, float(before), 1
        most = s.evaluations or s.iterations * 5 // 4
        with no_grad():
            if not float(max_(abs_(g))) > s.tolerance_gradient:  # NaN leads nowhere
                return before
            for i in range(1, s.iterations + 1):
                self.iterations += 1
                first = self._direction is None
                d = self._next_direction(g)
                previous = loss
                length = min(1.0, 1.0 / float(sum_(abs_(g)))) * self.learning_rate if first else self.learning_rate
                self._direction, self._gradient, self._length = d, g, length
                slope = _dot(g, d)
                if slope > -s.tolerance_change:
                    break
                x = self._flat([p.detach() for _, p in self._parameters])
                if s.line_search:
                    point, used = strong_wolfe(
                        self._along(x, d, evaluate), Point(0.0, loss, slope, g), length, most - spent, s.tolerance_change,
                        float(max_(abs_(d))),
                    )  # fmt: skip
                    self._length, loss, g, spent = point.step, point.loss, point.found, spent + used
                    self._place(x + d * point.step)
                else:
                    self._place(x + d * length)
                    if i == s.iterations:
                        break
                    value, g = evaluate()
                    loss, spent = float(value), spent + 1
                if (
                    spent >= most
                    or not float(max_(abs_(g))) > s.tolerance_gradient
                    or float(max_(abs_(d))) * self._length <= s.tolerance_change
                    or abs(loss - previous) < s.tolerance_change
                ):
                    break
        return before

    def _along(self, x: Tensor, d: Tensor, evaluate: Callable[[], tuple[Tensor, Tensor]]) -> Callable[[float], Point]:
        def at(step: float) -> Point:
            self._place(x + d * step)
            value, g = evaluate()
            return Point(step, float(value), _dot(g, d), g)

        return at

    def _next_direction(self, g: Tensor) -> Tensor:
        """-H g by the two-loop recursion, after taking the last change into the history."""
        if self._direction is None or self._gradient is None:
            return -g
        y, s = g - self._gradient, self._direction * self._length
        curvature = sum_(y * s)
        if float(curvature) > _CURVED:
            self._changes = [*self._changes, (s, y)][-self.settings.history :]
            self._scale = curvature / sum_(y * y)
        q = -g
        weights = []
        inverse = [1.0 / sum_(y * s) for s, y in self._changes]
        for (s, y), rho in zip(reversed(self._changes), reversed(inverse), strict=True):
            weights.append(sum_(s * q) * rho)
            q = q - y * weights[-1]
        r = q if self._scale is None else q * self._scale
        for (s, y), rho, weight in zip(self._changes, inverse, reversed(weights), strict=True):
            r = r + s * (weight - sum_(y * r) * rho)
        return r

    # parameters as one vector, of float32 or float64

    def _flat(self, parts: list[Tensor | None]) -> Tensor:
        wide = float64 if any(p.dtype is float64 for _, p in self._parameters) else float32
        flat = []
        for (_, p), part in zip(self._parameters, parts, strict=True):
            if part is None:
                flat.append(zeros((p.size,), dtype=wide, device=p.device))
            else:
                flat.append(reshape(astype(part.detach(), wide, copy=False), (-1,)))
        return concat(flat)

    def _place(self, x: Tensor) -> None:
        begin, commit = 0, Commit()
        for _, p in self._parameters:
            if not p.frozen:
                commit.rebind(p, astype(reshape(x[begin : begin + p.size], p.shape), p.dtype))
            begin += p.size
        commit.apply()

    # state

    def state_dict(self) -> dict[str, Any]:
        """All that the next step needs, as a plain tree."""
        return {
            "optimizer": "LBFGS",
            "settings": asdict(self.settings),
            "lr": self.learning_rate,
            "iterations": self.iterations,
            "evaluations": self.evaluations,
            "length": self._length,
            "direction": None if self._direction is None else self._direction.detach(),
            "gradient": None if self._gradient is None else self._gradient.detach(),
            "scale": None if self._scale is None else self._scale.detach(),
            "history": [{"s": s.detach(), "y": y.detach()} for s, y in self._changes],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a ``state_dict()`` (its tensors may be NumPy arrays).

        Args:
            state: What ``state_dict()`` returned.

        Raises:
            StateError: It is of another kind of optimizer or of another number of parameters; nothing was changed.
        """
        if state.get("optimizer") != "LBFGS":
            raise wrong_kind("LBFGS", state)
        size, home = sum(p.size for _, p in self._parameters), self._parameters[0][1].device
        vectors = [v for v in (state["direction"], state["gradient"]) if v is not None]
        vectors += [v for row in state["history"] for v in row.values()]
        if wrong := [v for v in vectors if tuple(v.shape) != (size,)]:
            raise StateError(
                f"LBFGS: vectors of {size} elements, one for each of the parameters",
                f"one of {list(wrong[0].shape)}",
                "build the model with the same settings. Nothing was loaded",
            )

        kept = rebuilt(
            "LBFGS", "settings", lambda: LBFGSSettings(**{f.name: state["settings"][f.name] for f in fields(LBFGSSettings)})
        )
        check_like_constructor("LBFGS", self.check, kept)
        iterations, evaluations = (count("LBFGS", name, state[name]) for name in ("iterations", "evaluations"))

        def tensor(v: Any) -> Tensor | None:
            return None if v is None else placed(v, home)

        check_like_constructor("LBFGS", lambda lr: check_range("LBFGS", "lr", lr, 0.0, float("inf")), state["lr"])
        length = float(np.asarray(host(state["length"])))
        direction, gradient, scale = tensor(state["direction"]), tensor(state["gradient"]), tensor(state["scale"])
        changes = [(placed(row["s"], home), placed(row["y"], home)) for row in state["history"]]
        self.settings, self.learning_rate, self._length = kept, float(state["lr"]), length
        self.iterations, self.evaluations = iterations, evaluations
        self._direction, self._gradient, self._scale, self._changes = direction, gradient, scale, changes

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in asdict(self.settings).items())
        return f"LBFGS(lr={self.learning_rate}, {shown}, {len(self._parameters)} parameters)"


def _dot(a: Tensor, b: Tensor) -> float:
    return float(sum_(a * b))
