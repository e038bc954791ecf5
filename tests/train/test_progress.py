"""What a person sees while training: a live bar in a terminal, lines elsewhere."""

import io
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from firebrick.train import Epoch, progress
from firebrick.train.progress import Bar, Lines, progress_for

ROW = Epoch(2, 18, 0.5, 0.75, 0.25, None, 1e-3, 10.0, 1.0)


def test_a_bar_is_for_a_terminal_that_lines_are_printed_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True))
    assert isinstance(progress_for(str), Lines)
    monkeypatch.undo()
    assert isinstance(progress_for(print), Lines), "the output of tests is no terminal"


def test_the_bar_shows_batches_loss_other_measures_and_speed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(progress, "perf_counter", lambda: now[0])
    bar = Bar()
    assert bar.due()
    bar.begin(2, 3, 9, 4)
    (task,) = bar._live.tasks
    assert (task.completed, task.total, task.fields["epoch"], task.fields["loss"]) == (4, 9, "2/3", "–")
    bar.step(5, {"loss": 0.125, "accuracy": 0.5, "mae": None}, 1234.4)
    (task,) = bar._live.tasks
    assert task.completed == 5
    assert task.fields == {"epoch": "2/3", "loss": "0.1250", "others": "  accuracy 0.5000", "speed": "1,234 samples/s"}
    now[0] += 0.0625
    assert not bar.due()
    now[0] += 0.0625
    assert bar.due(), "ten times a second"
    bar.end(ROW, 3)
    bar.begin(3, 3, None, 0)
    (task,) = bar._live.tasks
    assert (task.completed, task.total, task.fields["epoch"]) == (0, None, "3/3")
    bar.close()
    assert ROW.line(3) in capsys.readouterr().out.replace("\n", " ")


def test_the_bar_shows_its_columns_in_this_order() -> None:
    bar = Bar()
    bar.begin(2, 3, 9, 4)
    bar.step(5, {"loss": 0.125, "accuracy": 0.5}, 1234.4)
    out = io.StringIO()
    Console(file=out, width=150).print(bar._live.get_renderable())
    bar.close()
    shown = out.getvalue()
    columns = ("epoch 2/3", "━", "5/9", "loss 0.1250  accuracy 0.5000", "1,234 samples/s", ":--")
    assert sorted(columns, key=shown.index) == list(columns), shown


def test_lines_show_whole_epochs_and_nothing_without_a_log() -> None:
    seen: list[str] = []
    lines = Lines(seen.append)
    lines.begin(1, 3, 9, 0)
    assert not lines.due()
    lines.step(1, {"loss": 0.5}, 1.0)
    assert seen == []
    lines.end(ROW, 3)
    assert seen == [ROW.line(3)]
    Lines(None).end(ROW, 3)
