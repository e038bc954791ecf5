"""The fusion of elementwise nodes: which become one, in which order, and that the graph computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.compiler.fusion.facts import Can
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.ir import Graph, Node, from_json, interpret, to_json, verify_graph
from firebrick.ops import OPS

F, N = fb.float32, 256


def graph_of(*inputs: Aval) -> Graph:
    return Graph(list(inputs))


def add(g: Graph, name: str, *inputs: int, **params: Any) -> int:
    return g.add(OPS[name], *inputs, **params)[0]


def elementwise(n: Node, operands: tuple[Aval, ...]) -> str:
    """Kernels for elementwise nodes only, so that others are in the way."""
    return kind_of(n, operands) if n.op.fusion == "map" else "not elementwise"


def run(g: Graph, arrays: Any) -> tuple[Any, ...]:
    return interpret(g, arrays, lambda op, xs, params: op.reference(*xs, **params))


def check(g: Graph, can: Can = elementwise) -> Graph:
    """The fused graph, which is well formed and computes what ``g`` does."""
    made = fuse(g, can, POLICY)
    verify_graph(made)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=a.shape).astype(a.dtype.np) for a in g.inputs]
    for got, want in zip(run(made, arrays), run(g, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    return made


def fused(g: Graph) -> list[Node]:
    return [n for n in g.nodes if n.op is FUSED]


def test_a_chain_becomes_one_node_with_the_results_that_others_use() -> None:
    g = graph_of(Aval((N, N), F), Aval((N,), F))
    a = add(g, "add", 0, 1)
    b = add(g, "relu", a)
    c = add(g, "multiply", b, a)
    d = add(g, "matmul", b, b)
    g.outputs = (c, d)
    made = check(g)
    (node,) = fused(made)
    assert [n.op.name for n in made.nodes] == ["fused", "matmul"]
    assert node.avals == (Aval((N, N), F),) * 2
    assert node.inputs == (0, 1)


def test_nothing_waits_for_what_waits_for_it() -> None:
    # relu → matmul → multiply with relu's operand and result: one kernel of all three could never run
    g = graph_of(Aval((N, N), F))
    a = add(g, "add", 0, 0)
    b = add(g, "relu", a)
    c = add(g, "matmul", b, b)
    d = add(g, "multiply", c, b)
    e = add(g, "subtract", d, a)
    g.outputs = (e,)
    made = check(g)
    assert [n.op.name for n in made.nodes] == ["fused", "matmul", "fused"]
    assert [len(n.params["body"].nodes) for n in fused(made)] == [2, 2]


def test_a_group_with_a_node_of_the_end_comes_before_what_is_not_needed_yet() -> None:
    g = graph_of(Aval((N, N), F), Aval((N, N), F))
    a = add(g, "relu", 0)
    b = add(g, "matmul", a, 0)
    c = add(g, "matmul", 1, 1)
    d = add(g, "add", b, c)
    e = add(g, "negative", a)
    g.outputs = (d, e)
    first, *others = check(g).nodes
    assert [n.op.name for n in first.params["body"].nodes] == ["relu", "negative"]
    assert [n.op.name for n in others][:2] == ["matmul", "matmul"]
    assert others[0].inputs[0] == first.results[0]  # not the product that does not wait for the group


def test_two_groups_join_through_a_third_only_if_no_path_is_in_between() -> None:
    g = graph_of(Aval((N, N), F), Aval((N, N), F))
    a = add(g, "negative", add(g, "abs", 0))
    b = add(g, "negative", add(g, "abs", 1))
    c = add(g, "add", a, b)
    g.outputs = (c,)
    assert len(fused(check(g))) == 1
    g = graph_of(Aval((N, N), F), Aval((N, N), F))
    a = add(g, "negative", add(g, "abs", 0))
    m = add(g, "matmul", a, a)
    b = add(g, "negative", add(g, "add", m, 1))
    c = add(g, "add", a, b)
    g.outputs = (c,)
    made = check(g)
    assert len(fused(made)) == 2


def test_a_value_and_its_transpose_are_not_read_in_one_kernel_that_makes_it() -> None:
    g = graph_of(Aval((N, N, 4), F))
    a = add(g, "negative", add(g, "abs", 0))
    t = add(g, "permute", a, axes=(1, 0, 2))
    c = add(g, "add", a, t)
    g.outputs = (add(g, "exp", c),)
    made = check(g)
    assert [n.op.name for n in made.nodes] == ["fused", "fused"]
    assert [n.op.name for n in fused(made)[1].params["body"].nodes] == ["permute", "add", "exp"]


def test_numbers_and_views_are_taken_in_and_stay_where_others_use_them() -> None:
    g = graph_of(Aval((N,), F), Aval((N, N), F))
    number = g.constant(np.asarray(2.0, np.float32))
    wide = add(g, "broadcast_to", number, shape=(N, N))
    rows = add(g, "reshape", 0, shape=(N, 1))
    many = add(g, "broadcast_to", rows, shape=(N, N))
    a = add(g, "multiply", 1, wide)
    b = add(g, "add", a, many)
    g.outputs = (b, many)
    made = check(g)
    (node,) = fused(made)
    assert set(node.inputs) == {0, 1}
    assert [n.op.name for n in made.nodes if n.op is not FUSED] == ["reshape", "broadcast_to"]


def test_parts_of_long_rows_are_read_where_they_lie_and_others_are_copied() -> None:
    g = graph_of(Aval((N, 3 * 64), F), Aval((N, 64), F))
    a, b, c = g.add(OPS["split"], 0, sizes=(64, 64, 64), axis=1)
    last = add(g, "slice", 0, starts=(0, 128), stops=(N, 192), steps=(1, 1))
    every = add(g, "slice", 0, starts=(0, 0), stops=(N, 128), steps=(1, 2))
    total = add(g, "add", add(g, "multiply", a, b), add(g, "multiply", 1, last))
    g.outputs = (total, add(g, "multiply", total, every), c)
    made = check(g)
    assert [n.op.name for n in made.nodes] == ["split", "slice", "fused"]  # one for the output, one of every second element
    assert made.nodes[-1].inputs[:2] == (0, 1)
    body = made.nodes[-1].params["body"]
    assert {n.op.name for n in body.nodes} == {"split", "slice", "multiply", "add"}
    assert sum(n.op.name == "split" for n in body.nodes) == 1


def test_only_states_are_updated_in_place() -> None:
    g = graph_of(Aval((64, 64), F), Aval((64, 64), F), Aval((64, 64), F))
    g.outputs = (add(g, "add", 2, add(g, "matmul", 0, 1)),)
    assert [n.op.name for n in fuse(g, kind_of, POLICY, states=()).nodes] == ["fused"]  # the product takes in the sum
    assert len(fuse(g, kind_of, POLICY).nodes) == 2


def test_regions_and_shapes_stay_apart() -> None:
    g = graph_of(Aval((N, N), F))
    a = add(g, "abs", 0)
    b = add(g, "exp", a)
    g.nodes = [g.nodes[0], Node(OPS["exp"], (a,), {}, b, g.nodes[1].avals, region=1)]
    c = add(g, "negative", b)
    g.outputs = (c,)
    assert fuse(g, kind_of, POLICY).nodes[0].params["body"].nodes[0].op.name == "abs"
    assert [n.region for n in fused(fuse(g, kind_of, POLICY))][:1] == [0]
    assert all(len({m.op.name for m in n.params["body"].nodes} & {"abs", "exp"}) < 2 for n in fused(fuse(g, kind_of, POLICY)))


def test_what_is_small_or_has_no_kernel_stays_as_it_is_and_says_why() -> None:
    g = graph_of(Aval((4,), F), Aval((N, N), fb.complex64))
    g.outputs = (add(g, "exp", 0), add(g, "expm", 1), add(g, "sqrt", g.constant(np.asarray(2.0, np.float32))))
    reasons: list[str] = []
    assert fuse(g, kind_of, POLICY, reasons) is g
    assert sorted(reasons) == ["exp float32[4]: 1 so small", "expm complex64[256,256]: no kernels of complex64"]


@pytest.mark.parametrize("seed", range(30))
def test_random_graphs_compute_the_same_in_groups(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g = graph_of(*(Aval(s, F) for s in ((3, 4, 4), (4, 4), (4,), (3, 1, 4), ())))
    for _ in range(40):
        avals = g.avals
        i, j = (int(k) for k in rng.integers(len(avals), size=2))
        how = rng.integers(10)
        if how < 6:
            add(g, str(rng.choice(["add", "multiply", "maximum", "subtract"])), i, j)
        elif how < 8:
            add(g, str(rng.choice(["relu", "abs", "negative", "sigmoid"])), i)
        elif how == 8 and avals[i].ndim >= 2:
            add(g, "permute", i, axes=(1, 0, 2)) if avals[i].ndim == 3 and avals[i].shape[0] == avals[i].shape[1] else add(
                g, "matmul", i, 1)  # fmt: skip
        elif avals[i].ndim:
            add(g, "sum", i, axes=(0,), keepdims=True)
    g.outputs = tuple(int(k) for k in rng.integers(g.size, size=3))
    check(g, kind_of)
    made = check(g)
    again = from_json(to_json(made))
    assert str(again) == str(made)


def test_what_is_computed_row_by_row_is_one_kernel_and_a_product_takes_in_its_transposes() -> None:
    g = graph_of(Aval((N, 64), F), Aval((64,), F))
    x = add(g, "add", 0, 1)
    mean = add(g, "mean", x, axes=(1,), keepdims=True)
    centred = add(g, "subtract", x, mean)
    variance = add(g, "mean", add(g, "multiply", centred, centred), axes=(1,), keepdims=True)
    y = add(g, "divide", centred, add(g, "sqrt", variance))
    z = add(g, "matmul", add(g, "permute", y, axes=(1, 0)), y)
    g.outputs = (z, add(g, "sum", y, axes=(0,), keepdims=False))
    rows, *alone = (n.params["body"] for n in fuse(g, kind_of, POLICY).nodes)
    assert len(rows.nodes) == 8  # the sum along the columns too
    assert sorted([m.op.name for m in body.nodes] for body in alone) == [["permute", "matmul"]]


def test_reductions_of_rows_of_other_lengths_stay_apart() -> None:
    g = graph_of(Aval((N, 64), F))
    short = add(g, "reshape", 0, shape=(N, 2, 32))
    a = add(g, "sum", short, axes=(2,), keepdims=True)
    b = add(g, "softmax", add(g, "multiply", a, a), axis=1)
    g.outputs = (add(g, "softmax", add(g, "abs", short), axis=2), b)
    made = check(g, kind_of)
    assert all(sum(m.op.fusion == "row" for m in n.params["body"].nodes) <= 2 for n in fused(made))


@pytest.mark.parametrize(("axis", "indices", "joined"), [(0, N, False), (1, N, False), (1, 1, True)])
def test_a_row_is_computed_where_one_element_of_it_is_read_alone(axis: int, indices: int, joined: bool) -> None:
    g = graph_of(Aval((N, N), F), Aval((N, indices), fb.int64))
    rows = add(g, "softmax", 0, axis=1)
    g.outputs = (add(g, "multiply", add(g, "gather", rows, 1, axis=axis), rows), rows)
    made = fuse(g, kind_of, POLICY)
    assert any({"softmax", "gather"} <= {m.op.name for m in n.params["body"].nodes} for n in fused(made)) is joined


def test_a_fused_operation_refuses_operands_of_other_shapes() -> None:
    g = graph_of(Aval((2,), F))
    g.outputs = (add(g, "abs", 0),)
    with pytest.raises(ShapeError, match=r"a fused operation takes float32\[2\]"):
        FUSED.infer(Aval((3,), F), body=g)


def test_an_array_that_two_nodes_read_at_any_position_is_one_input() -> None:
    g = graph_of(Aval((50, 40), fb.float32), Aval((50, 40), fb.int64))
    one, other = (add(g, "gather", 0, at, axis=1) for at in (1, add(g, "abs", 1)))
    g.outputs = (add(g, "multiply", one, other),)
    (group,) = fused(fuse(g, kind_of, POLICY))
    assert group.inputs == (0, 1)
    assert len(group.params["body"].inputs) == 2
