"""The public functions: names of the Array API standard, and those of neural networks, over the op table."""

import firebrick.graph as _graph  # noqa: F401  before its parts
from firebrick.core.hooks import hooks
from firebrick.functions import (
    activation,
    complex,
    conversion,
    creation,
    elementwise,
    indexing,
    linear,
    losses,
    movement,
    normalisation,
    numpy_functions,
    registrations,
    searching,
    statistical,
)

# what Tensor's operators and methods call
hooks.methods.update(
    {
        "abs": elementwise.abs,
        "add": elementwise.add,
        "argmax": searching.argmax,
        "astype": elementwise.astype,
        "bitwise_and": elementwise.bitwise_and,
        "bitwise_invert": elementwise.bitwise_invert,
        "bitwise_left_shift": elementwise.bitwise_left_shift,
        "bitwise_or": elementwise.bitwise_or,
        "bitwise_right_shift": elementwise.bitwise_right_shift,
        "bitwise_xor": elementwise.bitwise_xor,
        "divide": elementwise.divide,
        "array_function": numpy_functions.array_function,
        "constant": conversion.check_constant,
        "dlpack_device": conversion.dlpack_device,
        "equal": elementwise.equal,
        "floor_divide": elementwise.floor_divide,
        "getitem": indexing.getitem,
        "greater": elementwise.greater,
        "greater_equal": elementwise.greater_equal,
        "imag": complex.imag,
        "less": elementwise.less,
        "less_equal": elementwise.less_equal,
        "matmul": linear.matmul,
        "matrix_transpose": movement.matrix_transpose,
        "max": statistical.max,
        "mean": statistical.mean,
        "min": statistical.min,
        "multiply": elementwise.multiply,
        "negative": elementwise.negative,
        "not_equal": elementwise.not_equal,
        "positive": elementwise.positive,
        "pow": elementwise.pow,
        "real": complex.real,
        "remainder": elementwise.remainder,
        "reshape": movement.reshape,
        "setitem": indexing.setitem,
        "subtract": elementwise.subtract,
        "sum": statistical.sum,
        "to_device": movement.to_device,
        "to_dlpack": conversion.to_dlpack,
        "universal": numpy_functions.universal,
    }
)
registrations.register()

__all__ = [
    "activation",
    "complex",
    "conversion",
    "creation",
    "elementwise",
    "indexing",
    "linear",
    "losses",
    "movement",
    "normalisation",
    "searching",
    "statistical",
]
