"""``Supervisor`` on seats that answer at once as a test says: when it waits, starts again, gives up, and what it says."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from firebrick.train import TrainingError, TrainingInterrupted, WorkerError
from firebrick.train.cluster import supervisor
from firebrick.train.cluster.shared import Standing
from firebrick.train.cluster.supervisor import Lost, Supervisor, forwarded
from firebrick.train.cluster.worker import Ending, Job, Place

OUT = Path("/nowhere")
EMPTY = Standing((), True)
RETURNED = Ending("returned", value=pickle.dumps(7))
DIED, CUT_OFF, RAISED = (Ending(how, f"was {how}") for how in ("died", "cut off", "raised"))  # type: ignore[arg-type]
STOPPED = Ending("stopped", value=pickle.dumps((Path("a"), 2, 9)))


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, []

    @property
    def passed(self) -> float:
        return self.now - 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(supervisor, "time", made)
    return made


class Scripted:
    """A seat: ``run`` ends as its attempt's script says."""

    def __init__(self, pool: Pool, rank: int) -> None:
        self.pool, self.rank = pool, rank
        self.node, self.address, self.host = pool.nodes[rank], f"10.0.0.{rank}", pool.nodes[rank]
        self.attempt = pool.attempts
        self.running: Future[Any] = Future()

    def call(self, method: str, *arguments: Any) -> Future[Any]:
        out: Future[Any] = Future()
        self.pool.calls.append((self.rank, method, *arguments))
        answer = self.pool.answer(self, method)
        if isinstance(answer, BaseException):
            out.set_exception(answer)
        elif answer is not None or method != "run":
            out.set_result(answer)
        else:  # it goes on until it is asked to stop
            self.running = out
        if method == "stop" and self.pool.stops and not self.running.done():
            self.running.set_result(STOPPED)
        return out


class Pool:
    """Seats on nodes; what ``run`` ends with, by attempt and rank, and what else agents answer."""

    pickler = "pickle"

    def __init__(
        self, *endings: Sequence[Any], nodes: str = "aab", standing: Sequence[Standing] = (EMPTY,), **answers: Any
    ) -> None:
        self.endings, self.nodes, self.standing = endings, nodes, standing
        self.answers = {"place": Place("1", "", 29500), "find": "", "take_away": None, "end": None, **answers}
        self.attempts = -1
        self.calls: list[Any] = []
        self.asked: list[tuple[int, float]] = []
        self.rooms: Callable[[], int] = lambda: len(nodes)
        self.released = 0
        self.stops = True

    def answer(self, seat: Scripted, method: str) -> Any:
        if method == "run":
            return self.endings[min(seat.attempt, len(self.endings) - 1)][seat.rank]
        if method == "take_over":
            return self.standing[min(seat.attempt, len(self.standing) - 1)]
        answer = self.answers.get(method)
        return answer[seat.rank] if isinstance(answer, list) else answer

    def room(self) -> int:
        return self.rooms()

    def place(self, count: int, seconds: float) -> list[Any] | None:
        self.asked.append((count, seconds))
        if count > self.rooms():
            return None
        self.attempts += 1
        return [Scripted(self, r) for r in range(count)]

    def release(self, seats: Sequence[Any]) -> None:
        self.released += 1

    def fate(self, seat: Any) -> str:
        return "its node is gone"

    def needs(self) -> str:
        return "1 CPU"

    def describe(self) -> str:
        return "few nodes"

    def named(self, method: str) -> list[Any]:
        """The calls of a method, without its name."""
        return [(c[0], *c[2:]) for c in self.calls if c[1] == method]


def supervised(pool: Pool, fewest: int = 3, most: int = 3, **options: Any) -> tuple[list[str], Any]:
    """The lines that it logs, and what it returns or raises."""
    lines: list[str] = []
    how: dict[str, Any] = {"max_restarts": 2, "patience": 30.0, "backoff": 1.0, "grace": 0.0, "grow_every": 60.0, **options}
    try:
        return lines, Supervisor(pool, fewest, most, variables={"A": "b"}, log=lines.append, **how).run(b"f", OUT)
    except (TrainingError, WorkerError, KeyboardInterrupt) as e:
        return lines, e


def test_values_come_by_rank_and_jobs_have_their_variables(clock: Clock) -> None:
    pool = Pool([Ending("returned", value=pickle.dumps(r)) for r in range(3)])
    lines, found = supervised(pool)
    assert found == [0, 1, 2]
    assert lines == ["attempt 1: 3 workers on a, b, from the beginning"]
    jobs: list[Job] = [job for _, job in pool.named("run")]
    assert [(j.function, j.pickler, j.worker.attempt, j.worker.resumes) for j in jobs] == [(b"f", "pickle", 0, False)] * 3
    assert jobs[2].variables == {
        "A": "b", "RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.0", "MASTER_PORT": "29500",
    }  # fmt: skip
    ((rank, out, mark, again, own),) = pool.named("take_over")
    assert (rank, out, again, own) == (0, OUT, False, False)
    assert [(r, m, s) for r, _, m, s in pool.named("find")] == [(1, mark, EMPTY), (2, mark, EMPTY)]
    assert pool.named("take_away") == [(0, OUT, mark)]
    assert (pool.named("end"), pool.released) == ([(0,), (1,), (2,)], 1)


def test_each_loss_in_a_row_waits_twice_as_long_and_the_last_one_ends_the_run(clock: Clock) -> None:
    pool = Pool([RETURNED, DIED, None])
    lines, error = supervised(pool, backoff=20.0, max_restarts=3)
    assert isinstance(error, WorkerError)
    assert "within 3 restarts" in error.expected
    assert error.received == "4 losses in a row; the last one: rank 1 of 3 on a: was died"
    assert clock.slept == [20.0, 40.0, 60.0, 60.0]
    assert next(line for line in lines if "again" in line).endswith("all start again from the last checkpoint in 20 s")
    assert [(again, own) for *_, again, own in pool.named("take_over")] == [(False, False)] + [(True, True)] * 4
    assert pool.released == 5


def test_without_restarts_the_first_loss_ends_the_run_at_once(clock: Clock) -> None:
    pool = Pool([DIED] * 3)
    _, error = supervised(pool, max_restarts=0)
    assert "1 losses in a row" in error.received
    assert (clock.slept, pool.attempts) == ([], 0)


def test_a_newer_checkpoint_begins_the_count_of_losses_again(clock: Clock) -> None:
    found = [Standing(((f"step-{i}", "x"),), False) for i in range(6)]
    pool = Pool(*[[DIED] * 3] * 5, [RETURNED] * 3, standing=found)
    lines, values = supervised(pool, max_restarts=1)
    assert values == [7, 7, 7]
    assert clock.slept == [1.0, *[2.0] * 4]
    assert lines[-1] == "attempt 6: 3 workers on a, b, going on from the last checkpoint"
    assert {own for *_, own in pool.named("take_over")} == {False}  # what was there before is not the run's


@pytest.mark.parametrize(
    ("endings", "said"),
    [
        ([DIED, Lost("why"), CUT_OFF], "rank 1 of 3 on a: its node is gone (why); rank 0 of 3 on a: was died"),
        ([Lost(""), RETURNED, CUT_OFF], "rank 0 of 3 on a: its node is gone"),
        ([RETURNED, CUT_OFF, None], "rank 1 of 3 on a: was cut off"),
        ([STOPPED, DIED, RETURNED], "rank 1 of 3 on a: was died"),
    ],
)
def test_who_was_lost_is_told_before_those_that_only_noticed(clock: Clock, endings: list[Any], said: str) -> None:
    lines, values = supervised(Pool(endings, [RETURNED] * 3))
    assert values == [7, 7, 7]
    assert lines[1] == f"{said}; all start again from the last checkpoint in 1 s"


def test_an_error_of_the_function_comes_before_losses_and_is_told_whole(clock: Clock) -> None:
    raised = Ending("raised", "KeyError: 'a'", "the trace", pickle.dumps(KeyError("a")))
    _, error = supervised(Pool([DIED, raised, Lost("")]))
    assert error.received == "KeyError: 'a', on rank 1 of 3 on a"
    assert (error.context["rank"], error.context["traceback"]) == (1, "the trace")
    assert error.__notes__ == ["\nOn rank 1 of 3 on a:\nthe trace"]
    assert isinstance(error.__cause__, KeyError)
    for absent in (RAISED, Ending("raised", value=b"cnowhere\nthing\n.")):
        _, error = supervised(Pool([absent, None, None]))
        assert error.__cause__ is None


def test_workers_that_stop_by_themselves_stop_the_run(clock: Clock) -> None:
    _, error = supervised(Pool([RETURNED, STOPPED, RETURNED]))
    assert isinstance(error, TrainingInterrupted)
    assert (error.checkpoint, error.epoch, error.step) == (Path("a"), 2, 9)
    _, error = supervised(Pool([Ending("stopped"), STOPPED, STOPPED]))
    assert isinstance(error, TrainingInterrupted)
    _, error = supervised(Pool([Ending("stopped")] * 3))
    assert type(error) is KeyboardInterrupt


def test_agents_that_are_lost_before_they_run_count_as_losses(clock: Clock) -> None:
    pool = Pool([RETURNED] * 3, place=[Place("1", "", 1), Lost("why"), Place("1", "", 1)])
    _, error = supervised(pool, max_restarts=1)
    assert error.received == "2 losses in a row; the last one: before the function ran, on a: its node is gone (why)"
    assert (clock.slept, pool.released, pool.named("run")) == ([1.0], 2, [])


def test_a_directory_that_one_does_not_see_is_named_and_the_mark_taken_away(clock: Clock) -> None:
    pool = Pool([RETURNED] * 3, find=["", "", "no such directory"])
    _, error = supervised(pool)
    assert error.received == "/nowhere is made on a; on b there is no such directory"
    assert len(pool.named("take_away")) == pool.released == 1


def test_it_waits_for_the_most_workers_a_moment_and_for_the_fewest_as_long_as_it_may(clock: Clock) -> None:
    pool = Pool([RETURNED] * 5, nodes="abcde")
    lines, values = supervised(pool, 2, 4)
    assert (values, pool.asked, clock.passed) == ([7] * 4, [(4, 10.0)], 0.0)
    pool = Pool([RETURNED] * 3, nodes="abc")
    lines, values = supervised(pool, 2, 4)
    assert (values, pool.asked) == ([7] * 3, [(3, 10.0)])
    assert clock.passed == pytest.approx(supervisor.SETTLE, abs=0.2)
    clock.now = 1000.0
    pool = Pool([RETURNED] * 2, nodes="ab")
    lines, error = supervised(pool, 3, 4, patience=8.0)
    assert isinstance(error, TrainingError)
    assert error.expected == "there is room for at least 3 workers of 1 CPU each"
    assert error.received == "room for 2 after 8 s: few nodes"
    assert lines == ["waiting for 3 workers of 1 CPU each: few nodes"]
    assert clock.passed == pytest.approx(8.0, abs=0.2)
    assert set(pool.asked) == {(3, 8.0)}
    clock.now = 1000.0
    _, error = supervised(Pool([], nodes=""), 1, 1, patience=1.0)
    assert clock.passed == pytest.approx(1.0, abs=0.2)


@pytest.fixture
def waits(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """How long was waited for each next worker: the clock passes where none has ended, and without a limit comes Ctrl-C."""
    seen: list[float | None] = []

    def wait(futures: Any, timeout: float | None, when: str = "") -> tuple[set[Any], set[Any]]:
        done = {f for f in futures if f.done()}
        if not done:
            seen.append(timeout)
            if timeout is None:
                raise KeyboardInterrupt
            clock.now += timeout
        return done, set()

    monkeypatch.setattr(supervisor, "wait", wait)
    return seen


def test_when_there_is_room_all_save_and_start_again_on_more(clock: Clock, waits: list[float | None]) -> None:
    pool = Pool([None, None], [RETURNED] * 3, nodes="abc")
    pool.rooms = lambda: 3 if pool.released else 2 if pool.attempts < 0 else int(clock.passed > 100.0)
    lines, values = supervised(pool, 2, 3, patience=0.0, max_restarts=0)
    assert values == [7, 7, 7]
    assert waits == [60.0, 60.0]
    assert pool.named("stop") == [(0,), (1,)]
    assert lines[1] == "there is room for more workers: all were asked to save, and start again"
    assert "attempt 2: 3 workers on a, b, c" in lines[2]


def test_the_most_workers_do_not_look_for_room(clock: Clock, waits: list[float | None]) -> None:
    pool = Pool([None] * 3)
    lines, error = supervised(pool)
    assert isinstance(error, TrainingInterrupted)
    assert waits == [None]
    assert "stopping: the workers save what they have" in lines[1]
    assert len(pool.named("stop")) == 3
    pool = Pool([None] * 3)
    pool.stops = False
    _, error = supervised(pool)
    assert type(error) is KeyboardInterrupt  # the second one, which waits for nobody
    assert (waits, len(pool.named("stop")), pool.released) == ([None] * 3, 3, 1)


def test_when_one_failed_the_others_have_their_time_and_nobody_is_asked_to_grow(
    clock: Clock, waits: list[float | None]
) -> None:
    pool = Pool([DIED, None], nodes="abc")
    pool.rooms = lambda: 2
    _, error = supervised(pool, 2, 3, patience=0.0, max_restarts=0, grace=90.0)
    assert error.received.endswith("rank 0 of 2 on a: was died")
    assert waits == [60.0, 30.0]
    assert pool.named("stop") == []


def test_workers_take_over_the_settings_of_this_process_but_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"FIREBRICK_A": "1", "FIREBRICK_CACHE_DIR": "x", "OTHER": "2"})
    assert forwarded() == {"FIREBRICK_A": "1"}
