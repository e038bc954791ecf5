"""The dashboard: what it shows, what its keys do, and that a run is the same with and without it."""

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

pytest.importorskip("textual")

import firebrick as fb
from firebrick import nn, optim
from firebrick.cli import dashboard as dashboards
from firebrick.cli import screen as screens
from firebrick.cli.dashboard import Dashboard
from firebrick.cli.plotting import _short, plotted
from firebrick.cli.screen import Help, Screen
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Callback, DataParallel, Epoch, Learner, TrainingInterrupted, load_checkpoint

Run = Callable[..., Result]
SIZES = [(80, 24), (120, 40)]


def learner_of(board: Dashboard, out: Path | None = None, **options: Any) -> Learner:
    fb.random.seed(1)
    model = nn.Linear(2, 2)
    return Learner(model, optim.Adam(model, lr=0.1), out=out, seed=2, log=board.log, progress=board, **options)


def loader() -> DataLoader:
    x = np.random.default_rng(0).normal(size=(40, 2))
    return DataLoader(ArrayDataset(x, (x[:, 0] > 0).astype(int)), 4, shuffle=True)


def on_screen(board: Dashboard, size: tuple[int, int], then: Callable[[Screen, Any], Coroutine[Any, Any, None]]) -> Screen:
    """Show a dashboard beside a thread that waits, and do something with it."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    app = Screen(board, thread)

    async def shown() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            app.look()
            await pilot.pause()
            await then(app, pilot)

    try:
        asyncio.run(shown())
    finally:
        done.set()
        thread.join()
    return app


def text_of(app: Screen) -> str:
    """What stands on the screen, row by row."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    rows = ["".join(segment.text for segment in strip) for strip in strips]
    assert len(rows) == height
    assert all(len(row) == width for row in rows)
    return "\n".join(rows)


def in_the_third_of_four_epochs(board: Dashboard) -> None:
    for epoch in (1, 2, 3):
        board.begin(epoch, 4, 10, 0)
        board.step(5, {"loss": 1.0 / epoch, "accuracy": 0.5 + epoch / 10, "mse": None}, 1234.5)
        if epoch < 3:
            board.end(Epoch(epoch, epoch * 10, 0.9 / epoch, 0.6, 0.8 / epoch, 0.75, 0.1, 1234.5, 2.0), 4)


def test_a_stream_without_a_length_moves_all_the_same(tmp_path: Path) -> None:
    board = Dashboard("a stream")
    board.learner = learner_of(board, tmp_path / "run")
    seen = []
    for epoch in (1, 2):
        board.begin(epoch, 2, None, 0)
        for done in (1, 2, 3):
            board.step(done, {"loss": 1.0}, 10.0)
            seen.append(board.seen.progress)
        if epoch == 1:
            board.end(Epoch(1, 3, 0.9, None, None, None, 0.1, 10.0, 2.0), 2)
    assert seen == [0.5, 2 / 3, 0.75, 1 + 1 / 3, 1 + 2 / 3, 2.0]  # as many as in the epoch before
    board.step(4, {"loss": 1.0}, 10.0)
    assert board.seen.progress == 2.0
    first = Dashboard("a stream")
    first.learner = board.learner
    first.begin(1, 2, None, 0)
    first.step(7, {"loss": 1.0}, 10.0)
    found = []

    async def then(app: Screen, pilot: Any) -> None:
        found.append(text_of(app))

    on_screen(first, SIZES[0], then)
    assert "7 batches" in found[0]


@pytest.mark.parametrize("size", SIZES)
def test_it_shows_progress_curves_devices_checkpoint_and_log_at_each_size(size: tuple[int, int], tmp_path: Path) -> None:
    board = Dashboard("digits, mlp")
    board.learner = learner_of(board, tmp_path / "run", strategy=DataParallel(["cpu:0", "numpy:0"], shares=[3, 1]))
    board.learner.save(tmp_path / "run" / "checkpoint")
    in_the_third_of_four_epochs(board)
    found = []

    async def then(app: Screen, pilot: Any) -> None:
        found.append(text_of(app))

    on_screen(board, size, then)
    shown = found[0]
    for part in ("digits, mlp", "training", "50%", "5/10 batches", "3/4 epochs", "62%", "loss 0.3333", "accuracy 0.8000",
                 "1,234 samples/s", "cpu:0", "75%", "numpy:0", "25%", "s ago" if "s ago" in shown else "0:0",
                 "epoch 2/4", "validation 0.4000", "validation 0.7500", "stop safely", "checkpoint now", "help"):  # fmt: skip
        assert part in shown, f"{part}\n{shown}"
    assert any("\u2801" <= c <= "\u28ff" for c in shown)  # the curves


def test_a_look_before_the_parts_are_there_or_after_they_have_gone_is_passed_over(tmp_path: Path) -> None:
    board = Dashboard("digits, mlp")
    board.learner = learner_of(board, tmp_path / "run")
    in_the_third_of_four_epochs(board)

    async def then(app: Screen, pilot: Any) -> None:
        for part in list(app.screen.children):
            await part.remove()
        app.look()
        assert not app.screen.query("#head")

    on_screen(board, SIZES[0], then)


@pytest.mark.parametrize("part", ["head", "progress", "loss", "other", "devices", "saved", "log"])
def test_a_look_while_one_part_is_missing_is_passed_over(part: str, tmp_path: Path) -> None:
    """Under load the parts come and go one by one while the clock ticks; only that of the log was looked for."""
    board = Dashboard("digits, mlp")
    board.learner = learner_of(board, tmp_path / "run")
    in_the_third_of_four_epochs(board)

    async def then(app: Screen, pilot: Any) -> None:
        await app.screen.query_one(f"#{part}").remove()
        app.look()

    on_screen(board, SIZES[0], then)


def test_keys_ask_to_stop_to_save_and_for_help(tmp_path: Path) -> None:
    board = Dashboard("digits, mlp")
    board.learner = learner_of(board, tmp_path / "run")
    interrupts = board.learner.interrupts
    in_the_third_of_four_epochs(board)

    async def then(app: Screen, pilot: Any) -> None:
        await pilot.press("c")
        assert interrupts.take_save()
        assert not interrupts.pending
        assert "asked for: after this step" in text_of(app)
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, Help)
        assert "finish the running step, save and stop" in text_of(app)
        await pilot.press("x")
        await pilot.pause()
        assert not isinstance(app.screen, Help)
        await pilot.press("q")
        await pilot.pause()
        assert interrupts.pending
        assert "stopping after this step" in text_of(app)

    assert not on_screen(board, (80, 24), then).given_up


def test_ctrl_c_stops_and_a_second_one_gives_the_run_up(tmp_path: Path) -> None:
    board = Dashboard("digits, mlp")
    board.learner = learner_of(board)

    async def then(app: Screen, pilot: Any) -> None:
        await pilot.press("ctrl+c")
        assert board.stopping
        assert not app.given_up
        await pilot.press("ctrl+c")

    assert on_screen(board, (80, 24), then).given_up


def test_a_run_has_the_same_bits_with_and_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    boards = [Dashboard("one"), Dashboard("two")]
    learners = [learner_of(board, ema=0.9) for board in boards]
    plain = learners[0].fit(loader(), loader(), epochs=3)
    seen = boards[1].run(learners[1], lambda: learners[1].fit(loader(), loader(), epochs=3), headless=True)
    assert [(r.train_loss, r.valid_loss) for r in seen] == [(r.train_loss, r.valid_loss) for r in plain]
    for a, b in zip(learners[0].model.parameters(), learners[1].model.parameters(), strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()
    printed = capsys.readouterr().out.splitlines()  # after the screen is gone, also where there is none
    assert [line for line in printed if line.startswith("epoch")] == [
        line for line in boards[1].seen.lines if line.startswith("epoch")
    ]
    assert len([line for line in printed if line.startswith("epoch 3/3")]) == 1


class AtStep(Callback):
    """Calls something after a step."""

    def __init__(self, step: int, call: Callable[[], Any]) -> None:
        self.step, self.call = step, call

    def on_step_end(self, learner: Learner, step: int, values: Any) -> None:
        if step == self.step:
            self.call()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_main_thread_saves_and_stops(tmp_path: Path, number: signal.Signals) -> None:
    board = Dashboard("signalled")
    learner = learner_of(board, tmp_path / "run")
    before = signal.getsignal(number)
    heard = threading.Event()
    stop = learner.interrupts.stop

    def killed() -> None:
        os.kill(os.getpid(), number)
        assert heard.wait(60)  # the main thread takes it when it comes to it

    learner.callbacks = (AtStep(3, killed),)
    learner.interrupts.stop = lambda: (stop(), heard.set())  # type: ignore[method-assign, return-value]
    with pytest.raises(TrainingInterrupted, match="saved in"):
        board.run(learner, lambda: learner.fit(loader(), epochs=2), headless=True)
    assert load_checkpoint(tmp_path / "run").state["step"] == 3
    assert signal.getsignal(number) is before


def test_what_training_raises_is_raised_and_warnings_are_lines() -> None:
    board = Dashboard("fails")
    learner = learner_of(board)

    def fit() -> None:
        warnings.warn("the data look odd", stacklevel=1)
        raise MemoryError("no more")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.raises(MemoryError, match="no more"):
            board.run(learner, fit, headless=True)
    assert board.seen.lines == ["warning: the data look odd"]


def test_a_screen_that_fails_leaves_the_run_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    board = Dashboard("no screen")
    learner = learner_of(board)
    go = threading.Event()

    def failing(self: Screen) -> None:
        go.set()
        self.exit()

    monkeypatch.setattr(Screen, "look", failing)

    def fit() -> list[Epoch]:
        assert go.wait(60)
        return learner.fit(loader(), epochs=2)

    assert len(board.run(learner, fit, headless=True)) == 2
    shown = capsys.readouterr()
    assert "epoch 2/2" in shown.out


def test_without_a_terminal_a_line_says_so_and_the_run_goes_on(run: Run) -> None:
    result = run("train", "digits", "--model", "mlp", "--epochs", 1, "--dashboard", "--out", "plain")
    assert result.exit_code == 0, result.output
    assert "--dashboard needs a terminal: this run goes on with plain lines" in result.output
    assert "epoch 1/1" in result.output


def test_without_textual_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboards.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(fb.ConfigError, match=r"pip install 'firebrick\[train\]'"):
        dashboards.dashboard_for("x")


def test_the_command_stops_at_q_and_prints_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("train", "digits", "--model", "mlp", "--epochs", 2, "--batch-size", 256)
    whole = run(*arguments, "--out", "whole")
    assert whole.exit_code == 0, whole.output
    real = Dashboard.run

    def run_headless(self: Dashboard, learner: Learner, fit: Any) -> Any:
        learner.callbacks = (AtStep(2, learner.interrupts.stop),)  # as the key does
        return real(self, learner, fit, headless=True)

    monkeypatch.setattr(Dashboard, "run", run_headless)
    monkeypatch.setattr("firebrick.cli.train.dashboard_for", Dashboard)
    stopped = run(*arguments, "--out", "parts", "--dashboard")
    assert stopped.exit_code == 130
    assert "go on with: firebrick train digits --out parts --resume --dashboard" in stopped.output
    assert load_checkpoint("parts").state["step"] == 2
    monkeypatch.setattr(Dashboard, "run", lambda self, learner, fit: real(self, learner, fit, headless=True))
    resumed = run("train", "digits", "--out", "parts", "--resume", "--dashboard")
    assert resumed.exit_code == 0, resumed.output
    one, two = load_checkpoint("whole").model, load_checkpoint("parts").model
    assert all(np.array_equal(one[n], two[n]) for n in one)


def test_curves_rise_from_bottom_left_to_top_right() -> None:
    drawn = plotted([([(0.0, 1.0), (1.0, 2.0)], "red")], 17, 5, (0.0, 1.0)).plain.splitlines()
    assert [len(row) for row in drawn] == [17] * 5
    assert drawn[0].startswith("2.000 ┤")
    assert drawn[-1].startswith("1.000 ┤")
    assert drawn[0][-1] != " "
    assert drawn[-1][7] != " "
    assert drawn[0][7] == drawn[-1][-1] == " "
    assert "no values yet" in plotted([([(0.0, float("nan"))], "red")], 30, 3, (0.0, 1.0)).plain
    assert "⠀" not in plotted([([(0.5, 3.0)], "red")], 17, 3, (0.0, 1.0)).plain  # one point, no spread


@pytest.mark.parametrize(
    ("curves", "size", "ends", "drawn", "colours"),
    [
        ([[(0, 0), (1, 1), (2, 0)]], (12, 3), (0.0, 2.0), "1.000 ┤ ⢠⢣  \n      │⢀⠎ ⢣ \n0.000 ┤⡜   ⢣", "rr rr r r r"),
        ([[(0, 0), (2, 2)], [(0, 2), (2, 0)]], (9, 2), (0.0, 2.0), "2.000 ┤⢣⡜\n0.000 ┤⡜⢣", "br rb"),  # the last lies above
        ([[(0, 5)]], (9, 1), (0.0, 2.0), "5.000 ┤⠁ ", "r"),
        ([[(0, 0), (1, float("inf")), (3, 1)]], (9, 2), (0.0, 2.0), "1.000 ┤ ⡱\n0.000 ┤⡰⠁", "r rr"),  # left out, and cut off
        ([[(0, 0)]], (9, 2), (1.0, 1.0), "0.000 ┤⠈ \n0.000 ┤  ", "r"),
        ([[(0, -3)]], (5, 0), (1.0, 1.0), "-3.00 ┤⠈", "r"),
        ([[]], (20, 5), (1.0, 1.0), "\n\n   no values yet    ", ""),
    ],
)
def test_curves_are_drawn_dot_by_dot(
    curves: list[Any], size: tuple[int, int], ends: tuple[float, float], drawn: str, colours: str
) -> None:
    found = plotted(list(zip(curves, ("red", "blue"), strict=False)), *size, ends)
    assert found.plain == drawn
    assert [str(s.style)[0] for s in found.spans if s.style != "dim"] == list(colours.replace(" ", ""))


def test_numbers_are_as_wide_as_there_is_room() -> None:
    values = (1.23456, 12.3456, 123.456, 1234.56, 12345.6, 123456, -1.2345, -123.456, 0, 9.9996, 99999.6, -12345.6, 1e12)
    assert [_short(v) for v in values] == [
        "1.235", "12.35", "123.5", "1235", "12346", "1e5", "-1.23", "-123", "0.000", "10.00", "1e5", "-1e4", "1e+12",
    ]  # fmt: skip
    seconds = (0, 59.4, 59.6, 3599, 3600, 3661, 36000)
    assert [screens._duration(v) for v in seconds] == ["0:00", "0:59", "1:00", "59:59", "1:00:00", "1:01:01", "10:00:00"]
    left = [(10, 0, 5), (10, -1, 4), (10, 2, 4), (1, 0.5, 3)]
    assert [screens._left(*v) for v in left] == ["–", "–", "0:20 left", "0:06 left"]
    sizes = (0, 1023, 1024, 1536, 2**20, 2**30, 2**40, 2**50)
    assert [screens._bytes(n) for n in sizes] == [
        "0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1.0 GiB", "1.0 TiB", "1024.0 TiB",
    ]  # fmt: skip
    assert [screens._bar(share, 4).plain for share in (0, 1 / 32, 7 / 32, 0.5, 1)] == [
        "────   0%", "▏───   3%", "▉───  22%", "██──  50%", "████ 100%",
    ]  # fmt: skip
    assert [screens._bar(share, 4).plain[:4] for share in (-1.0, 1.7)] == ["────", "████"]


def test_it_looks_five_times_a_second_and_keeps_no_more_points_than_a_screen_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 100.0, 100.0, 100.19, 100.21])
    board = Dashboard("a run")
    assert board.due()
    monkeypatch.setattr(dashboards, "perf_counter", lambda: next(clock))
    board.begin(1, 1, 10, 0)
    board.step(1, {"loss": 1.0}, 10.0)
    assert [board.due() for _ in range(2)] == [False, True]
    monkeypatch.undo()
    monkeypatch.setattr(dashboards, "_POINTS", 6)
    board = Dashboard("a run")
    board.begin(1, 1, 100, 0)
    for done in range(1, 8):
        board.step(done, {"loss": float(done), "mse": None}, 10.0)
    assert {n: [y for _, y in c] for n, c in board.seen.curves.items()} == {"loss": [2.0, 4.0, 6.0, 7.0]}
    assert dashboards.Seen().progress == 0.0


def test_the_time_left_is_that_of_the_rest_at_the_speed_since_the_run_began_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    board = Dashboard("digits, mlp")
    board.learner = learner_of(board, tmp_path / "run")
    in_the_third_of_four_epochs(board)
    seen = board.seen
    seen.first, seen.epoch_first, seen.began, seen.epoch_began = 0.5, 1, 0.0, 60.0  # of 2.5 epochs and 5 batches
    monkeypatch.setattr(screens, "perf_counter", lambda: 100.0)
    found = []

    async def then(app: Screen, pilot: Any) -> None:
        found.append(text_of(app))

    on_screen(board, SIZES[1], then)
    shown = " ".join(found[0].split())
    assert "5/10 batches 0:50 left" in shown
    assert "3/4 epochs 1:15 left" in shown
