"""Analog updates that are interrupted: weights, hidden parameters, counters, generators and the optimizer's state are those of
before, or of after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from interrupts import interrupted

import firebrick as fb
from firebrick import analog, nn

PLACES = ("analog", "optim", "random", "core/commit.py", "core/journal.py", "core/tensor.py", "functions")
CONFIGS: dict[str, Callable[[], Any]] = {
    "soft bounds": lambda: analog.RPUConfig(analog.SoftBoundsDevice()),
    "write noise": lambda: analog.RPUConfig(analog.LinearStepDevice(write_noise_std=0.1)),
    "arithmetic": lambda: analog.RPUConfig(analog.FloatingPointDevice()),
    **{n: partial(analog.preset, n) for n in ("AGADReRamSBPreset", "PCMPreset", "MixedPrecisionEcRamPreset")},
}


def bits(tree: Any) -> Any:
    """A tree of tensors as values that compare."""
    if isinstance(tree, dict):
        return {k: bits(v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [bits(v) for v in tree]
    return (str(tree.dtype), tree.shape, tree.numpy().tobytes()) if isinstance(tree, fb.Tensor) else repr(tree)


@pytest.mark.parametrize("name", CONFIGS)
def test_an_interrupted_update_has_changed_all_tiles_and_digital_parameters_or_nothing(name: str) -> None:
    x, y = fb.ones((3, 4)), fb.zeros((3, 2))

    def made() -> tuple[Callable[[], None], Callable[[], Any]]:
        fb.random.seed(0)
        mapping = analog.MappingParameter(weight_scaling_omega=0.25)
        network = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
        model = analog.convert(network, replace(CONFIGS[name](), mapping=mapping), seed=1)
        optimizer = analog.SGD(model, lr=0.2)
        _, grads = fb.value_and_grad(lambda m: fb.mse_loss(m(x), y))(model)
        return lambda: optimizer.update(model, grads), lambda: bits([model.state_dict(), optimizer.state_dict()])

    call, state = made()
    before = state()
    count = interrupted(call, None, *PLACES)
    after = state()
    assert before != after
    met: set[bool] = set()
    for at in range(1, count + 1, max(1, count // 6)):
        call, state = made()
        assert state() == before
        interrupted(call, at, *PLACES)
        found = state()
        assert found in (before, after), f"at place {at} of {count}"
        if found == before and not met:  # nothing is left that keeps it from being done
            call()
            assert state() == after
        met.add(found == after)
    assert False in met
