"""Lives of one training run: processes that end by ``kill -9`` at a chosen moment, and the one that goes on to the end.

Run as ``python lives.py PLACE FOLDER FAULT SEED COUNT``, which ends runs at random moments, or without SEED and COUNT, which
ends one run at each boundary of a checkpoint's writing; prints one JSON object for each run. PLACE is a device, or several with
a comma between them, with "+workers" behind it if the loader has some; FAULT is one that is planted, or "none".

This process imports and never computes. Each life is a fork of it, so that it starts like a new process and in no time.
A moment is a visit to one of the places that report to ``Moments``: the loader makes a batch, a step is done, the writer is
right before, in the middle of or right after a step of ``writing.STEPS``.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from after_steps import after_steps

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Callback, CheckpointError, DataParallel, Learner, SingleDevice, load_checkpoint, writing

EPOCHS, EVERY = 6, 2  # six epochs of five steps, a checkpoint within them every second step
TIMED = ("seconds", "samples_per_second")
LINE = re.compile(r"^(\d+) ([0-9a-f]{64})$", re.MULTILINE)  # of a step and its rows, written whole


Moment = tuple[str, int]  # a place, and how many visits to it come before


class Moments:
    """Records the moments of a life, and ends it in the chosen one: one of a name, by how many came before."""

    def __init__(self, record: Path, deadly: Moment | None) -> None:
        self._record, self._deadly = record, deadly
        self._counts: Counter[str] = Counter()
        self._lock = threading.RLock()

    def visit(self, name: str) -> None:
        """One moment."""
        with self._lock:
            with self._record.open("a") as stream:
                stream.write(name + "\n")
            if self._deadly == (name, self._counts[name]):
                os.kill(os.getpid(), signal.SIGKILL)
            self._counts[name] += 1

    def watch(self) -> None:
        """Report each step of each write."""
        real, write = writing.perform, writing.STEPS["write file"]

        def perform(step: str, path: Path, *args: Any) -> None:
            self.visit(f"io before {step} {_called(path)}")
            real(step, path, *args)
            self.visit(f"io after {step} {_called(path)}")

        def half(file: Path, content: bytes) -> None:
            write(file, content[: len(content) // 2])
            self.visit(f"io amid write file {_called(file)}")
            write(file, content)

        writing.perform = perform
        writing.STEPS["write file"] = half


def _called(path: Path) -> str:
    if path.suffix in (".json", ".safetensors", ".sha256"):
        return f"{path.parent.name}/{path.name}"
    return "run" if path.name.startswith(("run", "whole")) else re.sub(r"\d+", "N", path.name)


class Net(nn.Module):
    """Two dense layers with dropout between them."""

    def __init__(self) -> None:
        self.dense1 = nn.Linear(2, 16)
        self.drop = nn.Dropout(0.3)
        self.dense2 = nn.Linear(16, 3)

    def forward(self, x: Any) -> Any:
        return self.dense2(self.drop(fb.relu(self.dense1(x))))


def points(count: int, seed: int) -> ArrayDataset:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    centres = np.array([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    return ArrayDataset(centres[labels] + rng.normal(size=(count, 2)) * 0.5, labels)


class Handed(DataLoader):
    """A loader that keeps the batch that it handed out last."""

    last: Any = None

    def __iter__(self) -> Iterator[Any]:
        for Handed.last in super().__iter__():
            yield Handed.last


class Forgets(Callback):
    """A planted fault: a run goes on with the epoch's first batch."""

    def on_fit_begin(self, learner: Learner) -> None:
        learner.cursor = None


def live(place: str, run: Path, moments: Moments, fault: str) -> None:
    """Train to the end: from the newest checkpoint if there is one, else from the beginning."""
    if fault == "no old":  # planted: the newest checkpoint is removed before the new one is there
        writing.STEPS["rename old"] = lambda path, aside: shutil.rmtree(path)
    moments.watch()

    def seen(*arrays: Any) -> tuple[Any, ...]:
        moments.visit("loader")
        return arrays

    fb.random.seed(11)
    model = Net()
    names, _, workers = place.partition("+")
    devices = names.split(",")
    learner = Learner(
        model,
        optim.Adam(model, lr=optim.cosine(0.05, steps=20, warmup=3)),
        strategy=SingleDevice(devices[0]) if len(devices) == 1 else DataParallel(devices),
        out=run,
        seed=5,
        log=None,
        checkpoint_steps=EVERY,
        ema=0.9,
        jit=place != "numpy",
        callbacks=[Forgets()] if fault == "no cursor" else [],
    )
    train = Handed(points(36, 0), 8, shuffle=True, seed=3, transform=seen, num_workers=2 if workers else 0)
    valid = DataLoader(points(20, 1), 10, name="valid")
    order = run.with_suffix(".order")

    def stepped() -> None:
        parts = Handed.last if isinstance(Handed.last, list) else [Handed.last]
        rows = hashlib.sha256(b"".join(t.numpy().tobytes() for part in parts if part for t in part)).hexdigest()
        with order.open("a") as stream:
            stream.write(f"\n{learner.step} {rows}\n")  # a line of its own, also where a death has cut the one before short
        moments.visit("step")

    after_steps(learner, stepped)
    try:
        learner.resume()
    except CheckpointError:
        if run.exists():  # it died before it had a checkpoint
            assert not list(run.glob("checkpoint*")) + list(run.glob("earlier/*")), "there is one"
            shutil.rmtree(run)
    learner.fit(train, valid, epochs=EPOCHS, draw=False)


def result(run: Path) -> dict[str, Any]:
    """All that must be equal, whenever and however often the run was ended."""
    found = load_checkpoint(run)
    order: dict[str, set[str]] = {}
    for step, rows in LINE.findall(run.with_suffix(".order").read_text()):
        order.setdefault(step, set()).add(rows)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    fresh = repr(found.state["random"]["process"])  # as is a device's generator that was asked for and drew nothing
    moved = {n: g for n, g in found.state["random"]["devices"].items() if repr(g) != fresh}
    return {
        "weights": found.manifest["files"]["model.safetensors"]["sha256"],
        "optimizer": found.manifest["files"]["optimizer.safetensors"]["sha256"],
        "generators": repr((fresh, moved, found.state["random"]["initial"], found.state["generators"])),
        "metrics": [{k: v for k, v in row.items() if k not in TIMED} for row in rows],
        "best": load_checkpoint(run / "best").manifest["files"]["model.safetensors"]["sha256"],
        "order": {step: sorted(found) for step, found in order.items()},  # one entry a step, however often it was run
    }


def forked(job: Callable[[], None]) -> int:
    """Run a job in a fork; returns the status it ended with."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            job()
            status = 0
        finally:
            if status:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Lives:
    """The undisturbed run, and those that are ended."""

    def __init__(self, place: str, folder: Path, fault: str) -> None:
        for name in ("firebrick.backends.cpu", "firebrick.backends.numpy", *(["torch"] if "torch" in place else [])):
            importlib.import_module(name)  # once for all lives
        self.place, self.folder, self.fault = place, folder, fault
        status, self.names = self.life(folder / "whole", None)
        assert status == 0, "the undisturbed run"
        self.expected = result(folder / "whole")

    def life(self, run: Path, deadly: Moment | None) -> tuple[int, list[str]]:
        """One life; returns how it ended and its moments."""
        record = run.with_suffix(".record")
        record.unlink(missing_ok=True)
        status = forked(lambda: live(self.place, run, Moments(record, deadly), self.fault))
        return status, record.read_text().splitlines()

    def tell(self, run: Path, status: int, deaths: list[str], **facts: Any) -> None:
        """Print what became of a run."""
        found = result(run) if status == 0 else {}
        other = [k for k, v in self.expected.items() if found.get(k) != v]
        print(json.dumps({"deaths": deaths, "ended": status, "other": other, **facts}), flush=True)

    def boundaries(self) -> None:
        """One run, ended in turn at all moments of the writing of a checkpoint in its place, in the order they come in."""
        run, deaths, steps = self.folder / "run", list[str](), list[int]()
        self.life(run, ("io after sync parent run", 4))  # there are checkpoints of all kinds to lose
        start = len(self.names) - self.names[::-1].index("io before clear leftovers .checkpoint.new") - 3
        for name in [n for n in self.names[start:] if n.startswith("io")]:
            status, seen = self.life(run, (name, 0))
            assert (status, seen[-1]) == (-signal.SIGKILL, name), (status, seen[-1:])
            deaths.append(name)
            try:
                steps.append(load_checkpoint(run).state["step"])
            except CheckpointError:
                self.tell(run, status, deaths, steps=[*steps, -1])
                return
        self.tell(run, self.life(run, None)[0], deaths, steps=steps)

    def moments(self, seed: int, count: int) -> None:
        """Runs that are ended at random moments again and again, until a life of each comes through."""
        rng, visits = random.Random(seed), Counter(self.names)
        died = number = 0
        while died < count:
            number += 1
            run, deaths, status = self.folder / f"run{number}", list[str](), -signal.SIGKILL
            while status == -signal.SIGKILL:
                place = rng.choice(("loader", "step", "io"))
                moment = rng.choice([(n, i) for n, count in visits.items() if n.startswith(place) for i in range(count)])
                status, seen = self.life(run, moment if died < count else None)
                if status == -signal.SIGKILL:
                    died += 1
                    deaths.append(seen[-1])
            self.tell(run, status, deaths)


if __name__ == "__main__":
    place, folder, fault, *random_moments = sys.argv[1:]
    lives = Lives(place, Path(folder), fault)
    if random_moments:
        lives.moments(*map(int, random_moments))
    else:
        lives.boundaries()
