"""What a kernel uses from outside of it: a call computes with the values of now, its gradient with those of the call."""

from enum import IntEnum

import numpy as np
import pytest

import firebrick as fb

K = fb.kernel
DIVISOR = 0.0
WEIGHTS = (1.0, 2.0)
FUNCTION = fb.exp
DTYPE = fb.float32


class Level(IntEnum):
    HIGH = 3


@K.function
def doubled(v):
    return 2.0 * v


HELPER = doubled


def scaled_by(scale):
    """A helper function, and a function that changes the number that it multiplies by."""

    def change(v):
        nonlocal scale
        scale = v

    @K.function
    def scaled(v):
        return v * scale

    return scaled, change


scaled, change_scale = scaled_by(2.0)
scale = 2.0


@K
def divided(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i] = x[i] / DIVISOR


@K
def divided_by(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"], c: K.Constant[float]):
    i = K.index()
    out[i] = x[i] / c


@K
def weighted(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    total = 0.0
    for w in WEIGHTS:
        total += w * x[i]
    out[i] = total


@K
def of_function(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i] = FUNCTION(x[i])


@K
def of_helper(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i] = HELPER(x[i])


@K
def of_two(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i] = scaled(x[i]) + scale


@K
def truncated(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i] = fb.float32(fb.astype(x[i], DTYPE))


@K
def enumerated(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i] = x[i] * Level.HIGH


def test_a_zero_that_changes_its_sign_is_another_number(monkeypatch):
    x = fb.ones(2)
    monkeypatch.setitem(globals(), "DIVISOR", 0.0)
    assert divided(x).tolist() == [np.inf] * 2
    monkeypatch.setitem(globals(), "DIVISOR", -0.0)
    assert divided(x).tolist() == [-np.inf] * 2


def test_constants_that_are_0_of_either_sign_are_two():
    x = fb.ones(2)
    assert divided_by(x, 0.0).tolist() == [np.inf] * 2
    assert divided_by(x, -0.0).tolist() == [-np.inf] * 2
    both = fb.jit(lambda x: (divided_by(x, 0.0), divided_by(x, -0.0)))(x)
    assert [b.tolist() for b in both] == [[np.inf] * 2, [-np.inf] * 2]


def test_a_tuple_that_gets_longer_or_no_tuple_is_read_again(monkeypatch):
    x = fb.ones(2)
    monkeypatch.setitem(globals(), "WEIGHTS", (1.0, 2.0))
    assert weighted(x).tolist() == [3.0, 3.0]
    monkeypatch.setitem(globals(), "WEIGHTS", (1.0, 2.0, 3.0))
    assert weighted(x).tolist() == [6.0, 6.0]
    monkeypatch.setitem(globals(), "WEIGHTS", 5.0)
    with pytest.raises(fb.KernelCompileError, match="or is over a tuple"):
        weighted(x)


@pytest.mark.parametrize("jit", [lambda f: f, fb.jit], ids=["eager", "jit"])
def test_a_function_helper_or_dtype_that_is_replaced_counts(monkeypatch, jit):
    x = fb.asarray(np.array([1.5], np.float32))
    run = [jit(lambda x, k=k: k(x)) for k in (of_function, of_helper, truncated)]
    assert [f(x).item() for f in run] == [np.float32(np.exp(np.float32(1.5))), 3.0, 1.5]

    @K.function
    def tenfold(v):
        return 10.0 * v

    monkeypatch.setitem(globals(), "FUNCTION", fb.negative)
    monkeypatch.setitem(globals(), "HELPER", tenfold)
    monkeypatch.setitem(globals(), "DTYPE", fb.int32)
    assert [f(x).item() for f in run] == [-1.5, 15.0, 1.0]


def test_a_name_of_a_helper_function_is_not_the_kernels():
    x = fb.ones(1)
    change_scale(2.0)
    assert of_two(x).item() == 4.0
    change_scale(100.0)
    assert of_two(x).item() == 102.0
    assert fb.grad(lambda x: fb.sum(of_two(x)))(x).item() == 100.0


def test_a_gradient_is_of_the_function_that_was_called(monkeypatch):
    x = fb.asarray(np.array([1.0], np.float32))
    _, pull = fb.vjp(lambda x: fb.sum(of_function(x)), x)

    monkeypatch.setitem(globals(), "FUNCTION", fb.negative)
    (g,) = pull(fb.ones(()))
    assert abs(g.item() - np.e) < 1e-6


def test_kernels_whose_helpers_have_defaults_are_translated_once():
    @K.function
    def times(v, by=2.0):
        return v * by

    @K
    def kernel(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
        i = K.index()
        out[i] = times(x[i])

    x = fb.ones(1)
    params = {"statics": (), "constants": (), "captures": None}
    assert kernel.program([x.dtype], params) is kernel.program([x.dtype], params)


def test_a_member_of_an_enumeration_is_its_number():
    assert enumerated(fb.ones(1)).item() == 3.0
