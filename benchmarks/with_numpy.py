"""The machine's own rates: products by NumPy's BLAS, and copies by as many threads as asked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.work import Ready, Variants, Work


def _copy(work: Work) -> Ready:
    source = np.ones(work.shape, np.float32)
    into = np.empty_like(source)
    if work.threads == 1:
        return Ready(lambda: np.copyto(into, source), lambda out: [])
    parts = list(zip(np.array_split(into, work.threads), np.array_split(source, work.threads), strict=True))
    pool = ThreadPoolExecutor(work.threads - 1)

    def call() -> None:
        others = [pool.submit(np.copyto, a, b) for a, b in parts[1:]]
        np.copyto(*parts[0])
        for f in others:
            f.result()

    return Ready(call, lambda out: [])


def _products(work: Work) -> Ready:
    left, right = work.factors()
    threadpool_limits(work.threads, user_api="blas")
    return Ready(lambda: [np.matmul(a, b) for a in left for b in right], lambda out: list[Any](out))


def variants(work: Work) -> Variants:
    """The one form there is of copies and products."""
    return {"": partial(_copy if work.kind == "copy" else _products, work)}
