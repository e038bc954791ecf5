"""What surrounds a call of a compiled function counts as it does without jit: the default device, and the search for NaN."""

from __future__ import annotations

from typing import Any

import pytest

import firebrick as fb


def test_the_device_of_a_scope_is_that_of_the_tensors_that_a_compiled_function_makes() -> None:
    made = fb.jit(lambda: fb.zeros(2) + 1.0)
    read = fb.jit(lambda x: x * (2.0 if fb.default_device().engine == "numpy" else 3.0))
    x = fb.ones(1, device="cpu")
    for _ in range(2):
        with fb.use_device("cpu"):
            assert (made().device.name, read(x).item()) == ("cpu:0", 3.0)
            with fb.use_device("numpy"):
                assert (made().device.name, read(x).item()) == ("numpy:0", 2.0)
    assert made.traces == read.traces == 2


def test_a_default_device_that_is_not_there_matters_only_to_what_makes_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = fb.jit(lambda x: x * 2.0)
    with fb.config.scope(logical_devices=2), fb.config.scope(device="cpu:1"):
        monkeypatch.setattr(fb.config, "logical_devices", 1)
        assert twice(fb.ones(1, device="numpy")).item() == 2.0
        with pytest.raises(fb.DeviceError):
            fb.jit(lambda: fb.zeros(2) + 1.0)()
        monkeypatch.undo()


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("way", [lambda f: fb.jit(fb.grad(f)), lambda f: fb.grad(fb.jit(f))])
def test_the_first_nan_of_a_compiled_function_is_found(way: Any, traced: bool) -> None:
    gradient = way(lambda x: fb.sum(fb.log(x)))
    if traced:
        gradient(fb.ones(1))
    with fb.detect_anomaly(), pytest.raises(fb.GradientError, match="log made the first NaN of the forward pass"):
        gradient(fb.full(1, -1.0))


def test_an_object_may_be_given_another_dict_of_attributes() -> None:
    class Part:
        def __init__(self, k: float) -> None:
            self.scale, self.sum = fb.full((), k), fb.zeros(())

        def add(self, x: fb.Tensor) -> fb.Tensor:
            self.sum += x * self.scale
            return self.sum + 0.0

    first, second = Part(1.0), Part(2.0)
    both = fb.jit(lambda x: (first.add(x), second.add(x)))
    assert [t.item() for t in both(fb.ones(()))] == [1.0, 2.0]
    second.__dict__ = first.__dict__
    assert [t.item() for t in both(fb.ones(()))] == [2.0, 3.0]
    second.__dict__ = {"scale": fb.full((), 10.0), "sum": fb.zeros(())}
    assert [t.item() for t in both(fb.ones(()))] == [4.0, 10.0]
    assert [first.sum.item(), second.sum.item()] == [4.0, 10.0]


def test_an_argument_that_is_captured_too_is_the_captured_one_for_code_that_asks() -> None:
    first, second = fb.ones(1), fb.ones(1)
    held = [first, second]
    told = {id(first): 2.0}
    asked = fb.jit(lambda x: x * 2.0 if x is held[0] else x * 3.0)
    chosen = fb.jit(lambda x: x * told.get(id(x), 3.0) + held[0] * 0.0)
    for _ in range(2):
        assert [asked(t).item() for t in (first, second, fb.ones(1))] == [2.0, 3.0, 3.0]
        assert [chosen(t).item() for t in (first, second, fb.ones(1))] == [2.0, 3.0, 3.0]
    held.reverse()
    assert [asked(t).item() for t in (first, second, fb.ones(1))] == [3.0, 2.0, 3.0]
