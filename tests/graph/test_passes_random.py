"""Random graphs compute the same bits before and after every pass, and ``optimize`` leaves nothing for a second run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from graphs import execute
from hypothesis import given, settings
from hypothesis import strategies as st

import firebrick as fb
from firebrick.core.aval import Aval
from firebrick.core.errors import FirebrickError
from firebrick.core.op import KINDS, Op
from firebrick.graph.passes import PASSES, optimize
from firebrick.graph.passes.rewriter import rewrite
from firebrick.ir import Graph, interpret, to_json, verify_graph
from firebrick.ir.encoding import encoded
from firebrick.ops.declare import specials

OPS = fb.ops.OPS
DTYPES = [fb.float32, fb.float64, fb.float16, fb.bfloat16, fb.int32, fb.int8, fb.uint8, fb.bool, fb.complex64]
SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (2, 3), (1, 3), (2, 1), (2, 2), (3, 3), (2, 1, 3), (0, 3)]
UNARY = ["negative", "abs", "floor", "round", "trunc", "relu", "exp", "sin", "sqrt", "conj", "real", "imag", "logical_not",
         "bitwise_invert", "isnan", "sign"]  # fmt: skip
BINARY = ["add", "subtract", "multiply", "divide", "floor_divide", "remainder", "pow", "maximum", "minimum", "equal", "less",
          "less_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
          "bitwise_left_shift", "complex"]  # fmt: skip
REDUCTIONS = ["sum", "mean", "prod", "max", "min", "all", "any"]


class Choices:
    """Random choices, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def below(self, n: int) -> int:
        return int(self.rng.random() * n)

    def of(self, items: Any) -> Any:
        return items[self.below(len(items))]


def random_graph(c: Choices, steps: int) -> Graph:
    g = Graph([Aval(c.of(SHAPES), c.of(DTYPES)) for _ in range(1 + c.below(3))])
    makers: list[Callable[[Graph, Choices], None]] = [
        _constant, _unary, _unary, _binary, _binary, _binary, _same, _where, _cast, _cast, _reshape, _permute, _broadcast,
        _slice, _flip, _pad, _split, _concat, _reduce, _reduce, _matmul, _again, _again,
    ]  # fmt: skip
    for _ in range(steps):
        before = len(g.nodes)
        try:
            c.of(makers)(g, c)
        except FirebrickError:  # shapes that do not fit
            continue
        region = 1 if c.below(6) == 5 else 0
        g.nodes[before:] = [replace(n, region=region) for n in g.nodes[before:]]
    used = {i for n in g.nodes for i in n.inputs}
    ends = [i for i in range(g.size) if (c.below(4) if i not in used else c.below(8) == 7)]
    g.outputs = (*ends, _any(g, c))
    verify_graph(g)
    return g


@pytest.mark.parametrize("seed", range(60))
def test_what_passes_make_of_a_graph_is_read_back_in_terms_of_an_equal_graph(seed: int) -> None:
    (writer, form), (reader, again) = (encoded(random_graph(Choices(seed), 25)) for _ in range(2))  # type: ignore[misc]
    assert form == again
    graph = random_graph(Choices(seed), 25)
    made = optimize(graph)
    sizes = writer.sizes()
    rows = writer.rows(made.nodes)
    reader.extend(json.loads(json.dumps(writer.beyond(sizes))))
    read = Graph(graph.inputs, reader.nodes(rows, len(graph.inputs)), made.outputs, graph.names)
    assert to_json(read) == to_json(made)


def _append(g: Graph, name: str, *xs: int, **params: Any) -> None:
    op, avals = OPS[name], g.avals
    dtypes = [avals[x].dtype for x in xs]
    if not all(d.kind in KINDS[op.operand(i).kind] for i, d in enumerate(dtypes)):
        return
    if len({d for i, d in enumerate(dtypes) if op.operand(i).group}) > 1:
        return
    g.add(op, *xs, **params)


def _any(g: Graph, c: Choices) -> int:
    return g.size - 1 - c.below(g.size)


def _mate(g: Graph, c: Choices, x: int) -> int:
    """A value of the dtype of ``x``."""
    avals = g.avals
    return int(c.of([i for i, a in enumerate(avals) if a.dtype is avals[x].dtype]))


def _constant(g: Graph, c: Choices) -> None:
    dtype, shape = c.of([a.dtype for a in g.avals]), c.of(SHAPES)
    pool = np.concatenate([specials(dtype.name), np.asarray([0, 1, 2, 1], dtype.np)])
    if c.below(2):
        value = np.full(shape, c.of(pool), dtype.np)
    else:
        value = np.asarray([c.of(pool) for _ in range(int(np.prod(shape)))], dtype.np).reshape(shape)
    x = g.constant(value)
    if c.below(2):
        y = _mate(g, c, x)
        _append(g, c.of(BINARY), *((x, y) if c.below(2) else (y, x)))


def _unary(g: Graph, c: Choices) -> None:
    _append(g, c.of(UNARY), _any(g, c))


def _binary(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    _append(g, c.of(BINARY), x, _mate(g, c, x))


def _same(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    _append(g, c.of(BINARY), x, x)


def _where(g: Graph, c: Choices) -> None:
    avals = g.avals
    conditions = [i for i, a in enumerate(avals) if a.dtype is fb.bool]
    x = _any(g, c)
    if conditions:
        _append(g, "where", c.of(conditions), x, _mate(g, c, x))


def _cast(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    first = g.avals[x].dtype
    goals = [fb.complex64, fb.complex128] if first.kind == "complex" else [*DTYPES, fb.int64, fb.float8_e5m2]
    _append(g, "cast", x, dtype=c.of(goals))
    if c.below(2) and (first.kind == "complex" or g.avals[-1].dtype.kind != "complex"):
        _append(g, "cast", g.size - 1, dtype=c.of([first, *goals]))


def _reshape(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    a = g.avals[x]
    squeezed = tuple(d for d in a.shape if d != 1)
    _append(g, "reshape", x, shape=c.of([a.shape, (a.size,), (1, *a.shape), squeezed, a.shape[::-1], (*a.shape, 1)]))


def _permute(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    axes = list(range(g.avals[x].ndim))
    _append(g, "permute", x, axes=tuple(axes.pop(c.below(len(axes))) for _ in range(len(axes))))


def _broadcast(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    shape = tuple(c.of([1, 2, 3]) if d == 1 else d for d in g.avals[x].shape)
    _append(g, "broadcast_to", x, shape=c.of([shape, (2, *shape), (1, *shape)]) if len(shape) < 3 else shape)


def _slice(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    keys = [slice(None), slice(None), slice(None, None, -1), slice(1, None), slice(0, 1), slice(None, None, 2), slice(2, 0, -1)]
    bounds = [c.of(keys).indices(d) for d in g.avals[x].shape]
    starts, stops, steps = zip(*bounds, strict=True) if bounds else ((), (), ())
    lengths = tuple(len(range(*b)) for b in bounds)
    more = {"shape": tuple(d for d in lengths if d != 1)} if c.below(2) else {}
    _append(g, "slice", x, starts=starts, stops=stops, steps=steps, **more)


def _flip(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    _append(g, "flip", x, axes=tuple(a for a in range(g.avals[x].ndim) if c.below(2)))


def _pad(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    if g.avals[x].size < 100:
        _append(g, "pad", x, widths=tuple((c.below(2), 0) for _ in g.avals[x].shape), value=c.below(2))


def _split(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    shape = g.avals[x].shape
    if not shape:
        return
    axis = c.below(len(shape))
    n = c.below(shape[axis] + 1)
    first = g.size
    _append(g, "split", x, sizes=c.of([(n, shape[axis] - n), (shape[axis],)]), axis=axis)
    if c.below(2):
        _append(g, "concat", *range(first, g.size), axis=axis)


def _concat(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    if g.avals[x].shape and g.avals[x].size < 100:
        _append(g, "concat", *([x] if c.below(2) else [x, _mate(g, c, x)]), axis=c.below(g.avals[x].ndim))


def _reduce(g: Graph, c: Choices) -> None:
    x = _any(g, c)
    axes = tuple(a for a in range(g.avals[x].ndim) if c.below(2))
    _append(g, c.of(REDUCTIONS), x, axes=axes, keepdims=bool(c.below(2)))


def _matmul(g: Graph, c: Choices) -> None:
    matrices = [i for i, a in enumerate(g.avals) if a.ndim >= 2]
    if matrices:
        x = c.of(matrices)
        mates = [i for i in matrices if g.avals[i].dtype is g.avals[x].dtype and g.avals[i].shape[-2] == g.avals[x].shape[-1]]
        if mates:
            _append(g, "matmul", x, c.of(mates))


def _again(g: Graph, c: Choices) -> None:
    """A node that is there already, once more."""
    if g.nodes:
        n = c.of(g.nodes)
        g.add(n.op, *n.inputs, **n.params)


def _inputs(g: Graph, c: Choices) -> list[np.ndarray[Any, Any]]:
    found = []
    for a in g.inputs:
        pool = np.concatenate([specials(a.dtype.name), np.asarray([3, 2, 5], a.dtype.np)])
        found.append(np.asarray([c.of(pool) for _ in range(a.size)], a.dtype.np).reshape(a.shape))
    return found


def _execute(op: Op, xs: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Ops as they are defined, on contiguous operands: the order in which NumPy adds depends on the order in memory."""
    return execute(op, tuple(np.array(x, order="C") for x in xs), params)


def _bits(graph: Graph, inputs: list[Any]) -> list[tuple[Any, ...]]:
    """The outputs as bytes, NaNs as one NaN: their payloads are no values."""
    out = []
    for x in interpret(graph, inputs, _execute):
        x = np.array(x, order="C")
        parts = x.view(x.real.dtype) if x.dtype.kind == "c" and x.ndim else x
        if parts.dtype.kind == "c":
            parts = np.asarray([parts.real, parts.imag])
        elif parts.dtype.kind in "fV":
            parts = np.array(parts)
        if parts.dtype.kind in "fV":
            parts[parts != parts] = np.nan
        out.append((x.dtype, x.shape, parts.tobytes()))
    return out


SEEDS, STEPS = st.integers(0, 2**32 - 1), st.integers(1, 30)


@given(SEEDS, STEPS)
@settings(max_examples=300)
def test_optimize_keeps_every_bit_and_finds_all_it_can(seed: int, steps: int) -> None:
    _check(seed, steps)


@pytest.mark.soak
def test_many_larger_graphs() -> None:
    for seed in range(2000):
        _check(seed, 60)


def _check(seed: int, steps: int) -> None:
    c = Choices(seed)
    g = random_graph(c, steps)
    inputs = _inputs(g, c)
    found = optimize(g)
    assert _bits(g, inputs) == _bits(found, inputs)
    assert found.inputs == g.inputs
    assert optimize(found) is found
    assert to_json(optimize(g)) == to_json(found)


@pytest.mark.parametrize("apply", PASSES, ids=lambda p: p.__name__)
@given(seed=SEEDS, steps=STEPS)
@settings(max_examples=60)
def test_each_pass_keeps_every_bit_and_every_region(apply: Any, seed: int, steps: int) -> None:
    c = Choices(seed)
    g = random_graph(c, steps)
    inputs = _inputs(g, c)
    found = apply(g)
    verify_graph(found)
    assert _bits(g, inputs) == _bits(found, inputs)
    assert {n.region for n in found.nodes} <= {n.region for n in g.nodes}


def _drop_narrow_casts(graph: Graph) -> Graph:
    """A cast to float16 and back loses digits: dropping both is wrong."""

    def rule(r: Any, node: Any, inputs: Any) -> int | None:
        made = r.maker(inputs[0])
        same = made is not None and made.op is node.op and r.avals[made.inputs[0]] == node.avals[0]
        return made.inputs[0] if same else None

    return rewrite(graph, {"cast": rule})


def _swap(graph: Graph) -> Graph:
    return rewrite(graph, {"subtract": lambda r, n, xs: r.emit(n.op, xs[::-1], {}, n) if xs == n.inputs else None})


def _zero_is_neutral(graph: Graph) -> Graph:
    return rewrite(graph, {"multiply": lambda r, n, xs: xs[0] if r.avals[xs[0]] == n.avals[0] else None})


@pytest.mark.parametrize("wrong", [_drop_narrow_casts, _swap, _zero_is_neutral])
def test_random_graphs_catch_a_wrong_pass_that_is_well_formed(wrong: Any) -> None:
    for seed in range(600):
        c = Choices(seed)
        g = random_graph(c, 30)
        found = wrong(g)
        verify_graph(found)
        inputs = _inputs(g, c)
        if _bits(g, inputs) != _bits(found, inputs):
            return
    raise AssertionError("no graph shows the difference")
