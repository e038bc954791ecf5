"""A profile's timeline holds what ran, by device and thread, in the format that Chrome's and Perfetto's viewers read."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loading
import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.decorators import Profile, Report, _swap
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.spec.text import printed
from firebrick.core import timeline
from firebrick.core.timeline import Event, Timeline
from firebrick.data import DataLoader


def loaded(report: Report, tmp_path: Path) -> dict[str, Any]:
    """The written timeline, with its structure checked."""
    found: dict[str, Any] = json.loads(report.save_timeline(tmp_path / "trace.json").read_text("utf-8"))
    check(found)
    return found


def check(trace: dict[str, Any]) -> None:
    """Refuse what is no trace of nested events with names."""
    processes, threads, tracks = set(), set(), {}
    for e in trace["traceEvents"]:
        assert e["ph"] in ("M", "X")
        assert isinstance(e["pid"], int)
        if e["ph"] == "M":
            if e["name"] == "process_name":
                processes.add(e["pid"])
            elif e["name"] == "thread_name":
                threads.add((e["pid"], e["tid"]))
            continue
        assert e["name"]
        assert isinstance(e["name"], str)
        assert e["cat"] in CATEGORIES
        assert e["ts"] >= 0
        assert e["dur"] >= 0
        assert isinstance(e["args"], dict)
        assert e["pid"] in processes
        assert (e["pid"], e["tid"]) in threads
        tracks.setdefault((e["pid"], e["tid"]), []).append(e)
    for events in tracks.values():
        ends: list[float] = []
        for e in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            while ends and ends[-1] <= e["ts"] + 1e-6:
                ends.pop()
            assert not ends or e["ts"] + e["dur"] <= ends[-1] + 1e-6, f"{e} overlaps with what it is in"
            ends.append(e["ts"] + e["dur"])


CATEGORIES = ("op", "kernel", "program", "compile", "transfer", "wait", "loader", "fallback", "train")


def of(trace: dict[str, Any], category: str) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e.get("cat") == category]


def device_names(trace: dict[str, Any], events: list[dict[str, Any]]) -> set[str]:
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    return {names[e["pid"]] for e in events}


def test_operations_and_transfers_are_events_of_their_devices(tmp_path: Path) -> None:
    with fb.profile() as report:
        x = fb.exp(fb.ones((3, 5), device="cpu:1"))
        y = fb.add(x.to("numpy"), 1.0)
        y.numpy()
    trace = loaded(report, tmp_path)
    assert device_names(trace, [e for e in of(trace, "op") if e["name"] == "exp"]) == {"cpu:1"}
    assert [e["args"]["results"] for e in of(trace, "op") if e["name"] == "exp"] == ["float32[3,5]"]
    assert any(e["name"] == "cpu:1 to numpy:0" and e["args"]["bytes"] == 60 for e in of(trace, "transfer"))
    assert {"from host", "to host"} <= {e["name"] for e in of(trace, "transfer")}
    assert device_names(trace, trace["traceEvents"]) == {"cpu:1", "numpy:0"}


def step(w: fb.Tensor, x: fb.Tensor, t: fb.Tensor) -> Any:
    def loss(w: fb.Tensor) -> fb.Tensor:
        return fb.mean((fb.tanh(x @ w) - t) ** 2)

    value, gradient = fb.value_and_grad(loss)(w)
    return value, w - 0.1 * gradient[w] if isinstance(gradient, fb.Gradients) else w - 0.1 * gradient


def operands() -> tuple[fb.Tensor, ...]:
    rng = np.random.default_rng(0)
    return tuple(fb.asarray(rng.normal(size=s).astype(np.float32)) for s in ((8, 4), (16, 8), (16, 4)))


def test_a_view_that_a_kernel_reads_through_and_the_host_reads_too(tmp_path: Path) -> None:
    def both(x: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        v = fb.matrix_transpose(fb.tanh(x) + 1.0)
        return fb.sum(fb.exp(v) * 2.0, axis=1), fb.linalg.qr(fb.reshape(v, (128, 48)))[1]

    f, x = fb.jit(both), fb.asarray(np.random.default_rng(0).random((64, 96), dtype=np.float32))
    want = [t.numpy() for t in f(x)]
    with fb.profile("cpu", kernels=True) as report:
        found = f(x)
    assert all(np.array_equal(a, b.numpy()) for a, b in zip(want, found, strict=True))
    assert [e["name"] for e in of(loaded(report, tmp_path), "kernel") if e["name"] == "qr"] == ["qr"]


@pytest.mark.parametrize("before", [False, True], ids=["compiled within", "compiled before"])
def test_every_kernel_of_a_step_is_there_with_its_specification(before: bool, tmp_path: Path) -> None:
    f = fb.jit(step)
    wanted = [v.tolist() for v in f(*operands())] if before else []
    with fb.profile("cpu", kernels=True) as report:
        found = f(*operands())
    trace = loaded(report, tmp_path)
    assert wanted in ([], [v.tolist() for v in found])
    (program,) = of(trace, "program")
    kernels = of(trace, "kernel")
    graph = fb.device("cpu").backend.compile(_graph_of(f)).whole.graph
    groups = [n for n in graph.nodes if n.op is FUSED]
    assert len(kernels) == sum(n.op.name != "constant" for n in graph.nodes) >= len(groups) > 0
    specifications = [printed(spec_of(n.params["body"])) for n in groups]
    assert sorted(e["args"]["spec"] for e in kernels if e["args"]["spec"] in specifications) == sorted(specifications)
    assert all(e["args"]["spec"] for e in kernels)
    assert any("tanh" in e["name"] for e in kernels)
    assert any("test_timeline.py" in e["args"].get("lines", "") for e in kernels)
    assert all(program["ts"] <= e["ts"] and e["ts"] + e["dur"] <= program["ts"] + program["dur"] + 1e-6 for e in kernels)
    assert sum(row.calls for row in report.rows.values()) >= len(kernels)
    assert of(trace, "compile")


def _graph_of(f: Any) -> Any:
    """The graph that a jitted function ran."""
    seen: list[Any] = []
    backend = fb.device("cpu").backend

    class Listening(Profile):
        def compile(self, graph: Any, *args: Any, **options: Any) -> Any:
            seen.append(graph)
            return super().compile(graph, *args, **options)

    _swap("cpu", Listening(backend, Report()))
    try:
        f(*operands())
    finally:
        _swap("cpu", backend)
    return seen[-1]


def test_programs_run_the_operations_that_they_were_made_of_unless_kernels_are_asked_for(tmp_path: Path) -> None:
    with fb.profile("cpu") as report:
        fb.jit(step)(*operands())
    trace = loaded(report, tmp_path)
    assert {"tanh", "matmul"} <= {e["name"] for e in of(trace, "op")}
    assert not [e for e in of(trace, "kernel") if "tanh" in e["name"] and "," in e["name"]]


@pytest.mark.parametrize("name", ["cpu", "numpy", "torch:cpu"])
def test_loops_are_rows_of_a_report_of_kernels_and_their_operations_rows_of_one_of_operations(name: str) -> None:
    f = fb.jit(lambda x: fb.scan(lambda c, row: (fb.tanh(c) + row, None), x[0], x)[0])
    x = fb.ones((7, 3), device=name)
    with fb.profile(kernels=True) as report:
        f(x)
    engine = fb.device(name).backend.engine
    row = report.rows[engine, "scan"]
    (event,) = [e for e in report.timeline.events if e.name == "scan"]
    assert (row.calls, row.bytes, row.flops) == (1, 0.0, 0.0)
    assert row.time_ns == event.end_ns - event.start_ns > 0
    assert (engine, "tanh") not in report.rows
    (line,) = [line for line in str(report).splitlines() if line.startswith("scan ")]
    assert line.split() == ["scan", engine, "1", f"{row.time_ns / 1e6:.3f}"]
    with fb.profile() as report:
        f(x)
    assert report.rows[engine, "tanh"].calls == 7
    assert (engine, "scan") not in report.rows


@pytest.mark.parametrize(("workers", "kind"), [(0, "thread"), (2, "thread"), (2, "process")])
def test_batches_are_made_by_their_workers_and_waited_for(workers: int, kind: str, tmp_path: Path) -> None:
    loader = DataLoader(loading.Numbers(), 10, num_workers=workers, worker=kind, name="rows")
    with fb.profile() as report:
        for _ in loader:
            pass
    trace = loaded(report, tmp_path)
    made = [e["name"] for e in of(trace, "loader") if e["name"].startswith("make")]
    assert sorted(made) == [f"make batch {i}" for i in range(4)]
    assert len([e for e in of(trace, "loader") if e["name"].startswith("place")]) == 4
    assert len(of(trace, "wait")) == (4 if workers else 0)
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert {n for n in names if n.startswith("worker")} == {f'worker {i} of loader "rows"' for i in range(workers)}


def test_a_batch_that_cannot_be_made_and_a_block_that_raises_leave_a_timeline(tmp_path: Path) -> None:
    with pytest.raises(fb.data.SampleError), fb.profile() as report:
        list(DataLoader(loading.Raising(13), 10))
    trace = loaded(report, tmp_path)
    assert [e["name"] for e in of(trace, "loader")] == ["make batch 0", "place batch 0"]
    assert timeline.active == []


def test_threads_have_tracks_of_their_own(tmp_path: Path) -> None:
    together = threading.Barrier(3)

    def work() -> None:
        together.wait(30)
        for _ in range(5):
            fb.exp(fb.ones(1000))
        together.wait(30)

    threads = [threading.Thread(target=work, name="same") for _ in range(3)]
    with fb.profile() as report:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    trace = loaded(report, tmp_path)
    assert len({e["tid"] for e in of(trace, "op") if e["name"] == "exp"}) == 3
    assert len([e for e in of(trace, "op") if e["name"] == "exp"]) == 15


def test_nothing_is_recorded_outside_and_blocks_within_blocks_record_both(tmp_path: Path) -> None:
    fb.exp(fb.ones(2))
    with fb.profile() as outer:
        fb.exp(fb.ones(2))
        with fb.profile() as inner:
            fb.tanh(fb.ones(2))
    fb.exp(fb.ones(2))
    names = [[e.name for e in r.timeline.events if e.category == "op"] for r in (outer, inner)]
    assert (names[0].count("exp"), names[0].count("tanh"), names[1].count("exp"), names[1].count("tanh")) == (1, 1, 0, 1)
    loaded(inner, tmp_path)


def test_an_event_ends_now_unless_it_is_said_and_never_before_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Timeline()
    monkeypatch.setattr(timeline, "active", [found])
    monkeypatch.setattr(timeline, "perf_counter_ns", lambda: 500)
    timeline.record("a", "op", "cpu:0", 100, size=3)
    timeline.record("b", "loader", "cpu:0", 100, thread="worker 1", end_ns=300)
    timeline.record("c", "op", "cpu:0", 100, end_ns=50)
    timeline.record("d", "op", "cpu:0", 700)
    with timeline.span("e", "wait", "cpu:1", why="x"):
        monkeypatch.setattr(timeline, "perf_counter_ns", lambda: 900)
    own = timeline.thread_name()
    assert found.events == [
        Event("a", "op", "cpu:0", own, 100, 500, {"size": 3}), Event("b", "loader", "cpu:0", "worker 1", 100, 300, {}),
        Event("c", "op", "cpu:0", own, 100, 100, {}), Event("d", "op", "cpu:0", own, 700, 700, {}),
        Event("e", "wait", "cpu:1", own, 500, 900, {"why": "x"}),
    ]  # fmt: skip


def test_an_empty_timeline_is_a_trace(tmp_path: Path) -> None:
    trace = loaded(Report(), tmp_path)
    assert of(trace, "op") == []


def events(*at: tuple[int, int]) -> Iterator[Event]:
    return (Event(f"{a} to {b}", "op", "cpu:0", "main", a, b) for a, b in at)


def test_events_of_one_thread_that_overlap_get_a_track_more() -> None:
    made = Timeline()
    for e in events((10, 20), (12, 15), (15, 18), (14, 30), (20, 25), (30, 31)):
        made.add(e)
    trace = made.trace()
    check(trace)
    assert len({e["tid"] for e in of(trace, "op")}) == 2


def test_the_check_of_these_tests_finds_what_is_not_nested_and_times_below_zero() -> None:
    def trace(*at: tuple[float, float]) -> dict[str, Any]:
        names = [{"ph": "M", "name": n, "pid": 1, "tid": 1, "args": {"name": "x"}} for n in ("process_name", "thread_name")]
        rows = [{"ph": "X", "name": "a", "cat": "op", "pid": 1, "tid": 1, "ts": a, "dur": b, "args": {}} for a, b in at]
        return {"traceEvents": [*names, *rows]}

    check(trace((0, 5), (1, 2), (5, 1)))
    for wrong in (((0, 5), (3, 4)), ((-1, 5),), ((0, -1),)):
        with pytest.raises(AssertionError):
            check(trace(*wrong))


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        Report().save_timeline(tmp_path / "missing" / "trace.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        Report().save_timeline(tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
