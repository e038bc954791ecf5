"""A step of one's own in graphs where it cannot be one: a pass on each device for each loss, and each update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from firebrick.core.tensor import Tensor
from firebrick.graph import Jit, Recompile, jit
from firebrick.nn import Module
from firebrick.train.leaves import LeafGraphs
from firebrick.train.own_step import LossValue, Minimizer, OwnStep
from firebrick.train.parallel.graphs import Graphed, Runs
from firebrick.train.parallel.passes import Pass, add, put_back
from firebrick.train.steps import Stepped, TrainingStep
from firebrick.train.strategy import Share


@dataclass
class GraphedOwnStep:
    """An ``OwnStep`` as graphs where it cannot be one: a pass on each device for each loss, sums of parts, and each update."""

    step: OwnStep
    strategy: Runs
    passes: dict[tuple[Any, Module], LeafGraphs] = field(default_factory=dict)
    finishes: dict[str, Jit[..., Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.adding: Jit[..., Any] = jit(add)

    def __call__(self, watching: Tensor, batch: Any) -> Stepped:
        with put_back(self.strategy.replicas(self.step.model)):
            return self.step.taken(Minimizer(self.step, watching, self._run, self._finish), batch)

    def _run(self, value: LossValue, batch: Any) -> list[Share]:
        strategy = self.strategy
        passes = [self._pass(value, m) for m in strategy.replicas(self.step.model)]
        return strategy.run(passes, self.adding, self.step.model, batch, self.step.parts)

    def _pass(self, value: LossValue, model: Module) -> Callable[..., Any]:
        made = Pass(value, model, self.strategy.joins, self.strategy.arrivals)
        if self.strategy.synchronised:
            return made
        found = self.passes.get((value.fn, model))
        if found is None:
            found = self.passes[value.fn, model] = LeafGraphs(made)
        return found

    def _finish(self, name: str, rule: Any, *given: Any) -> Any:
        found = self.finishes.get(name)
        if found is None:
            found = self.finishes[name] = jit(partial(self.step.finish, name, rule))
        return found(*given)

    def _all(self) -> list[Jit[..., Any] | LeafGraphs]:
        return [*self.passes.values(), self.adding, *self.finishes.values()]

    @property
    def traces(self) -> int:
        """How many graphs were traced."""
        return sum(j.traces for j in self._all())

    def reasons(self) -> list[Recompile]:
        """Why each was."""
        return [r for j in self._all() for r in j.reasons()]


def graphed(step: TrainingStep | OwnStep, strategy: Runs) -> Graphed | GraphedOwnStep:
    """A step as several graphs."""
    return Graphed(step, strategy) if isinstance(step, TrainingStep) else GraphedOwnStep(step, strategy)
