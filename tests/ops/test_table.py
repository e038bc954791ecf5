"""The op table refuses incomplete entries, and the ruler that conformance measures with is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.op import KINDS, Nondifferentiable, Vjp
from firebrick.ops import OPS, IncompleteOpError, register
from firebrick.ops.accuracy import check_results, deviation, edge_deviation, run_reference, scale_of
from firebrick.ops.declare import per_result, same, unary_samples
from firebrick.testing.cases import samples_of

ENTRY: dict[str, Any] = {
    "operands": "x:floating",
    "infer": same,
    "vjp": lambda g, r: (g,),
    "residuals": (),
    "samples": unary_samples(),
    "cost": per_result(1),
    "bound": "memory",
    "fusion": "map",
    "tolerance": 1,
    "dtypes": ("float32",),
}


def declare(**changes: Any) -> Any:
    fields = {k: v for k, v in {**ENTRY, **changes}.items() if v is not ...}

    def twice_identity(x: Any) -> Any:
        """x."""
        return x

    return register(**fields)(twice_identity)


@pytest.mark.parametrize("name", ENTRY)
def test_an_entry_that_lacks_a_field_is_refused(name: str) -> None:
    with pytest.raises(IncompleteOpError, match=f"'twice_identity' cannot be registered: {name} is missing"):
        declare(**{name: ...})
    assert "twice_identity" not in OPS


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"fusion": "sideways"}, "fusion must be one of"),
        ({"bound": "time"}, "bound must be one of"),
        ({"scale": "big"}, "scale must be"),
        ({"residuals": ("everything",)}, "residuals may hold"),
        ({"tolerance": -1}, "tolerance must be"),
        ({"dtypes": ()}, "no dtype"),
        ({"vjp": None}, "Nondifferentiable with a reason"),
        ({"vjp": Nondifferentiable("")}, "Nondifferentiable with a reason"),
        ({"colour": "red"}, "colour is no field"),
    ],
)
def test_an_entry_with_a_meaningless_field_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(IncompleteOpError, match=match):
        declare(**changes)
    assert "twice_identity" not in OPS


def test_an_entry_without_docstring_or_with_a_taken_name_is_refused() -> None:
    with pytest.raises(IncompleteOpError, match="no docstring"):
        register(**ENTRY)(lambda x: x)

    def add(x: Any) -> Any:
        """x."""
        return x

    before = OPS["add"]
    with pytest.raises(IncompleteOpError, match="taken"):
        register(**ENTRY)(add)
    assert OPS["add"] is before


def test_a_complete_entry_is_a_working_op_with_a_gradient() -> None:
    op = declare()
    try:
        x = fb.asarray([1.0, 2.0])
        assert op(x).tolist() == [1.0, 2.0]
        assert fb.grad(lambda v: fb.sum(op(v) * v))(x).tolist() == [2.0, 4.0]
    finally:
        del OPS["twice_identity"]


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_entries_say_the_same_in_all_their_fields(op: Any) -> None:
    assert op.doc.endswith(".")
    assert all(o.kind in KINDS for o in op.operands)
    assert op.differentiable == callable(op.vjp)
    rng = np.random.default_rng(0)
    for dtype in op.dtypes:
        for sample in op.samples(rng, dtype):
            ins = [fb.core.aval.Aval(x.shape, fb.dtype(x.dtype)) for x in sample.inputs]
            inferred = op.infer(*ins, **sample.params)
            outs = inferred if isinstance(inferred, tuple) and not hasattr(inferred, "dtype") else (inferred,)
            for x, i in zip(sample.inputs, range(len(ins)), strict=True):
                assert fb.dtype(x.dtype).kind in KINDS[op.operand(i).kind]
            if op.name != "to_device":
                got = run_reference(op, sample.inputs, sample.params)
                assert [g.shape for g in got] == [o.shape for o in outs]
            cost = op.cost(ins, outs, sample.params)
            assert cost.flops >= 0
            assert cost.bytes >= 0


@pytest.mark.parametrize("op", [op for op in OPS.values() if op.decompose is not None], ids=lambda op: op.name)
def test_a_decomposition_is_as_accurate_as_a_kernel_has_to_be(op: Any) -> None:
    """On the engine of the references, whatever other engines have kernels for."""
    for sample in samples_of(op, "float32" if "float32" in op.dtypes else op.dtypes[0], 0):
        with fb.use_device("numpy"):
            made = op.decompose(*map(fb.asarray, sample.inputs), **sample.params)
        results = tuple(t.numpy() for t in (made if isinstance(made, tuple) else (made,)))
        found = check_results(
            op, sample.inputs, sample.params, results, run_reference(op, sample.inputs, sample.params), sample.edges
        )
        assert found.ok, (sample.name, found)


@pytest.mark.parametrize("name", ["attention", "attention_gradient"])
def test_an_infinite_score_makes_all_weights_of_its_row_nan_in_a_decomposition_too(name: str) -> None:
    q, k, v = (np.abs(np.random.default_rng(s).normal(size=(2, 3, 4))).astype(np.float32) for s in range(3))
    k[0, 1, 0], q[0, 2] = np.inf, -q[0, 2]  # the first two queries see +inf, the third -inf
    inputs = (*((v,) if name == "attention_gradient" else ()), q, k, v, np.asarray(True))
    params = {"scale": 0.5, "causal": False}
    want = run_reference(OPS[name], inputs, params)
    made = OPS[name].decompose(*(fb.asarray(x, device="numpy") for x in inputs), **params)
    got = tuple(t.numpy() for t in (made if isinstance(made, tuple) else (made,)))
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))
        assert np.isnan(theirs[0]).any()
        assert not np.isnan(theirs[1]).any()
    assert check_results(OPS[name], inputs, params, got, want).ok


# rules that compute all cotangents at once, or whose cotangents are the result's own or a few cheap operations on it
TOGETHER = {
    "add", "attention", "attention_gradient", "clip", "complex", "concat", "index_add", "maximum", "minimum", "pinv",
    "remainder", "scatter", "scatter_add", "scatter_reduce", "slice_update", "standardize", "standardize_gradient", "subtract",
}  # fmt: skip


def cotangents(op: Any, sample: Any, needs: tuple[bool, ...]) -> tuple[Any, ...]:
    """What a gradient rule makes of ones."""
    inputs = tuple(fb.asarray(x, device="numpy") for x in sample.inputs)
    outputs = op(*inputs, **sample.params)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    given, none = (True,) * len(outputs), (None,) * len(inputs)
    rule = Vjp(inputs, outputs, tuple(t.aval for t in inputs), needs, sample.params, given, none, False)
    ones = tuple(map(fb.ones_like, outputs))
    return tuple(op.vjp(ones[0] if len(ones) == 1 else ones, rule))


@pytest.mark.parametrize(
    "op", [op for op in OPS.values() if op.differentiable and len(op.operands) > 1], ids=lambda op: op.name
)
def test_a_gradient_rule_computes_no_cotangent_that_nobody_wants(op: Any) -> None:
    dtype = "float32" if "float32" in op.dtypes else op.dtypes[0]
    for sample in [s for s in samples_of(op, dtype, 0) if sum(np.size(x) for x in s.inputs) < 100][:7]:
        n = len(sample.inputs)
        every = cotangents(op, sample, (True,) * n)
        wanted = [i for i, g in enumerate(every) if g is not None]
        for i in wanted:
            alone = cotangents(op, sample, tuple(j == i for j in range(n)))
            np.testing.assert_array_equal(alone[i].numpy(), every[i].numpy())
            unwanted = [j for j, g in enumerate(alone) if g is not None and j != i]
            # the quotient's first cotangent is a step towards its second
            assert not unwanted or op.name in TOGETHER or (op.name == "divide" and unwanted == wanted[:1])


ONE_STEP = ("abs", "add", "clip", "exp", "maximum", "minimum", "multiply", "negative", "relu", "subtract", "where")


@pytest.mark.parametrize("name", ONE_STEP)
def test_a_gradient_rule_of_one_operation_casts_nothing_in_half_precision(name: str) -> None:
    sample = samples_of(OPS[name], "float16", 0)[0]
    inputs = [fb.asarray(x, device="numpy") for x in sample.inputs]
    whole = max(x.shape for x in inputs)  # the sum over what was broadcast would be a second operation
    y = OPS[name](*(x.require_grad() if x.dtype is fb.float16 and x.shape == whole else x for x in inputs), **sample.params)
    with fb.profile("numpy") as report:
        fb.backward(y, fb.ones_like(y.detach()))
    assert "cast" not in {op for _, op in report.rows}


# units of precision that kernels may be off; a larger one here is a decision, with its reason in the entry
TOLERANCES = {
    0: (
        "abs all any argmax argmin bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift "
        "bitwise_xor broadcast_to cast ceil clip complex concat conj copysign cumulative_max cumulative_min equal flip "
        "floor gather greater greater_equal imag isfinite isinf isnan less less_equal logical_and logical_not "
        "logical_or logical_xor max max_pool min negative nextafter not_equal pad permute random_bits random_uniform "
        "ravel_index real relu reshape round scatter searchsorted sign slice slice_update sort sort_values split take "
        "to_device top_k trunc where"
    ),
    1: "add divide floor_divide maximum minimum remainder subtract",
    2: "cholesky cos cumulative_prod det exp hypot log log10 log1p log2 logaddexp prod scatter_reduce sin slogdet sqrt",
    3: "acos asin atan atan2 cosh expm1 fft irfft rfft sinh tanh",
    4: "acosh asinh atanh cumulative_logsumexp erf erfinv gelu gelu_gradient multiply pow sigmoid solve_triangular tan",
    6: "expm i0 i1 qr solve",
    8: (
        "avg_pool avg_pool_input cumulative_sum digamma index_add lgamma linear_recurrence lu matmul max_pool_gradient mean "
        "pinv scatter_add softmax sum"
    ),
    16: "attention attention_gradient conv conv_input conv_weight eig eigh log_softmax polygamma rms_norm svd",
    64: "gamma_path",
    32: "layer_norm standardize standardize_gradient",
}
# of complex numbers, where it is another one
OF_COMPLEX = {
    2: "abs",
    4: "cos divide exp log log10 log1p log2 sin sqrt",
    6: "acos asin atan cosh expm1 sinh tanh",
    8: "acosh asinh atanh tan",
}


def test_a_tolerance_is_changed_on_purpose_only() -> None:
    assert {op.name: op.tolerance for op in OPS.values()} == {n: k for k, names in TOLERANCES.items() for n in names.split()}
    other = {op.name: op.complex_tolerance for op in OPS.values() if op.complex_tolerance != op.tolerance}
    assert other == {n: k for k, names in OF_COMPLEX.items() for n in names.split()}


# the ruler


def test_deviation_is_measured_in_units_of_precision() -> None:
    want = np.asarray([1.0, 2.0, 100.0])
    got = want.astype(np.float32)
    got[2] = np.nextafter(np.nextafter(np.float32(100), np.float32(200)), np.float32(200))
    d = deviation(got, want, 1.0)
    assert d.index == (2,)
    assert 1.0 < d.units < 2.0
    assert not d.ok
    assert deviation(got, want, 2.0).ok
    assert "got 100.00001" in str(d)


@pytest.mark.parametrize(
    ("got", "want", "ok"),
    [
        ([np.nan], [np.nan], True),
        ([np.nan], [1.0], False),
        ([1.0], [np.nan], False),
        ([np.inf], [np.inf], True),
        ([-np.inf], [np.inf], False),
        ([np.inf], [3e38], False),
        ([np.inf], [1e39], True),
        ([0.0], [-0.0], True),
        ([0.0], [1e-40], False),
        ([0.0], [1.0], False),
        ([1e-46], [0.0], True),
        ([1e-30], [0.0], False),
    ],
)
def test_nan_infinity_and_zero_are_told_apart(got: list[float], want: list[float], ok: bool) -> None:
    assert deviation(np.asarray(got, np.float32), np.asarray(want), 2.0).ok is ok


def test_a_denormal_result_may_be_0_or_the_smallest_normal_number_where_a_device_flushes() -> None:
    """And nothing else may differ: not a normal result, nor the smallest one of the other sign, nor float16."""
    tiny = float(np.finfo(np.float32).tiny)

    def ok(got: Any, want: Any, dtype: Any = np.float32, name: str = "exp") -> bool:
        x, results = (np.zeros(1, dtype),), (np.asarray([got]).astype(dtype),)
        passes = [check_results(OPS[name], x, {}, results, (np.asarray([want]),), flushes=f).ok for f in (True, False)]
        assert passes[1] <= passes[0]
        return passes[0]

    for want in (1e-40, -1e-40, 0.999 * tiny):
        assert ok(0.0, want)
        assert ok(-0.0, want)
        assert ok(np.copysign(tiny, want), want)
        assert ok(want, want)
        assert not ok(-np.copysign(tiny, want), want)
        assert not ok(2 * want if abs(want) < 1e-39 else 0.3 * want, want)
        assert ok(complex(0.0, 1.0), complex(want, 1.0), np.complex64)
        assert not ok(complex(0.0, 0.0), complex(want, tiny), np.complex64)
        assert ok(0.0, want, fb.bfloat16.np)
    for want in (tiny, 1.5 * tiny, -tiny, 1.0):
        assert not ok(0.0, want)
    assert not ok(tiny, 0.0)
    assert not ok(0.0, 3e-5, np.float16), "its denormal numbers are normal ones of float32"
    assert not ok(0.0, 1e-310, np.float64)


def test_errors_of_running_products_grow_with_the_root_of_the_number_of_factors() -> None:
    op, x = OPS["cumulative_prod"], np.asarray([2.0, -3.0, 0.5, 2.0])
    for reverse, want in ((False, [2.0, 6.0, 3.0, 6.0]), (True, [6.0, 3.0, 1.0, 2.0])):
        found = scale_of(op, (x,), {"axis": 0, "reverse": reverse}, x)
        assert found is not None
        assert found.tolist() == [3.0 * w for w in want]


@pytest.mark.parametrize(
    ("got", "want", "ok"),
    [
        ([0.0], [-0.0], False),
        ([-0.0], [-0.0], True),
        ([1.4e-45], [-0.0], True),  # no zero, and near enough
        ([complex(np.inf, 2.0)], [complex(np.inf, 2.0000001)], True),
        ([complex(np.inf, 2.0)], [complex(np.inf, 2.1)], False),
        ([complex(np.inf, np.nan)], [complex(np.inf, 2.0)], False),
        ([complex(np.nan, 2.0)], [complex(2.0, np.nan)], False),
        ([complex(np.nan, -0.0)], [complex(np.nan, 0.0)], False),
        ([complex(1.0, 1e-7)], [complex(1.0, 0.0)], True),
        ([complex(1.0, -0.0)], [complex(1.0, 0.0)], False),
        ([complex(1.0, 1e-5)], [complex(1.0, 0.0)], False),
        ([complex(np.inf, 1.0)], [complex(1e300, 1.0)], True),  # the wide result overflows where it is rounded
        ([complex(3e38, 1.0)], [complex(1e300, 1.0)], False),
    ],
)
def test_at_edges_signs_of_zeros_and_each_part_of_an_infinity_count(got: list[Any], want: list[Any], ok: bool) -> None:
    narrow = np.complex64 if isinstance(want[0], complex) else np.float32
    assert edge_deviation(np.asarray(got).astype(narrow), np.asarray(want), 2.0).ok is ok


def test_exact_dtypes_must_be_equal() -> None:
    assert not deviation(np.asarray([1, 2]), np.asarray([1, 3]), 100.0).ok
    assert not deviation(np.asarray([True]), np.asarray([False]), 100.0).ok
    assert deviation(np.asarray([2**62 + 1]), np.asarray([2**62 + 1]), 0.0).ok
    assert not deviation(np.asarray([2**62 + 1]), np.asarray([2**62]), 100.0).ok
    assert not deviation(np.zeros((2, 1)), np.zeros((1, 2)), 1.0).ok


def test_of_several_results_the_first_that_is_wrong_is_reported_or_else_the_worst() -> None:
    one = np.asarray([1.0])
    near, far, wrong = (np.asarray([1 + n * np.finfo(np.float32).eps], np.float32) for n in (1, 100, 1000))
    x = (one.astype(np.float32),)

    def reported(*results: np.ndarray) -> Any:
        return check_results(OPS["exp"], x, {}, results, (one,) * len(results)).got

    assert OPS["exp"].tolerance < 100
    assert reported(x[0], near, x[0]) == near[0]
    assert reported(near, far, wrong, x[0]) == far[0]


def test_errors_of_complex_numbers_are_moduli_and_may_be_those_of_several_operations() -> None:
    want = np.asarray([1e4 + 1e-4j])
    step = np.finfo(np.float32).eps * 1e4
    got = (want + 3j * step).astype(np.complex64)
    assert 2.5 < deviation(got, want, 4.0).units < 3.5, "the small part's error is relative to the modulus"
    op = OPS["divide"]
    assert op.complex_tolerance == 4 * op.tolerance
    z = (np.asarray([1e4 + 0j], np.complex64), np.asarray([1 + 0j], np.complex64))
    assert check_results(op, z, {}, ((z[0] + np.complex64(3j * step)),), (z[0].astype(np.complex128),)).ok
    assert not check_results(op, z, {}, ((z[0] + np.complex64(6j * step)),), (z[0].astype(np.complex128),)).ok


def test_a_finite_part_beside_an_infinite_one_may_be_rounded() -> None:
    want, step = np.asarray([complex(np.inf, 2.0)]), 2.0 * np.finfo(np.float32).eps
    for shift, fine in ((0.0, True), (3 * step, True), (6 * step, False), (np.inf, False), (np.nan, False)):
        assert deviation(np.asarray([complex(np.inf, 2.0 + shift)], np.complex64), want, 4.0).ok is fine
        assert not deviation(np.asarray([complex(-np.inf, 2.0 + shift)], np.complex64), want, 4.0).ok


def test_errors_of_sums_are_relative_to_what_was_summed() -> None:
    op = OPS["sum"]
    x = np.asarray([1e8, 1.0, -1e8], np.float32)
    params = {"axes": (0,), "keepdims": False}
    want = run_reference(op, (x,), params)
    assert check_results(op, (x,), params, (np.asarray(0.0, np.float32),), want).ok, "cancellation is no error of the sum"
    assert not check_results(op, (x,), params, (np.asarray(300.0, np.float32),), want).ok


@pytest.mark.parametrize("shape", [(2**17, 3), (3, 2**17)])
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_long_sums_keep_their_precision_along_every_axis(name: str, shape: tuple[int, int], device: str) -> None:
    x = np.full(shape, 0.1, np.float32)
    axis = int(np.argmax(shape))
    for t in (fb.asarray(x, device=device), fb.asarray(np.ascontiguousarray(x.T), device=device).T):
        got = getattr(fb, name)(t, axis=axis).numpy()
        want = getattr(np, name)(x.astype(np.float64), axis=axis)
        np.testing.assert_allclose(got, want, rtol=8 * np.finfo(np.float32).eps)


# edges are defined (DESIGN §4.9)


@pytest.mark.parametrize(
    ("name", "a", "b", "want"),
    [
        ("floor_divide", [7, -7, 0, -128], [0, 0, 0, -1], [0, 0, 0, -128]),
        ("remainder", [7, -7, 0], [0, 0, 0], [0, 0, 0]),
        ("remainder", [7, -7, 7, -7], [3, 3, -3, -3], [1, 2, -2, -1]),
        ("pow", [2, -2, 1, -1, 0, 5], [-1, -3, -5, -5, -1, 0], [0, 0, 1, -1, 0, 1]),
        ("pow", [2, 3], [7, 5], [-128, -13]),
    ],
)
def test_edges_of_integer_arithmetic_are_the_same_everywhere(
    name: str, a: list[int], b: list[int], want: list[int], device: str
) -> None:
    x, y = (fb.asarray(np.asarray(v, np.int8), device=device) for v in (a, b))
    assert getattr(fb, name)(x, y).tolist() == want


def test_nan_goes_through_extremes(device: str) -> None:
    x = fb.asarray([1.0, float("nan"), 3.0], device=device)
    assert np.isnan(fb.max(x).item())
    assert np.isnan(fb.min(x).item())
    assert np.isnan(fb.maximum(x, 2.0).numpy()).tolist() == [False, True, False]
    assert fb.argmax(x).item() == 1
    assert fb.argmin(x).item() == 1
    assert np.isnan(fb.clip(x, 0.0, 1.0).numpy()).tolist() == [False, True, False]
    assert fb.sign(x).numpy()[[0, 2]].tolist() == [1.0, 1.0]
