"""Python numbers among the arguments of a compiled function behave beside tensors as they do in eager."""

from __future__ import annotations

import math
import operator
import re
from contextlib import suppress
from numbers import Number
from queue import SimpleQueue

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.weak import Weak, number_kind, weak_scalar

pytestmark = pytest.mark.usefixtures("nothing_left")

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
          "float64", "complex64", "complex128"]  # fmt: skip
NUMBERS = [3, 0, -1, 300, 2**40, 2**70, 2.5, -0.0, float("inf"), float("nan"), 1e300]
BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    ">=": operator.ge, "&": operator.and_, "<<": operator.lshift, "maximum": fb.maximum, "atan2": fb.atan2,
}  # fmt: skip
OTHERS = {
    "where": lambda x, n: fb.where(x == x, x, n),
    "clip": lambda x, n: fb.clip(x, n, n),
    "clip below": lambda x, n: fb.clip(x, n),
    "full": lambda x, n: fb.full((2,), n, device=x.device),
    "full of a dtype": lambda x, n: fb.full((2,), n, dtype=x.dtype, device=x.device),
    "full_like": lambda x, n: fb.full_like(x, n),
    "asarray": lambda x, n: fb.asarray(n, device=x.device),
    "asarray of a dtype": lambda x, n: fb.asarray(n, dtype=x.dtype, device=x.device),
    "asarray of a list": lambda x, n: fb.asarray([n, n], device=x.device),
    "setitem": lambda x, n: operator.setitem(x, 0, n) or x,
    "in place": lambda x, n: operator.iadd(x, n),
    "sum": lambda x, n: fb.sum(x * n),
    "pad": lambda x, n: fb.pad(x, 1, value=n),
    "result": lambda x, n: (x, n),
    "isclose": lambda x, n: fb.isclose(x, n),
}


VALUE_DECIDES = ("full", "asarray", "asarray of a list", "asarray of a dtype", "full of a dtype", "full_like")


def outcome(run, x, n):
    """What a call gives, in a form that can be compared: bits and dtype, or the class of the error."""
    try:
        made = run(x, n)
    except Exception as e:  # noqa: BLE001 - which one is what is compared
        return next(kind for kind in (TypeError, ValueError, ArithmeticError, RuntimeError) if isinstance(e, kind)).__name__
    parts = made if isinstance(made, tuple) else (made,)
    return [(v.dtype.name, v.shape, v.numpy().tobytes()) if isinstance(v, fb.Tensor) else (type(v), repr(v)) for v in parts]


def values(dtype: str) -> fb.Tensor:
    return fb.asarray(np.array([0, 1])).astype(getattr(fb, dtype if dtype != "bool" else "bool"))


@pytest.mark.parametrize("name", [*BINARY, *OTHERS])
@pytest.mark.filterwarnings("ignore::firebrick.RecompileWarning")
def test_a_number_beside_a_tensor_of_every_dtype_gives_eagers_bits_or_error(name) -> None:
    fn = BINARY.get(name) or OTHERS[name]
    forms = [lambda x, n: fn(x, n), lambda x, n: fn(n, x)] if name in BINARY else [fn]
    for form in forms:
        compiled = fb.jit(form)
        for dtype in DTYPES:
            for n in NUMBERS:
                with np.errstate(all="ignore"):
                    if n == 2**70 and name in VALUE_DECIDES:
                        continue  # eager chooses a float dtype by the value, which a graph cannot; it raises
                    a, b = outcome(compiled, values(dtype), n), outcome(form, values(dtype), n)
                assert a == b, f"{name} of {dtype} and {n!r}: {a} under jit, {b} in eager"


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_int_and_a_float_make_at_most_one_graph_each(dtype) -> None:
    f = fb.jit(lambda x, n: (x + n, x * n))
    for n in (1, 2, 3, 1.5, 2.5):
        with suppress(fb.DTypeError):
            f(values(dtype), n)
    assert f.traces <= 2


def test_a_number_that_only_unused_results_need_is_checked_as_without_jit() -> None:
    def unused(x: fb.Tensor, n: int) -> fb.Tensor:
        x + n
        return x * 2

    x = fb.asarray([1, 2], dtype=fb.int8)
    compiled = fb.jit(unused)
    assert compiled(x, 1).numpy().tolist() == [2, 4]
    for fn in (unused, compiled):
        with pytest.raises(fb.DTypeError, match=r"int8 must lie in \[-128, 127\]"):
            fn(x, 1000)


@pytest.mark.parametrize("number", [3, 1.5, np.float32(1.5)])
def test_a_number_that_is_used_several_times_is_one_input_of_the_graph(number) -> None:
    f = fb.jit(lambda n: fb.full((2,), n) + fb.full((2,), n) * fb.asarray(n))
    assert f(number).tolist() == [number + number * number] * 2
    if not isinstance(number, np.generic):  # each use of NumPy's scalar is a Python number of its own
        assert len(f.graph(number).inputs) == 1


ARITHMETIC = {
    "n + 1": lambda n: n + 1,
    "1 - n": lambda n: 1 - n,
    "n * 2.5": lambda n: n * 2.5,
    "n / 2": lambda n: n / 2,
    "7 // n": lambda n: 7 // n,
    "n % 3": lambda n: n % 3,
    "n ** 2": lambda n: n**2,
    "2 ** n": lambda n: 2**n,
    "n ** -1": lambda n: n**-1,
    "-n": lambda n: -n,
    "+n": lambda n: +n,
    "abs": lambda n: abs(n),
    "1 / (1 + n)": lambda n: 1 / (1 + n),
    "n + n": lambda n: n + n,
    "n + True": lambda n: n + True,
    "divmod": lambda n: divmod(n, 2),
    "divmod of another": lambda n: divmod(7, n),
    "round": lambda n: round(n),
    "round to digits": lambda n: round(n, 1),
    "sum": lambda n: sum([n, n, 1]),
    "complex": lambda n: n * 1j,
    "trunc": lambda n: math.trunc(n),
    "floor and ceil": lambda n: (math.floor(n), math.ceil(n)),
    "bits": lambda n: (n & 3, n | 8, n ^ 1, n << 2, n >> 1, ~n),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_of_numbers_is_pythons(name) -> None:
    """Either Python's own number, at each call, or an error that says how to have one."""
    fn = ARITHMETIC[name]

    def g(x, n):
        made = fn(n)
        return (x, *made) if isinstance(made, tuple) else (x * made, made)

    f = fb.jit(g)
    for n in (2, 5, 3.5, -2.25, -3):
        x = fb.ones(2, dtype=fb.float64)
        eager = outcome(g, x, n)
        compiled = outcome(f, x, n)
        if name == "complex":
            assert compiled == "RuntimeError"  # says static_argnames
        else:
            assert compiled == eager, f"{name} of {n!r}: {compiled} under jit, {eager} in eager"
    if name != "complex":
        assert outcome(f, fb.ones(2, dtype=fb.float64), 2) == outcome(g, fb.ones(2, dtype=fb.float64), 2)


def test_a_division_by_zero_raises_pythons_error_and_leaves_the_state_as_it_was() -> None:
    w = fb.zeros(2)

    @fb.jit
    def f(n):
        w[...] = w + 1.0 / n

    f(2.0)
    with pytest.raises(ZeroDivisionError):
        f(0.0)
    assert w.tolist() == [0.5, 0.5]
    f(1.0)
    assert w.tolist() == [1.5, 1.5]


def test_an_int_power_that_becomes_a_float_is_pythons() -> None:
    f = fb.jit(lambda x, n: x * 2**n)
    x = fb.ones(2, dtype=fb.float64)
    assert f(x, 3).tolist() == [8.0, 8.0]
    assert f(x, -1).tolist() == [0.5, 0.5]
    whole = fb.jit(lambda x, n: x * 2**n)
    ints = fb.ones(2, dtype=fb.int64)
    assert whole(ints, 3).tolist() == [8, 8]
    with pytest.raises(fb.DTypeError, match="write the number as a float"):
        whole(ints, -1)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: x if n > 2 else -x, lambda x, n: x if n else -x, lambda x, n: [x for _ in range(n)],
        lambda x, n: fb.zeros(n), lambda x, n: fb.reshape(x, (n, -1)), lambda x, n: x[n], lambda x, n: x[:n],
        lambda x, n: fb.sum(x, axis=n), lambda x, n: x * math.sqrt(n), lambda x, n: x * int(n), lambda x, n: x * float(n),
        lambda x, n: {n: x}, lambda x, n: f"{n:.3f}" and x, lambda x, n: "ab"[n] and x, lambda x, n: x * max(n, 1),
        lambda x, n: fb.permute_dims(x, (n,)), lambda x, n: fb.arange(n), lambda x, n: fb.linspace(0, 1, n),
        lambda x, n: fb.roll(x, n), lambda x, n: fb.eye(n), lambda x, n: np.float32(n) * 1 and x, lambda x, n: x * (n == 2),
        lambda x, n: x * (n in (1, 2)), lambda x, n: fb.nn.Dropout(n)(x), lambda x, n: fb.random.uniform((n,)),
    ],
)  # fmt: skip
def test_what_needs_the_number_itself_gives_eagers_result_or_says_how_to_have_it(use) -> None:
    f = fb.jit(use)
    for n in (1, 0):
        x, said = fb.ones(3), "static_argnames='n'"
        try:
            made = f(x, n)
        except fb.DataDependentError as e:
            said = str(e)
        except (ZeroDivisionError, IndexError, ValueError, TypeError) as e:
            if "static_argnames" in str(e):
                continue
            with pytest.raises(type(e)):
                use(x, n)
        else:
            assert made.tolist() == use(x, n).tolist()
        assert "static_argnames='n'" in said


def test_numbers_in_conditions_raise_naming_the_argument_and_the_remedy() -> None:
    f = fb.jit(lambda x, n: x if n > 2 else -x)
    with pytest.raises(fb.DataDependentError, match=r"(?s)the number n .*static_argnames='n'"):
        f(fb.ones(2), 3)
    assert fb.jit(lambda x, n: x if n > 2 else -x, static_argnames="n")(fb.ones(2), 3).tolist() == [1.0, 1.0]


def test_a_number_kept_outside_raises_when_it_is_used() -> None:
    out = SimpleQueue()

    @fb.jit
    def f(x, n):
        out.put(n)
        return x + n

    assert f(fb.ones(2), 1.0).tolist() == [2.0, 2.0]
    kept = out.get()
    with pytest.raises(fb.DataDependentError):
        float(kept)
    with pytest.raises(fb.DataDependentError, match="outside the trace"):
        fb.ones(2) + kept


def by_pattern(n):
    match n:
        case int():
            return 2.0
        case float():
            return 3.0
    return 4.0


@pytest.mark.parametrize(
    "kind", [lambda n: 2.0 if isinstance(n, int) else 3.0, lambda n: 2.0 if isinstance(n, Number) else 3.0, by_pattern]
)
@pytest.mark.parametrize("number", [3, 3.5])
def test_asking_for_a_numbers_type_gives_eagers_answer(kind, number) -> None:
    f = fb.jit(lambda x, n: x * kind(n) + n)
    assert f(fb.ones(2), number).tolist() == f.fn(fb.ones(2), number).tolist()


@pytest.mark.parametrize(
    "use", [lambda n: n.real, lambda n: n.is_integer(), lambda n: hasattr(n, "is_integer"), lambda n: np.asarray([n, n])]
)
def test_what_a_number_has_besides_its_value_names_the_argument_and_the_remedy(use) -> None:
    with pytest.raises(fb.DataDependentError, match=r"(?s)n, a Python float.*static_argnames='n'"):
        fb.jit(lambda x, n: x * use(n))(fb.ones(2), 3.0)
    with pytest.raises(AttributeError, match="'float' object has no attribute 'nothing'"):
        fb.jit(lambda x, n: x * n.nothing)(fb.ones(2), 3.0)


def test_a_root_of_a_negative_number_raises_rather_than_losing_its_imaginary_part() -> None:
    f = fb.jit(lambda x, n: x * n**0.5)
    assert f(fb.ones(2), 4.0).tolist() == [2.0, 2.0]
    for run in (f, f.fn):
        with pytest.raises(fb.DTypeError, match="complex"):
            run(fb.ones(2), -4.0)


def test_numbers_of_a_call_are_indices() -> None:
    x = fb.reshape(fb.arange(12), (3, 4))

    @fb.jit
    def f(x: fb.Tensor, i: int) -> tuple[fb.Tensor, ...]:
        y = x + 0
        y[i // 2, i % 2] = 50
        y[:, i + 1] += 100
        return y, x[i], x[i, ::2], x[-i, None, i], x[fb.asarray([0, 2]), i]

    for i in (0, 1, np.int64(2)):
        for got, want in zip(f(x, i), f.fn(x, i), strict=True):
            assert got.tolist() == want.tolist()
    assert f.traces == 2  # of an int and of a NumPy scalar
    for run in (f, f.fn):
        with pytest.raises(IndexError):
            run(x, 3)
    with pytest.raises(fb.DataDependentError, match="needs the number i"):
        fb.jit(lambda x, i: x[i : i + 1])(x, 1)


def weak(kind: type = int, name: str = "n", at: int = 0) -> Weak:
    return Weak(kind, name, lambda numbers: numbers[at])


NEEDED = {
    "if, while, and, or, not": bool, "a size, an index or range()": range, "int()": int,
    "float() or a function of math": math.sin, "complex()": complex, "a set or a key of a dict": hash,
    "a NumPy array": lambda n: np.asarray([n, n]), "a comparison": lambda n: n <= 2, ".real": lambda n: n.real,
    ".bit_length": lambda n: n.bit_length(),
    "arithmetic with a complex number": lambda n: 1j - n, "np.isfinite": np.isfinite, "np.modf": np.modf,
    "np.add": lambda n: np.add.outer(n, 2), "np.multiply": lambda n: np.multiply(n, 2, dtype=np.float32),
    "np.subtract": lambda n: np.subtract(n, 1j),
}  # fmt: skip


@pytest.mark.parametrize("what", NEEDED)
def test_what_needs_the_number_itself_is_named(what) -> None:
    with pytest.raises(fb.DataDependentError, match=rf"^{re.escape(what)} needs the number n while the graph is made\n"):
        NEEDED[what](weak())
    if what.startswith("arithmetic"):
        with pytest.raises(fb.DataDependentError, match=what):
            weak() + 1j


def test_the_error_names_the_library_of_the_number_and_the_arguments_that_it_is_made_of() -> None:
    for number, received, static in (
        (weak(name="n[2]"), "n[2], a Python int that may differ from call to call", "'n'"),
        (weak(np.float16), "n, a NumPy float16 that may differ from call to call", "'n'"),
        (weak(name="m") + 2 * weak(float), "(m + (2 * n)), a Python float that may differ from call to call", "('m', 'n')"),
        (weak() * weak(), "(n * n), a Python int that may differ from call to call", "'n'"),
    ):
        error = number.unknown("this")
        assert error.received == received
        assert error.remedy == f"pass static_argnames={static} to jit: each value then gets a graph of its own"


OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
    "**": operator.pow, "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
OF_ONE = {
    "-": operator.neg, "abs ": abs, "~": operator.invert, "trunc ": math.trunc, "floor ": math.floor, "ceil ": math.ceil,
    "round ": round,
}  # fmt: skip


@pytest.mark.parametrize("sign", OPERATORS)
def test_an_expression_of_numbers_is_computed_and_named_as_it_is_written(sign) -> None:
    fn = OPERATORS[sign]
    for made, want, name in (
        (fn(weak(), 3), fn(-29, 3), f"(n {sign} 3)"),
        (fn(29, weak(at=1)), fn(29, 5), f"(29 {sign} n)"),
        (fn(weak(), weak(name="m", at=1)), fn(-29, 5), f"(n {sign} m)"),
        (fn(weak(), np.int64(3)), fn(-29, 3), f"(n {sign} np.int64(3))"),
    ):
        got = made.value([-29, 5])
        assert (got, made.name) == (want, name)
        assert issubclass(made.kind, float if sign == "/" else (int, np.integer))
    with pytest.raises(TypeError):
        fn(weak(), {})


@pytest.mark.parametrize("sign", OF_ONE)
def test_a_function_of_one_number_is_computed_and_named_as_it_is_written(sign) -> None:
    kind, n = (int, -29) if sign == "~" else (float, -2.5)
    made = OF_ONE[sign](weak(kind))
    assert (made.value([n]), made.name) == (OF_ONE[sign](n), f"({sign}n)")
    assert made.kind is (float if sign in ("-", "abs ") else int)
    assert repr(made) == f"{made}" == f"<{made.kind.__name__} ({sign}n), not known yet: see static_argnames>"
    assert round(weak(float), 1).value([2.25]) == 2.2


def test_a_numpy_scalar_shows_what_its_type_has_and_counts_as_a_python_number() -> None:
    number = weak(np.float16)
    assert (number.dtype, number.shape, number.itemsize, number.nbytes) == (np.dtype("float16"), (), 2, 2)
    assert isinstance(number, np.floating)
    python = number.python
    assert (python.kind, python.name, python.arguments) == (float, "n", ("n",))
    assert type(python.value([np.float16(1.5)])) is float
    assert [number_kind(k) for k in (np.uint8, np.float64, int, float, bool, np.bool_, complex)] == [
        int, float, int, float, None, None, None,
    ]  # fmt: skip
    assert weak_scalar(weak(np.int8)).kind is int
    assert type(weak_scalar(np.int8(3))) is int
    assert np.sqrt(number).kind is np.float16
    with pytest.raises(AttributeError, match="'int' object has no attribute 'dtype'"):
        weak().dtype  # noqa: B018


def test_an_expression_that_divides_by_zero_while_it_is_looked_at_is_a_float() -> None:
    made = 1 / (weak() - 3)
    assert (made.kind, made.value([5])) == (float, 0.5)


def test_a_quotient_and_its_remainder_are_those_of_python_from_both_sides() -> None:
    for use in (
        lambda x, n: x + 100.0 * divmod(17, n)[0] + divmod(17, n)[1],
        lambda x, n: x + 100.0 * divmod(n, 3)[0] + divmod(n, 3)[1],
    ):
        compiled = fb.jit(use)
        for n in (5, -4, 7):
            assert compiled(fb.zeros(1), n).item() == use(fb.zeros(1), n).item()
        assert compiled.traces == 1


def test_what_takes_no_number_of_a_call_raises_as_it_does_without_jit() -> None:
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+"):
        fb.jit(lambda x, n: x + (object() + n))(fb.zeros(1), 2)
    with pytest.raises(fb.OperandError, match=r"np\.add takes NumPy arrays"):
        fb.jit(lambda x, n: np.add(n, x))(fb.zeros(1), 2)
