"""Kernel IR: a function that every work item of a grid executes, as statements over scalar expressions.

A kernel has no size of its own: the sizes of the grid, and the sizes and strides that the statements need, are arguments of a
launch. Items run in any order, or at once, so no item may access an element that another item stores, but by an ``Atomic``.
Expressions are those of ``firebrick.scalar``, with two kinds of leaves: ``local`` is the value of a name, and ``element`` reads
an array. All of a statement's expressions are evaluated before it has an effect, and every ``element`` in them may be read,
whatever a ``select`` chooses: a read that must not happen belongs in an ``If``.

The items of a group (``Function.group``) share arrays and meet at barriers: what an item stores before a ``Barrier`` the others
of its group may access after it. Barriers and shuffles are in uniform control flow: the same statements are executed by all
items of the group, which ``verify`` decides without knowing values (``uniform``).

Each statement may have a ``line``, of the source that it comes from, for messages; equal statements may differ in it.

A local is visible from its ``Let`` to the end of the block that the ``Let`` is in, so every read finds a value. A name that is
visible is not defined again; blocks that do not contain each other may use one name. ``verify`` checks all of this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from firebrick.scalar.expr import Expr, element, local
from firebrick.scalar.storage import computed
from firebrick.scalar.text import shown

ACCESS = ("read", "write", "read_write")


@dataclass(frozen=True, slots=True)
class ArrayParameter:
    """A buffer of elements; ``x[i]`` is the expression that reads one.

    Attributes:
        name: In expressions and stores.
        dtype: In memory, one of ``scalar.storage.STORAGE``. Half precision is float32 in expressions and converted by loads
            and stores.
        access: ``read``, ``write`` or ``read_write``: what the kernel does with it.
        extent: How many elements it has, if every launch has the same number.
    """

    name: str
    dtype: str
    access: str = "read"
    extent: int | None = None

    def __getitem__(self, index: Expr) -> Expr:
        return element(self.name, computed(self.dtype), index)

    def __str__(self) -> str:
        return f"{self.name}: {self.access} {self.dtype}[{'' if self.extent is None else self.extent}]"


@dataclass(frozen=True, slots=True)
class ScalarParameter:
    """A number that is an argument of the launch, such as a size or a stride.

    Attributes:
        name: In expressions.
        dtype: Of the number, one of ``scalar.expr.DTYPES``.
    """

    name: str
    dtype: str = "int64"

    @property
    def value(self) -> Expr:
        """The expression that reads it."""
        return local(self.name, self.dtype)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}"


@dataclass(frozen=True, slots=True)
class SharedArray:
    """Memory that the items of a group have in common; its elements have no value before they are stored.

    Attributes:
        name: In expressions and stores.
        dtype: As of ``ArrayParameter``.
        extent: Number of elements, at least 1.
    """

    name: str
    dtype: str
    extent: int

    def __getitem__(self, index: Expr) -> Expr:
        return element(self.name, computed(self.dtype), index)

    def __str__(self) -> str:
        return f"{self.name}: shared {self.dtype}[{self.extent}]"


@dataclass(frozen=True, slots=True)
class Let:
    """Define a local.

    Attributes:
        name: Not visible so far.
        value: Its first value, which determines its dtype.
    """

    name: str
    value: Expr
    line: str = field(default="", compare=False, kw_only=True)

    @property
    def local(self) -> Expr:
        """The expression that reads it."""
        return local(self.name, self.value.dtype)


@dataclass(frozen=True, slots=True)
class Assign:
    """Give a local another value.

    Attributes:
        name: Of a ``Let``; arguments, counters and the item's index keep their values.
        value: Of the local's dtype.
    """

    name: str
    value: Expr
    line: str = field(default="", compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class For:
    """Execute a block for each value of a counter: start, start + step, … as long as it is below stop.

    Attributes:
        name: Of the counter, int64, visible in the block alone.
        start: int64; evaluated once.
        stop: int64; evaluated once. The counter never wraps around.
        step: Positive.
        body: Statements.
    """

    name: str
    start: Expr
    stop: Expr
    step: int
    body: tuple[Statement, ...]
    line: str = field(default="", compare=False, kw_only=True)

    @property
    def counter(self) -> Expr:
        """The expression that reads the counter."""
        return local(self.name, "int64")


@dataclass(frozen=True, slots=True)
class While:
    """Execute a block as long as a condition holds, which is evaluated before each time.

    Attributes:
        condition: bool.
        body: Statements.
    """

    condition: Expr
    body: tuple[Statement, ...]
    line: str = field(default="", compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class If:
    """Execute one of two blocks.

    Attributes:
        condition: bool.
        then: Statements for true.
        otherwise: Statements for false.
    """

    condition: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...] = ()
    line: str = field(default="", compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Store:
    """Write an element.

    Attributes:
        array: Name of an array that the kernel may write.
        index: int64.
        value: Of the dtype that the array is computed in.
    """

    array: str
    index: Expr
    value: Expr
    line: str = field(default="", compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Check:
    """Report a fault if a condition does not hold; the item continues, so what follows must be safe in either case.

    Of all faults of a launch the one with the smallest site is kept, and of these the smallest payload: the same one
    whatever the order of the items.

    Attributes:
        condition: bool; true if all is well.
        site: Which check of the program it is, at least 0.
        payload: int64; what the error shows, such as the index that was out of range.
    """

    condition: Expr
    site: int
    payload: Expr
    line: str = field(default="", compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Atomic:
    """Read an element, combine it with a value and store the result, as one operation that no other item's comes between.

    The order of the items' operations is not determined; nor is the result ``name``, then, nor the sum of floats.

    Attributes:
        op: One of ``ATOMIC``.
        array: Name of a shared array, or of one that the kernel may read and write, of 32- or 64-bit elements.
        index: int64.
        value: Of the array's dtype.
        name: Of a local that is defined as the element's value before; empty for none.
    """

    op: str
    array: str
    index: Expr
    value: Expr
    name: str = ""
    line: str = field(default="", compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class CompareExchange:
    """Store a value to an element if it has the expected one, as one operation that no other item's comes between.

    Attributes:
        name: Of a local that is defined as the element's value before.
        array: As of ``Atomic``; integers.
        index: int64.
        expected: Of the array's dtype.
        value: Of the array's dtype.
    """

    name: str
    array: str
    index: Expr
    expected: Expr
    value: Expr
    line: str = field(default="", compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Wait until all items of the group are here: what they stored before, to shared arrays and others, all see after."""

    line: str = field(default="", compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Define a local as a value that another item of the group has here; its control flow is uniform.

    Attributes:
        name: Not visible so far.
        value: What each item offers.
        source: Which item's value is taken: its place among the ``width`` items, int64, taken modulo ``width``.
        width: Power of two that divides the group: so many consecutive items exchange values.
    """

    name: str
    value: Expr
    source: Expr
    width: int
    line: str = field(default="", compare=False, kw_only=True)


Statement = Let | Assign | For | While | If | Store | Check | Atomic | CompareExchange | Barrier | Shuffle

ATOMIC = ("add", "min", "max", "and", "or", "xor", "exchange")
"""The operations of ``Atomic``; ``add``, ``min``, ``max`` and ``exchange`` of floats too."""

VALUES: dict[type, tuple[str, ...]] = {
    Let: ("value",), Assign: ("value",), For: ("start", "stop"), While: ("condition",), If: ("condition",),
    Store: ("index", "value"), Check: ("condition", "payload"), Atomic: ("index", "value"),
    CompareExchange: ("index", "expected", "value"), Barrier: (), Shuffle: ("value", "source"),
}  # fmt: skip
"""The fields of each kind of statement that are expressions."""
BLOCKS: dict[type, tuple[str, ...]] = {For: ("body",), While: ("body",), If: ("then", "otherwise")}
"""The fields of a kind of statement that are blocks of statements."""


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel.

    Attributes:
        name: A Python identifier, as all names.
        arrays: Its buffers. They may overlap in memory, as long as no item accesses an element that another item stores.
        scalars: Run-time arguments.
        item: Name of the work item's index along the last axis of the grid, int64: 0 ≤ item < size, and the sizes of the grid
            are arguments of the launch.
        body: What one item does.
        outer: Names of the item's indices along the axes of the grid before the last, int64.
        group: Number of items of a group, which is then the size of the grid's last axis: a group is all items with equal
            ``outer``. 0 for items that have nothing in common.
        shared: The arrays of a group.
        index: The dtype of indices, counters, bounds of loops, places of shuffles and payloads: int64, or int32 in a kernel
            that is legalized for a target without 64-bit integers.
        widened: Whether elements of 8 and 16 bits are read and stored as 32-bit integers of the same value: in a kernel that
            is legalized for a target without such integers.

    Example:
        >>> from firebrick.compiler.kernel import ArrayParameter, Function, ScalarParameter, Store
        >>> from firebrick.scalar.expr import local
        >>> x, y = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "read_write")
        >>> a, i = ScalarParameter("a", "float32"), local("i", "int64")
        >>> print(Function("saxpy", (x, y), (a,), "i", (Store("y", i, a.value * x[i] + y[i]),)))
        kernel saxpy(x: read float32[], y: read_write float32[], a: float32) for item i:
            y[i] = (a * x[i]) + y[i]
    """

    name: str
    arrays: tuple[ArrayParameter, ...]
    scalars: tuple[ScalarParameter, ...]
    item: str
    body: tuple[Statement, ...]
    outer: tuple[str, ...] = ()
    group: int = 0
    shared: tuple[SharedArray, ...] = ()
    index: str = "int64"
    widened: bool = False

    @property
    def memory(self) -> tuple[ArrayParameter | SharedArray, ...]:
        """All arrays: those of the launch, then those of a group."""
        return (*self.arrays, *self.shared)

    def element_dtype(self, array: ArrayParameter | SharedArray) -> str:
        """The dtype in which elements of an array are computed."""
        return WIDENED.get(array.dtype, computed(array.dtype)) if self.widened else computed(array.dtype)

    def __str__(self) -> str:
        parameters = ", ".join(map(str, (*self.arrays, *self.scalars)))
        indices = ", ".join((*self.outer, self.item)) + (f" of a group of {self.group}" if self.group else "")
        lines = [
            f"kernel {self.name}({parameters}) for item {indices}:",
            *(f"    {a}" for a in self.shared),
            *_block(self.body),
        ]
        return "\n".join(lines)


WIDENED = {"int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}
"""The dtypes in which integers of 8 and 16 bits are computed in kernels that are ``widened``."""


def expressions(s: Statement) -> tuple[Expr, ...]:
    """The expressions of a statement, without those of its blocks."""
    return tuple(getattr(s, field) for field in VALUES[type(s)])


def blocks(s: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The blocks of a statement."""
    return tuple(getattr(s, field) for field in BLOCKS.get(type(s), ()))


def statements(body: tuple[Statement, ...]) -> Iterator[Statement]:
    """All statements of a block and of the blocks in it, in the order of the text."""
    for s in body:
        yield s
        for block in blocks(s):
            yield from statements(block)


def loops(body: tuple[Statement, ...]) -> list[For | While]:
    """The loops of a block, in the order of the text."""
    return [s for s in statements(body) if isinstance(s, For | While)]


def assigned(body: tuple[Statement, ...]) -> set[str]:
    """The names that a block assigns to, those of its own locals included."""
    return {s.name for s in statements(body) if isinstance(s, Assign)}


def headline(s: Statement) -> str:
    """A statement's text in one line, without its blocks: for messages."""
    shared, texts = shown(expressions(s))
    where = f"; {'; '.join(shared)}" if shared else ""
    return _head(s, texts) + where


def _head(s: Statement, texts: list[str]) -> str:
    match s:
        case Let():
            return f"let {s.name}: {s.value.dtype} = {texts[0]}"
        case Assign():
            return f"{s.name} = {texts[0]}"
        case For():
            return f"for {s.name} in range({texts[0]}, {texts[1]}, {s.step}):"
        case While():
            return f"while {texts[0]}:"
        case If():
            return f"if {texts[0]}:"
        case Store():
            return f"{s.array}[{texts[0]}] = {texts[1]}"
        case Check():
            return f"check {texts[0]} else fault {s.site} with {texts[1]}"
        case Atomic():
            return (f"let {s.name} = " if s.name else "") + f"atomic {s.op} {s.array}[{texts[0]}], {texts[1]}"
        case CompareExchange():
            return f"let {s.name} = atomic exchange {s.array}[{texts[0]}], {texts[1]} -> {texts[2]}"
        case Barrier():
            return "barrier"
        case Shuffle():
            return f"let {s.name}: {s.value.dtype} = shuffle({texts[0]}, {texts[1]}) among {s.width}"


def _block(body: tuple[Statement, ...]) -> list[str]:
    """The lines of a block; what an expression uses more than once is named in lines ``%1 = …`` in front of the statement."""
    lines: list[str] = []
    for s in body:
        shared, texts = shown(expressions(s))
        inner = blocks(s)
        lines += [*shared, _head(s, texts), *(_block(inner[0]) if inner else [])]
        if len(inner) > 1 and inner[1]:
            lines += ["else:", *_block(inner[1])]
    return ["    " + line for line in lines or ["pass"]]


def identifier(name: str) -> bool:
    """Whether kernels may use a name: letters, digits and underscores of ASCII, no digit first."""
    return name.isascii() and name.isidentifier()
