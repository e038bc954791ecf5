"""Which nodes a target cannot compute, by tables of capabilities; words of 64-bit integers shifted by constants; texts."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from firebrick.core.errors import DTypeError
from firebrick.scalar import evaluate
from firebrick.scalar.capabilities import CPU
from firebrick.scalar.elements import philox_word
from firebrick.scalar.expr import DTYPES, cast, const, element, fma, kept, load, local, muladd, nearest, nearest_bits
from firebrick.scalar.legalize import missing
from firebrick.scalar.text import _without_parentheses
from firebrick.scalar.wide import Words, shifted_left, shifted_right, split_int64

X = load(0, "float32")
OPS = {
    "fma": fma(X, X, X), "muladd": muladd(X, X, X), "nearest": nearest(X, 2.0), "nearest_bits": nearest_bits(X, 2.0),
    "kept": kept(X), "philox": philox_word([load(k, "uint32") for k in range(4)], load(4, "int64")),
}  # fmt: skip
# what a target lacks (or, without `no`, has beside what a processor has) → the dtypes and operations that it cannot compute
LACKS: dict[str, tuple[dict[str, bool], set[str], set[str]]] = {
    "nothing": ({}, set(), {"kept"}),
    "int64": ({"int64": False}, {"int64", "uint64"}, {"kept", "philox", "nearest_bits 64"}),
    "float64": ({"float64": False}, {"float64"}, {"kept"}),
    "narrow integers": ({"narrow_integers": False}, {"int8", "int16", "uint8", "uint16"}, {"kept"}),
    "exact fma": ({"exact_fma": False}, set(), {"kept", "fma", "muladd", "nearest", "nearest_bits"}),
    "the order of sums": ({"reassociates": True}, set(), {"nearest", "nearest_bits"}),
}


@pytest.mark.parametrize("name", LACKS)
def test_what_a_target_cannot_compute(name: str) -> None:
    change, dtypes, ops = LACKS[name]
    c = replace(CPU, **change)
    for dtype in DTYPES:
        found = missing([load(0, dtype)], c)
        assert found == (f"load of {dtype}" if dtype in dtypes else "")
    for op, e in OPS.items():
        if op == "philox" and "int64" in dtypes:
            continue
        lacking = [x for x in ("kept", "fma", "muladd", "nearest", "nearest_bits", "philox") if x in ops and x == e.op]
        assert missing([e], c) == (lacking[0] if lacking else ""), op
    assert missing([], c) == ""
    assert {f.name for f in fields(c)} >= set(change)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("amount", [0, 1, 31, 32, 33, 63, 64, 65, 1 << 32])
def test_words_are_shifted_by_a_constant_as_64_bits_are(amount: int, signed: bool) -> None:
    values = np.array([0, 1, -1, 1 << 62, -(1 << 63), 0x123456789ABCDEF, -0x123456789ABCDEF], np.int64)
    x = values if signed else values.view(np.uint64)
    bits = values.view(np.uint64)
    low, high = (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)
    a = Words(load(0, "uint32"), load(1, "uint32"))
    by = Words(const(amount & 0xFFFFFFFF, "uint32"), const(amount >> 32, "uint32"))
    by_load = Words(load(2, "uint32"), load(3, "uint32"))
    operands = [low, high, np.full(7, amount & 0xFFFFFFFF, np.uint32), np.full(7, amount >> 32, np.uint32)]
    for shifted, python in (
        (shifted_left, lambda v: v << amount),
        (lambda *w: shifted_right(*w, signed), lambda v: v >> amount),
    ):
        want = np.array([python(int(v)) & ((1 << 64) - 1) for v in x] if amount < 1 << 20 else [0] * 7, np.uint64)
        if amount >= 1 << 20 and shifted is not shifted_left and signed:
            want = np.where(values < 0, np.uint64((1 << 64) - 1), np.uint64(0))
        for way in (by, by_load):
            found = shifted(a, way)
            lower, upper = (v.astype(np.uint64) for v in evaluate([found.low, found.high], operands))
            assert ((upper << np.uint64(32) | lower) == want).all(), shifted


def test_an_element_of_64_bits_is_refused_with_the_cast_to_write() -> None:
    for dtype in ("int64", "uint64"):
        with pytest.raises(
            DTypeError, match=rf"Received: an element of x, {dtype}\.\nRemedy: pass x\.astype\(\"{dtype[:-2]}32\"\)"
        ):
            split_int64([cast(element("x", dtype, local("i", "int32")), "float32")], ())


TEXTS = {
    "": "", "a": "a", "(a)": "a", "(a + b)": "a + b", "(a) + (b)": "(a) + (b)", "((a) + (b))": "(a) + (b)", "f(a)": "f(a)",
    "(a)b": "(a)b", "(a": "(a",
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_enclosing_parentheses_are_left_out(text: str) -> None:
    assert _without_parentheses(text) == TEXTS[text]
