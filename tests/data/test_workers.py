"""Workers make batches ahead: the same bits in the same order for any number of either kind, and they end whatever happens."""

import errno
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import loading
import numpy as np
import pytest

from firebrick.data import (
    ArrayDataset,
    DataLoader,
    LoaderError,
    RandomHorizontalFlip,
    SampleError,
    WorkerDiedError,
    transport,
    workers,
)
from firebrick.data.assembly import Assembly, Job
from firebrick.data.workers import Pool

KINDS = ["thread", "process"]
SETTINGS = [(1, "thread"), (2, "thread"), (4, "thread"), (1, "process"), (2, "process"), (4, "process")]


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert multiprocessing.active_children() == []
    assert [t for t in threading.enumerate() if t not in before and "loader" in t.name] == []


def bits(loader: DataLoader) -> list[list[bytes]]:
    return [[t.numpy().tobytes() for t in (b if isinstance(b, tuple) else (b,))] for b in loader]


def numbers(loader: DataLoader) -> list[list[int]]:
    return [y.tolist() for _, y in loader]


# the same batches


@pytest.mark.parametrize(("count", "kind"), SETTINGS)
def test_any_number_of_workers_gives_the_same_bits_in_the_same_order(count: int, kind: str) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 5, "sample_transform": loading.noisy, "transform": loading.shifted}
    alone = DataLoader(loading.Numbers(), 4, **options)
    loader = DataLoader(loading.Numbers(), 4, **options, num_workers=count, worker=kind, keep_workers=True)
    assert [bits(loader), bits(loader)] == [bits(alone), bits(alone)]
    loader.close()


@pytest.mark.parametrize("kind", KINDS)
def test_who_writes_into_its_indices_or_words_changes_no_other_batch(kind: str) -> None:
    options: dict[str, Any] = {"shuffle": True, "augment": loading.Wiping()}
    workers = DataLoader(loading.Writing(), 64, **options, num_workers=1, worker=kind)
    assert bits(workers) == bits(DataLoader(loading.Writing(), 64, **options))


@pytest.mark.parametrize("kind", KINDS)
def test_augmentations_and_whole_batch_reading_are_the_same_in_workers(kind: str) -> None:
    images = np.random.default_rng(0).integers(0, 255, (50, 6, 5), np.uint8)
    data = ArrayDataset(images, np.arange(50))
    options: dict[str, Any] = {"shuffle": True, "augment": RandomHorizontalFlip()}
    assert bits(DataLoader(data, 8, **options, num_workers=2, worker=kind)) == bits(DataLoader(data, 8, **options))


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_s_seed_is_its_own_whatever_slice_split_or_worker_reads_it(kind: str) -> None:
    def drawn(*loaders: DataLoader) -> dict[int, list[float]]:
        return {int(n): row for it in loaders for x, y in it for row, n in zip(x.tolist(), y.tolist(), strict=True)}

    options: dict[str, Any] = {"shuffle": True, "seed": 3, "num_workers": 2, "worker": kind}
    whole = drawn(DataLoader(loading.Noise(), 4, shuffle=True, seed=3))
    assert len({tuple(v) for v in whole.values()}) == loading.SAMPLES
    assert drawn(*DataLoader(loading.Noise(), 5, **options).split(["cpu:0", "cpu:1"])) == whole
    part = drawn(DataLoader(loading.Noise(), 4, **options).slice(7, 20))
    assert part.items() <= whole.items()
    (shard, _) = DataLoader(loading.Noise(), 5, **options).split(["cpu:0", "cpu:1"])
    apart = drawn(shard.slice(1))  # whose batches hold rows of two batches
    assert len(apart) > 10
    assert apart.items() <= whole.items()
    later = DataLoader(loading.Noise(), 4, shuffle=True, seed=3)
    later.set_epoch(1)
    assert not drawn(later).items() & whole.items()


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_growing_size_come_through_whole(kind: str) -> None:
    loader = DataLoader(loading.Ragged(), 1, collate=loading.stretched, num_workers=1, worker=kind, prefetch=2)
    for (x, y), i in zip(loader, range(6), strict=True):
        assert x.tolist() == [v for v in range(i + 1) for _ in range(40000)]
        assert y.tolist() == [i]


def test_without_shared_memory_all_goes_through_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SHARED_MEMORY", False)
    data = ArrayDataset(np.arange(400_000.0).reshape(20, -1), np.arange(20))
    loader = DataLoader(data, 3, shuffle=True, num_workers=2, worker="process")
    assert bits(loader) == bits(DataLoader(data, 3, shuffle=True))


@pytest.mark.skipif(not transport.SHARED_MEMORY, reason="shared memory without a name is Linux's")
def test_arrays_travel_through_shared_memory_and_not_through_the_pipe() -> None:
    big = transport.Parcel([np.zeros(100_000), np.zeros(4)], shared=True)
    assert big.size == 800_000
    assert len(big.text) < 1000
    assert len(transport.Parcel([np.zeros(100_000)], shared=False).text) > 800_000


def test_worker_info_says_who_reads() -> None:
    def seen(**options: Any) -> set[tuple[int, ...]]:
        rows = [np.stack([t.numpy() for t in batch], 1) for batch in DataLoader(loading.Whoami(), 4, **options)]
        return {tuple(row) for row in np.concatenate(rows).tolist()}

    here = os.getpid()
    assert seen() == {(here, 0, 0)}
    assert seen(num_workers=2, worker="thread") == {(here, 0, 2), (here, 1, 2)}
    processes = seen(num_workers=2, worker="process")
    assert {(w, n) for _, w, n in processes} == {(0, 2), (1, 2)}
    assert len({pid for pid, _, _ in processes} - {here}) == 2


def test_kept_workers_serve_the_next_epochs_and_others_do_not() -> None:
    def pids(loader: DataLoader) -> set[int]:
        return {p for batch in loader for p in batch[0].tolist()}

    kept = DataLoader(loading.Whoami(), 4, num_workers=1, worker="process", keep_workers=True)
    first = pids(kept)
    assert pids(kept) == first
    other = copy(kept)
    assert pids(other) != first  # a copy has its own
    other.close()
    assert pids(kept) == first
    kept.transform = loading.same
    assert pids(kept) != first  # new ones, with what the loader is now
    kept.close()
    once = DataLoader(loading.Whoami(), 4, num_workers=1, worker="process")
    assert pids(once) != pids(once)


# ahead of use


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_batches_as_prefetch_says_are_asked_for_ahead(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    jobs = DataLoader._jobs

    def counted(self: DataLoader, epoch: int, start: int) -> Iterator[Job]:
        for job in jobs(self, epoch, start):
            asked.append(job.number)
            yield job

    monkeypatch.setattr(DataLoader, "_jobs", counted)
    running = iter(DataLoader(loading.Numbers(), 1, num_workers=2, worker=kind, prefetch=5))
    assert next(running)[1].tolist() == [0]
    assert asked == [0, 1, 2, 3, 4]
    assert next(running)[1].tolist() == [1]
    assert asked == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_the_cursor_counts_what_was_handed_out_and_not_what_was_made_ahead(kind: str) -> None:
    loader = DataLoader(loading.Noise(), 4, shuffle=True, num_workers=2, worker=kind, prefetch=6)
    wanted = bits(DataLoader(loading.Noise(), 4, shuffle=True))
    running = iter(loader)
    seen = [[t.numpy().tobytes() for t in next(running)] for _ in range(3)]
    cursor = loader.cursor()
    running.close()  # type: ignore[attr-defined]
    assert cursor["position"] == 12
    other = DataLoader(loading.Noise(), 4, shuffle=True, num_workers=1, worker=kind)
    other.load_cursor(cursor)
    assert seen + bits(other) == wanted


def test_a_device_with_memory_of_its_own_gets_the_next_batch_ahead_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[str] = []
    loader = DataLoader(loading.Numbers(), 4, device="cpu:1", num_workers=1, worker="thread", prefetch=2)
    place = type(loader._placing).__call__
    monkeypatch.setattr(
        type(loader._placing), "__call__", lambda self, made, job, label: placed.append(label) or place(self, made, job, label)
    )
    monkeypatch.setattr(type(loader.device.backend), "host_memory", lambda self, device: False)
    monkeypatch.setattr(Pool, "ready", lambda self: bool(self._asked))  # as if the worker were always done
    running = iter(loader)
    first = next(running)
    assert first[1].tolist() == [0, 1, 2, 3]
    assert loader.cursor()["position"] == 4
    assert placed == [f'batch {i} of loader "train"' for i in range(2)]
    assert [first[1].tolist(), *([y.tolist() for _, y in running])] == numbers(DataLoader(loading.Numbers(), 4))


# what goes wrong


@pytest.mark.parametrize(("count", "kind"), [(0, "thread"), (2, "thread"), (2, "process")])
def test_a_raising_sample_is_named_after_the_batches_before_it(count: int, kind: str) -> None:
    running = iter(DataLoader(loading.Raising(9), 4, num_workers=count, worker=kind))
    assert [next(running)[1].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(SampleError) as caught:
        next(running)
    text = str(caught.value)
    for part in ('batch 2 of loader "train"', "reading sample 9", "ZeroDivisionError: the cat ate it"):
        assert part in text
    assert (caught.value.context["batch"], caught.value.context["sample"]) == (2, 9)
    if count:
        assert f"{kind} worker 0" in text
        assert 'raise ZeroDivisionError("the cat ate it")' in "".join(caught.value.__notes__)
    else:
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_ours_keeps_its_remedy_through_a_worker(kind: str) -> None:
    with pytest.raises(SampleError, match="one structure and one shape") as caught:
        list(DataLoader(loading.Ragged(), 4, num_workers=1, worker=kind))
    assert "pad_collate" in caught.value.remedy


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_worker_is_named_with_the_samples_it_had(how: signal.Signals) -> None:
    loader = DataLoader(loading.Killed(5, how), 4, num_workers=2, worker="process", prefetch=4)
    running = iter(loader)
    with pytest.raises(WorkerDiedError) as caught:
        list(running)
    text = str(caught.value)
    for part in ("process worker 1", how.name, "batch 1 (samples 4, 5, 6, 7)", 'loader "train"'):
        assert part in text
    assert caught.value.context == {"worker": 1, "exit_code": -how}


def test_a_killed_worker_ends_the_wait_for_another_that_is_slow() -> None:
    loader = DataLoader(loading.Stuck(), 4, num_workers=2, worker="process")
    with pytest.raises(WorkerDiedError, match="process worker 1"):
        next(iter(loader))


def test_a_worker_killed_between_two_epochs_is_named_too() -> None:
    loader = DataLoader(loading.Numbers(), 4, num_workers=1, worker="process", keep_workers=True)
    list(loader)
    (process,) = multiprocessing.active_children()
    os.kill(process.pid or 0, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        list(loader)
    assert len(numbers(loader)) == 10  # with new ones
    loader.close()


@pytest.mark.parametrize(
    ("options", "part"),
    [({"dataset": "local"}, "dataset, of which"), ({"transform": lambda x, y: (x, y)}, "transform, of which")],
)
def test_what_does_not_pickle_is_named_with_the_remedy(options: dict[str, Any], part: str) -> None:
    class Local(loading.Numbers):
        pass

    data = Local() if options.pop("dataset", None) else loading.Numbers()
    loader = DataLoader(data, 4, num_workers=1, worker="process", **options)
    with pytest.raises(LoaderError, match=part) as caught:
        next(iter(loader))
    assert 'worker="thread"' in caught.value.remedy


@pytest.mark.parametrize("kind", [AttributeError, FileNotFoundError, EOFError])  # the last two are also those of a closed pipe
def test_a_data_set_that_cannot_be_unpickled_in_a_worker_says_what_to_do(kind: type[Exception]) -> None:
    with pytest.raises(SampleError, match=f"unpickling it raised {kind.__name__}: not here") as caught:
        list(DataLoader(loading.Unreadable(kind("not here")), 4, num_workers=1, worker="process"))
    assert "__main__" in caught.value.remedy


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_workers": -1}, "num_workers -1"),
        ({"num_workers": 1.5}, "whole number"),
        ({"num_workers": 1, "worker": "fork"}, "'fork'"),
        ({"num_workers": 2, "prefetch": 1}, "prefetch 1 with 2 workers"),
        ({"prefetch": 3}, "prefetch 3 with 0 workers"),
        ({"num_workers": 1, "prefetch": 65}, "prefetch 65"),
    ],
)
def test_workers_that_cannot_be_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(LoaderError, match=text) as caught:
        DataLoader(loading.Numbers(), 4, **options)
    assert caught.value.remedy


@pytest.mark.skipif(not transport.SHARED_MEMORY, reason="batches come through pipes")
@pytest.mark.parametrize("end", ["asking", "answering"])
def test_a_system_without_open_files_left_is_said_and_not_waited_for(monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    def none_left(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    data = ArrayDataset(np.arange(64))
    pool = Pool(Assembly("train", data, None, None, (), None), 1, "process", 1)
    if end == "asking":
        monkeypatch.setattr(os, "memfd_create", none_left)
    else:
        monkeypatch.setattr(socket, "recv_fds", lambda *_: (b"m", [], 0, None))  # what the kernel gives then
    pool.begin(DataLoader(data, 64)._jobs(0, 0))
    with pytest.raises(LoaderError, match="Too many open files") as caught:
        pool.take()
    pool.close()
    assert "ulimit -n" in caught.value.remedy


def test_workers_that_the_system_has_no_room_for_are_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(workers, "ProcessWorker", none_left)
    with pytest.raises(LoaderError, match="starting 2 workers raised"):
        list(DataLoader(loading.Numbers(), 4, num_workers=2, worker="process"))


# what is left behind


@pytest.mark.parametrize("kind", KINDS)
def test_an_iteration_left_early_ends_its_workers(kind: str) -> None:
    for _ in DataLoader(loading.Numbers(), 4, num_workers=2, worker=kind, keep_workers=True):
        break


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_that_is_collected_ends_the_workers_it_kept(kind: str) -> None:
    loader = DataLoader(loading.Numbers(), 4, num_workers=2, worker=kind, keep_workers=True)
    list(loader)
    del loader


def test_a_thread_in_the_middle_of_a_sample_without_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    began, going_on = threading.Event(), threading.Event()

    def endless(x: Any) -> Any:
        if x >= 2:
            began.set()
            going_on.wait(60)
        return x

    loader = DataLoader(np.arange(8), 2, sample_transform=endless, num_workers=2)
    monkeypatch.setattr(workers, "_GRACE", 0.01)
    running = iter(loader)
    next(running)
    assert began.wait(60)
    beside = [t for t in threading.enumerate() if "loader worker" in t.name]
    running.close()  # type: ignore[attr-defined]
    assert any(t.is_alive() for t in beside)
    going_on.set()
    for thread in beside:
        thread.join(60)


def test_a_worker_in_the_middle_of_a_long_sample_is_ended() -> None:
    pool = Pool(Assembly("train", loading.Stuck(), None, None, (), None), 1, "process", 1)
    rows = np.arange(1)
    pool._workers[0].send(Job(0, rows, rows, np.zeros((1, 0), np.uint32), 0, 0, 0), 0)
    pool.close()


SCRIPT = """
    import os, signal, sys
    import loading
    from firebrick.data import DataLoader

    if __name__ == "__main__":
        loader = DataLoader(loading.Whoami(), 4, num_workers=2, worker=sys.argv[1], keep_workers=True)
        running = iter(loader)
        pids = set(next(running)[0].tolist()) | set(next(running)[0].tolist())
        print(*pids, flush=True)
"""


def run(tmp_path: Path, kind: str, end: str, begin: str = SCRIPT) -> tuple[int, set[int], str]:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(begin) + textwrap.indent(textwrap.dedent(end), "    "))
    path = os.pathsep.join([str(Path(loading.__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, str(script), kind],
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": path}, check=False,
        start_new_session=True,  # so that Ctrl-C reaches no one else
    )  # fmt: skip
    return done.returncode, {int(p) for p in done.stdout.split()}, done.stderr


def gone(pids: set[int]) -> bool:
    """Whether all processes end, of which some may be in the middle of that."""
    for _ in range(600):
        alive = [p for p in pids if Path(f"/proc/{p}").exists() and " Z " not in Path(f"/proc/{p}/stat").read_text()]
        if not alive:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_interpreter_exits_in_the_middle_of_an_iteration_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    code, pids, said = run(tmp_path, kind, "")
    assert (code, said) == (0, "")
    assert gone(pids)


def test_processes_start_beside_a_screen_that_has_replaced_stderr(tmp_path: Path) -> None:
    script = SCRIPT.replace("loader = ", "sys.stderr = type('Screen', (), {'fileno': lambda self: -1})()\n        loader = ")
    assert script != SCRIPT
    code, pids, _ = run(tmp_path, "process", "sys.stderr = sys.__stderr__", script)
    assert (code, len(pids)) == (0, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_ends_the_workers_without_a_word_of_theirs(tmp_path: Path, kind: str) -> None:
    end = """
        try:
            signal.raise_signal(signal.SIGINT) if sys.argv[1] == "thread" else os.killpg(os.getpgrp(), signal.SIGINT)
            for batch in running:
                pass
        except KeyboardInterrupt:
            running.close()
            sys.exit(7)
    """
    code, pids, said = run(tmp_path, kind, end)
    assert (code, said) == (7, "")
    assert gone(pids)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_the_workers_of_a_killed_consumer_end(tmp_path: Path) -> None:
    end = """
        import multiprocessing

        def die(*_):
            print(*(p.pid for p in multiprocessing.active_children()), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        signal.signal(signal.SIGALRM, die)
        signal.alarm(1)
        next(iter(DataLoader(loading.Stuck(), 4, num_workers=1, worker="process")))  # in the middle of a sample without end
    """
    code, pids, _ = run(tmp_path, "process", end)
    assert code == -signal.SIGKILL
    assert len(pids) == 3
    assert gone(pids)


@pytest.mark.parametrize(
    ("ends_by", "calls"),
    [
        ("itself", ["join 2"]),
        ("terminate", ["join 2", "terminate", "join 1"]),
        ("kill", ["join 2", "terminate", "join 1", "kill", "join"]),
        ("kill, after the deadline", ["join 0", "terminate", "join 1", "kill", "join"]),
    ],
)
def test_a_process_is_waited_for_then_asked_to_end_and_then_killed(
    monkeypatch: pytest.MonkeyPatch, ends_by: str, calls: list[str]
) -> None:
    found: list[str] = []

    class Process:
        exitcode: int | None = 0 if ends_by == "itself" else None

        def join(self, seconds: float | None = None) -> None:
            found.append("join" if seconds is None else f"join {seconds:g}")

        def terminate(self) -> None:
            found.append("terminate")
            self.exitcode = -15 if ends_by == "terminate" else None

        def kill(self) -> None:
            found.append("kill")

    monkeypatch.setattr(workers, "monotonic", lambda: 13.0 if "deadline" in ends_by else 8.0)
    worker = workers.ProcessWorker.__new__(workers.ProcessWorker)
    worker.process = Process()  # type: ignore[assignment]
    worker.join(10.0)
    assert found == calls


@pytest.mark.parametrize(
    ("code", "how"),
    [(-9, "ended by SIGKILL with"), (3, "ended with exit code 3 with"), (None, "ended with exit code None with")],
)
def test_a_death_names_how_it_came_and_the_batches_of_that_worker_alone(code: int | None, how: str) -> None:
    class Worker:
        process, name, number = SimpleNamespace(join=lambda seconds: None, exitcode=code), "process worker 1 (pid 7)", 1

    dead, other = Worker(), Worker()
    pool = Pool(Assembly("train", loading.Numbers(), None, None, (), None), 1, "thread", 1)
    jobs = [Job(n, np.arange(2 * n, 2 * n + 2), np.arange(2), np.empty((2, 0), np.uint32), 0, 0, 0) for n in range(3)]
    pool._asked.extend([(dead, jobs[0]), (other, jobs[1]), (dead, jobs[2])])  # type: ignore[list-item]
    error = pool._death(dead)  # type: ignore[arg-type]
    pool._asked.clear()
    assert f"process worker 1 (pid 7), {how} batch 0 (samples 0, 1); batch 2 (samples 4, 5)" in str(error)
    assert error.context == {"worker": 1, "exit_code": code or 0}
    assert "with no batch to make" in str(pool._death(dead))  # type: ignore[arg-type]
    pool.close()


@pytest.mark.skipif(not transport.SHARED_MEMORY, reason="batches come through pipes")
def test_large_arrays_go_through_memory_that_serves_until_a_batch_does_not_fit() -> None:
    few, arrays = np.zeros(255, np.uint8), [np.zeros(n, np.uint8) for n in (256, 259, 300)]
    parcel = transport.Parcel([few, *arrays], shared=True)
    assert parcel.spans == [(0, 256), (256, 515), (576, 876)]
    assert parcel.size == 876
    assert transport.Parcel(arrays, shared=False).size == 0
    one, other = (transport.Channel(end, True) for end in multiprocessing.Pipe())
    memories = []
    page = transport.mmap.PAGESIZE
    for size in (4 * page, 4 * page, 5 * page, 5 * page + 1):
        sent = np.arange(size, dtype=np.uint8)
        one.send((sent, "text"), 3)
        got, text = other.receive()
        assert np.array_equal(got, sent)
        assert text == "text"
        memories.append(one._mine[3])
    assert [m is memories[0] for m in memories] == [True, True, True, False]
    assert [len(m.map) for m in memories] == [5 * page] * 3 + [7 * page]
    one.send(few, 4)
    assert np.array_equal(other.receive(), few)
    assert list(one._mine) == [3]
    one.close()
    with pytest.raises(EOFError):
        other.receive()
    other.close()
    assert not one._mine


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_workers_keep_no_descriptor_of_the_memory_that_they_are_started_with() -> None:
    def shared() -> int:
        links = [os.readlink(f) for f in Path("/proc/self/fd").iterdir() if f.is_symlink() or f.exists()]
        return sum("firebrick-loader" in name for name in links)

    before = shared()
    data = ArrayDataset(np.zeros((1 << 16, 2), np.float32))
    loader = DataLoader(data, batch_size=8, num_workers=1, worker="process")
    batches = iter(loader)
    next(batches)
    assert shared() == before
    batches.close()
