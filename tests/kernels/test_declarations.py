"""What ``fb.op`` is given: wrong fields and functions are errors of the project, which name the operation and the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.errors import FirebrickError
from firebrick.core.op import Sample
from firebrick.ops import OPS

K = fb.kernel
X = np.arange(3.0)


def samples(rng: np.random.Generator, dtype: str) -> list[Any]:
    return [(rng.normal(size=3).astype(dtype),)]


def fails(*args: Any, **params: Any) -> Any:
    raise KeyError("the user's")


def as_read(x: Any) -> Any:
    x += 1
    return x


@K
def doubled(x: K.In[fb.float64, "n"], out: K.Out[fb.float64, "n"]):
    i = K.index()
    out[i] = 2.0 * x[i]


@K
def summed(x: K.In[fb.float64, "n"], out: K.Out[fb.float64, "n"]):
    i = K.index()
    total = 0.0
    for k in range(i):
        total += x[k]
    out[i] = total


GOOD: dict[str, Any] = {"infer": lambda x: x, "reference": lambda x: x**2, "vjp": lambda g, x: g * 2.0 * x, "samples": samples}


def declared(fields: dict[str, Any]) -> Any:
    given = {"name": "own", **({"samples": samples} if "kernel" in fields else GOOD), **fields}
    return fb.op(given.pop("name"), **given)


def gradient(operation: Any) -> Any:
    return fb.grad(lambda x: fb.sum(operation(x)))(fb.asarray(X))


# fields, the first line of the error, what was received, and the type of its cause

DECLARED: list[tuple[dict[str, Any], str, str, type[Exception] | None]] = [
    ({"name": 3}, "fb.op: the name of an operation is a new identifier", "3", None),
    ({"name": ""}, "fb.op: the name of an operation is a new identifier", "'', no identifier", None),
    ({"infer": 5}, "fb.op: infer of own must be a function", "5", None),
    ({"reference": 5}, "fb.op: reference of own must be a function", "5", None),
    ({"vjp": 5}, "fb.op: vjp of own must be a function", "5", None),
    ({"samples": None}, "fb.op: samples of own must be a list of cases, or a function", "None", None),
    ({"samples": {"x": 1}}, "fb.op: samples of own must be a list of cases, or a function", "{'x': 1}", None),
    ({"samples": fails}, "fb.op: samples(rng, dtype) of own returns a list of cases", "KeyError: \"the user's\"", KeyError),
    ({"samples": lambda rng: []}, "fb.op: samples(rng, dtype) of own", "takes 1 positional argument but 2", TypeError),
    ({"samples": lambda r, d: samples(r, d) if d == "float64" else fails()}, "fb.op: samples(rng, dtype) of own", "KeyError",
     KeyError),
    ({"samples": lambda r, d: (fails() for _ in range(2))}, "fb.op: samples(rng, dtype) of own", "KeyError", KeyError),
    ({"samples": lambda r, d: None}, "fb.op: samples of own must be a list of cases", "NoneType", None),
    ({"samples": lambda r, d: 7}, "fb.op: samples of own must be a list of cases", "int", None),
    ({"samples": lambda r, d: "abc"}, "fb.op: samples of own must be a list of cases", "str", None),
    ({"samples": lambda r, d: X}, "fb.op: samples of own must be a list of cases", "ndarray", None),
    ({"samples": lambda r, d: []}, "fb.op: own has samples, by which it is tested", "none", None),
    ({"samples": [X]}, "fb.op: a sample of own is a tuple of the arguments of a call", "ndarray, case 0", None),
    ({"samples": [(X,), [X]]}, "fb.op: a sample of own is a tuple of the arguments of a call", "list, case 1", None),
    ({"samples": [Sample(3)]}, "fb.op: a sample of own is a tuple of the arguments of a call", "int, case 0", None),
    ({"samples": [(X,), (X, X)]}, "fb.op: a sample of own has arguments", "2 arguments for the operands x, case 1",
     fb.OperandError),
    ({"samples": [()]}, "fb.op: a sample of own has arguments", "0 arguments for the operands x, case 0", fb.OperandError),
    ({"samples": [(object(),)]}, "fb.op: a sample of own has arguments", "dtype('O'), case 0", fb.DTypeError),
    ({"samples": [("abc",)]}, "fb.op: a sample of own has arguments", "dtype('<U3'), case 0", fb.DTypeError),
    ({"samples": [([[1, 2], [3]],)]}, "fb.op: a sample of own has arguments", "inhomogeneous", ValueError),
    ({"operands": 5}, "fb.op: operands of own must be names with their kinds", "5", AttributeError),
    ({"operands": ""}, "fb.op: operands of own must be different names with their kinds", "''", None),
    ({"operands": "x:any x:any"}, "fb.op: operands of own must be different names", "'x:any x:any'", None),
    ({"operands": "x:floaty"}, "fb.op: operands of own must be names with their kinds", "'x:floaty': operand 'x'", ValueError),
    ({"operands": "*x:any y:any"}, "fb.op: operands of own must be names, the last of which may repeat", "*x:any y:any", None),
    ({"operands": "x:any y:any"}, "fb.op: a sample of own", "1 arguments for the operands x, y", fb.OperandError),
    ({"reference": lambda: 1}, "fb.op: reference of own must be a function of at least one operand", "<lambda>", None),
    ({"reference": lambda *xs: xs[0]}, "fb.op: reference of own must be a function of at least one operand", "<lambda>", None),
    ({"reference": max}, "fb.op: reference of own must be a function with a signature", "built-in function max", ValueError),
    ({"dtypes": "float64"}, "fb.op: dtypes of own must be a sequence of names of dtypes", "float64", None),
    ({"dtypes": ("float99",)}, "fb.op: dtypes of own must be a sequence of names of dtypes", "('float99',)", None),
    ({"dtypes": ()}, "fb.op: dtypes of own must be a sequence of names of dtypes", "()", None),
    ({"dtypes": 5}, "fb.op: dtypes of own must be a sequence of names of dtypes", "5", None),
    ({"tolerance": "a"}, "fb.op: tolerance of own must be a number of at least 0", "a", None),
    ({"tolerance": -1}, "fb.op: tolerance of own must be a number of at least 0", "-1", None),
    ({"tolerance": float("nan")}, "fb.op: tolerance of own must be a number of at least 0", "nan", None),
    ({"tolerance": True}, "fb.op: tolerance of own must be a number of at least 0", "True", None),
    ({"kernel": lambda x: x}, "fb.op: kernel is a function that @fb.kernel decorates", "<lambda>", None),
    ({"kernel": doubled, "infer": lambda x: x}, "fb.op: a kernel has its own shape rule", "infer", None),
    ({"kernel": doubled, "operands": "x:any"}, "fb.op: a kernel's annotations have the names and dtypes", "operands", None),
    ({"kernel": doubled, "dtypes": ("float64",)}, "fb.op: a kernel's annotations have the names and dtypes", "dtypes", None),
    ({"kernel": doubled, "samples": fails}, "fb.op: samples(rng, dtype) of own", "KeyError", KeyError),
    ({"kernel": doubled, "samples": [(X, X)]}, "fb.op: a sample of own has arguments", "2 arguments, case 0", fb.OperandError),
    ({"kernel": doubled, "samples": [(np.ones((3, 3)),)]}, "fb.op: a sample of own", "float64[3, 3], case 0", fb.ShapeError),
    ({"kernel": doubled, "samples": [("a",)]}, "fb.op: a sample of own", "could not convert", ValueError),
]  # fmt: skip

CALLED: list[tuple[dict[str, Any], str, str, type[Exception] | None]] = [
    ({"infer": fails}, "fb.op: infer(*operands, **params) of own returns the result's shape and dtype", "KeyError", KeyError),
    ({"infer": lambda: 1}, "fb.op: infer(*operands, **params) of own", "takes 0 positional arguments", TypeError),
    ({"infer": lambda x: None}, "fb.op: infer of own returns a shape and a dtype", "None", None),
    ({"infer": lambda x: "x"}, "fb.op: infer of own returns a shape and a dtype", "'x'", None),
    ({"infer": lambda x: ((-1,), "float64")}, "fb.op: infer of own returns a shape and a dtype", "((-1,), 'float64')", None),
    ({"infer": lambda x: ((2.5,), "float64")}, "fb.op: infer of own returns a shape and a dtype", "((2.5,)", None),
    ({"infer": lambda x: (("a",), "float64")}, "fb.op: infer of own returns a shape and a dtype", "(('a',)", None),
    ({"infer": lambda x: (3, "float64")}, "fb.op: infer of own returns a shape and a dtype", "(3, 'float64')", None),
    ({"infer": lambda x: ((3,), "float99")}, "fb.op: infer of own returns a shape and a dtype", "float99", fb.DTypeError),
    ({"infer": lambda x: []}, "fb.op: infer of own returns a shape and a dtype", "[]", None),
    ({"infer": lambda x: [x, 3]}, "fb.op: infer of own returns a shape and a dtype", "3", None),
    ({"reference": lambda x: fails()}, "fb.op: reference(*arrays, **params) of own returns its result", "KeyError", KeyError),
    ({"reference": as_read}, "fb.op: reference(*arrays, **params) of own returns its result", "read-only", ValueError),
    ({"reference": lambda x, **p: p["scale"]}, "fb.op: reference(*arrays, **params) of own", "KeyError: 'scale'", KeyError),
    ({"reference": lambda x: None}, "the reference of own returns float64[3], as its shape rule says", "NoneType", None),
    ({"reference": lambda x: "abc"}, "the reference of own returns float64[3], as its shape rule says", "str", None),
    ({"reference": lambda x: {1: 2}}, "the reference of own returns float64[3], as its shape rule says", "dict", None),
    ({"reference": lambda x: x[:1]}, "the reference of own returns float64[3], as its shape rule says", "float64[1]", None),
    ({"reference": lambda x: x.astype(np.int32)}, "the reference of own returns float64[3]", "int32[3]", None),
    ({"reference": lambda x: x.astype(object)}, "the reference of own returns float64[3]", "object[3]", None),
    ({"reference": lambda x: (x, x)}, "the reference of own returns float64[3]", "2 results", None),
    ({"reference": lambda x: [[1], [2, 3]]}, "the reference of own returns float64[3]", "inhomogeneous", ValueError),
]  # fmt: skip

DIFFERENTIATED: list[tuple[dict[str, Any], str, str, type[Exception] | None]] = [
    ({"vjp": fails}, "fb.op: vjp(cotangent, *operands, **params) of own returns the cotangents", "KeyError", KeyError),
    ({"vjp": lambda g: g}, "fb.op: vjp(cotangent, *operands, **params) of own", "takes 1 positional argument but 2", TypeError),
    ({"vjp": lambda g, x: None}, "the gradient rule of own gives the cotangent of each operand", "None for operand 0", None),
    ({"vjp": lambda g, x: (g, g)}, "the gradient rule of own returns a cotangent, or None, for each of 1 operand", "2", None),
    ({"vjp": lambda g, x: np.ones(3)}, "the gradient rule of own returns tensors", "ndarray for operand 0", None),
    ({"vjp": lambda g, x: 2.0}, "the gradient rule of own returns tensors", "float for operand 0", None),
    ({"vjp": lambda g, x: {"x": g}}, "the gradient rule of own returns tensors", "dict for operand 0", None),
    ({"vjp": lambda g, x: g[:1]}, "the gradient rule of own returns a cotangent like operand 0, float64[3]", "float64[1] on",
     None),
    ({"vjp": lambda g, x: fb.sum(g)}, "the gradient rule of own returns a cotangent like operand 0", "float64[] on", None),
    ({"vjp": lambda g, x: fb.astype(g, fb.float32)}, "the gradient rule of own returns a cotangent like", "float32[3]", None),
    ({"vjp": lambda g, x: fb.astype(g, fb.int64)}, "the gradient rule of own returns a cotangent like", "int64[3]", None),
    ({"vjp": lambda g, x: g.to("numpy")}, "the gradient rule of own returns a cotangent like operand 0", "on numpy:0", None),
    ({"kernel": summed, "vjp": fails}, "fb.op: vjp(cotangent, *operands, **params) of own", "KeyError", KeyError),
    ({"kernel": summed, "vjp": lambda g, x: g[:1]}, "the gradient rule of own returns a cotangent like", "float64[1]", None),
    ({"kernel": summed}, "the gradient of own is derived from its statements", "it has a loop, `for k in range(i):` at ", None),
]  # fmt: skip


def check(run: Callable[[], Any], first: str, received: str, cause: type[Exception] | None) -> None:
    with pytest.raises(FirebrickError) as caught:
        run()
    error = caught.value
    assert error.expected.startswith(first), error
    assert received in error.received
    assert error.remedy
    assert type(error.__cause__) is (cause or type(None))


@pytest.mark.parametrize(("fields", "first", "received", "cause"), DECLARED)
def test_a_wrong_field_is_an_error_at_the_declaration(
    fields: dict[str, Any], first: str, received: str, cause: type[Exception] | None
) -> None:
    before = dict(fb.ops.OPS)
    check(lambda: declared(fields), first, received, cause)
    assert before == fb.ops.OPS, "a declaration that fails leaves the op table as it was"


@pytest.mark.parametrize(("fields", "first", "received", "cause"), CALLED)
@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_a_wrong_function_is_an_error_at_a_call(
    fields: dict[str, Any], first: str, received: str, cause: type[Exception] | None, device: str
) -> None:
    operation = declared(fields)
    check(lambda: operation(fb.asarray(X, device=device)), first, received, cause)
    check(lambda: fb.jit(operation)(fb.asarray(X, device=device)), first, received, cause)


@pytest.mark.parametrize(("fields", "first", "received", "cause"), DIFFERENTIATED)
def test_a_wrong_gradient_rule_is_an_error_at_a_gradient(
    fields: dict[str, Any], first: str, received: str, cause: type[Exception] | None
) -> None:
    operation = declared(fields)
    check(lambda: gradient(operation), first, received, cause)
    if "numpy:0" not in received:  # a program is of one device, which has an error of its own
        check(lambda: fb.jit(gradient)(operation), first, received, cause)


def test_errors_of_firebrick_pass_through_the_functions() -> None:
    def infer(x: Any) -> Any:
        raise fb.ShapeError("x has two axes", f"{len(x.shape)}", "reshape it")

    with pytest.raises(fb.ShapeError, match="own: x has two axes"):
        declared({"infer": infer})(fb.asarray(X))


def test_memory_that_a_reference_does_not_get_is_that_error() -> None:
    def reference(x: Any) -> Any:
        raise MemoryError

    with pytest.raises(fb.OutOfMemoryError, match="own on cpu:0 needs"):
        declared({"reference": reference})(fb.asarray(X))


def test_ctrl_c_passes_through_the_functions() -> None:
    def stopped(x: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        declared({"reference": stopped})(fb.asarray(X))


ARGUMENTS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda f: f(np.ones(3)), "x must be a Firebrick tensor"),
    (lambda f: f(fb.ones((3, 3), dtype=fb.float64)), "x has 1 axis"),
    (lambda f: f(fb.ones(3)), "x has dtype float64"),
    (lambda f: f(), "has the arguments x"),
    (lambda f: f(fb.asarray(X), 1), "has the arguments x"),
    (lambda f: f(fb.asarray(X), out=1), "has the arguments x"),
]


@pytest.mark.parametrize(("call", "text"), ARGUMENTS)
def test_errors_of_arguments_have_the_name_that_the_user_gave(call: Callable[[Any], Any], text: str) -> None:
    for name, function in (("doubled", doubled), ("own", declared({"kernel": doubled}))):
        with pytest.raises(FirebrickError) as caught:
            call(function)
        assert caught.value.expected.startswith((f"{name}: {text}", f"{name} {text}")), caught.value


@K
def mixed(
    x: K.In[None, "n"], y: K.In["x", "n"], width: int, scale: float, out: K.Out["x", "width"],
    times: K.Constant[int] = 2, half: K.Constant[float] = 0.5, of: K.Constant[fb.DType] = fb.float32,
):  # fmt: skip
    i = K.index()
    out[i] = (x[i % x.shape[0]] + y[i % y.shape[0]]) * scale * times * half


V, W = fb.asarray([1.0, 2.0]), fb.asarray([3.0, 4.0])


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: mixed(V, W, 3, 1.0, x=V),
         "OperandError: mixed has the arguments x, y, width, scale, times, half, of\nReceived: x twice.\nRemedy: pass x once."),
        (lambda: mixed(V, W, 3, 1.0, out=V),
         "OperandError: mixed has the arguments x, y, width, scale, times, half, of\n"
         "Received: out, which is a result.\nRemedy: leave it out: the call returns it."),
        (lambda: mixed(V, W, 3, 1.0, z=V),
         "OperandError: mixed has the arguments x, y, width, scale, times, half, of\nReceived: z.\nRemedy: correct the name."),
        (lambda: mixed(V, W, 3, 1.0, 2, 0.5, fb.float32, 1),
         "OperandError: mixed has the arguments x, y, width, scale, times, half, of\nReceived: 8 arguments.\nRemedy: pass 7."),
        (lambda: mixed(V, fb.astype(W, fb.float64), 3, 1.0),
         "DTypeError: mixed: y has the dtype of x, float32\nReceived: y: float64.\nRemedy: cast it: fb.astype(y, fb.float32)."),
        (lambda: mixed(fb.astype(V, fb.complex64), fb.astype(W, fb.complex64), 3, 1.0),
         "DTypeError: mixed: the elements of an array are "),
        (lambda: mixed(V, W, 3.0, 1.0),
         "OperandError: mixed: width is a Python int, since a size depends on it\nReceived: width: float.\n"
         "Remedy: pass an int that is known when the program is traced."),
        (lambda: fb.jit(lambda n: mixed(V, W, n, 1.0))(3),
         "OperandError: mixed: width is a Python int, since a size depends on it\nReceived: width: traced int.\n"
         "Remedy: pass an int that is known when the program is traced."),
        (lambda: mixed(V, W, 3, fb.ones(1)),
         "DTypeError: mixed: scale is a number, or a 0-d tensor of float32\nReceived: scale: float32[1].\n"
         "Remedy: pass a Python number, or fb.astype(scale, fb.float32)."),
        (lambda: mixed(V, W, 3, fb.asarray(1)), "DTypeError: mixed: scale is a number, or a 0-d tensor of float32\nReceived: "),
        (lambda: mixed(V, W, 3, "one"),
         "OperandError: mixed: scale is a number of float32\nReceived: scale: 'one'.\nRemedy: pass a Python number."),
        (lambda: mixed(V, W, 3, 1.0, times=2.0),
         "OperandError: mixed: times is a compile-time constant, int\nReceived: times: float.\nRemedy: pass a Python number."),
        (lambda: mixed(V, W, 3, 1.0, times=True),
         "OperandError: mixed: times is a compile-time constant, int\nReceived: times: bool."),
        (lambda: mixed(V, W, 3, 1.0, half="a"), "OperandError: mixed: half is a compile-time constant, float\nReceived: half"),
        (lambda: mixed(V, W, 3, 1.0, of="float32"),
         "OperandError: mixed: of is a compile-time constant, DType\nReceived: of: str.\n"
         "Remedy: pass a dtype, such as fb.float32."),
    ],
)  # fmt: skip
def test_each_kind_of_argument_is_refused_in_full(call: Callable[[], Any], error: str) -> None:
    with pytest.raises(FirebrickError) as caught:
        call()
    assert f"{type(caught.value).__name__}: {caught.value}".startswith(error)


def test_each_kind_of_argument_takes_its_values() -> None:
    want = [2.0, 3.0, 2.0]
    x, y = fb.asarray([1.0, 1.0]), fb.asarray([1.0, 2.0])
    for width in (3, np.int64(3)):
        for scale in (1, 1.0, np.float64(1.0), fb.asarray(1.0)):
            assert mixed(x, y, width, scale).tolist() == want
    assert fb.jit(lambda s: mixed(x, y, 3, s))(1.0).tolist() == want
    assert mixed(x, y=y, width=3, scale=1.0, times=np.int64(4), half=1).tolist() == [8.0, 12.0, 8.0]
    assert mixed(fb.astype(x, fb.float64), fb.astype(y, fb.float64), 3, 1e300).tolist() == [2e300, 3e300, 2e300]


def test_a_kernel_may_be_a_method() -> None:
    class Layer:
        """Has a kernel whose first array it is itself."""

        double = doubled

    assert Layer.double is doubled
    with pytest.raises(fb.OperandError, match="doubled has the arguments x\nReceived: 2 arguments"):
        Layer().double(fb.asarray(X))


def test_other_errors_have_the_name_that_the_user_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_memory(*given: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(type(fb.device("cpu").backend), "execute", without_memory)
    with pytest.raises(fb.OutOfMemoryError, match="doubled on cpu:0 needs"):
        doubled(fb.asarray(X))


def test_a_call_with_other_operands_is_an_error() -> None:
    operation = declared({})
    with pytest.raises(fb.OperandError, match="own has 1 operand: x"):
        operation(fb.asarray(X), fb.asarray(X))
    with pytest.raises(fb.ExecutionError, match=r"infer\(\*operands, \*\*params\) of own"):
        operation(fb.asarray(X), scale=2)


def test_results_of_a_reference_are_memory_of_their_own() -> None:
    kept = np.zeros(2, np.float32)

    def same_buffer(x: Any) -> Any:
        kept[:] = x[:2]
        return kept, kept, x

    op = fb.op(
        "same_buffer", infer=lambda x: [((2,), x.dtype), ((2,), x.dtype), x], reference=same_buffer, dtypes=("float32",),
        samples=lambda rng, dtype: [(rng.normal(size=4).astype(dtype),)], vjp=None,
    )  # fmt: skip
    found = [op(fb.full((3,), float(k))) for k in range(6)]
    for k, (a, b, whole) in enumerate(found):
        assert a.tolist() == b.tolist() == [k, k]
        assert whole.tolist() == [k, k, k]


def test_a_declaration_in_place_of_another_that_is_refused_leaves_that_one(op_table: None) -> None:
    def declared(cases: list[Any], factor: float) -> Any:
        return fb.op(
            "of_tests_twice", infer=lambda x: x, reference=lambda x: factor * x, samples=lambda rng, dtype: cases, replace=True
        )  # fmt: skip

    declared([(np.ones(3),)], 2.0)
    before = OPS["of_tests_twice"]
    with pytest.raises(fb.OperandError, match="of_tests_twice has samples, by which it is tested\nReceived: none"):
        declared([], 3.0)
    assert OPS["of_tests_twice"] is before


def test_a_sample_may_be_one_of_the_operation_itself(op_table: None) -> None:
    made = Sample((np.arange(3.0),), {}, False, "three numbers")
    fb.op("of_tests_sampled", infer=lambda x: x, reference=lambda x: 2.0 * x, samples=[made], dtypes=("float64",))
    assert OPS["of_tests_sampled"].samples(np.random.default_rng(0), "float64") == [made]


def test_a_kernel_as_an_operation_has_samples_and_reports_its_own_mistakes(op_table: None) -> None:
    @fb.kernel
    def lowest(x: fb.kernel.In[None, "n"], out: fb.kernel.Out["x", "n"]):
        i = fb.kernel.index()
        out[i] = x[i] & 1

    with pytest.raises(fb.OperandError, match="of_tests_lowest has samples, by which it is tested\nReceived: none"):
        fb.op("of_tests_lowest", kernel=lowest, samples=lambda rng, dtype: [])
    op = fb.op("of_tests_lowest", kernel=lowest, samples=lambda rng, dtype: [(np.arange(3),)])
    assert op(fb.asarray([4, 5])).tolist() == [0, 1]
    with pytest.raises(fb.KernelCompileError, match="kernel lowest: bitwise_and takes integers and bools"):
        op(fb.ones(3))
