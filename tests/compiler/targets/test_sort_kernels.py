"""Sorts by digits have the bits of the specification, for lines of every length, dtype and place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lowered_bodies import Body, body_of

import firebrick as fb
from firebrick.compiler.fusion.facts import ALONE
from firebrick.compiler.spec import kinds
from firebrick.compiler.targets.llvm import lower, sort_kernels

DTYPES = (
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
)  # fmt: skip
SHAPES = ((3, 17, 1), (2, 100, 2), (1, 700, 1), (3, 600, 2))
Array = np.ndarray[Any, Any]


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers with many ties; floats with NaN, infinities and zeros of both signs."""
    of = getattr(fb, dtype).np
    if "float" not in dtype:
        limits = np.iinfo(of)
        wide = rng.integers(limits.min, limits.max, shape, dtype=of, endpoint=True)
        return np.where(rng.random(shape) < 0.5, wide, rng.integers(0, 9, shape).astype(of))
    x = rng.normal(size=shape).round(1)
    for share, value in ((0.05, np.nan), (0.1, -0.0), (0.1, 0.0), (0.05, np.inf), (0.05, -np.inf)):
        x[rng.random(shape) < share] = value
    return x.astype(of)


def _agree(x: Array, op: str, params: dict[str, Any]) -> None:
    body = body_of((x,), (op, (0,), params))
    got = Body(body)(x)
    want = [np.empty(y.size, y.dtype) for y in got]
    kinds.spec_of(body).interpret([x.reshape(-1)], want)  # type: ignore[union-attr]
    for a, b in zip(got, want, strict=True):
        assert a.reshape(-1).tobytes() == b.tobytes(), f"{op} of {x.dtype}{x.shape}, {params}"


def _sorted_and_chosen(x: Array, few: int, descending: bool = False) -> None:
    _agree(x, "sort", {"axis": 1, "descending": descending})
    _agree(x, "sort_values", {"axis": 1, "descending": not descending})
    _agree(x, "top_k", {"axis": 1, "k": few, "largest": not descending})


@pytest.mark.parametrize("dtype", DTYPES)
def test_short_lines_are_sorted_as_the_specification_says(dtype: str) -> None:
    rng = np.random.default_rng(DTYPES.index(dtype))
    for i, shape in enumerate(SHAPES):
        _sorted_and_chosen(_drawn(rng, shape, dtype), (shape[1] // 6, 1)[i % 2], i % 3 == 1)


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of more than a few elements are long, and have several blocks."""
    for name, value in (("LONG", 64), ("BLOCK", 100), ("BUCKET", 8)):
        monkeypatch.setattr(sort_kernels, name, value)


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_lines_are_sorted_as_the_specification_says(dtype: str) -> None:
    rng = np.random.default_rng(DTYPES.index(dtype))
    for i, shape in enumerate(((2, 333, 2), (1, 3001, 1))):
        _sorted_and_chosen(_drawn(rng, shape, dtype), (50, 1)[i], i == 1)


LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
LINES = {
    "alike": np.zeros(450),
    "NaN": np.full(451, np.nan),
    "in order": np.arange(452.0),
    "reversed": -np.arange(453.0),
    "one far away": np.append(np.zeros(400), [np.finfo(np.float64).max, 1e-300]),
    "two heaps": np.append(np.full(300, 2**62), np.arange(154)),
    "the least": np.full(455, LEAST),
    "the least and the largest": np.append(np.zeros(300, np.int64), [LEAST, MOST]),
}


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("name", LINES)
def test_long_lines_of_any_distribution_are_sorted(name: str) -> None:
    _sorted_and_chosen(LINES[name].reshape(1, -1, 1), 100)


def test_a_sort_has_the_same_bits_for_any_number_of_threads() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1, 3 * sort_kernels.BLOCK + 77, 1)).astype(np.float32)
    found = Body(body_of((x,), ("sort", (0,), {"axis": 1, "descending": False})))
    got = []
    for threads in (1, 2, 4):
        with fb.config.scope(num_threads=threads):
            got.append([y.tobytes() for y in found(x)])
    assert got[0] == got[1] == got[2]
    np.testing.assert_array_equal(np.frombuffer(got[0][0], np.float32), np.sort(x.reshape(-1)))


def test_sorts_of_many_short_lines_are_left_to_numpy() -> None:
    def kind(shape: tuple[int, ...], op: str, dtype: str = "float32") -> str:
        params: dict[str, Any] = {"k": 9, "largest": True} if op == "top_k" else {"descending": False}
        body = body_of((np.zeros(shape, dtype),), (op, (0,), {"axis": 1, **params}))
        return lower.kind_of(body.nodes[0], tuple(body.inputs))

    host = "sorts of many lines of 100 elements, which the host computes faster"
    assert kind((2000, 100), "sort") == kind((2000, 100), "sort_values") == host
    for shape, op, dtype in (
        ((200, 100), "sort", "float32"), ((2000, 100), "top_k", "float32"), ((2000, 100), "sort", "float64"),
        ((200, 1000), "sort", "float32"), ((20000, 16), "sort_values", "float32"), ((5, 40000), "sort_values", "float32"),
    ):  # fmt: skip
        assert kind(shape, op, dtype) == ALONE


def test_operations_around_a_sort_are_in_one_native_call() -> None:
    x = fb.asarray(np.random.default_rng(0).normal(size=(200, 300)).astype(np.float32))
    f = fb.jit(lambda x: fb.sort(x * 2.0, axis=1)[:, :7] + fb.top_k(x, 7).values)
    assert "native segments: 1" in f.explain(x)
    assert "outside of them: nothing" in f.explain(x)
    want = np.sort(x.numpy() * 2, axis=1)[:, :7] - np.sort(-x.numpy(), axis=1)[:, :7]
    np.testing.assert_array_equal(f(x).numpy(), want)
