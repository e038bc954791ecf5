"""Kernels as WGSL text: what a driver must not see through, and elements that are no words."""

from __future__ import annotations

import numpy as np
import pytest

from firebrick.compiler.kernel import ArrayParameter, Atomic, Check, For, Function, ScalarParameter, Store, interpret
from firebrick.compiler.targets.wgsl.packed_elements import ElementMemory
from firebrick.compiler.targets.wgsl.prepared import prepared
from firebrick.compiler.targets.wgsl.shader import ITEMS, shader
from firebrick.core.errors import UnsupportedError
from firebrick.scalar.capabilities import CONSERVATIVE_GPU
from firebrick.scalar.expr import Expr, cast, const, local

ITEM = local("i", "int64")
X, Y, N = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "write"), ScalarParameter("n")
BOUNDS = {"i": (0, 99), "x": (0, 100), "y": (0, 100), "n": (0, 50)}


def text_of(value: Expr, **more: object) -> str:
    f = Function("f", (X, Y), (N,), "i", (Store("y", ITEM, value),))
    return shader(prepared(f, CONSERVATIVE_GPU, BOUNDS), **more).text  # type: ignore[arg-type]


def test_results_of_float_arithmetic_are_fenced_and_constants_are_unknown() -> None:
    text = text_of(X[ITEM] * 3.0 + 1.0)
    assert "let c0: f32 = bitcast<f32>(0x40400000u | zero);" in text
    assert "* c0)) | zero)" in text
    assert "+ c1)) | zero)" in text
    assert "| zero" not in text_of(X[ITEM] * 3.0, fences=False)


def test_the_signs_of_zeros_and_values_that_are_no_numbers_are_bits() -> None:
    for value, bits in ((-0.0, "0x80000000u"), (float("inf"), "0x7f800000u"), (float("nan"), "0x7fc00000u")):
        assert f"bitcast<f32>({bits} | zero)" in text_of(X[ITEM] * const(value, "float32"), fences=False)


def test_a_difference_of_a_number_and_itself_is_not_zero_to_the_driver() -> None:
    assert "(t1 - bitcast<f32>(bitcast<u32>(t1) ^ zero))" in text_of(X[ITEM] - X[ITEM])


def test_bindings_follow_the_arrays() -> None:
    at = Check(X[ITEM] < 1.0, 2, ITEM)
    made = shader(prepared(Function("f", (X, Y), (), "i", (at, Store("y", ITEM, X[ITEM]))), CONSERVATIVE_GPU, BOUNDS))
    lines = made.text.splitlines()
    assert lines[0] == "@group(0) @binding(0) var<storage, read> a_x: array<f32>;"
    assert lines[1] == "@group(0) @binding(1) var<storage, read_write> a_y: array<f32>;"
    assert "@binding(2) var<uniform> launch" in lines[2]
    assert "@binding(3) var<storage, read_write> faults" in lines[3]
    assert made.access == (True, False)
    assert made.checks


def test_the_words_of_a_launch() -> None:
    f = Function(
        "f", (X, Y), (N, ScalarParameter("a", "float32")), "i", (Store("y", ITEM, X[ITEM] * local("a", "float32")),), ("r",)
    )
    made = shader(prepared(f, CONSERVATIVE_GPU, {**BOUNDS, "r": (0, 3)}))
    words = made.words((-1, 1.5), (4, 25), site=7)
    assert words.dtype == np.uint32
    assert words.tolist() == [100, 0, 7, 4, 25, 0xFFFFFFFF, 0x3FC00000, 0]


@pytest.mark.parametrize("items", [1, ITEMS, ITEMS + 1, ITEMS * 65535, ITEMS * 65535 + 1, 2**31 - 1])
def test_workgroups_of_any_launch_fit_in_two_axes_and_few_are_idle(items: int) -> None:
    made = shader(prepared(Function("f", (X, Y), (), "i", (Store("y", ITEM, X[ITEM]),)), CONSERVATIVE_GPU, BOUNDS))
    x, y = made.workgroups((items,))
    assert 1 <= x <= 65535
    assert 1 <= y <= 65535
    assert items <= x * y * ITEMS < items + (y + 1) * ITEMS


def test_elements_of_8_and_16_bits_share_words() -> None:
    narrow = ElementMemory("m", "int8", atomic=True)
    assert narrow.type == "atomic<u32>"
    assert narrow.read("at") == "(bitcast<i32>((atomicLoad(&m[at / 4u]) >> ((at % 4u) * 8u)) << 24u) >> 24u)"
    assert len(narrow.write("at", "v")) == 2
    assert ElementMemory("s", "int8", shared=True).write("at", "v") == ["s[at] = v;"]


def test_64_bit_integers_are_two_words_of_memory() -> None:
    x, y = ArrayParameter("x", "int64"), ArrayParameter("y", "int64", "write")
    f = Function("f", (x, y), (), "i", (Store("y", ITEM, x[ITEM] * 3 - 1),))
    made = prepared(f, CONSERVATIVE_GPU, BOUNDS)
    assert {a.dtype for a in made.arrays} == {"uint32"}
    values = np.array([2**40 + 1, -5, 0, 2**62, -(2**63)], np.int64)
    memory = {"x": values.view(np.uint32), "y": np.zeros(10, np.uint32)}
    interpret(made, memory, {}, 5)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(memory["y"].view(np.int64), values * 3 - 1)


def test_a_counter_that_would_wrap_around_ends() -> None:
    k = local("k", "int64")
    loop = For("k", ITEM, N.value, 7, (Store("y", ITEM, cast(k, "float32")),))
    made = shader(prepared(Function("f", (Y,), (N,), "i", (loop,)), CONSERVATIVE_GPU, BOUNDS))
    assert "bitcast<u32>(stop1) - bitcast<u32>(v_k) > 7u" in made.text


def test_atomic_operations_of_64_bits_are_refused() -> None:
    y = ArrayParameter("y", "int64", "read_write")
    f = Function("f", (y,), (), "i", (Atomic("add", "y", ITEM, const(1, "int64")),))
    with pytest.raises(UnsupportedError, match="atomic operations are of 32 bits on this target\nReceived: y of int64"):
        prepared(f, CONSERVATIVE_GPU, BOUNDS)
