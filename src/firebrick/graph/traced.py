"""``Traced``: the data of a storage inside a trace, and the errors for reading its value."""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any

from firebrick.core.errors import DataDependentError, ExecutionError, LeakedTracerError
from firebrick.core.lines import VALUE_ASKED, method_called, user_line
from firebrick.core.storage import Absent

if TYPE_CHECKING:
    from firebrick.graph.trace import Trace

_PATIENCE = 600.0  # seconds another thread's trace is waited for


class Traced(Absent):
    """The data of a storage inside a trace: value ``number`` of it, made at a line of the user's program."""

    __slots__ = ("line", "number", "trace")

    def __init__(self, trace: Trace, number: int, line: str) -> None:
        self.trace, self.number, self.line = trace, number, line

    def shown(self) -> str:
        return f"<value {self.number} of {self.trace.name}>"

    def why(self, tensor: Any = None) -> Exception | None:
        trace = self.trace
        if trace.running and trace.within():
            trace.root.refused = _needs_value(tensor)
            return trace.root.refused
        if trace.running and trace.thread != get_ident() and tensor is not None:
            if not trace.finished.wait(_PATIENCE):
                return ExecutionError(
                    f"a trace of {trace.name} must end before its tensors are used elsewhere",
                    f"it has run for {_PATIENCE:.0f} s",
                    "remove waits from the traced function",
                )
            if tensor.storage.data is not self:
                return None
        if tensor is not None and tensor.storage.data is not self:  # the trace has just ended
            return None
        return LeakedTracerError(
            f"a tensor made while {trace.name} was traced is used outside of it, where it has no value",
            f"made at {self.line}, used at {user_line()}",
            f"return it from {trace.name}, instead of keeping it in a list, an attribute or a global",
        )


def _needs_value(tensor: Any) -> Exception:
    asked = method_called(VALUE_ASKED) or "reading it"
    shown = "a tensor" if tensor is None else f"{tensor.aval}" + (f" ({tensor.label})" if tensor.label else "")
    if asked.startswith(("a size", "int")):
        remedy = "pass the number as a Python int named in static_argnames, or use fb.scan or fb.while_loop for a loop"
    elif asked.startswith("if"):
        remedy = "use fb.where or fb.cond for a branch, fb.while_loop for a loop, or a static argument (static_argnames=…)"
    else:
        remedy = "return the tensor and read it after the call, or do this part outside jit"
    return DataDependentError(
        f"{asked} needs the value of a tensor while the graph is made, when there are no values yet",
        f"{shown} at {user_line()}",
        remedy,
    )
