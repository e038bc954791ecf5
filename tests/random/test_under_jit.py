"""Random numbers under ``jit``: the same draws as eagerly, new ones at each run, and generators that stand where they would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.errors import UnsupportedError
from firebrick.random import Generator

DRAWS: dict[str, Callable[[Any, str], fb.Tensor]] = {
    "uniform": lambda g, d: g.uniform((3, 4), low=-1.0, high=2.0, device=d),
    "uniform in float64": lambda g, d: g.uniform((3,), dtype=fb.float64, device=d),
    "normal": lambda g, d: g.normal((3, 4), mean=1.0, std=2.0, device=d),
    "normal in float16": lambda g, d: g.normal((3, 4), dtype=fb.float16, device=d),
    "bernoulli": lambda g, d: g.bernoulli((9,), p=0.3, device=d),
    "integers": lambda g, d: g.integers((9,), low=-5, high=7, device=d),
    "integers of a wide range": lambda g, d: g.integers((9,), low=-(2**63), high=2**63, dtype=fb.int64, device=d),
    "integers up to 2^64": lambda g, d: g.integers((9,), low=3, high=2**64, dtype=fb.uint64, device=d),
    "permutation": lambda g, d: g.permutation(57, device=d),
    "key": lambda g, d: g.key(device=d),
}
OF_A_DEVICE: dict[str, Callable[[str], fb.Tensor]] = {
    "uniform": lambda d: fb.random.uniform((3,), device=d),
    "normal": lambda d: fb.random.normal((3,), device=d),
    "bernoulli": lambda d: fb.random.bernoulli((9,), device=d),
    "integers": lambda d: fb.random.integers((3,), low=0, high=9, device=d),
    "permutation": lambda d: fb.random.permutation(9, device=d),
}


def same(a: fb.Tensor, b: fb.Tensor) -> bool:
    """Whether two draws are equal; normal ones up to what engines' logarithms and cosines differ by."""
    x, y = a.numpy(), b.numpy()
    if a.dtype is b.dtype and a.dtype in (fb.float32, fb.float64) and (x < 0).any():
        return bool((np.abs(x - y) <= 4 * a.dtype.eps * np.maximum(1.0, np.abs(y))).all())
    return a.dtype is b.dtype and x.tobytes() == y.tobytes()


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
def test_a_captured_generator_draws_and_advances_as_it_does_eagerly(device: str, name: str) -> None:
    draw, eager, captured = DRAWS[name], Generator(7), Generator(7)
    compiled = fb.jit(lambda: draw(captured, device))
    for _ in range(3):
        assert same(compiled(), draw(eager, device))
        assert repr(captured) == repr(eager)
    assert compiled.traces == 1


def test_a_generator_may_be_an_argument() -> None:
    compiled = fb.jit(lambda g: g.normal((4,)))
    for seed in (1, 2):
        g = Generator(seed)
        assert same(compiled(g), Generator(seed).normal((4,)))
        assert repr(g) == f"Generator(seed={seed}, draws=2)"


@pytest.mark.parametrize("name", OF_A_DEVICE)
def test_the_default_generators_are_found_anew_after_seed(name: str, device: str) -> None:
    draw = OF_A_DEVICE[name]
    compiled = fb.jit(lambda: draw(device))
    for seed in (4, 5, 4):
        fb.random.seed(seed)
        want = [draw(device) for _ in range(2)]
        state = str(fb.random.state())
        fb.random.seed(seed)
        assert all(same(compiled(), w) for w in want)
        assert str(fb.random.state()) == state


def test_a_draw_that_nothing_uses_advances_its_generator() -> None:
    g = Generator(3)

    def third(x: fb.Tensor) -> fb.Tensor:
        g.uniform((2,))
        g.normal((2,))
        return x + g.uniform((2,)) * 0.0

    def none(x: fb.Tensor) -> fb.Tensor:
        g.uniform((5,))
        return x + 1.0

    for function, count in ((third, 4), (none, 1)):
        compiled = fb.jit(function)
        for _ in range(2):
            before = g.place()
            compiled(fb.ones(2))
            assert g.place() == before + count


def test_a_share_of_a_batch_draws_what_the_whole_would() -> None:
    g = Generator(0)
    compiled = fb.jit(lambda: g.uniform((2, 3)))
    whole = Generator(0).uniform((6, 3)).numpy()
    for rows in (0, 2, 4):
        g.set_state(Generator(0).state())
        with fb.random.row_offset(rows):
            assert np.array_equal(compiled().numpy(), whole[rows : rows + 2])


def test_a_fork_that_would_draw_on_the_host_says_what_to_do() -> None:
    g = Generator(0)
    with pytest.raises(UnsupportedError, match=r"Generator.fork, whose seed is drawn on the host(.|\n)*fork before the call"):
        fb.jit(lambda: g.fork().uniform((2,)))()
    with pytest.raises(UnsupportedError, match=r"Generator.fork acts on the host"):
        fb.jit(lambda: g.fork(3).uniform((2,)))()
    assert repr(g) == "Generator(seed=0, draws=0)"
