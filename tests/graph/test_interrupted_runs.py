"""Compiled steps that are interrupted anywhere: all that a step changes is that of before, or of after, or refuses to be read.

Generators of a step that fails, by an interrupt or by an error of its own, stand where they stood.
"""

import signal
import sys
from collections.abc import Callable
from functools import partial
from threading import Thread
from types import FrameType
from typing import Any

import numpy as np
import pytest
from interrupts import PACKAGE, Interrupted, interrupted

import firebrick as fb
from firebrick import nn, optim
from firebrick.core.errors import ExecutionError
from firebrick.graph import tell
from firebrick.graph.program import Program
from firebrick.random.generator import Generator

ENGINES = ("numpy", "cpu", "torch:cpu")
OWN = ("graph/program.py", "core/commit.py", "random/generator.py")
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda m: optim.SGD(m, lr=0.1, momentum=0.9),
    "Adam": lambda m: optim.Adam(m, lr=0.1),
}


def on_host(v: Any) -> Any:
    return v.numpy().copy() if isinstance(v, fb.Tensor) else v


class Made:
    """A compiled step with dropout, running statistics, an optimizer and an average; and a held handle, so that not all
    memory is written in place."""

    def __init__(self, device: str, optimizer: str) -> None:
        with fb.use_device(device):
            fb.random.seed(0)
            self.drop = nn.Dropout(0.5)
            self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), self.drop, nn.Linear(4, 3))
            self.optimizer = OPTIMIZERS[optimizer](self.model)
            self.average = optim.EMA(self.model, 0.9)
            self.x, self.y = fb.asarray(np.eye(4, 3, dtype=np.float32)), fb.asarray([0, 1, 2, 0])
            self.wrong = fb.asarray([0, 1, 2, 7])
        self.step = fb.jit(self._step)
        self.step(self.x, self.y)
        self.step(self.x, self.y)
        self.held = self.model.layers[0].weight.detach() if optimizer == "Adam" else None
        self._owners: list[Any] = [self.model, self.optimizer, self.average]
        self._then = [fb.tree_map(on_host, owner.state_dict()) for owner in self._owners]
        self._mark = self.drop.generator.mark()

    def _step(self, x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        loss, grads = fb.value_and_grad(lambda m, x, y: fb.cross_entropy(m(x), y))(self.model, x, y)
        self.optimizer.update(self.model, grads)
        self.average.update()
        return loss

    def bits(self) -> Any:
        try:
            state = fb.tree_map(on_host, [owner.state_dict() for owner in self._owners])
        except ExecutionError:
            return "lost"
        return repr(fb.tree_map(lambda v: v.tobytes() if isinstance(v, np.ndarray) else v, state)), self.drop.generator.mark()

    def again(self) -> None:
        """Go back to where the second step ended."""
        for owner, state in zip(self._owners, self._then, strict=True):
            owner.load_state_dict(state)
        self.drop.generator.return_to(self._mark)


@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("device", ENGINES)
def test_an_interrupted_compiled_step_has_changed_everything_or_nothing_or_says_that_values_are_lost(
    device: str, optimizer: str, every: int
) -> None:
    made = Made(device, optimizer)
    run = partial(made.step, made.x, made.y)
    before = made.bits()
    places = interrupted(run, None, *OWN)
    after = made.bits()
    found = []
    for at in range(1, places + 1, every):
        made.again()
        assert made.bits() == before
        interrupted(run, at, *OWN)
        found.append(made.bits())
        assert found[-1] in (before, after, "lost"), f"at place {at} of {places}"
    assert found[0] == before
    assert every > 1 or found[-1] == after
    assert found.count("lost") <= 3  # right after the engine's last write, before Python has its results


def interrupted_in(name: str, at: int, call: Callable[[], Any]) -> None:
    """Run a call and raise SIGALRM at the line of this number in a function of ``graph.program``; its handler raises."""
    count = 0

    def local(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        if count == at:
            count += 1
            signal.raise_signal(signal.SIGALRM)
        return local

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        mine = frame.f_code.co_filename == str(PACKAGE / "graph" / "program.py") and frame.f_code.co_name == name
        return local if mine else None

    def handler(number: int, frame: Any) -> None:
        raise Interrupted

    tracing, handling = sys.gettrace(), signal.signal(signal.SIGALRM, handler)
    sys.settrace(trace)
    try:
        call()
    except Interrupted:
        pass
    finally:
        sys.settrace(tracing)
        signal.signal(signal.SIGALRM, handling)


@pytest.mark.parametrize("device", ENGINES)
def test_a_handler_that_raises_while_a_step_is_committed_splits_nothing(device: str) -> None:
    made = Made(device, "momentum")
    run = partial(made.step, made.x, made.y)
    before = made.bits()
    run()
    after = made.bits()
    waiting = signal.getsignal(signal.SIGINT)
    for at in range(1, 40, 3):
        made.again()
        interrupted_in("_rebind", at, run)
        assert made.bits() in (before, after), f"at line {at}"
        assert signal.getsignal(signal.SIGINT) is waiting


@pytest.mark.parametrize("device", ENGINES)
def test_a_compiled_step_that_raises_leaves_generators_as_they_were(device: str) -> None:
    made = Made(device, "momentum")
    before = made.bits()
    with pytest.raises(fb.OutOfRangeError):
        made.step(made.x, made.wrong)
    assert made.bits() == before
    first = made.step(made.x, made.y).item()
    made.again()
    assert made.step(made.x, made.y).item() == first


@pytest.mark.parametrize("device", ENGINES)
def test_a_run_that_tells_or_scans_and_fails_leaves_generators_as_they_were(device: str) -> None:
    with fb.use_device(device):
        generator = Generator(3)
        heard: list[float] = []
        log = Heard(heard)

        @fb.jit
        def told(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
            y = x + generator.uniform((3,))
            tell(log.hear, fb.sum(y))
            return fb.take(y * generator.uniform((3,)), i)

        @fb.jit
        def scans(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
            y, _ = fb.scan(lambda c, v: (c + v * generator.uniform((3,)), c), x, fb.stack([x, x]))
            return fb.take(y, i)

        x, good, bad = fb.ones((3,)), fb.asarray([0, 2]), fb.asarray([0, 9])
        for f in (told, scans):
            f(x, good)
            mark = generator.mark()
            with pytest.raises(fb.OutOfRangeError):
                f(x, bad)
            assert generator.mark() == mark
            f(x, good)
            assert generator.mark() > mark
        assert len(heard) >= 2


class Heard:
    unwatched = frozenset({"heard"})

    def __init__(self, heard: list[float]) -> None:
        self.heard = heard

    def hear(self, x: fb.Tensor) -> None:
        self.heard.append(x.item())


def test_a_run_that_fails_on_tracked_tensors_leaves_generators_as_they_were() -> None:
    made = Made("numpy", "momentum")
    loss = fb.jit(lambda x, y: fb.cross_entropy(made.drop(x), y))
    x = made.x.detach()
    x.require_grad()
    loss(x, made.y)
    mark = made.drop.generator.mark()
    with pytest.raises(fb.OutOfRangeError):
        loss(x, made.wrong)
    assert made.drop.generator.mark() == mark


def test_what_another_thread_drew_during_a_run_that_fails_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = Generator(3)
    f = fb.jit(lambda x, i: fb.take(x + generator.uniform((3,)), i))
    f(fb.ones((3,)), fb.asarray([0]))
    run = Program._run

    def meanwhile(*args: Any) -> Any:
        other = Thread(target=generator.uniform, args=((3,),))
        other.start()
        other.join()
        return run(*args)

    monkeypatch.setattr(Program, "_run", meanwhile)
    mark = generator.mark()
    with pytest.raises(fb.OutOfRangeError):
        f(fb.ones((3,)), fb.asarray([9]))
    assert generator.mark() == (mark[0], mark[1] + 2)
