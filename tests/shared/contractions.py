"""Contractions compiled for this machine and run, whole or in any parts of their grids, for the tests of the generators."""

from __future__ import annotations

import ctypes
from itertools import pairwise
from typing import Any

import numpy as np
from kept_results import kept_object

from firebrick.compiler.spec.faults import found, table
from firebrick.compiler.targets.llvm import host
from firebrick.compiler.targets.llvm.contract import Contraction
from firebrick.compiler.targets.llvm.target import Target

_ARGUMENTS = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


class Compiled:
    """A contraction in memory, with a workspace and a scratch full of NaN and guarded by words that must not change."""

    def __init__(self, c: Contraction, target: Target) -> None:
        self.c = c
        self.functions: list[Any] = []
        if c.kernels:
            module = host.link([kept_object(c.module, target)], [k.name for k in c.kernels])
            self.functions = [module.function(k.name, None, *_ARGUMENTS) for k in c.kernels]
        self.faults = table(0)

    def __call__(self, *arrays: np.ndarray, cuts: int = 0, seed: int = 0) -> None:
        """Run it on arrays in the order of ``bufs``; with ``cuts``, in that many chunks in a random order."""
        rng = np.random.default_rng(seed)
        space, guard = memory(self.c.workspace)
        bufs = np.array([*(a.ctypes.data for a in arrays), space], np.uint64)
        for function, kernel in zip(self.functions, self.c.kernels, strict=True):
            at = sorted({0, kernel.grid, *rng.integers(0, kernel.grid + 1, cuts).tolist()})
            chunks = list(pairwise(at))
            rng.shuffle(chunks)
            for begin, end in chunks:
                scratch, fence = memory(kernel.scratch)
                function(bufs.ctypes.data, int(begin), int(end), scratch, self.faults.ctypes.data)
                assert (fence[-64:] == 0xFF).all(), "a kernel wrote beyond its scratch"
        assert (guard[-64:] == 0xFF).all(), "a kernel wrote beyond its workspace"
        assert found(self.faults) is None


def memory(n: int) -> tuple[int, np.ndarray]:
    """The address of ``n`` bytes of NaN, aligned to 64, and the array that owns them, of which the last 64 are a guard."""
    raw = np.full(n + 128 + 64, 0xFF, np.uint8)
    start = -raw.ctypes.data % 64
    return raw.ctypes.data + start, raw[: start + n + 64]
