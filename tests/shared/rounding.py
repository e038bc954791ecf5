"""How far a computation in a dtype may be from the exact one: rounding of the op table's size, carried through the whole of it.

A comparison of one op has its bound in the table, k · eps · scale. A composition (a loss with its gradient, a network and five
steps of its training) has none there, and a number written into a test is either too tight for some processor or so loose that
it hides a fault. So the bound is measured. ``exact`` runs the function in float64 on NumPy; then ``TRIALS`` times more with the
result of every op moved at random by the table's k · eps(dtype) · scale, which is the condition of this computation at these
operands. ``Exact.check`` holds results to ``FACTOR`` times the root mean square of what that changed.

Source: Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

import firebrick as fb
from firebrick.backends import register_backend, registry
from firebrick.backends.contract import Backend
from firebrick.backends.decorators import Decorator
from firebrick.compiler import Executable, build
from firebrick.core import trees
from firebrick.core.dtypes import DType, limits
from firebrick.core.op import Op
from firebrick.ir import Graph, interpret
from firebrick.ops.accuracy import deviation, run_reference, scale_of, tolerance_of, widen

TRIALS = 6
# k is a bound and the moves are as large as it on average; 6 of them leave an estimate that is low by 4 once in 10^4 elements
FACTOR = 4.0
# of an element whose moves happened to cancel in all trials: a share of what its array was moved by
SHARE = 0.125


class Rounding(Decorator):
    """An engine whose inexact results are moved by the errors that their ops may make in a narrower dtype."""

    def __init__(self, inner: Backend, dtype: DType, seed: int) -> None:
        super().__init__(inner)
        self.report = (dtype, seed)

    def execute(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
        result = self.inner.execute(op, inputs, params, None)
        arrays = tuple(np.asarray(self.inner.to_host(x)) for x in inputs)
        many = result if type(result) is tuple else (result,)
        results = tuple(moved(op, arrays, params, np.asarray(r), i, *self.report) for i, r in enumerate(many))
        return results if type(result) is tuple else results[0]

    def compile(self, graph: Any, device: Any = None, donate: Iterable[int] = (), ready: Iterable[int] = ()) -> Executable:
        return build(self, graph, device or self.first_device())


def moved(op: Op, arrays: tuple[Any, ...], params: dict[str, Any], result: Any, number: int, dtype: DType, seed: int) -> Any:
    """A result of an op in float64, moved by up to √3 · k · eps · scale, which is k · eps · scale in the mean square.

    Below the smallest normal number of ``dtype``, what is moved is of its size. Half precision is computed in float32 and
    rounded once, so there k counts in float32, and half an eps of the result comes to it.

    As a real error does, it depends on the values alone: equal results stay equal, and exact ones (those that ``arrays`` hold
    already, small whole numbers) stay as they are.
    """
    k = tolerance_of(op, arrays)
    if not k or result.dtype.kind not in "fc" or op.name.startswith("random"):
        return result
    with np.errstate(all="ignore"):
        scale = scale_of(op, arrays, params, result, number)
        eps, magnitude = dtype.eps, np.abs(result)
        size = magnitude if scale is None else np.maximum(np.abs(scale), magnitude)
        error = k * min(eps, fb.float32.eps) * size
        if dtype.itemsize < 4:
            error = error + 0.5 * eps * magnitude
        error = np.where(size > 0, np.maximum(error, eps * float(limits(dtype).smallest_normal)), 0.0)
        if scale is None:  # no rounding of a result changes its sign
            error = np.minimum(error, magnitude / 2)
        noise = _noise(result, seed)
        noise = np.where(result == 0, np.abs(noise), noise)  # a variance of 0 does not become negative
        new = result + error * 3**0.5 * noise
        keep = ~np.isfinite(new)
        if op.fusion == "map":
            keep |= (result == np.round(result)) & (magnitude * eps <= 1)
            for x in arrays:
                keep |= result == x
    return np.where(keep, result, new).astype(result.dtype, copy=False)


def _noise(x: Any, seed: int) -> Any:
    """Numbers in [-1, 1) that are a hash of those of an array of float64 or complex128 (SplitMix64)."""
    parts = np.ascontiguousarray(x).astype(np.complex128 if x.dtype.kind == "c" else np.float64).view(np.uint64)
    with np.errstate(over="ignore"):
        h = parts.reshape(-1) + np.uint64((seed + 1) * 0x9E3779B97F4A7C15 % 2**64)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    found = (h >> np.uint64(11)) * 2.0**-52 - 1.0
    return (found.view(np.complex128) if x.dtype.kind == "c" else found).reshape(x.shape)


@contextmanager
def rounding(dtype: Any, seed: int) -> Iterator[None]:
    """Within, every op on the ``numpy`` engine errs as in a dtype."""
    inner = registry.backend("numpy")
    register_backend(Rounding(inner, fb.dtype(dtype), seed))
    try:
        yield
    finally:
        register_backend(inner)


@dataclass(frozen=True)
class Exact:
    """What a computation gives in float64, and by how much rounding in a dtype may change each element.

    Attributes:
        values: Its tensors, in order, as arrays.
        errors: For each, the root mean square of the changes that simulated rounding made.
        eps: Precision of the dtype.
    """

    values: tuple[np.ndarray, ...]
    errors: tuple[np.ndarray, ...]
    eps: float

    def check(self, results: Any, what: str = "", names: Iterable[str] | None = None) -> None:
        """Assert that results, a tree of as many tensors or arrays, differ by no more than rounding may change them."""
        found = self.worst(results)
        labels = list(names) if names is not None else [f"result {i}" for i in range(len(found))]
        wrong = [f"{label}: {text}" for label, text in zip(labels, found, strict=True) if text]
        assert not wrong, f"{what or 'results'} must be those of float64 within rounding\n  " + "\n  ".join(wrong)

    def worst(self, results: Any) -> list[str]:
        """For each result the element that is furthest beyond its bound, in words; empty where all are within."""
        leaves = [np.asarray(x.numpy() if isinstance(x, fb.Tensor) else x) for x in trees.flatten(results)[0]]
        assert len(leaves) == len(self.values), f"{len(leaves)} results instead of {len(self.values)}"
        return [self._beyond(*row) for row in zip(leaves, self.values, self.errors, strict=True)]

    def _beyond(self, got: np.ndarray, want: np.ndarray, error: np.ndarray) -> str:
        if got.shape != want.shape:
            return f"shape {got.shape} instead of {want.shape}"
        if want.dtype.kind not in "fc":
            return "" if np.array_equal(got, want) else f"{got} instead of {want}"
        typical = np.sqrt(np.mean(np.square(error))) if error.size else 0.0
        allowed = FACTOR * np.maximum(error, SHARE * typical)
        # the bound's unit is eps · scale: half a unit for the rounding of the result itself
        scale = allowed / self.eps + np.abs(np.where(np.isfinite(want), want, 0.0))
        found = deviation(got, want, self.eps / fb.dtype(got.dtype).eps, scale)
        return "" if found.ok else f"{found} (rounding may change it by {allowed[found.index]:.3g})"


def exact(function: Callable[[], Any], dtype: Any, trials: int = TRIALS) -> Exact:
    """Run a function in float64, and again with rounding of ``dtype``.

    Args:
        function: Computes on the ``numpy`` engine in float64, from operands that ``dtype`` can hold, and returns a tree of
            tensors. It starts from the same state whenever it is called.
        dtype: Whose rounding to simulate.
        trials: How often.
    """
    eps = fb.dtype(dtype).eps

    def run(seed: int | None) -> tuple[np.ndarray, ...]:
        with fb.use_device("numpy"), rounding(dtype, seed) if seed is not None else nullcontext():
            return tuple(np.array(x.numpy() if isinstance(x, fb.Tensor) else x) for x in trees.flatten(function())[0])

    return _measured(run, eps, trials)


def exact_graph(graph: Graph, arrays: Iterable[np.ndarray], dtype: Any = "float32", trials: int = TRIALS) -> Exact:
    """What the references of a graph's nodes give for these inputs in float64, and what rounding of ``dtype`` may change."""
    eps = fb.dtype(dtype).eps
    wide = [widen(a) for a in arrays]

    def run(seed: int | None) -> tuple[np.ndarray, ...]:
        def apply(op: Op, xs: tuple[Any, ...], params: dict[str, Any]) -> Any:
            xs = tuple(widen(np.asarray(x)) for x in xs)
            results = run_reference(op, xs, params)
            if seed is not None:
                results = tuple(moved(op, xs, params, r, i, fb.dtype(dtype), seed) for i, r in enumerate(results))
            return results if len(results) > 1 else results[0]

        with np.errstate(all="ignore"):
            return tuple(np.asarray(x) for x in interpret(graph, wide, apply))

    return _measured(run, eps, trials)


def _measured(run: Callable[[int | None], tuple[np.ndarray, ...]], eps: float, trials: int) -> Exact:
    values = run(None)
    runs = [run(seed) for seed in range(trials)]
    errors = []
    for i, value in enumerate(values):
        if value.dtype.kind not in "fc":
            errors.append(np.zeros(value.shape))
            continue
        with np.errstate(all="ignore"):
            moves = np.abs(np.stack([found[i] for found in runs]) - value)
        moves = np.where(np.isfinite(value), moves, 0.0)
        if not np.isfinite(moves).all():
            raise ArithmeticError(f"result {i} is finite, and not with rounding")
        errors.append(np.sqrt(np.mean(np.square(moves), axis=0)))
    return Exact(values, tuple(errors), eps)


def within(got: Any, want: Any, k: float, scale: Any = None) -> None:
    """Assert that a tensor or array is within k · eps of its dtype · scale of exact values; ``scale`` is |want| by default."""
    array = np.asarray(got.numpy() if isinstance(got, fb.Tensor) else got)
    values = np.broadcast_to(np.asarray(want, np.complex128 if array.dtype.kind == "c" else np.float64), array.shape)
    found = deviation(array, values, k, None if scale is None else np.broadcast_to(np.asarray(scale, np.float64), array.shape))
    assert found.ok, str(found)
