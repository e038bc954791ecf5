"""The one inversion of the floors: what ``core`` calls and higher floors provide.

``backends`` installs the device lookup, execution and host copies; ``autodiff`` installs recording; ``functions``
installs what operators and methods of ``Tensor`` call. Installing happens once, when those floors are imported: with the names
of the package root, or, where a program imports parts of the package only, when the first hook is called.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from typing import Protocol, TypedDict

    import numpy as np

    from firebrick.core.device import Device
    from firebrick.core.tensor import Tensor

    Array = np.ndarray[Any, Any]

    class _Reduction(Protocol):
        def __call__(self, x: Tensor, /, *, axis: Any, keepdims: bool) -> Tensor: ...

    class Methods(TypedDict):
        """What operators and methods of ``Tensor`` call, and a few functions of higher floors that lower ones need."""

        abs: Callable[[Tensor], Tensor]
        bitwise_invert: Callable[[Tensor], Tensor]
        imag: Callable[[Tensor], Tensor]
        matrix_transpose: Callable[[Tensor], Tensor]
        negative: Callable[[Tensor], Tensor]
        positive: Callable[[Tensor], Tensor]
        real: Callable[[Tensor], Tensor]
        require_grad: Callable[[Tensor], Tensor]
        add: Callable[[Any, Any], Tensor]
        bitwise_and: Callable[[Any, Any], Tensor]
        bitwise_left_shift: Callable[[Any, Any], Tensor]
        bitwise_or: Callable[[Any, Any], Tensor]
        bitwise_right_shift: Callable[[Any, Any], Tensor]
        bitwise_xor: Callable[[Any, Any], Tensor]
        divide: Callable[[Any, Any], Tensor]
        equal: Callable[[Any, Any], Tensor]
        floor_divide: Callable[[Any, Any], Tensor]
        greater: Callable[[Any, Any], Tensor]
        greater_equal: Callable[[Any, Any], Tensor]
        less: Callable[[Any, Any], Tensor]
        less_equal: Callable[[Any, Any], Tensor]
        matmul: Callable[[Any, Any], Tensor]
        multiply: Callable[[Any, Any], Tensor]
        not_equal: Callable[[Any, Any], Tensor]
        pow: Callable[[Any, Any], Tensor]
        remainder: Callable[[Any, Any], Tensor]
        subtract: Callable[[Any, Any], Tensor]
        argmax: _Reduction
        max: _Reduction
        mean: _Reduction
        min: _Reduction
        sum: _Reduction
        astype: Callable[[Tensor, Any], Tensor]
        getitem: Callable[[Tensor, Any], Tensor]
        reshape: Callable[[Tensor, Any], Tensor]
        setitem: Callable[[Tensor, Any, Any], Tensor]
        to_device: Callable[[Tensor, Device | str], Tensor]
        array_function: Callable[[Any, Any, Any], Any]
        array_namespace: Callable[[str | None], Any]
        constant: Callable[[Tensor, str], None]
        dlpack_device: Callable[[Tensor], tuple[int, int]]
        to_dlpack: Callable[..., Any]
        universal: Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Any]
        find_generator: Callable[[Any], Callable[[], Any] | None]


def _install() -> None:
    """Import the floors that fill the slots."""
    import_module("firebrick.namespace")


def _absent(name: str) -> Callable[..., Any]:
    """A slot that is not filled yet: its first call fills all slots."""

    def call(*args: Any, **kwargs: Any) -> Any:
        _install()
        filled = getattr(hooks, name)
        if filled is call:
            raise RuntimeError(f"no floor of firebrick installs the hook {name}")
        return filled(*args, **kwargs)

    return call


class _Methods(dict[str, Callable[..., Any]]):
    """What operators and methods of ``Tensor`` call."""

    def __missing__(self, name: str) -> Callable[..., Any]:
        _install()
        if name not in self:
            raise KeyError(name)
        return self[name]


class Hooks:
    """Slots that higher floors fill.

    Attributes:
        execute: ``(op, inputs, params, avals, out) -> tuple of Tensor``, installed by ``backends.dispatch``.
        record: ``(op, inputs, params, outputs)`` puts a node on the tape, installed by ``autodiff.tape``.
        grad_enabled: ``() -> bool``, installed by ``autodiff.tape``.
        find_device: ``(device | str | None) -> Device``, installed by ``backends.registry``.
        from_host: ``(ndarray, device) -> Tensor`` copies, installed by ``backends.dispatch``.
        to_host: ``(tensor) -> ndarray`` waits and reads, installed by ``backends.dispatch``.
        methods: What operators and methods of ``Tensor`` call, by name (``Methods``), installed by ``functions``.
        levels: The levels of ``fb.vmap`` and ``fb.jvp`` (``core.levels``) that a tensor of this process may belong to, by
            identity. While there is one, every operation takes the general path.
        in_level: ``(op, inputs, params, avals) -> tuple of Tensor or None`` runs an operation of which an operand belongs to
            a level; None if none does. Installed by ``core.levels``.
        tracing: How many traces run in this process. While one does, ``graph.trace`` replaces ``execute``,
            ``from_host`` and ``to_host``, and every operation takes the general path.
        traces: How many traces have begun in this process.
        capture: ``(tensor)`` notifies a running trace that a handle is about to be read or rebound outside of ``bind``.
        trace: ``() -> the trace of this context or None``.
        rebinding: A lock, held while a handle is rebound, so that a trace that begins or ends in another thread meanwhile
            loses no value.
        elsewhere: ``(tensor, storage, dtype, shape, node, slot) -> bool``: if another thread's trace has a handle, makes
            it show this after the trace; called with ``rebinding`` held.
        journals: The journals of rebound handles (``core.journal``) that are kept in this process.
        note: ``(tensor)`` notifies the journal of this context that a handle is about to be rebound.
        note_dict: ``(dict)`` notifies it that a dict is about to change.
        note_draw: ``(generator, before, after)`` notifies it that a generator has moved from one mark to another.
        settings: Grows with every attribute that is set on a module, a parameter, an optimizer or another object whose class is
            ``versioned``.
        version: Grows when a handle changes its shape, dtype or device, when state begins, and when random numbers are seeded.
    """

    __slots__ = (
        "capture", "elsewhere", "execute", "find_device", "from_host", "grad_enabled", "in_level", "journals", "levels",
        "methods", "note", "note_dict", "note_draw", "rebinding", "record", "settings", "to_host", "trace", "traces", "tracing",
        "version",
    )  # fmt: skip

    unwatched = frozenset(__slots__)  # how the process runs, not what a program computes

    def __init__(self) -> None:
        self.execute: Callable[..., Any] = _absent("execute")
        self.record: Callable[..., Any] = _absent("record")
        self.grad_enabled: Callable[[], bool] = _absent("grad_enabled")
        self.find_device: Callable[[Device | str | None], Device] = _absent("find_device")
        self.from_host: Callable[[Array, Device], Tensor] = _absent("from_host")
        self.to_host: Callable[[Tensor], Array] = _absent("to_host")
        self.methods = cast("Methods", _Methods())
        self.in_level: Callable[..., Any] = _absent("in_level")
        self.levels: dict[int, None] = {}
        self.tracing = 0
        self.traces = 0
        self.settings = 0
        self.version = 0
        self.capture: Callable[..., Any] = _absent("capture")
        self.trace: Callable[[], Any] = _absent("trace")
        self.rebinding = RLock()
        self.elsewhere: Callable[..., bool] = _absent("elsewhere")
        self.journals: set[Any] = set()
        self.note: Callable[..., None] = _absent("note")
        self.note_draw: Callable[..., None] = _absent("note_draw")
        self.note_dict: Callable[..., None] = _absent("note_dict")


hooks = Hooks()


def changed(owner: Any, name: str) -> None:
    """An attribute of an object whose class is ``versioned`` has been set, other than by rebinding a tensor."""
    hooks.settings += 1
    if hooks.tracing and (trace := hooks.trace()) is not None:
        trace.note(owner, name)
