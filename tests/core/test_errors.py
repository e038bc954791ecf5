"""Errors say what was expected, what was received and what to do; they pickle, and are what NumPy users catch."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.decorators import VerificationError
from firebrick.core import errors, settings

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


def _ints(n: int = 2) -> fb.Tensor:
    return fb.ones(n, dtype=fb.int32)


def _updated(target: fb.Tensor, v: Any) -> None:
    target += v


# errors of the floor below all functions, each of which ``errors.txt`` has in full
IN_FULL: dict[str, Callable[[], Any]] = {
    "two devices": lambda: x + fb.ones((2, 3), device="cpu:1"),
    "three operands on two devices": lambda: fb.where(x > 0.0, x, fb.ones((2, 3), device="cpu:1")),
    "a list of tensors on two devices": lambda: fb.concat([x, fb.ones((2, 3), device="cpu:1")]),
    "shapes": lambda: x + y,
    "dtypes": lambda: x + _ints(3),
    "bool and int": lambda: fb.ones(2, dtype=fb.bool) + _ints(),
    "two 8-bit floats": lambda: fb.where(x > 0.0, fb.astype(x, fb.float8_e5m2), fb.astype(x, fb.float8_e4m3fn)),
    "int and float": lambda: _ints(3) * x,
    "a kind": lambda: fb.exp(_ints()),
    "a bool kind": lambda: fb.where(_ints(), x, x),
    "an integer kind": lambda: fb.bitwise_and(x, x),
    "a kind without complex": lambda: fb.floor(fb.ones(2, dtype=fb.complex64)),
    "a function's kind without complex": lambda: fb.max(fb.ones(2, dtype=fb.complex64)),
    "a NumPy array": lambda: fb.add(np.ones((2, 3)), x),
    "a list": lambda: fb.exp([1.0]),
    "numbers only": lambda: fb.add(1.0, 2.0),
    "a float beside ints": lambda: _ints() + 1.5,
    "a float beside bools": lambda: fb.ones(2, dtype=fb.bool) * 1.5,
    "an int beside bools": lambda: fb.ones(2, dtype=fb.bool) + 1,
    "a complex number beside floats": lambda: x * 1j,
    "a complex number beside float64": lambda: fb.ones(2, dtype=fb.float64) * 1j,
    "a bool beside floats": lambda: x + True,
    "a bool beside 8-bit floats": lambda: fb.where(x > 0.0, fb.astype(x, fb.float8_e5m2), True),
    "an int outside its dtype": lambda: fb.ones(2, dtype=fb.uint8) + 256,
    "an int below its dtype": lambda: fb.ones(2, dtype=fb.uint8) + -1,
    "an int beyond float64": lambda: fb.ones(2, dtype=fb.float64) + 2**2000,
    "out that is a number": lambda: fb.add(x, x, out=1.0),
    "out on another device": lambda: fb.add(x, x, out=fb.ones((2, 3), device="cpu:1")),
    "out of another dtype": lambda: fb.add(x, x, out=fb.ones((2, 3), dtype=fb.float64)),
    "out of another shape": lambda: fb.add(x, x, out=fb.ones((3, 2))),
    "an update to another shape": lambda: _updated(fb.ones(3), x),
    "an update to another dtype": lambda: _updated(fb.ones(3), fb.ones(3, dtype=fb.float64)),
    "a dtype without width": lambda: fb.dtype(float),
    "an unknown dtype": lambda: fb.dtype("float3"),
    "None as a dtype": lambda: fb.dtype(None),
    "an unknown dtype of a function": lambda: fb.ones(2, dtype="float3"),
    "finfo of ints": lambda: fb.finfo(fb.int8),
    "iinfo of floats": lambda: fb.iinfo(fb.float32),
    "an unknown kind": lambda: fb.isdtype(fb.int8, "integers"),
    "the dtype of scalars": lambda: fb.result_type(1, 2.0),
    "no common dtype": lambda: fb.result_type(fb.int8, x),
    "a scalar beside a dtype": lambda: fb.result_type(fb.int8, 1.5),
    "autocast to float32": lambda: fb.autocast("float32").__enter__(),
    "a shape that is a list": lambda: fb.broadcast_shapes([2], (3,)),
    "an axis that is a float": lambda: fb.sum(x, axis=1.5),
    "an axis outside": lambda: fb.sum(x, axis=-3),
    "an axis twice": lambda: fb.sum(x, axis=(0, -2)),
    "a shape that is text": lambda: fb.zeros("ab"),
    "a negative size": lambda: fb.zeros((2, -1)),
    "a reshape to text": lambda: fb.reshape(x, "ab"),
    "a reshape of other size": lambda: fb.reshape(x, (4, -1)),
    "two ellipses": lambda: x[..., ...],
    "too many indices": lambda: x[0, 0, 0],
    "too many masks": lambda: x[np.ones((2, 3), np.bool_), 0],
    "a slice without step": lambda: x[::0],
    "a float index": lambda: x[1.5],
    "an index outside": lambda: x[0, 3],
    "a ragged list as an index": lambda: x[[[0, 1], [1]]],
    "a list of floats as an index": lambda: x[[0.5]],
    "a tensor of floats as an index": lambda: x[x],
    "a mask of another shape": lambda: x[:, np.ones(2, np.bool_)],
    "indices that do not broadcast": lambda: x[np.zeros(2, np.int64), np.zeros(3, np.int64)],
    "a device that is no string": lambda: fb.device(3),
    "a device's index": lambda: fb.device("cpu:99"),
    "a device string": lambda: fb.device("cpu:x"),
    "a setting's value": lambda: setattr(fb.config, "fallback", "maybe"),
    "a number that is text": lambda: settings.number("SGD", "lr", "a"),
    "a number that is a bool": lambda: settings.number("SGD", "lr", True),
    "an int that is a float": lambda: settings.whole("roll", "shift", 1.5),
    "an int that is a bool": lambda: settings.whole("roll", "shift", np.True_),
    "an int that is too small": lambda: settings.whole("Linear", "outputs", 0, 1),
    "values on meta": lambda: fb.ones(2, device="meta").numpy(),
}
TEXTS: dict[str, str] = dict(
    part.split("\n", 1) for part in ("\n" + Path(__file__).with_name("errors.txt").read_text("utf-8")).split("\n## ")[1:]
)


@pytest.mark.parametrize("name", IN_FULL)
def test_an_error_of_operands_reads_in_full(name: str) -> None:
    with pytest.raises(errors.FirebrickError) as caught:
        IN_FULL[name]()
    assert f"{type(caught.value).__name__}: {caught.value}" == TEXTS[name].strip()


def test_every_text_is_of_a_case() -> None:
    assert list(TEXTS) == list(IN_FULL)


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
