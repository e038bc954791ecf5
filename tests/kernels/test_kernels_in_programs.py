"""Kernels in what users write around them: copies of a model that holds one, dead code of compiled programs, references in
NumPy that do other than they say."""

import copy
import pickle

import numpy as np
import pytest

import firebrick as fb

K = fb.kernel


@K.function
def doubled(v):
    return v * 2.0


@K(grid="n")
def picked(x: K.In[fb.float32, "n"], at: K.In[fb.int64, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i] = doubled(x[at[i]])


class Model(fb.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = picked

    def forward(self, x, at):
        return self.first(x, at)


def test_a_kernel_is_copied_and_pickled_as_a_function_is():
    for made in (picked, doubled):
        assert copy.copy(made) is made
        assert copy.deepcopy(made) is made
        assert pickle.loads(pickle.dumps(made)) is made
    model = copy.deepcopy(Model())
    assert model(fb.ones(2), fb.arange(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "program",
    [
        lambda x, at: (picked(x, at), x)[1],
        fb.grad(lambda x, at: fb.sum(picked(x, at))),
        fb.grad(fb.checkpoint(lambda x, at: fb.sum(picked(x, at)))),
        lambda x, at: fb.cond(x[0] > 0, lambda x: (picked(x, at), x)[1], lambda x: x, x) * 0.0,
    ],
    ids=["dead", "grad", "checkpoint", "branch"],
)
@pytest.mark.parametrize("jit", [lambda f: f, fb.jit], ids=["eager", "jit"])
def test_an_index_out_of_range_raises_though_the_result_is_not_used(program, jit):
    run = jit(program)
    run(fb.ones(3), fb.arange(3))
    with pytest.raises(fb.OutOfRangeError, match="axis 0 of x"):
        run(fb.ones(3), fb.asarray(np.array([0, 5, 1])))
