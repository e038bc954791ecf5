"""``Lanes``: values of the work items that are the lanes of a vector, and scalar expressions over them.

A ``LaneForm`` keeps a value as what differs between the lanes and what does not: a uniform value is a scalar, and an index
such as ``row * width + item`` is a scalar and a step between lanes. So index arithmetic is scalar, in 64 bits, and reads of
consecutive elements are known as such. All arithmetic of forms is integer arithmetic that wraps, so it is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from firebrick.compiler.targets.llvm.emit import Code, Emitter, literal, scalar_type, splat, vector_type
from firebrick.compiler.targets.llvm.lane_memory import read_lanes
from firebrick.compiler.targets.llvm.lane_random import with_blocks
from firebrick.compiler.targets.llvm.memory import Strip, read_at
from firebrick.scalar.expr import BITS, INTEGERS, Expr, const, walk

_SUMS = ("add", "sub", "neg")
_NEAR = 1 << 60
"""Grids are smaller than this, as are constants that keep an index ``near``."""
_SPLIT = ("div", "rem", "shr", "and")
_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


@dataclass(frozen=True, slots=True)
class LaneForm:
    """The value base + step · lane + vector.

    Attributes:
        base: SSA value or literal of one element; empty for 0 beside a vector.
        step: Between neighbouring lanes: a number, or the SSA value of one.
        vector: SSA value of a vector; empty for 0.
        near: The constant that the item's index and the value differ by, if so, and it is small: then no lane wraps around.
    """

    base: str = ""
    step: int | str = 0
    vector: str = ""
    near: int | None = None

    @property
    def uniform(self) -> bool:
        """Whether all lanes have one value."""
        return not self.vector and self.step == 0

    @property
    def plain(self) -> bool:
        """Whether it is a vector and nothing else."""
        return bool(self.vector) and not self.base and self.step == 0


class Lanes:
    """Evaluates expressions for the lanes of one vector.

    Args:
        code: Function to append to.
        lanes: Number of lanes; 1 for scalar code.
        arrays: The memory of each array.
        values: The form of each visible name.
        constant: The arrays that the kernel only reads.

    Attributes:
        powers: For integer locals that are never assigned to, n where 2^n divides the value, as far as known.
        decided: Conditions whose value is known here.
        streamed: Arrays that are written past the caches here, at aligned addresses.
    """

    def __init__(
        self, code: Code, lanes: int, arrays: Mapping[str, Strip], values: dict[str, LaneForm], constant: frozenset[str]
    ) -> None:
        self.code, self.lanes, self.arrays, self.values, self.constant = code, lanes, arrays, values, constant
        self.powers: dict[str, int] = {}
        self.decided: dict[Expr, bool] = {}
        self.streamed: frozenset[str] = frozenset()

    def type(self, dtype: str) -> str:
        """LLVM's type of a vector of a dtype."""
        return vector_type(scalar_type(dtype), self.lanes)

    def full(self, mask: str) -> str:
        """A mask as a value: empty stands for all lanes."""
        return mask or literal(True, "bool", self.lanes)

    def any(self, mask: str) -> str:
        """Whether a mask has an active lane, i1."""
        if self.lanes == 1:
            return mask
        return self.code.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", (self.type("bool"), mask))

    def both(self, a: str, b: str) -> str:
        """The lanes that are active in two masks; the first may be empty."""
        return self.code.put(f"and {self.type('bool')} {a}, {b}") if a else b

    def vector(self, form: LaneForm, dtype: str) -> str:
        """A form as a vector."""
        if form.plain or self.lanes == 1:
            return form.vector or form.base
        kind, element, code = self.type(dtype), scalar_type(dtype), self.code
        out = form.vector
        if form.step != 0:
            steps = self.steps(form.step, dtype)
            out = code.put(f"add {kind} {out}, {steps}") if out else steps
        if form.base in ("", "0") and out:
            return out
        spread = splat(code, element, form.base, self.lanes)
        return code.put(f"add {kind} {out}, {spread}") if out else spread

    def form(self, value: str) -> LaneForm:
        """The form of a vector, or of the scalar that it is for one lane."""
        return LaneForm(vector=value) if self.lanes > 1 else LaneForm(value)

    def steps(self, step: int | str, dtype: str = "int64") -> str:
        """0, step, 2 · step, … as a vector."""
        element = scalar_type(dtype)
        count = step if isinstance(step, int) else 1
        numbers = ", ".join(f"{element} {const(i * count, dtype).value}" for i in range(self.lanes))
        if isinstance(step, int):
            return f"<{numbers}>"
        return self.code.put(f"mul {self.type(dtype)} {splat(self.code, element, step, self.lanes)}, <{numbers}>")

    def evaluated(self, roots: Sequence[Expr], mask: str) -> list[LaneForm]:
        """The values of expressions. At least one lane of the mask is active: scalar reads are for all of them."""
        return _Evaluation(self, mask).forms(with_blocks(roots, self.powers))


class _Evaluation:
    def __init__(self, lanes: Lanes, mask: str) -> None:
        self.lanes, self.code, self.mask = lanes, lanes.code, mask
        self.known: dict[Expr, LaneForm] = {}
        self.varies: set[Expr] = set()
        self.scalar = Emitter(self.code, 1, self._leaf, self._element)
        self.wide = Emitter(self.code, lanes.lanes, self._leaf)

    def forms(self, roots: Sequence[Expr]) -> list[LaneForm]:
        order = walk(roots)
        for e in order:
            if self._differs(e):
                self.varies.add(e)
        for e in order:
            if e in self.varies:
                self._varying(e)
        return [self._form(e) for e in roots]

    def _differs(self, e: Expr) -> bool:
        if e in self.lanes.decided:
            self.scalar.values[e] = "true" if self.lanes.decided[e] else "false"
            return False
        if e.op == "local":
            form = self.known[e] = self.lanes.values[str(e.value)]
            return not form.uniform
        if e.op == "element" and e.value not in self.lanes.constant:
            return self.lanes.lanes > 1
        return any(a in self.varies for a in e.args)

    def _form(self, e: Expr) -> LaneForm:
        if e not in self.known:
            self.known[e] = LaneForm(vector=self.wide.value(e)) if e in self.varies else LaneForm(self.scalar.value(e))
        return self.known[e]

    def _varying(self, e: Expr) -> None:
        """What must be known of a node before the vector emitter meets it."""
        if e.op == "local":
            pass
        elif e.op == "element":  # read here, with the index in its form: the emitter knows vectors only
            strip, at = self.lanes.arrays[str(e.value)], self._form(e.args[0])
            self.known[e] = LaneForm(vector=read_lanes(self.lanes, strip, at, self.mask))
        else:
            found = self._compared(e) if e.op in _FLIPPED else self._split(e) if e.op in _SPLIT else self._sum(e)
            if found is not None:
                self.known[e] = found
                if found.plain:
                    self.wide.values[e] = found.vector
                return
            for a in e.args:
                if a.op != "const" and (a in self.known or a not in self.varies) and a not in self.wide.values:
                    self.wide.values[a] = self.lanes.vector(self._form(a), a.dtype)
            return
        if e in self.known and self.known[e].plain:
            self.wide.values[e] = self.known[e].vector

    def _compared(self, e: Expr) -> LaneForm | None:
        """A comparison of an index near the item's with a uniform number: of the lane's number, in 32 bits."""
        a, b = e.args
        op = e.op
        if a not in self.varies:
            a, b, op = b, a, _FLIPPED[op]
        form = self.known.get(a)
        if form is None or form.near is None or b in self.varies:
            return None
        code, lanes = self.code, self.lanes
        apart = code.call("i64", "llvm.ssub.sat.i64", ("i64", self._form(b).base), ("i64", form.base))
        low = code.call("i64", "llvm.smax.i64", ("i64", apart), ("i64", "-1"))
        place = code.call("i64", "llvm.smin.i64", ("i64", low), ("i64", str(lanes.lanes)))
        spread = splat(code, "i32", code.put(f"trunc i64 {place} to i32"), lanes.lanes)
        sign = "" if op in ("eq", "ne") else "s"
        return LaneForm(vector=code.put(f"icmp {sign}{op} {lanes.type('int32')} {lanes.steps(1, 'int32')}, {spread}"))

    def _split(self, e: Expr) -> LaneForm | None:
        """A quotient or remainder of the item's index, such as the row and column of a tile.

        The first item of a vector is a multiple of the lanes, so if these and the divisor divide each other, the quotients of
        all lanes are equal, or differ by constants.
        """
        a, b = e.args
        form, lanes = self.known.get(a), self.lanes.lanes
        if form is None or form.near != 0 or b.op != "const":
            return None
        number = int(b.value or 0)
        if e.op == "shr" and not 0 <= number < 62:
            return None
        by = 1 << number if e.op == "shr" else number + 1 if e.op == "and" else number
        if by <= 0 or (e.op == "and" and by & number) or (by % lanes and lanes % by):
            return None
        quotient = e.op in ("div", "shr")
        base = self.code.put(f"{'udiv' if quotient else 'urem'} i64 {form.base}, {by}")
        if by % lanes == 0:
            return LaneForm(base, 0 if quotient else 1)
        numbers = ", ".join(f"i64 {i // by if quotient else i % by}" for i in range(lanes))
        return _form(base if quotient else "0", 0, f"<{numbers}>")

    def _sum(self, e: Expr) -> LaneForm | None:
        """The form of an integer node whose operands are forms with more than a vector, or may become one."""
        if e.dtype not in INTEGERS or any(a.dtype not in INTEGERS for a in e.args):
            return None
        parts = [self.known[a] if a in self.known else None if a in self.varies else LaneForm("0") for a in e.args]
        if all(p is None or p.plain for p in parts) or (e.dtype != "int64" and any(p is None or p.vector for p in parts)):
            return None
        if e.op in _SUMS:
            return replace(self._added(e.dtype, e.op, [self._form(a) for a in e.args]), near=self._near(e))
        first = parts[0]
        if e.op == "mul":
            one, by = (0, 1) if e.args[1] not in self.varies else (1, 0)
            form = parts[one]
            if form is None or form.plain or e.args[by] in self.varies:
                return None
            return self._times(form, e.args[by], e.dtype)
        if first is None or first.plain:
            return None
        if e.op == "shl" and e.args[1].op == "const" and 0 <= int(e.args[1].value or 0) < BITS[e.dtype]:
            return self._times(first, const(1 << int(e.args[1].value or 0), e.dtype), e.dtype)
        if e.op == "cast" and BITS[e.dtype] <= BITS[e.args[0].dtype] and not first.vector:
            return self._narrowed(first, e.args[0].dtype, e.dtype)
        return None

    def _near(self, e: Expr) -> int | None:
        """``LaneForm.near`` of a sum."""
        if len(e.args) < 2 or e.args[1].op != "const" or e.args[0] not in self.known:
            return None
        before, number = self.known[e.args[0]].near, int(e.args[1].value or 0)
        if before is None:
            return None
        after = before + (number if e.op == "add" else -number)
        return after if abs(after) < _NEAR else None

    def _added(self, dtype: str, op: str, forms: list[LaneForm]) -> LaneForm:
        if op == "neg":
            op, forms = "sub", [LaneForm("0"), *forms]
        a, b = forms
        one, many = scalar_type(dtype), self.lanes.type(dtype)
        base = self._pair(op, one, a.base, b.base)
        if isinstance(a.step, int) and isinstance(b.step, int):
            step: int | str = a.step + b.step if op == "add" else a.step - b.step
        else:
            step = self._pair(op, one, str(a.step), str(b.step))
        return _form(base, step, self._pair(op, many, a.vector, b.vector))

    def _pair(self, op: str, kind: str, a: str, b: str) -> str:
        if not b or b == "0":
            return a
        if op == "add" and (not a or a == "0"):
            return b
        return self.code.put(f"{op} {kind} {a or ('zeroinitializer' if kind[0] == '<' else '0')}, {b}")

    def _times(self, a: LaneForm, b: Expr, dtype: str) -> LaneForm:
        one, many, code = scalar_type(dtype), self.lanes.type(dtype), self.code
        by = self._form(b).base
        base = code.put(f"mul {one} {a.base}, {by}") if a.base not in ("", "0") else "0"
        if a.step == 0:
            step: int | str = 0
        elif isinstance(a.step, int) and b.op == "const":
            step = a.step * int(b.value or 0)
        else:
            step = by if a.step == 1 else code.put(f"mul {one} {a.step}, {by}")
        vector = ""
        if a.vector:
            vector = code.put(f"mul {many} {a.vector}, {splat(code, one, by, self.lanes.lanes)}")
        return _form(base, step, vector)

    def _narrowed(self, a: LaneForm, source: str, to: str) -> LaneForm:
        if BITS[source] == BITS[to]:
            return a
        cut = f"trunc {scalar_type(source)} {{}} to {scalar_type(to)}"
        base = self.code.put(cut.format(a.base))
        return LaneForm(base, a.step if isinstance(a.step, int) else self.code.put(cut.format(a.step)))

    def _leaf(self, e: Expr) -> str:
        form = self.known[e]
        return self.lanes.vector(form, e.dtype) if e in self.varies else form.base

    def _element(self, e: Expr, at: str) -> str:
        return read_at(self.code, self.lanes.arrays[str(e.value)], at, 1)


def _form(base: str, step: int | str, vector: str) -> LaneForm:
    return LaneForm("" if vector and base in ("", "0") else base or "0", step, vector)
