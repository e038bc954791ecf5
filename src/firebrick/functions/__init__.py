"""The public functions: names of the Array API standard, and those of neural networks, over the op table."""

from firebrick.core.hooks import hooks
from firebrick.functions import creation, elementwise, linear, movement, neural, reductions

# what Tensor's operators and methods call
hooks.methods.update(
    {
        name: getattr(elementwise, name)
        for name in (
            "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "pow", "negative", "positive", "abs",
            "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or",
            "logical_xor", "logical_not", "astype",
        )
    }
)  # fmt: skip
hooks.methods.update({n: getattr(reductions, n) for n in ("sum", "mean", "max", "min", "argmax")})
hooks.methods.update({n: getattr(movement, n) for n in ("reshape", "matrix_transpose", "to_device", "getitem", "setitem")})
hooks.methods.update(matmul=linear.matmul)
hooks.methods.update({n: getattr(creation, n) for n in ("to_dlpack", "dlpack_device", "array_namespace")})

__all__ = ["creation", "elementwise", "linear", "movement", "neural", "reductions"]
