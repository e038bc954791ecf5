"""Errors say what was expected, what was received and what to do; they pickle, and are what NumPy users catch."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.decorators import VerificationError
from firebrick.core import errors

KINDS = [v for v in vars(errors).values() if inspect.isclass(v) and issubclass(v, errors.FirebrickError)]


@pytest.mark.parametrize("kind", [*KINDS, VerificationError], ids=lambda k: k.__name__)
def test_every_error_pickles_with_its_facts(kind: type[errors.FirebrickError]) -> None:
    e = kind("an expectation", "x: float32[2] on cpu:0", "do this", op="add", devices=["cpu:0", "cpu:1"])
    again = pickle.loads(pickle.dumps(e))
    assert type(again) is kind
    assert str(again) == str(e) == "an expectation\nReceived: x: float32[2] on cpu:0.\nRemedy: do this."
    assert again.context == {"op": "add", "devices": ["cpu:0", "cpu:1"]}
    assert (again.expected, again.received, again.remedy) == (e.expected, e.received, e.remedy)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (fb.ShapeError, ValueError),
        (fb.DTypeError, TypeError),
        (fb.DeviceMismatchError, ValueError),
        (fb.UnsupportedError, NotImplementedError),
        (fb.ExecutionError, RuntimeError),
        (fb.OutOfRangeError, IndexError),
        (fb.OutOfMemoryError, MemoryError),
        (fb.OutOfMemoryError, fb.ExecutionError),
        (fb.KernelCompileError, fb.ExecutionError),
        (fb.LaunchError, fb.ExecutionError),
        (fb.DeviceLostError, fb.ExecutionError),
        (fb.CollectiveTimeoutError, fb.ExecutionError),
        (fb.OperandError, TypeError),
        (fb.GradientError, RuntimeError),
        (fb.ConfigError, ValueError),
        (fb.DeviceError, ValueError),
        (fb.BudgetWarning, UserWarning),
        (fb.FallbackWarning, UserWarning),
    ],
)
def test_errors_are_what_a_numpy_user_would_catch(kind: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(kind, builtin)


x, y = fb.ones((2, 3)), fb.ones((4, 3))
x.label = "conv1.weight"
MISTAKES: dict[str, tuple[type[Exception], Callable[[], Any], list[str]]] = {
    "shapes": (fb.ShapeError, lambda: x + y, ["(2, 3)", "(4, 3)"]),
    "dtypes": (
        fb.DTypeError,
        lambda: x + fb.ones((2, 3), dtype=fb.int32),
        ["x1: float32[2,3] on cpu:0 (conv1.weight)", "int32"],
    ),
    "kind": (
        fb.DTypeError,
        lambda: fb.exp(fb.ones(2, dtype=fb.int32)),
        ["exp: x needs a floating or complex dtype", "int32[2]"],
    ),
    "numpy operand": (fb.OperandError, lambda: x + np.ones((2, 3)), ["x2", "NumPy array float64[2, 3]", 'device="cpu:0"']),
    "list operand": (fb.OperandError, lambda: fb.exp([1.0]), ["x must be a Firebrick tensor", "list"]),
    "no tensor at all": (fb.OperandError, lambda: fb.add(1.0, 2.0), ["at least one operand", "x1: 1.0"]),
    "matmul": (fb.ShapeError, lambda: x @ y, ["x1", "(2, 3)", "x2", "(4, 3)"]),
    "reshape": (fb.ShapeError, lambda: x.reshape(4), ["same 6 elements"]),
    "axis": (IndexError, lambda: fb.sum(x, axis=2), ["sum: axis must lie in [-2, 2)", "axis 2"]),
    "empty maximum": (fb.ShapeError, lambda: fb.max(fb.zeros((0, 3)), axis=0), ["max", "(0, 3)"]),
    "item": (fb.ShapeError, lambda: x.item(), ["item()", "float32[2,3]"]),
    "truth": (ValueError, lambda: bool(x), ["bool()", "fb.any"]),
    "index of a float": (TypeError, lambda: [1, 2][fb.asarray(1.0)], ["integer dtype"]),
    "transpose": (fb.ShapeError, lambda: fb.zeros(3).T, ["two axes", "mT"]),
    "labels": (IndexError, lambda: fb.cross_entropy(x, fb.asarray([0, 3])), ["[0, 3)", "labels from 0 to 3"]),
    "float labels": (fb.DTypeError, lambda: fb.cross_entropy(x, fb.ones(2)), ["labels need an integer dtype"]),
    "loss shapes": (fb.ShapeError, lambda: fb.mse_loss(x, y), ["prediction", "(conv1.weight)", "target"]),
    "conv2d": (fb.ShapeError, lambda: fb.conv2d(fb.ones((1, 2, 4, 4)), fb.ones((1, 3, 2, 2))), ["channels", "groups 1"]),
    "ragged": (fb.OperandError, lambda: fb.asarray([[1], [1, 2]]), ["rectangular"]),
    "text": (fb.OperandError, lambda: fb.asarray("abc"), ["asarray takes numbers", "str 'abc'"]),
    "range": (fb.DTypeError, lambda: fb.asarray([300], dtype=fb.int8), ["range of int8", "300 to 300"]),
    "scalar range": (fb.DTypeError, lambda: fb.ones(2, dtype=fb.uint8) + 256, ["[0, 255]", "256"]),
    "complex to real": (fb.DTypeError, lambda: fb.ones(2, dtype=fb.complex64).astype(fb.float32), ["complex64[2] to float32"]),
    "stack": (fb.ShapeError, lambda: fb.stack([x, y]), ["arrays[0]", "arrays[1]", "(conv1.weight)"]),
    "empty list": (fb.OperandError, lambda: fb.concat([]), ["non-empty list"]),
    "gradient of an int": (
        fb.DTypeError,
        lambda: fb.ones(2, dtype=fb.int32).require_grad(),
        ["floating or complex dtype", "int32[2]"],
    ),
    "checkpointing": (fb.ConfigError, lambda: fb.checkpointing("all").__enter__(), ["none, balanced", "'all'"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_in_three_parts(name: str) -> None:
    kind, call, parts = MISTAKES[name]
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert "\nReceived: " in text, text
    assert "\nRemedy: " in text, text
    for part in parts:
        assert part in text, text


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_shows_no_other_error_behind_it(name: str) -> None:
    kind, call, _ = MISTAKES[name]
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_out_of_memory_lists_the_largest_live_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    big = fb.zeros((512, 1024))
    big.label = "embedding.weight"

    def full(*args: Any, **kwargs: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(type(big.device.backend), "execute", full)
    with pytest.raises(fb.OutOfMemoryError, match=r"2\.0 MiB float32\[512,1024\] embedding.weight") as caught:
        fb.sum(big, axis=0)
    assert "sum on cpu:0 needs" in str(caught.value)
    assert caught.value.context["bytes"] == 4096


def test_an_engine_that_returns_another_dtype_or_shape_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    t = fb.ones(3, dtype=fb.float64, device="cpu:3")
    right = type(t.device.backend).execute
    monkeypatch.setattr(type(t.device.backend), "execute", lambda *a, **k: right(*a, **k).astype(np.float32))
    with pytest.raises(fb.ExecutionError, match=r"sum on cpu:3 must return float64\[\]\nReceived: float32\[\]"):
        fb.sum(t)
