"""No function computes on tensors of two devices: it says so, by the user's names, before any engine runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sample_arguments as arguments

import firebrick as fb
from firebrick.backends import decorators
from firebrick.ops import OPS
from firebrick.testing import EXCLUDED, engines
from firebrick.testing.cases import samples_of

CALLS = arguments.calls()

PAIRS = [
    pytest.param("cpu:0", "cpu:1", id="two devices of an engine"),
    pytest.param(
        "numpy:0",
        "torch:cpu:0",
        id="two engines",
        marks=[pytest.mark.skip(reason=f"engine torch: {engines().missing['torch']}")] if "torch" in engines().missing else [],
    ),
]
pairs = pytest.mark.parametrize(("home", "away"), PAIRS)


class Counting(decorators.Decorator):
    """Counts how often an engine runs anything."""

    def __init__(self, inner: Any, count: list[int]) -> None:
        super().__init__(inner)
        self.report = count

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        self.report[0] += 1
        return self.inner.execute(*args, **kwargs)


@contextmanager
def counted(*devices: str) -> Iterator[list[int]]:
    count = [0]
    with decorators._installed(lambda inner: Counting(inner, count), tuple({d.split(":")[0] for d in devices})):
        yield count


def mismatch(call: Callable[[], Any], home: str, away: str, name: str) -> str:
    """Run a call that must refuse, without any engine running, and check its text."""
    with counted(home, away) as count:
        with pytest.raises(fb.DeviceMismatchError) as caught:
            call()
        assert count == [0], "an engine ran before the devices were compared"
    text = str(caught.value)
    assert f"{name}: " in text, text
    assert home in text, text
    assert away in text, text
    assert "Remedy:" in text
    assert f'.to("{home}")' in text or f'device="{home}"' in text or f'.to("{away}")' in text, text
    return text


def test_every_public_function_that_takes_tensors_has_sample_arguments() -> None:
    functions = set(arguments.public_functions())
    rows = set(arguments.ARGUMENTS) | set(arguments.EXEMPT)
    assert functions - rows == set(), "add a row to sample_arguments.py"
    assert rows - functions == set(), "these functions are gone"


@pytest.mark.parametrize("call", CALLS, ids=lambda c: c.name)
def test_the_sample_arguments_are_right(call: Any) -> None:
    call(call.on("cpu:0"))


@pairs
@pytest.mark.parametrize("call", [c for c in CALLS if len(c.tensors) > 1], ids=lambda c: c.name)
def test_every_tensor_argument_must_be_on_the_device_of_the_others(call: Any, home: str, away: str) -> None:
    for name in call.tensors:
        given = call.on(home, {name: away})
        mismatch(lambda given=given: call(given), home, away, name)


@pairs
@pytest.mark.parametrize("call", [c for c in CALLS if c.takes_out], ids=lambda c: c.name)
def test_a_destination_must_be_on_the_device_of_the_operands(call: Any, home: str, away: str) -> None:
    given = call.on(home)
    out = fb.zeros_like(call(given)).to(away)
    mismatch(lambda: call(given, out=out), home, away, "out")


@pairs
def test_a_destination_is_compared_before_anything_is_cast_or_reshaped(home: str, away: str) -> None:
    x, v = fb.ones((2, 3), dtype=fb.int8, device=home), fb.ones(3, device=home)
    m = fb.ones((2, 3), device=home)
    mismatch(lambda: fb.sum(x, out=fb.zeros((), dtype=fb.int64, device=away)), home, away, "out")
    mismatch(lambda: fb.any(x, out=fb.zeros((), dtype=fb.bool, device=away)), home, away, "out")
    mismatch(lambda: fb.matmul(m, v, out=fb.zeros(2, device=away)), home, away, "out")


@pairs
@pytest.mark.parametrize("name", ["add", "multiply", "less", "maximum"])
@pytest.mark.parametrize("zero_d", [0, 1])
def test_tensors_without_axes_are_no_exception(name: str, zero_d: int, home: str, away: str) -> None:
    given = [fb.ones(3, device=home), fb.ones(3, device=home)]
    given[zero_d] = fb.ones((), device=away)
    mismatch(lambda: getattr(fb, name)(*given), home, away, f"x{zero_d + 1}")


@pairs
@pytest.mark.parametrize("name", ["add", "multiply", "less", "maximum"])
def test_the_fast_path_is_no_exception(name: str, home: str, away: str) -> None:
    function = getattr(fb, name)
    for device in (home, away):
        x = fb.ones(3, device=device)
        function(x, x)  # from here on, calls like this one go the fast path
    x, y = fb.ones(3, device=home), fb.ones(3, device=away)
    with pytest.raises(fb.DeviceMismatchError, match="x2: "):
        function(x, y)
    with pytest.raises(fb.DeviceMismatchError, match="x2: "):
        function(y, x)


@pairs
def test_operators_and_updates_are_no_exception(home: str, away: str) -> None:
    x, y = fb.ones(3, device=home), fb.ones(3, device=away)
    mismatch(lambda: x + y, home, away, "x2")
    mismatch(lambda: x @ y, home, away, "x2")
    mismatch(lambda: x.__iadd__(y), home, away, "x2")
    mismatch(lambda: x == y, home, away, "x2")
    assert x.tolist() == [1.0] * 3


@pairs
def test_keys_and_assigned_values_are_no_exception(home: str, away: str) -> None:
    x = fb.ones((3, 3), device=home)
    at, mask = fb.asarray([0, 2], device=away), fb.asarray([True, False, True], device=away)
    zero_d = fb.asarray(1, device=away)
    for key in (at, mask, zero_d):
        mismatch(lambda key=key: x[key], home, away, "key")
        mismatch(lambda key=key: x.__setitem__(key, 0.0), home, away, "key")
    mismatch(lambda: x[at, 0], home, away, "key[0]")
    mismatch(lambda: x[0, at], home, away, "key[1]")
    for value in (fb.zeros(3, device=away), fb.zeros((), device=away)):
        mismatch(lambda value=value: x.__setitem__(0, value), home, away, "value")
        mismatch(lambda value=value: x.__setitem__(mask.to(home), value), home, away, "value")
    assert x.tolist() == [[1.0] * 3] * 3


@pairs
def test_lists_of_tensors_are_no_exception(home: str, away: str) -> None:
    parts = [fb.ones(2, device=home), fb.ones(2, device=home), fb.ones(2, device=away)]
    mismatch(lambda: fb.concat(parts), home, away, "arrays[2]")
    mismatch(lambda: fb.stack(parts), home, away, "arrays[2]")
    mismatch(lambda: fb.asarray(parts), home, away, "arrays[2]")


@pairs
def test_cotangents_and_replaced_gradients_are_no_exception(home: str, away: str) -> None:
    x = fb.ones(3, device=home).require_grad()
    y = x * x
    mismatch(lambda: fb.backward(y, fb.ones(3, device=away)), home, away, "cotangent")
    _, pull = fb.vjp(lambda v: v * v, x.detach())
    mismatch(lambda: pull(fb.ones(3, device=away)), home, away, "cotangent")
    mismatch(lambda: fb.jvp(fb.sin, (x.detach(),), (fb.ones(3, device=away),)), home, away, "tangents[0]")
    grads = fb.backward(fb.sum(x * x))
    mismatch(lambda: grads.replace(x, fb.ones(3, device=away)), home, away, "gradient")
    assert grads[x].tolist() == [2.0] * 3


@pairs
def test_a_hook_may_not_return_a_cotangent_of_another_device(home: str, away: str) -> None:
    x = fb.ones(3, device=home).require_grad()
    fb.register_hook(x, lambda g: g.to(away))
    with pytest.raises(fb.GradientError, match="keep shape, dtype and device"):
        fb.backward(fb.sum(x * x))


@pairs
@pytest.mark.parametrize("name", [n for n in OPS if n not in EXCLUDED])
def test_every_op_refuses_two_devices_by_the_names_of_its_operands(name: str, home: str, away: str) -> None:
    op = OPS[name]
    sample = samples_of(op, op.dtypes[0], 0)[0]
    names = op.operand_names(len(sample.inputs))
    for k, moved in enumerate(names):
        if len(names) > 1:
            given = [fb.asarray(a, device=away if i == k else home) for i, a in enumerate(sample.inputs)]
            mismatch(lambda given=given: op(*given, **sample.params), home, away, moved)


def test_a_label_is_part_of_the_message() -> None:
    x, y = fb.ones(3, device="cpu:0"), fb.ones(3, device="cpu:1")
    y.label = "conv1.weight"
    assert "(conv1.weight)" in mismatch(lambda: x + y, "cpu:0", "cpu:1", "x2")
