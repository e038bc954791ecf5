"""A tensor that is differentiated becomes no array of NumPy or of another library by itself: its gradient would be lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import firebrick as fb

Function = Callable[[fb.Tensor], fb.Tensor]

IMPLICIT: dict[str, Function] = {
    "np.clip": lambda x: fb.sum(fb.asarray(np.clip(x, 0, 1)) * x),  # type: ignore[call-overload]
    "np.stack": lambda x: fb.sum(fb.asarray(np.stack([x, x])) * x),  # type: ignore[arg-type,list-item]
    "np.linalg.norm": lambda x: float(np.linalg.norm(x)) * fb.sum(x),  # type: ignore[arg-type]
    "np.asarray": lambda x: fb.sum(fb.asarray(np.asarray(x)) * x),
    "an array of elements": lambda x: fb.sum(fb.asarray(np.array([x[0], x[1]])) * x),
    "torch.from_dlpack": lambda x: fb.sum(fb.from_dlpack(torch.from_dlpack(x)) * x),
}


@pytest.mark.parametrize("function", IMPLICIT.values(), ids=IMPLICIT)
def test_such_a_conversion_is_refused(function: Function) -> None:
    x = fb.asarray([0.5, 1.5])
    derivatives: list[Callable[[], Any]] = [
        lambda: fb.grad(function)(x),
        lambda: fb.jvp(function, (x,), (x,)),
        lambda: fb.grad(lambda x: fb.jvp(function, (x,), (fb.ones(2),))[1])(x),
    ]
    for derivative in derivatives:
        with pytest.raises(fb.GradientError, match=r"becomes no .* by itself.*\n.*\n.*x\.detach\(\)\.numpy\(\)"):
            derivative()


def test_values_that_are_asked_for_are_constants() -> None:
    x = fb.asarray([0.5, 1.5])
    for read in (lambda x: np.clip(x.detach(), 0, 1), lambda x: np.clip(x.numpy(), 0, 1), lambda x: x.tolist()):
        read_now = read(x)
        found = fb.grad(lambda x, read=read: fb.sum(fb.asarray(read(x)) * x))(x)
        np.testing.assert_allclose(found.numpy(), read_now)
    with fb.no_grad():
        assert np.asarray(x.require_grad()).tolist() == [0.5, 1.5]
    assert np.asarray(fb.asarray([1, 2])).tolist() == [1, 2]


@pytest.mark.parametrize("setting", ["mean", "std"])
def test_settings_of_a_draw_that_are_differentiated_are_refused(setting: str) -> None:
    def drawn(m: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.random.Generator(0).normal((3,), **{setting: m}) * m)

    with pytest.raises(fb.OperandError, match=rf"normal: {setting} is a number\n.*\n.*draw without {setting}, and compute"):
        fb.grad(drawn)(fb.asarray(2.0))
    assert fb.random.Generator(0).normal((3,), **{setting: fb.asarray(2.0)}).shape == (3,)


def test_a_comparison_of_numpy_reads_the_values() -> None:
    """NumPy takes an error in reading an operand for a difference."""
    x, tracked = fb.ones(2), fb.ones(2).require_grad()
    for t in (x, tracked):
        assert np.array_equal(t, [1, 1])  # type: ignore[arg-type]
        assert not np.array_equal(t, [1, 2])  # type: ignore[arg-type]
        assert np.array_equiv(t, 1)  # type: ignore[arg-type]
        assert np.allclose(t, [1, 1])  # type: ignore[arg-type]

    def chosen(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(x * 2) if np.array_equal(x, [1, 1]) else fb.sum(x * 3)  # type: ignore[arg-type]

    assert fb.grad(chosen)(x).tolist() == [2.0, 2.0]
    for transform in (fb.jit, lambda f: fb.vmap(f)):
        with pytest.raises(fb.DataDependentError, match="needs"):
            transform(chosen)(x)
