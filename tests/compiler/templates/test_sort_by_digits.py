"""Sorts by digits: the launches of a ``Sort`` by templates, run by the interpreter, have the bits of the specification."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from naive_forms import run_naive

from firebrick.compiler.spec.sort import Sort
from firebrick.compiler.templates.sort_by_digits import SIZES, pays, sort_by_digits
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.scalar.capabilities import CONSERVATIVE_GPU

DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
]  # fmt: skip
GPU = replace(CONSERVATIVE_GPU, shared_bytes=32 << 10)


def drawn(rng: np.random.Generator, name: str, count: int) -> np.ndarray:
    """Elements with ties, and with all that is special of a dtype."""
    of = dtype(name)
    if of.kind == "bool":
        return rng.random(count) < 0.5
    if of.kind in ("int", "uint"):
        limits = np.iinfo(of.np)
        x = rng.integers(limits.min, limits.max, count, dtype=of.np, endpoint=True)
        x[::5] = rng.choice(np.array([limits.min, limits.max, 0, 1], of.np), len(x[::5]))
        return x
    x = rng.standard_normal(count).astype(np.float32)
    x[::4] = rng.choice(np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-6, -1e-6, 1e-41], np.float32), len(x[::4]))
    return x.astype(of.np)


def check(spec: Sort, x: np.ndarray, group_size: int, each: int) -> None:
    form = sort_by_digits(spec, GPU, group_size, each)
    assert form is not None
    count = spec.outer * spec.kept * spec.inner
    avals = [Aval((count,), dtype(spec.dtype))] + ([Aval((count,), dtype(spec.index))] if spec.index else [])
    found, fault = run_naive(form, [x], avals, native=False)
    want = [np.empty(count, a.dtype.np) for a in avals]
    spec.interpret([x], want)
    assert fault is None
    for a, b in zip(found, want, strict=True):
        assert a.tobytes() == b.tobytes(), (spec, a, b)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_is_sorted_in_the_bits_of_the_specification(name: str, descending: bool) -> None:
    x = drawn(np.random.default_rng(len(name) + descending), name, 131)
    check(Sort(1, 131, 1, 131, descending, name, "int32", (0,)), x, 32, 2)


@pytest.mark.parametrize(
    ("outer", "size", "inner", "kept"), [(1, 1, 1, 1), (3, 1, 5, 1), (2, 17, 3, 17), (1, 40, 2, 7), (17, 4, 1, 1)]
)
def test_lines_along_any_axis_are_sorted_apart(outer: int, size: int, inner: int, kept: int) -> None:
    x = drawn(np.random.default_rng(size), "float32", outer * size * inner)
    check(Sort(outer, size, inner, kept, True, "float32", "int64", (0,)), x, 32, 1)
    check(Sort(outer, size, inner, kept, False, "float32", "", (0,)), x, 64, 2)


def test_what_templates_do_not_compute_is_left_to_the_naive_form() -> None:
    spec = Sort(1, 5000, 1, 5000, False, "float32", "", (0,))
    assert pays(spec)
    assert not pays(replace(spec, size=1023, kept=1023))
    assert not pays(replace(spec, dtype="float64"))
    assert sort_by_digits(replace(spec, dtype="float64"), GPU, 64, 4) is None
    assert sort_by_digits(replace(spec, outer=0), GPU, 64, 4) is None
    assert sort_by_digits(replace(spec, size=(32 << 20) + 1), GPU, 64, 4) is not None, "keys may be larger than a binding"
    assert sort_by_digits(spec, replace(GPU, group_items=32), 64, 4) is None
    assert sort_by_digits(spec, CONSERVATIVE_GPU, *SIZES[0]) is None, "counters are larger than shared memory"
    assert sort_by_digits(spec, CONSERVATIVE_GPU, *SIZES[1]) is not None
