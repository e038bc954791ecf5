"""The errors of a kernel's checks: indices out of range, assertions that do not hold, loops that do not end."""

from __future__ import annotations

from firebrick.compiler.kernel.ir import For, Function, loops
from firebrick.core.config import config
from firebrick.core.errors import ExecutionError, OutOfRangeError


def index_error(kernel: str, array: str, axis: int, size: int | str, line: str, index: int | str) -> OutOfRangeError:
    """The error of an index out of range.

    Args:
        kernel: Name of the kernel.
        array: Name of the array.
        axis: Which of its axes.
        size: Of the axis.
        line: Of the user's function.
        index: The index, or a bound of it.
    """
    return OutOfRangeError(
        f"{kernel}: an index of axis {axis} of {array} is at least 0 and below {size}", f"{index}, at {line}",
        "correct the index, or test it with if", op=kernel, line=line,
    )  # fmt: skip


def assertion_error(kernel: str, message: str, line: str) -> ExecutionError:
    """The error of an assertion that does not hold.

    Args:
        kernel: Name of the kernel.
        message: Of the assertion.
        line: Of the user's function.
    """
    return ExecutionError(
        f"{kernel}: {message}", f"an item for which this does not hold, at {line}", "correct the arguments",
        op=kernel, line=line,
    )  # fmt: skip


def loop_lines(function: Function) -> tuple[tuple[str, bool], ...]:
    """The line of each loop of a kernel, and whether it counts, by its number among ``ir.loops``."""
    return tuple((s.line, isinstance(s, For)) for s in loops(function.body))


def limit_error(kernel: str, loop: tuple[str, bool]) -> ExecutionError:
    """The error of a loop that passes the limit of rounds.

    Args:
        kernel: Name of the kernel.
        loop: Its line, and whether it counts.
    """
    line, counted = loop
    return ExecutionError(
        f"{kernel}: a loop {'has' if counted else 'ends after'} at most {config.kernel_loop_limit:,} rounds",
        f"one of more, at {line}" if counted else f"one that goes on, at {line}",
        f"correct its {'bounds' if counted else 'condition'}, or raise fb.config.kernel_loop_limit", op=kernel, line=line,
    )  # fmt: skip
