"""``legalized``: a kernel for a target that lacks dtypes or operations, with the same results.

Expressions are rewritten by the rules of ``scalar.legalize``. Without 64-bit integers, indices, counters and sizes are int32,
and a local is an int32 if all values that it is ever given fit (``Intervals``), else two locals, its lower and its upper word.
Indices beyond 2³¹ are clamped there, where no array has an element, and so are payloads. Without integers of 8 and 16 bits,
locals have 32 bits, and elements are read and stored as 32-bit integers: how they are packed in memory is up to the target, as
it is for half precision.

What cannot be had is refused by name: arrays of float64 and of 64-bit integers, sizes that may be large, loops that may be
longer than a driver executes them, more shared memory than there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NoReturn

from firebrick.compiler.kernel.intervals import Interval, Intervals
from firebrick.compiler.kernel.ir import (
    WIDENED,
    Assign,
    Atomic,
    Check,
    CompareExchange,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    SharedArray,
    Shuffle,
    Statement,
    Store,
    While,
    expressions,
    statements,
)
from firebrick.compiler.kernel.shorter_loops import shorter_loops
from firebrick.compiler.kernel.verify import check_plain, verify
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import DTypeError, UnsupportedError
from firebrick.scalar.capabilities import Capabilities
from firebrick.scalar.expr import Expr, bitcast, rewritten, walk
from firebrick.scalar.legalize import legalize_values
from firebrick.scalar.rewrite import made
from firebrick.scalar.wide import WIDE, Bounds, KnownNames, Words, as_pair, bounds_of, fits_int32, saturated

_INSTEAD = {"float64": "float32", "int64": "int32", "uint64": "uint32"}


def legalized(function: Function, capabilities: Capabilities, bounds: Mapping[str, Bounds]) -> Function:
    """A kernel that uses only what a target has, with the same results.

    Args:
        function: Kernel.
        capabilities: The target's capabilities.
        bounds: What is known of the launches that it is for: the least and greatest number of each scalar, of each index of the
            grid, and of elements of each array, by name. The index of an item in a group is known, and the elements of an
            array with an extent.

    Returns:
        The kernel, with the same arrays and scalars in the same order. Scalars of 64 bits are int32.

    Raises:
        DTypeError: An array or an expression has a dtype that the target does not have.
        UnsupportedError: A size, a loop, a group or shared memory may be too large for the target.

    Example:
        >>> from firebrick.compiler.kernel.ir import ArrayParameter, Function, ScalarParameter, Store
        >>> from firebrick.compiler.kernel.legalized import legalized
        >>> from firebrick.scalar.capabilities import CONSERVATIVE_GPU
        >>> from firebrick.scalar.expr import local
        >>> x, n, i = ArrayParameter("x", "int32", "read_write"), ScalarParameter("n"), local("i", "int64")
        >>> shifted = Function("shifted", (x,), (n,), "i", (Store("x", i, x[i + n.value]),))
        >>> small = {"x": (0, 99), "n": (0, 9), "i": (0, 89)}
        >>> print(legalized(shifted, CONSERVATIVE_GPU, small))
        kernel shifted(x: read_write int32[], n: int32) for item i:
            x[i] = x[i + n]
    """
    verify(function)
    check_plain(function)
    known = dict(bounds)
    if function.group:
        known[function.item] = 0, function.group - 1
    _check(function, capabilities, known)
    if capabilities.loop_iterations is not None:
        function = shorter_loops(function, capabilities.loop_iterations, known)
    found = _Legalizer(function, capabilities, known).function()
    verify(found)
    return found


def _check(function: Function, c: Capabilities, known: Mapping[str, Bounds]) -> None:
    """Refuse what no rewriting helps with."""
    missing = {d for d, there in (("float64", c.float64), ("int64", c.int64), ("uint64", c.int64)) if not there}
    for a in function.memory:
        if a.dtype in missing:
            raise DTypeError(
                f"kernel {function.name}: this target has no {a.dtype}", str(a),
                f'pass {a.name}.astype("{_INSTEAD[a.dtype]}"), or run the kernel on a device that has it', kernel=function.name,
            )  # fmt: skip
    for s in function.scalars:
        if s.dtype == "float64" and s.dtype in missing:
            _refuse(function, "this target has no float64", str(s), "make it a float32")
    if function.group > c.group_items > 1:
        _refuse(function, f"groups of at most {c.group_items} items", str(function.group), "write a smaller group")
    shared = sum(_bytes(a) for a in function.shared)
    if shared > c.shared_bytes:
        _refuse(function, f"at most {c.shared_bytes:,} bytes of shared arrays", f"{shared:,}", "share smaller arrays")
    if c.buffers is not None and len(function.arrays) > c.buffers:
        _refuse(function, f"at most {c.buffers} arrays", f"{len(function.arrays)}", "put several arrays into one")
    if c.int64:
        return
    for name in [s.name for s in function.scalars if s.dtype in WIDE] + [*function.outer, function.item]:
        found = known.get(name)
        if found is None or not fits_int32(found):
            text = "not known" if found is None else f"from {found[0]:,} to {found[1]:,}"
            _refuse(function, f"sizes below 2³¹, as this target has 32-bit indices only: {name}", text, "launch smaller parts")
    for a in function.arrays:
        count = (0, a.extent) if a.extent is not None else known.get(a.name)
        if count is None or not fits_int32(count):
            text = "a number that is not known" if count is None else f"{count[1]:,}"
            _refuse(function, f"arrays of less than 2³¹ elements, as this target has 32-bit indices only: {a.name}", text,
                    "split the array along an axis")  # fmt: skip


def _bytes(a: SharedArray) -> int:
    return a.extent * as_dtype(a.dtype).itemsize


def _refuse(function: Function, expected: str, received: str, remedy: str) -> NoReturn:
    raise UnsupportedError(f"kernel {function.name}: {expected}", received, remedy, kernel=function.name)


class _Legalizer:
    """Rewrites a kernel, statement by statement."""

    def __init__(self, function: Function, capabilities: Capabilities, known: Mapping[str, Bounds]) -> None:
        self._function, self._capabilities = function, capabilities
        self._taken = {a.name for a in function.memory} | {s.name for s in function.scalars}
        self._taken |= {function.item, *function.outer, *(str(getattr(s, "name", "")) for s in statements(function.body))}
        self._words: dict[str, tuple[str, str]] = {}
        self._at: Iterator[Interval] | None = None
        if not capabilities.int64:
            intervals = Intervals(function, known)
            self._at = iter(intervals)
            for s in statements(function.body):
                if not isinstance(s, Let | Shuffle) or s.value.dtype not in WIDE or s.name in self._words:
                    continue
                if not fits_int32(intervals.whole.get(s.name, (0, 0))):
                    self._words[s.name] = self._fresh(f"{s.name}_low"), self._fresh(f"{s.name}_high")

    def _fresh(self, stem: str) -> str:
        name, count = stem, 1
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._taken.add(name)
        return name

    def function(self) -> Function:
        """The kernel."""
        f, c = self._function, self._capabilities
        scalars = tuple(ScalarParameter(s.name, self._dtype(s.dtype)) for s in f.scalars)
        body = self._block(f.body)
        return replace(
            f, scalars=scalars, body=body, index="int64" if c.int64 else "int32", widened=not c.narrow_integers
        )  # fmt: skip

    def _dtype(self, dtype: str) -> str:
        if dtype in WIDE and not self._capabilities.int64:
            return "int32"
        return dtype if self._capabilities.narrow_integers else WIDENED.get(dtype, dtype)

    def _block(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(new for s in body for new in self._statement(s))

    def _statement(self, s: Statement) -> list[Statement]:
        now = {} if self._at is None else next(self._at)
        try:
            values = self._values(expressions(s), now)
        except (DTypeError, UnsupportedError) as e:
            where = f", at {s.line}" if s.line else ""
            context = {**e.context, "kernel": self._function.name, "line": s.line}
            expected = f"kernel {self._function.name}: {e.expected}"
            raise type(e)(expected, f"{e.received}{where}", e.remedy, **context) from None
        match s:
            case Let():
                return list(self._let(s, values[0]))
            case Assign():
                return self._assign(s, values[0])
            case For():
                return [self._for(s, values, now)]
            case While():
                return [replace(s, condition=_one(values[0]), body=self._block(s.body))]
            case If():
                return [
                    replace(
                        s, condition=_one(values[0]), then=self._block(s.then), otherwise=self._block(s.otherwise)
                    )
                ]  # fmt: skip
            case Store():
                return [replace(s, index=saturated(values[0]), value=_one(values[1]))]
            case Check():
                return [replace(s, condition=_one(values[0]), payload=saturated(values[1]))]
            case Atomic():
                return [replace(s, index=saturated(values[0]), value=_one(values[1]))]
            case CompareExchange():
                return [replace(s, index=saturated(values[0]), expected=_one(values[1]), value=_one(values[2]))]
            case Shuffle():
                return self._shuffle(s, values)
        return [s]

    def _values(self, roots: Sequence[Expr], now: Interval) -> tuple[Expr | Words, ...]:
        used = dict.fromkeys(str(e.value) for e in walk(roots) if e.op == "local")
        bounds = tuple((name, now[name]) for name in used if name in now)
        words = tuple((name, self._words[name]) for name in used if name in self._words)
        return _legalized(tuple(roots), self._capabilities, bounds, words)

    def _let(self, s: Let, value: Expr | Words) -> Iterator[Statement]:
        words = self._words.get(s.name) if s.value.dtype in WIDE else None
        if words is None:
            yield Let(s.name, _as_one(value), line=s.line)
            return
        pair = as_pair(value)
        for name, word in zip(words, (pair.low, pair.high), strict=True):
            yield Let(name, word, line=s.line)

    def _assign(self, s: Assign, value: Expr | Words) -> list[Statement]:
        words = self._words.get(s.name) if s.value.dtype in WIDE else None
        if words is None:
            return [Assign(s.name, _as_one(value), line=s.line)]
        pair = as_pair(value)
        # both words are computed before one of them changes
        lets = [Let(self._fresh(f"{s.name}_next"), word, line=s.line) for word in (pair.low, pair.high)]
        return [*lets, *(Assign(name, let.local, line=s.line) for name, let in zip(words, lets, strict=True))]

    def _for(self, s: For, values: Sequence[Expr | Words], now: Interval) -> Statement:
        if not self._capabilities.int64:
            found = [bounds_of([e], (), now)[e] for e in (s.start, s.stop)]
            if not all(map(fits_int32, found)):
                where = f", at {s.line}" if s.line else ""
                _refuse(
                    self._function, "a loop counts below 2³¹, as this target has 32-bit indices only",
                    f"one from {found[0][0]:,} to {found[1][1]:,}{where}", "count less far, or in two loops",
                )  # fmt: skip
        return replace(s, start=_as_one(values[0]), stop=_as_one(values[1]), body=self._block(s.body))

    def _shuffle(self, s: Shuffle, values: Sequence[Expr | Words]) -> list[Statement]:
        value, source = values
        at = bitcast(source.low, "int32") if isinstance(source, Words) else source  # modulo a power of two
        words = self._words.get(s.name) if s.value.dtype in WIDE else None
        if words is None:
            return [replace(s, value=_as_one(value), source=at)]
        pair = as_pair(value)
        return [replace(s, name=n, value=v, source=at) for n, v in zip(words, (pair.low, pair.high), strict=True)]


@lru_cache(maxsize=1024)  # kernels have many statements in common, such as those that compute positions
def _legalized(
    roots: tuple[Expr, ...],
    capabilities: Capabilities,
    bounds: tuple[tuple[str, Bounds], ...],
    words: tuple[tuple[str, tuple[str, str]], ...],
) -> tuple[Expr | Words, ...]:
    """The values of a statement, as the functions of expressions make them; bounds and words are of names in it."""
    values = legalize_values(roots, capabilities, (), KnownNames(dict(bounds), dict(words)))
    flat = [e for x in values for e in ((x.low, x.high) if isinstance(x, Words) else (x,))]
    rest = iter(rewritten(flat, lambda e, args: made(e.op, e.dtype, args, e.value)))
    return tuple(Words(next(rest), next(rest)) if isinstance(x, Words) else next(rest) for x in values)


def _as_one(x: Expr | Words) -> Expr:
    """A value that fits in one number."""
    return bitcast(x.low, "int32") if isinstance(x, Words) else x


def _one(x: Expr | Words) -> Expr:
    assert not isinstance(x, Words), "a condition, or a value of an array's dtype"
    return x
