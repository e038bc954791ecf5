"""What is kept of a step is its value: a handle that the function goes on changing must not change what was kept.

Each program runs eagerly and under jit on every engine; expected values are written out by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.data import DataLoader

HOMES = ["numpy", "cpu", "torch:cpu"]
WAYS: dict[str, Callable[[Any], Any]] = {"eager": lambda f: f, "jit": fb.jit}


@pytest.fixture(params=HOMES, autouse=True)
def home(request: pytest.FixtureRequest) -> Any:
    with fb.use_device(request.param):
        yield request.param


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return WAYS[request.param]


def xs() -> fb.Tensor:
    return fb.asarray([1.0, 2.0, 3.0])


# scan


def test_a_scan_stacks_the_values_of_a_carry_that_is_changed_in_place(way: Callable[[Any], Any]) -> None:
    def body(buf: fb.Tensor, t: fb.Tensor) -> Any:
        buf[0] += t
        return buf, buf

    end, rows = way(lambda b, x: fb.scan(body, b, x))(fb.zeros(1), xs())
    assert (end.tolist(), rows.tolist()) == ([6.0], [[1.0], [3.0], [6.0]])
    _, rows = way(lambda b, x: fb.scan(body, b, x, reverse=True))(fb.zeros(1), xs())
    assert rows.tolist() == [[6.0], [5.0], [3.0]]


def test_the_gradient_of_such_a_scan_is_that_of_its_values(way: Callable[[Any], Any]) -> None:
    def f(x: fb.Tensor) -> fb.Tensor:
        def body(buf: fb.Tensor, t: fb.Tensor) -> Any:
            buf[0] += t * t
            return buf, {"buf": buf}

        rows = fb.scan(body, fb.zeros(1), x)[1]["buf"]
        return fb.sum(rows[:, 0] * fb.asarray([1.0, 10.0, 100.0]))

    assert way(fb.grad(f))(xs()).tolist() == [2 * 111.0, 4 * 110.0, 6 * 100.0]
    for strategy in ("balanced", "none"):
        with fb.checkpointing(strategy):
            assert way(fb.grad(fb.checkpoint(f)))(xs()).tolist() == [222.0, 440.0, 600.0]
    assert way(lambda x, g: fb.vjp(f, x)[1](g)[0])(xs(), fb.ones(())).tolist() == [222.0, 440.0, 600.0]


def test_a_scan_stacks_the_values_of_a_captured_tensor_that_its_body_changes() -> None:
    w = fb.zeros(1)

    def body(c: fb.Tensor, t: fb.Tensor) -> Any:
        w.__iadd__(t)
        return c, (w, [w, c])

    _, (a, (b, c)) = fb.scan(body, fb.zeros(()), xs())
    assert a.tolist() == b.tolist() == [[1.0], [3.0], [6.0]]
    assert (c.tolist(), w.tolist()) == ([0.0, 0.0, 0.0], [6.0])
    with pytest.raises(fb.StateChangedError, match="changes a tensor that existed"):
        fb.jit(lambda x: fb.scan(body, fb.zeros(()), x))(xs())


def test_a_captured_tensor_that_becomes_the_carry_is_not_changed_by_later_steps(way: Callable[[Any], Any]) -> None:
    w = fb.asarray([10.0])

    def body(c: fb.Tensor, t: fb.Tensor) -> Any:
        c += t
        return w, c

    end, rows = way(lambda x: fb.scan(body, fb.zeros(1), x))(xs())
    assert (w.tolist(), rows.tolist()) == ([10.0], [[1.0], [12.0], [13.0]])
    end += 1.0
    assert w.tolist() == [10.0]


def test_two_parts_of_a_carry_that_are_one_handle_part_at_the_next_step(way: Callable[[Any], Any]) -> None:
    def body(carry: Any, t: fb.Tensor) -> Any:
        a, b = carry
        a += t
        return (a, a), b

    (a, b), rows = way(lambda x: fb.scan(body, (fb.zeros(()), fb.zeros(())), x))(xs())
    assert (a.item(), b.item(), rows.tolist()) == (6.0, 6.0, [0.0, 1.0, 3.0])


def test_a_scan_without_steps_changes_nothing() -> None:
    w, n = fb.zeros(1), nn.BatchNorm1d(2)

    def body(c: fb.Tensor, t: fb.Tensor) -> Any:
        w.__iadd__(1.0)
        n(fb.ones((3, 2)) * c)
        return c + w[0], w

    end, rows = fb.scan(body, fb.zeros(()), xs()[:0])
    assert (end.item(), rows.shape, w.tolist(), n.running_mean.tolist()) == (0.0, (0, 1), [0.0], [0.0, 0.0])


# while_loop and cond


def test_a_condition_that_changes_its_carry_does_not_change_the_loop(way: Callable[[Any], Any]) -> None:
    def below(c: fb.Tensor) -> fb.Tensor:
        c *= 2.0
        return c < 10.0

    assert way(lambda c: fb.while_loop(below, lambda c: c + 1.0, c))(fb.asarray(0.0)).item() == 5.0


def test_a_loop_that_returns_a_captured_tensor_does_not_hand_out_its_handle(way: Callable[[Any], Any]) -> None:
    w = fb.asarray([3.0])

    def body(c: Any) -> Any:
        a, b = c
        a += 1.0
        return w, b + 1.0

    a, b = way(lambda x, y: fb.while_loop(lambda c: c[1] < 3.0, body, (x, y)))(fb.zeros(1), fb.zeros(()))
    a += 1.0
    assert (a.tolist(), b.item(), w.tolist()) == ([4.0], 3.0, [3.0])


@pytest.mark.parametrize("pred", [True, fb.asarray(True, device="numpy")], ids=["bool", "tensor"])
def test_a_branch_that_returns_a_captured_tensor_does_not_hand_out_its_handle(way: Callable[[Any], Any], pred: Any) -> None:
    w = fb.asarray([3.0])
    chosen = fb.asarray(True) if isinstance(pred, fb.Tensor) else True

    def f(x: fb.Tensor) -> Any:
        y = fb.cond(chosen, lambda: w, lambda: x)
        y += x
        return y

    assert (way(f)(fb.ones(1)).tolist(), w.tolist()) == ([4.0], [3.0])


# gradients


def test_a_hook_may_go_on_changing_what_it_returned(way: Callable[[Any], Any]) -> None:
    def f(x: fb.Tensor) -> Any:
        total = fb.zeros(1)

        def hook(g: fb.Tensor) -> fb.Tensor:
            total.__iadd__(g)
            return total

        def loss(x: fb.Tensor) -> fb.Tensor:
            a, b = x + 0.0, x + 0.0
            c, d = a + 0.0, b + 0.0
            fb.register_hook(c, hook)
            fb.register_hook(d, hook)
            return fb.sum(c + d)

        return fb.grad(loss)(x)

    assert way(f)(fb.ones(1)).tolist() == [3.0]


def test_a_hook_that_changes_the_caller_s_cotangent_changes_nothing_in_this_pass() -> None:
    x = fb.ones(1).require_grad()
    g = fb.asarray([2.0])
    a, b = x + 0.0, x + 0.0
    fb.register_hook(b, lambda h: g.__imul__(100.0) * 0.0 + h)
    assert fb.backward(a + b, g)[x].tolist() == [4.0]


def test_a_checkpointed_function_changes_captured_tensors_once_and_repeats_from_what_they_were(
    way: Callable[[Any], Any],
) -> None:
    count = fb.zeros(())

    @fb.checkpoint
    def block(x: fb.Tensor) -> fb.Tensor:
        count.__iadd__(1.0)
        y = fb.sin(x) * count
        count.__iadd__(1.0)
        return y * y * count

    def f(x: fb.Tensor) -> fb.Tensor:
        y = fb.sum(block(x))
        count.__iadd__(10.0)
        return y

    step = way(fb.grad(f))
    x = fb.asarray([0.5])
    for before in (0.0, 12.0, 24.0):
        got = step(x).item()
        want = (before + 1) ** 2 * (before + 2) * 2 * np.sin(0.5) * np.cos(0.5)
        assert abs(got - want) < 1e-5 * want
        assert count.item() == before + 12.0


def test_a_checkpointed_function_that_calls_a_compiled_one_with_state_repeats_it_from_what_it_was() -> None:
    count = fb.zeros(())

    @fb.jit
    def grown(x: fb.Tensor) -> fb.Tensor:
        count.__iadd__(1.0)
        return x * count

    def f(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.checkpoint(lambda x: fb.square(x * grown(grown(fb.ones(1)))))(x))

    assert fb.grad(f)(fb.asarray([1.0])).tolist() == [8.0]
    assert count.item() == 2.0
    assert fb.grad(f)(fb.asarray([1.0])).tolist() == [2.0 * 144.0]
    assert count.item() == 4.0


# state that is kept


def test_a_key_value_cache_keeps_values(way: Callable[[Any], Any]) -> None:
    cache = nn.KeyValueCache()
    cache.append(fb.zeros((1, 1, 1, 1)), fb.zeros((1, 1, 1, 1)))
    k, v = cache.append(fb.ones((1, 1, 1, 1)), fb.ones((1, 1, 1, 1)))
    k *= 5.0
    v *= 5.0
    assert cache.keys is not None
    assert cache.keys[0, 0, :, 0].tolist() == [0.0, 1.0]


class Buffered:
    """A data set that fills one buffer for all samples."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.buffer = make()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Any:
        self.buffer *= 0
        self.buffer += i
        return {"pair": (self.buffer, [i]), "one": self.buffer}[self.kind]

    kind = "one"


class BufferedPair(Buffered):
    kind = "pair"


class Whole:
    """A data set that fills one buffer for all batches."""

    def __init__(self) -> None:
        self.buffer = np.zeros((2, 1), np.float32)

    def __len__(self) -> int:
        return 6

    def fetch(self, indices: Any) -> Any:
        self.buffer[:] = indices[:, None]
        return self.buffer

    def __getitem__(self, i: int) -> Any:
        return np.full(1, i, np.float32)


class Scaled:
    """A transform that fills one buffer for all batches."""

    def __init__(self) -> None:
        self.buffer = np.zeros((2, 1), np.float32)

    def __call__(self, batch: Any) -> Any:
        np.multiply(batch, 1.0, out=self.buffer)
        return self.buffer


def _zeros32() -> Any:
    return np.zeros(1, np.float32)


def _zeros_tensor() -> Any:
    return fb.zeros(1, device="cpu")


@pytest.mark.parametrize(
    ("dataset", "transform"),
    [
        (lambda: Buffered(_zeros32), None),
        (lambda: BufferedPair(_zeros32), None),
        (lambda: Buffered(_zeros_tensor), None),
        (Whole, None),
        (lambda: Buffered(_zeros32), Scaled),
    ],
    ids=["array", "pair", "tensor", "batch", "transform"],
)
@pytest.mark.parametrize("workers", [{}, {"num_workers": 1, "worker": "thread"}, {"num_workers": 1}], ids=str)
def test_a_loader_keeps_what_a_data_set_s_buffer_held_when_it_was_read(dataset: Any, transform: Any, workers: Any) -> None:
    data = dataset()
    if workers == {"num_workers": 1} and isinstance(getattr(data, "buffer", None), fb.Tensor):
        workers = {}  # tensors do not go to another process
    rows = []
    for batch in DataLoader(data, 2, transform=transform and transform(), **workers):
        rows += (batch[0] if isinstance(batch, tuple) else batch)[:, 0].tolist()
    assert rows == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
