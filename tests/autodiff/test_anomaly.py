"""``detect_anomaly`` names the operation, and the label, of the first NaN."""

from __future__ import annotations

import numpy as np
import pytest

import firebrick as fb


def test_the_operation_of_the_first_nan_of_the_forward_pass_is_named(device: str) -> None:
    x = fb.asarray([1.0, -1.0], device=device).require_grad()
    x.label = "scores"
    with fb.detect_anomaly(), pytest.raises(fb.GradientError, match="log made the first NaN of the forward pass") as caught:
        fb.sum(fb.exp(fb.log(x) * 2.0))
    assert "(scores)" in str(caught.value)
    assert caught.value.context["op"] == "log"


def test_the_operation_of_the_first_nan_of_the_backward_pass_is_named(device: str) -> None:
    x = fb.asarray([0.0, 1.0], device=device).require_grad()
    x.label = "distances"
    with fb.detect_anomaly(), pytest.raises(fb.GradientError, match="gradient of sqrt made the first NaN") as caught:
        fb.backward(fb.sum(fb.sqrt(x) * fb.asarray([0.0, 1.0], device=device)))
    assert "(distances)" in str(caught.value)
    assert caught.value.context["op"] == "sqrt"


def test_nan_that_comes_in_is_not_blamed_on_an_operation() -> None:
    x = fb.asarray([np.nan, 1.0]).require_grad()
    with fb.detect_anomaly():
        assert np.isnan(fb.sum(fb.exp(x)).item())


def test_without_it_nothing_is_read_and_nothing_raises() -> None:
    x = fb.asarray([-1.0]).require_grad()
    y = fb.log(x)
    assert np.isnan(y.item())
    with fb.detect_anomaly():
        pass
    assert np.isnan(fb.log(x).item())


def test_sound_programs_pass() -> None:
    x = fb.asarray([0.5, 2.0]).require_grad()
    with fb.detect_anomaly():
        assert np.isfinite(fb.backward(fb.sum(fb.log(x) * fb.sqrt(x)))[x].numpy()).all()
        assert fb.backward(fb.sum(fb.top_k(x, 1)[0]))[x].tolist() == [0.0, 1.0]  # whose indices are integers
