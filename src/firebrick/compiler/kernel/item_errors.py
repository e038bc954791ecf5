"""Errors of one item of a launch: ``ItemErrors`` reports them with the statement, its line and the item's indices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from firebrick.compiler.kernel.ir import Function, Statement, headline
from firebrick.core.errors import ExecutionError, OutOfRangeError


@dataclass(frozen=True, slots=True)
class ItemErrors:
    """A launch whose items are reported.

    Attributes:
        function: Its kernel.
        grid: Its sizes.
    """

    function: Function
    grid: tuple[int, ...]

    def item(self, number: int) -> str:
        """The indices of an item, as text."""
        indices = np.unravel_index(int(number), self.grid)
        return str(int(indices[0])) if len(indices) == 1 else f"({', '.join(str(int(i)) for i in indices)})"

    def fail(
        self, kind: type[OutOfRangeError] | type[ExecutionError], s: Statement, number: int, expected: str, received: str,
        remedy: str,
    ) -> NoReturn:  # fmt: skip
        """Raise the error of an item.

        Args:
            kind: Of the error.
            s: What the item executes.
            number: Of the item in the grid, in row-major order.
            expected: What the rule is.
            received: What the item does.
            remedy: What to change.

        Raises:
            OutOfRangeError: If that is the kind.
            ExecutionError: If that is the kind.
        """
        f, text = self.function, headline(s)
        where = f"item {self.item(number)}, in `{text}`" + (f" at {s.line}" if s.line else "")
        context = {"kernel": f.name, "statement": text, "item": int(number), "indices": self.item(number)}
        if s.line:
            context["line"] = s.line
        raise kind(f"kernel {f.name}: {expected}", f"{where}: {received}", remedy, **context)
