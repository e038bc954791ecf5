"""What can go wrong, as types: every error says what was expected, what was received and what to do.

Errors carry their facts in ``context`` (plain strings and numbers), pickle between processes, and derive from the
built-in exception that a NumPy user would catch.
"""

from __future__ import annotations

from typing import Any


class FirebrickError(Exception):
    """Base of all errors that Firebrick raises.

    Args:
        expected: What the call needs.
        received: What it was given (operand, dtype[shape], device, label).
        remedy: What to change.
        context: Further facts, kept under ``error.context``.
    """

    def __init__(self, expected: str, received: str = "", remedy: str = "", **context: Any) -> None:
        self.expected, self.received, self.remedy, self.context = expected, received, remedy, context
        lines = [expected]
        if received:
            lines.append(f"Received: {received}.")
        if remedy:
            lines.append(f"Remedy: {remedy}.")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.expected, self.received, self.remedy, self.context)


def _rebuild(kind: type[FirebrickError], expected: str, received: str, remedy: str, context: dict[str, Any]) -> Any:
    return kind(expected, received, remedy, **context)


class ShapeError(FirebrickError, ValueError):
    """Shapes are incompatible."""


class DTypeError(FirebrickError, TypeError):
    """An operand's dtype is not accepted, has no common dtype with another, or cannot be stored on the device."""


class OperandError(FirebrickError, TypeError):
    """An operand is no Firebrick tensor."""


class ArgumentError(FirebrickError, TypeError):
    """A call has an argument that the function does not take; the text names the one that it has instead."""


class DeviceMismatchError(FirebrickError, ValueError):
    """Operands of one operation lie on more than one device."""


class DeviceError(FirebrickError, ValueError):
    """A device is unknown, absent or not usable."""


class OutOfRangeError(FirebrickError, IndexError):
    """An index or label lies outside its axis."""


class LinAlgError(FirebrickError, ValueError):
    """A matrix is singular, not positive definite or not finite where it must not be."""


class UnsupportedError(FirebrickError, NotImplementedError):
    """The engine, or Firebrick itself, cannot do what was asked."""


class GradientError(FirebrickError, RuntimeError):
    """A gradient does not exist, or its graph was freed."""


class ConfigError(FirebrickError, ValueError):
    """A setting has an unknown name or value."""


class GraphError(FirebrickError, ValueError):
    """A graph breaks a rule that every graph keeps, or its text cannot be read."""


class ExecutionError(FirebrickError, RuntimeError):
    """An engine failed while running an operation."""


class OutOfMemoryError(ExecutionError, MemoryError):
    """A device has not enough memory for an allocation; the message lists the largest live ones."""


class KernelCompileError(ExecutionError):
    """A kernel did not compile."""


class LaunchError(ExecutionError):
    """A kernel could not be started."""


class DeviceLostError(ExecutionError):
    """A device is no longer available."""


class CollectiveTimeoutError(ExecutionError):
    """A collective operation waited too long for one of its ranks, or one of them is gone; the message names it."""


class CollectiveMismatchError(FirebrickError, ValueError):
    """The ranks of a group called a collective operation with incompatible operands."""


class TraceError(FirebrickError, RuntimeError):
    """A function cannot be traced into a graph."""


class DataDependentError(TraceError):
    """Python needs the value of a tensor while a graph is made, when there are no values yet."""


class LeakedTracerError(TraceError):
    """A tensor of a trace is used after the trace, or outside it."""


class StateChangedError(TraceError):
    """A function under ``jit`` changed something that a graph cannot carry out."""


class BudgetWarning(UserWarning):
    """A backward pass exceeded the budget of ``fb.checkpointing(budget=…)``."""


class FallbackWarning(UserWarning):
    """An operation ran on the host because its engine lacks it."""
