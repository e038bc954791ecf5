"""Functions that the kernel language refused though they are in it."""

from __future__ import annotations

import numpy as np

import firebrick as fb


@fb.kernel(grid="1", group=32)
def shared_after_a_shuffle(x: fb.kernel.In[fb.float32, "32"], out: fb.kernel.Out[fb.float32, "32"]):
    lane = fb.kernel.lane()
    total = x[lane] + fb.kernel.shuffle(x[lane], lane ^ 1, 32)
    parts = fb.kernel.shared(fb.float32, 32)
    parts[lane] = total
    fb.kernel.barrier()
    out[lane] = parts[31 - lane]


@fb.kernel
def a_condition_of_two_loops(x: fb.kernel.In[fb.float32, "n"], out: fb.kernel.Out[fb.float32, "n"]):
    i = fb.kernel.index()
    total = x[i]
    for j in range(2):
        inside = i + j < x.shape[0]
        if inside:
            total = total + x[i + j]
    for j in range(2):
        inside = i >= j
        if inside:
            total = total + x[i - j]
    out[i] = total


@fb.kernel.function
def parts_of(x):
    return x, (x[0], 2), x[1]


@fb.kernel
def some_parts(x: fb.kernel.In[fb.float32, "n"], out: fb.kernel.Out[fb.float32, "n"]):
    i = fb.kernel.index()
    _, _, second = parts_of(x)
    _, pair, _ = parts_of(x)
    first, _ = pair
    for _ in range(3):
        first = first + second
    out[i] = first


def test_what_is_assigned_to_an_underscore_may_be_anything() -> None:
    assert np.asarray(some_parts(fb.asarray([1.0, 2.0], device="numpy"))).tolist() == [7, 7]


@fb.kernel
def variables_of_unrolled_branches(x: fb.kernel.In[fb.float32, "n"], out: fb.kernel.Out[fb.float32, "n"]):
    i = fb.kernel.index()
    total = x[i]
    for j in fb.kernel.unrolled(3):
        if i > j:
            weight = 1.0 if total > 0.0 else 2.0
            if total > 3.0:
                weight = weight + 1.0
            total = total + weight
    out[i] = total


def test_a_variable_of_a_branch_of_an_unrolled_loop_is_another_one_each_time() -> None:
    found = variables_of_unrolled_branches(fb.asarray([1.0, -1.0, 4.0, 2.0], device="numpy"))
    assert np.asarray(found).tolist() == [1.0, 1.0, 8.0, 6.0]


def test_a_shared_array_may_be_made_after_a_shuffle_in_an_expression() -> None:
    x = np.arange(32, dtype=np.float32)
    found = shared_after_a_shuffle(fb.asarray(x, device="numpy"))
    assert np.array_equal(np.asarray(found), (x + x.reshape(16, 2)[:, ::-1].ravel())[::-1])


def test_a_variable_of_two_loops_may_be_a_condition() -> None:
    found = a_condition_of_two_loops(fb.asarray([1.0, 2.0, 4.0], device="numpy"))
    assert np.asarray(found).tolist() == [1 + 1 + 2 + 1, 2 + 2 + 4 + 2 + 1, 4 + 4 + 4 + 2]
