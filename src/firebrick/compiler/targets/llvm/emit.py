"""Scalar expressions as LLVM IR text: each node one or a few instructions on vectors of a given number of lanes."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from hashlib import blake2b

from firebrick.compiler.spec.faults import FIRST_PAYLOAD, LARGEST_INDEX, LARGEST_SITE
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.elements import philox_word
from firebrick.scalar.expr import BITS, COMPARISONS, FLOATS, SIGNED, Expr, bitcast, by_magic, const, eq, load, ne, select
from firebrick.scalar.rewrite import made

_INTEGER = {
    "add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor",
}  # fmt: skip
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
REPORT = "firebrick_report"
_INTRINSIC = {
    "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundeven", "abs": "fabs",
    "copysign": "copysign",
}  # fmt: skip
_OF_KERNEL = ("load", "index", "local", "reduce", "gather", "element", "bounded", "philox")
INLINE = 4
"""Number of equal slow operands of `rarely` that are written into a kernel; further ones call a function."""


class Code:
    """The text of one function: lines, fresh names, and the declarations it needs."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.slow_paths: Counter[Expr] = Counter()  # operands of `rarely`, on numbered arguments → how often they occur
        self.block = "entry"
        self._count = 0

    def fresh(self, stem: str = "v") -> str:
        """An unused name, without its sigil."""
        self._count += 1
        return f"{stem}{self._count}"

    def put(self, instruction: str) -> str:
        """Append an instruction that has a result; returns the result's name."""
        name = f"%{self.fresh()}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def call(self, result: str, name: str, *args: tuple[str, str]) -> str:
        """Call and declare ``name`` with (type, value) arguments."""
        plain = (t.split(" align ")[0] for t, _ in args)
        self.declared.add(f"declare {result} @{name}({', '.join(plain)})")
        text = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in args)})"
        if result == "void":
            self.do(text)
            return ""
        return self.put(text)


def scalar_type(dtype: str) -> str:
    """LLVM's type of one value: ``float``, ``i32``, ``i1``."""
    return {"float32": "float", "float64": "double"}.get(dtype) or f"i{BITS[dtype]}"


def vector_type(element: str, lanes: int) -> str:
    """``<lanes x element>``, or the element itself for one lane."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def suffix(element: str, lanes: int) -> str:
    """The suffix of a type in names of intrinsics: ``v16f32``."""
    short = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"


def literal(value: object, dtype: str, lanes: int = 1) -> str:
    """A constant's text."""
    if dtype == "bool":
        one = "true" if value else "false"
    elif dtype in FLOATS:
        one = "0x" + struct.pack(">d", value).hex().upper()
    else:
        one = str(value)
    return one if lanes == 1 else f"splat ({scalar_type(dtype)} {one})"


@dataclass(frozen=True, slots=True)
class Limit:
    """How often the block of a loop is executed at most.

    A ``While`` ends there, a ``For`` of more rounds is not executed, and a fault is reported. Its payload is the loop's number
    among those of ``ir.loops``.

    Attributes:
        rounds: Number of rounds; 0 for any number.
        site: Of the fault.
    """

    rounds: int = 0
    site: int = 0


def too_many_rounds(code: Code, start: str, stop: str, step: int, rounds: int) -> str:
    """Whether a counted loop has more rounds than a number, which is known before it (i1); empty if no loop has."""
    most = rounds * step
    if most >= 1 << 64:
        return ""
    far = code.put(f"icmp ugt i64 {code.put(f'sub i64 {stop}, {start}')}, {most - (1 << 64) if most >> 63 else most}")
    return code.put(f"and i1 {far}, {code.put(f'icmp slt i64 {start}, {stop}')}")


def splat(code: Code, element: str, value: str, lanes: int) -> str:
    """A scalar in all lanes."""
    if lanes == 1:
        return value
    vector = vector_type(element, lanes)
    one = code.put(f"insertelement {vector} poison, {element} {value}, i64 0")
    return code.put(f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer")


def fenced(code: Code, value: str, element: str, lanes: int) -> str:
    """A float behind a fence, so that LLVM does not replace a comparison and a select by a minimum or maximum.

    LLVM 22 rewrites ``select(h > 0, 0, fpext h)`` with ``h >= 0``, which changes -0 to 0, and ``select(m > 0, m, 0)`` to ``m``
    if m is ``select(0 > x, 0, x)``, which is NaN for NaN.
    """
    vector = vector_type(element, lanes)
    if code.target.arch == "amdgcn":  # LLVM 22 fails with "illegal VGPR to SGPR copy" on a uniform value
        return code.put(f'call {vector} asm "", "=v,0"({vector} {value})')
    return code.call(vector, f"llvm.arithmetic.fence.{suffix(element, lanes)}", (vector, value))


def report(code: Code, site: int, index: str, first: str = "") -> None:
    """Append code that reports a fault in the table ``%faults`` (``spec.faults``).

    No memory order is needed: the table is read after the threads, or the GPU's kernels, have finished.

    Args:
        code: Function to append to.
        site: Number of the check in the kernel.
        index: The index that is out of range (i64).
        first: On a GPU, the number of the kernel's first site in the table (i32).
    """
    if first:
        _report(code, code.put(f"add i32 {first}, {site}"), index)
        return
    # Not inline: many processors have no atomic maximum, but a loop for it, and LLVM optimizes less a loop around another. The
    # calling convention keeps almost all registers of the kernel. ``host`` links ``report_function``, which is compiled once.
    code.declared.add(f"declare preserve_mostcc void @{REPORT}(ptr, i32, i64) cold nounwind")
    code.do(f"call preserve_mostcc void @{REPORT}(ptr %faults, i32 {site}, i64 {index}) cold nounwind")


def report_function(target: Target) -> str:
    """A module with the function that reports a fault, which kernels call."""
    code = Code(target)
    _report(code, "%site", "%index")
    head = f"define weak_odr preserve_mostcc void @{REPORT}(ptr %faults, i32 %site, i64 %index) cold noinline nounwind {{"
    return "\n".join([head, *code.lines, "  ret void", "}", ""])


def _report(code: Code, site: str, index: str) -> None:
    """The atomic operations of a report."""
    first = code.put(f"getelementptr i8, ptr %faults, i64 {FIRST_PAYLOAD}")
    payload = code.put(f"getelementptr i64, ptr {first}, i64 {code.put(f'zext i32 {site} to i64')}")
    code.put(f"atomicrmw umax ptr {payload}, i64 {code.put(f'sub i64 {LARGEST_INDEX}, {index}')} monotonic, align 8")
    code.put(f"atomicrmw umax ptr %faults, i32 {code.put(f'sub i32 {LARGEST_SITE}, {site}')} monotonic, align 4")


class Emitter:
    """Writes the code of expressions for one position of a kernel, each node once.

    Args:
        code: Function to append to.
        lanes: Elements of a vector; 1 for scalars.
        leaf: The value of a ``load``, ``index``, ``local`` or ``reduce`` node, a vector of ``lanes`` of its dtype.
        element: The value of a ``gather`` or ``element`` node at given positions.
        mask: Active lanes; empty for all. Only active lanes report faults.
    """

    def __init__(
        self, code: Code, lanes: int, leaf: Callable[[Expr], str], element: Callable[[Expr, str], str] | None = None,
        mask: str = "",
    ) -> None:  # fmt: skip
        self.code, self.lanes, self.leaf, self.element, self.mask = code, lanes, leaf, element, mask
        self.values: dict[Expr, str] = {}

    def type(self, dtype: str) -> str:
        return vector_type(scalar_type(dtype), self.lanes)

    def value(self, root: Expr) -> str:
        """The name of an expression's value; its code is appended at first use."""
        stack = [root]  # not recursion: expressions may be deeper than Python's stack
        while stack:
            e = stack[-1]
            if e in self.values:
                stack.pop()
                continue
            # the slow operand of `rarely` is written by `_rarely`, inside of its branch
            needed = e.args[:1] + e.args[2:] if e.op == "rarely" else e.args[2:] if e.op == "where_flushed" else e.args
            todo = [a for a in needed if a not in self.values] if e.op != "reduce" else []
            if todo:
                stack.extend(reversed(todo))
                continue
            self.values[e] = self._write(e)
            stack.pop()
        return self.values[root]

    def all(self, roots: Iterable[Expr]) -> list[str]:
        """The values of several expressions."""
        return [self.value(r) for r in roots]

    def _write(self, e: Expr) -> str:
        op, dtype = e.op, e.dtype
        if op in ("load", "index", "local", "reduce"):
            return self.leaf(e)
        if op == "const":
            return literal(e.value, dtype, self.lanes)
        if op == "rarely":
            return self._rarely(e)
        if op == "where_flushed":  # LLVM's targets support denormal numbers
            return self.values[e.args[2]]
        if op in ("nearest", "nearest_bits"):
            return self.value(by_magic(e))
        v = [self.values[a] for a in e.args]
        if op in ("gather", "element"):
            if self.element is None:
                raise TypeError("this kind of kernel reads no elements elsewhere")
            return self.element(e, v[0])
        if op == "bounded":
            return self._bounded(e, v[0])
        if op == "philox":
            words = [load(i, "uint32") for i in range(4)]
            return Emitter(self.code, self.lanes, lambda x: v[int(x.value or 0)]).value(philox_word(words, load(4, "int64")))
        if op == "select":
            return self._select(v[0], dtype, v[1], v[2])
        if op == "pair":
            return self._pairs(e.args[0].dtype, v)
        if op in ("cast", "bitcast"):
            return self._converted(e, v[0])
        if op in COMPARISONS:
            return self._compared(op, e.args[0].dtype, v)
        return self._float(e, v) if dtype in FLOATS else self._integer(e, v)

    def _plain(self, instruction: str, dtype: str, v: list[str]) -> str:
        return self.code.put(f"{instruction} {self.type(dtype)} {', '.join(v)}")

    def _select(self, condition: str, dtype: str, a: str, b: str) -> str:
        t = self.type(dtype)
        chosen = self.code.put(f"select {self.type('bool')} {condition}, {t} {a}, {t} {b}")
        return fenced(self.code, chosen, scalar_type(dtype), self.lanes) if dtype in FLOATS else chosen

    def _pairs(self, part: str, v: list[str]) -> str:
        """Complex numbers: one vector of their parts, in the order of memory."""
        element, t = scalar_type(part), self.type(part)
        if self.lanes == 1:
            first = self.code.put(f"insertelement <2 x {element}> poison, {element} {v[0]}, i64 0")
            return self.code.put(f"insertelement <2 x {element}> {first}, {element} {v[1]}, i64 1")
        order = ", ".join(f"i32 {i}, i32 {self.lanes + i}" for i in range(self.lanes))
        return self.code.put(f"shufflevector {t} {v[0]}, {t} {v[1]}, <{2 * self.lanes} x i32> <{order}>")

    def _intrinsic(self, name: str, dtype: str, v: list[str]) -> str:
        t = self.type(dtype)
        return self.code.call(t, f"llvm.{name}.{suffix(scalar_type(dtype), self.lanes)}", *((t, x) for x in v))

    def _number(self, value: object, dtype: str) -> str:
        return literal(value, dtype, self.lanes)

    def _float(self, e: Expr, v: list[str]) -> str:
        op, dtype, code = e.op, e.dtype, self.code
        if op in _FLOAT:
            return self._plain(_FLOAT[op], dtype, v)
        if op == "neg":
            return self._plain("fneg", dtype, v)
        if op in _INTRINSIC:
            return self._intrinsic(_INTRINSIC[op], dtype, v)
        if op == "kept":  # without fast-math flags LLVM does not reassociate sums
            return v[0]
        if op in ("fma", "muladd"):
            return self._fused(dtype, v, op == "fma")
        if op == "scale":
            return self._scaled(dtype, v)
        if op not in ("min", "max"):
            raise TypeError(f"no code for {op} of {dtype}")
        t = self.type(dtype)
        known = e.args[1].op == "const" and e.args[1].value == e.args[1].value
        if known:  # the constant only if the comparison holds, so a NaN operand is returned
            c = code.put(f"fcmp {'ogt' if op == 'max' else 'olt'} {t} {v[1]}, {v[0]}")
            return self._select(c, dtype, v[1], v[0])
        name = f"llvm.{op}imum.{suffix(scalar_type(dtype), self.lanes)}"
        code.declared.add(f"declare {t} @{name}({t}, {t})")
        return code.put(f"call nsz {t} @{name}({t} {v[0]}, {t} {v[1]})")  # nsz: the IR leaves the sign of a zero result open

    def _fused(self, dtype: str, v: list[str], exact: bool) -> str:
        if self.code.target.fma or dtype == "float64":
            return self._intrinsic("fma", dtype, v)
        # no fma instruction: the product is exact in float64; the sum rounds twice, which is 2^-29 of a unit off at most
        narrow, wide = self.type("float32"), self.type("float64")
        a, b, c = (self.code.put(f"fpext {narrow} {x} to {wide}") for x in v)
        product = self.code.put(f"fmul {wide} {a}, {b}")
        total = self.code.put(f"fadd {wide} {product}, {c}")
        if exact:
            total = self._odd(product, c, total)
        return self.code.put(f"fptrunc {wide} {total} to {narrow}")

    def _odd(self, a: str, b: str, total: str) -> str:
        """The float64 sum of a and b rounded to an odd significand unless it is exact: rounding it again rounds the sum once.

        Source: Boldo, Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE Transactions on Computers 57, 2008.
        """
        x = [load(i, "float64") for i in range(3)]
        part = x[2] - x[0]
        error = (x[0] - (x[2] - part)) + (x[1] - part)
        bits = bitcast(x[2], "int64")
        outwards = eq(error > 0.0, x[2] > 0.0)
        even = eq(bits & 1, 0) & ((error > 0.0) | (error < 0.0))
        odd = bitcast(select(even, select(outwards, bits + 1, bits - 1), bits), "float64")
        values = (a, b, total)
        return Emitter(self.code, self.lanes, lambda e: values[int(e.value or 0)]).value(odd)

    def _scaled(self, dtype: str, v: list[str]) -> str:
        width = self.lanes * BITS[dtype]
        if self.code.target.has("avx512f") and (width == 512 or (width in (128, 256) and self.code.target.has("avx512vl"))):
            t, short = self.type(dtype), "ps" if dtype == "float32" else "pd"
            mask = ("i16" if self.lanes == 16 else "i8", "-1")
            more = [("i32", "4")] if width == 512 else []  # 4: the current rounding mode
            return self.code.call(
                t, f"llvm.x86.avx512.mask.scalef.{short}.{width}", (t, v[0]), (t, v[1]), (t, "zeroinitializer"), mask, *more
            )
        inner = Emitter(self.code, self.lanes, lambda e: v[int(e.value or 0)])
        return inner.value(_two_steps(load(0, dtype), load(1, dtype)))

    def _integer(self, e: Expr, v: list[str]) -> str:
        op, dtype = e.op, e.dtype
        if op in _INTEGER:
            return self._plain(_INTEGER[op], dtype, v)
        if op == "neg":
            return self._plain("sub", dtype, [self._number(0, dtype), v[0]])
        if op == "not":
            return self._plain("xor", dtype, [v[0], self._number(dtype == "bool" or _ones(dtype), dtype)])
        if op in ("min", "max"):
            return self._intrinsic(("s" if dtype in SIGNED else "u") + op, dtype, v)
        if op == "abs":
            t = self.type(dtype)
            name = f"llvm.abs.{suffix(scalar_type(dtype), self.lanes)}"
            return self.code.call(t, name, (t, v[0]), ("i1", "false"))
        if op in ("shl", "shr"):
            return self._shifted(e, v)
        if op in ("div", "rem"):
            return self._divided(e, v)
        raise TypeError(f"no code for {op} of {dtype}")

    def _shifted(self, e: Expr, v: list[str]) -> str:
        dtype, by, bits = e.dtype, e.args[1], BITS[e.dtype]
        name = "shl" if e.op == "shl" else "ashr" if dtype in SIGNED else "lshr"
        if by.op == "const" and 0 <= int(by.value or 0) < bits:
            return self._plain(name, dtype, v)
        inside = self.code.put(f"icmp ult {self.type(dtype)} {v[1]}, {self._number(bits, dtype)}")
        if name == "ashr":
            return self._plain(name, dtype, [v[0], self._select(inside, dtype, v[1], self._number(bits - 1, dtype))])
        # the amount is made legal first: LLVM's result of a shift by the width or more is poison
        safe = self._select(inside, dtype, v[1], self._number(0, dtype))
        return self._select(inside, dtype, self._plain(name, dtype, [v[0], safe]), self._number(0, dtype))

    def _divided(self, e: Expr, v: list[str]) -> str:
        dtype, by, code = e.dtype, e.args[1], self.code
        signed = dtype in SIGNED
        name = ("s" if signed else "u") + e.op
        if by.op == "const" and by.value not in (0, -1):
            return self._plain(name, dtype, v)
        t, zero = self.type(dtype), self._number(0, dtype)
        # LLVM 22 moves a vector's division before the choice of its divisor if it believes that the divisor is never 0. That
        # includes shifts by too large a number (poison), but not after freeze
        v = [v[0], code.put(f"freeze {t} {v[1]}")]
        bad = code.put(f"icmp eq {t} {v[1]}, {zero}")
        by_zero = bad
        if signed:  # the smallest integer divided by -1 traps on x86
            minus = code.put(f"icmp eq {t} {v[1]}, {self._number(-1, dtype)}")
            bad = code.put(f"or {self.type('bool')} {bad}, {minus}")
        out = self._plain(name, dtype, [v[0], self._select(bad, dtype, self._number(1, dtype), v[1])])
        if e.op == "rem":
            return self._select(bad, dtype, zero, out)
        if signed:
            out = self._select(minus, dtype, self._plain("sub", dtype, [zero, v[0]]), out)
        return self._select(by_zero, dtype, zero, out)

    def _compared(self, op: str, dtype: str, v: list[str]) -> str:
        if dtype in FLOATS:
            name = "fcmp " + ("une" if op == "ne" else "o" + op)
        elif op in ("eq", "ne"):
            name = f"icmp {op}"
        else:
            name = f"icmp {'s' if dtype in SIGNED else 'u'}{op}"
        return self._plain(name, dtype, v)

    def _converted(self, e: Expr, v: str) -> str:
        source, to = e.args[0].dtype, e.dtype
        old, new = self.type(source), self.type(to)
        if e.op == "bitcast":
            return self.code.put(f"bitcast {old} {v} to {new}")
        if self.lanes > 1 and source in ("float32", "float64") and to not in FLOATS and BITS[to] in (32, 64):
            return self._whole(v, e.args[0], to)
        if source in FLOATS and to not in FLOATS:
            kind = "fptosi" if to in SIGNED else "fptoui"
            name = f"llvm.{kind}.sat.{suffix(scalar_type(to), self.lanes)}.{suffix(scalar_type(source), self.lanes)}"
            return self.code.call(new, name, (old, v))
        if source in FLOATS:
            name = "fpext" if BITS[to] > BITS[source] else "fptrunc"
            return fenced(self.code, self.code.put(f"{name} {old} {v} to {new}"), scalar_type(to), self.lanes)
        elif to in FLOATS:
            name = "sitofp" if source in SIGNED else "uitofp"
        elif BITS[to] == BITS[source]:
            return v
        else:
            name = "trunc" if BITS[to] < BITS[source] else "sext" if source in SIGNED else "zext"
        return self.code.put(f"{name} {old} {v} to {new}")

    def _whole(self, v: str, e: Expr, to: str) -> str:
        """Floats, the value of an expression, as the nearest integers towards 0, within the range of their dtype; NaN is 0.

        LLVM 22 writes its own saturating conversion of a vector element by element. Sides of the range on which a minimum or
        maximum keeps the expression need no comparison.
        """
        code, source, signed = self.code, e.dtype, to in SIGNED
        t, bools = self.type(source), self.type("bool")
        least, most = (-(1 << BITS[to] - 1), (1 << BITS[to] - 1) - 1) if signed else (0, (1 << BITS[to]) - 1)
        bottom, top = _limits(e)
        low = "" if bottom >= least else code.put(f"fcmp olt {t} {v}, {self._number(float(least), source)}")
        high = "" if top < most + 1 else code.put(f"fcmp oge {t} {v}, {self._number(float(most + 1), source)}")
        outside = code.put(f"fcmp uno {t} {v}, {v}")
        outside = code.put(f"or {bools} {low}, {outside}") if low else outside
        outside = code.put(f"or {bools} {outside}, {high}") if high else outside
        safe = self._select(outside, source, self._number(0.0, source), v)
        found = code.put(f"{'fptosi' if signed else 'fptoui'} {t} {safe} to {self.type(to)}")
        found = self._select(high, to, self._number(most, to), found) if high else found
        return self._select(low, to, self._number(least, to), found) if signed and low else found

    def _bounded(self, e: Expr, position: str) -> str:
        """The index counted from the front, clamped. A fault is reported if it is out of range in an active lane."""
        code, t = self.code, self.type("int64")
        size, check = str(e.value).split(":")
        top, zero = self._number(int(size) - 1, "int64"), self._number(0, "int64")
        negative = code.put(f"icmp slt {t} {position}, {zero}")
        moved = code.put(f"add {t} {position}, {self._number(int(size), 'int64')}")
        front = self._select(negative, "int64", moved, position)
        bad = code.put(f"icmp ugt {t} {front}, {top}")
        if self.mask:
            bad = code.put(f"and {self.type('bool')} {bad}, {self.mask}")
        found = bad
        if self.lanes > 1:
            found = code.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", (self.type("bool"), bad))
        expected = code.call("i1", "llvm.expect.i1", ("i1", found), ("i1", "false"))
        fault, after = code.fresh("fault"), code.fresh("after")
        code.do(f"br i1 {expected}, label %{fault}, label %{after}")
        code.label(fault)
        index = front
        if self.lanes > 1:  # the smallest of the lanes that are out of range
            index = self._select(bad, "int64", front, self._number(LARGEST_INDEX, "int64"))
            index = code.call("i64", f"llvm.vector.reduce.smin.v{self.lanes}i64", (t, index))
        # as it was given: with `position` alive here, the usual path would need more registers
        given = code.put(f"sub i64 {index}, {size}")
        below = code.put(f"icmp slt i64 {index}, 0")
        index = code.put(f"select i1 {below}, i64 {given}, i64 {index}")
        report(code, int(check), index)
        code.do(f"br label %{after}")
        code.label(after)
        low = self._intrinsic("smax", "int64", [front, zero])
        return self._intrinsic("smin", "int64", [low, top])

    def _rarely(self, e: Expr) -> str:
        """The fast value; a branch, taken if the condition holds in any lane, replaces the lanes where it holds."""
        code, condition = self.code, self.values[e.args[0]]
        fast, t = self.values[e.args[2]], self.type(e.dtype)
        found = condition
        if self.lanes > 1:
            found = code.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", (self.type("bool"), condition))
        expected = code.call("i1", "llvm.expect.i1", ("i1", found), ("i1", "false"))
        slow, after, before = code.fresh("slow"), code.fresh("after"), code.block
        code.do(f"br i1 {expected}, label %{slow}, label %{after}")
        code.label(slow)
        outside = dict(self.values)  # values defined in the branch do not dominate the code after it
        mended = self._select(condition, e.dtype, self._slow_path(e.args[1]), fast)
        self.values = outside
        end = code.block
        code.do(f"br label %{after}")
        code.label(after)
        return code.put(f"phi {t} [ {fast}, %{before} ], [ {mended}, %{end} ]")

    def _slow_path(self, root: Expr) -> str:
        """The value of an operand that is rarely needed: code in the kernel, or a call where that code occurs often.

        The code of a sine for large operands has hundreds of instructions. LLVM would need 30 to 70 ms for each sine of a
        kernel.
        """
        path, arguments = _on_arguments(root, self.values)
        self.code.slow_paths[path] += 1
        if self.code.slow_paths[path] <= INLINE or not arguments or self.code.target.arch not in ("x86_64", "aarch64"):
            return self.value(root)
        values = [(self.type(a.dtype), self.value(a)) for a in arguments]
        code = Code(self.code.target)
        result = Emitter(code, self.lanes, lambda x: f"%a{x.value}").value(path)
        types = ", ".join(f"{t} %a{i}" for i, (t, _) in enumerate(values))
        body = "\n".join(
            [f"({types}) cold noinline nounwind {{", "entry:", *code.lines, f"  ret {self.type(root.dtype)} {result}", "}"]
        )
        name = f"firebrick_slow_{blake2b(body.encode(), digest_size=8).hexdigest()}"
        self.code.declared |= code.declared | {f"define internal {self.type(root.dtype)} @{name}{body}"}
        passed = ", ".join(f"{t} {v}" for t, v in values)
        return self.code.put(f"call {self.type(root.dtype)} @{name}({passed}) cold nounwind")


def _on_arguments(root: Expr, known: Container[Expr]) -> tuple[Expr, list[Expr]]:
    """An expression as a function of the nodes below it that are known or depend on the kernel, and these nodes."""
    arguments: dict[Expr, Expr] = {}
    rest: dict[Expr, Expr] = {}
    stack = [root]
    while stack:
        e = stack[-1]
        if e in rest:
            stack.pop()
        elif e.op in _OF_KERNEL or (e in known and e.op != "const"):
            arguments[e] = rest[e] = load(len(arguments), e.dtype)
        elif todo := [a for a in e.args if a not in rest]:
            stack.extend(reversed(todo))
        else:
            rest[e] = made(e.op, e.dtype, [rest[a] for a in e.args], e.value)
    return rest[root], list(arguments)


def _two_steps(a: Expr, n: Expr) -> Expr:
    """a · 2^n as two products with powers of two; the first is exact, or |n| so large that the second decides."""
    integer, places, bias = ("int32", 23, 127) if a.dtype == "float32" else ("int64", 52, 1023)
    # adding 1.5 · 2^places moves the whole number n into the lowest bits of the significand
    magic = 1.5 * 2.0**places
    whole = bitcast(n + magic, integer) - bitcast(const(magic, a.dtype), integer)
    half = whole >> 1
    first, second = (bitcast((k + bias) << places, a.dtype) for k in (half, whole - half))
    return select(ne(n, n), n, a * first * second)


def _ones(dtype: str) -> int:
    return -1 if dtype in SIGNED else (1 << BITS[dtype]) - 1


def _limits(e: Expr) -> tuple[float, float]:
    """Numbers between which a float expression is, unless it is NaN: those of constant minima and maxima."""
    low, high = -math.inf, math.inf
    if e.op == "const" and e.value is not None:
        number = float(e.value)
        return (low, high) if math.isnan(number) else (number, number)
    if e.op in ("min", "max"):
        choose = min if e.op == "min" else max
        (low, high), (other_low, other_high) = map(_limits, e.args)
        return choose(low, other_low), choose(high, other_high)
    return low, high
