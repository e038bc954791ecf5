"""Kernels as operations: compiled programs, what they depend on, verification, gradients, other engines."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.testing import conformance

K = fb.kernel
RNG = np.random.default_rng(0)


@K
def jacobi(u: K.In[fb.float32, "n, m"], out: K.Out[fb.float32, "n, m"]):
    i, j = K.index()
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1:
        out[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    else:
        out[i, j] = u[i, j]


@K
def softsign(x: K.In[None, "n"], slope: float, out: K.Out["x", "n"]):
    i = K.index()
    v = slope * x[i]
    out[i] = v / (1.0 + abs(v))


@K(grid="n")
def counted(x: K.In[fb.int64, "n"], counts: K.Out[fb.int64, "bins", 0], bins: int):
    K.atomic_add(counts, x[K.index()] % bins, 1)


@K
def raised(x: K.InOut[fb.float32, "n"], at: K.In[fb.int64, "n"]):
    i = K.index()
    x[i] += fb.float32(at[at[i]])


@K
def odd(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    if i % 2 == 1:
        out[i] = x[i]


FACTOR = 2.0


@K.function
def scaled(v):
    return v * FACTOR


@K
def by_factor(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i] = scaled(x[i]) + FACTOR


# compiled programs


def test_a_kernel_is_a_native_node_of_a_compiled_program() -> None:
    u = fb.asarray(RNG.normal(size=(300, 300)).astype(np.float32))
    program = fb.jit(lambda u: jacobi(jacobi(u * 2.0) + 1.0))
    assert np.array_equal(program(u).numpy(), jacobi(jacobi(u * 2.0) + 1.0).numpy())
    assert "outside of them: nothing" in program.explain(u)


def test_an_elementwise_kernel_is_fused_with_its_neighbours() -> None:
    x = fb.asarray(RNG.normal(size=7))
    program = fb.jit(lambda x: softsign(x + 1.0, 2.0) * 3.0)
    assert np.allclose(program(x).numpy(), (softsign(x + 1.0, 2.0) * 3.0).numpy(), rtol=1e-15)
    assert "kernel_softsign × 1" not in program.explain(x)
    assert "compiled kernels: 1 " in program.explain(x)


def test_a_kernel_of_two_indices_is_not_elementwise() -> None:
    assert jacobi.operation(fb.ones((3, 3)))[0].fusion == "opaque"
    assert softsign.operation(fb.ones(3), 2.0)[0].fusion == "map"


def test_results_with_first_values_and_changed_arrays_in_a_program() -> None:
    x = fb.asarray(np.arange(100) % 7)
    assert fb.jit(lambda x: counted(x * 1, 5) + 1)(x).tolist() == [30, 30, 15, 15, 15]
    at, y = fb.asarray(np.array([1, 2, 0])), fb.ones(3)
    program = fb.jit(lambda y, at: raised(raised(y, at) * 2.0, at))
    for _ in range(2):
        assert program(y, at).tolist() == raised(raised(y, at) * 2.0, at).tolist()
    assert y.tolist() == [1.0, 1.0, 1.0]
    assert fb.jit(odd)(fb.ones(5)).tolist() == [0.0, 1.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_an_index_out_of_range_is_named_with_its_value(device: str, compiled: bool) -> None:
    y, at = fb.ones(3, device=device), fb.asarray(np.array([1, 2, 9]), device=device)
    run = fb.jit(raised) if compiled else raised
    with pytest.raises(IndexError, match=r"raised: an index of axis 0 of at is at least 0 and below 3\nReceived: 9, at .*:\d+"):
        run(y, at)


def test_one_object_serves_all_sizes() -> None:
    from firebrick.backends.cpu.custom import code_of

    _, operands, params = jacobi.operation(fb.ones((3, 3)))
    first = code_of(jacobi.program([t.dtype for t in operands], params))
    for shape in ((0, 0), (1, 1), (7, 3), (64, 65)):
        assert jacobi(fb.ones(shape)).shape == shape
    assert code_of(jacobi.program([t.dtype for t in operands], params)) is first


# what a program depends on


def test_a_program_is_traced_again_when_a_number_outside_of_the_kernel_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    x, program = fb.ones(2), fb.jit(lambda x: by_factor(x))
    assert by_factor(x).tolist() == program(x).tolist() == [4.0, 4.0]
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert by_factor(x).tolist() == program(x).tolist() == [10.0, 10.0]
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert by_factor(x).tolist() == program(x).tolist() == [4.0, 4.0]


def test_numbers_of_one_name_in_a_kernel_and_its_function_are_two() -> None:
    def helper(factor: float) -> object:
        @K.function
        def times(v):
            return v * factor

        return times

    def made(times: object, factor: float) -> object:
        @K
        def both(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
            i = K.index()
            out[i] = times(x[i]) + factor

        return both

    kernel = made(helper(2.0), 10.0)
    program = fb.jit(lambda x: kernel(x))
    for _ in range(2):
        assert kernel(fb.ones(1)).item() == program(fb.ones(1)).item() == 12.0


def test_a_function_that_is_defined_again_is_called_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    x, program = fb.ones(2), fb.jit(lambda x: by_factor(x))
    assert by_factor(x).tolist() == program(x).tolist() == [4.0, 4.0]

    @K.function
    def other(v):
        return v - 1.0

    monkeypatch.setitem(globals(), "scaled", other)
    assert by_factor(x).tolist() == program(x).tolist() == [2.0, 2.0]


def test_numbers_from_outside_are_told_apart_by_type_and_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    @K
    def sign_of_zero(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
        i = K.index()
        out[i] = fb.copysign(x[i], FACTOR * 1.0)

    for factor, want in ((0.0, 1.0), (-0.0, -1.0), (0, 1.0), (-2, -1.0), (True, 1.0)):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        assert sign_of_zero(fb.ones(1)).item() == want


def test_kernels_of_one_name_are_not_confused() -> None:
    def made(beta: float) -> object:
        @K
        def same(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
            i = K.index()
            out[i] = x[i] * beta

        return same

    program = fb.jit(lambda kernel, x: kernel(x) + 0.0)
    assert [program(made(b), fb.ones(1)).item() for b in (2.0, 3.0, 2.0)] == [2.0, 3.0, 2.0]


def test_a_kernel_named_as_an_operation_is_not_taken_for_it() -> None:
    @K
    def exp(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
        i = K.index()
        out[i] = x[i] + 1.0

    for device in ("cpu", "numpy", "torch:cpu"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fb.FallbackWarning)
            assert exp(fb.ones(2, device=device)).tolist() == [2.0, 2.0]


# verification


@K
def racing(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    i = K.index()
    out[i // 2] = x[i]


@K(grid="1", group=64)
def without_barrier(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
    shared, lane = K.shared(fb.float32, 64), K.lane()
    shared[lane] = x[lane]
    out[lane] = shared[63 - lane]


@pytest.mark.parametrize(("kernel", "text"), [(racing, "which item"), (without_barrier, "put a Barrier between")])
def test_verify_finds_races(kernel: object, text: str) -> None:
    with fb.verify(), pytest.raises(fb.ExecutionError, match=text):
        kernel(fb.ones(64))


def test_a_barrier_in_a_loop_that_items_leave_is_refused_by_the_loop_as_it_was_written() -> None:
    @K(grid="1", group=64)
    def leaving(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
        lane, k = K.lane(), 0
        while k < 9:
            if x[lane] > 2.0:
                break
            K.barrier()
            k += 1
        out[lane] = x[lane]

    with pytest.raises(fb.KernelCompileError, match=r"one inside `while k < 9:` at .*test_kernel_operations.py:\d+, where"):
        leaving(fb.ones(64))


def test_verify_compares_kernels_with_the_interpreter() -> None:
    with fb.verify():
        jacobi(fb.ones((5, 5)))
        fb.jit(jacobi)(fb.ones((5, 5)))


def test_endless_loops_end_at_the_limit() -> None:
    @K
    def endless(out: K.Out[fb.int64, "n"], n: int):
        k = 0
        while k >= 0:
            k = k * 0
        out[K.index()] = k

    for device in ("cpu", "numpy"):
        with fb.config.scope(kernel_loop_limit=1000), pytest.raises(fb.ExecutionError, match=r"after at most 1,000 rounds"):
            endless(3, device=device)


def test_counted_loops_have_a_limit_of_rounds() -> None:
    @K
    def counted(out: K.Out[fb.int64, "n"], n: int, many: int):
        total = 0
        for k in range(many):
            total += k
        out[K.index()] = total

    for device in ("cpu", "numpy"):
        with pytest.raises(fb.ExecutionError, match=r"counted: .*at most 4,294,967,296 rounds|a loop has at most 4,294"):
            counted(3, 2**62, device=device)
        with fb.config.scope(kernel_loop_limit=5):
            assert counted(3, 5, device=device).tolist() == [10] * 3
            with pytest.raises(fb.ExecutionError, match="at most 5 rounds"):
                counted(3, 6, device=device)
            with pytest.raises(fb.ExecutionError, match="at most 5 rounds"):
                fb.jit(lambda x, device=device: x + counted(3, 6, device=device))(fb.ones(3, dtype=fb.int64, device=device))


# operations of one's own


@pytest.fixture
def cubed(op_table: None) -> Any:
    return fb.op(
        "cube_of_tests", infer=lambda x: x, reference=lambda x: x**3, vjp=lambda g, x: g * 3.0 * x * x,
        samples=lambda rng, dtype: [(rng.normal(size=s).astype(dtype),) for s in ((3,), (2, 2), ())],
    )  # fmt: skip


@pytest.fixture
def sloped(op_table: None) -> Any:
    return fb.op(
        "softsign_of_tests", kernel=softsign,
        samples=lambda rng, dtype: [(rng.normal(size=n).astype(dtype), 1.5) for n in (0, 1, 5)],
    )  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_declared_operations_pass_conformance(device: str, cubed: Any, sloped: Any) -> None:
    report = conformance(device, ops=["cube_of_tests", "softsign_of_tests"])
    assert not report.failures, str(report)


def test_declared_operations_have_gradients_of_any_order(cubed: Any, sloped: Any) -> None:
    x = fb.asarray(np.array([0.5, -1.5, 2.0]))
    fb.gradcheck(lambda x: fb.sum(cubed(sloped(x, 2.0))), (x,))
    fb.gradcheck(lambda x: fb.sum(fb.grad(lambda y: fb.sum(cubed(sloped(y, 2.0))))(x) * x), (x,))
    assert fb.jit(fb.grad(lambda x: fb.sum(cubed(x * 2.0))))(x).tolist() == (24.0 * x * x).tolist()


def test_a_gradient_through_a_checkpoint(cubed: Any) -> None:
    x = fb.asarray(np.array([0.5, -1.5]))
    direct, through = (fb.grad(lambda x, f=f: fb.sum(f(x)))(x) for f in (cubed, fb.checkpoint(cubed)))  # type: ignore[misc]
    assert direct.tolist() == through.tolist()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "add"}, "'add', an operation of Firebrick"),
        ({"name": "no name"}, "no identifier"),
        ({"name": "cube_of_tests"}, "declared already"),
        ({"samples": []}, "has samples, by which it is tested"),
        ({"reference": None}, "a kernel, or a reference in NumPy"),
        ({"infer": None}, "a shape rule"),
        ({"samples": [np.ones(2)]}, "a sample of refused is a tuple"),
    ],
)
def test_an_incomplete_declaration_is_refused(fields: dict[str, object], text: str, cubed: Any) -> None:
    whole = {"name": "refused", "infer": lambda x: x, "reference": lambda x: x, "samples": [(np.ones(2),)]} | fields
    with pytest.raises(fb.OperandError, match=text):
        fb.op(whole.pop("name"), **whole)
    assert "refused" not in fb.ops.OPS


def test_a_wrong_gradient_rule_is_an_error() -> None:
    wrong = fb.op(
        "wrong_rule", infer=lambda x: x, reference=lambda x: x, vjp=lambda g, x: (g, g), samples=[(np.ones(2),)], replace=True
    )
    with pytest.raises(fb.GradientError, match="for each of 1 operand"):
        fb.grad(lambda x: fb.sum(wrong(x)))(fb.ones(2))


def test_a_kernel_with_a_loop_has_no_gradient_and_says_why() -> None:
    @K
    def running(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
        i = K.index()
        total = 0.0
        for k in range(i + 1):
            total += x[k]
        out[i] = total

    with pytest.raises(fb.GradientError):
        fb.grad(lambda x: fb.sum(running(x)))(fb.ones(3))


def test_a_kernel_with_a_loop_has_the_gradient_of_its_rule() -> None:
    @K
    def running(x: K.In[fb.float64, "n"], decay: float, out: K.Out[fb.float64, "n"]):
        i = K.index()
        total = 0.0
        for k in range(i + 1):
            total = total * decay + x[k]
        out[i] = total

    summed = fb.op(
        "decayed_sum_of_tests", kernel=running, vjp=lambda g, x, decay: (fb.flip(running(fb.flip(g), decay)), None),
        samples=[(np.ones(3), 0.5)],
    )  # fmt: skip
    fb.gradcheck(lambda x: summed(x, 0.9), (fb.asarray(np.linspace(0.0, 1.0, 6)),))


def test_a_gradient_through_an_operation_without_a_rule_is_an_error() -> None:
    plain = fb.op("plain_of_tests", infer=lambda x: x, reference=lambda x: x + 1.0, samples=[(np.ones(2),)])
    with pytest.raises(fb.GradientError, match="declared without vjp"):
        fb.grad(lambda x: fb.sum(plain(x)))(fb.ones(2))
    assert plain(fb.ones(2)).tolist() == [2.0, 2.0]


def test_a_rule_without_the_cotangent_that_is_asked_for_is_an_error() -> None:
    rules = {"infer": lambda x, y: x, "reference": lambda x, y: x * y, "vjp": lambda g, x, y: (g * y, None)}
    product = fb.op("product_of_tests", samples=[(np.ones(2), np.ones(2))], **rules)
    assert fb.grad(lambda x: fb.sum(product(x, fb.ones(2))))(fb.ones(2)).tolist() == [1.0, 1.0]
    with pytest.raises(fb.GradientError, match="None for operand 1"):
        fb.grad(lambda y: fb.sum(product(fb.ones(2), y)))(fb.ones(2))
