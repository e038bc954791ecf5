"""Nothing waits for checks of indices that came from the host in range, and every index that is out of range is reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.webgpu.commands import _SMALL, _TOGETHER
from firebrick.core.aval import Aval
from firebrick.ir import Graph
from firebrick.ops import OPS

DEVICE = "webgpu:0"
Step = Callable[[fb.Tensor, fb.Tensor], fb.Tensor]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each read of the device."""
    gpu, found = fb.device(DEVICE).backend.groups(fb.device(DEVICE)).gpu, list[int]()
    copied = type(gpu)._copied_to_host

    def counted(self: Any, buffers: Any, sizes: Any) -> Any:
        found.append(sum(sizes))
        return copied(self, buffers, sizes)

    monkeypatch.setattr(type(gpu), "_copied_to_host", counted)
    return found


def sent(values: Any, dtype: type = np.int64) -> fb.Tensor:
    return fb.asarray(np.asarray(values, dtype), device=DEVICE)


def _trained(ignore: int | None = None) -> tuple[fb.nn.Module, Step]:
    """A model of tokens, and its step of training."""
    model = fb.nn.Sequential(fb.nn.Embedding(30, 8, device=DEVICE), fb.nn.Linear(8, 5, device=DEVICE))
    optimizer = fb.optim.Adam(model, lr=0.01)
    loss = fb.nn.CrossEntropyLoss() if ignore is None else fb.nn.CrossEntropyLoss(ignore_index=ignore)

    def step(tokens: fb.Tensor, labels: fb.Tensor) -> fb.Tensor:
        value, gradients = fb.value_and_grad(lambda m: loss(m(tokens), labels))(model)
        optimizer.update(model, gradients)
        return value

    return model, step


def test_a_training_step_on_tokens_and_labels_from_the_host_waits_for_nothing(waits: list[int]) -> None:
    rng = np.random.default_rng(0)
    _, step = _trained()
    run = fb.jit(step)
    run(sent(rng.integers(0, 30, 16)), sent(rng.integers(0, 5, 16)))
    del waits[:]
    for _ in range(3):
        last = run(sent(rng.integers(0, 30, 16)), sent(rng.integers(0, 5, 16)))
    assert not waits
    assert np.isfinite(last.numpy())


@pytest.mark.parametrize("compiled", [True, False])
def test_every_index_out_of_range_is_reported_and_leaves_the_state(compiled: bool) -> None:
    rng = np.random.default_rng(1)
    model, step = _trained()
    run = fb.jit(step) if compiled else step
    right = rng.integers(0, 30, 16), rng.integers(0, 5, 16)
    for _ in range(2):
        run(*map(sent, right))
    before = [p.numpy().tobytes() for p in model.parameters()]
    for which, wrong, said in (
        (0, 30, "Embedding: indices"),
        (0, -1, "Embedding: indices"),
        (1, 5, "labels"),
        (1, -1, "labels"),
    ):
        arguments = [x.copy() for x in right]
        arguments[which][rng.integers(16)] = wrong
        with pytest.raises(IndexError, match=said):
            run(*map(sent, arguments))
        assert [p.numpy().tobytes() for p in model.parameters()] == before
        with pytest.raises(IndexError, match=said):  # computed on the device
            run(*(sent(x - 3) + 3 for x in arguments))
    run(*map(sent, right))
    assert [p.numpy().tobytes() for p in model.parameters()] != before


def test_indices_that_a_program_changes_in_place_are_checked_again(waits: list[int]) -> None:
    x = fb.asarray(np.arange(6, dtype=np.float32), device=DEVICE)

    class Cursor(fb.nn.Module):
        def __init__(self) -> None:
            self.at = fb.nn.Buffer(sent([0, 1]))

        def forward(self, x: fb.Tensor) -> fb.Tensor:
            found = fb.take(x, self.at, axis=0)
            self.at += 1
            return found

    cursor = Cursor()
    run = fb.jit(lambda x: cursor(x))
    for k in range(5):
        np.testing.assert_array_equal(run(x).numpy(), [k, k + 1])
    with pytest.raises(IndexError, match=r"take: indices must lie in \[-6, 6\)[\s\S]*Received: 6"):
        run(x)
    assert cursor.at.tolist() == [5, 6]


def test_eager_operations_follow_the_ranges_of_their_operands(waits: list[int]) -> None:
    rng = np.random.default_rng(3)
    _, step = _trained()
    run = fb.jit(step)
    tokens, labels = rng.integers(0, 30, (4, 5)), np.where(rng.random((4, 4)) < 0.3, -100, rng.integers(0, 5, (4, 4)))
    masked = np.where(labels.ravel() == -100, 0, labels.ravel())

    def given() -> tuple[fb.Tensor, fb.Tensor]:
        x, y = sent(tokens, np.int32), sent(labels)
        flat = fb.astype(fb.reshape(fb.flip(y, axis=1), (16,)), fb.int32)
        return fb.reshape(x[:, 1:], (16,)), fb.maximum(flat, 0)

    run(*given())
    del waits[:]
    x, y = given()
    assert np.isfinite(run(x, y).numpy())
    assert len(waits) == 1  # of the result
    np.testing.assert_array_equal(x.numpy(), tokens[:, 1:].ravel())
    np.testing.assert_array_equal(y.numpy(), masked.reshape(4, 4)[:, ::-1].ravel())
    with pytest.raises(IndexError, match="labels"):
        run(x, y + 1 if masked.max() == 4 else y + 5)
    with pytest.raises(IndexError, match="Embedding: indices"):
        run(x + 30, y)
    del waits[:]
    assert run(x, fb.argmax(sent(rng.integers(0, 9, (16, 5))), axis=1)).shape == ()
    assert waits  # nothing is known of what argmax returns


@pytest.mark.parametrize("seed", range(20))
def test_what_is_known_of_eager_results_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    known = 0
    values = [
        sent(rng.integers(-4, 9, (3, 4)), np.int32),
        sent(rng.integers(0, 2, (3, 4)), np.bool_),
        sent(rng.integers(0, 3, (3, 4))),
    ]
    for _ in range(15):
        a, b = (values[int(k)] for k in rng.integers(0, len(values), 2))
        kind = int(rng.integers(8))
        if kind == 0:
            made = fb.where(fb.astype(a, fb.int64) > 1, *(fb.astype(x, fb.int32) for x in (a, b)))
        elif kind == 1:
            made = fb.astype(a, str(rng.choice(["int8", "int32", "int64", "uint8", "bool"])))
        elif kind == 2:
            made = fb.astype(a, fb.int64) == fb.astype(b, fb.int64)
        elif kind == 3:
            made = fb.concat([a[:1], fb.flip(a, axis=0)[1:]])
        elif kind == 4:
            made = fb.maximum(fb.astype(a, fb.int32), fb.astype(b, fb.int32) + 1)
        elif kind == 5:
            made = fb.astype(a, fb.int32) * fb.astype(b, fb.int32)
        elif kind == 6:
            made = fb.take(a, sent(rng.integers(0, 3, 3)), axis=0)
        else:
            made = fb.broadcast_to(fb.sum(fb.astype(a, fb.int32), axis=0), (3, 4))
        values.append(made)
    for x in values:
        found = x.storage.data.known_range
        if found is not None:
            known += 1
            host = x.numpy()
            assert found[0] <= int(host.min())
            assert int(host.max()) <= found[1]
    assert known > 4


def test_nothing_is_known_of_an_array_that_a_kernel_has_written() -> None:
    device = fb.device(DEVICE)
    x, y = sent([1, 7, 3], np.int32), sent([2, 2, 9], np.int32)
    body = Graph([y.aval])
    body.outputs = body.add(OPS["add"], 0, 0)
    group = device.backend.groups(device).of_body(body)
    native = x.storage.data
    assert native.known_range == native.as_shape(Aval((3, 1), fb.int32)).known_range == (1, 7)
    assert native.as_shape(Aval((3,), fb.uint32)).known_range is None
    (made,) = group.run_in([native], [y.storage.data])
    assert made is native
    assert native.known_range is None
    assert native.as_shape(Aval((3, 1), fb.int32)).known_range is None
    assert x.tolist() == [4, 4, 18]
    assert y.storage.data.known_range == (2, 9)
    assert (y + 1).storage.data.known_range == fb.asarray(y + 1, copy=True).storage.data.known_range == (3, 10)
    assert group(native)[0].known_range is None


@pytest.mark.parametrize("op", ["take", "gather", "embedding", "one_hot", "bincount"])
def test_eager_operations_do_not_wait_for_indices_from_the_host(op: str, waits: list[int]) -> None:
    x = fb.asarray(np.arange(12, dtype=np.float32).reshape(3, 4), device=DEVICE)
    calls: dict[str, Callable[[fb.Tensor], fb.Tensor]] = {
        "take": lambda i: fb.take(x, i, axis=0),
        "gather": lambda i: fb.take_along_axis(x, fb.reshape(i, (3, 1)), axis=1),
        "embedding": lambda i: x[i],
        "one_hot": lambda i: fb.one_hot(i, 3),
        "bincount": lambda i: fb.bincount(i, size=3),
    }
    calls[op](sent([0, 2, 1]))
    del waits[:]
    found = calls[op](sent([2, 0, 1]))
    assert not waits
    host = {
        "take": lambda i: x.numpy()[i], "gather": lambda i: np.take_along_axis(x.numpy(), i[:, None], 1),
        "embedding": lambda i: x.numpy()[i], "one_hot": lambda i: np.eye(3)[i],
        "bincount": lambda i: np.bincount(i, minlength=3),
    }  # fmt: skip
    np.testing.assert_array_equal(found.numpy(), host[op](np.array([2, 0, 1])))
    for wrong in ([0, 4, 1], [-5, 0, 0]):
        with pytest.raises(IndexError):
            calls[op](sent(wrong))


def test_labels_that_are_ignored_lie_outside_of_the_range() -> None:
    _, step = _trained(ignore=-100)
    run = fb.jit(step)
    tokens = sent([0, 1, 2, 29])
    assert np.isfinite(run(tokens, sent([0, -100, 4, -100])).numpy())
    assert np.isfinite(run(tokens, sent([0, 1, 4, 2])).numpy())
    for wrong in (-99, 5):
        with pytest.raises(IndexError, match="labels"):
            run(tokens, sent([0, -100, wrong, 1]))


def test_a_branch_for_a_condition_from_the_host_is_taken_without_a_wait(waits: list[int]) -> None:
    run = fb.jit(lambda c, x: fb.cond(c, lambda x: x * 2.0, lambda x: x - 1.0, x))
    x = fb.asarray(np.array([1.0, 2.0], np.float32), device=DEVICE)
    yes, no = sent(True, np.bool_), sent(False, np.bool_)
    run(yes, x)
    del waits[:]
    twice, less = run(yes, x), run(no, x)
    assert not waits
    assert twice.tolist() == [2.0, 4.0]
    assert less.tolist() == [0.0, 1.0]
    assert run(yes == no, x).tolist() == [0.0, 1.0]
    for k, want in ((0, [0.0, 1.0]), (1, [2.0, 4.0]), (2, [2.0, 4.0])):  # of a comparison that may hold or not
        assert run(sent([0, 5, 9])[k] > 3, x).tolist() == want
        assert run(fb.astype(sent([0, 1, 1])[k], fb.bool), x).tolist() == want
    assert run(yes != no, x).tolist() == [2.0, 4.0]


def test_many_arrays_are_read_with_one_wait(waits: list[int]) -> None:
    rng = np.random.default_rng(2)
    shapes = [(), (3,), (0, 2), (5, 7), (1,), (_SMALL // 4,), (_SMALL // 4 + 1,), (2, 3, 4)]
    dtypes = ("float32", "int8", "bool", "float16", "int64", "uint16")
    hosts = [np.asarray(rng.integers(0, 2, s)).astype(d) for d in dtypes for s in shapes]
    tensors = [fb.asarray(h, device=DEVICE) for h in hosts]
    doubled = [t | True if t.dtype == fb.bool else t + t for t in tensors]
    del waits[:]
    found = fb.read(doubled)
    large = sum(h.nbytes > _SMALL for h in hosts)
    assert len(waits) == 1 + large
    for x, h in zip(found, hosts, strict=True):
        want = h | True if h.dtype == np.bool_ else h + h
        assert x.dtype == h.dtype
        assert x.shape == h.shape
        np.testing.assert_array_equal(x, want)
    del waits[:]
    many = [fb.full((k % 5,), float(k), device=DEVICE) for k in range(2 * _TOGETHER + 3)]
    for k, x in enumerate(fb.read(many)):
        np.testing.assert_array_equal(x, np.full((k % 5,), k, np.float32))
    assert len(waits) == 2
