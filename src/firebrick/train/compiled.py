"""``Compiled``: a step that runs as a graph where it can be traced; elsewhere it runs eagerly, and a warning has the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from firebrick.core.errors import (
    DeviceMismatchError,
    ExecutionError,
    FirebrickError,
    OutOfRangeError,
    TraceError,
    UnsupportedError,
)
from firebrick.core.journal import all_or_none
from firebrick.core.lines import warn
from firebrick.graph import Recompile
from firebrick.train.batches import name_of, pieces_of, tensors_of
from firebrick.train.errors import EagerTrainingWarning
from firebrick.train.strategy import Graphs, Strategy

NO_GRAPH = (TraceError, DeviceMismatchError, UnsupportedError)  # what a graph cannot do though Python may
BY_REQUEST = "by request"
USUAL = 2
"""Graphs of a step that need no words: one for full batches, and one for a smaller last one."""


class Compiled:
    """A compiled step of a ``Learner``, which is called like the step.

    Args:
        name: Name in messages.
        step: The function.
        jit: The function as graphs; None runs it as it is written.

    Attributes:
        recompiles: One record for each of its graphs: why it was made, and how many seconds tracing and compiling took.
        reason: Why it runs eagerly; None while it runs as graphs.
    """

    def __init__(self, name: str, step: Callable[..., Any], jit: Graphs | None) -> None:
        self.name, self.step = name, step
        self.recompiles: list[Recompile] = []
        self.reason: str | None = BY_REQUEST if jit is None else None
        self._jit = jit
        self._sizes: list[int] = []  # of the batch that each graph was made for

    @property
    def traces(self) -> int:
        """How often it was traced."""
        return len(self.recompiles)

    @property
    def seconds(self) -> float:
        """Time spent tracing and compiling."""
        return sum(r.seconds for r in self.recompiles)

    def __call__(self, *args: Any) -> Any:
        run = self._jit
        if run is None:
            return all_or_none(partial(self.step, *args))
        before = run.traces
        try:
            result = run(*args)
        except NO_GRAPH as e:
            failed: FirebrickError = e
        else:
            if run.traces != before:
                self._traced(run.reasons()[before - run.traces :], args)
            return result
        result = all_or_none(partial(self.step, *args))  # which raises what is wrong with the step itself
        self._jit, self.reason = None, _one_line(failed)
        warn(f"{self.name} is not compiled, which makes it slower: {self.reason}", EagerTrainingWarning)
        return result

    def _traced(self, new: list[Recompile], args: tuple[Any, ...]) -> None:
        self.recompiles += new
        targets = [tensors[-1] for piece in pieces_of(args[-1]) if (tensors := tensors_of(piece))]
        self._sizes += [sum(t.shape[0] if t.ndim else 1 for t in targets)] * len(new)

    def __str__(self) -> str:
        if not self.recompiles:
            return f"{self.name} not compiled, {self.reason}"
        count = f"{self.traces} graph{'s' * (self.traces > 1)} in {self.seconds:.2g} s"
        return f"{self.name} {count}" + (f" ({'; '.join(why)})" if (why := self._why()) else "")

    def _why(self) -> list[str]:
        """Why there is more than one graph, in few words."""
        words = []
        for event, size, first in zip(self.recompiles[1:], self._sizes[1:], self._sizes, strict=False):
            of_batch = all(part.startswith(("argument batch", "argument inputs")) for part in event.reason.split("; "))
            words.append(f"a batch of {size}" if of_batch and size != first else event.reason)
        return [*words[:3], "…"] if len(words) > 3 else words


def _one_line(error: FirebrickError) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


@contextmanager
def naming(batch: Any) -> Iterator[None]:
    """Values of a batch that a graph, or an assertion of a kernel, refuses are refused by the batch's name; these know only
    which argument it is."""
    try:
        yield
    except (OutOfRangeError, ExecutionError) as e:
        label, of_values = name_of(batch), isinstance(e, OutOfRangeError) or "line" in e.context
        if not label or label in e.received or not of_values:
            raise
        raise type(e)(e.expected, f"{e.received}, of {label}", e.remedy, **e.context) from e


def compiled_in(held: dict[str, Compiled], name: str, step: Any, strategy: Strategy | None) -> Compiled:
    """A step as graphs; those that are held by its name, if it is the same step.

    Args:
        held: Compiled steps by name.
        name: Of the step.
        step: The step.
        strategy: Whose graphs it becomes; None runs it as it is written.
    """
    found = held.get(name)
    if found is None or found.step != step or (found.reason == BY_REQUEST) is (strategy is not None):
        found = held[name] = Compiled(name, step, None if strategy is None else strategy.compile(step))
    return found


def line_of(held: Mapping[str, Compiled]) -> str:
    """How long compiling took, what was compiled often and what was not; empty if there is nothing to report."""
    steps = [c for c in held.values() if c.recompiles or c.reason not in (None, BY_REQUEST)]
    seconds = sum(c.seconds for c in steps)
    unusual = [str(c) for c in steps if c.traces > USUAL or not c.recompiles]
    return "; ".join([*([f"compiled in {seconds:.2g} s"] if seconds else []), *unusual])
