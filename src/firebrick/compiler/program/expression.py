"""``Kernel``: a node of a graph on an engine, as a Python expression over its operands.

An engine chooses a node's kernel once, when a graph is compiled and op, shapes, dtypes and parameters are known. A call then
evaluates one expression, in most cases a call of the engine's library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ROWS, KEPT, ANY = "rows", "kept", "any"


@dataclass(frozen=True, slots=True)
class Kernel:
    """The expression of a node.

    Attributes:
        expr: Python text. ``{0}``, ``{1}``, … are the operands, other names in braces are those of ``names``. Its value is
            the node's result, or a tuple of its results.
        names: Objects of the other names. Numbers, None and tuples of them are written into the program as they are.
        into: The same expression with its result in ``{out}``, an array of the result's shape and dtype whose old values
            are lost; None where the kernel has no such form.
        first: Like ``into``, for the case that ``{out}`` is the first operand; ``into`` by default.
        elementwise: Whether ``{out}`` may be an operand: each element of the result depends on that element alone.
        outs: The form of a kernel with several results, each of which may be written over something: ``{out0}``, ``{out1}``, …
            are arrays like in ``into``, or None for a new one. What it returns counts: it may refuse an array. Empty for native
            kernels, whose results are written over something in segments only.
        over: For each result of ``outs``, the operands that ``{out…}`` may be.
        layout: The order of the result's elements in memory: ``"rows"``, row-major; ``"kept"``, so if the operands' are;
            ``"any"``.
        scratch: Bytes that it allocates in addition to operands and results while it runs, if known.
        faults: Whether it raises for some values of its operands: then it runs before anything donated is overwritten.
    """

    expr: str
    names: dict[str, Any] = field(default_factory=dict)
    into: str | None = None
    first: str | None = None
    elementwise: bool = True
    outs: str | None = None
    over: tuple[frozenset[int], ...] = ()
    layout: str = ANY
    scratch: int = 0
    faults: bool = False

    @property
    def writes(self) -> bool:
        """Whether it can write over a dead value."""
        return self.into is not None or self.first is not None or self.outs is not None


def call(function: Callable[..., Any], operands: int, params: dict[str, Any], layout: str = ANY, scratch: int = 0) -> Kernel:
    """The kernel that calls ``function`` with all operands and parameters."""
    args = [f"{{{i}}}" for i in range(operands)]
    args += [f"{name}={{p_{name}}}" for name in params]
    return Kernel(
        f"{{f}}({', '.join(args)})",
        {"f": function, **{f"p_{name}": value for name, value in params.items()}},
        layout=layout,
        scratch=scratch,
    )


def kernel_function(kernel: Kernel, operands: int) -> Callable[..., Any]:
    """A kernel as a function of its operands."""
    args = [f"a{i}" for i in range(operands)]
    space = {f"n_{name}": value for name, value in kernel.names.items()}
    text = kernel.expr.format(*args, **{name: f"n_{name}" for name in kernel.names})
    found: Callable[..., Any] = eval(f"lambda {', '.join(args)}: {text}", space)
    return found
