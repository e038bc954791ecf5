"""The graphs that one function under ``jit`` keeps, by their keys, and the walks that found these.

Both are bounded, and what was used longest ago goes first. A walk is kept by the identities of the arguments it began from,
and repeated only when something that it saw has been replaced. Walks with equal keys have one number, which stands for the walk
in the key of a call. Threads share all of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from threading import Lock, RLock
from typing import Any
from weakref import ref

from firebrick.core.collector import fewer_collections
from firebrick.core.locks import forkable
from firebrick.graph.call import Linear
from firebrick.graph.differences import differences
from firebrick.graph.program import Program
from firebrick.graph.results import positions
from firebrick.graph.walk import Walk

KEPT = 64  # graphs of one function


@dataclass
class Entry:
    """One graph of a function, with the parts of its key.

    Attributes:
        program: Runs the graph.
        linear: The gradient's program if the call is on tracked tensors, else None.
        recipe: How results are rebuilt from the program's outputs.
        named: Each argument with a description, to explain why another call was traced.
        walk: The key of the walk.
        ambient: The context.
        tracked: Indices of the tracked tensors.
        shared: Whether the key says which arguments are captured too.
        callbacks: For each callback of ``graph.tell``, the recipe of its function and arguments.
    """

    program: Program
    linear: Linear | None
    recipe: tuple[Any, ...]
    named: list[tuple[str, str]]
    walk: tuple[Any, ...]
    ambient: tuple[Any, ...]
    tracked: tuple[int, ...]
    shared: bool
    callbacks: list[tuple[Any, ...]]

    def __post_init__(self) -> None:
        self.changed = frozenset(position for position, _, _ in self.program.updates)
        self.known = frozenset(position for recipe in self.callbacks for position in positions(recipe, "known"))
        only = self.recipe[0] == "new" and self.linear is None and self.recipe[1] == 0
        self.simple = None  # the one new tensor that most functions return: dtype, shape and what else a handle takes
        if only:
            shape, dtype = self.program.results[0][2]
            self.simple = dtype, shape, *self.recipe[3:]


class Entries:
    """The kept graphs and walks of one function.

    Args:
        root: The function's name and the function, where every walk begins.

    Attributes:
        graphs: The graphs, those used last at the end.
        walks: The walks, by the identities of the arguments that they began from.
        numbers: The number of each walk's key.
    """

    def __init__(self, root: tuple[str, Callable[..., Any]]) -> None:
        self._root = root
        self.graphs: OrderedDict[Any, Entry] = OrderedDict()
        self.walks: OrderedDict[tuple[int, ...], Walk] = OrderedDict()
        self.numbers: OrderedDict[Any, int] = OrderedDict()
        self._next = count()
        self._lock = forkable(RLock())
        self._locks: dict[Any, Lock] = {}

    def walk(self, objects: list[tuple[str, Any]]) -> Walk:
        """The walk from these arguments: the kept one if nothing that it saw has been replaced, else a new one."""
        where = tuple([id(v) for _, v in objects]) if objects else ()
        walk = self.walks.get(where)
        if walk is not None and (not objects or walk.of(objects)) and walk.fresh():
            return walk
        return self.look(objects)

    def look(self, objects: list[tuple[str, Any]]) -> Walk:
        """A new walk from these arguments, which is kept."""
        with fewer_collections():  # a walk through a model of thousands of tensors makes as many objects that stay
            walk = Walk([self._root, *objects])
        return self.keep_walk(objects, walk)

    def keep_walk(self, objects: list[tuple[str, Any]], walk: Walk) -> Walk:
        """Keep a walk from these arguments for later calls."""
        where = tuple([id(v) for _, v in objects])
        walk.let_go(self._forgets(where))
        with self._lock:
            number = self.numbers.get(walk.key)
            walk.number = self.numbers[walk.key] = next(self._next) if number is None else number
            self.numbers.move_to_end(walk.key)
            if len(self.numbers) > 4 * KEPT:
                self.numbers.popitem(last=False)
            self.walks[where] = walk
            if len(self.walks) > KEPT:
                self.walks.popitem(last=False)
        return walk

    def _forgets(self, where: tuple[int, ...]) -> Callable[[Any], None]:
        """What drops a walk when an argument that it began from is gone."""
        entries = ref(self)

        def gone(_: Any) -> None:
            known = entries()
            if known is not None:
                known.walks.pop(where, None)

        return gone

    @contextmanager
    def lock(self, key: Any) -> Iterator[None]:
        """Held by the thread that traces the graph of a key; others with this key wait for it."""
        with self._lock:
            lock = self._locks.setdefault(key, forkable(Lock()))
        with lock:
            yield

    def drop_lock(self, key: Any) -> None:
        """Forget a key's lock, whose graph has been traced or cannot be."""
        with self._lock:
            self._locks.pop(key, None)

    def keep(self, key: Any, entry: Entry) -> str:
        """Keep a graph; returns the reason for which it was traced, in words."""
        with self._lock:
            reason = self._reason(entry)
            self.graphs[key] = entry
            if len(self.graphs) > KEPT:
                self.graphs.popitem(last=False)
        return reason

    def _reason(self, entry: Entry) -> str:
        """What differs from the kept graph that is most like it."""
        if not self.graphs:
            return "first call"
        best: list[str] | None = None
        for other in reversed(self.graphs.values()):
            found = _compare(other, entry)
            if best is None or len(found) < len(best):
                best = found
        again = "an argument that the function changes is a tensor that it captures" if entry.shared else "one argument twice"
        return "; ".join((best or [again])[:4])


def _compare(old: Entry, new: Entry) -> list[str]:
    before, now = dict(old.named), dict(new.named)
    out = [f"argument {p}: {before[p]} → {now[p]}" for p in now if p in before and before[p] != now[p]]
    out += [f"argument {p}: new" for p in now if p not in before] + [f"argument {p}: gone" for p in before if p not in now]
    out += differences(old.walk, new.walk)
    if old.tracked != new.tracked:
        out.append("other tensors are tracked")
    if old.ambient != new.ambient:
        out.append("the context: gradients on or off, the default device, checkpointing or the row offset")
    return out
