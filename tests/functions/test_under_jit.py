"""Every public function under ``jit`` gives what it gives eagerly, or says by name why a graph cannot have it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pytest
from rounding import Exact, exact
from sample_arguments import Call, calls

import firebrick as fb
from firebrick.core import trees
from firebrick.core.errors import ConfigError, DataDependentError, DTypeError, LinAlgError, OutOfRangeError, ShapeError

CALLS = {c.name: c for c in calls()}

# functions that need values where a graph has none, and what their errors say to do
DATA_DEPENDENT = {
    **dict.fromkeys(("argwhere", "flatnonzero", "nonzero"), "pass size="),
    **dict.fromkeys(("unique", "unique_all", "unique_counts", "unique_inverse", "unique_values"), "pass size="),
    "bincount": "pass size=, one more than the largest value there may be",
    "masked_select": "pass size=, or use fb.where",
    "repeat": "pass size=",
    "allclose": r"use fb.all\(fb.isclose\(x1, x2\)\)",
}
# sums whose terms a pass merges, and which round differently then
REORDERED = {"meshgrid"}


def bits(result: Any) -> list[Any]:
    return [
        (t.shape, t.dtype.name, np.ascontiguousarray(t.numpy()).tobytes()) if isinstance(t, fb.Tensor) else t
        for t in trees.flatten(result)[0]
    ]


def same(got: Any, want: Any, device: str) -> None:
    """Assert that results are equal bit for bit; floats that kernels of the cpu engine compute, within rounding."""
    if device != "cpu":
        assert bits(got) == bits(want)
        return
    found, wanted = trees.flatten(got)[0], trees.flatten(want)[0]
    for a, b in zip(found, wanted, strict=True):
        if not isinstance(b, fb.Tensor):
            assert a == b
            continue
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.dtype.is_inexact:
            size = np.abs(b.numpy()[np.isfinite(b.numpy())]).max(initial=1.0)
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=16 * b.dtype.eps, atol=16 * b.dtype.eps * size)
        else:
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def of_tensors(call: Call, device: str, names: list[str] | None = None) -> tuple[Callable[..., Any], list[fb.Tensor]]:
    """A call as a function of its tensors (or those of these names), with those tensors."""
    arguments = call.on(device)
    names = call.tensors if names is None else names
    return lambda *tensors: call({**arguments, **dict(zip(names, tensors, strict=True))}), [arguments[n] for n in names]


def check(call: Call, device: str) -> None:
    function, tensors = of_tensors(call, device)
    want = function(*tensors)
    compiled = fb.jit(function)
    if call.name in DATA_DEPENDENT:
        with pytest.raises(DataDependentError, match=f"{call.name}: .*needs the values of (.|\n)*{DATA_DEPENDENT[call.name]}"):
            compiled(*tensors)
        assert bits(function(*tensors)) == bits(want), "the failed trace leaves the tensors as they were"
        return
    same(compiled(*tensors), want, device)
    same(compiled(*tensors), want, device)
    assert compiled.traces == 1


@pytest.mark.turns
@pytest.mark.parametrize("device", ["numpy", "cpu"])
@pytest.mark.parametrize("name", CALLS)
def test_a_function_gives_the_same_under_jit(name: str, device: str) -> None:
    check(CALLS[name], device)


@pytest.mark.parametrize("name", [n for i, n in enumerate(CALLS) if i % 4 == 0])
def test_a_function_gives_the_same_under_jit_on_torch(name: str) -> None:
    pytest.importorskip("torch")
    check(CALLS[name], "torch:cpu")


def weighed(result: Any) -> fb.Tensor | None:
    """A number that depends on every floating element of a result."""
    total = None
    for k, t in enumerate(t for t in trees.flatten(result)[0] if isinstance(t, fb.Tensor) and t.dtype.kind == "float"):
        weights = fb.asarray(np.cos(np.arange(t.size) + k).reshape(t.shape), dtype=t.dtype, device=t.device)
        part = fb.sum(t * weights)
        total = part if total is None else total + part
    return total


def wide_value_and_gradients(call: Call, names: list[str]) -> Any:
    """The value and gradients of a call whose floating operands are float64."""
    arguments = call.on("numpy")
    wide = {n: fb.astype(t, fb.float64) for n, t in arguments.items() if isinstance(t, fb.Tensor) and t.dtype.kind == "float"}
    function = lambda given: weighed(call({**arguments, **wide, **dict(zip(names, given, strict=True))}))  # noqa: E731
    return fb.value_and_grad(function)([wide[n] for n in names])


@lru_cache(maxsize=4)
def true_gradients(name: str, names: tuple[str, ...]) -> Exact:
    """The value and gradients of a call in float64, and what rounding of float32 may change."""
    return exact(lambda: wide_value_and_gradients(CALLS[name], list(names)), "float32")


@pytest.mark.parametrize(
    ("name", "device"),
    [
        pytest.param(name, device, marks=() if turn % 2 == k else pytest.mark.soak)  # each run takes one of the two, in turn
        for turn, name in enumerate(n for n in CALLS if n not in DATA_DEPENDENT)
        for k, device in enumerate(("numpy", "cpu"))
    ],
)
def test_a_function_has_the_same_gradients_under_jit(name: str, device: str) -> None:
    call = CALLS[name]
    names = [n for n in call.tensors if call.arrays[n].dtype.kind == "f"]
    function, tensors = of_tensors(call, device, names)

    def loss(given: list[fb.Tensor]) -> fb.Tensor | None:
        return weighed(function(*given))

    try:
        want = fb.value_and_grad(loss)(tensors)  # type: ignore[arg-type]
    except (fb.GradientError, fb.OperandError):
        return  # no floating result, or one that depends on no operand
    truth = true_gradients(name, tuple(names))
    for got in (want, fb.jit(fb.value_and_grad(loss))(tensors), fb.value_and_grad(fb.jit(loss))(tensors)):  # type: ignore[arg-type]
        if name not in REORDERED and device != "cpu":
            assert bits(got) == bits(want)
        truth.check(got, f"value and gradients of {name}")


# a size in place of values

X = fb.asarray([[0.0, 5.0, 0.0], [6.0, 0.0, 7.0]])
COUNTS = fb.asarray([2, 0, 1])


@pytest.mark.parametrize("size", [0, 2, 9])
@pytest.mark.parametrize(
    "function",
    [
        lambda size: fb.nonzero(X, size=size, fill_value=-1),
        lambda size: fb.argwhere(X, size=size),
        lambda size: fb.flatnonzero(X, size=size),
        lambda size: fb.unique_all(X, size=size),
        lambda size: fb.unique_counts(X, size=size, fill_value=-1.0),
        lambda size: fb.masked_select(X, X > 5.0, size=size, fill_value=-1.0),
        lambda size: fb.repeat(X, COUNTS, axis=1, size=size),
        lambda size: fb.bincount(COUNTS, size=size + 3),
    ],
)
def test_with_a_size_the_shape_is_known(function: Callable[[int], Any], size: int) -> None:
    assert bits(fb.jit(partial(function, size))()) == bits(function(size))


def test_a_size_gives_the_first_elements_and_fills_up() -> None:
    assert fb.masked_select(X, X > 5.0).tolist() == [6.0, 7.0]
    assert fb.masked_select(X, X > 5.0, size=1).tolist() == [6.0]
    assert fb.masked_select(X, X > 5.0, size=3, fill_value=-1.0).tolist() == [6.0, 7.0, -1.0]
    assert fb.masked_select(X[:0], X[:0] > 5.0, size=2, fill_value=3.0).tolist() == [3.0, 3.0]
    assert fb.repeat(fb.asarray([1, 2, 3]), COUNTS).tolist() == [1, 1, 3]
    assert fb.repeat(fb.asarray([1, 2, 3]), COUNTS, size=2).tolist() == [1, 1]
    assert fb.repeat(fb.asarray([1, 2, 3]), COUNTS, size=5).tolist() == [1, 1, 3, 3, 3]
    assert fb.repeat(fb.asarray([1, 2, 3]), 2, size=4).tolist() == [1, 1, 2, 2]
    assert fb.bincount(COUNTS, size=4).tolist() == [1, 1, 1, 0]
    with pytest.raises(OutOfRangeError, match=r"bincount: x must lie in \[0, 2\)"):
        fb.bincount(COUNTS, size=2)
    with pytest.raises(ShapeError, match="repeat: x has no element to fill 2 places with"):
        fb.repeat(X[:0], 3, size=2)


def test_the_gradient_of_a_selection_of_fixed_size_flows_into_what_was_selected() -> None:
    def loss(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.masked_select(x, x > 5.0, size=4) * fb.asarray([1.0, 2.0, 3.0, 4.0]))

    assert fb.grad(loss)(X).tolist() == [[0.0, 0.0, 0.0], [1.0, 0.0, 2.0]]
    assert fb.jit(fb.grad(loss))(X).tolist() == [[0.0, 0.0, 0.0], [1.0, 0.0, 2.0]]


# masks and indices as keys


def assigned(x: fb.Tensor, key: Any, value: Any) -> fb.Tensor:
    x = x + 0.0
    x[key] = value
    return x


@pytest.mark.parametrize("value", [0.0, 7, fb.asarray(-1.0)])
def test_assigning_through_a_mask_needs_no_values(value: Any) -> None:
    for mask in (X > 5.0, fb.asarray([True, False])):
        assert bits(fb.jit(assigned)(X, mask, value)) == bits(assigned(X, mask, value))


def test_selecting_through_a_mask_names_what_to_use_instead() -> None:
    with pytest.raises(DataDependentError, match=r"x\[key\]: the shape of a selection by a mask (.|\n)*fb.masked_select"):
        fb.jit(lambda x, mask: x[mask])(X, X > 5.0)
    with pytest.raises(DataDependentError, match=r"x\[key\] = value: the shape of a selection(.|\n)*fb.where"):
        fb.jit(assigned)(X, X > 5.0, fb.ones(2))
    chosen = np.asarray([False, True])
    assert fb.jit(lambda x: x[chosen])(X).tolist() == [[6.0, 0.0, 7.0]]


# values that must not be

ROWS = fb.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
LOGITS = fb.log_softmax(fb.zeros((3, 1, 2)))
SQUARE = fb.asarray([[2.0, 1.0], [1.0, 2.0]])
ONES = fb.ones(2)

WRONG: dict[str, tuple[Callable[..., Any], fb.Tensor, fb.Tensor, type[Exception], str]] = {
    "take": (lambda i: fb.take(ROWS, i, axis=0), COUNTS[1:2], COUNTS[:1], OutOfRangeError, r"take: indices .* \[-2, 2\)"),
    "gather": (
        lambda i: fb.take_along_axis(ROWS, i, axis=1), fb.asarray([[0], [2]]), fb.asarray([[0], [3]]), OutOfRangeError,
        r"take_along_axis: indices must lie in \[-3, 3\)",
    ),
    "scatter": (
        lambda i: fb.scatter(ROWS, i, 1.0), fb.asarray([[0], [2]]), fb.asarray([[0], [-4]]), OutOfRangeError,
        r"scatter: indices must lie in \[-3, 3\)",
    ),
    "x[key]": (lambda i: ROWS[i], fb.asarray(1), fb.asarray(2), OutOfRangeError, r"indices must lie in \[-2, 2\)"),
    "embedding": (
        lambda i: fb.embedding(i, ROWS), fb.asarray([1]), fb.asarray([2]), OutOfRangeError, r"indices must lie in \[-2, 2\)"
    ),
    "cross_entropy": (
        lambda y: fb.cross_entropy(ROWS, y), fb.asarray([0, 2]), fb.asarray([0, -1]), OutOfRangeError,
        r"cross_entropy: labels must lie in \[0, 3\)",
    ),
    "cross_entropy of uint8": (
        lambda y: fb.cross_entropy(ROWS, y, ignore_index=-100), fb.asarray([0, 2], dtype=fb.uint8),
        fb.asarray([0, 3], dtype=fb.uint8), OutOfRangeError, r"cross_entropy: labels must lie in \[0, 3\)",
    ),
    "nll_loss": (
        lambda y: fb.nll_loss(ROWS, y), fb.asarray([0, 2]), fb.asarray([0, 3]), OutOfRangeError, "nll_loss: labels must lie"
    ),
    "one_hot": (lambda i: fb.one_hot(i, 2), fb.asarray([0]), fb.asarray([-1]), OutOfRangeError, "one_hot: x must lie"),
    "soft_margin_loss": (
        lambda s: fb.soft_margin_loss(ONES, s), fb.asarray([1.0, -1.0]), fb.asarray([1.0, 0.0]), OutOfRangeError,
        "soft_margin_loss: signs are 1 or -1",
    ),
    "hinge_embedding_loss of uint8": (
        lambda s: fb.hinge_embedding_loss(ONES, s), fb.asarray([1, 1], dtype=fb.uint8), fb.asarray([1, 255], dtype=fb.uint8),
        OutOfRangeError, "hinge_embedding_loss: signs are 1 or -1",
    ),
    "binary_cross_entropy": (
        lambda p: fb.binary_cross_entropy(p, ONES), fb.asarray([0.5, 1.0]), fb.asarray([0.5, 1.5]), OutOfRangeError,
        r"binary_cross_entropy: the values of probability must be in \[0, 1\]",
    ),
    "gaussian_nll_loss": (
        lambda v: fb.gaussian_nll_loss(ONES, ONES, v), ONES * 1.0, -ONES, OutOfRangeError, "the values of variance must be ≥ 0"
    ),
    "nanargmax": (lambda x: fb.nanargmax(x), ONES, ONES * fb.nan, ShapeError, "nanargmax of nothing but NaN is undefined"),
    "quantile": (
        lambda q: fb.quantile(ROWS, q), fb.asarray(0.5), fb.asarray(1.5), ConfigError, r"quantile: q must lie in \[0, 1\]"
    ),
    "bucketize": (
        lambda b: fb.bucketize(ROWS, b), fb.asarray([1.0, 2.0]), fb.asarray([2.0, 1.0]), ConfigError,
        "bucketize: boundaries must be in order",
    ),
    "digitize": (
        lambda b: fb.digitize(ROWS, b), fb.asarray([3.0, 2.0, 1.0]), fb.asarray([2.0, 1.0, 3.0]), ConfigError,
        "digitize: bins must be in order",
    ),
    "histogram": (
        lambda x: fb.histogram(x, 3), ROWS, ROWS * fb.inf, ConfigError, "histogram: range must be finite"
    ),
    "repeat": (
        lambda n: fb.repeat(ONES, n, size=3), fb.asarray([0, 3]), fb.asarray([-1, 3]), ShapeError, "repeats are ints ≥ 0"
    ),
    "ctc_loss of long inputs": (
        lambda n: fb.ctc_loss(LOGITS, fb.asarray([[1]]), n, [1]), fb.asarray([3]), fb.asarray([4]), OutOfRangeError,
        r"ctc_loss: input_lengths .*lie in \[0, ",
    ),
    "ctc_loss of a blank": (
        lambda y: fb.ctc_loss(LOGITS, y, [3], [1]), fb.asarray([[1]]), fb.asarray([[0]]), OutOfRangeError,
        "ctc_loss: no target is the blank, 0",
    ),
    "cholesky": (
        lambda a: fb.linalg.cholesky(a), SQUARE, SQUARE - 2.0, LinAlgError, "cholesky: every matrix must be positive definite"
    ),
    "solve": (lambda a: fb.linalg.solve(a, ONES), SQUARE, SQUARE * 0.0, LinAlgError, "solve: every matrix must be invertible"),
    "inv": (lambda a: fb.linalg.inv(a), SQUARE, SQUARE * 0.0, LinAlgError, "every matrix must be invertible"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_run_with_wrong_values_raises_as_the_function_does(name: str) -> None:
    function, right, wrong, kind, text = WRONG[name]
    compiled = fb.jit(function)
    want = bits(function(right))
    assert bits(compiled(right)) == want
    with pytest.raises(kind):
        function(wrong)
    with pytest.raises(kind, match=text):
        compiled(wrong)
    assert bits(compiled(right)) == want
    assert compiled.traces == 1


def test_nothing_is_written_by_a_run_that_meets_a_wrong_value() -> None:
    seen = fb.zeros(())

    def count(labels: fb.Tensor) -> fb.Tensor:
        nonlocal seen
        seen += 1.0
        return fb.cross_entropy(ROWS, labels)

    compiled = fb.jit(count)
    compiled(fb.asarray([0, 1]))
    with pytest.raises(OutOfRangeError):
        compiled(fb.asarray([0, 3]))
    assert seen.item() == 1.0


# Python numbers


@pytest.mark.parametrize(
    ("function", "n"),
    [
        (lambda n: fb.sum(X, axis=n), 1),
        (lambda n: fb.softmax(X, axis=n), 0),
        (lambda n: fb.reshape(X, (3, n)), 2),
        (lambda n: fb.zeros(n), 2),
        (lambda n: fb.arange(n), 2),
        (lambda n: fb.linspace(0, n, 3), 2),
        (lambda n: fb.top_k(X, n), 2),
        (lambda n: fb.one_hot(COUNTS, n), 3),
        (lambda n: fb.rms_norm(X, weight=fb.ones(3), eps=n * 1e-5), 1),
        (lambda n: fb.var(X, correction=n), 1),
        (lambda n: fb.embedding(COUNTS, fb.ones((3, 2)), padding_index=n), 1),
        (lambda n: fb.linalg.vector_norm(X, ord=n), 1),
        (lambda n: fb.unfold2d(X[None, None], n), 1),
        (lambda n: X[:n], 1),
        (lambda n: X + np.arange(n).tolist()[-1], 2),
    ],
)
def test_a_number_that_a_graph_must_have_built_in_is_asked_for_by_its_name(function: Callable[..., Any], n: int) -> None:
    with pytest.raises(fb.FirebrickError, match=r"\bn\b(.|\n)*static_argnames"):
        fb.jit(function)(n)
    assert bits(fb.jit(function, static_argnames="n")(n)) == bits(function(n))


@pytest.mark.parametrize(
    "function",
    [
        lambda n: fb.full((2,), n),
        lambda n: fb.full_like(X, n),
        lambda n: fb.asarray(n),
        lambda n: fb.asarray([[n, 1], [2, n * 3]]),
        lambda n: fb.asarray(n, dtype=fb.float16),
        lambda n: fb.quantile(X, n * 0.25),
        lambda n: fb.quantile(X, [n * 0.25, 0.5]),
        lambda n: fb.ctc_loss(LOGITS, fb.asarray([[1]]), [n], [1]),
        lambda n: assigned(X, X > 5.0, n),
        lambda n: fb.clip(X, 0, n),
        lambda n: fb.where(n < X, X, n),
    ],
)
def test_a_number_that_is_data_needs_one_graph_for_all_its_values(function: Callable[..., Any]) -> None:
    compiled = fb.jit(function)
    for n in (1, 2, 3):
        same(compiled(n), function(n), "cpu")
    assert compiled.traces == 1


def test_a_tensor_of_one_value_may_be_traced() -> None:
    value = fb.asarray(3.0)
    assert fb.jit(lambda v: fb.full((2,), v))(value).tolist() == [3.0, 3.0]
    assert fb.jit(lambda v: fb.full((2,), v))(fb.asarray(3)).dtype is fb.int64
    with pytest.raises(
        DataDependentError,
        match=r"full: whether it fits int8 needs the values of fill_value "
        r"(.|\n)*cast it: fb.astype\(fill_value, fb.int8\)",
    ):
        fb.jit(lambda v: fb.full((2,), v, dtype=fb.int8))(value)
    with pytest.raises(DTypeError, match="full: fill_value must lie in the range of uint8"):
        fb.jit(lambda v: fb.full((2,), v, dtype=fb.uint8))(300)
