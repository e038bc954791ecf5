"""``Storage.unique`` on this Python version: the one question that decides whether memory may be written."""

from __future__ import annotations

import gc

import numpy as np

import firebrick as fb


def alone(t: fb.Tensor) -> bool:
    """Ask outside of an ``assert``: pytest keeps every part of an asserted expression in a variable of its own."""
    return t.storage.unique()


def test_one_handle_is_alone(device: str) -> None:
    x = fb.ones(3, device=device)
    assert alone(x)
    y = fb.add(x, x)
    assert alone(y)
    assert alone(x)


def test_one_handle_is_alone_inside_a_function_a_list_and_a_closure(device: str) -> None:
    x = fb.ones(3, device=device)
    held = {"again": [x, x]}
    assert [t.storage.unique() for t in held["again"]] == [True, True]
    assert (lambda: held["again"][0].storage.unique())()
    assert all(map(alone, (x, x)))


def test_two_handles_are_not(device: str) -> None:
    x = fb.ones(3, device=device)
    y = x.detach()
    assert not alone(x)
    assert not alone(y)
    del y
    gc.collect()
    assert alone(x)


def test_a_rebound_handle_leaves_its_storage(device: str) -> None:
    x = fb.ones(3, device=device)
    y = x.detach()
    x += 1.0
    assert alone(x)
    assert alone(y)


def test_a_living_view_and_its_parent_are_not_alone(device: str) -> None:
    x = fb.ones((3, 4), device=device)
    v = x[1:]
    w = fb.permute_dims(v, (1, 0))
    assert not alone(x)
    assert not alone(v)
    assert not alone(w)
    del v
    assert not alone(x), "a view of a view still shows it"
    del w
    gc.collect()
    assert alone(x)


def test_a_view_is_never_alone_even_when_its_parent_is_gone(device: str) -> None:
    v = fb.ones((3, 4), device=device)[1:]
    gc.collect()
    assert not alone(v)


def test_memory_that_was_handed_out_is_not_alone_any_more(device: str) -> None:
    x, y, z = (fb.ones(3, device=device) for _ in range(3))
    x.numpy()
    np.from_dlpack(y)
    fb.read([z])
    assert not alone(x)
    assert not alone(y)
    assert not alone(z)


def test_memory_handed_out_through_a_view_is_not_alone_any_more(device: str) -> None:
    x = fb.ones((3, 4), device=device)
    x[1:].numpy()
    gc.collect()
    assert not alone(x)


def test_borrowed_memory_is_never_alone(device: str) -> None:
    assert not alone(fb.asarray(np.ones(3), device=device, copy=False))
    assert not alone(fb.from_dlpack(np.ones(3), device=device))
    assert alone(fb.asarray(np.ones(3), device=device))


def test_what_the_tape_will_look_at_is_not_alone_until_the_graph_is_freed(device: str) -> None:
    x = fb.ones(3, device=device)
    tracked = x.detach().require_grad()
    del x
    y = fb.exp(tracked)  # its rule looks at its result
    assert not alone(y)
    loss = fb.sum(y)
    fb.backward(loss)
    assert alone(y)


def test_what_no_rule_looks_at_is_alone_on_the_tape_too(device: str) -> None:
    x = fb.ones(3, device=device).require_grad()
    y = x + 1.0
    assert alone(y)


def test_memory_shared_with_another_engine_is_not_alone_while_that_lives() -> None:
    x = fb.ones(3, device="cpu:0")
    y = x.to("cpu:1")
    assert not alone(y)
    if y.storage.base is not None:
        assert not alone(x)
    del y
    gc.collect()
    assert alone(x)


def test_live_bytes_are_counted_once_and_given_back(device: str) -> None:
    memory = fb.device(device)._memory
    gc.collect()
    before = memory.live
    x = fb.zeros((10, 100), device=device)
    assert memory.live == before + 4000
    views = [x[1:], x.T, x.detach()]
    assert memory.live == before + 4000
    y = x + x
    assert memory.live == before + 8000
    del x, y, views
    gc.collect()
    assert memory.live == before


def test_a_reshape_that_had_to_copy_has_memory_of_its_own(device: str) -> None:
    x = fb.asarray(np.arange(12.0).reshape(3, 4), device=device)
    y = fb.reshape(fb.permute_dims(x, (1, 0)), (-1,))
    gc.collect()
    assert alone(y)
    assert alone(x)
    z = fb.reshape(x, (-1,))
    assert not alone(x)
    assert not alone(z)
