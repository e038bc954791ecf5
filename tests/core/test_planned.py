"""Plans of single operations: the same bits, checks, errors and tracking as the general path of ``bind``."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.numpy.engine import HostBackend
from firebrick.core import planned
from firebrick.graph.program import Taken
from firebrick.ops import OPS
from firebrick.testing.cases import samples_of

TIMES = planned.BEFORE + 3


def plans_of(op: Any) -> list[planned.OpPlan]:
    return [p for p in op.plans.values() if isinstance(p, planned.OpPlan)]


def results(op: Any, arrays: Any, params: dict[str, Any], device: str) -> list[tuple[bytes, Any, Any]]:
    found = op(*(fb.asarray(a, device=device) for a in arrays), **params)
    parts = found if isinstance(found, tuple) else (found,)
    return [(t.numpy().tobytes(), t.aval, t.device) for t in parts]


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.control is None and not op.transfers])
def test_a_plan_gives_the_bits_of_the_general_path(name: str, seed: int) -> None:
    op = OPS[name]
    dtype = "float32" if "float32" in op.dtypes else op.dtypes[0]
    for sample, device in zip(samples_of(op, dtype, seed), ("cpu", "numpy", "cpu"), strict=False):
        op.plans.clear()
        first = results(op, sample.inputs, sample.params, device)
        for _ in range(TIMES):
            assert results(op, sample.inputs, sample.params, device) == first


def test_a_plan_is_made_after_a_few_times_and_records() -> None:
    op = OPS["reshape"]
    op.plans.clear()
    x = fb.asarray([[1.0, 2.0], [3.0, 4.0]])
    for i in range(TIMES):
        assert len(plans_of(op)) == (i > planned.BEFORE)
        y = fb.reshape(x, (4,))
        assert (y.tracked, y.label) == (False, None)
    with fb.no_grad():
        assert not fb.reshape(x.detach().require_grad(), (4,)).tracked
    slope = fb.grad(lambda t: fb.sum(fb.reshape(t, (4,)) * fb.asarray([1.0, 2.0, 3.0, 4.0])))(x)
    assert slope.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert not OPS["argmax"](x, axis=0, keepdims=False).tracked


def test_a_result_that_shares_memory_keeps_its_operand_from_being_written() -> None:
    for _ in range(TIMES):
        x = fb.asarray([1.0, 2.0, 3.0, 4.0])
        y = fb.reshape(x, (2, 2))
        assert not x.storage.unique()
        fb.add(x, 1.0, out=x)
        assert y.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("device", ["numpy", "cpu"])
def test_values_of_views_of_a_tensor_without_axes_are_arrays(device: str) -> None:
    x = fb.asarray(np.float32(3.0), device=device)
    for view in (lambda: x[...], lambda: x[None], lambda: fb.reshape(x, (1, 1)), lambda: fb.permute_dims(x, ())):
        for _ in range(TIMES):
            y = view()
            assert type(y.numpy()) is np.ndarray
            assert fb.read([y])[0].reshape(()) == 3.0
            assert y.storage.base is x.storage


def test_equal_parameters_of_other_types_have_plans_of_their_own() -> None:
    op = OPS["pad"]
    op.plans.clear()
    x = fb.asarray([1.0])
    named = {k for s in samples_of(op, "float32", 0) for k in s.params}
    pads = next(k for k in named if k != "value")
    params = {pads: ((1, 0),)}
    for _ in range(TIMES):
        assert not np.signbit(op(x, **params, value=0.0).numpy()[0])
    assert np.signbit(op(x, **params, value=-0.0).numpy()[0])
    keys = {planned.key_of(op, (x,), {"n": n}) for n in (1, True, 1.0, -0.0, 0.0, "1", (1,), None)}
    assert len(keys) == 8


def test_a_view_keeps_the_memory_that_it_was_made_of_if_another_thread_takes_its_operand_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    op = OPS["reshape"]
    x = fb.asarray([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(TIMES):
        fb.reshape(x, (4,))
    (plan,) = (p for p in plans_of(op) if p.in_avals == (x.aval,) and p.avals[0].shape == (4,))
    before, run = x.storage, plan.kernel

    def taken_meanwhile(native: Any) -> Any:
        made = run(native)
        x.storage = fb.zeros((2, 2)).storage  # as a program of another thread does that writes into the memory
        before.data = Taken("a program")
        return made

    monkeypatch.setattr(plan, "kernel", taken_meanwhile)
    y = fb.reshape(x, (4,))
    assert y.storage.base is before
    assert y.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_operands_on_two_devices_are_refused_after_a_plan_as_before() -> None:
    x, y = fb.ones((2, 1)), fb.ones(3)
    for _ in range(TIMES):
        fb.add(x, y)
    with pytest.raises(fb.DeviceMismatchError):
        fb.add(x, fb.ones(3, device="cpu:1"))
    with pytest.raises(fb.OperandError):
        fb.add(x, np.ones(3, np.float32))
    with pytest.raises(fb.DTypeError):
        fb.add(x, fb.ones(3, dtype=fb.int32))


def test_checks_and_profiles_see_operations_that_have_plans() -> None:
    x, y = fb.ones((2, 1)), fb.ones(3)
    for _ in range(TIMES):
        fb.add(x, y)
    with fb.profile() as profile:
        fb.add(x, y)
    assert "add" in str(profile)
    with fb.verify():
        fb.add(x, y)
    assert fb.add(x, y).tolist() == [[2.0] * 3] * 2


def test_plans_are_made_again_when_a_setting_of_the_engine_changes() -> None:
    op = OPS["softmax"]
    op.plans.clear()
    x = fb.ones((2, 3))
    for _ in range(TIMES):
        fb.softmax(x)
    (before,) = plans_of(op)
    with fb.config.scope(cpu_compile=not fb.config.cpu_compile):
        fb.softmax(x)
        (now,) = plans_of(op)
        assert now is not before


def test_a_kernel_that_returns_another_shape_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    op = OPS["exp"]
    op.plans.clear()
    x = fb.ones((1, 3)).require_grad()
    for _ in range(TIMES):
        fb.exp(x)
    (plan,) = plans_of(op)
    right = plan.kernel
    plan.kernel = lambda a: right(a)[0]
    assert fb.exp(x).shape == (1, 3), "by the general path"
    plan.kernel = lambda a: 1 / 0
    assert fb.exp(x).shape == (1, 3)
    with monkeypatch.context() as patch:
        patch.setattr(HostBackend, "execute", lambda self, op, inputs, params, out=None: np.zeros(3, np.float32))
        with pytest.raises(fb.ExecutionError):
            fb.exp(x)
    op.plans.clear()


def test_an_index_outside_its_axis_is_reported_each_time() -> None:
    x = fb.arange(4)
    for _ in range(TIMES):
        fb.take(x, fb.asarray([0, 3]))
    with pytest.raises(IndexError):
        fb.take(x, fb.asarray([0, 4]))


def test_the_number_of_plans_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "KEPT", 8)
    op = OPS["reshape"]
    x = fb.ones(64)
    for i in range(50):
        fb.reshape(fb.ones(i + 1), (1, i + 1))
    assert len(op.plans) <= 8
    assert fb.reshape(x, (8, 8)).shape == (8, 8)


def test_an_operation_made_of_another_has_plans_of_its_own() -> None:
    op = OPS["negative"]
    x = fb.ones((2, 1)).require_grad()
    for _ in range(TIMES):
        op(x)
    other = dataclasses.replace(op, name="of_another", fast={})
    assert plans_of(op)
    assert other.plans == {}
