"""The generator of ``Prefix`` has the bits of the naive form for lines of every number, length and place."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from lowered_bodies import Body, body_of

import firebrick as fb
from firebrick.compiler.fusion.facts import ALONE
from firebrick.compiler.spec import kinds
from firebrick.compiler.spec.prefix import Prefix
from firebrick.compiler.spec.running import RUNNING
from firebrick.compiler.targets.llvm import lower, prefix_kernels, running_extremes
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import local

FOLDS = ("sum", "prod", "max", "min")
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint32", "uint64")
SHAPES = ((1, 1, 1), (5, 7, 1), (9, 3, 1), (2, 5, 3), (3, 4, 17), (1, 6, 64), (2, 2, 139), (11, 1, 5), (4, 33, 1))


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    of = getattr(fb, dtype).np
    if "float" not in dtype:
        return rng.integers(-3 if dtype[0] == "i" else 0, 4, shape).astype(of)
    x = rng.normal(size=shape).round(1)
    x[rng.random(shape) < 0.05] = np.nan
    x[rng.random(shape) < 0.1] = -0.0
    return x.astype(of)


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_lines_are_scanned_as_the_specification_says(fold: str, dtype: str) -> None:
    rng = np.random.default_rng(FOLDS.index(fold))
    for shape in SHAPES:
        reverse = bool(rng.integers(2))
        x = _drawn(rng, shape, dtype)
        body = body_of((x,), (f"cumulative_{fold}", (0,), {"axis": 1, "reverse": reverse}))
        assert lower.kind_of(body.nodes[0], tuple(body.inputs)) == ALONE
        spec = kinds.spec_of(body)
        assert isinstance(spec, Prefix)
        got = Body(body)(x)
        want = [np.empty(x.size, y.dtype) for y in got]
        with np.errstate(all="ignore"):
            spec.interpret([x.reshape(-1)], want)
        for a, b in zip(got, want, strict=True):
            assert a.reshape(-1).tobytes() == b.tobytes(), f"{fold} of {dtype}{shape}, reverse={reverse}"


@pytest.mark.parametrize("fold", RUNNING)
@pytest.mark.parametrize("dtype", [d for d in DTYPES if "float" in d])
def test_lines_of_folds_with_longer_steps_are_scanned_as_the_specification_says(fold: str, dtype: str) -> None:
    rng = np.random.default_rng(sorted(RUNNING).index(fold))
    for shape in (*SHAPES, (75, 3, 1), (32, 2, 1), (6, 1, 1)):
        params = {"axis": 1, "reverse": bool(rng.integers(2))}
        op = "cumulative_logsumexp" if fold == "logsumexp" else "linear_recurrence"
        if op == "linear_recurrence":
            params["shifted"] = fold == "shifted_recurrence"
        xs = [_drawn(rng, shape, dtype) for _ in range(RUNNING[fold].operands)]
        body = body_of(xs, (op, tuple(range(len(xs))), params))
        spec = kinds.spec_of(body)
        assert isinstance(spec, Prefix)
        assert spec.fold == fold
        (got,) = Body(body)(*xs)
        want = np.empty(got.size, got.dtype)
        spec.interpret([x.reshape(-1) for x in xs], [want])
        found, exact = (y.reshape(-1).astype(np.float64) for y in (got, want))  # NaN may have either sign
        np.testing.assert_array_equal(found, exact, f"{fold} of {dtype}{shape}, {params}")


@pytest.mark.parametrize("fold", ["sum", "logsumexp"])
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_each_line_is_scanned_by_one_item(lanes: int, fold: str) -> None:
    for outer, inner in product((1, 3, 4, 5, 9, 37, 64), (1, 2, 3, 8, 9, 31, 32, 33, 40, 100)):
        spec = Prefix(fold, outer, 3, inner, False, "float32", "float64", (0,))
        seen: list[int] = []
        for part in prefix_kernels._parts(spec, lanes):
            (rows, far), (tiles, near) = part.grid
            assert part.filled <= part.lanes <= lanes
            for row, tile, offset in product(range(rows), range(tiles), part.offsets):
                first = part.first + row * far + tile * near + offset
                seen += range(first, first + part.filled * part.stride, part.stride)
        assert sorted(seen) == [o * 3 * inner + i for o in range(outer) for i in range(inner)], f"{outer} rows of {inner}"


def test_the_bits_are_the_same_at_every_width_of_vectors() -> None:
    x = _drawn(np.random.default_rng(4), (3, 50, 37), "float32")
    for op, axis in (("cumulative_sum", 1), ("cumulative_logsumexp", 1), ("cumulative_logsumexp", 2)):
        body = body_of((x,), (op, (0,), {"axis": axis, "reverse": False}))
        made = [Body(body, Target.host(bits)) for bits in (0, 128)]
        assert made[0].lowered.text != made[1].lowered.text
        np.testing.assert_array_equal(*(found(x)[0] for found in made))


def _extremes(fold: str, dtype: str, shape: tuple[int, int], reverse: bool, bits: int) -> bool:
    """Whether the kernel of rows has the bits of the specification."""
    rng = np.random.default_rng(shape[1])
    x = _drawn(rng, shape, dtype)
    body = body_of((x,), (f"cumulative_{fold}", (0,), {"axis": 1, "reverse": reverse}))
    spec = kinds.spec_of(body)
    assert isinstance(spec, Prefix)
    target = Target.host(bits)
    assert running_extremes.lanes_of(spec, target)
    got = Body(body, target)(x)
    want = [np.empty(x.size, y.dtype) for y in got]
    with np.errstate(all="ignore"):
        spec.interpret([x.reshape(-1)], want)
    return all(a.reshape(-1).tobytes() == b.tobytes() for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes_of_rows_that_are_vectors_are_those_of_the_specification(dtype: str) -> None:
    for fold, shape, reverse, bits in (
        ("max", (9, 33), False, 0), ("min", (4, 64), True, 0), ("max", (3, 96), True, 128), ("min", (6, 101), False, 128),
    ):  # fmt: skip
        assert _extremes(fold, dtype, shape, reverse, bits), f"{fold} of {dtype}{shape}, reverse={reverse}, {bits} bits"


def test_a_kernel_of_rows_that_takes_the_last_of_equal_extremes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _extremes("max", "int32", (4, 64), False, 0)
    monkeypatch.setattr(running_extremes, "better", lambda fold, dtype: local("x", dtype) >= local("total", dtype))
    assert not _extremes("max", "int32", (4, 64), False, 0)


def test_short_rows_and_reversed_ones_with_a_rest_are_scanned_line_by_line() -> None:
    target = Target.host(128)
    spec = Prefix("max", 5, 64, 1, True, "float32", "float32", (0,))
    assert running_extremes.lanes_of(spec, target) == 4
    for other in ({"size": 7}, {"size": 65}, {"inner": 2}, {"fold": "sum"}):
        assert not running_extremes.lanes_of(replace(spec, **other), target), other
