"""``x.item`` without its call: arithmetic, comparisons and formats of the method itself are answered by ``x.item()``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from firebrick.core.errors import OperandError

_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_OPERATORS = (
    *(f"__{n}__" for n in _BINARY), *(f"__r{n}__" for n in _BINARY), "__lt__", "__le__", "__gt__", "__ge__", "__neg__",
    "__abs__", "__float__", "__int__", "__round__", "__getitem__",
)  # fmt: skip


class Method:
    """A method that returns a value, whose use without a call raises.

    Args:
        function: The method as it is written in its class.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self._function if owner is None else _Bound(self._function, owner)


class _Bound(partial[Any]):
    """The method of one object."""

    def _uncalled(self, *_: Any) -> NoReturn:
        name, owner = self.func.__name__, self.args[0]
        raise OperandError(
            f"{name} is a method, and a number is what its call returns",
            f"x.{name} of x: {owner.dtype.name}[{','.join(map(str, owner.shape))}]",
            f"write x.{name}()",
            op=name,
        )

    def __format__(self, spec: str) -> str:
        if spec:
            self._uncalled()
        return repr(self)

    def __repr__(self) -> str:
        return f"<method {self.func.__qualname__}: call it>"


for _name in _OPERATORS:
    setattr(_Bound, _name, _Bound._uncalled)
