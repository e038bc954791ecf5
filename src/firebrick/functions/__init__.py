"""The public functions: names of the Array API standard, and those of neural networks, over the op table."""

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
    searching,
    statistical,
)

# what Tensor's operators and methods call
hooks.methods.update(
    {
        name: getattr(elementwise, name)
        for name in (
            "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "pow", "negative", "positive", "abs",
            "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
            "logical_xor", "logical_not", "astype", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert",
            "bitwise_left_shift", "bitwise_right_shift",
        )
    }
)  # fmt: skip
hooks.methods.update(real=complex.real, imag=complex.imag)
hooks.methods.update({n: getattr(statistical, n) for n in ("sum", "mean", "max", "min")})
hooks.methods.update({n: getattr(movement, n) for n in ("reshape", "matrix_transpose", "to_device")})
hooks.methods.update({n: getattr(indexing, n) for n in ("getitem", "setitem")})
hooks.methods.update(matmul=linear.matmul, argmax=searching.argmax)
hooks.methods.update({n: getattr(conversion, n) for n in ("to_dlpack", "dlpack_device")})

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
