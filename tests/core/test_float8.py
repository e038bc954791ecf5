"""The 8-bit floats: stored, moved, cast and saved on every engine; arithmetic is refused with the cast to write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import firebrick as fb

NAMES = ["float8_e4m3fn", "float8_e5m2"]
# largest number, the first that overflows, what it becomes; smallest number
EDGES = {"float8_e4m3fn": (448.0, 465.0, np.nan, 2.0**-9), "float8_e5m2": (57344.0, 61440.0, np.inf, 2.0**-16)}
each = pytest.mark.parametrize("name", NAMES)


def every_value(name: str) -> np.ndarray[Any, Any]:
    return np.arange(256).astype(np.uint8).view(getattr(ml_dtypes, name))


@each
def test_every_value_survives_the_way_through_wider_dtypes(name: str, device: str) -> None:
    host = every_value(name)
    x = fb.asarray(host, device=device)
    assert (x.dtype.name, x.nbytes) == (name, 256)
    assert x.numpy().tobytes() == host.tobytes()
    finite = np.isfinite(host.astype(np.float32))
    for wide in (fb.float16, fb.bfloat16, fb.float32, fb.float64, fb.complex64):
        back = fb.astype(x, wide)
        np.testing.assert_array_equal(back.numpy().astype(np.complex128), host.astype(np.complex128))
        if wide is not fb.complex64:
            assert fb.astype(back, name).numpy()[finite].tobytes() == host[finite].tobytes()


@each
@pytest.mark.parametrize("source", ["float64", "float32", "float16", "bfloat16", "int32", "uint8", "bool"])
def test_casts_round_to_nearest_even_and_overflow_as_stated(name: str, source: str, device: str) -> None:
    rng = np.random.default_rng(0)
    host = np.concatenate([rng.normal(size=500) * 10.0 ** rng.integers(-6, 6, 500), [0.0, 447.0, 449.0, 464.0, 480.0]])
    with np.errstate(all="ignore"):
        host = np.asarray(fb.astype(fb.asarray(host), source).numpy())
        want = host.astype(np.float32).astype(getattr(ml_dtypes, name)).astype(np.float32)
    got = fb.astype(fb.astype(fb.asarray(host, device=device), name), fb.float32).numpy()
    np.testing.assert_array_equal(got, want)


@each
def test_the_largest_the_smallest_and_what_lies_beyond(name: str, device: str) -> None:
    top, over, becomes, tiny = EDGES[name]
    x = fb.asarray([top, over, -over, np.inf, np.nan, tiny, tiny * 0.5, tiny * 0.51], dtype=fb.float32, device=device)
    got = fb.astype(fb.astype(x, name), fb.float32).numpy()
    np.testing.assert_array_equal(got, [top, becomes, -becomes, becomes, np.nan, tiny, 0.0, tiny])
    info = fb.finfo(name)
    assert (info.bits, info.max, info.dtype) == (8, top, fb.dtype(name))
    assert info.eps == {"float8_e4m3fn": 0.125, "float8_e5m2": 0.25}[name]


@each
def test_it_can_be_made_moved_indexed_and_shown(name: str, device: str) -> None:
    x = fb.asarray([[0.0, 1.0, -2.0], [0.5, 16.0, 448.0]], dtype=name, device=device)
    wide = x.numpy().astype(np.float32)
    for got, want in (
        (fb.reshape(x, (3, 2)), wide.reshape(3, 2)),
        (x.mT, wide.T),
        (x[:, ::-1], wide[:, ::-1]),
        (x[1, 1:], wide[1, 1:]),
        (fb.flip(x), wide[::-1, ::-1]),
        (fb.concat([x, x]), np.concatenate([wide, wide])),
        (fb.take(x, fb.asarray([1, 0, 1], device=device), axis=0), wide[[1, 0, 1]]),
        (fb.broadcast_to(x[:1], (2, 3)), np.broadcast_to(wide[:1], (2, 3))),
        (fb.where(fb.asarray([True, False, True], device=device), x, x[::-1]), np.where([1, 0, 1], wide, wide[::-1])),
        (fb.zeros((2,), dtype=name, device=device), np.zeros(2)),
        (fb.ones((2,), dtype=name, device=device), np.ones(2)),
        (fb.full((2,), 1.5, dtype=name, device=device), np.full(2, 1.5)),
        (fb.pad(x, ((0, 1), (0, 0)), value=2.0), np.pad(wide, ((0, 1), (0, 0)), constant_values=2.0)),
    ):
        assert got.dtype.name == name
        np.testing.assert_array_equal(got.numpy().astype(np.float32), want)
    x[0] = 2.0
    assert x[0].tolist() == [2.0] * 3
    assert f"dtype={name}" in repr(x)
    for other in ("numpy", "cpu:1"):
        assert x.to(other).numpy().tobytes() == x.numpy().tobytes()


REFUSED: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + x,
    "multiply": lambda x: x * 2.0,
    "exp": fb.exp,
    "sum": fb.sum,
    "equal": lambda x: x == x,
    "matmul": lambda x: x @ x,
    "maximum": lambda x: fb.maximum(x, x),
    "mixed": lambda x: fb.where(fb.asarray([True, False], device=x.device), x, fb.astype(x, fb.float32)),
}


@each
@pytest.mark.parametrize("what", REFUSED)
def test_arithmetic_is_refused_with_the_cast_to_write(name: str, what: str, device: str) -> None:
    x = fb.ones((2, 2), dtype=name, device=device)
    with pytest.raises(fb.DTypeError, match=r"fb\.astype\(\w+, fb\.float32\)"):
        REFUSED[what](x)


def test_it_promotes_with_nothing_and_is_no_real_floating_dtype() -> None:
    with pytest.raises(fb.DTypeError, match="float32"):
        fb.result_type(fb.float8_e4m3fn, fb.float8_e5m2)
    with pytest.raises(fb.DTypeError):
        fb.result_type(fb.float8_e4m3fn, fb.float32)
    assert fb.result_type(fb.float8_e5m2, fb.float8_e5m2) is fb.float8_e5m2
    assert not fb.isdtype(fb.float8_e5m2, ("numeric", "real floating"))
    assert not fb.can_cast(fb.float8_e5m2, fb.float32)
    with pytest.raises(fb.DTypeError, match="floating or complex"):
        fb.ones(2, dtype=fb.float8_e5m2).require_grad()
    with pytest.raises(fb.DTypeError, match=r"write 1 for True, and cast the tensor first: fb\.astype\(x, fb\.float32\)"):
        fb.result_type(fb.float8_e5m2, True)


@each
def test_numpy_gets_no_dlpack_of_it_and_is_told_so(name: str, device: str) -> None:
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(fb.ones(2, dtype=name, device=device))
