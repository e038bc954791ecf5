"""A training step in graphs where it cannot be one: a graph lives on one device, and a part of a batch is a run of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from firebrick.core.tensor import Tensor
from firebrick.graph import Jit, Recompile, jit
from firebrick.nn import Module
from firebrick.train.leaves import LeafGraphs
from firebrick.train.parallel.arrivals import Arrivals
from firebrick.train.parallel.passes import Pass, add, put_back
from firebrick.train.steps import Stepped, TrainingStep, counts_of
from firebrick.train.strategy import Share, parts_of


class Runs(Protocol):
    """A strategy whose passes are given to it."""

    synchronised: bool
    joins: bool

    @property
    def arrivals(self) -> Arrivals | None: ...
    def replicas(self, model: Module) -> list[Module]: ...
    def run(self, passes: Any, adding: Any, model: Module, batch: Any, parts: int = 1) -> list[Share]: ...
    def spread(self, model: Module) -> None: ...


class Graphed:
    """A ``TrainingStep`` as graphs: a pass on each device, sums of parts, and all that comes after the gradients.

    Args:
        step: The step.
        strategy: Its strategy.
    """

    def __init__(self, step: TrainingStep, strategy: Runs) -> None:
        self._step, self._strategy = step, strategy
        self._passes: dict[Module, LeafGraphs] = {}
        self._adding: Jit[..., Any] = jit(add)
        self._finish: Jit[..., Any] = jit(step.finish)

    def __call__(self, watching: Tensor, batch: Any) -> Stepped:
        step, strategy = self._step, self._strategy
        models = strategy.replicas(step.model)
        passes: list[Callable[..., Any]] = [self._pass(m) for m in models]
        with put_back(models):  # a graph that cannot be made must leave nothing drawn: the step is then run as it is written
            shares = strategy.run(passes, self._adding, step.model, batch, step.parts)
            norm, zeros = self._finish(watching, *parts_of(shares))
        strategy.spread(step.model)
        if step.precision is not None:
            step.precision.spread()
        return Stepped(counts_of(shares), norm, zeros)

    def _pass(self, model: Module) -> Callable[..., Any]:
        strategy = self._strategy
        made = Pass(self._step.forward, model, strategy.joins, strategy.arrivals)
        if strategy.synchronised:
            return made
        found = self._passes.get(model)
        if found is None:
            found = self._passes[model] = LeafGraphs(made)
        return found

    def _all(self) -> list[Jit[..., Any] | LeafGraphs]:
        return [*self._passes.values(), self._adding, self._finish]

    @property
    def traces(self) -> int:
        """How many graphs were traced."""
        return sum(j.traces for j in self._all())

    def reasons(self) -> list[Recompile]:
        """Why each was."""
        return [r for j in self._all() for r in j.reasons()]
