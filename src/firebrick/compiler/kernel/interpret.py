"""The NumPy interpreter of kernel IR: what a kernel means, in its own dtypes, with every access checked.

All items run together: each statement is executed for the items that reach it, an array operation over them. That is one of
the orders that a target may choose, and the same as any other, because an access to an element that another item stores is
refused. It shares nothing with the targets but the scalar expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from firebrick.compiler.kernel.arguments import check_arrays, numbers
from firebrick.compiler.kernel.ir import (
    Assign,
    Check,
    For,
    Function,
    If,
    Let,
    Statement,
    Store,
    While,
    headline,
)
from firebrick.compiler.kernel.verify import verify
from firebrick.compiler.spec.faults import Fault, first_fault
from firebrick.core.errors import ExecutionError, OutOfRangeError
from firebrick.scalar.expr import Expr, Number, load, walk
from firebrick.scalar.interpret import evaluate
from firebrick.scalar.storage import HALVES, decode, encode

Array = np.ndarray[Any, Any]
LIMIT = 1_000_000
"""How often the interpreter executes the block of one ``While`` before it takes the loop for an endless one."""
_NOBODY, _SEVERAL = -1, -2


def interpret(
    function: Function, arrays: Mapping[str, Array], scalars: Mapping[str, Number], grid: int, limit: int = LIMIT
) -> Fault | None:
    """Run all items of a kernel.

    Args:
        function: Kernel.
        arrays: A one-dimensional array for each of its arrays, of the same dtype; stores change them.
        scalars: A number for each of its scalars.
        grid: Number of items.
        limit: How often a loop of the kernel is executed at most.

    Returns:
        The fault that a launch reports, or None.

    Raises:
        KernelCompileError: The kernel breaks a rule of kernel IR.
        LaunchError: The arguments are not those of the kernel.
        OutOfRangeError: An item accesses an element that an array does not have.
        ExecutionError: An item accesses an element that another item stores, or a loop passes the limit.

    Example:
        >>> import numpy as np
        >>> from firebrick.compiler.kernel import ArrayParameter, Function, Store, interpret
        >>> from firebrick.scalar.expr import local
        >>> x, i = ArrayParameter("x", "int64", "read_write"), local("i", "int64")
        >>> data = np.arange(4)
        >>> interpret(Function("square", (x,), (), "i", (Store("x", i, x[i] * x[i]),)), {"x": data}, {}, 4)
        >>> data
        array([0, 1, 4, 9])
    """
    verify(function)
    check_arrays(function, arrays, grid)
    run = _Run(function, arrays, grid, limit)
    run.values.update((name, np.broadcast_to(value, grid)) for name, value in numbers(function, scalars).items())
    run.values[function.item] = np.arange(grid, dtype=np.int64)
    run.block(function.body, np.arange(grid, dtype=np.int64))
    return run.fault


class _Run:
    """One launch.

    Attributes:
        values: For each name its value in every item; of items that did not define it, anything.
        fault: The first fault so far.
    """

    def __init__(self, function: Function, arrays: Mapping[str, Array], grid: int, limit: int) -> None:
        self.function, self.arrays, self.grid, self.limit = function, arrays, grid, limit
        self.values: dict[str, Array] = {}
        self.fault: Fault | None = None
        # which item read or stored each element, of the arrays where one could disturb another
        stored = [a for a in function.arrays if a.access != "read"]
        self._writers = {a.name: np.full(arrays[a.name].size, _NOBODY) for a in stored}
        self._readers = {a.name: np.full(arrays[a.name].size, _NOBODY) for a in stored if a.access == "read_write"}

    def block(self, body: tuple[Statement, ...], items: Array) -> None:
        """Execute statements for some items."""
        for s in body:
            if items.size:
                self._statement(s, items)

    def _statement(self, s: Statement, items: Array) -> None:
        match s:
            case Let() | Assign():
                self._set(s.name, self._value(s, s.value, items), items)
            case Store():
                self._store(s, items)
            case Check():
                self._check(s, items)
            case If():
                holds = self._value(s, s.condition, items)
                self.block(s.then, items[holds])
                self.block(s.otherwise, items[~holds])
            case While():
                self._while(s, items)
            case For():
                self._for(s, items)

    def _value(self, s: Statement, e: Expr, items: Array) -> Array:
        """An expression's value in each of some items."""
        found = {str(x.value): self.values[str(x.value)][items] for x in walk([e]) if x.op == "local"}
        value = evaluate([e], locals=found, element=lambda x, at: self._read(s, x, at, items))[0]
        return np.broadcast_to(value, items.shape)

    def _set(self, name: str, value: Array, items: Array) -> None:
        if name not in self.values or self.values[name].dtype != value.dtype:
            self.values[name] = np.zeros(self.grid, value.dtype)
        self.values[name][items] = value

    def _read(self, s: Statement, e: Expr, at: Array, items: Array) -> Array:
        name = str(e.value)
        array, at = self.arrays[name], np.broadcast_to(at, items.shape)
        self._inside(s, name, at, items)
        if name in self._readers:
            others = self._writers[name][at]
            self._apart(s, name, at, items, (others != _NOBODY) & (others != items), "reads", others)
            readers = self._readers[name]
            marks = np.where((readers[at] == _NOBODY) | (readers[at] == items), items, _SEVERAL)
            readers[at] = marks
            readers[at[readers[at] != marks]] = _SEVERAL  # items of this statement that read one element
        dtype = array.dtype.name
        if dtype in HALVES:
            return evaluate([decode(load(0, "uint16"), dtype)], [array.view(np.uint16)[at]])[0]
        return np.asarray(array[at])

    def _store(self, s: Store, items: Array) -> None:
        array, name = self.arrays[s.array], s.array
        at, value = self._value(s, s.index, items), self._value(s, s.value, items)
        self._inside(s, name, at, items)
        for marks in (self._writers[name], self._readers.get(name)):
            if marks is not None:
                others = marks[at]
                self._apart(s, name, at, items, (others != _NOBODY) & (others != items), "stores to", others)
        writers = self._writers[name]
        writers[at] = items
        self._apart(s, name, at, items, writers[at] != items, "stores to", writers[at])
        dtype = array.dtype.name
        if dtype in HALVES:
            array.view(np.uint16)[at] = evaluate([encode(load(0, "float32"), dtype)], [value])[0]
        else:
            array[at] = value

    def _check(self, s: Check, items: Array) -> None:
        bad = ~self._value(s, s.condition, items)
        payload = self._value(s, s.payload, items)
        if bad.any():
            self.fault = first_fault(self.fault, Fault(s.site, int(payload[bad].min())))

    def _while(self, s: While, items: Array) -> None:
        for _ in range(self.limit):
            items = items[self._value(s, s.condition, items)]
            if not items.size:
                return
            self.block(s.body, items)
        self._raise(
            ExecutionError, s, int(items[0]), f"a loop ends after at most {self.limit:,} rounds", "one that goes on",
            "correct its condition, or raise the limit",
        )  # fmt: skip

    def _for(self, s: For, items: Array) -> None:
        counter, stop = self._value(s, s.start, items), self._value(s, s.stop, items)
        while True:
            more = counter < stop
            items, counter, stop = items[more], counter[more], stop[more]
            if not items.size:
                return
            self._set(s.name, counter, items)
            self.block(s.body, items)
            ends = counter > np.iinfo(np.int64).max - s.step  # it would wrap around, which is beyond every stop
            counter = np.where(ends, stop, counter + np.where(ends, 0, s.step))

    def _inside(self, s: Statement, name: str, at: Array, items: Array) -> None:
        size = self.arrays[name].size
        bad = (at < 0) | (at >= size)
        if bad.any():
            first = int(np.argmax(bad))
            self._raise(
                OutOfRangeError, s, int(items[first]), f"an index of {name} is at least 0 and below {size}",
                f"index {at[first]}", "correct the index, or put the access into an If",
            )  # fmt: skip

    def _apart(self, s: Statement, name: str, at: Array, items: Array, bad: Array, verb: str, others: Array) -> None:
        """Refuse an access to an element that another item accesses too, one of the two storing it."""
        if bad.any():
            first = int(np.argmax(bad))
            other = "several other items access" if others[first] == _SEVERAL else f"item {others[first]} accesses"
            self._raise(
                ExecutionError, s, int(items[first]), "an element that an item stores is accessed by that item alone",
                f"it {verb} {name}[{at[first]}], which {other} too", "let one item do both, or use another array",
            )  # fmt: skip

    def _raise(
        self, kind: type[OutOfRangeError] | type[ExecutionError], s: Statement, item: int, expected: str, received: str,
        remedy: str,
    ) -> NoReturn:  # fmt: skip
        text = headline(s)
        where = f"item {item}, in `{text}`: {received}"
        raise kind(
            f"kernel {self.function.name}: {expected}", where, remedy, kernel=self.function.name, statement=text, item=item
        )
