"""Checks of indices that may not be left out: the conditions around them prove nothing, since arithmetic wraps around."""

import pytest

import firebrick as fb

K = fb.kernel


@K(grid="n")
def long_steps(x: K.In[fb.float32, "n"], stop: int, out: K.Out[fb.float32, "n"]):
    i = K.index()
    for k in range(0, stop, 4647714815446351872):  # 2**62 + 2**55
        if 2 * k < x.shape[0]:
            out[i] = x[2 * k]


@K(grid="n")
def long_steps_down(x: K.In[fb.float32, "n"], stop: int, out: K.Out[fb.float32, "n"]):
    i = K.index()
    for k in range(0, stop, -4647714815446351872):
        if x.shape[0] > -2 * k:
            out[i] = x[-2 * k]


@pytest.mark.parametrize(("kernel", "stop"), [(long_steps, 2**63 - 1), (long_steps_down, -(2**63))])
def test_a_counter_of_long_steps_is_not_small(kernel, stop):
    """Twice the counter of the second iteration wraps around, and is below the size."""
    with pytest.raises(fb.OutOfRangeError, match=str(2 * 4647714815446351872 - 2**64)):
        kernel(fb.ones(8), stop)
