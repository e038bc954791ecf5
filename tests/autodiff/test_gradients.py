"""``Gradients``, hooks, graphs kept and freed, tracking: what belongs to the tensor, the call and the context."""

from __future__ import annotations

import contextvars
import copy
import gc
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn


def leaf(values: list[float], device: str = "cpu") -> fb.Tensor:
    return fb.asarray(values, dtype=fb.float64, device=device).require_grad()


# reading gradients


def test_gradients_are_read_with_the_leaf(device: str) -> None:
    x, y = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
    grads = fb.backward(fb.sum(x * x * y))
    assert grads[x].tolist() == [6.0, 16.0]
    assert grads[y].tolist() == [1.0, 4.0]
    assert grads.get(x) is grads[x]
    assert x in grads
    assert len(grads) == 2
    assert not grads[x].tracked
    assert grads[x].device is x.device


def test_the_first_leaf_of_a_process_is_not_taken_for_an_untracked_tensor() -> None:
    code = """
import firebrick as fb

x = fb.ones(1).require_grad()
grads = fb.backward(fb.sum(x))
assert x in grads
assert fb.ones(1) not in grads
grads[x] = fb.zeros(1)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_leaf_that_the_result_does_not_depend_on_has_none() -> None:
    x, y = leaf([1.0]), leaf([2.0])
    grads = fb.backward(fb.sum(x))
    assert grads.get(y) is None
    assert y not in grads
    with pytest.raises(fb.GradientError, match="the result does not depend on it"):
        grads[y]
    with pytest.raises(fb.GradientError, match="it was never tracked"):
        grads[fb.ones(1)]


@pytest.mark.parametrize("how", ["assign", "add", "out"])
def test_a_handle_that_was_rebound_is_refused(how: str) -> None:
    x = leaf([1.0, 2.0])
    grads = fb.backward(fb.sum(x * x))
    before = x.detach()
    if how == "assign":
        x[0] = 5.0
    elif how == "add":
        x += 1.0
    else:
        fb.add(before, 1.0, out=x)
    with pytest.raises(fb.GradientError, match="rebound since"):
        grads[x]
    with pytest.raises(fb.GradientError, match="rebound since"):
        grads.get(x)


def test_replace_refuses_another_device_dtype_or_shape_and_registers_where_none_was() -> None:
    x, y = leaf([1.0, 2.0]), leaf([1.0])
    grads = fb.backward(fb.sum(x * x))
    with pytest.raises(fb.DeviceMismatchError, match="gradient"):
        grads.replace(x, fb.ones(2, dtype=fb.float64, device="cpu:1"))
    with pytest.raises(fb.DTypeError, match="gradient"):
        grads.replace(x, fb.ones(2, dtype=fb.float32))
    with pytest.raises(fb.ShapeError, match="gradient"):
        grads.replace(x, fb.ones((2, 1), dtype=fb.float64))
    with pytest.raises(fb.GradientError, match="belongs to a leaf"):
        grads.replace(fb.ones(2, dtype=fb.float64), fb.ones(2, dtype=fb.float64))
    assert grads[x].tolist() == [2.0, 4.0]
    grads.replace(x, fb.full(2, 7.0, dtype=fb.float64))
    grads.replace(y, fb.full(1, 8.0, dtype=fb.float64))
    assert grads[x].tolist() == [7.0, 7.0]
    assert grads[y].tolist() == [8.0]
    grads[x] = grads[x] + 1.0
    assert grads[x].tolist() == [8.0, 8.0]
    with pytest.raises(fb.ShapeError, match="gradient"):
        grads[x] = fb.ones((2, 1), dtype=fb.float64)


def test_remove_takes_a_gradient_out() -> None:
    x = leaf([1.0])
    grads = fb.backward(fb.sum(x * 3.0))
    found = grads.remove(x)
    assert found is not None
    assert found.tolist() == [3.0]
    assert grads.remove(x) is None
    assert len(grads) == 0


def test_a_gradient_that_is_changed_changes_no_other() -> None:
    x, y = leaf([1.0, 1.0]), leaf([1.0, 1.0])
    grads = fb.backward(fb.sum(x + y))
    gx = grads[x]
    gx[0] = 9.0
    gx += 1.0
    assert grads[y].tolist() == [1.0, 1.0]


# graphs


def test_a_graph_is_freed_by_its_backward_pass_and_says_so() -> None:
    x = leaf([1.0, 2.0])
    y = fb.sum(x * x)
    fb.backward(y)
    with pytest.raises(fb.GradientError, match="freed by an earlier backward pass") as caught:
        fb.backward(y)
    assert "retain_graph=True" in str(caught.value)
    z = fb.sum(y * 2.0)
    with pytest.raises(fb.GradientError, match="freed"):
        fb.backward(z)


def test_a_kept_graph_gives_the_same_bits_again() -> None:
    x = leaf([0.3, 0.7])
    y = fb.sum(fb.exp(fb.sin(x)) * x)
    first = fb.backward(y, retain_graph=True)[x]
    second = fb.backward(y, retain_graph=True)[x]
    third = fb.backward(y)[x]
    assert first.numpy().tobytes() == second.numpy().tobytes() == third.numpy().tobytes()


def test_residuals_are_let_go_with_the_graph() -> None:
    memory = fb.device("cpu")._memory
    x = fb.ones(1000).require_grad()
    gc.collect()
    before = memory.live
    y = fb.sum(fb.exp(fb.exp(x)))
    assert memory.live > before + 4000
    fb.backward(y)
    gc.collect()
    assert memory.live == before + 4
    kept = [weakref.ref(x.node)]
    del x, y
    gc.collect()
    assert kept[0]() is None, "a graph lives as long as something needs it"


def test_a_result_that_is_dropped_drops_its_graph_without_a_cycle() -> None:
    x = leaf([1.0])
    y = fb.exp(x) * 2.0
    node = weakref.ref(y.node)
    gc.disable()
    try:
        del y
        assert node() is None
    finally:
        gc.enable()


def test_a_very_deep_graph_is_no_problem() -> None:
    x = leaf([1.0])
    y = x
    for _ in range(20_000):
        y = y + 0.0001
    assert fb.backward(fb.sum(y))[x].tolist() == [1.0]
    del y
    gc.collect()


def test_a_backward_pass_starts_at_a_tracked_scalar_or_with_a_cotangent() -> None:
    x = leaf([1.0, 2.0])
    with pytest.raises(fb.GradientError, match="starts at a tracked result"):
        fb.backward(fb.ones(()))
    with pytest.raises(fb.GradientError, match="starts at a scalar"):
        fb.backward(x * x)
    u = fb.asarray([1.0, 10.0], dtype=fb.float64)
    assert fb.backward(x * x, u)[x].tolist() == [2.0, 40.0]
    with pytest.raises(fb.ShapeError):
        fb.backward(x * x, fb.ones((2, 1), dtype=fb.float64))
    with pytest.raises(fb.DTypeError):
        fb.backward(x * x, fb.ones(2))
    with pytest.raises(fb.OperandError):
        fb.backward(x * x, 1.0)


def test_gradients_of_a_reused_tensor_are_summed_in_one_order() -> None:
    x = fb.asarray([0.1, 0.2, 0.3]).require_grad()
    bits = {fb.backward(fb.sum(x * 0.1 + fb.exp(x) + fb.sin(x) * x + x / 3.0))[x].numpy().tobytes() for _ in range(5)}
    assert len(bits) == 1


# hooks


def test_a_hook_sees_and_may_replace_the_cotangent() -> None:
    x = leaf([1.0, 2.0])
    seen = []
    y = x * 3.0
    fb.register_hook(y, lambda g: seen.append(g.tolist()))  # returns None: nothing changes
    fb.register_hook(y, lambda g: g * 10.0)
    fb.register_hook(x, lambda g: seen.append(g.tolist()))
    assert fb.backward(fb.sum(y * y))[x].tolist() == [180.0, 360.0]
    assert seen == [[6.0, 12.0], [180.0, 360.0]]


def test_a_hook_is_for_tracked_tensors_and_keeps_their_form() -> None:
    with pytest.raises(fb.GradientError, match="needs a tracked tensor"):
        fb.register_hook(fb.ones(1), lambda g: g)
    x = leaf([1.0])
    fb.register_hook(x, lambda g: fb.astype(g, fb.float32))
    with pytest.raises(fb.GradientError, match="keep shape, dtype and device"):
        fb.backward(fb.sum(x))


# tracking


def test_tracking_belongs_to_the_tensor() -> None:
    x = fb.ones(2)
    assert not x.tracked
    assert not (x * x).tracked
    assert x.require_grad() is x
    y = x * x
    assert y.tracked
    assert not x.detach().tracked
    assert not y.detach().tracked
    assert not (y > 0).tracked
    assert not fb.argmax(y).tracked
    assert not fb.astype(y, fb.int32).tracked
    with pytest.raises(fb.GradientError, match="a leaf is no result"):
        y.require_grad()
    assert "tracked" in repr(y)


def test_require_grad_and_attach_are_for_floats() -> None:
    for dtype in (fb.int32, fb.bool):
        with pytest.raises(fb.DTypeError):
            fb.ones(2, dtype=dtype).require_grad()
        x = fb.ones(2, dtype=dtype)
        assert fb.attach(x) is x
    x = fb.ones(2)
    y = fb.attach(x)
    assert y.tracked
    assert not x.tracked


def test_nothing_is_recorded_inside_no_grad() -> None:
    x = leaf([1.0])
    with fb.no_grad():
        assert not (x * x).tracked
        with fb.no_grad():
            pass
        assert not (x * x).tracked
        assert fb.grad(lambda v: fb.sum(v * v))(x).tolist() == [2.0], "a gradient asked for inside is taken"
    assert (x * x).tracked
    with pytest.raises(RuntimeError), fb.no_grad():
        raise RuntimeError
    assert (x * x).tracked


def test_the_gradient_mode_belongs_to_its_context() -> None:
    x = leaf([1.0])
    seen = []

    def look() -> None:
        seen.append((x * x).tracked)
        with fb.no_grad():
            barrier.wait()
            seen.append((x * x).tracked)
            barrier.wait()

    barrier = threading.Barrier(2)
    thread = threading.Thread(target=contextvars.Context().run, args=(look,))
    with fb.no_grad():
        thread.start()
        barrier.wait()
    assert (x * x).tracked, "no_grad of another thread is not ours"
    barrier.wait()
    thread.join()
    assert seen == [True, False]


def test_threads_take_gradients_side_by_side() -> None:
    results: dict[int, list[float]] = {}

    def work(i: int) -> None:
        for _ in range(20):
            x = leaf([float(i), 1.0])
            results[i] = fb.backward(fb.sum(fb.exp(x) * x))[x].tolist()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(4):
        x = leaf([float(i), 1.0])
        assert results[i] == fb.backward(fb.sum(fb.exp(x) * x))[x].tolist()


def test_an_update_inside_the_graph_is_part_of_it() -> None:
    x = leaf([1.0, 2.0])
    y = x * 1.0
    y *= x
    y += 3.0
    y[0] = 0.0
    assert fb.backward(fb.sum(y))[x].tolist() == [0.0, 4.0]


# where gradients lie


def test_the_gradient_of_a_transposed_matrix_lies_in_rows(device: str) -> None:
    rng = np.random.default_rng(0)
    given = {k: rng.normal(size=s) for k, s in {"w": (5, 3), "x": (4, 3), "y": (5, 2), "stack": (2, 4, 3)}.items()}
    t = {k: fb.asarray(v, device=device) for k, v in given.items()}
    w = t["w"].require_grad()
    for product, expected in (
        (lambda: t["x"] @ w.mT, np.ones((5, 4)) @ given["x"]),
        (lambda: w.mT @ t["y"], given["y"] @ np.ones((2, 3))),
        (lambda: t["stack"] @ w.mT, np.ones((5, 8)) @ given["stack"].reshape(8, 3)),
    ):
        found = fb.backward(fb.sum(product()))[w].numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert found.flags.c_contiguous


def test_gradients_are_a_collection_of_leaves() -> None:
    x, y = (fb.asarray(v).require_grad() for v in (1.0, 2.0))
    found = fb.backward(x * y)
    assert set(found) == {x.leaf, y.leaf}
    assert len(found) == 2
    assert x in found
    assert fb.ones(2) not in found


@pytest.mark.parametrize("make", [lambda t: t, nn.Parameter, nn.Buffer], ids=["tensor", "parameter", "buffer"])
@pytest.mark.parametrize(
    "copied", [copy.deepcopy, copy.copy, lambda t: pickle.loads(pickle.dumps(t))], ids=["deep", "own", "pickle"]
)
def test_copies_of_a_leaf_are_leaves_of_their_own(
    copied: Callable[[fb.Tensor], fb.Tensor], make: Callable[[fb.Tensor], fb.Tensor]
) -> None:
    x = make(fb.asarray([1.0, 2.0]))
    x.label = "w"
    assert not copied(x).tracked
    x.require_grad()
    y = copied(x)
    assert (type(y), y.tracked) == (type(x), True)
    grads = fb.backward(fb.sum(x * y * y))
    assert (grads[x].tolist(), grads[y].tolist()) == ([1.0, 4.0], [2.0, 8.0])


def test_copies_of_what_a_call_tracks_are_constants() -> None:
    kept = []

    def loss(x: fb.Tensor, model: nn.Module) -> fb.Tensor:
        kept.extend([copy.deepcopy(x), copy.deepcopy(x * 2.0), copy.deepcopy(model).weight])
        return fb.sum(x * kept[0])

    assert fb.grad(loss)(fb.ones(2), nn.Linear(2, 2)).tolist() == [1.0, 1.0]
    fb.grad(lambda m: loss(fb.ones(2), m) + fb.sum(m(fb.ones(2))))(nn.Linear(2, 2))
    assert not any(t.tracked for t in kept)
