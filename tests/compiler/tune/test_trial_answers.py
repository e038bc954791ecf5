"""What answers of a process of trials mean: those that are right, late, broken, or do not come. No process is started."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import firebrick as fb
from firebrick.compiler.tune import child_process
from firebrick.compiler.tune.child_process import ProcessBench, TrialProcess, answer_requests, reason_of
from firebrick.compiler.tune.variant import DEFAULT, KernelVariant
from firebrick.core.errors import UnsupportedError

VARIANTS = [
    KernelVariant(DEFAULT, "same", list), KernelVariant("a", "same", list), KernelVariant("b", "other", list, exact=False),
]  # fmt: skip
GONE = {"ended": "it ended"}


class Process:
    """A process that gives answers in turn, and all that it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), []
        self.holder: Any = None
        self.running = True
        self.lock = TrialProcess("none").lock

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        self.asked.append((request, seconds))
        answer = self.answers.pop(0)
        self.running |= request["step"] == "prepare"
        if isinstance(answer, dict) and "ended" in answer:
            self.running = False
        return answer


class Bench(ProcessBench):
    """A bench whose kernels are names, each of 2 s."""

    def built(self, variant: KernelVariant) -> Any:
        if variant.name == "b":
            raise UnsupportedError("a kernel", "none", "another one")
        self.made = [*getattr(self, "made", ()), variant.name]
        return f"kernels of {variant.name}"

    def seconds(self, *built: Any) -> float:
        return 10.0 + 2.0 * len(built)

    def problem(self) -> tuple[dict[str, Any], float]:
        return {"inputs": "given"}, 7.0


def bench(*answers: Any) -> tuple[Bench, Process]:
    process = Process(*answers)
    return Bench(process, VARIANTS[0]), process  # type: ignore[arg-type]


PREPARED = ({"step": "prepare", "inputs": "given"}, 7.0)


def test_a_variant_is_checked_after_the_problem_is_prepared_once() -> None:
    trial, process = bench("", "other bits", "")
    assert trial.check(VARIANTS[0]) == ""
    assert process.asked == [PREPARED], "preparing checks the default"
    for expected in ("other bits", ""):
        assert trial.check(VARIANTS[1]) == expected
    request = {"step": "check", "name": "a", "kernels": "kernels of a", "same": True, "exact": True}
    assert process.asked == [PREPARED, *[(request, 12.0)] * 2]
    assert trial.made == ["a"], "it is built once"
    assert process.holder is trial
    assert trial.check(VARIANTS[2]).startswith("UnsupportedError: a kernel\nReceived: none.")


def test_bits_of_another_order_are_not_compared() -> None:
    trial, process = bench("", "")
    odd = KernelVariant("odd", "other", list, exact=False)
    assert trial.check(odd) == ""
    assert process.asked[-1][0] == {"step": "check", "name": "odd", "kernels": "kernels of odd", "same": False, "exact": False}


# answers → what is wrong with the default, and with a variant after it
PREPARATIONS: dict[str, tuple[list[Any], str, str]] = {
    "right": (["", ""], "", ""),
    "wrong": (["wrong bits", "wrong bits"], "wrong bits", "wrong bits"),
    "ended": ([GONE, GONE], "it ended", "it ended"),
    "an error": ([{"error": "OSError: x"}, "", ""], "OSError: x", ""),
    "nothing": ([{}, "", ""], "its process gave no answer", ""),
    "no text": ([5, 5], "5", "5"),
}


@pytest.mark.parametrize("name", PREPARATIONS)
def test_a_problem_that_was_not_prepared_is_prepared_again(name: str) -> None:
    answers, first, second = PREPARATIONS[name]
    trial, process = bench(*answers)
    assert trial.check(VARIANTS[0]) == first
    assert (process.holder is trial) is (name == "right")
    assert trial.check(VARIANTS[1]) == second
    assert [r["step"] for r, _ in process.asked].count("prepare") == (1 if name == "right" else 2)


def test_another_bench_or_a_new_process_is_prepared_again() -> None:
    trial, process = bench("", "", "")
    trial.check(VARIANTS[0])
    process.holder = "another"
    trial.check(VARIANTS[0])
    process.running = False
    trial.check(VARIANTS[0])
    assert process.asked == [PREPARED] * 3


# answers after the preparation → what times() finds, the steps
T = "times"
TIMES: dict[str, tuple[list[Any], dict[str, list[float]] | str, list[str]]] = {
    "right": ([{DEFAULT: [1, 2.5], "a": [3, 4]}], {DEFAULT: [1.0, 2.5], "a": [3.0, 4.0]}, [T]),
    "the first ends it": ([GONE, "", GONE], DEFAULT, [T, "prepare", T]),
    "the second ends it": ([GONE, "", {DEFAULT: [1.0]}, GONE], "a", [T, "prepare", T, T]),
    "the second fails": ([{"error": "e"}, {DEFAULT: [1.0]}, {"error": "e"}], "a", [T, T, T]),
    "each alone is right: the last": ([GONE, "", {DEFAULT: [1.0]}, {"a": [1.0]}], "a", [T, "prepare", T, T]),
    "it cannot be prepared again: the last": ([GONE, "wrong"], "a", [T, "prepare"]),
    "no times: a list": ([[1], {DEFAULT: [1.0]}, [2]], "a", [T, T, T]),
    "no times: a number": ([5, 5], DEFAULT, [T, T]),
    "no times: a text": (["x", "x"], DEFAULT, [T, T]),
    "no times: nothing": ([None, None], DEFAULT, [T, T]),
    "times of others": ([{"c": [1.0], "a": [1.0]}, {DEFAULT: [1.0]}, {"c": [1.0]}], "a", [T, T, T]),
    "one time is missing": ([{"a": [1.0]}, {DEFAULT: [1.0]}, {}], "a", [T, T, T]),
    "times that are none": ([{DEFAULT: [1.0], "a": ["x"]}, {DEFAULT: [1.0]}, {"a": ["x"]}], "a", [T, T, T]),
    "times that are no list": ([{DEFAULT: [1.0], "a": 5}, {DEFAULT: [1.0]}, {"a": 5}], "a", [T, T, T]),
    "no times at all": ([{DEFAULT: [1.0], "a": []}, {DEFAULT: [1.0]}, {"a": []}], "a", [T, T, T]),
}


@pytest.mark.parametrize("name", TIMES)
def test_answers_of_times(name: str) -> None:
    answers, expected, steps = TIMES[name]
    trial, process = bench("", *answers)
    assert trial.times(VARIANTS[:2], 11) == expected
    assert process.answers == []
    assert [r["step"] for r, _ in process.asked] == ["prepare", *steps]
    both = [(DEFAULT, "kernels of default"), ("a", "kernels of a")]
    request, seconds = process.asked[1]
    assert request == {"step": "times", "variants": both, "rounds": 11}
    assert seconds == pytest.approx(10.0 + 11 * 2 * (2.0 / 5 + 0.2))
    alone = [x for x in process.asked[2:] if x[0]["step"] == T]
    assert alone == [({"step": "times", "variants": [v], "rounds": 3}, seconds) for v in both[: len(alone)]]


def test_nothing_is_timed_that_cannot_be_prepared() -> None:
    trial, process = bench("wrong")
    assert trial.times(VARIANTS[1:], 3) == "a"
    assert process.asked == [PREPARED]


REASONS = {"": "", "wrong": "wrong", 5: "5", None: "None"}


@pytest.mark.parametrize("answer", REASONS)
def test_what_is_wrong_is_a_text(answer: Any) -> None:
    assert reason_of(answer) == REASONS[answer]
    assert reason_of({"ended": "x", "error": "y"}) == "x"
    assert reason_of({"error": "y"}) == "y"
    assert reason_of({"other": 1}) == "its process gave no answer"


class Stream(io.BytesIO):
    """A pipe of which a test keeps what was written."""

    def close(self) -> None:
        self.seek(0)


class Popen:
    """A process that answers with lines that were written before."""

    lines: bytes = b""
    code = 0

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        self.command, self.options = command, options
        self.stdin, self.stdout, self.killed = Stream(), io.BytesIO(self.lines), False
        started.append(self)

    def poll(self) -> int | None:
        return self.code if self.killed else None

    def wait(self) -> int:
        return self.code

    def kill(self) -> None:
        self.killed = True


started: list[Popen] = []


@pytest.fixture
def popen(monkeypatch: pytest.MonkeyPatch) -> type[Popen]:
    started.clear()
    made = type("Popen", (Popen,), {})
    monkeypatch.setattr(subprocess, "Popen", made)
    return made


# lines, exit code → the answer, whether the process goes on
LINES: dict[str, tuple[bytes, int, Any, bool]] = {
    "an answer": (b'["x", 1]\n', 0, ["x", 1], True),
    "a reason": (b'{"ended": "lost"}\n', 0, {"ended": "lost"}, False),
    "an error": (b'{"error": "x"}\n', 0, {"error": "x"}, True),
    "a list with the word": (b'["ended"]\n', 0, ["ended"], True),
    "no answer": (b"x\n", 0, {"ended": "it overwrote the memory of its process"}, False),
    "half an answer": (b'["x"', 0, {"ended": "it overwrote the memory of its process"}, False),
    "a signal": (b"", -11, {"ended": "it crashed (SIGSEGV)"}, False),
    "an unknown signal": (b"", -250, {"ended": "it ended the process (exit code -250)"}, False),
    "the end": (b"", 3, {"ended": "it ended the process (exit code 3)"}, False),
}


@pytest.mark.parametrize("name", LINES)
def test_an_answer_is_a_line(name: str, popen: Any) -> None:
    popen.lines, popen.code, expected, goes_on = LINES[name]
    process = TrialProcess("firebrick.some.module")
    assert not process.running
    assert process.ask({"step": "x"}, 30.0) == expected
    assert process.running is goes_on
    (made,) = started
    assert made.killed is not goes_on
    sent = made.stdin.getvalue()
    assert struct.unpack("<Q", sent[:8])[0] == len(sent) - 8
    assert pickle.loads(sent[8:]) == {"step": "x"}
    if not goes_on:
        process.ask({"step": "y"}, 30.0)
        assert len(started) == 2, "another one is started"
    process.end()
    assert not process.running


def test_a_process_begins_with_the_settings_of_this_one(popen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIREBRICK_TUNE", "on")
    monkeypatch.setenv("FIREBRICK_OTHER", "kept")
    process = TrialProcess("firebrick.some.module")
    with fb.config.scope(num_threads=3, cache_dir="/some/where", cpu_vector_bits=256, cache_size=4096):
        process.holder = "one before"
        process._start()
    (made,) = started
    own = {k: v for k, v in made.options["env"].items() if k.startswith("FIREBRICK_")}
    assert own.pop("FIREBRICK_OTHER") == "kept"
    own = {k: v for k, v in own.items() if not k.startswith("FIREBRICK_TEST_")}
    assert own == {
        "FIREBRICK_NUM_THREADS": "3", "FIREBRICK_CACHE_DIR": "/some/where", "FIREBRICK_CPU_VECTOR_BITS": "256",
        "FIREBRICK_CACHE_SIZE": "4096",
    }  # fmt: skip
    assert made.options["env"]["PATH"] == os.environ["PATH"]
    assert made.command[:2] == [sys.executable, "-c"]
    assert made.command[2].endswith("from firebrick.some.module import main; main()")
    assert repr(sys.path) in made.command[2]
    assert {k: made.options[k] for k in ("stdin", "stdout", "stderr")} == {"stdin": -1, "stdout": -1, "stderr": -3}
    assert process.holder is None
    process.end()


def test_a_process_of_a_parent_is_left_alone(popen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    process = TrialProcess("firebrick.some.module")
    process._start()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert not process.running
    process.end()
    assert not started[0].killed


def test_a_process_that_is_late_or_cannot_be_written_to_is_ended(popen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "_read", lambda *_: None)
    process = TrialProcess("firebrick.some.module")
    assert process.ask({}, 0.01) == {"ended": "it did not return within 0 s"}
    assert started[-1].killed
    popen.code = 4

    def closed(self: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(Stream, "flush", closed)
    assert process.ask({}, 30.0) == {"ended": "it ended the process (exit code 4)"}
    assert not process.running


def answered(*requests: Any, answer: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What a process answers, and what it prints, which is no answer."""
    content = b"".join(struct.pack("<Q", len(p)) + p for p in map(pickle.dumps, requests))
    out = tmp_path / "out"
    with out.open("wb") as stream:

        class Standard:
            buffer = io.BytesIO(content + b"\1\0\0")

            @staticmethod
            def fileno() -> int:
                return stream.fileno()

        monkeypatch.setattr(sys, "stdin", Standard)
        monkeypatch.setattr(sys, "stdout", Standard)
        answer_requests(answer)
        os.write(stream.fileno(), b"printed")
        monkeypatch.undo()
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_requests_are_answered_until_they_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def answer(request: Any) -> Any:
        if isinstance(request, Exception):
            raise request
        return [request]

    errors = [OSError("disk"), MemoryError("full"), UnsupportedError("a kernel", "none", "another")]
    found = answered(1, *errors, {"a": 2}, answer=answer, monkeypatch=monkeypatch, tmp_path=tmp_path)
    assert found[0] == [1]
    assert found[1:3] == [{"error": "OSError: disk"}, {"error": "MemoryError: full"}]
    assert found[3]["error"].startswith("UnsupportedError: a kernel\nReceived: none")
    assert found[4:] == [[{"a": 2}]]
    with pytest.raises(KeyError):
        answered(KeyError("a mistake"), answer=answer, monkeypatch=monkeypatch, tmp_path=tmp_path)
    monkeypatch.undo()
