"""``verify`` finds an engine's wrong result by the op's name; ``profile`` counts everything that runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends import register_backend, unregister_backend
from firebrick.backends.decorators import VerificationError, _unsure
from firebrick.backends.numpy import HostBackend


class OffByALittle(HostBackend):
    """Right in everything but ``tanh``, which is 1e-5 off."""

    engine = "little"
    platforms = ("little",)

    def execute(self, op: Any, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
        result = super().execute(op, inputs, params, out)
        return result * np.float32(1 + 1e-5) if op.name == "tanh" else result

    def fast_kernel(self, op: Any, dtypes: Any) -> Any:
        return None


@pytest.fixture
def little() -> Iterator[str]:
    register_backend(OffByALittle())
    try:
        yield "little"
    finally:
        unregister_backend("little")


def test_verify_names_the_op_that_differs_and_shows_both_values(little: str) -> None:
    x = fb.asarray([0.5, 1.0], device=little)
    assert fb.tanh(fb.exp(x)).shape == (2,)  # nobody notices
    with fb.verify(little), pytest.raises(VerificationError, match=r"tanh on little must agree") as e:
        fb.tanh(fb.exp(x))
    assert "units of precision" in str(e.value)


def test_verify_passes_a_right_engine_and_restores_the_fast_path() -> None:
    x, y = fb.ones(3), fb.ones(3)
    fb.add(x, y)
    with fb.verify("cpu"):
        assert x.device.backend.engine == "cpu"
        fb.add(x, y)
        assert x.device.backend.checked == 1
    fb.add(x[:2], y[:2])  # the general path fills the cache again
    assert type(x.device.backend).__name__ == "CpuBackend"


def test_verify_covers_the_backward_pass(little: str) -> None:
    def loss(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(x * x)

    with fb.verify("cpu"):
        backend = fb.device("cpu").backend
        fb.grad(loss)(fb.ones(4))
        assert backend.checked >= 4


def test_profile_counts_every_call_also_of_the_fast_path() -> None:
    x, y = fb.ones(5), fb.ones(5)
    fb.add(x, y)
    with fb.profile("cpu") as report:
        for _ in range(7):
            fb.add(x, y)
    row = report.rows["cpu", "add"]
    assert row.calls == 7
    assert row.bytes == 7 * 60
    assert row.flops == 35
    assert "add" in str(report)


@pytest.mark.parametrize("name", ["numpy", "cpu", "torch:cpu"])
def test_profile_waits_for_the_work_of_each_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    device, waits = fb.device(name), []
    x, f = fb.ones(5, device=device), fb.jit(lambda x: fb.exp(x) + 1.0)
    monkeypatch.setattr(type(device.backend), "sync", lambda self, device: waits.append(str(device)))
    with fb.profile(device.backend.engine) as report:
        fb.exp(fb.add(x, x))
        f(x)
    rows = report.rows.values()
    assert [r.device_calls for r in rows] == [0] * len(rows)
    assert waits == [device.name] * sum(r.calls for r in rows)
    assert len(waits) >= 4


def test_an_exception_inside_the_block_restores_the_engine() -> None:
    with pytest.raises(ZeroDivisionError), fb.profile("cpu"):
        _ = 1 // 0
    assert type(fb.device("cpu").backend).__name__ == "CpuBackend"


def test_verify_lets_programs_be_that_cancel_in_front_of_a_power() -> None:
    # moving the last bit of the exponent made NaN of it, and verify blamed the memory plan
    x = fb.asarray([[1.0, 2.0, 3.0]])
    f = fb.jit(lambda a: (1.0 - fb.cos(a) ** 2.0 - fb.sin(a) ** 2.0) ** 2.0)
    with fb.verify("cpu"):
        assert f(x).shape == (1, 3)


@pytest.mark.parametrize(
    ("got", "want", "nudged", "unsure"),
    [
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0], True),
        ([1.0, 2.1], [1.0, 2.0], [1.0, 2.0], False),
        ([1.0, 2.1], [1.0, 2.0], [1.0, 2.1], True),
        ([1.0, 3.0], [1.0, 2.0], [np.inf, 2.0], False),  # an element that overflows excuses itself, and no other
        ([9.0, 2.0], [1.0, 2.0], [np.inf, 2.0], True),
        ([np.inf, 2.0], [np.inf, 2.0], [np.inf, 2.0], True),
        ([-np.inf, 2.0], [np.inf, 2.0], [np.inf, 2.5], False),
        ([np.nan, 2.0], [1.0, 2.0], [1.0, 2.5], False),
        ([np.nan, 2.0], [np.nan, 2.0], [1.0, 2.5], True),
        ([True, False], [True, True], [True, False], True),
        ([True, False], [True, True], [False, True], False),
        ([3, 4], [3, 5], [3, 5], False),
    ],
)
def test_a_result_is_only_excused_by_what_a_change_of_last_bits_does_to_it(
    got: Any, want: Any, nudged: Any, unsure: bool
) -> None:
    assert _unsure(np.asarray(got), np.asarray(want), np.asarray(nudged)) is unsure


@pytest.mark.parametrize("first", [fb.profile, fb.verify])
def test_blocks_that_end_in_another_order_leave_no_engine_decorated(first: Any) -> None:
    backend, x = fb.device("cpu").backend, fb.ones(3)
    f = fb.jit(lambda x: fb.exp(x) + 1.0)
    one, two = first("cpu"), fb.profile("cpu", kernels=True)
    one.__enter__()
    report = two.__enter__()
    f(x)
    one.__exit__(None, None, None)
    assert fb.device("cpu").backend.inner is backend  # type: ignore[attr-defined]
    calls = sum(r.calls for r in report.rows.values())
    fb.sin(x)
    assert report.rows["cpu", "sin"].calls == 1
    two.__exit__(None, None, None)
    assert fb.device("cpu").backend is backend
    f(x)
    assert sum(r.calls for r in report.rows.values()) == calls + 1


def test_verify_shows_the_line_of_a_node_without_a_label(little: str) -> None:
    f = fb.jit(lambda x: fb.tanh(x))
    with fb.verify(little), pytest.raises(VerificationError, match=r"\(%\d+, \S+test_decorators\.py:\d+ in <lambda>\)"):
        f(fb.asarray([0.5, 1.0], device=little))
