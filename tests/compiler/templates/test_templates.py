"""GPU templates: by the interpreter they compute what NumPy does, at sizes that fit the tiles and at others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from running_kernels import bits
from running_lanes import Compiled, agree
from threads_on_cpu import threads

from firebrick.compiler.kernel import Barrier, Function, interpret
from firebrick.compiler.kernel.ir import BLOCKS, Statement, statements
from firebrick.compiler.kernel.language.annotations import ConstantType
from firebrick.compiler.kernel.language.calls import HelperFunction, InlinedExpression
from firebrick.compiler.kernel.language.kernel_program import LaunchSizes
from firebrick.compiler.templates import (
    Template,
    attention,
    convolution,
    digit_counts,
    digit_scatter,
    input_gradient,
    product,
    row_reduction,
    scan,
    segmented_scatter,
    weight_gradient,
    with_operands,
)
from firebrick.compiler.templates.epilogues import add, larger
from firebrick.core.dtypes import float32, float64
from firebrick.core.errors import ExecutionError, KernelCompileError, ShapeError
from firebrick.scalar.expr import load

Array = np.ndarray[Any, Any]
SMALL = {"group_size": 16, "tile_m": 16, "tile_n": 16, "tile_k": 4, "rows": 4, "columns": 4, "of": float32}


@HelperFunction
def squared(value: Any) -> Any:
    return value * value


@HelperFunction
def one_more(value: Any) -> Any:
    return value + 1.0


@HelperFunction
def one_more_of(value: Any, other: Any) -> Any:
    return value * other + 1.0


@HelperFunction
def later(a: Any, b: Any) -> Any:
    return a if b == 0.0 else b


def whole(shape: tuple[int, ...], seed: int = 0, dtype: Any = np.float32) -> Array:
    """Small whole numbers, whose sums and products are exact."""
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


def vectors(x: Array, vector: int) -> Array:
    """An array whose last axis is in vectors."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // vector, vector)


def run(t: Template, arrays: list[Array], **constants: Any) -> Array:
    names = [n for n, a in t.signature.arrays.items() if a.role != "Out"]
    program = t.program({n: x.dtype.name for n, x in zip(names, arrays, strict=True)}, **constants)
    return program.interpreted(arrays, {}, checked=True)[0]


@pytest.mark.parametrize("lanes", [1, 8, 32, 64])
def test_rows_of_any_length_are_reduced(lanes: int) -> None:
    constants = {"group_size": 64, "lanes": lanes, "of": float32}
    for rows, columns, vector in ((1, 1, 1), (5, 7, 1), (2, 64, 4), (3, 260, 4), (67, 37, 1), (3, 0, 1)):
        x = whole((rows, columns))
        assert np.array_equal(run(row_reduction(add, 0.0), [vectors(x, vector)], vector=vector, **constants), x.sum(1))


def test_a_reduction_has_a_prologue_and_an_epilogue() -> None:
    x = whole((5, 97))
    found = run(row_reduction(add, 0.0, squared, one_more), [vectors(x, 1)], group_size=64, lanes=64, vector=1, of=float32)
    assert np.array_equal(found, (x * x).sum(1) + 1)


def test_a_prologue_may_be_a_scalar_expression() -> None:
    a, b = load(0, "float32"), load(1, "float32")
    t = row_reduction(InlinedExpression("sum", a + b), 0.0, InlinedExpression("cube", a * a * a))
    assert t is row_reduction(InlinedExpression("sum", a + b), 0.0, InlinedExpression("cube", a * a * a))
    x = whole((3, 20))
    assert np.array_equal(run(t, [vectors(x, 1)], group_size=32, lanes=8, vector=1, of=float32), (x**3).sum(1))
    with pytest.raises(KernelCompileError, match="sum has 2 operands"):
        run(
            row_reduction(add, 0.0, InlinedExpression("sum", a + b)),
            [vectors(x, 1)],
            group_size=32,
            lanes=8,
            vector=1,
            of=float32,
        )


def test_the_largest_number_of_a_row_may_be_nan() -> None:
    x = whole((4, 40), dtype=np.float64)
    x[2, 33] = np.nan
    found = run(row_reduction(larger, -np.inf), [vectors(x, 1)], group_size=128, lanes=64, vector=1, of=float64)
    assert np.array_equal(found, x.max(1), equal_nan=True)


@pytest.mark.parametrize("shape", [(1, 16, 4, 16), (2, 5, 8, 12), (1, 1, 4, 4), (1, 37, 20, 20), (2, 0, 4, 4), (1, 3, 0, 8)])
def test_products_of_vectors_are_those_of_numpy(shape: tuple[int, int, int, int]) -> None:
    batch, m, k, n = shape
    x, y = whole((batch, m, k)), whole((batch, k, n), 1)
    found = run(product(), [vectors(x, 4), vectors(y, 4)], vector=4, **SMALL)
    assert np.array_equal(found.reshape(batch, m, n), x @ y)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 5, 7, 11), (1, 17, 13, 37), (1, 3, 31, 2)])
def test_products_of_any_sizes_are_those_of_numpy(shape: tuple[int, int, int, int]) -> None:
    batch, m, k, n = shape
    x, y = whole((batch, m, k)), whole((batch, k, n), 1)
    found = run(product(), [vectors(x, 1), vectors(y, 1)], vector=1, **SMALL)
    assert np.array_equal(found.reshape(batch, m, n), x @ y)


def test_a_product_has_prologues_of_its_operands_and_an_epilogue() -> None:
    x, y = whole((1, 6, 5)), whole((1, 5, 9), 1)
    t = product(one_more, squared, one_more)
    found = run(t, [vectors(x, 1), vectors(y, 1)], vector=1, **SMALL)
    assert np.array_equal(found.reshape(1, 6, 9), (x + 1) @ (y * y) + 1)


def test_a_product_is_a_chain_of_fused_multiply_adds() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=s).astype(np.float32) for s in ((1, 5, 12), (1, 12, 8)))
    want = np.zeros((1, 5, 8), np.float32)
    for k in range(12):  # a product of float32 is exact in float64, and here the sum rounds once more at most
        exact = x[:, :, k, None].astype(np.longdouble) * y[:, k, None].astype(np.longdouble) + want
        want = exact.astype(np.float32)
    for tile in ({"tile_k": 4}, {"tile_k": 8, "tile_m": 32, "rows": 8, "columns": 4}):
        found = run(product(), [vectors(x, 4), vectors(y, 4)], **SMALL | tile | {"vector": 4})
        assert np.array_equal(found.reshape(1, 5, 8), want)


def test_a_product_of_half_precision_is_summed_in_float32() -> None:
    x, y = whole((1, 5, 8), dtype=np.float16), whole((1, 8, 4), 1, np.float16) / 8
    found = run(product(), [vectors(x, 4), vectors(y, 4)], vector=4, **SMALL)
    assert found.dtype == np.float16
    assert np.array_equal(found.reshape(1, 5, 4), (x.astype(np.float32) @ y.astype(np.float32)).astype(np.float16))


@pytest.mark.parametrize("exclusive", [False, True])
def test_scans_continue_what_comes_before_each_row(exclusive: bool) -> None:
    for rows, columns, vector, size in ((1, 1, 1, 32), (3, 31, 1, 32), (2, 64, 4, 64), (2, 1028, 4, 64), (1, 97, 1, 32)):
        x, start = whole((rows, columns)), whole((rows,), 1)
        t = scan(add, 0.0)
        found = run(t, [vectors(x, vector), start], group_size=size, vector=vector, exclusive=exclusive, of=float32)
        want = np.cumsum(np.concatenate([start[:, None], x], 1), 1)
        assert np.array_equal(found.reshape(rows, columns), want[:, :-1] if exclusive else want[:, 1:])


def test_a_scan_keeps_the_order_of_an_operation_that_does_not_commute() -> None:
    x = whole((1, 300)) * (np.random.default_rng(3).random((1, 300)) < 0.1)
    found = run(scan(later, 0.0), [vectors(x, 1), np.float32([7])], group_size=64, vector=1, exclusive=False, of=float32)
    want, last = [], 7.0
    for v in x[0]:
        last = v if v != 0 else last
        want.append(last)
    assert found.ravel().tolist() == want


def test_a_long_row_is_scanned_in_pieces() -> None:
    x = whole((1, 8 * 96))
    pieces = vectors(x.reshape(8, 96), 4)
    sums = run(row_reduction(add, 0.0), [pieces], group_size=32, lanes=32, vector=4, of=float32)
    constants = {"group_size": 32, "of": float32}
    start = run(scan(add, 0.0), [sums.reshape(1, 8, 1), np.zeros(1, np.float32)], vector=1, exclusive=True, **constants)
    found = run(scan(add, 0.0), [pieces, start.ravel()], vector=4, exclusive=False, **constants)
    assert np.array_equal(found.reshape(1, -1), np.cumsum(x, 1))


def geometry(kernel: tuple[int, int], stride: int, padding: int, dilation: int) -> dict[str, int]:
    found = {"kernel_h": kernel[0], "kernel_w": kernel[1]}
    for what, n in (("stride", stride), ("padding", padding), ("dilation", dilation)):
        found |= {f"{what}_h": n, f"{what}_w": n}
    return found


CONVOLUTIONS = {
    "of one element": (1, 1, 1, 1, 1, (1, 1), 1, 0, 1),
    "of odd sizes": (2, 3, 7, 9, 5, (3, 3), 1, 1, 1),
    "with strides": (2, 2, 11, 8, 17, (3, 2), 2, 1, 1),
    "with dilation": (1, 3, 9, 9, 4, (3, 3), 1, 2, 2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_and_their_gradients_are_those_of_torch(name: str) -> None:
    batch, channels, height, width, outputs, kernel, stride, padding, dilation = CONVOLUTIONS[name]
    constants = SMALL | geometry(kernel, stride, padding, dilation)
    x, w = whole((batch, channels, height, width)), whole((outputs, channels, *kernel), 1)
    leaves = [torch.tensor(a, requires_grad=True) for a in (x, w)]
    y = torch.nn.functional.conv2d(*leaves, stride=stride, padding=padding, dilation=dilation)
    cotangent = whole(tuple(y.shape), 2)
    y.backward(torch.tensor(cotangent))
    found = run(convolution(), [x, w.reshape(outputs, -1)], **constants)
    assert np.array_equal(found.reshape(y.shape), y.detach().numpy())
    program = input_gradient().program({"cotangent": "float32"}, **constants)
    sizes = {"height": height, "width": width}
    by_x = program.interpreted([cotangent, w.reshape(outputs, channels, -1)], sizes, checked=True)[0]
    assert np.array_equal(by_x.reshape(x.shape), leaves[0].grad.numpy())
    for splits in (1, 3):
        by_w = run(weight_gradient(), [cotangent, x], splits=splits, **constants)
        assert np.array_equal(by_w.sum(0).reshape(w.shape), leaves[1].grad.numpy())


def test_a_convolution_has_a_prologue_and_an_epilogue() -> None:
    x, w = whole((1, 2, 5, 5)), whole((3, 2, 3, 3), 1)
    constants = SMALL | geometry((3, 3), 1, 1, 1)
    found = run(convolution(one_more, squared), [x, w.reshape(3, -1)], **constants)  # padding stays 0
    want = torch.nn.functional.conv2d(torch.tensor(x + 1), torch.tensor(w), padding=1).numpy() ** 2
    assert np.array_equal(found.reshape(want.shape), want)


@HelperFunction
def rectified(value: Any, bias: Any) -> Any:
    return max(value + bias, 0.0)


def test_a_product_has_operands_of_its_epilogue() -> None:
    x, y, bias, residual = whole((2, 6, 8)), whole((2, 8, 12), 1), whole((12,), 2), whole((2, 6, 12), 3)
    arrays = [vectors(a, 4) for a in (x, y, bias)]
    found = run(product(epilogue=with_operands(add, bias="n_vectors, vector")), arrays, vector=4, **SMALL)
    assert np.array_equal(found.reshape(2, 6, 12), x @ y + bias)
    t = product(epilogue=with_operands(rectified, bias="n_vectors, vector"))
    assert np.array_equal(run(t, arrays, vector=4, **SMALL).reshape(2, 6, 12), np.maximum(x @ y + bias, 0))
    t = product(epilogue=with_operands(add, residual="batch, m, n_vectors, vector"))
    found = run(t, [*arrays[:2], vectors(residual, 4)], vector=4, **SMALL)
    assert np.array_equal(found.reshape(2, 6, 12), x @ y + residual)


def test_operands_of_a_scalar_expression_are_its_loads_behind_the_element() -> None:
    """As in the results of a Contract, where load(0) is the element of the product."""
    found, scale, number = (load(k, "float32") for k in range(3))
    e = InlinedExpression("scaled", found * scale + number)
    x, y, by_row = whole((1, 5, 8)), whole((1, 8, 4), 1), whole((5,), 2)
    t = product(epilogue=with_operands(e, scale="m", number=""))
    found_out = run(t, [vectors(x, 1), vectors(y, 1), by_row, np.array(7, np.float32)], vector=1, **SMALL)
    assert np.array_equal(found_out.reshape(1, 5, 4), (x @ y) * by_row[:, None] + 7)
    assert t is product(epilogue=with_operands(e, scale="m", number=""))


def test_wrong_operands_of_functions_are_errors() -> None:
    for axes in ("k_vectors, vector", "m, m", "columns"):
        with pytest.raises(ShapeError, match="the axes of an operand are some of batch, m, n_vectors, vector, each once"):
            product(epilogue=with_operands(add, bias=axes))
    for name in ("x", "of"):
        with pytest.raises(KernelCompileError, match="each parameter has a name of its own"):
            product(epilogue=with_operands(add, **{name: "m"}))
    t = product(epilogue=with_operands(rectified, bias="m", more="m"))
    x, by_row = whole((1, 2, 2, 1)), whole((2,))
    with pytest.raises(KernelCompileError, match="rectified has a parameter for an element and 2 operands"):
        run(t, [x, x, by_row, by_row], vector=1, **SMALL)


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# where each digit of one group of keys begins
DIGIT_STARTS = np.searchsorted(np.sort(np.arange(90) * 7 % 16), np.arange(16)).astype(np.int32).reshape(16, 1)
LAUNCHES: dict[str, tuple[Template, list[Array], dict[str, Any]]] = {
    "row reduction": (
        row_reduction(add, 0.0), [drawn(5, 19, 4)], {"group_size": 128, "lanes": 64, "vector": 4, "of": float32}
    ),
    "product": (product(), [drawn(2, 17, 3, 4), drawn(2, 12, 5, 4)], SMALL | {"vector": 4}),
    "product with operands": (
        product(with_operands(one_more_of, by_row="m"), epilogue=with_operands(rectified, bias="n_vectors, vector")),
        [drawn(2, 17, 3, 4), drawn(2, 12, 5, 4), drawn(17), drawn(5, 4)], SMALL | {"vector": 4},
    ),
    "convolution with operands": (
        convolution(epilogue=with_operands(add, residual="batch, outputs, positions")),
        [drawn(2, 3, 5, 6), drawn(5, 27), drawn(2, 5, 30)], SMALL | geometry((3, 3), 1, 1, 1),
    ),
    "convolution": (
        convolution(), [drawn(2, 3, 5, 6), drawn(5, 27)], SMALL | geometry((3, 3), 1, 1, 1)
    ),
    "gradient of a convolution by its weight": (
        weight_gradient(), [drawn(2, 5, 5, 6), drawn(2, 3, 5, 6)], SMALL | geometry((3, 3), 1, 1, 1) | {"splits": 2}
    ),
    "attention": (
        attention(),
        [drawn(1, 18, 7, 1), drawn(1, 19, 7, 1), drawn(1, 19, 5, 1), np.ones((1, 1, 1), np.bool_), np.array(0.5, np.float32)],
        {"group_size": 32, "tile_m": 16, "tile_n": 16, "features": 16, "vector": 1, "causal": True, "of": float32},
    ),
    "segmented scatter": (
        segmented_scatter(add, 0.0),
        [drawn(3, 5), drawn(40, 5), np.random.default_rng(0).permutation(40), np.array([0, 7, 7, 40])],
        {"group_size": 64, "across": 4, "of": float32},
    ),
    "counts of digits": (
        digit_counts(), [np.random.default_rng(0).integers(0, 1 << 32, 150, np.uint32)],
        {"group_size": 64, "each": 2, "shift": 8},
    ),
    "scatter by digits": (
        digit_scatter(), [np.arange(90, dtype=np.uint32) * 7 % 16, np.arange(90, dtype=np.int32), DIGIT_STARTS],
        {"group_size": 32, "each": 3, "shift": 0},
    ),
    "scan": (
        scan(add, 0.0), [drawn(3, 70, 1), drawn(3)], {"group_size": 32, "vector": 1, "exclusive": False, "of": float32}
    ),
}  # fmt: skip
"""Small launches, whose numbers are rounded."""


def launched(name: str) -> tuple[Function, dict[str, Array], LaunchSizes]:
    """A launch's function, its arrays and its sizes."""
    t, arrays, constants = LAUNCHES[name]
    names = [n for n, p in t.signature.given.items() if not isinstance(p, ConstantType)]
    program = t.program({n: x.dtype.name for n, x in zip(names, arrays, strict=True)}, **constants)
    function, sizes = program.translated.function, program.sizes([x.shape for x in arrays], {})
    results = program.prepared(arrays, sizes, lambda a: np.zeros(a.shape, a.dtype.np))
    return function, dict(zip([a.name for a in function.arrays], program.buffers(arrays, results), strict=True)), sizes


@pytest.mark.parametrize("name", LAUNCHES)
def test_lanes_and_threads_have_the_bits_of_the_interpreter(name: str) -> None:
    function, memory, sizes = launched(name)
    want = agree(Compiled(function), memory, sizes.scalars, sizes.grid)
    found = {n: x.copy() for n, x in memory.items()}
    assert threads(function, found, sizes.scalars, sizes.grid) is None
    for n, x in want.items():
        assert np.array_equal(bits(x), bits(found[n])), n


def without(body: tuple[Statement, ...], number: int, seen: list[int]) -> tuple[Statement, ...]:
    """Statements without the barrier of a number."""
    out: list[Statement] = []
    for s in body:
        if isinstance(s, Barrier):
            seen[0] += 1
            if seen[0] - 1 == number:
                continue
        out.append(replace(s, **{name: without(getattr(s, name), number, seen) for name in BLOCKS.get(type(s), ())}))
    return tuple(out)


@pytest.mark.parametrize("name", ["product", "row reduction", "scan", "attention", "scatter by digits"])
def test_each_barrier_of_a_template_is_needed(name: str) -> None:
    function, memory, sizes = launched(name)
    count = sum(isinstance(s, Barrier) for s in statements(function.body))
    assert count > 0
    for number in range(count):
        hasty = replace(function, body=without(function.body, number, [0]))
        with pytest.raises(ExecutionError):
            interpret(hasty, {n: x.copy() for n, x in memory.items()}, sizes.scalars, sizes.grid)
