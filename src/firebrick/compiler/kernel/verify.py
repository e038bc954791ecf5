"""The rules of kernel IR, checked before a kernel is interpreted or printed: names, dtypes, access, constant indices, groups.

Every error shows the statement with its line, what is expected and what to do. The rules of barriers are in ``barriers``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from firebrick.compiler.kernel.barriers import divergence, mixture
from firebrick.compiler.kernel.ir import (
    ACCESS,
    ATOMIC,
    BLOCKS,
    VALUES,
    ArrayParameter,
    Assign,
    Atomic,
    Barrier,
    Check,
    CompareExchange,
    For,
    Function,
    If,
    Let,
    SharedArray,
    Shuffle,
    Statement,
    Store,
    While,
    headline,
    identifier,
    statements,
)
from firebrick.core.errors import KernelCompileError
from firebrick.scalar.expr import DTYPES, FLOATS, Expr, walk
from firebrick.scalar.storage import STORAGE

_POSITIONAL = ("load", "index", "gather", "bounded", "reduce")
"""Nodes whose meaning is the position of a kernel that walks a shape; kernel IR has names, and ``Check`` for bounds."""
# fields of statements that are conditions, and those that have the dtype of indices; others depend on what the name stands for
_CONDITIONS = frozenset({(While, "condition"), (If, "condition"), (Check, "condition")})
_INDICES = frozenset({
    (For, "start"), (For, "stop"), (Store, "index"), (Check, "payload"), (Atomic, "index"), (CompareExchange, "index"),
    (Shuffle, "source"),
})  # fmt: skip
_WORDS = ("int32", "int64", "uint32", "uint64")
_ATOMIC_DTYPES = dict.fromkeys(ATOMIC, _WORDS) | dict.fromkeys(("add", "min", "max", "exchange"), (*_WORDS, *FLOATS))
"""The dtypes of each operation of ``Atomic``."""


def verify(function: Function, texts: Mapping[tuple[str, type[Statement]], str] | None = None) -> None:
    """Check a kernel.

    Args:
        function: Kernel to check.
        texts: Statements as a user wrote them, by their line and kind, for messages.

    Raises:
        KernelCompileError: It breaks a rule of kernel IR.
    """
    _Verifier(function, texts or {}).check()


def check_plain(function: Function) -> None:
    """Refuse a kernel that is legalized for a target without some dtypes, where the target has all of them.

    Args:
        function: Kernel.

    Raises:
        KernelCompileError: Its indices are int32, or its small integers have 32 bits.
    """
    if function.index != "int64" or function.widened:
        raise KernelCompileError(
            f"kernel {function.name}: this target has integers of 8 to 64 bits", "a kernel that is legalized for another one",
            "compile the kernel that was legalized", kernel=function.name,
        )  # fmt: skip


class _Verifier:
    """What is known of a kernel while its statements are checked in order.

    Attributes:
        visible: The dtype of each name that has a value here.
        mutable: The names among these that may be assigned to.
    """

    def __init__(self, function: Function, texts: Mapping[tuple[str, type[Statement]], str]) -> None:
        self.function, self.texts = function, texts
        self.arrays: dict[str, ArrayParameter | SharedArray] = {}
        self.visible: dict[str, str] = {}
        self.mutable: set[str] = set()

    def check(self) -> None:
        f = self.function
        if f.index not in ("int64", "int32"):
            self._refuse("indices are int64, or int32", repr(f.index), "take one of these")
        if type(f.widened) is not bool:
            self._refuse("widened is a bool", repr(f.widened), "pass True or False")
        if not identifier(f.name):
            self._refuse("a kernel's name is made of letters, digits and underscores", repr(f.name), "rename the kernel")
        for a in f.arrays:
            self._name(a.name, "the parameter")
            if a.dtype not in STORAGE:
                self._refuse(f"the elements of an array are {', '.join(STORAGE)}", str(a), "take another dtype")
            if a.access not in ACCESS:
                self._refuse(f"the access of an array is {', '.join(ACCESS)}", f"{a.name}: {a.access!r}", "take one of these")
            if a.extent is not None and (type(a.extent) is not int or a.extent < 0):
                self._refuse("the extent of an array is a number of elements, or None", str(a), "pass an int of at least 0")
            self.arrays[a.name] = a
        for s in f.scalars:
            self._name(s.name, "the parameter")
            if s.dtype not in DTYPES:
                self._refuse(f"a scalar argument is {', '.join(DTYPES)}", str(s), "take another dtype")
            self.visible[s.name] = s.dtype
        if not isinstance(f.outer, tuple):
            self._refuse("outer indices are a tuple of names", repr(f.outer)[:200], "pass a tuple")
        for name in f.outer:
            self._name(name, "an outer index")
            self.visible[name] = f.index
        self._name(f.item, "the item's index")
        self.visible[f.item] = f.index
        self._group()
        self._block(f.body)
        self._barriers()

    def _group(self) -> None:
        f = self.function
        if type(f.group) is not int or f.group < 0:
            self._refuse("a group is a number of items, or 0 for none", repr(f.group), "pass an int of at least 1")
        if f.shared and not f.group:
            text = ", ".join(map(str, f.shared))
            self._refuse("arrays are shared by the items of a group", f"{text}, and no group", "give the kernel a group")
        for a in f.shared:
            self._name(a.name, "the shared array")
            if a.dtype not in STORAGE:
                self._refuse(f"the elements of an array are {', '.join(STORAGE)}", str(a), "take another dtype")
            if type(a.extent) is not int or a.extent < 1:
                self._refuse("the extent of a shared array is a number of elements", str(a), "pass an int of at least 1")
            self.arrays[a.name] = a

    def _barriers(self) -> None:
        """Rules of the whole body, whose statements are right one by one."""
        found = divergence(self.function)
        if found is not None:
            s, around = found
            text = self.texts.get((around.line, type(around))) or headline(around)
            what = "its bounds vary" if isinstance(around, For) else "its condition varies"
            self._refuse(
                f"all items of a group execute a {type(s).__name__}, or none",
                f"one inside `{text}`{_at(around)}, where {what} between items of a group,",
                "move it out of the block, or make the block depend on arguments, outer indices and uniform elements of arrays"
                " that are only read", s,
            )  # fmt: skip
        mixed = mixture(self.function)
        if mixed is not None:
            s, name = mixed
            self._refuse(
                "an array is accessed either by atomics or plainly between two barriers", f"both, of {name},",
                "put a Barrier between the accesses, or let two kernels do it, or access it by atomics only", s,
            )  # fmt: skip

    def _block(self, body: tuple[Statement, ...]) -> None:
        """Check the statements of a block; what it defines is not visible after it."""
        visible, mutable = dict(self.visible), set(self.mutable)
        if not isinstance(body, tuple):
            self._refuse("a block is a tuple of statements", type(body).__name__, "pass a tuple")
        for s in body:
            if type(s) not in VALUES:
                self._refuse(f"a statement is {', '.join(k.__name__ for k in VALUES)}", repr(s)[:200], "use one of these")
            self._statement(s)
        self.visible, self.mutable = visible, mutable

    def _statement(self, s: Statement) -> None:
        for field in VALUES[type(s)]:
            e = getattr(s, field)
            self._expression(s, e)
            place = type(s), field
            want = "bool" if place in _CONDITIONS else self.function.index if place in _INDICES else e.dtype
            if e.dtype != want:
                self._refuse(f"the {field} of {type(s).__name__} is {want}", e.dtype, f"cast it to {want}", s)
        match s:
            case Let():
                self._define(s, s.name, s.value.dtype)
                self.mutable.add(s.name)
            case Assign():
                self._assign(s)
            case Store():
                self._store(s)
            case Check() if type(s.site) is not int or s.site < 0:
                self._refuse("the site of Check is a number of at least 0", repr(s.site), "number the sites from 0", s)
            case Atomic():
                self._atomic(s)
            case CompareExchange():
                array = self._word(s, "CompareExchange", _WORDS)
                self._same(s, array, s.expected)
                self._same(s, array, s.value)
                self._define(s, s.name, s.value.dtype)
            case Barrier() | Shuffle():
                self._of_group(s)
            case For() if type(s.step) is not int or not 0 < s.step < 1 << 63:
                self._refuse(
                    "the step of For is a positive constant", repr(s.step),
                    "count upwards, and compute a falling index from the counter", s,
                )  # fmt: skip
        outside = dict(self.visible)
        if isinstance(s, For):
            self._define(s, s.name, self.function.index)
        for field in BLOCKS.get(type(s), ()):
            self._block(getattr(s, field))
        self.visible = outside

    def _assign(self, s: Assign) -> None:
        if s.name not in self.visible:
            self._refuse("what is assigned to was defined before, in this block or around it", self._where(s.name), _LET, s)
        if s.name not in self.mutable:
            self._refuse(
                "arguments, counters, indices and results of atomics and shuffles keep their values",
                f"an assignment to {s.name}", "define a local with Let and assign to that", s,
            )  # fmt: skip
        if s.value.dtype != self.visible[s.name]:
            self._refuse(f"{s.name} is {self.visible[s.name]}", s.value.dtype, "cast the value", s)

    def _store(self, s: Store) -> None:
        array = self._array(s, s.array, "write", "written")
        self._inside(s, array, s.index)
        want = self.function.element_dtype(array)
        if s.value.dtype != want:
            self._refuse(f"an element of {array} is stored from {want}", s.value.dtype, f"cast the value to {want}", s)

    def _atomic(self, s: Atomic) -> None:
        if s.op not in ATOMIC:
            self._refuse(f"an atomic operation is {', '.join(ATOMIC)}", repr(s.op), "take one of these", s)
        array = self._word(s, f"atomic {s.op}", _ATOMIC_DTYPES[s.op])
        self._same(s, array, s.value)
        if s.name != "":
            self._define(s, s.name, s.value.dtype)

    def _word(self, s: Atomic | CompareExchange, what: str, dtypes: tuple[str, ...]) -> ArrayParameter | SharedArray:
        """The array of an atomic operation."""
        array = self._array(s, s.array, "write", "accessed by atomics")
        if isinstance(array, ArrayParameter) and array.access != "read_write":
            self._refuse(
                "an array that is accessed by atomics has access read_write", str(array), f"declare {s.array} as read_write", s
            )
        if array.dtype not in dtypes:
            self._refuse(f"the elements of {what} are {', '.join(dtypes)}", str(array), "take another dtype", s)
        self._inside(s, array, s.index)
        return array

    def _same(self, s: Statement, array: ArrayParameter | SharedArray, value: Expr) -> None:
        if value.dtype != array.dtype:
            text = f"the operands of an atomic operation have the dtype of {array}"
            self._refuse(text, value.dtype, f"cast the value to {array.dtype}", s)

    def _of_group(self, s: Barrier | Shuffle) -> None:
        group = self.function.group
        if not group:
            self._refuse(f"{type(s).__name__} is between the items of a group", "no group", "give the kernel a group", s)
        if isinstance(s, Shuffle):
            if type(s.width) is not int or s.width < 1 or s.width & (s.width - 1) or group % s.width:
                self._refuse(
                    f"the width of Shuffle is a power of two that divides the group of {group}", repr(s.width),
                    "take another width, or another group", s,
                )  # fmt: skip
            self._define(s, s.name, s.value.dtype)

    def _expression(self, s: Statement, root: Expr) -> None:
        if not isinstance(root, Expr):
            self._refuse(f"{type(s).__name__} is made of expressions", repr(root)[:200], "make one with const(…)", None)
        for e in walk([root]):
            if e.op in _POSITIONAL:
                self._refuse(
                    "kernel IR reads local(name) and element(array, index)", f"{e.op}[{e.value}]",
                    "replace what depends on a position by index arithmetic, and bounded by a Check", s,
                )  # fmt: skip
            if e.op == "local":
                self._local(s, e)
            elif e.op == "element":
                array = self._array(s, str(e.value), "read", "read")
                self._inside(s, array, e.args[0])
                if e.args[0].dtype != self.function.index:
                    self._refuse(f"an index is {self.function.index}", e.args[0].dtype, f"cast it to {self.function.index}", s)
                want = self.function.element_dtype(array)
                if e.dtype != want:
                    self._refuse(f"an element of {array} is read as {want}", e.dtype, f"read it as {want} and cast that", s)

    def _local(self, s: Statement, e: Expr) -> None:
        name = str(e.value)
        if name not in self.visible:
            self._refuse("a name is defined before it is read, in this block or around it", self._where(name), _LET, s)
        if e.dtype != self.visible[name]:
            self._refuse(f"{name} is {self.visible[name]}", f"a read as {e.dtype}", "read it in its dtype and cast that", s)

    def _where(self, name: str) -> str:
        defined = Let | For | Atomic | CompareExchange | Shuffle
        elsewhere = any(isinstance(s, defined) and s.name == name for s in statements(self.function.body))
        return f"{name}, which has no value here" + (", but is defined in another place" if elsewhere else "")

    def _array(self, s: Statement, name: str, access: str, done: str) -> ArrayParameter | SharedArray:
        array = self.arrays.get(name)
        if array is None:
            known = ", ".join(self.arrays) or "none"
            shared = " or shared" if self.function.group else ""
            self._refuse(f"arrays are parameters of the kernel{shared}: {known}", str(name), "add it to the parameters", s)
        if isinstance(array, ArrayParameter) and access not in array.access.split("_"):
            self._refuse(
                f"an array that is {done} has access {access} or read_write", str(array), f"declare {name} as read_write", s
            )
        return array

    def _inside(self, s: Statement, array: ArrayParameter | SharedArray, index: Expr) -> None:
        """Refuse a constant index that no launch can have."""
        if index.op == "const":
            at = int(index.value or 0)
            if at < 0 or (array.extent is not None and at >= array.extent):
                size = "its number of elements" if array.extent is None else array.extent
                self._refuse(f"an index of {array.name} is at least 0 and below {size}", str(at), "correct the index", s)

    def _define(self, s: Statement, name: str, dtype: str) -> None:
        self._name(name, "the name", s)
        self.visible[name] = dtype
        self.mutable.discard(name)

    def _name(self, name: str, what: str, s: Statement | None = None) -> None:
        if not identifier(name):
            self._refuse(f"{what} is made of letters, digits and underscores", repr(name), "choose another name", s)
        if name in self.visible or name in self.arrays:
            self._refuse(f"{what} is not in use already", name, "choose another name, or Assign to the one there is", s)

    def _refuse(self, expected: str, received: str, remedy: str, s: Statement | None = None) -> NoReturn:
        context: dict[str, str] = {"kernel": str(self.function.name)}
        if s is not None:
            context["statement"] = _text(s)
            received = f"{received} in `{context['statement']}`{_at(s)}"
            if s.line:
                context["line"] = s.line
        raise KernelCompileError(f"kernel {self.function.name}: {expected}", received, remedy, **context)


_LET = "define it with Let before, outside of the loop or branch if it is used after it"


def _at(s: Statement) -> str:
    return f" at {s.line}" if s.line else ""


def _text(s: Statement) -> str:
    try:
        return headline(s)
    except (AttributeError, TypeError):  # a field is no expression
        return type(s).__name__
