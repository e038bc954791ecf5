"""Derived gradients of kernels without loops: finite differences, both orders; no NaN from what an item does not compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_sources import arguments_of, drawn_source, kernel_of, same_numbers

import firebrick as fb

K = fb.kernel
D = fb.float64
Array = np.ndarray[Any, Any]


@K
def laplacian(u: K.In[D, "n, m"], out: K.Out[D, "n, m"]):
    """A stencil, whose border is kept."""
    i, j = K.index()
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1:
        out[i, j] = (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]) * u[i, j]
    else:
        out[i, j] = u[i, j] ** 3


@K
def pieces(x: K.In[D, "n"], out: K.Out[D, "n"]):
    """Another formula on each interval; none is defined everywhere."""
    i = K.index()
    v = x[i]
    if v > 1.0:
        out[i] = fb.sqrt(v - 1.0) * fb.log(v)
    elif v > 0.25:
        w = v * v
        out[i] = fb.exp(-w) / (v - 0.2)
    else:
        out[i] = 0.5 * v if v > 0.0 else fb.sin(v) * (0.25 if v < -1.0 else 2.5)


@K
def changed(y: K.InOut[D, "n"], x: K.In[D, "n"]):
    """Changes its argument, twice."""
    i = K.index()
    y[i] = y[i] * x[i] + y[i]
    if x[i] > 0.0:
        y[i] *= y[i]


@K
def several(x: K.In[D, "n"], a: float, p: K.Out[D, "n"], which: K.Out[fb.int32, "n"], q: K.Out[D, "n", 2]):
    """Three results, one of integers, and one that some items do not store."""
    i = K.index()
    p[i] = a * x[i] * x[i]
    which[i] = 1 if x[i] > a else 0
    if x[i] > a:
        q[i] = fb.tanh(x[i]) + a


@K(grid="n, m")
def turned(x: K.In[D, "n, m"], order: K.In[fb.int64, "n"], out: K.Out[D, "m, n", 0]):
    """Stores to other places, in an order that an argument gives."""
    i, j = K.index()
    if x[i, j] > -1.0:
        out[j, order[i]] = x[i, j] * x[order[i], j]


@K
def gathered(x: K.In[D, "n"], at: K.In[fb.int32, "m"], w: K.In[D, "m"], out: K.Out[D, "m"]):
    """Reads elements that an argument selects, some of them several times."""
    i = K.index()
    out[i] = x[at[i]] ** 2 * w[i]


@K.function
def soft(v, bound=1.0):
    """Returns early."""
    if v > bound:
        return v, bound * v
    return v * v, v / (abs(v) + bound)


@K
def small_matrix(x: K.In[D, "n, 2"], out: K.Out[D, "n"], other: K.Out[D, "n"]):
    """Registers, loops that are written out, tuples and a function."""
    i = K.index()
    r = K.registers(D(0), (2, 2))
    for a in K.unrolled(2):
        for b in K.unrolled(2):
            r[a, b] = x[i, a] * (x[i, b] if a != b else 2.0 + x[i, a])
    determinant = r[0, 0] * r[1, 1] - r[0, 1] * r[1, 0]
    u, v = soft(determinant)
    u, v = v, u
    out[i] = min(u, 3.0) + max(v, x[i, 0])
    other[i] = K.fma(u, v, x[i, 1])


@K
def noisy(x: K.In[D, "n"], key: K.In[fb.uint32, "4"], out: K.Out[D, "n"]):
    """Drops elements at random."""
    i = K.index()
    out[i] = x[i] * x[i] * 2.0 if K.random_uniform(key, i) < 0.5 else 0.0


@K
def through_float32(x: K.In[D, "n"], out: K.Out[D, "n"]):
    """Casts numbers that float32 holds."""
    i = K.index()
    out[i] = D(fb.float32(fb.floor(x[i]))) * x[i]


def _x(*shape: int) -> fb.Tensor:
    return fb.asarray(np.random.default_rng(7).uniform(-2, 2, shape))


KEY = fb.asarray(np.array([1, 2, 3, 4], np.uint32))
CASES: dict[str, tuple[Callable[..., Any], tuple[fb.Tensor, ...]]] = {
    "stencil": (laplacian, (_x(5, 4),)),
    "pieces": (pieces, (fb.asarray([-1.5, -0.5, 0.1, 0.4, 0.9, 1.3, 1.9], dtype=D),)),
    "changed argument": (changed, (_x(7), fb.asarray(np.array([0.4, -1.1, 2.0, -0.3, 0.8, 1.7, -0.6])))),
    "several results": (lambda x, a: several(x, a)[::2], (_x(7), fb.asarray(0.3, dtype=D))),
    "other places": (lambda x: turned(x, fb.asarray([2, 0, 1])), (_x(3, 4),)),
    "gathered": (lambda x, w: gathered(x, fb.asarray([3, 3, 0, 1, 3], dtype=fb.int32), w), (_x(4), _x(5))),
    "registers": (small_matrix, (_x(6, 2),)),
    "random numbers": (lambda x: noisy(x, KEY), (_x(9),)),
    "casts": (through_float32, (_x(9),)),
}


@pytest.mark.parametrize("device", ["cpu", "numpy"])
@pytest.mark.parametrize("name", CASES)
def test_derived_gradients_are_the_finite_differences(name: str, device: str) -> None:
    f, inputs = CASES[name]
    if device == "numpy" and name in ("other places", "gathered", "random numbers"):
        pytest.skip("its constants are on another device")
    fb.gradcheck(f, tuple(x.to(device) for x in inputs), order=2)


@pytest.mark.parametrize("name", CASES)
def test_gradients_under_jit_are_those_without(name: str) -> None:
    f, inputs = CASES[name]

    def loss(given: tuple[fb.Tensor, ...]) -> fb.Tensor:
        found = f(*given)
        return sum((fb.sum(fb.sin(t)) for t in (found if isinstance(found, tuple) else (found,))), fb.asarray(0.0, dtype=D))

    plain = fb.grad(loss)(inputs)
    for found in (
        fb.jit(fb.grad(loss))(inputs),
        fb.grad(fb.jit(loss))(inputs),
        fb.grad(fb.checkpoint(loss))(inputs),
    ):
        for a, b in zip(found, plain, strict=True):
            # sums of large terms that cancel
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-14, atol=1e-15 * np.abs(b.numpy()).max())


@K
def nested(x: K.In[D, "n"], out: K.Out[D, "n"]):
    """Derivatives that are not finite, in branches that items do not take and in conditional expressions."""
    i = K.index()
    v = x[i]
    root = fb.sqrt(v) if v > 0 else 0.0
    if v > 0:
        if v > 4:
            root += fb.log(v - 4) / (v - 4)
        else:
            root += 1.0 / (4.5 - v) + fb.sqrt(4 - v if v < 4 else 1.0)
    elif v < 0:
        root = fb.sqrt(-v) + (fb.log(-v) if v < -1 else v)
    if v != 0 and 1 / v > 1:
        root *= 2
    out[i] = root


def test_an_item_gets_no_nan_from_what_it_does_not_compute() -> None:
    x = fb.asarray([0.0, -0.0, 4.0, 5.0, 0.5, -0.5, -3.0], dtype=D)
    g = fb.grad(lambda x: fb.sum(nested(x)))(x)
    v = np.array([5.0, 0.5, 0.5, 3.0])
    want = [
        0.0, 0.0, 0.25 + 1 / 0.25, 0.5 / np.sqrt(v[0]) + 1.0 - 0.0,
        2 * (0.5 / np.sqrt(v[1]) + 1 / 16 - 0.5 / np.sqrt(3.5)), -0.5 / np.sqrt(v[2]) + 1, -0.5 / np.sqrt(v[3]) - 1 / 3,
    ]  # fmt: skip
    np.testing.assert_allclose(g.numpy(), want, rtol=1e-14)
    second = fb.grad(lambda x: fb.sum(fb.grad(lambda x: fb.sum(nested(x)))(x)))(x)
    assert np.isfinite(second.numpy()).all()


@K
def halves(x: K.In[None, "n"], out: K.Out["x", "n"]):
    """A kernel of any dtype."""
    i = K.index()
    out[i] = x[i] * x[i] * 0.5


@pytest.mark.parametrize("dtype", [fb.float16, fb.bfloat16, fb.float32, D])
def test_gradients_have_the_dtype_of_their_arguments(dtype: fb.DType) -> None:
    g = fb.grad(lambda x: fb.sum(halves(x)))(fb.asarray([1.0, 2.0, -3.0], dtype=dtype))
    assert g.dtype is dtype
    assert g.tolist() == [1.0, 2.0, -3.0]


@pytest.mark.parametrize("shape", [(0,), (1,)])
def test_gradients_of_arrays_of_no_elements(shape: tuple[int, ...]) -> None:
    assert fb.grad(lambda x: fb.sum(pieces(x)))(fb.ones(shape, dtype=D) * 0.5).shape == shape
    assert fb.grad(lambda x: fb.sum(gathered(x, fb.zeros(shape, dtype=fb.int32), x)))(fb.ones(shape, dtype=D)).shape == shape


@K
def looped(x: K.In[D, "n"], out: K.Out[D, "n"]):
    """A kernel with a loop."""
    total = D(0)
    for k in range(x.shape[0]):
        total += x[k]
    out[K.index()] = total


@K
def stopped(x: K.In[D, "n"], out: K.Out[D, "n"]):
    """A loop with ``break``, which becomes a condition of the loop in kernel IR."""
    total, k = D(0), 0
    while k < 5:
        if total > x[K.index()]:
            break
        k += 1
    out[K.index()] = total


@K
def backwards(x: K.In[D, "n"], out: K.Out[D, "n"]):
    """A loop that counts down, which is a while loop in kernel IR."""
    total = D(0)
    for k in range(x.shape[0] - 1, -1, -1):
        total += x[k]
    out[K.index()] = total


@K(grid="n", deterministic=False)
def largest(x: K.In[D, "n"], out: K.Out[D, "1", 0]):
    """An atomic operation."""
    K.atomic_max(out, 0, x[K.index()])


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (stopped, "a loop, `while k < 5:`"), (backwards, "a loop, `for k in range(x.shape[0] - 1, -1, -1):`"),
        (largest, "an atomic operation, `K.atomic_max(out, 0, x[K.index()])`"),
    ],
)  # fmt: skip
def test_what_has_no_derived_gradient_is_shown_as_it_was_written(kernel: Any, text: str) -> None:
    with pytest.raises(fb.GradientError) as caught:
        fb.grad(lambda x: fb.sum(kernel(x)))(_x(3))
    lines = Path(__file__).read_text("utf-8").split("\n")
    line = lines.index("    " + text.split("`")[1]) + 1
    assert caught.value.received == f"it has {text} at {__file__}:{line}"


def test_a_kernel_with_a_loop_has_no_derived_gradient() -> None:
    with pytest.raises(
        fb.GradientError, match=r"it has a loop, `for k in range\(x.shape\[0\]\):` at .*test_kernel_gradients.py:\d+"
    ):
        fb.grad(lambda x: fb.sum(looped(x)))(_x(3))
    with pytest.raises(fb.GradientError, match="the gradient of looped"):
        fb.grad(lambda x: fb.sum(x * looped(x)))(_x(3))
    assert fb.grad(lambda x: fb.sum(x * looped(x.detach())))(fb.ones(3, dtype=D)).tolist() == [3.0, 3.0, 3.0]


def _composed(kernel: Any, tensors: list[Any]) -> tuple[Array, ...] | None:
    """The results by the operations that gradients are derived from; None of a kernel that is none of these."""
    from firebrick.compiler.kernel.language.composed import composed, obstacle

    _, operands, params = kernel._operation(kernel.bound(tuple(tensors), {}), None)
    program = kernel.program([t.dtype for t in operands], params)
    if obstacle(program):
        return None
    return tuple(t.numpy() for t in composed(program, tuple(operands), dict(params["statics"])))


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_what_gradients_are_derived_from_is_the_kernel(first: int, tmp_path: Path) -> None:
    seen = 0
    for seed in range(first, first + 20):
        kernel = kernel_of(drawn_source(seed, loops=False), tmp_path / f"drawn_{seed}.py")
        given = arguments_of(kernel, np.random.default_rng(seed))
        tensors = [fb.asarray(a, device="numpy") if isinstance(a, np.ndarray) else a for a in given]
        found = kernel(*tensors)
        derived = _composed(kernel, tensors)
        seen += derived is not None
        for a, b in zip(found if isinstance(found, tuple) else (found,), derived or (), strict=bool(derived)):
            assert same_numbers(a.numpy(), b), f"seed {seed}"
    assert seen > 10
