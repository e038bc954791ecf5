"""Random programs of rows, scatters, views, matrices and control flow agree with NumPy in float64: values, gradients, tangents
and batches, as the driver's kernels are, with rows by groups as on GPUs, and with arrays in several bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import firebrick as fb

COLUMNS = (1, 3, 4, 5, 63, 64, 65, 129, 255, 256, 1023, 4096, 4099)
"""Sizes about those from which kernels have other forms."""
Step = Callable[[fb.Tensor, fb.Tensor, fb.Tensor, fb.Tensor], fb.Tensor]
"""From two arrays [rows, columns], indices of rows [n], and indices of columns [rows, m], to an array."""


def _matrices(x: fb.Tensor, upper: bool) -> fb.Tensor:
    """Positive definite [rows, rows]; its factor."""
    rows, columns = x.shape
    product = fb.matmul(x, fb.matrix_transpose(x)) * (1.0 / columns)
    return fb.linalg.cholesky(product + 2.0 * fb.eye(rows, dtype=x.dtype, device=x.device), upper=upper)


def _transposed_triangle(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
    rows = len(x)
    triangle = fb.tanh(y[:, :1]) * 0.1 + fb.eye(rows, dtype=x.dtype, device=x.device)
    return fb.linalg.solve_triangular(fb.matrix_transpose(triangle), x, upper=True, unitriangular=True)


def _in_place(x: fb.Tensor, y: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
    z, part = x + 0.0, max(1, x.shape[1] // 3)
    z[:, :part] = y[:, :part]
    z[i[0]] = y[0]
    z += x * 0.1
    return z


STEPS: tuple[Step, ...] = (
    lambda x, y, i, j: fb.softmax(x, axis=-1),
    lambda x, y, i, j: fb.tanh(x) * y,
    lambda x, y, i, j: x - fb.mean(x, axis=-1, keepdims=True),
    lambda x, y, i, j: x * 0.5 + fb.mean(x * y, axis=-1, keepdims=True),
    lambda x, y, i, j: fb.index_add(x, i, fb.take(y, i, axis=0) * 0.3, axis=0),
    lambda x, y, i, j: fb.scatter_add(x, j, fb.take_along_axis(y, j, axis=1), axis=1),
    lambda x, y, i, j: fb.scatter(x, j, fb.take_along_axis(y, j, axis=1), axis=1, reduce="max"),
    lambda x, y, i, j: fb.flip(x, axis=0) + fb.flip(y, axis=1),
    lambda x, y, i, j: fb.concat([x, y], axis=1)[:, 1 : x.shape[1] + 1],
    lambda x, y, i, j: fb.where(x > y, x, y * 0.5),
    lambda x, y, i, j: fb.linalg.solve_triangular(_matrices(y, upper=False), x, upper=False),
    lambda x, y, i, j: fb.linalg.solve_triangular(_matrices(y, upper=True), x, upper=True),
    lambda x, y, i, j: _transposed_triangle(x, y),
    lambda x, y, i, j: fb.gelu(x),
    lambda x, y, i, j: x / fb.sqrt(fb.var(x, axis=-1, keepdims=True) + 1.0),
    lambda x, y, i, j: x + fb.max(y, axis=0, keepdims=True),
    lambda x, y, i, j: fb.reshape(fb.permute_dims(x, (1, 0)), x.shape) + y,
    lambda x, y, i, j: x + fb.logsumexp(y, axis=-1, keepdims=True) * 0.1,
    lambda x, y, i, j: _in_place(x, y, i),
    lambda x, y, i, j: fb.exp(-x * x) * fb.broadcast_to(y[:1], x.shape),
)


@dataclass(frozen=True, slots=True)
class Program:
    """A program and its operands, float32 and int32.

    Attributes:
        steps: Numbers of ``STEPS``, and of the values that each reads.
        control: ``scan``, ``cond``, ``while`` or no control flow.
        way: What is computed of it.
        compiled: Whether it is compiled on the device.
    """

    steps: tuple[tuple[int, int, int], ...]
    control: str
    way: str
    compiled: bool
    operands: tuple[Any, ...]

    def body(self, x: fb.Tensor, y: fb.Tensor, i: fb.Tensor, j: fb.Tensor) -> fb.Tensor:
        """The steps."""
        values = [x, y]
        for step, a, b in self.steps:
            values.append(fb.tanh(STEPS[step](values[a % len(values)], values[b % len(values)], i, j) * 0.5))
        return values[-1]

    def value(self, x: fb.Tensor, y: fb.Tensor, i: fb.Tensor, j: fb.Tensor) -> fb.Tensor:
        """The steps in their control flow."""
        if self.control == "scan":
            return fb.scan(lambda carry, _: (self.body(carry, y, i, j), None), x, length=3)[0]
        if self.control == "cond":
            return fb.cond(fb.sum(x) > 0, lambda: self.body(x, y, i, j), lambda: self.body(y, x, i, j))
        if self.control == "while":
            start = (fb.asarray(0, device=x.device), x)
            return fb.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, self.body(c[1], y, i, j)), start)[1]
        return self.body(x, y, i, j)

    def result(self, x: fb.Tensor, y: fb.Tensor, w: fb.Tensor, i: fb.Tensor, j: fb.Tensor) -> fb.Tensor:
        """What is computed of the program."""
        f = partial(self.value, i=i, j=j)
        if self.way == "gradient":
            return fb.grad(lambda x: fb.sum(f(x * 0.7 + y * 0.3, y + x * 0.1) * w))(x)
        if self.way == "tangent":
            return fb.jvp(f, (x, y), (w, x))[1]
        if self.way == "batch":
            return fb.vmap(lambda x: f(x, y))(fb.stack([x, w]))
        return f(x, y)

    def run(self, device: Any, dtype: str, compiled: bool) -> Any:
        """The result as an array."""
        given = (fb.asarray(a.astype(dtype) if a.dtype == np.float32 else a, device=device) for a in self.operands)
        return (fb.jit(self.result) if compiled else self.result)(*given).numpy()


def drawn(seed: int) -> Program:
    """A random program."""
    rng = np.random.default_rng(seed)
    columns = int(rng.choice(COLUMNS))
    rows = int(rng.choice([1, 2, 3, 5, 16, 17])) if columns > 256 else int(rng.choice([1, 2, 3, 8, 17, 25, 64, 65]))
    x, y, w = rng.normal(size=(3, rows, columns)).astype(np.float32)
    i = rng.integers(-rows, rows, int(rng.choice([1, 2, rows, 40])), dtype=np.int32)
    j = rng.integers(-columns, columns, (rows, int(rng.choice([1, 2, 5, 70]))), dtype=np.int32)
    steps = tuple((int(rng.integers(len(STEPS))), *map(int, rng.integers(8, size=2))) for _ in range(rng.integers(2, 6)))
    control = str(rng.choice(["scan", "cond", "while", "none", "none"]))
    way = str(rng.choice(["value", "value", "gradient", "tangent", "batch"]))
    return Program(steps, control, way, bool(rng.random() < 0.75), (x, y, w, i, j))


@pytest.fixture(params=["items", "groups", "windows"])
def form(request: pytest.FixtureRequest, anew: fb.Device) -> Iterator[fb.Device]:
    """The first device, with kernels of a form. Some arrays have more windows than there are bindings, and need the host."""
    gpu = anew.backend.groups(anew).gpu
    if request.param == "groups":
        gpu.measured = replace(gpu.measured, processor=False)
    if request.param == "windows":
        gpu.measured = replace(gpu.measured, capabilities=replace(gpu.measured.capabilities, binding_bytes=16384))
    with fb.config.scope(fallback="warn" if request.param == "windows" else "error"):
        yield anew


def _agrees(program: Program, device: fb.Device) -> None:
    exact, rounded = program.run("numpy", "float64", False), program.run("numpy", "float32", False)
    found = program.run(device, "float32", program.compiled)
    assert found.shape == exact.shape
    bound = 5e-5 * max(1e-3, np.abs(exact).max()) + 20 * np.abs(rounded - exact).max()
    np.testing.assert_allclose(found, exact, rtol=0, atol=bound, err_msg=str(program.steps))


@pytest.mark.filterwarnings("ignore::firebrick.FallbackWarning")
def test_random_programs_agree_with_float64(form: fb.Device) -> None:
    for seed in range(6):
        _agrees(drawn(seed), form)


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::firebrick.FallbackWarning")
@pytest.mark.parametrize("block", range(2, 42))
def test_more_random_programs_agree_with_float64(form: fb.Device, block: int) -> None:
    for seed in range(block * 3, (block + 1) * 3):
        _agrees(drawn(seed), form)
