"""The memory plan: what is written over what, in which order, and how much memory that takes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import firebrick as fb
from firebrick.compiler import Executable
from firebrick.compiler.program.expression import ROWS, Kernel
from firebrick.compiler.program.plan import Plan, plan_memory
from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.core.views import strided
from firebrick.ir import CONSTANT, Graph
from firebrick.ops import OPS

MATRIX = Aval((8, 4), fb.float32)
BYTES = MATRIX.nbytes


class Writer:
    """A graph, an op at a time: ``w.add(x, y)``."""

    def __init__(self, *inputs: Aval) -> None:
        self.graph = Graph(list(inputs))

    def __getattr__(self, name: str) -> Any:
        def append(*operands: int, **params: Any) -> int:
            return self.graph.add(OPS[name], *operands, **params)[0]

        return append

    def compile(self, *outputs: int, donate: tuple[int, ...] = (), engine: str = "numpy") -> Executable:
        self.graph.outputs = outputs
        return fb.device(engine).backend.compile(self.graph, None, donate)


def run(program: Executable, **more: Any) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    return program([np.asarray(rng.uniform(0.5, 1.5, a.shape), a.dtype.np) for a in program.graph.inputs], **more)


def test_a_chain_lives_in_one_buffer() -> None:
    w = Writer(MATRIX)
    v = w.exp(0)
    for _ in range(5):
        v = w.add(w.tanh(v), 0)
    program = w.compile(v)
    assert program.plan.peak == BYTES
    assert program.plan.unplanned == 2 * BYTES
    assert program.plan.reused == 10 * BYTES


def test_a_value_that_is_used_again_is_not_written_over() -> None:
    w = Writer(MATRIX)
    a = w.exp(0)
    b = w.tanh(a)
    assert w.compile(w.multiply(a, b)).plan.into == {2: a}


def test_a_value_whose_view_lives_on_is_not_written_over() -> None:
    w = Writer(MATRIX)
    a = w.exp(0)
    view = w.permute(a, axes=(1, 0))
    b = w.tanh(a)
    program = w.compile(w.matmul(view, b))
    assert program.plan.into == {}


def test_a_reshaped_value_is_written_where_it_lies() -> None:
    w = Writer(MATRIX)
    flat = w.reshape(w.exp(0), shape=(32,))
    program = w.compile(w.tanh(flat))
    assert program.plan.into == {2: flat}
    assert program.plan.peak == BYTES


def test_a_product_is_never_written_over_its_operands_but_over_memory_that_waits() -> None:
    square = Aval((4, 4), fb.float32)
    w = Writer(square)
    a = w.exp(0)
    b = w.matmul(a, a)  # a dies here
    c = w.matmul(b, 0)
    program = w.compile(c)
    assert program.plan.into == {2: a}
    assert program.plan.peak == 2 * square.nbytes


def test_memory_does_not_wait_where_that_would_raise_the_peak() -> None:
    big = Aval((64, 64), fb.float32)
    w = Writer(big, Aval((64, 1), fb.float32))
    a = w.sum(w.permute(w.exp(0), axes=(1, 0)), axes=(0,), keepdims=True)  # the big value dies
    b = w.matmul(w.reshape(a, shape=(64, 1)), w.reshape(1, shape=(1, 64)))
    plan = w.compile(b).plan
    assert plan.peak <= plan.unplanned


def test_an_update_takes_over_the_donated_input_after_everything_else() -> None:
    w = Writer(MATRIX, MATRIX)
    new = w.subtract(0, w.multiply(1, 1))
    loss = w.sum(w.exp(0), axes=(0, 1), keepdims=False)
    program = w.compile(new, loss, donate=(0,))
    assert program.writes == {0}
    ops = [program.graph.nodes[k].op.name for k in program.plan.order]
    assert ops == ["exp", "sum", "multiply", "subtract"], "the update and what only it needs come last"
    assert program.plan.begin == 3
    state = np.ones((8, 4), np.float32)
    updated, _ = program([state, np.full((8, 4), 2, np.float32)])
    assert np.shares_memory(updated, state)
    assert (state == -3).all()


def test_an_elementwise_node_that_frees_as_much_as_it_takes_waits_for_the_update() -> None:
    square = Aval((8, 8), fb.float32)
    w = Writer(square, square)
    gradient = w.exp(w.matmul(1, 1))
    new, loss = w.subtract(0, gradient), w.sum(w.tanh(1), axes=(0, 1), keepdims=False)
    program = w.compile(new, loss, donate=(0,))
    assert [program.graph.nodes[k].op.name for k in program.plan.order] == ["matmul", "tanh", "sum", "exp", "subtract"]
    assert program.plan.donated == square.nbytes
    assert str(program.plan).splitlines()[1:3] == [
        "reuse: 2 results, 512 B, over dead values; 256 B of donated inputs", "donated inputs overwritten: %0",
    ]  # fmt: skip


def test_a_plan_of_no_results_counts_nothing() -> None:
    memory, reuse = str(Plan([])).splitlines()
    assert memory == "memory: at most 0 B without inputs and constants"
    assert reuse == "reuse: 0 results, 0 B, over dead values; 0 B of donated inputs"


def test_without_donation_nothing_is_overwritten() -> None:
    w = Writer(MATRIX, MATRIX)
    program = w.compile(w.subtract(0, 1))
    assert program.writes == frozenset()
    state = np.ones((8, 4), np.float32)
    program([state, state])
    assert (state == 1).all()


def test_work_that_would_keep_larger_operands_alive_does_not_wait_for_the_update() -> None:
    w = Writer(MATRIX, Aval((64, 8), fb.float32), Aval((64, 4), fb.float32))
    hidden = w.exp(1)
    gradient = w.matmul(w.permute(hidden, axes=(1, 0)), 2)
    program = w.compile(w.subtract(0, gradient), w.sum(w.exp(2), axes=(0, 1), keepdims=False), donate=(0,))
    ops = [program.graph.nodes[k].op.name for k in program.plan.order]
    assert ops.index("matmul") < ops.index("sum")
    assert ops[-1] == "subtract"


def test_outputs_that_would_share_memory_are_copied() -> None:
    w = Writer(MATRIX)
    a = w.exp(0)
    constant = w.graph.constant(np.ones(3, np.float32))
    wide = w.broadcast_to(w.sum(0, axes=(0,), keepdims=True), shape=(8, 4))
    program = w.compile(a, a, w.permute(a, axes=(1, 0)), 0, constant, wide)
    assert program.plan.copied == {1, 2, 3, 4, 5}
    outputs = run(program)
    assert all(x.flags.writeable for x in outputs)
    assert not any(np.shares_memory(x, y) for i, x in enumerate(outputs) for y in outputs[:i])


def test_a_donated_input_that_is_handed_through_is_copied() -> None:
    w = Writer(MATRIX)
    program = w.compile(0, donate=(0,))
    assert program.writes == frozenset()
    assert program.plan.copied == {0}


def test_a_result_that_nothing_uses_does_not_share_memory_with_another_one() -> None:
    """Both are written: the values of a sort too where only its indices are an output."""
    rows = Aval((4, 256), fb.int64)
    w = Writer(rows)
    _, indices = w.graph.add(OPS["sort"], w.cumulative_sum(0, axis=0, reverse=False), axis=1, descending=False)
    program = w.compile(indices, donate=(0,), engine="cpu")
    assert program.writes == {0}
    assert len(program.plan.outs) == 1
    x = np.random.default_rng(0).integers(0, 10**6, rows.shape)
    wanted = np.argsort(np.cumsum(x, 0), axis=1, kind="stable")
    assert (np.asarray(program([x])[0]) == wanted).all()


def test_a_constant_that_is_viewed_is_not_part_of_the_peak() -> None:
    w = Writer(MATRIX)
    (constant,) = w.graph.add(CONSTANT, value=np.ones((4, 8), np.float32))
    plan = w.compile(w.add(0, w.permute(constant, axes=(1, 0)))).plan
    assert (plan.peak, plan.constants) == (BYTES, BYTES)


def test_the_peak_is_that_of_the_process() -> None:
    big = Aval((512, 512), fb.float32)
    w = Writer(big)
    v, kept = 0, []
    for i in range(12):
        v = w.add(w.tanh(v), 0)
        if i % 3 == 0:
            kept.append(w.permute(w.exp(v), axes=(1, 0)))
    for k in kept:
        v = w.matmul(v, k)
    program = w.compile(v)
    x = np.full((512, 512), 0.01, np.float32)
    program([x])  # what is made once
    tracemalloc.start()
    try:
        result = program([x])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    del result
    assert program.plan.peak <= peak <= program.plan.peak + 100_000


def test_figures_and_source_are_explained() -> None:
    w = Writer(MATRIX, MATRIX)
    program = w.compile(w.subtract(0, w.exp(w.exp(1))), donate=(0,))
    text = program.explain(source=True)
    assert "3 nodes: exp × 2, subtract" in text
    assert "donated inputs overwritten: %0" in text
    assert "memory: at most 128 B without inputs and constants" in text
    assert "v2 = exp(v2, v2)" in text
    assert "v2 = exp" not in program.explain()


def test_only_inputs_can_be_donated() -> None:
    w = Writer(MATRIX)
    with pytest.raises(ShapeError, match="numbers below 1"):
        w.compile(w.exp(0), donate=(1,))


def test_conditions_are_ready_before_anything_is_overwritten() -> None:
    w = Writer(MATRIX, MATRIX)
    new = w.subtract(0, w.exp(1))
    fine = w.all(w.isfinite(w.exp(1)), axes=(0, 1), keepdims=False)
    w.graph.outputs = (new, fine)
    program = fb.device("numpy").backend.compile(w.graph, None, donate=(0,), ready=(1,))
    seen: list[Any] = []
    state = np.ones((8, 4), np.float32)
    program([state, state.copy()], lambda flags: seen.append((bool(flags[0]), state.copy())))
    ((flag, before),) = seen
    assert flag
    assert (before == 1).all()

    def refuse(flags: Any) -> None:
        raise ValueError("no")

    state = np.ones((8, 4), np.float32)
    with pytest.raises(ValueError, match="no"):
        program([state, state.copy()], refuse)
    assert (state == 1).all()


def test_an_input_that_a_condition_depends_on_after_its_update_is_not_donated() -> None:
    w = Writer(MATRIX)
    new = w.exp(0)
    fine = w.all(w.isfinite(new), axes=(0, 1), keepdims=False)
    w.graph.outputs = (new, fine)
    program = fb.device("numpy").backend.compile(w.graph, None, donate=(0,), ready=(1,))
    assert program.writes == frozenset()


@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_a_reshape_that_merges_axes_out_of_order_is_known_to_be_a_copy(engine: str) -> None:
    if engine == "torch":
        pytest.importorskip("torch", reason="torch, for the engine torch:cpu")
    stack, vectors = Aval((2, 4, 8), fb.float32), Aval((2, 8, 4), fb.float32)

    def plan(axes: tuple[int, ...], shape: tuple[int, ...]) -> Any:
        w = Writer(stack, vectors)
        product = w.matmul(0, 1)
        return w.compile(w.exp(w.exp(w.reshape(w.permute(product, axes=axes), shape=shape))), engine=engine).plan

    copied, seen = plan((1, 0, 2), (4, 8)), plan((0, 1, 2), (2, 16))
    assert copied.peak == 2 * 2 * 4 * 4 * 4  # the product and its copy
    assert copied.into == {3: 4, 4: 5}  # what follows is written over the copy, which is nobody's view
    assert seen.into == {4: 5}


@given(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=300)
def test_which_reshapes_are_views_is_what_numpy_finds(shape: list[int], random: Any) -> None:
    axes = list(range(len(shape)))
    random.shuffle(axes)
    x = np.zeros(shape, np.int8).transpose(axes)
    goal, left = [], x.size
    for _ in range(random.randrange(4)):
        goal.append(random.choice([d for d in range(1, left + 1) if left % d == 0]))
        left //= goal[-1]
    goal.append(left)
    view = strided(x.shape, x.strides).reshaped(tuple(goal))
    strides = None if view is None else view.strides
    assert (strides is not None) == np.shares_memory(x.reshape(goal), x)
    if strides is not None:
        np.testing.assert_array_equal(np.lib.stride_tricks.as_strided(x, goal, strides), x.reshape(goal))


@pytest.mark.parametrize(("forms", "over"), [
    ({"into": "f({0}, {1}, out={out})"}, {"x": "x", "y": "y", "both": "x"}),
    ({"first": "{0}.subtract_({1})"}, {"x": "x", "y": None, "both": "x"}),
    ({}, {"x": None, "y": None, "both": None}),
])  # fmt: skip
def test_a_kernel_that_writes_over_its_first_operand_alone_never_writes_over_another(
    forms: dict[str, str], over: dict[str, str | None]
) -> None:
    for dead in ("x", "y", "both"):
        w = Writer(MATRIX)
        x, y = w.exp(0), w.tanh(0)
        z = w.subtract(x, y)
        out = z if dead == "both" else w.multiply(z, y if dead == "x" else x)
        w.graph.outputs = (out,)
        plain, tested = Kernel("f({0})", layout=ROWS), Kernel("f({0}, {1})", layout=ROWS, **forms)
        kernels = [tested if n.first == z else plain for n in w.graph.nodes]
        wanted = {"x": x, "y": y, None: None}[over[dead]]
        assert plan_memory(w.graph, kernels).into.get(2) == wanted, dead
