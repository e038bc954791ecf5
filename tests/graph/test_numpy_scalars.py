"""NumPy's scalars count beside tensors as the Python numbers of their value: eagerly, captured, and as arguments under jit."""

from __future__ import annotations

import operator

import ml_dtypes
import numpy as np
import pytest

import firebrick as fb

pytestmark = pytest.mark.usefixtures("nothing_left")

ENGINES = ["cpu", "numpy", "torch:cpu"]
DTYPES = ["bool", "uint8", "int64", "float16", "float32", "complex64"]
SCALARS = [
    np.bool_(True), np.int8(-1), np.int64(3), np.int64(300), np.uint64(2**63), np.float16(2.5), np.float32(0.1),
    np.float64(0.1), np.float64(-0.0), np.float64("nan"), np.float64(1e300), np.longdouble(1) / 3, np.complex64(1 - 2j),
    np.complex128(3j), ml_dtypes.bfloat16(1.5), ml_dtypes.float8_e5m2(0.5),
]  # fmt: skip
BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "<": operator.lt, ">=": operator.ge, "==": operator.eq, "&": operator.and_, "<<": operator.lshift,
    "@": operator.matmul, "maximum": fb.maximum, "atan2": fb.atan2, "logical_or": fb.logical_or,
}  # fmt: skip
OTHERS = {
    "+=": operator.iadd,
    "where": lambda x, n: fb.where(x == x, n, x),
    "clip": lambda x, n: fb.clip(x, n, n),
    "full": lambda x, n: fb.full((2,), n, device=x.device),
    "full of a dtype": lambda x, n: fb.full((2,), n, dtype=x.dtype, device=x.device),
    "full_like": lambda x, n: fb.full_like(x, n),
    "setitem": lambda x, n: operator.setitem(x, 0, n) or x,
    "masked_fill": lambda x, n: fb.masked_fill(x, x == x, n),
    "scatter": lambda x, n: fb.scatter(x, fb.asarray([0], device=x.device), n),
    "pad": lambda x, n: fb.pad(x, 1, value=n),
    "quantile": lambda x, n: fb.quantile(x, n),
    "unique": lambda x, n: fb.unique_values(x, size=3, fill_value=n),
    "result_type": lambda x, n: fb.zeros(1, dtype=fb.result_type(x, n)),
    "vector_norm": lambda x, n: fb.linalg.vector_norm(x, ord=n),
}


def outcome(run, x, n):
    """What a call gives, as bits and dtype, or the error's class."""
    try:
        made = run(x, n)
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as e:
        return type(e).__name__
    return made.dtype.name, made.shape, made.numpy().tobytes()


def python(scalar):
    """The Python number of a NumPy scalar's value."""
    kinds = {bool: np.bool_, int: np.integer, complex: np.complexfloating}
    return next((kind for kind, numpy in kinds.items() if isinstance(scalar, numpy)), float)(scalar)


def values(dtype, device):
    return fb.asarray([0, 1], dtype=fb.int64, device=device).astype(fb.dtype(dtype))


@pytest.mark.turns
@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("name", [*BINARY, *OTHERS])
def test_a_numpy_scalar_beside_a_tensor_gives_the_bits_or_error_of_the_python_number(name, device) -> None:
    forms = [BINARY[name], lambda x, n: BINARY[name](n, x)] if name in BINARY else [OTHERS[name]]
    for form in forms:
        for dtype in DTYPES:
            for n in SCALARS:
                a, b = (outcome(form, values(dtype, device), v) for v in (n, python(n)))
                assert a == b, f"{name} of {dtype} and {n!r}: {a}, and {b} with {python(n)!r}"


@pytest.mark.parametrize("name", [*BINARY, *OTHERS, "asarray", "asarray of a dtype", "asarray of a list"])
@pytest.mark.filterwarnings("ignore::firebrick.RecompileWarning")
def test_a_numpy_scalar_among_the_arguments_of_a_compiled_function_gives_eagers_bits_or_error(name) -> None:
    conversions = {
        "asarray": lambda x, n: fb.asarray(n, device=x.device),
        "asarray of a dtype": lambda x, n: fb.asarray(n, dtype=x.dtype, device=x.device),
        "asarray of a list": lambda x, n: fb.asarray([[n, 2.0], [1, n]], device=x.device),
    }
    form = (BINARY | OTHERS | conversions)[name]
    forms = [form, lambda x, n: form(n, x)] if name in BINARY else [form]
    for form in forms:
        compiled = fb.jit(form)
        for dtype in ("uint8", "float32", "complex64"):
            for n in SCALARS:
                a, b = outcome(compiled, values(dtype, "cpu"), n), outcome(form, values(dtype, "cpu"), n)
                if a == "DataDependentError":  # what needs the number itself, with the remedy
                    assert name in ("quantile", "vector_norm", "unique", "result_type")
                    continue
                assert a == b, f"{name} of {dtype} and {n!r}: {a} under jit, {b} in eager"


@pytest.mark.parametrize("device", ENGINES)
def test_a_float32_tensor_over_numpys_square_root_stays_float32(device) -> None:
    x = fb.ones((2, 2), device=device)
    for run in (lambda x: x / np.sqrt(64), fb.jit(lambda x: x / np.sqrt(64)), lambda x: x * np.pi / np.float64(8 * np.pi)):
        y = run(x)
        assert y.dtype is fb.float32
        assert y.tolist() == [[0.125, 0.125], [0.125, 0.125]]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble, np.int16, np.int64])
def test_another_value_of_a_numpy_scalar_needs_no_other_graph(kind) -> None:
    f = fb.jit(lambda x, n: (x * n, n))
    for v in (1, 2, 3):
        y, n = f(fb.ones(2), kind(v))
        assert y.tolist() == [v, v]
        assert type(n) is kind
        assert n == kind(v)
    assert f.traces == 1


NARROW = [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn]


@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("kind", NARROW)
def test_a_scalar_of_an_extension_type_computes_beside_a_traced_one_as_it_does_eagerly(kind, device) -> None:
    """Its C code trusts ``__class__``: a traced number that showed its class would be read as its memory."""
    x = fb.asarray([1.0], device=device)
    for op in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow):
        for g in (lambda x, s, op=op: x * op(kind(2), s), lambda x, s, op=op: x * op(s, kind(2))):
            for given in (kind(1.5), np.float32(1.5), 1.5):
                assert fb.jit(g)(x, given).tolist() == g(x, given).tolist()
    less = fb.jit(lambda x, s: x if kind(2) < s else -x)
    assert [less(x, kind(v)).tolist() for v in (1, 3)] == [[-1.0], [1.0]]


def test_a_traced_number_is_never_shown_as_an_extension_type() -> None:
    """Arithmetic that would give one raises with the way out, and with that way it gives what it gives eagerly."""

    def g(x, n):
        return x * (ml_dtypes.bfloat16(2) * n)

    with pytest.raises(fb.DataDependentError, match=r"ml_dtypes\.bfloat16 needs the number n[\s\S]*static_argnames='n'"):
        fb.jit(g)(fb.ones(1), 3)
    assert fb.jit(g, static_argnames="n")(fb.ones(1), 3).tolist() == g(fb.ones(1), 3).tolist() == [6.0]


def test_a_subclass_of_a_numpy_scalar_keeps_its_class_and_its_value() -> None:
    class Metres(np.float64):
        pass

    f = fb.jit(lambda x, n: x * (n * 2.0) if isinstance(n, Metres) else -x)
    assert [f(fb.ones(1), Metres(v)).tolist() for v in (1.5, 2.5)] == [[3.0], [5.0]]


@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("make", [lambda s: s, lambda s: [s, s], lambda s: [[s], [s]]], ids=["scalar", "list", "nested list"])
def test_an_integer_outside_the_range_of_its_dtype_is_refused_as_a_number_and_in_a_list(make, device) -> None:
    """asarray(np.int64(300), dtype=uint8) was 44, and so was a list of traced numbers."""

    def g(s):
        return fb.asarray(make(s), dtype=fb.uint8, device=device)

    for run in (g, fb.jit(g)):
        for kind in (int, np.int64, np.int16):
            assert (run(kind(200)).numpy() == 200).all()
            for outside in (300, -1):
                with pytest.raises(fb.DTypeError, match="uint8"):
                    run(kind(outside))
        with pytest.raises(fb.DTypeError, match="uint8"):
            run(np.uint64(2**63))


@pytest.mark.parametrize("kind", NARROW)
def test_a_list_of_scalars_of_an_extension_type_keeps_their_dtype(kind) -> None:
    for run in (lambda s: fb.asarray([s, s]), fb.jit(lambda s: fb.asarray([s, s]))):
        made = run(kind(1.5))
        assert made.dtype.name == kind.__name__
        assert fb.astype(made, fb.float32).tolist() == [1.5, 1.5]


ARITHMETIC = {
    "n * 3": lambda n: n * 3, "0.1 + n": lambda n: 0.1 + n, "n / 7": lambda n: n / 7, "n * n": lambda n: n * n,
    "-n": lambda n: -n, "abs": abs, "n // 2": lambda n: n // 2, "n ** 3": lambda n: n**3,
    "float32 + n": lambda n: np.float32(1) + n, "n - int8": lambda n: n - np.int8(3),
}  # fmt: skip


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_numpy_scalars_among_themselves_are_computed_by_numpy_at_each_call(name) -> None:
    """float32(0.1) · 3 is rounded to float32, and int8(100) · 3 wraps, under jit as in eager."""

    def g(x, n):
        made = ARITHMETIC[name](n)
        return x * made, made

    f = fb.jit(g)
    x = fb.ones(2, dtype=fb.float64)
    for n in (np.float32(0.1), np.float32(0.7), np.float64(0.1), np.float16(0.1), np.int8(100), np.int64(7)):
        (y, made), (want, plain) = f(x, n), g(x, n)
        assert y.tolist() == want.tolist()
        assert type(made) is type(plain)
        assert made == plain


FUNCTIONS = {
    "sqrt": np.sqrt, "exp of a half": lambda n: np.exp(n / 2), "power": lambda n: np.power(n, 3),
    "by float64": lambda n: np.float64(2) * n,
    "into float32": lambda n: np.float32(7) / n, "maximum": lambda n: np.maximum(n, 3), "two": lambda n: np.hypot(n, n + 1),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_functions_of_numpy_of_a_number_are_computed_at_each_call(name) -> None:
    """NumPy said that a Weak has no functions, and nothing of static_argnames."""

    def g(x, n):
        made = FUNCTIONS[name](n)
        return x / made, made

    f = fb.jit(g)
    for n in (4.0, 2.5, 64, np.float32(5.0), np.float64(0.3), np.int16(9)):
        (y, made), (want, plain) = f(fb.ones(2), n), g(fb.ones(2), n)
        assert y.dtype is fb.float32
        assert y.tolist() == want.tolist()
        assert type(made) is type(plain)
        assert made == plain
    assert f.traces == 5


@pytest.mark.parametrize(
    "use",
    [
        lambda n: np.float64(2) < n, lambda n: np.isfinite(n), lambda n: np.modf(n), lambda n: np.ones(2) * n,
        lambda n: np.add.reduce([n, n]), lambda n: np.sqrt(n, dtype=np.float32), lambda n: np.equal(n, n),
    ],
)  # fmt: skip
def test_what_numpy_cannot_compute_later_names_the_argument_and_the_remedy(use) -> None:
    for n in (2.0, np.float32(2.0)):
        with pytest.raises(fb.DataDependentError, match=r"(?s)n, a (Python|NumPy) float.*static_argnames='n'"):
            fb.jit(lambda x, n: (x, use(n)))(fb.ones(2), n)
    with pytest.raises((TypeError, ValueError)):
        fb.jit(lambda x, n: np.add(x, n))(fb.ones(2), 2.0)


def test_an_integer_scalar_out_of_range_raises_eagerly_and_under_jit() -> None:
    for run in (lambda x, n: x + n, fb.jit(lambda x, n: x + n)):
        assert run(fb.ones(2, dtype=fb.uint8), np.int64(254)).tolist() == [255, 255]
        for n in (np.int64(256), np.int8(-1), np.uint64(2**63)):
            with pytest.raises(fb.DTypeError, match=r"uint8 must lie in \[0, 255\]"):
                run(fb.ones(2, dtype=fb.uint8), n)


@pytest.mark.parametrize("scalar", [np.timedelta64(3, "s"), np.datetime64("2020-01-01"), np.str_("3"), np.array(3.0)])
def test_what_is_no_number_is_refused_with_the_remedy(scalar) -> None:
    for run in (lambda x, n: x + n, lambda x, n: n * x, fb.jit(lambda x, n: x + n)):
        with pytest.raises(fb.OperandError, match="must be a Firebrick tensor"):
            run(fb.ones(2), scalar)
    if not isinstance(scalar, np.ndarray):
        with pytest.raises(fb.OperandError, match="full: fill_value is a number"):
            fb.full((2,), scalar)


def test_a_captured_scalar_that_changes_its_sign_of_zero_is_read_anew() -> None:
    """0.0 and -0.0 are equal, also as np.float64; a graph kept for one would give the other's sign."""
    held = {"n": np.float64(0.0), "z": np.complex128(0.0)}
    f = fb.jit(lambda x: (fb.copysign(x, held["n"]), fb.imag(fb.astype(x, fb.complex64) * 0 + held["z"])))
    assert f(fb.ones(1))[0].tolist() == [1.0]
    held["n"] = np.float64(-0.0)
    assert f(fb.ones(1))[0].tolist() == [-1.0]
    g = fb.jit(lambda x, n: fb.copysign(x, n), static_argnames="n")
    assert [g(fb.ones(1), np.float64(z)).tolist() for z in (0.0, -0.0, 0.0)] == [[1.0], [-1.0], [1.0]]


def test_a_static_nan_makes_one_graph() -> None:
    f = fb.jit(lambda x, n: x + n, static_argnames="n")
    for _ in range(3):
        f(fb.ones(1), np.float64("nan"))
    assert f.traces == 1


def test_asking_for_a_numpy_scalars_type_gives_eagers_answer() -> None:
    def g(x, n):
        exact = isinstance(n, np.float32) and not isinstance(n, float) and n.dtype == np.float32 and n.shape == ()
        return x * (2.0 if exact else 3.0)

    assert fb.jit(g)(fb.ones(1), np.float32(1)).tolist() == g(fb.ones(1), np.float32(1)).tolist() == [2.0]
    with pytest.raises(fb.DataDependentError, match=r"(?s)n, a NumPy float32.*static_argnames='n'"):
        fb.jit(lambda x, n: x if n > 2 else -x)(fb.ones(1), np.float32(3))


@pytest.mark.parametrize("fn", [fb.asarray, lambda n, **how: fb.full((), n, **how)])
@pytest.mark.parametrize("n", [2.5, np.float32(2.5), -3, np.int64(-3)])
def test_a_number_keeps_its_fraction_as_an_8_bit_float_under_jit(fn, n) -> None:
    """Failed before: it was cast as if to an integer."""
    for dtype in (fb.float8_e4m3fn, fb.float8_e5m2):
        assert fb.jit(lambda n: fn(n, dtype=dtype))(n).astype(fb.float32).item() == n  # noqa: B023
