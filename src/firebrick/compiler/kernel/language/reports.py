"""The errors of a kernel's checks: indices out of range, assertions that do not hold, loops that do not end."""

from __future__ import annotations

from collections.abc import Sequence

from firebrick.compiler.kernel.ir import Function, While, statements
from firebrick.core.config import config
from firebrick.core.errors import ExecutionError, OutOfRangeError


def index_error(kernel: str, array: str, axis: int, size: int | str, line: str, index: int) -> OutOfRangeError:
    """The error of an index out of range.

    Args:
        kernel: Name of the kernel.
        array: Name of the array.
        axis: Which of its axes.
        size: Of the axis.
        line: Of the user's function.
        index: The index.
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


def loop_lines(function: Function) -> tuple[str, ...]:
    """The lines of a kernel's while loops."""
    return tuple(dict.fromkeys(s.line for s in statements(function.body) if isinstance(s, While)))


def endless_error(kernel: str, lines: Sequence[str]) -> ExecutionError:
    """The error of a loop that passes the limit of rounds.

    Args:
        kernel: Name of the kernel.
        lines: Of the loops that it may be.
    """
    return ExecutionError(
        f"{kernel}: a while loop ends after at most {config.kernel_loop_limit:,} rounds",
        f"one that goes on, at {' or '.join(lines)}", "correct its condition, or raise fb.config.kernel_loop_limit",
        op=kernel, line=lines[0] if len(lines) == 1 else None,
    )  # fmt: skip
