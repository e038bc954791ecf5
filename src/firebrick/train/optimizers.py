"""``Optimizers``: several optimizers of one model as one, for a ``Learner`` with a step of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firebrick.core.tensor import Tensor
from firebrick.nn import Module, Parameter, StateError
from firebrick.optim import Optimizer
from firebrick.train.errors import TrainingError


class Optimizers:
    """Optimizers by name, each of parameters of its own.

    Args:
        model: The model that all of the parameters belong to.
        given: The optimizers.

    Raises:
        TrainingError: One is no optimizer, has a parameter of another model, or one that another has too.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train.optimizers import Optimizers
        >>> model = fb.nn.Sequential(fb.nn.Linear(2, 3), fb.nn.Linear(3, 1))
        >>> both = Optimizers(model, {"first": fb.optim.SGD(model[0], lr=0.1), "last": fb.optim.SGD(model[1], lr=0.2)})
        >>> both["last"].learning_rate, both.step
        (0.2, 0)
    """

    def __init__(self, model: Module, given: Mapping[str, Any]) -> None:
        names = {id(p): n for n, p in model.named_parameters()}
        parts: dict[Any, Any] = dict(given)
        self._parts: dict[str, Optimizer] = parts
        self._parameters: dict[str, list[tuple[str, Parameter]]] = {}
        owner: dict[int, str] = {}
        if not given:
            raise TrainingError("a Learner trains with at least one optimizer", "an empty dict", "pass e.g. optim.Adam(model)")
        for name, rule in parts.items():
            if not isinstance(name, str) or not isinstance(rule, Optimizer):
                shown = f"{name!r}: {type(rule).__name__}"
                raise TrainingError("optimizers by name", shown, 'pass e.g. {"generator": optim.Adam(model.generator)}')
            own = self._parameters[name] = []
            for shown, p in rule.named_parameters():
                if id(p) not in names or id(p) in owner:
                    raise TrainingError(
                        "each parameter of the model belongs to one optimizer at most, and none of another model to any",
                        f"{names.get(id(p), shown)} of {name}" + (f" and {owner[id(p)]}" if id(p) in owner else ""),
                        "make each optimizer for a part of the learner's model",
                    )
                owner[id(p)] = name
                own.append((names[id(p)], p))

    def __getitem__(self, name: str) -> Optimizer:
        return self._parts[name]

    def named(self, name: str | None) -> tuple[str, Optimizer]:
        """The optimizer of a name, or the only one.

        Raises:
            TrainingError: There is none of the name, or there are several and none was named.
        """
        if name is None and len(self._parts) == 1:
            name = next(iter(self._parts))
        if name not in self._parts:
            raise TrainingError(
                f"minimize names one of the optimizers {', '.join(self._parts)}", repr(name), "pass optimizer=…"
            )
        assert name is not None
        return name, self._parts[name]

    def parameters(self, name: str) -> list[tuple[str, Parameter]]:
        """The parameters of an optimizer, by the model's names."""
        return self._parameters[name]

    def update(self, model: Any, grads: Any) -> None:
        """Refused: each optimizer is updated by itself."""
        raise TrainingError("several optimizers are updated one by one", "all at once", "pass step= to Learner")

    @property
    def step(self) -> int:
        """Number of updates of all of them."""
        return sum(rule.step for rule in self._parts.values())

    def counters(self) -> list[Tensor]:
        """Numbers of updates of each, not read: 0-d tensors."""
        return [rule.counter for rule in self._parts.values()]

    @property
    def learning_rate(self) -> float:
        """The learning rate of the first one."""
        return next(iter(self._parts.values())).learning_rate

    @learning_rate.setter
    def learning_rate(self, lr: Any) -> None:
        raise TrainingError(
            "each of several optimizers has a learning rate", repr(lr),
            f'assign learner.optimizer["{next(iter(self._parts))}"].learning_rate',
        )  # fmt: skip

    def plateaus(self) -> list[Any]:
        """The schedules that wait for a metric, of all of them."""
        return [p for rule in self._parts.values() for p in rule.plateaus()]

    def state_dict(self) -> dict[str, Any]:
        """What ``load_state_dict`` takes: the state of each by name."""
        return {"optimizer": "Optimizers", "optimizers": {n: rule.state_dict() for n, rule in self._parts.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state_dict()``.

        Raises:
            StateError: It is of other optimizers; nothing was changed.
        """
        saved = state.get("optimizers")
        if not isinstance(saved, Mapping) or saved.keys() != self._parts.keys():
            shown = ", ".join(map(str, saved)) if isinstance(saved, Mapping) else "one optimizer"
            raise StateError(
                f"a state of the optimizers {', '.join(self._parts)}", shown[:200], "make the learner with the same optimizers"
            )
        before = {n: rule.state_dict() for n, rule in self._parts.items()}
        try:
            for name, rule in self._parts.items():
                rule.load_state_dict(saved[name])
        except BaseException:
            for name, rule in self._parts.items():
                rule.load_state_dict(before[name])
            raise

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{n!r}: {rule!r}' for n, rule in self._parts.items())}}}"


def several(model: Module, given: Mapping[str, Any], step: Any) -> Optimizers:
    """The optimizers of a learner that is given them by name.

    Raises:
        TrainingError: There is no ``step`` that chooses among them, or see ``Optimizers``.
    """
    found = Optimizers(model, given)
    if step is None:
        raise TrainingError(
            "several optimizers are used by a step of one's own",
            "no step",
            "pass step=, a function: see train.Minimizer",
        )
    return found
