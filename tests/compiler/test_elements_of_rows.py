"""An element of a row that a kernel computes, read by its index in the same kernel: whatever the row is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lowered_bodies import Body, body_of

import firebrick as fb
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.spec.evaluate import interpret
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.spec.nest import Row
from firebrick.ir import interpret as evaluated

Array = np.ndarray[Any, Any]
Node = tuple[str, tuple[int, ...], dict[str, Any]]
RNG = np.random.default_rng(3)
SHAPES = [(4, 7), (2, 3, 5), (3, 1, 6), (1, 4)]


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def whole(shape: tuple[int, ...]) -> tuple[list[Array], list[Node]]:
    return [normal(*shape)], [("sin", (1,), {})]


def of_columns(shape: tuple[int, ...]) -> tuple[list[Array], list[Node]]:
    return [normal(*shape), normal(shape[-1])], [("subtract", (1, 2), {})]


def of_rows(shape: tuple[int, ...]) -> tuple[list[Array], list[Node]]:
    return [normal(*shape), normal(*shape[:-1], 1)], [("subtract", (1, 2), {})]


def centred(shape: tuple[int, ...]) -> tuple[list[Array], list[Node]]:
    return [normal(*shape)], [("mean", (1,), {"axes": (len(shape) - 1,), "keepdims": True}), ("subtract", (1, 2), {})]


def drawn(shape: tuple[int, ...]) -> tuple[list[Array], list[Node]]:
    key = np.array([1, 2, 3, 4], np.uint32)
    return [key], [("random_uniform", (1,), {"shape": shape, "offset": 3, "dtype": fb.float32})]


def scattered(shape: tuple[int, ...]) -> tuple[list[Array], list[Node]]:
    one = (*shape[:-1], 1)
    arrays = [normal(*shape), RNG.integers(0, shape[-1], one), normal(*one)]
    return arrays, [("scatter_add", (1, 2, 3), {"axis": len(shape) - 1})]


def gathered(shape: tuple[int, ...]) -> tuple[list[Array], list[Node]]:
    return [normal(*shape), RNG.integers(0, shape[-1], shape)], [("gather", (1, 2), {"axis": len(shape) - 1})]


@pytest.mark.parametrize("make", [whole, of_columns, of_rows, centred, drawn, scattered, gathered])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_element_of_a_computed_row_is_the_one_at_its_index(
    shape: tuple[int, ...], make: Callable[[tuple[int, ...]], tuple[list[Array], list[Node]]]
) -> None:
    more, nodes = make(shape)
    axis = len(shape) - 1
    for at in ([0, -1], RNG.integers(-shape[-1], shape[-1], 2)):
        index = np.resize(np.asarray(at, np.int64), (*shape[:-1], 1))
        arrays = [index, *more]
        v = len(arrays) + len(nodes) - 1
        row = [("softmax", (v,), {"axis": axis}), ("add", (v, v + 1), {}), ("gather", (v + 2, 0), {"axis": axis})]
        body = body_of(arrays, *nodes, *row)
        spec = spec_of(body)
        assert isinstance(spec, Row)
        assert make in (drawn, scattered) or doubt(body, spec) == "", "indices as numbers are not always proved"
        (want,) = evaluated(body, arrays, lambda op, xs, params: op.reference(*xs, **params))
        assert want.shape == index.shape
        (got,) = interpret(spec, arrays, [want.size], ["float32"])
        np.testing.assert_allclose(got, want.reshape(-1), rtol=1e-6, atol=1e-6)
        (native,) = Body(body)(*arrays)
        np.testing.assert_allclose(native, want, rtol=1e-6, atol=1e-6)
