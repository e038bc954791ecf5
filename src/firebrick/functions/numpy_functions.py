"""What NumPy's universal functions do with tensors: operators of a NumPy scalar and a tensor compute, all else is refused.

``np.float32(2) * x`` reaches a tensor through NumPy's ``multiply``, so it is computed here as ``x * 2``. A function that is
called by its NumPy name, such as ``np.sin(x)``, would compute on the host, outside of gradients and graphs; the error names
Firebrick's function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from firebrick.core.errors import OperandError
from firebrick.core.operands import describe
from firebrick.core.other_names import FUNCTIONS
from firebrick.core.tensor import Tensor
from firebrick.functions import complex, elementwise, linear

_MODULES = (elementwise, linear, complex)

OPERATORS = {
    "add": "add", "subtract": "subtract", "multiply": "multiply", "divide": "divide", "true_divide": "divide",
    "floor_divide": "floor_divide", "remainder": "remainder", "power": "pow", "matmul": "matmul", "equal": "equal",
    "not_equal": "not_equal", "less": "less", "less_equal": "less_equal", "greater": "greater",
    "greater_equal": "greater_equal", "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor", "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift",
}  # fmt: skip
"""The functions of NumPy that operators of its scalars and arrays call, with the names here."""

REFLECTED = {
    "less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal", "equal": "equal",
    "not_equal": "not_equal",
}  # fmt: skip
"""What Python calls of the second operand of a comparison."""

SAME = {"absolute": "abs", "conjugate": "conj", "float_power": "pow"}


def universal(ufunc: Any, method: str, inputs: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    """What ``Tensor.__array_ufunc__`` returns.

    Raises:
        OperandError: It is no operator of a NumPy scalar or array and a tensor.
    """
    name = ufunc.__name__
    written = settings.get("out")  # `array += x`
    in_place = written is not None and len(written) == 1 and written[0] is inputs[0] and len(settings) == 1
    if method == "__call__" and (not settings or in_place) and any(isinstance(v, (np.generic, np.ndarray)) for v in inputs):
        if name == "divmod":
            return tuple(_function(n)(*inputs) for n in ("floor_divide", "remainder"))
        if name in REFLECTED and not isinstance(inputs[0], Tensor):
            first = inputs[0][()] if isinstance(inputs[0], np.ndarray) and not inputs[0].ndim else inputs[0]
            return _function(REFLECTED[name])(inputs[1], first)  # NumPy makes an array of a scalar that it compares
        if name in OPERATORS:
            return _function(OPERATORS[name])(*inputs)
    tensor = next((v for v in (*inputs, *(written or ())) if isinstance(v, Tensor)), None)
    shown = describe("x", tensor) if tensor is not None else ""
    arrays = ", ".join(f"{n}.numpy()" for n in ("x", "y")[: ufunc.nin])
    raise OperandError(
        f"np.{name} takes NumPy arrays",
        shown,
        f"{_written(name, ufunc.nin)}np.{name}({arrays}) of NumPy arrays",
        op=f"np.{name}",
    )


def _written(name: str, operands: int) -> str:
    """What to write here for a function of NumPy, where there is one."""
    here = OPERATORS.get(name) or SAME.get(name) or name
    if any(hasattr(module, here) for module in _MODULES):
        return f"write fb.{here}({', '.join('xy'[:operands])}), or "
    return f"write {FUNCTIONS[name]}, or " if name in FUNCTIONS else ""


def _function(name: str) -> Callable[..., Any]:
    """A public function by its name."""
    return next(getattr(module, name) for module in _MODULES if hasattr(module, name))  # type: ignore[no-any-return]


COMPARING = frozenset({np.array_equal, np.array_equiv, np.allclose})
"""Functions whose results have no gradient; two of them take an error in reading an operand for a difference."""


def array_function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``Tensor.__array_function__`` returns: that of the values of tensors, which NumPy reads.

    Raises:
        GradientError: A tensor is differentiated, and the function is no comparison.
    """
    if function in COMPARING:
        args, kwargs = _values(args), _values(kwargs)
    return function._implementation(*args, **kwargs)


def _values(tree: Any) -> Any:
    """Nested arguments with the values of tensors."""
    if isinstance(tree, Tensor):
        return tree.numpy()
    if type(tree) in (list, tuple):
        return type(tree)(map(_values, tree))
    return {k: _values(v) for k, v in tree.items()} if type(tree) is dict else tree
