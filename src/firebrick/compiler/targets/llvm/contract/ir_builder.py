"""``IRBuilder``: writes LLVM IR as text, for the generators of this package.

A value is an int, known while the text is written, or the name of an SSA value. Arithmetic on ints is folded, so that strides,
block sizes and offsets, which the shapes determine, are constants of the code. Index arithmetic is in i64 and is marked
``nsw``: an operand is smaller than the address space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from firebrick.compiler.targets.llvm.emit import Code, Emitter
from firebrick.compiler.targets.llvm.memory import opaque
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import Expr
from firebrick.scalar.expr import load as load_expr
from firebrick.scalar.storage import decode, encode

Value = int | str

# dtype → LLVM's type in memory, LLVM's type in arithmetic, bytes in memory.
STORAGE = {
    "float32": ("float", "float", 4),
    "float64": ("double", "double", 8),
    "bfloat16": ("i16", "float", 2),
    "float16": ("half", "float", 2),
}


def compute_type(dtype: str) -> str:
    """LLVM's type of the elements that values of a dtype are computed in."""
    return STORAGE[dtype][1]


def memory(dtype: str) -> str:
    """An LLVM type as large as an element of a dtype in memory, for address arithmetic."""
    return {"float32": "float", "float64": "double"}.get(dtype, "i16")


def plain(type_: str) -> str:
    """The dtype of ``float`` or ``double``."""
    return "float32" if type_ == "float" else "float64"


def bytes_of(type_: str) -> int:
    """Bytes of an element of a type of LLVM's."""
    return {"float": 4, "double": 8, "half": 2, "i16": 2}[type_]


def vector(n: int, type_: str) -> str:
    """LLVM's type of ``n`` lanes; a scalar for one lane is a vector of one."""
    return f"<{n} x {type_}>"


@dataclass
class OpenLoop:
    """A loop whose body is being written. Assign ``next`` (and ``step``, if it varies) before the body ends.

    Attributes:
        index: Name of the loop's index.
        values: Loop-carried values: of the current iteration in the body, of the last iteration after it.
        step: Added to the index.
        next: Values for the next iteration.
    """

    index: str
    values: list[str]
    step: Value
    next: list[str] = field(default_factory=list)


class IRBuilder(Code):
    """The body of one function, and the declarations it needs.

    Attributes:
        target: Processor to generate for.
        declared: Declarations of the intrinsics in use, lines of the module.
    """

    def __init__(self, target: Target, declared: set[str] | None = None) -> None:
        super().__init__(target)
        if declared is not None:
            self.declared = declared

    # ---- text
    def name(self, hint: str = "v") -> str:
        """An unused name."""
        return f"%{self.fresh(hint)}"

    let = Code.put

    def intrinsic(self, result: str, name: str, *operands: tuple[str, Value]) -> str:
        """The result of a call of one of LLVM's intrinsics; nothing is returned for void."""
        return self.call(result, name, *((t, str(v)) for t, v in operands))

    # ---- control
    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.label(label[1:])

    @contextmanager
    def loop(self, begin: Value, end: Value, step: Value = 1, carried: Sequence[tuple[str, str]] = ()) -> Iterator[OpenLoop]:
        """Instructions for each index from ``begin`` below ``end``; ``carried`` holds (type, first value).

        After the body, ``values`` are those of the last iteration. The loop's test is at its end: a test at the start spills
        registers of a tile, unless a pass rotates the loop, and this code is compiled without passes over the IR.
        """
        body, out = self.name("body"), self.name("out")
        before = self.block
        not_empty = isinstance(begin, int) and isinstance(end, int) and begin < end
        if not_empty:
            self.do(f"br label {body}")
        else:
            self.do(f"br i1 {self.let(f'icmp slt i64 {begin}, {end}')}, label {body}, label {out}")
        self.start(body)
        index = self.name("i")
        at = len(self.lines)
        names = [self.name("c") for _ in carried]
        self.lines.extend("" for _ in range(len(carried) + 1))
        loop = OpenLoop(index, list(names), step)
        yield loop
        after = self.let(f"add nsw i64 {index}, {loop.step}")
        test, latch = self.let(f"icmp slt i64 {after}, {end}"), self.block
        self.do(f"br i1 {test}, label {body}, label {out}")
        self.lines[at] = f"  {index} = phi i64 [ {begin}, %{before} ], [ {after}, %{latch} ]"
        self.start(out)
        loop.values = []
        for j, ((type_, first), name) in enumerate(zip(carried, names, strict=True)):
            self.lines[at + 1 + j] = f"  {name} = phi {type_} [ {first}, %{before} ], [ {loop.next[j]}, %{latch} ]"
            entry = "" if not_empty else f"[ {first}, %{before} ], "
            loop.values.append(self.let(f"phi {type_} {entry}[ {loop.next[j]}, %{latch} ]"))

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Instructions that are executed if an i1 is true."""
        then, out = self.name("then"), self.name("out")
        self.do(f"br i1 {condition}, label {then}, label {out}")
        self.start(then)
        yield
        self.do(f"br label {out}")
        self.start(out)

    # ---- index arithmetic
    def add(self, a: Value, b: Value) -> Value:
        """``a + b``."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self.let(f"add nsw i64 {a}, {b}")

    def sub(self, a: Value, b: Value) -> Value:
        """``a - b``."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self.let(f"sub nsw i64 {a}, {b}")

    def mul(self, a: Value, b: Value) -> Value:
        """``a · b``."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1 or b == 1:
            return b if a == 1 else a
        return self.let(f"mul nsw i64 {a}, {b}")

    def div(self, a: Value, b: int) -> Value:
        """``a // b`` of an index and a positive constant."""
        if isinstance(a, int):
            return a // b
        return a if b == 1 else self.let(f"udiv i64 {a}, {b}")

    def mod(self, a: Value, b: int) -> Value:
        """``a % b`` of an index and a positive constant."""
        if isinstance(a, int):
            return a % b
        return 0 if b == 1 else self.let(f"urem i64 {a}, {b}")

    def min(self, a: Value, b: Value) -> Value:
        """The smaller of two indices."""
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.intrinsic("i64", "llvm.smin.i64", ("i64", a), ("i64", b))

    def split(self, flat: Value, sizes: Sequence[int]) -> list[Value]:
        """A flat index as one index for each axis, the last fastest."""
        out: list[Value] = []
        for n in reversed(sizes[1:]):
            out.append(self.mod(flat, n))
            flat = self.div(flat, n)
        return [*([flat] if sizes else []), *reversed(out)]

    def dot(self, index: Sequence[Value], strides: Sequence[int], first: Value = 0) -> Value:
        """``first + Σ index·stride``."""
        for i, s in zip(index, strides, strict=True):
            first = self.add(first, self.mul(i, s))
        return first

    def compare(self, how: str, a: Value, b: Value) -> str:
        """``icmp`` of two indices."""
        return self.let(f"icmp {how} i64 {a}, {b}")

    # ---- memory
    def at(self, base: str, index: Value, type_: str) -> str:
        """The address of an element."""
        return base if index == 0 else self.let(f"getelementptr {type_}, ptr {base}, i64 {index}")

    def operand(self, slot: int) -> str:
        """The pointer in ``bufs`` of an operand."""
        return self.let(f"load ptr, ptr {self.at('%bufs', slot, 'ptr')}, align 8")

    def lanes_below(self, count: Value, n: int) -> str | None:
        """Mask of the lanes below ``count`` of ``n``; None if ``count`` is a constant that includes all."""
        if isinstance(count, int):
            if count >= n:
                return None
            return constant([str(int(i < count)) for i in range(n)], "i1")
        each = self.splat(count, n, "i64")
        return self.let(f"icmp slt {vector(n, 'i64')} {constant([str(i) for i in range(n)], 'i64')}, {each}")

    def load(self, base: str, n: int, dtype: str, mask: str | None = None) -> str:
        """``n`` contiguous elements, converted to the type of the arithmetic; lanes outside a mask are 0 and not read."""
        stored, computed, size = STORAGE[dtype]
        if mask == no_lanes(n):
            return "zeroinitializer"
        if dtype == "float16" and not self.converts:
            return self._inline(decode(load_expr(0, "uint16"), dtype), self.load_bits(base, n, mask), n, "i16", "float")
        v = vector(n, stored)
        if mask is None:
            x = self.let(f"load {v}, ptr {base}, align {size}")
        elif stored == "half":  # i16 and a bitcast, so that float16 and bfloat16 use the same masked intrinsics
            bits = self._masked_load(base, n, "i16", mask)
            x = self.let(f"bitcast {vector(n, 'i16')} {bits} to {v}")
        else:
            x = self._masked_load(base, n, stored, mask)
        if dtype == "bfloat16":
            wide = self.let(f"zext {v} {x} to {vector(n, 'i32')}")
            high = self.let(f"shl {vector(n, 'i32')} {wide}, {constant(['16'] * n, 'i32')}")
            return self.let(f"bitcast {vector(n, 'i32')} {high} to {vector(n, computed)}")
        return x if stored == computed else self.let(f"fpext {v} {x} to {vector(n, computed)}")

    @property
    def converts(self) -> bool:
        """Whether the target has instructions that convert float16."""
        return self.target.has("f16c") or self.target.has("avx512f") or self.target.arch == "aarch64"

    def load_bits(self, base: str, n: int, mask: str | None) -> str:
        """``n`` contiguous 16-bit words; lanes outside a mask are 0 and not read."""
        if mask is None:
            return self.let(f"load {vector(n, 'i16')}, ptr {base}, align 2")
        return self._masked_load(base, n, "i16", mask)

    def _inline(self, e: Expr, x: str, n: int, source: str, to: str) -> str:
        """The value of an expression of one operand, for each lane of a vector."""
        if n > 1:
            return Emitter(self, n, lambda _: x).value(e)
        one = self.let(f"extractelement <1 x {source}> {x}, i64 0")
        done = Emitter(self, 1, lambda _: one).value(e)
        return self.let(f"insertelement <1 x {to}> poison, {to} {done}, i64 0")

    def _masked_load(self, base: str, n: int, type_: str, mask: str) -> str:
        v, short = vector(n, type_), {"float": "f32", "double": "f64", "i16": "i16"}[type_]
        return self.intrinsic(
            v, f"llvm.masked.load.v{n}{short}.p0",
            (f"ptr align {bytes_of(type_)}", base), (vector(n, "i1"), mask), (v, "zeroinitializer"),
        )  # fmt: skip

    def store(self, x: str, base: str, n: int, dtype: str, mask: str | None = None) -> None:
        """Convert ``n`` lanes and store them to contiguous elements; memory of lanes outside a mask is unchanged."""
        stored, _, size = STORAGE[dtype]
        x = self.narrowed(x, n, dtype)
        stored = "i16" if dtype == "float16" and not self.converts else stored
        v = vector(n, stored)
        if mask is None:
            self.do(f"store {v} {x}, ptr {base}, align {size}")
            return
        if stored == "half":
            x, stored, v = self.let(f"bitcast {v} {x} to {vector(n, 'i16')}"), "i16", vector(n, "i16")
        short = {"float": "f32", "double": "f64", "i16": "i16"}[stored]
        if stored == "i16" and self.target.has("avx512f"):
            mask = opaque(self, mask, base, n)
        self.intrinsic(
            "void", f"llvm.masked.store.v{n}{short}.p0", (v, x), (f"ptr align {size}", base), (vector(n, "i1"), mask)
        )

    def store_strided(self, x: str, base: str, n: int, step: int, dtype: str, mask: str | None = None) -> None:
        """Write lanes to elements ``step`` apart."""
        if step == 1:
            self.store(x, base, n, dtype, mask)
            return
        for i in range(n):
            one = self.shuffle(x, None, [i], n, STORAGE[dtype][1])
            here = self.at(base, i * step, memory(dtype))
            if mask is None:
                self.store(one, here, 1, dtype)
            else:
                with self.when(self.let(f"extractelement {vector(n, 'i1')} {mask}, i64 {i}")):
                    self.store(one, here, 1, dtype)

    def narrowed(self, x: str, n: int, dtype: str) -> str:
        """Lanes converted to their type in memory: rounded to nearest, ties to even."""
        stored, computed, _ = STORAGE[dtype]
        if stored == computed:
            return x
        if dtype == "float16" and not self.converts:
            return self._inline(encode(load_expr(0, "float32"), dtype), x, n, "float", "i16")
        if dtype == "float16":
            return self.let(f"fptrunc {vector(n, computed)} {x} to {vector(n, stored)}")
        w = vector(n, "i32")
        bits = self.let(f"bitcast {vector(n, computed)} {x} to {w}")
        sixteen, one = constant(["16"] * n, "i32"), constant(["1"] * n, "i32")
        shifted = self.let(f"lshr {w} {bits}, {sixteen}")
        odd = self.let(f"and {w} {shifted}, {one}")
        half = self.let(f"add {w} {bits}, {constant(['32767'] * n, 'i32')}")
        up = self.let(f"add {w} {half}, {odd}")
        # the addition could carry a NaN's bits into infinity or a zero, so a NaN is truncated with its quiet bit set
        quiet = self.let(f"or {w} {bits}, {constant(['4194304'] * n, 'i32')}")
        nan = self.let(f"fcmp uno {vector(n, computed)} {x}, {x}")
        best = self.let(f"select {vector(n, 'i1')} {nan}, {w} {quiet}, {w} {up}")
        high = self.let(f"lshr {w} {best}, {sixteen}")
        return self.let(f"trunc {w} {high} to {vector(n, 'i16')}")

    # ---- lanes
    def inside(self, start: Value, coefficient: int, size: int, n: int) -> str:
        """Mask of the lanes whose coordinate is in [0, size)."""
        if isinstance(start, int):
            return constant([str(int(0 <= start + i * coefficient < size)) for i in range(n)], "i1")
        if coefficient == 0 or n == 1:
            one = self.compare("ult", start, size)
            return self.splat(one, n, "i1")
        each = self.splat(self.let(f"trunc i64 {start} to i32"), n, "i32")
        steps = constant([str(i * coefficient) for i in range(n)], "i32")
        place = self.let(f"add {vector(n, 'i32')} {each}, {steps}")
        return self.let(f"icmp ult {vector(n, 'i32')} {place}, {constant([str(size)] * n, 'i32')}")

    def splat(self, x: Value, n: int, type_: str) -> str:
        """A vector with a scalar in each lane."""
        if isinstance(x, int):
            return constant([str(x)] * n, type_)
        one = self.let(f"insertelement {vector(n, type_)} poison, {type_} {x}, i64 0")
        return self.shuffle(one, None, [0] * n, n, type_)

    def shuffle(self, a: str, b: str | None, lanes: Sequence[int], n: int, type_: str) -> str:
        """Lanes selected from two vectors of ``n``; -1 is a lane whose value is never used."""
        v = vector(n, type_)
        picked = constant([str(i) if i >= 0 else "poison" for i in lanes], "i32")
        return self.let(f"shufflevector {v} {a}, {v} {b or 'poison'}, {vector(len(lanes), 'i32')} {picked}")

    def fma(self, a: str, b: str, c: str, n: int, type_: str) -> str:
        """``a·b + c``, rounded once if the target has such an instruction."""
        v = vector(n, type_)
        if self.target.fma:
            short = {"float": "f32", "double": "f64"}[type_]
            return self.intrinsic(v, f"llvm.fma.v{n}{short}", (v, a), (v, b), (v, c))
        return self.let(f"fadd {v} {self.let(f'fmul {v} {a}, {b}')}, {c}")

    @property
    def masks(self) -> bool:
        """Whether the target has masked loads and stores; elsewhere LLVM expands them to a branch for each lane."""
        return self.target.arch == "x86_64" and self.target.width_bits >= 256


def constant(parts: Sequence[str], type_: str) -> str:
    """A vector constant."""
    return "<" + ", ".join(f"{type_} {p}" for p in parts) + ">"


def all_lanes(n: int) -> str:
    """The mask of all lanes."""
    return constant(["1"] * n, "i1")


def no_lanes(n: int) -> str:
    """The mask of no lane. LLVM 22 is given no loads with it: of a load of several registers it may read one as a whole, and
    give its elements in place of zeros."""
    return constant(["0"] * n, "i1")
