"""Kernels in what users write around them: copies of a model that holds one, dead code of compiled programs, references in
NumPy that do other than they say."""

import copy
import pickle

import numpy as np
import pytest

import firebrick as fb
from firebrick.testing import check_gradients, conformance

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


def declared(name, reference):
    return fb.op(
        name,
        infer=lambda x: x,
        reference=reference,
        vjp=lambda g, x: g,
        samples=lambda rng, dtype: [(rng.normal(size=3).astype(dtype),)],
        replace=True,
    )


@pytest.mark.parametrize(
    ("reference", "received"),
    [
        (lambda x: x[:2], r"float32\[2\]"),
        (lambda x: x[:, None], r"float32\[3,1\]"),
        (lambda x: np.float32(3), r"float32\[\]"),
        (lambda x: x.astype(np.float64), r"float64\[3\]"),
        (lambda x: x.astype(np.int32), r"int32\[3\]"),
        (lambda x: (x, x), "2 results"),
        (lambda x: None, "NoneType"),
    ],
)
@pytest.mark.parametrize("jit", [lambda f: f, fb.jit], ids=["eager", "jit"])
def test_a_reference_whose_result_is_not_what_the_shape_rule_says_is_an_error(reference, received, jit):
    made = declared("attacked_reference", reference)
    with pytest.raises(fb.ExecutionError, match=r"(?s)attacked_reference.*float32\[3\].*" + received):
        jit(lambda x: made(x) + 0.0 * x)(fb.ones(3))


@pytest.mark.parametrize("jit", [lambda f: f, fb.jit], ids=["eager", "jit"])
def test_a_reference_cannot_change_its_operands(jit):
    made = declared("attacked_operand", lambda x: np.negative(x, out=x))
    x = fb.ones(3)
    with pytest.raises(fb.ExecutionError, match=r"(?s)attacked_operand.*read-only"):
        jit(lambda x: made(x) * 1.0)(x)
    assert x.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("reference", [lambda x: x, lambda x: x[::-1], lambda x: np.broadcast_to(x[:1], x.shape)])
@pytest.mark.parametrize("jit", [lambda f: f, fb.jit], ids=["eager", "jit"])
def test_a_result_that_is_an_operand_shares_no_memory_with_it(reference, jit):
    made = declared("attacked_result", reference)
    x = fb.ones(3)
    y = jit(lambda x: made(x))(x)
    y[0] = 5.0
    assert y.tolist() == [5.0, 1.0, 1.0]
    assert x.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", [fb.float32, None])
def test_a_wrong_gradient_rule_of_a_kernel_in_float32_is_found(dtype):
    @K
    def square(x: K.In[dtype, "n"], out: K.Out["x", "n"]):
        i = K.index()
        out[i] = x[i] * x[i]

    def samples(rng, dtype):
        return [(rng.normal(size=n).astype(np.float32),) for n in (0, 1, 5)]

    fb.op("attacked_square", kernel=square, vjp=lambda g, x: g * x, samples=samples, replace=True)
    assert check_gradients(["attacked_square"]).failed_ops == {"attacked_square"}
    fb.op("attacked_square", kernel=square, vjp=lambda g, x: 2.0 * g * x, samples=samples, replace=True)
    for order in (1, 2):
        report = check_gradients(["attacked_square"], order=order)
        assert report.ok
        assert report.checked


@K(grid="n")
def counting(x: K.In[fb.int64, "n"], out: K.Out[fb.int64, "n"]):
    i = K.index()
    count = 0
    while count < x[i]:
        count += 1
    out[i] = count


def test_a_compiled_program_knows_the_limit_of_rounds_of_now():
    run, x = fb.jit(lambda x: counting(x)), fb.asarray(np.array([6]))
    with fb.config.scope(kernel_loop_limit=5), pytest.raises(fb.ExecutionError, match="at most 5 rounds"):
        run(x)
    assert run(x).tolist() == [6]
    with fb.config.scope(kernel_loop_limit=5), pytest.raises(fb.ExecutionError, match="at most 5 rounds"):
        run(x)


def test_an_array_of_a_dtype_that_kernels_do_not_have_is_an_error():
    @K
    def copied(x: K.In[None, "n"], out: K.Out["x", "n"]):
        i = K.index()
        out[i] = x[i]

    with pytest.raises(fb.DTypeError, match=r"complex64.*\n.*fb.real"):
        copied(fb.asarray(np.array([1j], np.complex64)))


def test_the_name_of_an_operation_of_graphs_is_taken():
    for name in ("detach", "constant", "fused", "cond"):
        with pytest.raises(fb.OperandError, match="an operation of Firebrick"):
            fb.op(name, infer=lambda x: x, reference=lambda x: 2.0 * x, samples=[(np.ones(3),)])


def test_a_kernel_in_float32_whose_rule_calls_kernels_passes_conformance():
    @K
    def running(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
        i = K.index()
        total = 0.0
        for k in range(i + 1):
            total += x[k]
        out[i] = total

    def samples(rng, dtype):
        return [(rng.normal(size=5).astype(np.float32),)]

    def right(g, x):
        return fb.flip(running(fb.flip(g)))

    fb.op("attacked_running", kernel=running, vjp=right, samples=samples, replace=True)
    assert conformance("cpu", ops=["attacked_running"]).ok
    assert check_gradients(["attacked_running"]).ok
    fb.op("attacked_running", kernel=running, vjp=lambda g, x: running(g), samples=samples, replace=True)
    assert not check_gradients(["attacked_running"]).ok


def test_an_operation_without_a_rule_passes_conformance():
    declared("attacked_reference", lambda x: 2.0 * x)
    fb.op(
        "attacked_reference",
        infer=lambda x: x,
        reference=lambda x: 2.0 * x,
        samples=lambda rng, dtype: [(rng.normal(size=3).astype(dtype),)],
        replace=True,
    )
    assert conformance("cpu", ops=["attacked_reference"]).ok
    assert not check_gradients(["attacked_reference"]).failed_ops


@K
def both_ways(x: K.In[None, "n"], y: K.In["x", "n"], p: K.Out["x", "n"], q: K.Out["x", "n"]):
    i = K.index()
    p[i] = x[i] * y[i]
    q[i] = x[x.shape[0] - 1 - i] + y[i]


def test_verify_runs_a_kernel_with_several_results_after_a_value_that_is_dead():
    x, y = fb.asarray([3.0, 1.0, 2.0]), fb.asarray([1.0, 2.0, 3.0])
    with fb.verify():
        assert fb.jit(lambda x, y: both_ways(fb.sort(x * y), y)[0])(x, y).tolist() == [2.0, 6.0, 18.0]
