"""``Parameter`` and ``Buffer``: the tensors of a module, told apart from other tensors and from each other by type.

Both are handles whose identity lasts: an optimizer's update, ``load_state_dict`` and ``to`` rebind them, so every module
that shares one sees the change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from firebrick.core.errors import DTypeError
from firebrick.core.hooks import changed, hooks
from firebrick.core.operands import describe, not_a_tensor
from firebrick.core.tensor import Tensor


class Parameter(Tensor):
    """A tensor that training changes.

    Args:
        value: Floating tensor; the parameter is an untracked handle on its values.
        frozen: Whether it is excluded from gradients and updates.
        label: Name in error messages; that of the value by default.

    Raises:
        DTypeError: The dtype is not floating.
        OperandError: The value is no tensor.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Parameter(fb.zeros(2)).frozen
        False
    """

    __slots__ = ("_frozen",)
    _title = "Parameter"

    def __init__(self, value: Tensor, *, frozen: bool = False, label: str | None = None) -> None:
        _check("Parameter", value)
        if value.dtype.kind != "float":
            raise DTypeError("a parameter has a floating dtype", describe("value", value), "keep other tensors in nn.Buffer")
        super().__init__(value.storage, value.dtype, value.shape, value.device, label or value.label)
        self._frozen = frozen

    @property
    def frozen(self) -> bool:
        """Whether it is excluded from gradients and updates."""
        return self._frozen

    @frozen.setter
    def frozen(self, on: bool) -> None:
        self._frozen = on
        changed(self, "frozen")

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, frozen)" if self._frozen else super().__repr__()

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        copy = type(self)(self.detach(), frozen=self.frozen)
        if self._lasting:
            copy.require_grad()
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return _parameter, (np.array(self.numpy()), self.device, self.label, self.frozen, self._lasting, type(self))

    def _optimized_by(self, name: str, optimizer: Any) -> None:
        """Raise an error if an optimizer that is made for a list of parameters cannot train this one."""


class Buffer(Tensor):
    """A tensor of a module that belongs to its state but that training does not change by gradients.

    Args:
        value: Tensor of any dtype; the buffer is an untracked handle on its values.
        label: Name in error messages; that of the value by default.

    Raises:
        OperandError: The value is no tensor.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.Buffer(fb.asarray([1, 2])).tolist()
        [1, 2]
    """

    __slots__ = ()
    _title = "Buffer"

    def __init__(self, value: Tensor, *, label: str | None = None) -> None:
        _check("Buffer", value)
        super().__init__(value.storage, value.dtype, value.shape, value.device, label or value.label)

    def __deepcopy__(self, memo: dict[int, Any]) -> Buffer:
        copy = Buffer(self.detach())
        if self._lasting:
            copy.require_grad()
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        return _buffer, (np.array(self.numpy()), self.device, self.label, self._lasting)


def _check(kind: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise not_a_tensor(kind, "value", value, None)


def _parameter(
    values: np.ndarray[Any, Any], device: Any, label: str | None, frozen: bool, lasting: bool = False,
    kind: type[Parameter] = Parameter,
) -> Parameter:  # fmt: skip
    made = kind(hooks.from_host(values, device), frozen=frozen, label=label)
    if lasting:
        made.require_grad()
    return made


def _buffer(values: np.ndarray[Any, Any], device: Any, label: str | None, lasting: bool = False) -> Buffer:
    made = Buffer(hooks.from_host(values, device), label=label)
    if lasting:
        made.require_grad()
    return made
