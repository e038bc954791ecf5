"""Each pass fires where it may and stays away where a bit would change; ``optimize`` runs them until nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from graphs import execute, passing_op

import firebrick as fb
from firebrick.core.aval import Aval
from firebrick.core.errors import GraphError
from firebrick.graph.passes import (
    clean_casts,
    eliminate_dead_code,
    fold_constants,
    merge_common_subexpressions,
    merge_movement,
    optimize,
    pipeline,
    simplify_algebra,
)
from firebrick.graph.passes.casts import direct, holds
from firebrick.graph.passes.dead import without_inputs
from firebrick.ir import CONSTANT, Graph, Node, interpret, verify_graph
from firebrick.ir.keys import key_of

OPS = fb.ops.OPS


class Build:
    """A graph written as expressions: ``b.op("add", x, y)`` returns the number of its (first) result."""

    def __init__(self, *inputs: tuple[tuple[int, ...], str]) -> None:
        self.graph = Graph([Aval(shape, fb.dtype(name)) for shape, name in inputs])

    def op(self, name: str, *xs: int, region: int = 0, label: str | None = None, **params: Any) -> int:
        first = self.graph.add(OPS[name], *xs, **params)[0]
        self.graph.nodes[-1] = replace(self.graph.nodes[-1], region=region, label=label)
        return first

    def const(self, value: Any, dtype: str = "float32", region: int = 0) -> int:
        number = self.graph.constant(np.asarray(value, fb.dtype(dtype).np))
        self.graph.nodes[-1] = replace(self.graph.nodes[-1], region=region)
        return number

    def out(self, *values: int) -> Graph:
        self.graph.outputs = values
        verify_graph(self.graph)
        return self.graph


def ops_of(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def x_of(shape: tuple[int, ...] = (2, 3), dtype: str = "float32") -> Build:
    return Build((shape, dtype))


# dead code and common subexpressions


def test_dead_code_goes_and_inputs_outputs_and_labels_stay() -> None:
    b = Build(((2,), "float32"), ((2,), "float32"))
    dead = b.op("exp", 0)
    b.op("sin", dead)
    y = b.op("cos", 0, label="y")
    g = eliminate_dead_code(b.out(y, y, 1))
    assert ops_of(g) == ["cos"]
    assert (g.inputs, g.outputs, g.nodes[0].label) == (b.graph.inputs, (2, 2, 1), "y")


def test_a_node_stays_if_only_its_second_result_is_used() -> None:
    b = x_of()
    first = b.op("split", 0, sizes=(1, 2), axis=1)
    g = b.out(b.op("exp", first + 1))
    assert eliminate_dead_code(g) is g


def test_equal_computations_become_one() -> None:
    b = Build(((2, 3), "float32"), ((2, 3), "float32"))
    y, z = b.op("add", 0, 1), b.op("add", 0, 1, label="z")
    p, q = (b.op("split", v, sizes=(1, 2), axis=1) for v in (y, z))
    g = merge_common_subexpressions(b.out(b.op("exp", p + 1), b.op("exp", q + 1), z))
    assert ops_of(g) == ["add", "split", "exp"]
    assert g.outputs == (5, 5, 2)
    assert g.nodes[0].label == "z"


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [
        (np.zeros(2), np.zeros(2), True),
        (np.zeros(2), -np.zeros(2), False),
        (np.zeros(2), np.zeros(2, np.float32), False),
        (np.zeros(2), np.zeros((1, 2)), False),
        (np.zeros(2), np.zeros(2, np.int64), False),
        (np.array([np.nan]), np.array([np.nan]), True),
        (np.array([np.nan]), -np.array([np.nan]), False),
        (np.zeros(2, np.float16), np.zeros(2, ml_dtypes.bfloat16), False),
        (np.arange(1000), np.arange(1000), True),
        (np.arange(1000), np.arange(1000)[::-1], False),
    ],
)
def test_constants_are_one_if_their_bytes_and_dtypes_are(first: Any, second: Any, merged: bool) -> None:
    b = Build()
    g = b.out(b.const(first, first.dtype), b.const(second, second.dtype))
    assert len(merge_common_subexpressions(g).nodes) == (1 if merged else 2)


def test_parameters_are_compared_by_type_and_bits() -> None:
    values = [0, False, 0.0, -0.0, None, "0", (0,), [0], (0, 0), 0j, complex(0.0, -0.0), slice(0), slice(0, 0), fb.float32,
              fb.float64, float("nan"), -float("nan"), {"a": 0}, {"a": 0.0}]  # fmt: skip
    keys = [key_of(v) for v in values]
    assert len(set(keys)) == len(values)
    assert keys == [key_of(v) for v in values]


def test_nodes_of_different_regions_are_never_merged() -> None:
    b = x_of()
    g = b.out(b.op("exp", 0), b.op("exp", 0, region=1), b.const(1.0), b.const(1.0, region=1), b.op("exp", 0, region=2))
    assert optimize(g) is g


def test_nothing_is_merged_through_a_value_of_another_region() -> None:
    b = x_of()
    kept = b.op("permute", 0, axes=(1, 0))
    again = b.op("permute", kept, axes=(1, 0), region=1)
    negative = b.op("negative", 0)
    back = b.op("negative", negative, region=1)
    g = b.out(kept, negative, again, back)
    assert optimize(g) is g


# casts


@pytest.mark.parametrize(
    ("first", "middle", "last", "left"),
    [
        ("float32", "float64", "float32", []),
        ("float32", "float64", "float16", ["cast"]),
        ("float16", "float32", "float16", []),
        ("bfloat16", "float32", "float16", ["cast"]),
        ("bfloat16", "float16", "bfloat16", ["cast", "cast"]),
        ("float32", "float16", "float32", ["cast", "cast"]),
        ("float32", "int32", "float32", ["cast", "cast"]),
        ("int32", "int64", "int32", []),
        ("int32", "int64", "int8", ["cast"]),
        ("uint8", "int16", "uint8", []),
        ("int8", "uint16", "int8", ["cast", "cast"]),
        ("int64", "int32", "int64", ["cast", "cast"]),
        ("int32", "float64", "int32", []),
        ("int32", "float64", "int64", ["cast"]),
        ("int32", "float64", "int8", ["cast", "cast"]),  # a float saturates, an integer wraps
        ("int32", "float32", "int32", ["cast", "cast"]),
        ("int16", "float32", "float16", ["cast", "cast"]),
        ("bool", "float32", "int32", ["cast"]),
        ("bool", "int8", "bool", []),
        ("int8", "bool", "int8", ["cast", "cast"]),
        ("float8_e5m2", "float32", "float8_e5m2", ["cast", "cast"]),
        ("float32", "complex64", "complex128", ["cast"]),
    ],
)
def test_a_detour_through_a_dtype_that_holds_all_values_goes(first: str, middle: str, last: str, left: list[str]) -> None:
    b = x_of(dtype=first)
    y = b.op("cast", b.op("cast", 0, dtype=fb.dtype(middle)), dtype=fb.dtype(last))
    g = eliminate_dead_code(clean_casts(b.out(y)))
    verify_graph(g)
    assert ops_of(g) == left
    assert g.avals[g.outputs[0]].dtype is fb.dtype(last)


SMALL = [d for d in fb.core.dtypes.ALL if d.itemsize <= 2]  # every value of them can be tried
GOALS = [d for d in fb.core.dtypes.ALL if d.kind not in ("complex", "storage")]


@pytest.mark.parametrize("narrow", SMALL, ids=str)
def test_what_is_said_of_casts_holds_for_every_value(narrow: Any) -> None:
    count = 2 if narrow.kind == "bool" else 256**narrow.itemsize
    every = np.arange(count, dtype=f"uint{8 * narrow.itemsize}").view(narrow.np)
    with np.errstate(all="ignore"):
        every = every[every == every]  # NaNs differ in payload
        for middle in GOALS:
            there = OPS["cast"].reference(every, dtype=middle)
            if holds(middle, narrow):
                assert OPS["cast"].reference(there, dtype=narrow).tobytes() == every.tobytes()
            for last in GOALS:
                if direct(narrow, middle, last):
                    found = OPS["cast"].reference(every, dtype=last)
                    assert found.tobytes() == OPS["cast"].reference(there, dtype=last).tobytes(), (middle, last)


def test_a_cast_to_the_operands_dtype_goes() -> None:
    b = x_of()
    assert ops_of(clean_casts(b.out(b.op("cast", 0, dtype=fb.float32)))) == []


# movement


Make = Callable[[Build], int]


@pytest.mark.parametrize(
    ("shape", "make", "left"),
    [
        ((2, 3), lambda b: b.op("reshape", 0, shape=(2, 3)), []),
        ((2, 3), lambda b: b.op("reshape", b.op("reshape", 0, shape=(6,)), shape=(2, 3)), []),
        ((2, 3), lambda b: b.op("reshape", b.op("reshape", 0, shape=(6,)), shape=(3, 2)), ["reshape"]),
        ((2, 3), lambda b: b.op("permute", 0, axes=(1, 0)), ["permute"]),
        ((2, 3), lambda b: b.op("permute", b.op("permute", 0, axes=(1, 0)), axes=(1, 0)), []),
        ((2, 3, 4), lambda b: b.op("permute", b.op("permute", 0, axes=(1, 2, 0)), axes=(1, 2, 0)), ["permute"]),
        ((2, 1, 3), lambda b: b.op("reshape", b.op("permute", 0, axes=(1, 0, 2)), shape=(2, 3)), ["reshape"]),
        ((2, 3), lambda b: b.op("reshape", b.op("permute", 0, axes=(1, 0)), shape=(2, 3)), ["permute", "reshape"]),
        ((1, 3), lambda b: b.op("broadcast_to", b.op("broadcast_to", 0, shape=(2, 3)), shape=(4, 2, 3)), ["broadcast_to"]),
        ((1, 3), lambda b: b.op("broadcast_to", 0, shape=(1, 3)), []),
        ((5, 4), lambda b: b.op("slice", 0, starts=(0, 0), stops=(5, 4), steps=(1, 1)), []),
        ((5, 4), lambda b: b.op("slice", 0, starts=(4, 0), stops=(-1, 4), steps=(-1, 1)), ["slice"]),
        ((5, 1, 4), lambda b: b.op("reshape", b.op("slice", 0, starts=(0, 0, 1), stops=(5, 1, 2), steps=(1, 1, 1)), shape=(5,)),
         ["slice"]),
        ((4, 4), lambda b: b.op("reshape", b.op("slice", 0, starts=(0, 0), stops=(2, 4), steps=(1, 1)), shape=(4, 2)),
         ["slice", "reshape"]),
        ((1, 4), lambda b: b.op("slice", 0, starts=(0, 0), stops=(1, 4), steps=(1, 1), shape=(4,)), ["reshape"]),
        ((2, 3), lambda b: b.op("flip", b.op("flip", 0, axes=(0, 1)), axes=(1, 0)), []),
        ((2, 3), lambda b: b.op("flip", b.op("flip", 0, axes=(0, 1)), axes=(1,)), ["flip"]),
        ((1, 3), lambda b: b.op("flip", 0, axes=(0,)), []),
        ((2, 3), lambda b: b.op("flip", 0, axes=(0,)), ["flip"]),
        ((2, 3), lambda b: b.op("pad", 0, widths=((0, 0), (0, 0)), value=3), []),
        ((2, 3), lambda b: b.op("pad", 0, widths=((0, 1), (0, 0)), value=3), ["pad"]),
        ((2, 3), lambda b: b.op("concat", 0, axis=1), []),
        ((2, 3), lambda b: b.op("split", 0, sizes=(3,), axis=1), []),
    ],
)  # fmt: skip
def test_moves_that_move_nothing_go_and_two_become_one(shape: Any, make: Make, left: list[str]) -> None:
    b = x_of(shape)
    g = optimize(b.out(make(b)))
    assert ops_of(g) == left
    assert same_values(g, b.graph)


def same_values(a: Graph, b: Graph) -> bool:
    """Whether two graphs compute the same bits from small numbers."""
    xs = [np.arange(1, i.size + 1).reshape(i.shape).astype(i.dtype.np) for i in a.inputs]
    return all(
        p.tobytes() == q.tobytes() and p.shape == q.shape
        for p, q in zip(interpret(a, xs, execute), interpret(b, xs, execute), strict=True)
    )


KEYS = [slice(None), slice(1, None), slice(None, None, -1), slice(None, None, 2), slice(5, 1, -2), slice(3, 3), slice(6, 7),
        slice(0, 1, -1), slice(1, 0, -1), slice(None, None, 3), slice(2, None, -1)]  # fmt: skip


@pytest.mark.parametrize("first", KEYS, ids=str)
@pytest.mark.parametrize("second", KEYS, ids=str)
@pytest.mark.parametrize("indexed", [False, True])
def test_a_slice_of_a_slice_is_one_slice(first: slice, second: slice, indexed: bool) -> None:
    b = x_of((7,))
    y = 0
    for k, key in enumerate((first, second)):
        (start, stop, step), shape = key.indices(b.graph.avals[y].size), {}
        if indexed and k and len(range(start, stop, step)) == 1:
            shape = {"shape": ()}
        y = b.op("slice", y, starts=(start,), stops=(stop,), steps=(step,), **shape)
    g = optimize(b.out(y))
    assert len(g.nodes) <= 1
    assert same_values(g, b.graph)


def test_the_parts_of_a_split_joined_again_are_the_whole() -> None:
    b = x_of((6, 3))
    p = b.op("split", 0, sizes=(2, 1, 3), axis=0)
    g = optimize(b.out(b.op("concat", p, p + 1, p + 2, axis=0), b.op("concat", p, p + 2, p + 1, axis=0)))
    assert ops_of(g) == ["split", "concat"]
    assert g.outputs[0] == 0


def test_an_elementwise_node_broadcasts_by_itself() -> None:
    b = Build(((3,), "float32"), ((2, 3), "float32"))
    row = b.op("broadcast_to", b.op("reshape", 0, shape=(1, 3)), shape=(2, 3))
    g = optimize(b.out(b.op("add", row, 1)))
    assert ops_of(g) == ["add"]
    assert g.nodes[0].inputs == (0, 1)
    assert same_values(g, b.graph)


def test_a_broadcast_stays_where_the_results_shape_comes_from_it() -> None:
    b = Build(((3,), "float32"), ((1, 3), "float32"))
    row = b.op("broadcast_to", 0, shape=(2, 3))
    g = b.out(b.op("add", row, 1), b.op("exp", row))
    assert optimize(g) is g
    b = Build(((3,), "float32"), ((3,), "float32"))
    rows = [b.op("broadcast_to", i, shape=(2, 3)) for i in (0, 1)]
    g = optimize(b.out(b.op("add", *rows)))
    assert ops_of(g) == ["broadcast_to", "add"]
    assert same_values(g, b.graph)


def test_a_reshape_that_changes_places_stays_before_an_elementwise_node() -> None:
    b = Build(((3,), "float32"), ((3, 3), "float32"))
    g = b.out(b.op("add", b.op("reshape", 0, shape=(3, 1)), 1))
    assert optimize(g) is g


# constants


def test_what_depends_on_constants_only_is_computed_once() -> None:
    b = x_of((2, 2))
    two = b.op("add", b.const(1.0), b.const([1.0, 2.5]))
    turned = b.op("permute", b.op("broadcast_to", two, shape=(2, 2)), axes=(1, 0))
    g = optimize(b.out(b.op("subtract", 0, turned)))
    assert ops_of(g) == ["constant", "subtract"]
    assert g.nodes[0].params["value"].tolist() == [[2.0, 2.0], [3.5, 3.5]]


@pytest.mark.parametrize(
    ("name", "operands", "dtype"),
    [
        ("divide", [1.0, 3.0], "float32"),
        ("divide", [1.0, 3.0], "float16"),
        ("sqrt", [2.0], "bfloat16"),
        ("multiply", [0.1, 0.3], "float64"),
        ("pow", [3, 5], "int32"),
        ("floor_divide", [7, 0], "int8"),
        ("add", [1 + 2j, 3j], "complex64"),
        ("maximum", [1, 2], "int64"),
        ("less", [1.0, 2.0], "float32"),
        ("isnan", [np.nan], "float32"),
        ("bitwise_left_shift", [1, 40], "int32"),
    ],
)
def test_exact_and_correctly_rounded_arithmetic_is_folded(name: str, operands: list[Any], dtype: str) -> None:
    b = Build()
    g = fold_constants(b.out(b.op(name, *(b.const(v, dtype) for v in operands))))
    assert ops_of(eliminate_dead_code(g)) == ["constant"]
    assert same_values(g, b.graph)


@pytest.mark.parametrize(
    ("name", "operands", "dtype", "params"),
    [
        ("exp", [1.0], "float32", {}),
        ("sin", [1.0], "float64", {}),
        ("pow", [2.0, 3.0], "float32", {}),
        ("sum", [[0.1, 0.2]], "float32", {"axes": (0,), "keepdims": False}),
        ("multiply", [1j, 1j], "complex64", {}),
        ("abs", [1j], "complex64", {}),
        ("negative", [0j], "complex64", {}),
        ("maximum", [0.0, -0.0], "float32", {}),  # either zero may be the larger
        ("subtract", [np.inf, np.inf], "float32", {}),  # the sign of its NaN depends on the machine
        ("random_bits", [[1, 2, 3, 4]], "uint32", {"shape": (2,), "offset": 0}),
    ],
)
def test_what_engines_may_round_or_choose_differently_is_not_folded(name: str, operands: Any, dtype: str, params: Any) -> None:
    b = Build()
    g = b.out(b.op(name, *(b.const(v, dtype) for v in operands), **params))
    assert fold_constants(g) is g


def test_an_index_out_of_range_is_left_for_the_run_to_report() -> None:
    b = Build()
    g = b.out(b.op("take", b.const([1.0, 2.0]), b.const([5], "int64"), axis=0))
    assert fold_constants(g) is g


def test_a_large_broadcast_is_no_large_constant() -> None:
    b = x_of((1000, 1000))
    ones = b.op("broadcast_to", b.const(1.0), shape=(1000, 1000))
    g = b.out(b.op("exp", ones))
    assert optimize(g) is g
    b = x_of((300, 300))
    rows = b.op("broadcast_to", b.const(np.arange(300)), shape=(300, 300))
    g = b.out(b.op("multiply", rows, rows))
    assert sum(n.params["value"].size for n in optimize(g).nodes if n.op is CONSTANT) == 300


def test_a_uniform_result_is_kept_as_one_element() -> None:
    b = Build()
    g = optimize(b.out(b.op("add", b.const([1.0, 2.0]), b.const([2.0, 1.0]))))
    assert ops_of(g) == ["constant", "broadcast_to"]
    assert g.nodes[0].params["value"].shape == ()


# algebra


FLOAT = [
    ("multiply", 1.0, "both"), ("divide", 1.0, "right"), ("subtract", 0.0, "right"), ("add", -0.0, "both"),
]  # fmt: skip
INT = [
    ("add", 0, "both"), ("subtract", 0, "right"), ("multiply", 1, "both"), ("floor_divide", 1, "right"), ("pow", 1, "right"),
    ("bitwise_or", 0, "both"), ("bitwise_xor", 0, "both"), ("bitwise_left_shift", 0, "right"),
    ("bitwise_right_shift", 0, "right"),
]  # fmt: skip
BOOL = [("logical_and", True, "both"), ("logical_or", False, "both"), ("logical_xor", False, "both")]


@pytest.mark.parametrize(
    ("name", "value", "side", "dtype"),
    [(*c, d) for d in ("float32", "bfloat16") for c in FLOAT] + [(*c, "int32") for c in INT] + [(*c, "bool") for c in BOOL],
)
def test_a_neutral_operand_goes(name: str, value: Any, side: str, dtype: str) -> None:
    for left in (False, True):
        b = x_of(dtype=dtype)
        c = b.op("broadcast_to", b.const(value, dtype), shape=(2, 3))
        g = optimize(b.out(b.op(name, *((c, 0) if left else (0, c)))))
        assert (ops_of(g) == []) is (not left or side == "both")


@pytest.mark.parametrize(
    ("name", "value", "dtype"),
    [
        ("add", 0.0, "float32"), ("subtract", -0.0, "float32"), ("multiply", -1.0, "float32"), ("multiply", 0.0, "float32"),
        ("pow", 2.0, "float32"), ("pow", 1.0, "float32"), ("multiply", 1.0, "complex64"), ("add", -0.0, "complex64"),
        ("maximum", -np.inf, "float32"), ("floor_divide", 1.0, "float32"), ("divide", 2.0, "float32"), ("add", 1, "int32"),
    ],
)  # fmt: skip
def test_an_operand_that_may_change_a_bit_stays(name: str, value: Any, dtype: str) -> None:
    b = x_of(dtype=dtype)
    g = b.out(b.op(name, 0, b.const(value, dtype)))
    assert optimize(g) is g


def test_an_operand_takes_the_results_shape() -> None:
    b = x_of((1, 3))
    g = optimize(b.out(b.op("multiply", 0, b.const(np.ones((2, 3))))))
    assert ops_of(g) == ["broadcast_to"]
    assert g.avals[g.outputs[0]] == Aval((2, 3), fb.float32)


@pytest.mark.parametrize(
    ("name", "value", "dtype"),
    [("multiply", 0, "int32"), ("bitwise_and", 0, "uint8"), ("logical_and", False, "bool"), ("logical_or", True, "bool")],
)
def test_an_absorbing_operand_is_the_result(name: str, value: Any, dtype: str) -> None:
    b = x_of(dtype=dtype)
    g = optimize(b.out(b.op(name, 0, b.const(value, dtype))))
    assert ops_of(g) == ["constant", "broadcast_to"]
    assert same_values(g, b.graph)


@pytest.mark.parametrize(
    ("name", "dtype", "left"),
    [
        ("maximum", "float32", []),
        ("minimum", "int8", []),
        ("logical_or", "bool", []),
        ("bitwise_and", "int16", []),
        ("subtract", "int32", ["constant", "broadcast_to"]),
        ("subtract", "float32", ["subtract"]),
        ("equal", "int32", ["constant", "broadcast_to"]),
        ("less", "uint8", ["constant", "broadcast_to"]),
        ("equal", "float32", ["equal"]),
        ("bitwise_xor", "bool", ["constant", "broadcast_to"]),
        ("divide", "float32", ["divide"]),
    ],
)
def test_equal_operands(name: str, dtype: str, left: list[str]) -> None:
    b = x_of(dtype=dtype)
    g = optimize(b.out(b.op(name, 0, 0)))
    assert ops_of(g) == left
    assert same_values(g, b.graph)


@pytest.mark.parametrize(
    ("inner", "outer", "dtype", "left"),
    [
        ("negative", "negative", "float32", []),
        ("negative", "negative", "uint8", []),
        ("negative", "negative", "complex64", ["negative", "negative"]),
        ("conj", "conj", "complex64", []),
        ("logical_not", "logical_not", "bool", []),
        ("bitwise_invert", "bitwise_invert", "int8", []),
        ("abs", "abs", "float32", ["abs"]),
        ("negative", "abs", "int8", ["abs"]),
        ("negative", "abs", "complex64", ["negative", "abs"]),
        ("negative", "abs", "uint8", ["negative"]),
        ("abs", "negative", "float32", ["abs", "negative"]),
        ("round", "floor", "float32", ["round"]),
        ("floor", "ceil", "float16", ["floor"]),
        ("negative", "floor", "int32", ["negative"]),
        ("exp", "log", "float32", ["exp", "log"]),
        ("sqrt", "abs", "float32", ["sqrt", "abs"]),  # of -0.0 the root is -0.0
    ],
)
def test_one_after_the_other(inner: str, outer: str, dtype: str, left: list[str]) -> None:
    b = x_of(dtype=dtype)
    g = optimize(b.out(b.op(outer, b.op(inner, 0))))
    assert ops_of(g) == left
    assert same_values(g, b.graph)


def test_choices_already_made() -> None:
    b = Build(((2, 3), "bool"), ((3,), "float32"), ((2, 3), "float32"))
    yes, no = b.const(True, "bool"), b.const(np.zeros((2, 1), bool), "bool")
    outs = (
        b.op("where", yes, 1, 2),
        b.op("where", no, 1, 2),
        b.op("where", 0, 1, 1),
        b.op("where", b.op("logical_not", 0), 1, 2),
        b.op("where", b.const([True, False, True], "bool"), 1, 2),
    )
    g = optimize(b.out(*outs))
    assert sorted(ops_of(g)) == ["broadcast_to", "constant", "where", "where"]
    assert g.outputs[1] == 2
    assert g.outputs[0] == g.outputs[2]
    assert same_values(g, b.graph)


def test_the_parts_of_a_number_made_of_parts() -> None:
    b = Build(((3,), "float32"), ((2, 3), "float32"))
    z = b.op("complex", 0, 1)
    g = optimize(b.out(b.op("real", z), b.op("imag", z)))
    assert ops_of(g) == ["broadcast_to"]
    assert g.outputs == (2, 1)


@pytest.mark.parametrize(
    ("name", "dtype", "fires"),
    [("max", "float32", True), ("prod", "float32", True), ("sum", "int32", True), ("sum", "float32", False),
     ("mean", "float32", False), ("any", "bool", True), ("prod", "complex64", False)],
)  # fmt: skip
def test_a_reduction_over_axes_of_size_one_is_a_reshape(name: str, dtype: str, fires: bool) -> None:
    b = x_of((2, 1, 3), dtype)
    kept = b.op(name, 0, axes=(1,), keepdims=True)
    dropped = b.op(name, 0, axes=(1,), keepdims=False)
    full = b.op(name, 0, axes=(0,), keepdims=False)
    g = optimize(b.out(kept, dropped, full))
    assert ops_of(g) == (["reshape", name] if fires else [name] * 3)
    assert same_values(g, b.graph)


# optimize


def test_passes_find_what_others_uncover() -> None:
    b = x_of((2, 3))
    one = b.op("subtract", b.const(3.0), b.const(2.0))
    y = b.op("multiply", b.op("cast", b.op("cast", 0, dtype=fb.float64), dtype=fb.float32), one)
    z = b.op("permute", b.op("permute", y, axes=(1, 0)), axes=(1, 0), label="z")
    g = optimize(b.out(z, b.op("exp", y), b.op("exp", 0)))
    assert ops_of(g) == ["exp"]
    assert g.outputs == (0, 1, 1)


def test_names_labels_lines_and_regions_are_kept() -> None:
    b = x_of()
    y = b.op("multiply", b.op("exp", 0, region=3), b.const(1.0, region=3), region=3, label="y")
    b.graph.names = ["x"]
    b.graph.nodes[0] = replace(b.graph.nodes[0], line="m.py:3 in f")
    g = optimize(b.out(b.op("sin", y, label="out")))
    assert g.names == ["x"]
    kept = [("exp", "y", "m.py:3 in f", 3), ("sin", "out", None, 0)]
    assert [(n.op.name, n.label, n.line, n.region) for n in g.nodes] == kept


def test_optimize_leaves_its_operand_alone() -> None:
    b = x_of()
    g = b.out(b.op("negative", b.op("negative", 0)))
    before = str(g)
    assert ops_of(optimize(g)) == []
    assert str(g) == before


APPLY = passing_op("apply")


def test_graphs_inside_are_optimized_and_keep_their_inputs_and_outputs() -> None:
    inside = Build(((2,), "float32"), ((3,), "int32"))
    inside.op("exp", 1 - 1)
    body = inside.out(inside.op("negative", inside.op("negative", 0)), 1)
    x = Aval((2,), fb.float32)
    outer = Graph([x], [Node(APPLY, (0,), {"bodies": (body, body)}, 1, (x,))], (1,))
    g = optimize(outer)
    first, _ = g.nodes[0].params["bodies"]
    assert (first.nodes, first.outputs, first.inputs) == ([], (0, 1), body.inputs)
    assert len(body.nodes) == 3
    assert optimize(g) is g


# wrong passes are caught


def _drop_casts(graph: Graph) -> Graph:
    from firebrick.graph.passes.rewriter import rewrite

    return rewrite(graph, {"cast": lambda r, node, inputs: inputs[0]})


def _forget_a_result(graph: Graph) -> Graph:
    return replace(graph, nodes=graph.nodes[1:])


def _swap_outputs(graph: Graph) -> Graph:
    return replace(graph, outputs=graph.outputs[::-1])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (_drop_casts, "add: operands of one group have one dtype"),
        (_forget_a_result, "numbered in order"),
        (_swap_outputs, "_swap_outputs keeps a graph's outputs"),
    ],
)
def test_the_verifier_catches_a_wrong_pass(wrong: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    b = Build(((2,), "float32"), ((2,), "float64"))
    y = b.op("add", b.op("cast", 0, dtype=fb.float64), 1)
    g = b.out(y, 0)
    monkeypatch.setattr(pipeline, "PASSES", (wrong,))
    with pytest.raises(GraphError, match=said):
        optimize(g)  # fb.config.verify_graphs is on in tests
    monkeypatch.setattr(pipeline, "_ROUNDS", 1)
    optimize(g, verify=False)


def test_verification_is_a_setting_and_off_by_default() -> None:
    from firebrick.core.config import SETTINGS

    assert SETTINGS["verify_graphs"].default is False
    broken = Graph([], [], (4,))
    with pytest.raises(GraphError):
        optimize(broken)
    with fb.config.scope(verify_graphs="off"), pytest.raises(IndexError):
        optimize(broken)


@pytest.mark.parametrize("apply", [merge_movement, simplify_algebra, clean_casts, merge_common_subexpressions])
def test_a_pass_that_finds_nothing_returns_the_graph_itself(apply: Any) -> None:
    b = x_of()
    g = b.out(b.op("exp", b.op("sin", 0)))
    assert apply(g) is g


def test_inputs_are_left_out_with_their_names_where_they_have_any() -> None:
    one, other = Aval((2,), fb.float32), Aval((3,), fb.float32)
    for names in (["x", "y"], []):
        graph = Graph([one, other], [], (1,), names)
        found = without_inputs(graph, [1])
        assert (found.inputs, found.outputs, found.names) == ([other], (0,), names[1:])
        assert without_inputs(graph, [0, 1]) is graph
