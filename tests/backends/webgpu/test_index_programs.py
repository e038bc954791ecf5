"""Random integers that are computed, eagerly, in a program or in both, and used as indices: an error where NumPy's values are
out of range, and only there; else NumPy's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import firebrick as fb

DEVICE = "webgpu:0"
PROGRAMS = 50
"""Of a test."""
INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64")
Array = np.ndarray[Any, Any]


class Step(NamedTuple):
    """An operation on earlier values, in NumPy and here."""

    name: str
    exact: Callable[[list[Array]], Any]
    run: Callable[[list[fb.Tensor]], fb.Tensor]


def _integers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    info = np.iinfo(dtype)
    kind = rng.integers(4)
    if kind == 0:
        return rng.integers(0, 6, shape).astype(dtype)
    if kind == 1:
        return rng.integers(max(info.min, -6), 6, shape).astype(dtype)
    if kind == 2:
        return rng.choice(np.array([info.min, info.max, 0, 1], dtype), shape)
    return np.full(shape, rng.integers(0, 8), dtype)


def _pairs(i: int, j: int) -> list[Step]:
    names = ("add", "subtract", "multiply", "minimum", "maximum", "bitwise_and", "bitwise_or", "bitwise_xor")
    return [Step(n, lambda v, n=n: getattr(np, n)(v[i], v[j]), lambda v, n=n: getattr(fb, n)(v[i], v[j])) for n in names]


def _step(rng: np.random.Generator, values: list[Array]) -> Step:
    """An operation on values that are drawn; bools are the results of comparisons, and conditions."""
    i = int(rng.choice([k for k, v in enumerate(values) if v.dtype != np.bool_]))
    j = int(rng.choice([k for k, v in enumerate(values) if v.dtype == values[i].dtype and v.shape in (values[i].shape, ())]))
    conditions = [k for k, v in enumerate(values) if v.dtype == np.bool_ and v.shape in (values[i].shape, ())]
    dtype = values[i].dtype
    n, low, to = int(rng.integers(1, 7)), int(rng.integers(0, 3)), str(rng.choice(INTEGERS))
    number = np.asarray(n, dtype)
    found = [
        *_pairs(i, j),
        Step("less", lambda v: v[i] < v[j], lambda v: v[i] < v[j]),
        Step("equal", lambda v: v[i] == number, lambda v: v[i] == n),
        Step("cast", lambda v: v[i].astype(to), lambda v: fb.astype(v[i], to)),
        Step("add n", lambda v: v[i] + number, lambda v: v[i] + n),
        Step("remainder", lambda v: v[i] % number, lambda v: v[i] % n),
        Step("quotient", lambda v: v[i] // number, lambda v: v[i] // n),
        Step("shift", lambda v: v[i] >> np.asarray(1, dtype), lambda v: v[i] >> 1),
        Step("clip", lambda v: np.clip(v[i], low, low + n), lambda v: fb.clip(v[i], low, low + n)),
    ]
    if conditions:
        c = int(rng.choice(conditions))
        found += 3 * [Step("where", lambda v: np.where(v[c], v[i], v[j]), lambda v: fb.where(v[c], v[i], v[j]))]
    if values[i].ndim:
        pads = ((1, 0), *[(0, 0)] * (values[i].ndim - 1))
        found += [
            Step("flip", lambda v: np.flip(v[i], 0), lambda v: fb.flip(v[i], axis=0)),
            Step("pad", lambda v: np.pad(v[i], pads, constant_values=n), lambda v: fb.pad(v[i], pads, value=n)),
            Step("rest", lambda v: v[i][1:], lambda v: v[i][1:]),
            Step("twice", lambda v: np.concatenate([v[i], v[i]]), lambda v: fb.concat([v[i], v[i]])),
            Step("changed", lambda v: _changed(v[i].copy(), n), lambda v: _changed(v[i] + 0, n)),
        ]
        if values[i].size:
            found.append(Step("max", lambda v: v[i].max(0), lambda v: fb.max(v[i], axis=0)))
            found.append(Step("sum", lambda v: v[i].sum(0, dtype=dtype), lambda v: fb.sum(v[i], axis=0, dtype=str(dtype))))
    return found[rng.integers(len(found))]


def _changed(x: Any, n: int) -> Any:
    x[:1] = n
    return x


def _used(rng: np.random.Generator, v: Array, size: int) -> tuple[bool, Array, Callable[[fb.Tensor, fb.Tensor], fb.Tensor]]:
    """A use of indices into rows: whether they are in range, the exact result, and the function."""
    source, at = np.arange(2.0 * size, dtype=np.float32).reshape(size, 2), v.astype(np.int64)
    within = bool(((at >= -size) & (at < size)).all()), bool(((at >= 0) & (at < size)).all())

    def of(indices: Array, exact: Callable[[Array], Any]) -> Array:
        return np.asarray(exact(np.clip(indices, -size, size - 1)))

    kinds: list[tuple[bool, Array, Callable[[fb.Tensor, fb.Tensor], fb.Tensor]]] = [
        (within[0], of(at, lambda k: source[k]), lambda s, k: s[k]),
        (
            within[1],
            of(at, lambda k: np.eye(size, dtype=np.float32)[k]),
            lambda s, k: fb.astype(fb.one_hot(k, size), fb.float32),
        ),
    ]
    if v.ndim == 1:
        kinds.append((within[0], of(at, lambda k: np.take(source, k, 0)), lambda s, k: fb.take(s, k, axis=0)))
        added = source.copy()
        np.add.at(added, np.clip(at, -size, size - 1), 1)
        kinds.append((within[0], added, lambda s, k: fb.index_add(s, k, fb.ones((v.size, 2), device=DEVICE), axis=0)))
    return kinds[rng.integers(len(kinds))]


def check(seed: int) -> bool:
    """Draw and run a program; whether its indices are in range."""
    rng = np.random.default_rng(seed)
    shape = [(4,), (3, 4), (1,), (), (0,), (2, 1)][rng.integers(6)]
    dtype = str(rng.choice(INTEGERS))
    given: list[Array] = [
        _integers(rng, dtype, shape),
        _integers(rng, dtype, shape),
        np.asarray(rng.random(shape) < rng.choice([0.5, 1])),
    ]
    values, steps = list(given), []
    with np.errstate(all="ignore"):
        for _ in range(int(rng.integers(1, 7))):
            steps.append(_step(rng, values))
            values.append(np.asarray(steps[-1].exact(values)))
    last = max(k for k, v in enumerate(values) if v.dtype != np.bool_)
    size = int(rng.choice([1, 2, 4, 7, 130]))
    inside, want, use = _used(rng, values[last], size)
    cut = int(rng.integers(len(steps) + 1)) if rng.random() < 0.5 else int(rng.choice([0, len(steps)]))

    def through(held: list[fb.Tensor], some: list[Step]) -> list[fb.Tensor]:
        held = list(held)
        for step in some:
            held.append(step.run(held))
        return held

    def whole(source: fb.Tensor, *held: fb.Tensor) -> fb.Tensor:
        return use(source, through(list(held), steps[cut:])[last])

    source = fb.asarray(np.arange(2.0 * size, dtype=np.float32).reshape(size, 2), device=DEVICE)
    tensors = [fb.asarray(x, device=DEVICE) for x in given]
    run = fb.jit(whole) if rng.random() < 0.7 else whole
    told = (
        f"seed {seed}: {[s.name for s in steps]} cut at {cut}, indices {values[last].dtype} {values[last].tolist()} into {size}"
    )
    for _ in range(2):
        held = through(tensors, steps[:cut])
        if inside:
            np.testing.assert_array_equal(run(source, *held).numpy(), want, err_msg=told)
        else:
            try:
                run(source, *held)
            except fb.OutOfRangeError:
                continue
            pytest.fail(told)
    for x, t in zip(given, tensors, strict=True):
        np.testing.assert_array_equal(t.numpy(), x, err_msg=told)
    return inside


@pytest.mark.filterwarnings("ignore::firebrick.FallbackWarning")  # of arrays without elements
@pytest.mark.parametrize("part", range(3))
def test_indices_that_are_computed_are_checked(part: int) -> None:
    inside = [check(seed) for seed in range(part * PROGRAMS, (part + 1) * PROGRAMS)]
    assert 0.2 < np.mean(inside) < 0.8


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::firebrick.FallbackWarning")
@pytest.mark.parametrize("part", range(3, 100))
def test_more_indices_that_are_computed_are_checked(part: int) -> None:
    test_indices_that_are_computed_are_checked(part)
