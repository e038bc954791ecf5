"""Gradients that were once wrong or left traces, each as the smallest program that showed it."""

from __future__ import annotations

import math

import pytest

import firebrick as fb


def test_a_checkpointed_function_whose_captured_variable_was_rebound_raises_instead_of_using_the_new_value() -> None:
    x = fb.asarray(3.0).require_grad()
    factor = fb.asarray(2.0)
    y = fb.checkpoint(lambda v: v * factor * v)(x)
    factor += 5.0
    with pytest.raises(fb.GradientError, match=r"changed since the first run|must do the same operations"):
        fb.backward(y)


def test_a_checkpointed_function_may_rebind_its_arguments_and_run_again_twice() -> None:
    def fn(a: fb.Tensor) -> fb.Tensor:
        a *= a
        return fb.sum(fb.sin(a))

    x = fb.asarray([0.5, 1.5]).require_grad()
    y = fb.checkpoint(fn)(x * 1.0)
    first = fb.backward(y, retain_graph=True)[x].tolist()
    assert fb.backward(y)[x].tolist() == first
    assert first == fb.grad(lambda v: fb.sum(fb.sin(v * v)))(x.detach()).tolist()


def test_lists_of_tensors_as_checkpointed_arguments_keep_their_values() -> None:
    parts = [fb.asarray(2.0).require_grad(), fb.asarray(3.0).require_grad()]
    first = parts[0]
    y = fb.checkpoint(lambda ps: ps[0] * ps[1] * ps[0])(parts)
    parts[0] = fb.asarray(100.0)
    assert fb.backward(y)[first].item() == 12.0


def test_a_gradient_taken_inside_a_checkpointed_function_is_differentiated_again() -> None:
    slope = fb.checkpoint(lambda v: fb.grad(lambda u: u**3.0)(v))
    assert fb.grad(slope)(fb.asarray(2.0)).item() == 12.0


def test_a_parameter_rebound_inside_the_function_is_untracked_afterwards() -> None:
    model = fb.nn.Linear(2, 1)

    def loss(m: fb.nn.Linear, x: fb.Tensor) -> fb.Tensor:
        value = fb.sum(m(x))
        m.weight *= 0.5
        return value

    fb.value_and_grad(loss)(model, fb.ones((1, 2)))
    assert not model.weight.tracked
    fb.value_and_grad(loss)(model, fb.ones((1, 2)))


def test_variance_without_enough_samples_is_nan() -> None:
    assert math.isnan(fb.var(fb.asarray([1.0]), correction=2.0).item())


def test_asarray_casts_nan_and_large_floats_to_integers_by_the_table() -> None:
    assert fb.asarray([float("nan"), 1e20, -1e20], dtype=fb.int32).tolist() == [0, 2**31 - 1, -(2**31)]


def test_a_warm_fast_path_still_sees_the_second_operands_device() -> None:
    x = fb.ones(3)
    fb.add(x, x)
    fb.add(x, x)
    with pytest.raises(fb.DeviceMismatchError, match=r"x2: float32\[3\] on cpu:1"):
        fb.add(x, x.to("cpu:1"))
