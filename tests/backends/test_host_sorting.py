"""The host's sorts by keys have the bits of the reference, a stable argsort: values, indices and the k first."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.numpy import sorting, threads
from firebrick.core.bind import bind
from firebrick.ops import sorting as ops

DTYPES = (
    "float16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
)  # fmt: skip
SIZES = (1, 2, 3, 5, 16, 17, 31, 64, 257)


@pytest.fixture(autouse=True)
def keys_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of any size are sorted by keys."""
    monkeypatch.setattr(sorting, "_FEW", 1)


def _drawn(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Elements of all kinds: of the whole range of a dtype, few unlike ones, zeros of both signs, infinities and NaN."""
    if dtype[0] != "f":
        info, few = np.iinfo(dtype), bool(rng.integers(2))
        low, high = (0, 3) if few else (info.min, info.max)
        return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    x = rng.standard_normal(shape).astype(dtype)
    kind = rng.integers(3)
    if kind == 1:
        x = np.round(x * 2)
    if kind == 2:
        for special in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).smallest_subnormal):
            x[rng.random(shape) < 0.1] = special
    return x


def _same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _check(x: np.ndarray[Any, Any], axis: int, descending: bool, k: int) -> None:
    what = f"{x.dtype}{x.shape} strides {x.strides}, axis={axis}, descending={descending}, k={k}"
    values, at = ops.sort.reference(x, axis=axis, descending=descending)
    before = x.tobytes()
    got = sorting.sort(x, axis=axis, descending=descending)
    assert _same(got[0], values), what
    assert _same(got[1], at), what
    assert _same(sorting.sort_values(x, axis=axis, descending=descending), values), what
    first = sorting.top_k(x, k=k, axis=axis, largest=descending)
    assert _same(first[0], np.take(values, range(k), axis)), what
    assert _same(first[1], np.take(at, range(k), axis)), what
    assert x.tobytes() == before, f"the operand was overwritten: {what}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_sorts_of_any_shape_have_the_bits_of_the_reference(dtype: str) -> None:
    rng = np.random.default_rng(DTYPES.index(dtype))
    for _ in range(60):
        shape = tuple(int(n) for n in rng.choice(SIZES, rng.integers(1, 4)))
        x = _drawn(rng, dtype, shape)
        if rng.integers(2):
            x = x[..., ::-1]
        axis = int(rng.integers(x.ndim))
        _check(x, axis, bool(rng.integers(2)), int(rng.integers(0, x.shape[axis] + 1)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int16"])
def test_long_lines_are_merged_from_parts(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "_LONG", 64)
    monkeypatch.setattr(sorting, "_ALONE", 64)
    monkeypatch.setattr(sorting, "_BLOCK", 256)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    rng = np.random.default_rng(5)
    for n in (63, 64, 65, 127, 1001):
        for descending in (False, True):
            _check(_drawn(rng, dtype, (7, n)), 1, descending, 3)
            _check(_drawn(rng, dtype, (n, 2)), 0, descending, n // 2)


@pytest.mark.parametrize("engine", ["cpu", "numpy", "torch:cpu"])
@pytest.mark.parametrize("wrap", [lambda f: f, fb.jit], ids=["eager", "jit"])
def test_values_without_indices_agree_with_those_of_the_differentiated_sort(engine: str, wrap: Any) -> None:
    x = fb.asarray(_drawn(np.random.default_rng(2), "float32", (5, 40)), device=engine)
    weights = fb.arange(40, dtype=fb.float32, device=engine)
    alone = wrap(fb.sort)(x)
    _, found = fb.value_and_grad(lambda t: fb.sum(fb.sort(t) * weights))(x)
    within = wrap(lambda t: fb.value_and_grad(lambda u: (fb.sum(fb.sort(u) * weights), fb.sort(u)), has_aux=True)(t))(x)
    assert _same(alone.numpy(), ops.sort.reference(x.numpy(), axis=1, descending=False)[0])
    assert _same(within[0][1].numpy(), alone.numpy())
    order = np.argsort(np.argsort(x.numpy(), 1, kind="stable"), 1).astype(np.float32)
    assert _same(found.numpy(), order)
    assert _same(within[1].numpy(), order)


def test_a_gradient_of_the_values_op_itself_finds_the_indices() -> None:
    x = fb.asarray(np.asarray([[3.0, 1.0, 2.0]], np.float32))
    weights = fb.asarray([[1.0, 10.0, 100.0]])
    params = {"axis": 1, "descending": False}
    _, g = fb.value_and_grad(lambda t: fb.sum(bind(fb.ops.OPS["sort_values"], (t,), params) * weights))(x)
    assert g.tolist() == [[100.0, 1.0, 10.0]]


def test_work_of_parts_runs_on_so_many_threads_and_errors_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 3)
    meet, seen = threading.Barrier(3), set()

    def work(part: int) -> None:
        if part < 3:
            meet.wait(30)
        seen.add(threading.get_ident())

    threads.in_threads(work, range(7), 8)
    assert len(seen) == 3
    seen.clear()
    threads.in_threads(lambda part: seen.add(threading.get_ident()), range(7), 1)
    assert seen == {threading.get_ident()}

    def fails(part: int) -> None:
        raise MemoryError(part)

    with pytest.raises(MemoryError):
        threads.in_threads(fails, range(4), 4)
