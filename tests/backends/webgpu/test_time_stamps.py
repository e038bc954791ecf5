"""Profiles of the engine: each call is waited for, and its kernels are timed by the clock of the device, if that is sound."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.decorators import Report, Row
from firebrick.backends.webgpu import stamps as stamps_module
from firebrick.backends.webgpu.commands import Gpu
from firebrick.backends.webgpu.stamps import Stamps
from firebrick.core.timeline import Event


def array(*shape: int) -> fb.Tensor:
    return fb.asarray(np.random.default_rng(0).normal(size=shape).astype(np.float32), device="webgpu:0")


def launches(report: Report) -> list[Event]:
    return [e for e in report.timeline.events if e.category == "launch"]


@pytest.fixture
def gpu() -> Gpu:
    device = fb.device("webgpu:0")
    found: Gpu = device.backend.groups(device).gpu
    if not found._period:
        pytest.skip(f"{found.adapter.name} has no clock")
    return found


def profiled(f: Callable[[], Any], **options: Any) -> Report:
    with fb.profile("webgpu", **options) as report:
        f()
    return report


def test_every_call_has_the_time_of_its_kernels_within_its_own(gpu: Gpu) -> None:
    x = array(64, 64)
    report = profiled(lambda: [fb.tanh(x @ x) for _ in range(3)])
    for name in ("matmul", "tanh"):
        row = report.rows["webgpu", name]
        assert row.calls == row.device_calls == 3
        assert 0 < row.device_ns <= row.time_ns
    own: dict[str, list[Event]] = {}
    for e in launches(report):
        own.setdefault(e.name, []).append(e)
        assert (e.device, e.thread) == ("webgpu:0", "kernels")
        assert any(
            c.category == "op" and c.name == e.name and c.start_ns <= e.start_ns <= e.end_ns <= c.end_ns
            for c in report.timeline.events
        )
    assert {k: len(v) for k, v in own.items()} == {"matmul": 3, "tanh": 3}
    assert sum(e.end_ns - e.start_ns for e in own["tanh"]) == report.rows["webgpu", "tanh"].device_ns
    first, second = str(report).splitlines()[:2]
    assert first.split() == ["op", "engine", "calls", "ms", "kernels", "ms", "GB/s", "GFLOP/s"]
    assert len(second.split()) == 7


def test_kernels_of_programs_are_timed_and_their_results_are_the_same(gpu: Gpu) -> None:
    f = fb.jit(lambda x: fb.sum(fb.softmax(fb.tanh(x @ x), axis=1) @ x, axis=0))
    x = array(48, 48)
    want, found = f(x).numpy(), []
    report = profiled(lambda: found.append(f(x)), kernels=True)
    assert found[0].numpy().tobytes() == want.tobytes()
    kernels = [e for e in report.timeline.events if e.category == "kernel"]
    assert len(kernels) >= 3
    assert [e.name for e in launches(report)] == [e.name for e in kernels]
    assert all(r.device_calls == r.calls for r in report.rows.values())


def test_a_loop_that_a_program_runs_is_waited_for_and_timed(gpu: Gpu) -> None:
    f = fb.jit(lambda x: fb.sin(fb.scan(lambda c, _: (fb.tanh(c @ x), None), x, length=300)[0]))
    x = array(8, 8)
    want, found = f(x).numpy(), []
    report = profiled(lambda: found.append(f(x)), kernels=True)
    assert found[0].numpy().tobytes() == want.tobytes()
    rows = {name: row for (_, name), row in report.rows.items() if name in ("scan", "sin")}
    assert {name: row.device_calls for name, row in rows.items()} == {"scan": 1, "sin": 1}
    (scan,) = (e for e in report.timeline.events if (e.category, e.name) == ("kernel", "scan"))
    own = [e for e in launches(report) if e.name.startswith("scan ")]
    assert len(own) >= 300
    assert all(scan.start_ns <= e.start_ns <= e.end_ns <= scan.end_ns for e in own)
    assert all(e.start_ns >= scan.end_ns for e in launches(report) if e.name == "sin")


def test_more_launches_than_a_query_set_holds(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamps_module, "PASSES", 7)
    monkeypatch.setattr(gpu, "_unused", [])
    x = array(8, 8)

    def many() -> fb.Tensor:
        y = x
        for _ in range(50):
            y = fb.tanh(y) + 1.0
        return y

    want = many().numpy()
    made, found = gpu.timed(many)
    assert made.numpy().tobytes() == want.tobytes()
    assert len(found) == 100
    assert all(a <= b for a, b in found)
    assert all(b <= c for (_, b), (c, _) in pairwise(found))
    monkeypatch.setattr(gpu, "_unused", [])


def test_a_thread_has_the_times_of_its_own_launches(gpu: Gpu) -> None:
    x, stop = array(16, 16), threading.Event()

    def others() -> None:
        while not stop.is_set():
            fb.tanh(x).numpy()

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(20):
            made, found = gpu.timed(lambda: fb.exp(fb.exp(x * 0.1)))
            assert len(found) == 3
    finally:
        stop.set()
        thread.join()
    assert made.numpy().tobytes() == fb.exp(fb.exp(x * 0.1)).numpy().tobytes()
    assert not gpu._stamping


def planted_times(monkeypatch: pytest.MonkeyPatch, times: list[tuple[int, int]]) -> Report:
    def read(self: Stamps) -> None:
        self.found, self._passes = times, 0

    monkeypatch.setattr(Stamps, "read", read)
    x = array(8)
    return profiled(lambda: fb.tanh(x))


@pytest.mark.parametrize(
    "times", [[(2_000, 1_000)], [(0, 10**15)], [(10**9, 10**9 + 5), (0, 3), (2 * 10**15, 2 * 10**15)]],
    ids=["backwards", "longer than the call", "far apart"],
)  # fmt: skip
def test_a_clock_that_cannot_be_right_is_not_believed(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, times: list[tuple[int, int]]
) -> None:
    report = planted_times(monkeypatch, times)
    row = report.rows["webgpu", "tanh"]
    assert (row.calls, row.device_calls, row.device_ns) == (1, 0, 0)
    assert launches(report) == []
    assert "kernels ms" not in str(report)


def test_rates_are_those_of_the_kernels_where_all_calls_have_their_times(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    report = planted_times(monkeypatch, [(7, 507), (600, 1_100)])  # 64 bytes in 1 µs
    assert report.rows["webgpu", "tanh"].device_ns == 1_000
    assert [(e.name, e.end_ns - e.start_ns) for e in launches(report)] == [("tanh 1 of 2", 500), ("tanh 2 of 2", 500)]
    assert str(report).splitlines()[1].split()[-3:-1] == ["0.001", "0.06"]
    report.rows["webgpu", "tanh"] = Row(2, 10**6, 64.0, 8.0, 1, 1_000)
    assert str(report).splitlines()[1].split() == ["tanh", "webgpu", "2", "1.000", "0.00", "0.00"]


def test_the_times_are_in_nanoseconds(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some devices count in other units."""
    monkeypatch.setattr(gpu, "_unused", [])
    monkeypatch.setattr(gpu, "_period", 1e6)
    x = array(8)
    _, ((first, last),) = gpu.timed(lambda: fb.tanh(x))
    assert first % 10**6 == last % 10**6 == 0
    assert last > first
    monkeypatch.setattr(gpu, "_unused", [])


def test_without_a_clock_each_call_is_waited_for_all_the_same(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_period", 0.0)
    waits, wait = [], Gpu.wait
    monkeypatch.setattr(Gpu, "wait", lambda self: waits.append(self) or wait(self))
    x = array(8)
    report = profiled(lambda: [fb.tanh(x), fb.exp(x)])
    assert len(waits) == 2
    assert all(r.device_calls == 0 for r in report.rows.values())
    assert launches(report) == []


def test_what_waits_for_values_has_no_time_of_kernels(gpu: Gpu) -> None:
    x = array(8)

    def run() -> float:
        return float(fb.sum(fb.tanh(x)).item())

    _, found = gpu.timed(run)
    assert found == []


def test_an_error_leaves_the_clock_as_it_was(gpu: Gpu) -> None:
    x, index = array(8), fb.asarray([9], device="webgpu:0")
    with pytest.raises(fb.OutOfRangeError), fb.profile("webgpu"):
        fb.take(x + 1.0, index + 0, axis=0)
    assert not gpu._stamping
    row = profiled(lambda: fb.tanh(x)).rows["webgpu", "tanh"]
    assert row.calls == row.device_calls == 1


def test_profiles_within_profiles_both_count(gpu: Gpu) -> None:
    x = array(8, 8)
    with fb.profile("webgpu") as outer:
        inner = profiled(lambda: fb.tanh(x))
    for report in (outer, inner):
        assert report.rows["webgpu", "tanh"].device_calls == 1
        assert len(launches(report)) == 1
