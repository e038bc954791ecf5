"""Training that is interrupted, fails or is killed at random moments, and goes on, also with something changed.

A case is drawn from its seed. A moment is a call of a function of Firebrick, which is where Python looks for signals: there
Ctrl-C arrives, or an error is raised. After it, the state is the one before or the one after what was running, or reading it
raises what was lost; and training that goes on has the bits of training that nothing happened to, or is refused by the name
of what differs.

    update    ``optimizer.update`` of an eager step
    step      a compiled step: gradients, clipping, update and averages
    fit       ``Learner.fit`` is left and called again, eager or compiled
    kill      a process of ``Learner.fit`` is ended by ``kill -9``, and another one goes on
    resume    a learner dies within an epoch, and another one goes on from its checkpoint with a loader or settings of its own
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import firebrick as fb
from firebrick import nn, optim
from firebrick.core.errors import ExecutionError
from firebrick.data import ArrayDataset, DataLoader, IterableDataset, WeightedSampler
from firebrick.train import F1, CheckpointError, EarlyStopping, Learner
from firebrick.train.snapshots import Snapshots

KINDS = ("update", "step", "fit", "resume")  # "kill" is for a process of its own
FAULTS = ("Ctrl-C", "error")
EPOCHS, ROWS, BATCH = 2, 28, 8  # four steps an epoch, the last of four rows
GENERATOR = 0x20  # a flag of code
SOURCES = os.path.dirname(fb.__file__)
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda m: optim.SGD(m, lr=optim.cosine(0.1, steps=12), momentum=0.9),
    "Adam": lambda m: optim.Adam(m, lr=0.05),
    "AdamW": lambda m: optim.AdamW(m, lr=optim.warmup(0.05, 3), groups=[{"params": "*.bias", "weight_decay": 0.0}]),
    "Lion": lambda m: optim.Lion(m, lr=0.01),
}


@dataclass(frozen=True)
class Case:
    """What happens, and where.

    Attributes:
        seed: That it was drawn from.
        kind: One of ``KINDS``.
        engine: Device of the model.
        jit: Whether steps are graphs.
        optimizer: One of ``OPTIMIZERS``.
        ema: Decay of averages, if there are any.
        clip: Largest norm of gradients, if any.
        fault: One of ``FAULTS``; where a learner dies, both are its end.
        at: Which share of the moments comes before it.
        change: What is changed before it goes on: one of ``CHANGES``, or nothing.
    """

    seed: int
    kind: str
    engine: str
    jit: bool
    optimizer: str
    ema: float | None
    clip: float | None
    fault: str
    at: float
    change: str = ""


@dataclass(frozen=True)
class Outcome:
    """What became of a case: ``wrong`` says what is neither; else ``ended`` says how it ended."""

    wrong: str = ""
    ended: str = ""


def generate(seed: int, kinds: tuple[str, ...] = KINDS, engines: tuple[str, ...] = ("numpy", "cpu", "torch:cpu")) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    kind, engine = rng.choice(kinds), rng.choice(engines)
    jit = kind == "step" or (kind in ("fit", "resume") and rng.random() < 0.3)
    return Case(
        seed, kind, engine, jit, rng.choice(list(OPTIMIZERS)), rng.choice([None, 0.9]), rng.choice([None, 0.5]),
        rng.choice(FAULTS), rng.random(), rng.choice(["", *CHANGES]) if kind == "resume" else "",
    )  # fmt: skip


# moments


class Raised(MemoryError):
    """The error that is raised at a moment."""


class Moments:
    """Counts calls of functions of Firebrick in this thread; at number ``at``, ``fault`` happens."""

    def __init__(self, at: int = -1, fault: str = "error") -> None:
        self.at, self.fault, self.count, self.where = at, fault, 0, ""

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCES) or code.co_flags & GENERATOR or _dropping(frame):
            return
        self.count += 1
        if self.count == self.at:
            self.where = f"{code.co_filename[len(SOURCES) + 1 :]}:{frame.f_lineno} {code.co_name}"
            sys.settrace(None)
            if self.fault == "error":
                raise Raised(self.where)
            if self.fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)  # a learner ends at once at the second one

    def run(self, job: Callable[[], Any]) -> str:
        """Run a job; returns the name of what ended it, or nothing."""
        before, handler = sys.gettrace(), signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.settrace(self)
        try:
            job()
        except (Raised, KeyboardInterrupt, fb.FirebrickError) as e:
            return type(e).__name__
        finally:
            sys.settrace(before)
            signal.signal(signal.SIGINT, handler)
        return ""


def _dropping(frame: Any) -> bool:
    """Whether an object is being dropped, where Python only prints what is raised."""
    return "__del__" in (frame.f_code.co_name, frame.f_back.f_code.co_name if frame.f_back else "")


def struck(case: Case, fresh: Callable[[], Callable[[], Any]]) -> tuple[Moments, str]:
    """Count the moments of a job, then run a fresh one with the case's fault; returns its moments and what ended it."""
    counted = Moments()
    job = fresh()
    ended = counted.run(job)
    assert not ended, ended
    moments = Moments(1 + int(case.at * counted.count), case.fault)
    return moments, moments.run(fresh())


# what is trained


class Net(nn.Module):
    """Two dense layers with batch norm and dropout between them."""

    def __init__(self, hidden: int = 4) -> None:
        self.dense1 = nn.Linear(3, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.drop = nn.Dropout(0.3, generator=fb.random.Generator(7))
        self.dense2 = nn.Linear(hidden, 2)

    def forward(self, x: Any) -> Any:
        return self.dense2(self.drop(fb.relu(self.norm(self.dense1(x)))))


def points(rows: int = ROWS, seed: int = 0) -> ArrayDataset:
    rng = np.random.default_rng(seed)
    return ArrayDataset(rng.normal(size=(rows, 3)), rng.integers(0, 2, rows))


def loader(case: Case, **changed: Any) -> DataLoader:
    data = changed.pop("data", None) or points()
    return DataLoader(data, changed.pop("batch_size", BATCH), **{"shuffle": True, "seed": 3, "device": case.engine, **changed})


def learner(case: Case, out: Path | None = None, *, hidden: int = 4, **changed: Any) -> Learner:
    fb.random.seed(11)
    model = Net(hidden).to(case.engine)
    made = OPTIMIZERS[changed.pop("optimizer", case.optimizer)](model)
    options = {"ema": case.ema, "clip_norm": case.clip, "jit": case.jit, **changed}
    return Learner(model, made, out=out, seed=5, log=None, **options)


Bits = dict[str, Any]


def bits(model: nn.Module, optimizer: Any, ema: Any = None, *, buffers: bool = True) -> Bits:
    """Everything that the next step depends on, but for the generators; moments of nothing but zeros count as none."""
    state = optimizer.state_dict()
    found: Bits = {f"{m} of {n}": t for m, held in state["moments"].items() for n, t in held.items()}
    found = {n: t.numpy().tobytes() for n, t in found.items() if np.any(t.numpy())}
    named = model.state_dict() if buffers else dict(model.named_parameters())
    found |= {n: t.detach().numpy().tobytes() for n, t in named.items()}
    found["step"] = optimizer.step
    return found if ema is None else {**found, "ema's step": ema.step} | {
        f"average of {n}": t.numpy().tobytes() for n, t in ema.averages.items()
    }  # fmt: skip


def whole_of(made: Learner) -> Bits:
    """``bits`` of a learner, with its generators, its place and what it has measured."""
    rows = [(r.epoch, r.step, r.train_loss, r.train_accuracy, r.valid_loss, r.learning_rate, r.metrics) for r in made.history]
    generators = {n: str(g.state()) for n, g in made.model.generators().items()}
    generators |= {type(c).__name__: str(c.state()) for c in made.callbacks}
    return {**bits(made.model, made.optimizer, made.ema), "place": (made.epoch, made.step), "rows": rows, **generators}


def between(found: Bits, before: Bits, after: Bits) -> str:
    """What is neither the one state nor the other; "" where it is one of them."""
    if found in (before, after):
        return ""
    new = sorted(n for n in after if found.get(n) != before.get(n))
    old = sorted(n for n in after if found.get(n) != after[n])
    return (
        f"a state between two: {len(new)} of {len(after)} changed ({', '.join(new[:3])}), {len(old)} not ({', '.join(old[:3])})"
    )


# the cases


def run(case: Case) -> Outcome:
    """Run a case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _RUNS[case.kind](case)


def _run_update(case: Case) -> Outcome:
    made: list[Learner] = []
    x, y = (fb.asarray(a, device=case.engine) for a in points().fetch(np.arange(BATCH)))

    def fresh() -> Callable[[], Any]:
        one = learner(case)
        made.append(one)
        x32 = fb.astype(x, fb.float32)
        step = fb.value_and_grad(lambda m, x, y: fb.cross_entropy(m(x), y))
        for _ in range(2):
            gradients = step(one.model, x32, y)[1]
            one.optimizer.update(one.model, gradients)
        gradients = step(one.model, x32, y)[1]
        states.append(bits(one.model, one.optimizer))
        return lambda: one.optimizer.update(one.model, gradients)

    states: list[Bits] = []
    moments, ended = struck(case, fresh)
    after = bits(made[0].model, made[0].optimizer)
    text = between(bits(made[1].model, made[1].optimizer), states[1], after)
    return Outcome(f"{ended} at {moments.where}: {text}" if text else "", ended or "done")


def _run_step(case: Case) -> Outcome:
    made: list[Learner] = []
    x, y = (fb.asarray(a, device=case.engine) for a in points().fetch(np.arange(BATCH)))
    x = fb.astype(x, fb.float32)
    states: list[Bits] = []
    jobs: list[Callable[[], Any]] = []

    def fresh() -> Callable[[], Any]:
        one = learner(case)
        differentiate = fb.value_and_grad(lambda m, x, y: fb.cross_entropy(m(x), y))

        def step(x: Any, y: Any) -> Any:
            loss, gradients = differentiate(one.model, x, y)
            if case.clip is not None:
                optim.clip_norm(gradients, case.clip)
            one.optimizer.update(one.model, gradients)
            if one.ema is not None:
                one.ema.update()
            return loss

        compiled = fb.jit(step)
        for _ in range(2):
            compiled(x, y)
        made.append(one)
        states.append(bits(one.model, one.optimizer, one.ema))
        jobs.append(lambda: compiled(x, y))
        return jobs[-1]

    moments, ended = struck(case, fresh)
    after = bits(made[0].model, made[0].optimizer, made[0].ema)
    try:
        found = bits(made[1].model, made[1].optimizer, made[1].ema)
    except ExecutionError as e:
        return Outcome(ended=f"lost, and says so: {type(e).__name__}")
    if text := between(found, states[1], after):
        return Outcome(f"{ended} at {moments.where}: {text}")
    if found == states[1]:  # the same step can be taken, with its own random numbers again
        for g in made[1].model.generators().values():
            g.set_state({"seed": g.state()["seed"], "counter": np.array([2, 0], np.uint32)})
        jobs[1]()
        if bits(made[1].model, made[1].optimizer, made[1].ema) != after:
            return Outcome(f"{ended} at {moments.where}: the step after it has other bits")
    return Outcome(ended=ended or "done")


def _run_fit(case: Case) -> Outcome:
    made: list[Learner] = []
    train, valid = loader(case), loader(case, shuffle=False, data=points(6, 1))

    def fresh() -> Callable[[], Any]:
        stopping = EarlyStopping("valid_loss", patience=9, restore_best=False)
        made.append(learner(case, callbacks=[stopping], metrics=[F1(2)]))
        return lambda: made[-1].fit(train, valid, epochs=EPOCHS)

    moments, ended = struck(case, fresh)
    whole, found = made
    try:
        for _ in range(2):
            found.fit(train, valid, epochs=EPOCHS)
    except ExecutionError as e:
        return Outcome(ended=f"lost, and says so: {type(e).__name__}")
    differs = [n for n, v in whole_of(whole).items() if whole_of(found).get(n) != v]
    text = f"{ended} at {moments.where}, then fit again: other bits in {', '.join(differs[:4])}"
    return Outcome(text if differs else "", ended or "done")


class Stream(IterableDataset):
    """The points one after the other."""

    def __iter__(self) -> Iterator[Any]:
        return (points()[i] for i in range(ROWS))

    def __len__(self) -> int:
        return ROWS


REFUSED, SAID, SAME = "refused", "said", "same"


@dataclass(frozen=True)
class Change:
    """Something that a run goes on with otherwise: what must come of it, and a word that is said."""

    goal: str
    word: str = ""
    loader: dict[str, Any] = field(default_factory=dict)
    learner: dict[str, Any] = field(default_factory=dict)


CHANGES: dict[str, Change] = {
    "order": Change(REFUSED, "as stored found", {"shuffle": False}),
    "seed": Change(REFUSED, "seed 3 saved, 4 found", {"seed": 4}),
    "sampler": Change(REFUSED, "WeightedSampler", {"shuffle": False, "sampler": WeightedSampler(np.ones(ROWS))}),
    "values": Change(REFUSED, "values of the samples", {"data": points(ROWS, 9)}),
    "dtype": Change(REFUSED, "a sample", {"data": ArrayDataset(*(a.astype(np.int32) for a in points().arrays))}),
    "length": Change(REFUSED, "samples 28 saved, 27 found", {"data": points(ROWS - 1)}),
    "stream": Change(REFUSED, "a stream found", {"data": Stream(), "shuffle": False}),
    "drop_last": Change(REFUSED, "samples 28 saved, 24 found", {"drop_last": True}),
    "batch size": Change(SAID, "batch_size 8 before, 4 now", {"batch_size": 4}),
    "workers": Change(SAME, "", {"num_workers": 2}),
    "model": Change(REFUSED, "dense1.weight", {}, {"hidden": 5}),
    "optimizer": Change(REFUSED, "", {}, {"optimizer": "other"}),
    "clip": Change(SAID, "clip_norm", {}, {"clip_norm": 0.01}),
    "precision": Change(SAID, "precision was float32 and is bfloat16", {}, {"precision": "bfloat16"}),
    "averages": Change(SAID, "averages|ema's decay", {}, {"ema": 0.5}),
    "accumulate": Change(SAID, "accumulate was 1 and is 2", {}, {"accumulate": 2}),
}


def _run_resume(case: Case) -> Outcome:
    change = CHANGES.get(case.change, Change(SAME))
    options = dict(change.learner)
    if options.get("optimizer"):
        options["optimizer"] = "Adam" if case.optimizer == "SGD" else "SGD"
    valid = loader(case, shuffle=False, data=points(6, 1))
    with tempfile.TemporaryDirectory() as folder:
        whole = _whole(replace(case, seed=0, kind="", fault="", at=0.0, change=""))
        an_epoch = -(-ROWS // BATCH)
        within = 1 + int(case.at * 1000) % (an_epoch - 1)
        steps = within + an_epoch * int(case.at * EPOCHS)
        _die(learner(case, Path(folder), checkpoint_steps=within), loader(case), valid, steps)
        found = learner(case, **options)
        before = whole_of(found)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found.resume(folder)
                before = whole_of(found)
                found.fit(loader(case, **change.loader), valid, epochs=EPOCHS)
                ended = SAME
            except fb.FirebrickError as e:
                ended, text = REFUSED, str(e)
        if ended == SAME and said:
            ended, text = SAID, " ".join(str(w.message) for w in said)
        if ended != change.goal and not (change.goal == SAID and ended == SAME and whole_of(found) == whole):
            return Outcome(f"with another {case.change or 'nothing'} after step {steps}: {ended}, not {change.goal}")
        if ended != SAME and not re.search(change.word, text):
            return Outcome(f"with another {case.change}: {ended}, but does not name it: {text}")
        if ended == REFUSED and whole_of(found) != before:
            return Outcome(f"with another {case.change}: refused, and changed")
        if ended == SAME and whole_of(found) != whole:
            return Outcome(f"resumed with another {case.change or 'nothing'} after step {steps}: other bits")
    return Outcome(ended=f"{ended} ({case.change or 'nothing'})")


@lru_cache(maxsize=64)
def _whole(case: Case) -> Bits:
    """What a learner ends with that nothing happens to."""
    made = learner(case)
    made.fit(loader(case), loader(case, shuffle=False, data=points(6, 1)), epochs=EPOCHS)
    return whole_of(made)


@contextmanager
def _dying(steps: int) -> Iterator[None]:
    """A ``with`` block in which learners end once they have begun to save after so many steps."""
    save = Snapshots.save

    def saving(self: Snapshots, *given: Any, **options: Any) -> None:
        save(self, *given, **options)
        if self.learner.step >= steps:
            self.wait()
            raise Raised

    Snapshots.save = saving  # type: ignore[method-assign]
    try:
        yield
    finally:
        Snapshots.save = save  # type: ignore[method-assign]


def _die(doomed: Learner, train: DataLoader, valid: DataLoader, steps: int) -> None:
    with _dying(steps):
        try:
            doomed.fit(train, valid, epochs=EPOCHS, draw=False)
        except Raised:
            return
    raise AssertionError("it lived")


def _run_kill(case: Case) -> Outcome:
    valid = loader(case, shuffle=False, data=points(6, 1))
    counted, whole = Moments(), learner(case)
    counted.run(lambda: whole.fit(loader(case), valid, epochs=EPOCHS, draw=False))
    with tempfile.TemporaryDirectory() as folder:
        at, out = 1 + int(case.at * counted.count), Path(folder, "run")
        if not (child := os.fork()):
            moments = Moments(at, "kill")
            moments.run(lambda: learner(case, out, checkpoint_steps=2).fit(loader(case), valid, epochs=EPOCHS, draw=False))
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = learner(case)
        try:
            found.resume(out)
        except CheckpointError:
            if list(out.glob("checkpoint*")):
                raise
            # it died before it had one
        step = found.step
        found.fit(loader(case), valid, epochs=EPOCHS, draw=False)
        text = f"killed at call {at}, resumed after step {step}: other bits"
        return Outcome(text if whole_of(found) != whole_of(whole) else "", f"ended with {ended}")


_RUNS: dict[str, Callable[[Case], Outcome]] = {
    "update": _run_update, "step": _run_step, "fit": _run_fit, "kill": _run_kill, "resume": _run_resume,
}  # fmt: skip


if __name__ == "__main__":  # in a process of their own, which may be forked: FIRST COUNT
    for seed in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
        outcome = run(generate(seed, ("kill",), ("numpy",)))
        print(json.dumps([seed, outcome.wrong, outcome.ended]), flush=True)
