"""Copies, scatters and searches some of whose operands have no elements: kernels, with the values of NumPy's engine."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import firebrick as fb

SIZES = [0, 0, 1, 2, 3, 7]
DTYPES = ["float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "uint64"]
Case = tuple[str, Callable[..., Any], list[tuple[np.ndarray[Any, Any], str]]]


def drawn(r: Random) -> Case:
    """An operation and its operands, of any sizes: results have elements unless no index is checked."""
    rng = np.random.default_rng(r.randrange(1 << 30))
    rank, dtype = r.choice([1, 2, 2, 3]), r.choice(DTYPES)
    axis, shape = r.randrange(rank), [r.choice(SIZES) for _ in range(rank)]
    other = [r.choice(SIZES) if k == axis else n for k, n in enumerate(shape)]

    def values(shape: Any) -> tuple[np.ndarray[Any, Any], str]:
        of = np.dtype("float32" if dtype == "bfloat16" else dtype)
        return rng.integers(0, 2 if dtype == "bool" else 9, shape).astype(of), dtype

    def indices(shape: Any, size: int) -> tuple[np.ndarray[Any, Any], str]:
        return rng.integers(-size, size, shape) if size else np.zeros(shape, np.int64), r.choice(["int64", "int32"])

    name = r.choice(["concat", "set", "take", "gather", "scatter", "index_add", "search", "grad"])
    if name == "concat":
        return name, lambda *xs: fb.concat(xs, axis=axis), [values(shape), values(other), values(shape)]
    if name == "set":
        key = tuple([slice(*sorted((r.randint(0, n), r.randint(0, n))), r.choice([1, 1, 2])) for n in shape])

        def assigned(x: fb.Tensor, v: fb.Tensor) -> fb.Tensor:
            x = fb.where(x == x, x, x)  # another handle: operands stay as they are
            x[key] = v
            return x

        return name, assigned, [values(shape), values(np.empty(shape)[key].shape)]
    if name == "search":
        dtype = "float32" if dtype in ("bool", "bfloat16") else dtype
        sequence, of = values(shape[:1])
        return name, fb.searchsorted, [(np.sort(sequence), of), values(other)]
    if not all(shape):  # an index into nothing is an error, and one whose result is nothing is checked on the host
        other[axis] = 0
    if name == "take":
        return name, lambda x, i: fb.take(x, i, axis=axis), [values(shape), indices(other[axis : axis + 1], shape[axis])]
    if name == "gather":
        return name, lambda x, i: fb.take_along_axis(x, i, axis=axis), [values(shape), indices(other, shape[axis])]
    if name == "scatter":
        dtype, reduce = "int32" if dtype == "bool" else dtype, r.choice(["add", "mul", "min", "max"])
        operands = [values(shape), indices(other, shape[axis]), values(other)]
        return name, lambda x, i, u: fb.scatter(x, i, u, axis=axis, reduce=reduce), operands
    dtype = "float32" if name == "grad" or dtype == "bool" else dtype
    operands = [values(shape), indices(other[axis : axis + 1], shape[axis]), values(other)]
    if name == "index_add":
        return name, lambda x, i, u: fb.index_add(x, i, u, axis=axis), operands

    def gradient(x: fb.Tensor, i: fb.Tensor, u: fb.Tensor) -> Any:
        def loss(p: Any) -> fb.Tensor:
            return fb.sum(fb.concat([fb.take(p[0], i, axis=axis) * p[1], p[0] * p[0]], axis=axis))

        return fb.grad(loss)((x, u))

    return name, gradient, operands


def agree(case: Case, compiled: bool) -> None:
    name, f, operands = case

    def program(*xs: fb.Tensor) -> Any:
        found = f(*[fb.where(x == x, x, x) for x in xs]) if compiled else f(*xs)
        return found if isinstance(found, tuple) else (found,)

    def results(device: str) -> list[np.ndarray[Any, Any]]:
        xs = [fb.asarray(a, dtype=getattr(fb, of), device=device) for a, of in operands]
        found = (fb.jit(program) if compiled else program)(*xs)
        return [t.numpy() for t in found]

    with fb.config.scope(fallback="error"):
        made = results("webgpu:0")
    for got, want in zip(made, results("numpy"), strict=True):
        where = f"{name} {[(of, a.shape) for a, of in operands]}"
        assert (got.dtype, got.shape) == (want.dtype, want.shape), where
        assert got.tobytes() == want.tobytes(), where


def check(seed: int, count: int) -> None:
    r, names = Random(seed), set()
    for k in range(count):
        case = drawn(r)
        names.add(case[0])
        agree(case, compiled=k % 2 == 1)
    assert len(names) == 8


def test_random_operations_with_empty_parts_are_those_of_numpy() -> None:
    check(0, 60)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_random_operations_with_empty_parts(seed: int) -> None:
    check(seed, 200)
