"""What decoding is compiled to: attention of one query without a kernel of attention, caches that are written in place in a
loop, and tables of a loop's body outside of it. Each is the same as without a program, also where it raises an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.cpu import loops
from firebrick.compiler.fusion.expand import expanded
from firebrick.core.aval import Aval
from firebrick.core.dtypes import bool_, dtype
from firebrick.core.errors import OutOfRangeError, StateChangedError
from firebrick.ir import Graph
from firebrick.ops import OPS

RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: str = "float32") -> fb.Tensor:
    return fb.asarray(RNG.normal(size=shape).astype(dtype))


# attention of one query


def attended(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return fb.scaled_dot_product_attention(q, k, v, mask=mask)


@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
@pytest.mark.parametrize("mask", [(), (6,), (1, 6), (3, 1, 1, 6), (3, 2, 1, 6), (2, 1, 1)])
def test_one_query_sees_what_the_reference_sees(name: str, mask: tuple[int, ...]) -> None:
    q, k, v = drawn(3, 2, 1, 4, dtype=name), drawn(3, 2, 6, 4, dtype=name), drawn(3, 2, 6, 5, dtype=name)
    seen = fb.asarray(RNG.random(mask) < 0.5)
    got = fb.jit(attended)(q, k, v, seen)
    want = attended(*(t.to("numpy") for t in (q, k, v, seen)))
    assert got.dtype is q.dtype
    eps = float(fb.finfo(q.dtype).eps)
    np.testing.assert_allclose(got.numpy().astype("f8"), want.numpy().astype("f8"), rtol=64 * eps, atol=16 * eps)
    nothing = fb.zeros(mask, dtype="bool")
    assert not fb.jit(attended)(q, k, v, nothing).numpy().any()  # a query that sees nothing gets 0


def test_keys_that_are_masked_do_not_reach_the_result_and_bad_scores_do() -> None:
    q, k, v = drawn(1, 1, 1, 4), drawn(1, 1, 3, 4), drawn(1, 1, 3, 4)
    k[0, 0, 1] = fb.full(4, float("nan"))
    seen = fb.asarray([True, False, True])
    for run in (attended, fb.jit(attended)):
        assert np.isfinite(run(q, k, v, seen).numpy()).all()
        assert np.isnan(run(q, k, v, fb.asarray([True, True, True])).numpy()).all()


def ops_of(queries: int, keys: int = 6, causal: bool = False) -> set[str]:
    avals = [Aval((2, n, 4), dtype("float32")) for n in (queries, keys, keys)]
    graph = Graph([*avals, Aval((), bool_)])
    graph.outputs = graph.add(OPS["attention"], 0, 1, 2, 3, scale=0.5, causal=causal)
    return {n.op.name for n in expanded(graph).nodes}


def test_only_a_single_query_is_expanded() -> None:
    assert "attention" not in ops_of(1)
    assert "matmul" in ops_of(1)
    assert "attention" not in ops_of(1, keys=1, causal=True)
    for queries, keys, causal in ((2, 6, False), (1, 6, True), (1, 0, False)):
        assert ops_of(queries, keys, causal) == {"attention"}


def test_gradients_of_one_query_are_those_of_the_reference() -> None:
    q, k, v, seen = drawn(2, 1, 4), drawn(2, 5, 4), drawn(2, 5, 3), fb.asarray([True, True, False, True, False])
    there = seen.to("numpy")
    wanted = fb.grad(lambda given: fb.sum(attended(*given, there) ** 3.0))(tuple(t.to("numpy") for t in (q, k, v)))
    found = fb.jit(fb.grad(lambda given: fb.sum(attended(*given, seen) ** 3.0)))((q, k, v))
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


# caches in loops


def filled(cache: fb.Tensor, rows: fb.Tensor, places: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
    """Rows written to a cache one after the other, and the sum of the cache after each."""

    def step(cache: fb.Tensor, x: tuple[fb.Tensor, fb.Tensor]) -> tuple[fb.Tensor, fb.Tensor]:
        row, at = x
        cache = fb.index_copy(cache, fb.reshape(at, (1,)), row, axis=1)
        return cache, fb.sum(cache, axis=(1, 2))

    return fb.scan(step, cache, (rows, places))


@pytest.mark.parametrize("size", [(2, 5, 4), (2, 600, 16)])  # by element, and by a kernel that writes the updates alone
def test_a_cache_in_a_loop_has_the_values_of_the_plain_loop(size: tuple[int, int, int]) -> None:
    cache, rows = drawn(*size), drawn(7, size[0], 1, size[2])
    places = fb.asarray(RNG.integers(-size[1], size[1], 7))
    before = cache.numpy().copy()
    want, sums = filled(cache.to("numpy"), rows.to("numpy"), places.to("numpy"))
    found, totals = fb.jit(filled)(cache, rows, places)
    np.testing.assert_array_equal(found.numpy(), want.numpy())
    np.testing.assert_allclose(totals.numpy(), sums.numpy(), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(cache.numpy(), before)


@pytest.mark.parametrize("size", [(2, 5, 4), (2, 600, 16)])
def test_an_index_out_of_range_in_a_loop_leaves_the_caches_of_the_caller(size: tuple[int, int, int]) -> None:
    cache, rows = drawn(*size), drawn(3, size[0], 1, size[2])
    before = cache.numpy().copy()
    run = fb.jit(filled)
    run(cache, rows, fb.asarray([0, 1, 2]))
    with pytest.raises(OutOfRangeError, match=f"lie in \\[-{size[1]}, {size[1]}\\)"):
        run(cache, rows, fb.asarray([0, size[1], 1]))[0].numpy()
    np.testing.assert_array_equal(cache.numpy(), before)


def steps_of(monkeypatch: pytest.MonkeyPatch, fn: Any, *args: Any) -> list[loops.BodyStep | None]:
    """The steps of the native loops that a call compiles."""
    found: list[loops.BodyStep | None] = []
    real = loops.body_step

    def body_step(*given: Any) -> loops.BodyStep | None:
        found.append(real(*given))
        return found[-1]

    monkeypatch.setattr(loops, "body_step", body_step)
    fb.jit(fn)(*args)
    return found


def test_a_cache_in_a_loop_is_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    if not fb.config.cpu_compile:
        pytest.skip("nothing is compiled")

    def chosen(cache: fb.Tensor, rows: fb.Tensor) -> Any:
        def step(carry: Any, row: fb.Tensor) -> Any:
            cache, at = carry
            cache = fb.index_copy(cache, fb.reshape(at, (1,)), row, axis=1)
            after = fb.argmax(fb.sum(cache, axis=(0, 2)), axis=0)
            return (cache, after), after  # a carry that is a result too is not written in place

        return fb.scan(step, (cache, fb.zeros((), dtype="int64")), rows)

    (step,) = steps_of(monkeypatch, chosen, drawn(2, 700, 16), drawn(4, 2, 1, 16))
    assert step is not None
    assert list(step.over.values()) == [0]


# arrays of a body


def with_table(x: fb.Tensor, steps: int = 4) -> tuple[fb.Tensor, fb.Tensor]:
    def step(x: fb.Tensor, at: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        table = fb.asarray(np.arange(15.0, dtype=np.float32).reshape(5, 3))
        table += 1.0  # of the body's own: it may be changed
        x = x * 0.5 + fb.take(table, fb.reshape(at, (1,)), axis=0)[0]
        table[...] = table * 2.0
        return x, fb.sum(table * x)

    return fb.scan(step, x, fb.arange(steps))


def test_an_array_of_a_loops_body_is_no_obstacle_to_a_native_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawn(3)
    want = [t.numpy() for t in with_table(x)]
    for got in (fb.jit(with_table)(x), fb.jit(lambda x: fb.jit(with_table)(x))(x)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=1e-6)
    if fb.config.cpu_compile:
        (step,) = steps_of(monkeypatch, lambda x: with_table(x, 5), x)
        assert step is not None


def test_gradients_and_nested_loops_read_arrays_of_a_body() -> None:
    x = drawn(3)

    def nested(x: fb.Tensor) -> fb.Tensor:
        def outer(x: fb.Tensor, _: None) -> tuple[fb.Tensor, None]:
            scale = fb.asarray(np.float32([1.0, 2.0, 3.0]))
            return with_table(x * scale * 0.1)[0], None

        return fb.sum(fb.scan(outer, x, length=3)[0] ** 2.0)

    second = fb.grad(lambda x: fb.sum(fb.grad(nested)(x)))
    for fn, given in ((nested, x), (fb.grad(nested), x), (second, x), (fb.vmap(nested), fb.stack([x, x * 2.0]))):
        np.testing.assert_allclose(fb.jit(fn)(given).numpy(), fn(given).numpy(), rtol=1e-5, atol=1e-6)


def test_a_tensor_from_outside_is_still_not_changed_in_a_body() -> None:
    table = fb.asarray([1.0, 2.0])

    def step(x: fb.Tensor, _: None) -> tuple[fb.Tensor, None]:
        table[...] = table + x
        return x, None

    with pytest.raises(StateChangedError, match="changes a tensor that existed before it"):
        fb.jit(lambda x: fb.scan(step, x, length=2))(fb.asarray(1.0))
