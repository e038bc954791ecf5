"""Reductions of values that depend on their indices, along any axes of domains with axes of size 1: right, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from lowered_bodies import Body, body_of

import firebrick as fb
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.spec.evaluate import interpret
from firebrick.compiler.spec.kinds import spec_of

Array = np.ndarray[Any, Any]
Made = tuple[list[Array], list[tuple[str, tuple[int, ...], dict[str, Any]]]]
RNG = np.random.default_rng(0)
SHAPES = [(6, 5), (1, 6, 5), (6, 1, 5), (6, 5, 1), (6, 6, 6), (1, 3, 4, 5), (2, 3, 2, 5)]


def drawn(shape: tuple[int, ...], axis: int) -> Made:
    key = np.array([1, 2, 3, 4], np.uint32)
    return [key], [("random_uniform", (0,), {"shape": shape, "offset": 3, "dtype": fb.float32})]


def taken(shape: tuple[int, ...], axis: int) -> Made:
    x, at = RNG.normal(size=shape).astype(np.float32), RNG.integers(0, shape[axis], shape[axis])
    return [x, at], [("take", (0, 1), {"axis": axis})]


def scattered(shape: tuple[int, ...], axis: int) -> Made:
    one = tuple(1 if a == axis else n for a, n in enumerate(shape))
    x, update = (RNG.normal(size=s).astype(np.float32) for s in (shape, one))
    return [x, RNG.integers(0, shape[axis], one), update], [("scatter_add", (0, 1, 2), {"axis": axis})]


def groups(shape: tuple[int, ...], make: Callable[[tuple[int, ...], int], Made]) -> Iterator[tuple[str, Made]]:
    for count in range(1, len(shape) + 1):
        for axes in combinations(range(len(shape)), count):
            for axis in range(len(shape) if make is not drawn else 1):
                arrays, nodes = make(shape, axis)
                v = len(arrays)
                total = ("sum", (v,), {"axes": axes, "keepdims": True})
                yield f"{axes} of {axis}", (arrays, [*nodes, total])
                yield f"{axes} of {axis}, centred", (arrays, [*nodes, total, ("subtract", (v, v + 1), {})])


@pytest.mark.parametrize("make", [drawn, taken, scattered])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_indices_of_a_reduction_are_those_of_the_domain(shape: tuple[int, ...], make: Callable[..., Made]) -> None:
    right = 0
    for title, (arrays, nodes) in groups(shape, make):
        body = body_of(arrays, *nodes)
        spec = spec_of(body)
        assert doubt(body, spec) == ""
        (out,) = (body.avals[v] for v in body.outputs)
        (want,) = interpret(spec, arrays, [out.size], [out.dtype.name])
        try:
            compiled = Body(body)
        except TypeError:  # of the generator, which refuses it
            continue
        (got,) = compiled(*arrays)
        np.testing.assert_allclose(got.reshape(-1), want, rtol=1e-5, atol=1e-5, err_msg=title)
        right += 1
    assert right > 0
