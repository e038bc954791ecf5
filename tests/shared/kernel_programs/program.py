"""``Program``: a kernel with inputs and the same computation in plain NumPy.

Inputs are made for a size, which may be 0. The NumPy form computes in float64. A float result of the kernel may differ from it
by some units in the last place; other results are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import firebrick as fb


@dataclass(frozen=True)
class Program:
    """A kernel and its truth.

    Attributes:
        kernel: Called with tensors and numbers.
        inputs: (random generator, size) → the arguments: arrays and numbers.
        truth: (arguments) → the result in plain NumPy, or a tuple of them; floats in float64.
        sizes: What ``inputs`` is called with.
        ulps: Units in the last place of a float result that are allowed.
        largest: Whether a unit is that of the largest element of the result, instead of each element: for sums that cancel.
    """

    kernel: Any
    inputs: Callable[[np.random.Generator, int], tuple[Any, ...]]
    truth: Callable[..., Any]
    sizes: tuple[int, ...] = (0, 1, 2, 7, 31)
    ulps: float = 0.0
    largest: bool = False

    def run(self, arguments: tuple[Any, ...], device: str, jit: bool) -> tuple[np.ndarray[Any, Any], ...]:
        """The results on a device."""
        places = [k for k, a in enumerate(arguments) if isinstance(a, np.ndarray)]
        tensors = [fb.asarray(arguments[k], device=device) for k in places]

        def call(*given: Any) -> Any:
            merged = list(arguments)
            for k, t in zip(places, given, strict=True):
                merged[k] = t
            return self.kernel(*merged, **({} if places else {"device": device}))

        found = (fb.jit(call) if jit else call)(*tensors)
        return tuple(t.numpy() for t in (found if isinstance(found, tuple) else (found,)))

    def agree(self, results: tuple[np.ndarray[Any, Any], ...], arguments: tuple[Any, ...]) -> None:
        """Compare results with the truth.

        Raises:
            AssertionError: They differ by more than ``ulps``.
        """
        expected = self.truth(*(a.copy() if isinstance(a, np.ndarray) else a for a in arguments))
        expected = expected if isinstance(expected, tuple) else (expected,)
        assert len(results) == len(expected)
        for got, want in zip(results, expected, strict=True):
            assert got.shape == want.shape
            if got.dtype.kind != "f":
                np.testing.assert_array_equal(got, want)
            elif got.size:
                scale = np.abs(want).max() if self.largest else np.abs(want)
                allowed = self.ulps * np.finfo(got.dtype).eps * scale + np.finfo(got.dtype).tiny
                apart = np.abs(got.astype(np.float64) - want)
                assert (apart <= allowed).all(), f"apart by {(apart / allowed).max() * self.ulps:.2f} ulps"
