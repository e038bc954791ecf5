"""Each error of tracing in full, as ``errors.txt`` has it, with HERE for a line of this file."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.graph import tell, traced

pytestmark = pytest.mark.usefixtures("nothing_left")

X = fb.asarray([1.0, 2.0])
X.label = "w"
ITEMS: Iterator[int] = iter([1, 2])
BIG = np.ones((1 << 17) + 1)
KEPT: list[Any] = []
OUT: SimpleQueue[Any] = SimpleQueue()  # jit does not look into it


def traced_as_f(fn: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    fn.__name__ = fn.__qualname__ = "f"
    return fb.jit(fn, **settings)(*(args or (X,)))


def leaked() -> Any:
    traced_as_f(lambda x: OUT.put(x * 2.0))
    return OUT.get().tolist()


def held_elsewhere(x: fb.Tensor) -> fb.Tensor:
    OUT.put(X.detach())
    return x + OUT.get()


def drawn_elsewhere() -> Any:
    OUT.put(fb.random.Generator(0))
    return traced_as_f(lambda x: x + OUT.get().uniform((2,)))


def tensor_elsewhere() -> Any:
    kept = fb.ones(2)
    kept.label = "bias"
    OUT.put(kept)
    return traced_as_f(lambda x: x + OUT.get())


def by_itself(x: fb.Tensor) -> Any:
    w = fb.ones(2).require_grad()
    return w, fb.backward(fb.sum(w * x))


def changes_its_argument(x: fb.Tensor) -> fb.Tensor:
    x *= 2.0
    return fb.sum(x * x)


def changed_under_a_gradient(x: fb.Tensor) -> Any:
    changes_its_argument.__name__ = changes_its_argument.__qualname__ = "f"
    return fb.grad(fb.jit(changes_its_argument))(x)


def left_tracked(x: fb.Tensor) -> fb.Tensor:
    return x.require_grad()


def holding_itself(x: fb.Tensor) -> list[Any]:
    made: list[Any] = [x]
    made.append(made)
    return made


def told_in_a_branch(x: fb.Tensor) -> Any:
    def branch() -> fb.Tensor:
        tell(print, x)
        return x

    return fb.cond(fb.sum(x) > 0.0, branch, lambda: x)


def told(x: fb.Tensor) -> fb.Tensor:
    tell(print, x)
    return x


def hooked_in_a_branch(x: fb.Tensor) -> Any:
    def branch() -> fb.Tensor:
        y = x * 2.0
        fb.register_hook(y, lambda g: g)
        return y

    return fb.cond(fb.sum(x) > 0.0, branch, lambda: x)


def waiting() -> Any:
    """Another thread traces with a tensor for longer than one waits for it."""
    inside: SimpleQueue[int] = SimpleQueue()
    done: SimpleQueue[int] = SimpleQueue()
    w = fb.ones(2)

    def f(x: fb.Tensor) -> fb.Tensor:
        w.__iadd__(x)
        inside.put(1)
        done.get(timeout=60)
        return x

    thread = threading.Thread(target=traced_as_f, args=(f,))
    thread.start()
    inside.get(timeout=60)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(traced, "_PATIENCE", 0.0)
            return w.tolist()
    finally:
        done.put(1)
        thread.join(60)


ERRORS: dict[str, Callable[[], Any]] = {
    "if": lambda: traced_as_f(lambda x: x if fb.sum(x) > 0 else -x),
    "an argument in an if": lambda: traced_as_f(lambda x: x if x[0] else -x, X),
    "int": lambda: traced_as_f(lambda x: int(x[0])),
    "float": lambda: traced_as_f(lambda x: float(x[0])),
    "complex": lambda: traced_as_f(lambda x: complex(x[0])),
    "a size": lambda: traced_as_f(lambda x: range(fb.argmax(x))),
    "item": lambda: traced_as_f(lambda x: x[0].item()),
    "tolist": lambda: traced_as_f(lambda x: x.tolist()),
    "numpy": lambda: traced_as_f(lambda x: x.numpy()),
    "a NumPy function": lambda: traced_as_f(lambda x: np.asarray(x)),
    "another library": lambda: traced_as_f(lambda x: np.from_dlpack(x)),
    "nonzero": lambda: traced_as_f(lambda x: fb.nonzero(x)),
    "unique": lambda: traced_as_f(lambda x: fb.unique_values(x)),
    "unique with counts": lambda: traced_as_f(lambda x: fb.unique_counts(x)),
    "unique with inverse": lambda: traced_as_f(lambda x: fb.unique_inverse(x)),
    "unique with all": lambda: traced_as_f(lambda x: fb.unique_all(x)),
    "a mask": lambda: traced_as_f(lambda x: x[x > 0.0]),
    "repeat": lambda: traced_as_f(lambda x: fb.repeat(x, fb.argsort(x))),
    "a tensor of a trace outside": leaked,
    "a tensor that another thread traces with": waiting,
    "a tensor that is held elsewhere": tensor_elsewhere,
    "a generator that is held elsewhere": drawn_elsewhere,
    "another device": lambda: traced_as_f(lambda x: (x * 2.0, fb.ones(2, device="cpu:1") + 1.0)),
    "a move": lambda: traced_as_f(lambda x: (x + 1.0).to("cpu:1")),
    "a tensor left tracked": lambda: traced_as_f(left_tracked, X.detach()),
    "an argument changed under a gradient": lambda: changed_under_a_gradient(fb.ones(2)),
    "gradients of what it made": lambda: traced_as_f(by_itself),
    "a generator as a result": lambda: traced_as_f(lambda x: (y for y in [x])),
    "a list that holds itself": lambda: traced_as_f(holding_itself),
    "a function that is no function": lambda: fb.jit(3),
    "an unknown static argument": lambda: fb.jit(holding_itself, static_argnames="y"),
    "a static list": lambda: traced_as_f(lambda x, n: x, X, [1], static_argnames="n"),
    "a NumPy array as an argument": lambda: traced_as_f(lambda x, n: x, X, np.ones(2)),
    "an iterator": lambda: traced_as_f(lambda x: x * next(ITEMS)),
    "a large NumPy array": lambda: traced_as_f(lambda x: fb.asarray(BIG)),
    "a tensor that is kept": lambda: traced_as_f(lambda x: KEPT.append(x * 2.0)),
    "a list that is changed": lambda: traced_as_f(lambda x: KEPT.append(2)),
    "random numbers": lambda: traced_as_f(lambda x: x * random.random()),
    "the time": lambda: traced_as_f(lambda x: x * time.time()),
    "tell in a branch": lambda: traced_as_f(told_in_a_branch),
    "tell on tracked tensors": lambda: traced_as_f(told, X.detach().require_grad()),
    "a hook in a branch": lambda: traced_as_f(hooked_in_a_branch, X.detach().require_grad()),
}
TEXTS: dict[str, str] = dict(
    part.split("\n", 1) for part in ("\n" + Path(__file__).with_name("errors.txt").read_text("utf-8")).split("\n## ")[1:]
)


def general(text: str) -> str:
    """The text of an error without the places of lines and objects."""
    text = re.sub(rf"{re.escape(__file__)}:\d+( in [\w<>]+)?", "HERE", text)
    return re.sub(r"0x[0-9a-f]+", "0x…", text)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_tracing_reads_in_full(name: str) -> None:
    with pytest.raises(fb.FirebrickError) as caught:
        ERRORS[name]()
    text = f"{type(caught.value).__name__}: {caught.value}"
    del caught
    assert general(text) == TEXTS[name].strip()


def test_every_text_is_of_a_case() -> None:
    assert list(TEXTS) == list(ERRORS)
