"""Random programs of loops and branches within each other, whose innermost products are large enough to be packed once for all
steps and to be divided into slices of rows: compiled for ``cpu`` on one and two threads, beside NumPy's engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import firebrick as fb

Step = Callable[[fb.Tensor], fb.Tensor]


def drawn(rng: np.random.Generator, weights: Sequence[fb.Tensor], xs: fb.Tensor, depth: int) -> Step:
    """A random function of a tensor [rows, features]; the same for weights and elements of any device."""
    kind = rng.choice(["product", "both", "scan", "repeat", "cond", "while"] if depth else ["product", "both"])
    w, turned, reverse = weights[rng.integers(len(weights))], bool(rng.integers(2)), bool(rng.integers(2))
    if kind == "product":
        return lambda c: fb.tanh(c @ (w.mT if turned else w))
    if kind == "both":
        return lambda c: fb.tanh(c @ w) @ w.mT * 0.5
    first, second = (drawn(rng, weights, xs, depth - 1) for _ in range(2))
    count, bound = int(rng.integers(1, 4)), float(rng.normal())
    if kind == "scan":
        return lambda c: fb.scan(lambda c, v: (fb.tanh(first(c) + v), None), c, xs, reverse=reverse)[0]
    if kind == "repeat":
        return lambda c: fb.scan(lambda c, _: (first(c) * 0.5 + second(c), None), c, None, length=count)[0]
    if kind == "cond":
        return lambda c: fb.cond(fb.sum(c) > bound, lambda: first(c), lambda: second(c))
    start = fb.zeros((), device=xs.device)
    return lambda c: fb.while_loop(
        lambda s: s[0] < count, lambda s: (s[0] + 1.0, first(s[1]) + second(s[1]) * 0.5), (start, c)
    )[1]


def check(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, features, steps = (int(rng.choice(sizes)) for sizes in ((1, 9, 16, 24, 67, 128), (5, 33, 64, 128), (1, 4, 5, 12)))
    arrays = [rng.normal(size=(features, features)) / np.sqrt(features) for _ in range(2)]
    arrays += [rng.normal(size=(steps, rows, features)) * 0.3, rng.normal(size=(rows, features))]

    def program(device: str) -> tuple[Step, fb.Tensor]:
        *weights, xs, c = (fb.asarray(a, device=device) for a in arrays)
        f = drawn(np.random.default_rng(seed), weights, xs, 2)
        return (fb.grad(lambda c: fb.sum(f(c) ** 2)) if seed % 3 == 0 else f), c

    f, c = program("numpy")
    want = f(c).numpy()
    f, c = program("cpu")
    found = []
    before = fb.config.num_threads
    try:
        for threads in (1, 2):
            fb.config.num_threads = threads
            found.append(fb.jit(f)(c).numpy())
    finally:
        fb.config.num_threads = before
    np.testing.assert_allclose(found[0], want, rtol=1e-9, atol=1e-9 * max(1.0, float(np.abs(want).max())), err_msg=str(seed))
    assert found[0].tobytes() == found[1].tobytes(), seed


@pytest.mark.parametrize("seed", range(24))
def test_random_loops_within_loops(seed: int) -> None:
    check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(24, 2000))
def test_many_random_loops_within_loops(seed: int) -> None:
    check(seed)
