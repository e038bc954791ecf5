"""Random programs of exact operations, in one kernel or several, have the bits of NumPy, which computes them one by one: NaN,
infinities, signed zeros and integers that wrap, in several dtypes of one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernels_on_gpu import gpu

import firebrick as fb

Array = np.ndarray[Any, Any]
FLOATS, INTEGERS = ("float32", "float64"), ("int32", "int64", "uint64")
SIZES = (1, 3, 4, 63, 64, 65, 255, 256, 257, 1023, 4096, 4097)
HARD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, 2.0**24 + 2, 1e30, -1e30, 3.0, 65520.0])
Step = tuple[Callable[..., fb.Tensor], Callable[..., Array], tuple[str, ...]]
"""Of one or two operands of one dtype: for tensors, for arrays, and the dtypes."""
STEPS: dict[str, Step] = {
    "add": (lambda x, y: x + y, lambda x, y: x + y, FLOATS + INTEGERS),
    "subtract": (lambda x, y: x - y, lambda x, y: x - y, FLOATS + INTEGERS),
    "itself": (lambda x, y: (x + y) - (x + y), lambda x, y: (x + y) - (x + y), FLOATS + INTEGERS),
    "multiply": (lambda x, y: x * y, lambda x, y: x * y, FLOATS + INTEGERS),
    "divide": (lambda x, y: x / y, lambda x, y: x / y, FLOATS),
    "root": (lambda x, y: fb.sqrt(x), lambda x, y: np.sqrt(x), FLOATS),
    "floor": (lambda x, y: fb.floor(x), lambda x, y: np.floor(x), FLOATS),
    "negative": (lambda x, y: -x, lambda x, y: -x, (*FLOATS, "int32", "int64")),
    "where": (lambda x, y: fb.where(x > y, x, y), lambda x, y: np.where(x > y, x, y), FLOATS + INTEGERS),
    "flip": (lambda x, y: fb.flip(x, axis=1), lambda x, y: np.flip(x, 1), FLOATS + INTEGERS),
    "roll": (lambda x, y: fb.roll(x, 1, axis=0), lambda x, y: np.roll(x, 1, 0), FLOATS + INTEGERS),
    "pad": (lambda x, y: fb.pad(x, ((1, 0), (0, 0)))[:-1], lambda x, y: np.pad(x, ((1, 0), (0, 0)))[:-1], FLOATS + INTEGERS),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _with_denormals() -> None:
    if not gpu().measured.capabilities.denormals:
        pytest.skip("a driver that flushes denormal numbers")


def _as_dtype(x: Array, dtype: str) -> Array:
    """A cast as the op table defines it: floats saturate, and NaN becomes 0."""
    if x.dtype.kind != "f" or dtype in FLOATS:
        with np.errstate(over="ignore"):
            return x.astype(dtype)
    info = np.iinfo(dtype)
    whole = [0 if v != v else info.max if v >= info.max else info.min if v <= info.min else int(v) for v in x.ravel().tolist()]
    return np.array(whole, object).astype(dtype).reshape(x.shape)


def _run(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtypes = [d for d in FLOATS + INTEGERS if d != "float64" or gpu().measured.float64 is not None]
    shape = tuple(int(n) for n in rng.permutation([rng.choice(SIZES), rng.choice([1, 2, 4, 7])]))
    given = [_as_dtype(rng.choice(HARD, shape), str(rng.choice(dtypes))) for _ in range(3)]
    arrays, plan = list(given), []
    for _ in range(int(rng.integers(2, 10))):
        x, dtype = int(rng.integers(len(arrays))), str(rng.choice(dtypes))
        if rng.random() < 0.3:
            plan.append(("cast", x, dtype))
            arrays.append(_as_dtype(arrays[x], dtype))
            continue
        kind = arrays[x].dtype
        name = str(rng.choice([n for n, s in STEPS.items() if kind.name in s[2]]))
        y = int(rng.choice([k for k, a in enumerate(arrays) if a.dtype == kind]))
        plan.append((name, x, y))
        with np.errstate(all="ignore"):
            arrays.append(STEPS[name][1](arrays[x], arrays[y]))

    def program(*inputs: fb.Tensor) -> tuple[fb.Tensor, ...]:
        values = list(inputs)
        for name, x, y in plan:
            value = values[x].astype(y) if name == "cast" else STEPS[name][0](values[x], values[y])
            values.append(value)
        return tuple(values[len(given) :])

    inputs = [fb.asarray(a, device="webgpu:0") for a in given]
    for compiled in (fb.jit(program), fb.jit(lambda *a: program(*a)[-1:]), program):
        found = compiled(*inputs)
        for f, want in zip(found, arrays[-len(found) :], strict=True):
            np.testing.assert_array_equal(f.numpy(), want, err_msg=f"seed {seed}: {shape} {plan}", strict=True)
            if want.dtype.kind == "f":
                number = want == want
                np.testing.assert_array_equal(
                    np.signbit(f.numpy())[number], np.signbit(want)[number], err_msg=f"seed {seed}: {plan}"
                )


def test_programs_of_exact_operations_have_the_bits_of_numpy() -> None:
    for seed in range(40):
        _run(seed)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(1, 50))
def test_more_programs_of_exact_operations_have_the_bits_of_numpy(block: int) -> None:
    for seed in range(block * 40, (block + 1) * 40):
        _run(seed)
