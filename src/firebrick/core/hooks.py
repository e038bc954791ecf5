"""The one inversion of the floors: what ``core`` calls and higher floors provide.

``backends`` installs the device lookup, execution and host copies; ``autodiff`` installs recording; ``functions``
installs what operators and methods of ``Tensor`` call. Installing happens once, when the package is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _absent(*_: Any, **__: Any) -> Any:
    raise RuntimeError("firebrick.core is not usable alone: import firebrick")


class Hooks:
    """Slots that higher floors fill.

    Attributes:
        execute: ``(op, inputs, params, avals, out) -> tuple of Tensor``, installed by ``backends.dispatch``.
        record: ``(op, inputs, params, outputs)`` puts a node on the tape, installed by ``autodiff.tape``.
        grad_enabled: ``() -> bool``, installed by ``autodiff.tape``.
        find_device: ``(device | str | None) -> Device``, installed by ``backends.registry``.
        from_host: ``(ndarray, device) -> Tensor`` copies, installed by ``backends.dispatch``.
        to_host: ``(tensor) -> ndarray`` waits and reads, installed by ``backends.dispatch``.
        methods: What operators and methods of ``Tensor`` call, by name, installed by ``functions``.
    """

    __slots__ = ("execute", "find_device", "from_host", "grad_enabled", "methods", "record", "to_host")

    def __init__(self) -> None:
        self.execute: Callable[..., Any] = _absent
        self.record: Callable[..., Any] = _absent
        self.grad_enabled: Callable[[], bool] = _absent
        self.find_device: Callable[..., Any] = _absent
        self.from_host: Callable[..., Any] = _absent
        self.to_host: Callable[..., Any] = _absent
        self.methods: dict[str, Callable[..., Any]] = {}


hooks = Hooks()
