"""Random functions that change tensors in place: arguments, a captured tensor, results of their own and views of any, of which
several names may show the same handle. Each has a second form that assigns new values to names instead, and returns what the
captured tensor and the arguments show at the end.

The expressions are those of ``transform_programs``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from transform_programs import MOST, SHAPES, arguments, line_of, space_of

import firebrick as fb

ADDED = (
    "fb.tanh(fb.sum({y})) * 0.5", "0.25", "fb.mean({y} * {y})", "fb.sum({y}.detach()) * 0.1", "fb.sin({x})", "{x} * 0.5", "{y}",
)  # fmt: skip
WAYS = ("add", "add", "scale", "put", "put", "fill", "out")
INDICES = ("0", "-1", "1:", "::2", "...", "::-1")
LIMIT = 30.0
STATE = "c"


@dataclass(frozen=True)
class Statement:
    """One line: a new value, another name of a handle, or a change of what a name shows.

    Attributes:
        way: ``value``, ``alias``, or how it is changed.
        name: What is assigned or changed.
        expression: What is assigned, or the other operand.
        at: The index of a part that is changed.
        alike: All names of the handle that is changed.
    """

    way: str
    name: str
    expression: str
    at: str = ""
    alike: tuple[str, ...] = ()

    def in_place(self) -> str:
        """Its text where handles are changed."""
        n, e = self.name, self.expression
        if self.way in ("value", "alias"):
            return f"{n} = {e}"
        if self.way == "out":
            return f"fb.add({n} * 0.5, {e}, out={n})"
        return {"add": f"add_to({n}, {e})", "scale": f"scale({n}, {e})", "put": f"put_into({n}, {self.at!r}, {e})",
                "fill": f"put_into({n}, '...', {e})"}[self.way]  # fmt: skip

    def renamed(self) -> str:
        """Its text where names get new values."""
        n, e = self.name, self.expression
        text = {
            "value": e, "alias": e, "add": f"{n} + {e}", "scale": f"{n} * fb.tanh({e})", "out": f"{n} * 0.5 + {e}",
            "put": f"replaced({n}, {self.at!r}, {e})", "fill": f"replaced({n}, '...', {e})",
        }[self.way]  # fmt: skip
        return " = ".join([*(self.alike or (n,)), text])


@dataclass(frozen=True)
class Changing:
    """A random function of two tensors that changes some.

    Attributes:
        shapes: Of its arguments and of the tensor that it captures.
        statements: Its lines.
        results: The names that it returns.
        state_changes: Whether it changes what it captures.
    """

    shapes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    statements: tuple[Statement, ...]
    results: tuple[str, ...]
    state_changes: bool = field(default=False)

    @property
    def source(self) -> str:
        """Its text, as it changes handles."""
        body = "".join(f"    {s.in_place()}\n" for s in self.statements)
        return f"def f(a, b):  # {self.shapes}\n{body}    return {', '.join(self.results)},\n"

    @property
    def renamed(self) -> str:
        """The text of the second form."""
        body = "".join(f"    {s.renamed()}\n" for s in self.statements)
        return f"def f(a, b, c):\n{body}    return ({', '.join(self.results)},), a, b, c\n"

    def function(self, state: fb.Tensor) -> Callable[..., tuple[fb.Tensor, ...]]:
        """The function, which captures ``state``."""
        space = {**_space(), STATE: state}
        exec(self.source, space)
        return space["f"]  # type: ignore[no-any-return]

    def second_form(self) -> Callable[..., tuple[tuple[fb.Tensor, ...], fb.Tensor, fb.Tensor, fb.Tensor]]:
        """A function of the arguments and the captured tensor: results, and what these three show at the end."""
        space = _space()
        exec(self.renamed, space)
        return space["f"]  # type: ignore[no-any-return]


def _index(at: str) -> Any:
    return eval(f"np.s_[{at}]", {"np": np})


def _add_to(t: fb.Tensor, value: Any) -> None:
    t += value


def _scale(t: fb.Tensor, value: Any) -> None:
    t *= fb.tanh(fb.asarray(value, dtype=fb.float64, device=t.device) if isinstance(value, float) else value)


def _put_into(t: fb.Tensor, at: str, value: Any) -> None:
    t[_index(at)] = value


def _replaced(t: fb.Tensor, at: str, value: Any) -> fb.Tensor:
    """The values of ``t`` with others at an index, without a change in place."""
    mask, order = np.zeros(t.shape, bool), np.zeros(t.shape, np.int64)
    mask[_index(at)] = True
    if not isinstance(value, fb.Tensor) or not value.ndim:
        return fb.where(fb.asarray(mask, device=t.device), value, t)
    there = order[_index(at)].shape
    order[_index(at)] = np.arange(int(np.prod(there, dtype=int))).reshape(there)
    flat = fb.reshape(fb.broadcast_to(value, there), (-1,))
    if not flat.size:
        return t * 1.0
    taken = fb.reshape(fb.take(flat, fb.asarray(order.reshape(-1), device=t.device), axis=0), t.shape)
    return fb.where(fb.asarray(mask, device=t.device), taken, t)


def _kept(value: Any) -> Any:
    return value.detach() if isinstance(value, fb.Tensor) else value


def _space() -> dict[str, Any]:
    return {**space_of(), "add_to": _add_to, "scale": _scale, "put_into": _put_into, "replaced": _replaced, "kept": _kept}


def _drawn_statement(rng: np.random.Generator, shapes: dict[str, tuple[int, ...]], groups: dict[str, int]) -> Statement:
    names, kind, new = list(shapes), rng.random(), f"v{len(shapes)}"
    if kind < 0.35:
        return Statement("value", new, line_of(rng, shapes))
    x = names[int(rng.integers(len(names)))]
    if kind < 0.45:
        return Statement("alias", new, x)
    way, y = str(rng.choice(WAYS)), names[int(rng.integers(len(names)))]
    expression = str(rng.choice(ADDED)).format(x=x, y=y)
    if way == "scale":
        expression = expression if "fb." in expression or "{" in expression else f"{expression} + 0.5 * fb.sum({y})"
    at = str(rng.choice(INDICES)) if shapes[x] else "..."
    alike = tuple(n for n in names if groups[n] == groups[x])
    if STATE in alike:  # a value that outlives a gradient is kept without its graph
        expression = f"kept({expression})"
    return Statement(way, x, expression, at, alike)


def drawn(rng: np.random.Generator, length: int) -> Changing:
    """A random function of at most so many lines, in which values stay finite and of moderate size."""
    shapes = tuple(SHAPES[int(rng.integers(len(SHAPES)))] for _ in range(3))
    space: dict[str, Any] = {**_space(), **dict(zip("abc", arguments(rng, shapes), strict=True))}
    groups, statements = {n: i for i, n in enumerate("abc")}, []
    with fb.use_device("numpy"), fb.config.scope(fallback="silent"):
        for _ in itertools.repeat(None, 12 * length):
            if len(statements) == length:
                break
            drawn = _drawn_statement(rng, {n: space[n].shape for n in groups}, groups)
            if "fb.checkpoint" in drawn.expression:  # it is refused where what its function captures is changed later
                continue
            tried = dict(space)
            try:
                exec(drawn.renamed(), tried)
                found = tried[drawn.name]
            except (fb.FirebrickError, ValueError, IndexError, TypeError, NotImplementedError, AttributeError):
                continue
            if not isinstance(found, fb.Tensor) or not 0 < found.size <= MOST or found.dtype is not fb.float64:
                continue
            if not np.isfinite(found.numpy()).all() or np.abs(found.numpy()).max() > LIMIT:
                continue
            if drawn.way not in ("value", "alias") and found.shape != space[drawn.name].shape:
                continue
            same = [n for n in groups if drawn.way == "value" and found is space[n]]
            if drawn.way == "alias":
                groups[drawn.name] = groups[drawn.expression]
            elif drawn.way == "value":
                groups[drawn.name] = groups[same[0]] if same else len(groups) + 3
            space = tried
            statements.append(drawn)
    names = list(groups)
    count = int(rng.integers(1, 4))
    results = tuple(dict.fromkeys([names[-1], *(names[int(i)] for i in rng.integers(len(names), size=count))]))
    changed = any(STATE in s.alike for s in statements)
    return Changing(shapes, tuple(statements), results, changed)  # type: ignore[arg-type]
