"""``drawn_source``: the text of a module with a random kernel in odd but legal Python.

Its variables are assigned in branches, swapped in tuples and changed in loops that ``break``, ``continue`` and ``return`` end;
its conditions chain comparisons and guard reads out of bounds. Each expression has one dtype; integers wrap around.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import firebrick as fb
from firebrick.compiler.kernel.language.annotations import ArrayType

Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")
ARRAYS = {  # stored as → computed as
    "float32": "float32", "float64": "float64", "float16": "float32", "int8": "int8", "int32": "int32", "int64": "int64",
    "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "int16": "int16", "bool": "bool",
}  # fmt: skip
SIZES = ("n", "m", "k")


@dataclass
class Drawing:
    """A module that is being drawn.

    Attributes:
        rng: Source of randomness.
        rank: Axes of the grid and of the arrays.
        arrays: Stored dtype of each argument, by name.
        results: Stored dtype of each result, by name; all are ``InOut`` or have a first value.
        known: Dtype of each variable that has a value here.
        counters: Names of integers that are not assigned to.
    """

    rng: Random
    rank: int
    arrays: dict[str, str]
    results: dict[str, str]
    known: dict[str, str] = field(default_factory=dict)
    counters: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    count: int = 0
    in_loop: bool = False
    loops: bool = True
    returns: str = ""
    can_return: bool = True
    helper: bool = False

    def fresh(self, stem: str) -> str:
        """A new name."""
        self.count += 1
        return f"{stem}{self.count}"

    # expressions

    def literal(self, dtype: str) -> str:
        """A number, which Python may write without a dtype."""
        if dtype == "bool":
            return self.rng.choice(["True", "False"])
        if dtype in FLOATS:
            return self.rng.choice(["0.5", "1", "2.25", "3.0", "0.0", "1e3", "7"])
        return str(self.rng.choice([0, 1, 2, 3, 5, 100]))

    def typed(self, dtype: str, depth: int = 0) -> str:
        """An expression of a dtype that is no literal."""
        rng = self.rng
        ways = [n for n, t in self.known.items() if t == dtype] * 2
        ways += [f"{n}[{rng.choice([0, 1, -1])}]" for n, t in self.known.items() if t == f"tuple of {dtype}"]
        if dtype == "int64":
            ways += self.counters
        way = rng.random()
        if depth <= 0 or way < 0.25:
            if ways and rng.random() < 0.8:
                return rng.choice(ways)
            names = [n for n, t in self.arrays.items() if not t.startswith("float")]
            if names and rng.random() < 0.7:
                return self.cast(f"{rng.choice(names)}[{self.place()}]", dtype)
            return f"fb.{dtype}({self.literal(dtype)})"
        if dtype == "bool":
            return self.condition(depth - 1)
        a, b = self.typed(dtype, depth - 1), self.operand(dtype, depth - 1)
        if way < 0.65:
            op = rng.choice(["+", "-", "*"] if dtype in FLOATS else ["+", "-", "*", "&", "|", "^"])
            return f"({b} {op} {a})" if rng.random() < 0.3 else f"({a} {op} {b})"
        if way < 0.75:
            return f"({a} if {self.condition(depth - 1)} else {self.typed(dtype, depth - 1)})"
        if way < 0.82:
            return f"{rng.choice(['min', 'max'])}({a}, {b})"
        if way < 0.88:
            return f"abs({a})" if dtype != "uint8" and rng.random() < 0.5 else f"(-{a})"
        if way < 0.93 and dtype in FLOATS:
            return rng.choice([f"fb.sqrt(abs({a}))", f"fb.floor({a})", f"({a} / {rng.choice(['2', '3.0', '0.25'])})"])
        if way < 0.93:
            return rng.choice(
                [f"({a} // {rng.choice([2, 3, 7])})", f"({a} % {rng.choice([2, 5, 9])})", f"({a} >> 1)", f"(~{a})"]
            )
        return self.cast(self.typed(rng.choice(DTYPES), depth - 1), dtype, whole=dtype in INTEGERS)

    def cast(self, text: str, dtype: str, whole: bool = False) -> str:
        """A cast; of what may be a float that no integer holds, one that is guarded."""
        if dtype in INTEGERS:
            return (
                f"fb.{dtype}(fb.int32(min(max(fb.float32({text}), 0), 100)) if fb.float32({text}) == fb.float32({text}) else 0)"
                if whole
                else f"fb.{dtype}({text})"
            )
        return f"fb.{dtype}({text})"

    def operand(self, dtype: str, depth: int) -> str:
        """An expression, or a literal that takes the dtype of what it is combined with."""
        return self.literal(dtype) if self.rng.random() < 0.3 else self.typed(dtype, depth)

    def indices(self) -> list[str]:
        """The item's indices."""
        return ["i", "j", "p"][: self.rank]

    def place(self) -> str:
        """An index of the arrays that exists."""
        out = []
        for axis, name in enumerate(self.indices()):
            size = f"x0.shape[{axis}]"
            at = self.rng.choice([name, *self.counters])
            out.append(
                self.rng.choice(
                    [name, name, f"({at} + {self.rng.randrange(4)}) % {size}", f"min(abs({at}), {size} - 1)",
                     f"max({name} - {self.rng.randrange(3)}, 0)"]
                )
            )  # fmt: skip
        return ", ".join(out)

    def float_read(self, dtype: str) -> str | None:
        """An element of a float argument, as a dtype."""
        names = [n for n, t in self.arrays.items() if t.startswith("float")]
        return f"fb.{dtype}({self.rng.choice(names)}[{self.place()}])" if names else None

    def guarded(self) -> str:
        """A condition whose second part reads what may be out of bounds, which the first part excludes."""
        name = self.rng.choice([n for n, t in self.arrays.items() if t != "bool"])
        k = self.rng.randrange(1, 4)
        places, tests = [], []
        for axis, at in enumerate(self.indices()):
            if axis == 0 or self.rng.random() < 0.3:
                step = self.rng.choice([-k, k])
                places.append(f"{at} + {step}" if step > 0 else f"{at} - {-step}")
                tests.append(f"0 <= {places[-1]} < {name}.shape[{axis}]")
            else:
                places.append(at)
        read = f"{name}[{', '.join(places)}]"
        if self.rng.random() < 0.5:
            return f"({' and '.join(tests)} and {read} > 1)"
        return f"(not ({' and '.join(tests)}) or {read} <= 2)"

    def condition(self, depth: int) -> str:
        """A condition."""
        rng = self.rng
        way = rng.random()
        if way < 0.15 and not self.helper and any(t != "bool" for t in self.arrays.values()):
            return self.guarded()
        if way < 0.55 or depth <= 0:
            t = rng.choice([d for d in DTYPES if d != "bool"])
            a, b = self.typed(t, depth - 1), self.operand(t, depth - 1)
            ops = ["<", "<=", ">", ">=", "==", "!="]
            if rng.random() < 0.3:
                return f"({self.operand(t, 0)} {rng.choice(ops)} {a} {rng.choice(ops)} {b})"
            return f"({a} {rng.choice(ops)} {b})"
        if way < 0.7:
            return f"({self.condition(depth - 1)} {rng.choice(['and', 'or'])} {self.condition(depth - 1)})"
        if way < 0.8:
            return f"(not {self.condition(depth - 1)})"
        flags = [n for n, t in self.known.items() if t == "bool"]
        return rng.choice(flags) if flags else self.condition(depth - 1)

    # statements

    def put(self, depth: int, text: str) -> None:
        """Append a line."""
        self.lines.append("    " * depth + text)

    def assign(self, at: int) -> None:
        """An assignment to a variable, new or old, or of a tuple."""
        rng = self.rng
        way = rng.random()
        if way < 0.15 and len(self.known) > 1:
            t = rng.choice(list(self.known.values()))
            same = [n for n, d in self.known.items() if d == t]
            a, b = rng.choice(same), rng.choice(same)
            if a != b:
                other = a if t.startswith("tuple") or rng.random() < 0.5 else self.typed(t, 1)
                return self.put(at, f"{a}, {b} = {b}, {other}")
        if way < 0.45 and self.known:
            name = rng.choice(list(self.known))
            t = self.known[name]
            if t.startswith("tuple"):
                swapped = f"{name}[1], {name}[0]"
                return self.put(at, f"{name} = {swapped if rng.random() < 0.5 else self.pair(t)}")
            if t != "bool" and rng.random() < 0.6:
                return self.put(at, f"{name} {rng.choice(['+=', '-=', '*='])} {self.operand(t, 2)}")
            return self.put(at, f"{name} = {self.typed(t, 2)}")
        t = rng.choice(DTYPES)
        name = self.fresh("v")
        if rng.random() < 0.2:
            self.put(at, f"{name} = {self.pair(f'tuple of {t}')}")
            self.known[name] = f"tuple of {t}"
            return None
        text = (self.float_read(t) if t in FLOATS and not self.helper and rng.random() < 0.5 else None) or self.typed(t, 3)
        self.put(at, f"{name} = {text}")
        self.known[name] = t

    def pair(self, t: str) -> str:
        """A tuple of two numbers of a dtype, or one of two tuples."""
        dtype = t.removeprefix("tuple of ")
        text = f"({self.typed(dtype, 1)}, {self.typed(dtype, 1)})"
        if self.rng.random() < 0.3:
            return f"{text} if {self.condition(1)} else ({self.typed(dtype, 1)}, {self.typed(dtype, 1)})"
        return text

    def store(self, at: int) -> None:
        """A store to the item's own element of a result."""
        name = self.rng.choice(list(self.results))
        t = ARRAYS[self.results[name]]
        place = ", ".join(self.indices())
        narrow = t if t in DTYPES else "int64"
        if t != "bool" and self.rng.random() < 0.5:
            op = self.rng.choice(["+=", "-=", "*="])
            return self.put(at, f"{name}[{place}] {op} {self.convert(self.typed(narrow, 2), narrow, t)}")
        self.put(at, f"{name}[{place}] = {self.convert(self.typed(narrow, 3), narrow, t)}")

    @staticmethod
    def convert(text: str, of: str, to: str) -> str:
        """A cast if it is needed."""
        return text if of == to else f"fb.{to}({text})"

    def branch(self, at: int, depth: int) -> None:
        """An ``if``; a variable that both branches assign to has a value after it."""
        before = dict(self.known)
        self.put(at, f"if {self.condition(2)}:")
        made = self.fresh("w")
        t = self.rng.choice([*DTYPES, *(f"tuple of {d}" for d in DTYPES)])
        both = self.rng.random() < 0.4
        draw = self.pair if t.startswith("tuple") else lambda t: self.typed(t, 1)
        if both:
            self.put(at + 1, f"{made} = {draw(t)}")
        self.block(at + 1, depth - 1)
        if self.rng.random() < 0.3 and not both:
            self.known = dict(before)
            self.put(at, f"elif {self.condition(1)}:")
            self.block(at + 1, depth - 1)
        self.known = dict(before)
        if both or self.rng.random() < 0.5:
            self.put(at, "else:")
            if both:
                self.put(at + 1, f"{made} = {draw(t)}")
            self.block(at + 1, depth - 1)
        self.known = dict(before)
        if both:
            self.known[made] = t

    def loop(self, at: int, depth: int) -> None:
        """A loop: counted up or down, over a tuple, unrolled, or by a condition."""
        rng = self.rng
        before, inside = dict(self.known), self.in_loop
        name = self.fresh("c")
        way = rng.random() if self.loops else rng.uniform(0.35, 0.6)
        self.in_loop = True
        if way < 0.35:
            bounds = rng.choice(["4", "1, 5", "5, 0, -2", "0, 7, 3", "3, -1, -1", "2, 2"])
            if not self.helper and rng.random() < 0.3:
                bounds = rng.choice(["x0.shape[0]", "i + 1", "i, -1, -1", "i - 2, i + 2", "0, x0.shape[0], 2"])
            self.put(at, f"for {name} in range({bounds}):")
            self.counters.append(name)
        elif way < 0.5:
            self.in_loop = False  # no break or continue in a loop that is written out
            self.put(at, f"for {name} in K.unrolled({rng.choice(['3', '1, 4', '4, 0, -2'])}):")
        elif way < 0.6:
            self.in_loop = False
            self.put(at, f"for {name}, {name}_ in ((1, 2), (3, 5), (0, 1)):")
        else:
            self.put(at, f"{name} = fb.int64(0)")
            self.put(
                at, f"while {name} < {rng.randrange(1, 6)} and {self.condition(1)}:" if rng.random() < 0.6 else "while True:"
            )
            self.put(at + 1, f"{name} += 1")
            if self.lines[-2].endswith("while True:"):
                self.put(at + 1, f"if {name} > {rng.randrange(1, 5)}:")
                self.put(at + 2, "break")
            self.counters.append(name)
        self.block(at + 1, depth - 1, leaves=self.in_loop)
        if name in self.counters:
            self.counters.remove(name)
        self.known, self.in_loop = before, inside

    def leave(self, at: int, depth: int) -> None:
        """A branch that leaves the loop or the function."""
        ways = ["break", "continue"] if self.in_loop else []
        if self.can_return:
            ways += [f"return {self.typed(self.returns, 1)}" if self.returns else "return"]
        if ways:
            self.put(at, f"if {self.condition(1)}:")
            if self.rng.random() < 0.4:
                before = dict(self.known)
                self.block(at + 1, 0)
                self.known = before
            self.put(at + 1, self.rng.choice(ways))

    def block(self, at: int, depth: int, leaves: bool = False) -> None:
        """Some statements."""
        count = len(self.lines)
        outer = self.can_return
        if (
            leaves is False
            and self.in_loop is False
            and at > 1
            and any(line.startswith("    " * (at - 1)) and ("unrolled" in line or " in ((" in line) for line in self.lines[-1:])
        ):
            self.can_return = False  # a loop that is written out goes to its end
        for _ in range(self.rng.randrange(1, 4)):
            way = self.rng.random()
            if way < 0.4 or (way < 0.6 and self.helper):
                self.assign(at)
            elif way < 0.6:
                self.store(at)
            elif depth <= 0:
                self.assign(at)
            elif way < 0.75:
                self.branch(at, depth)
            elif way < 0.9:
                self.loop(at, depth)
            else:
                self.leave(at, depth)
        if len(self.lines) == count:
            self.put(at, "pass")
        self.can_return = outer

    def exchange(self, at: int, own: str) -> None:
        """What the items of a group give each other: by a shared array of a dtype, by counts, or directly."""
        rng = self.rng
        v, k = self.fresh("v"), rng.randrange(GROUP)
        other = rng.choice([f"(lane + {k}) % {GROUP}", f"lane ^ {k}", f"{GROUP - 1} - lane"])
        way = rng.random()
        if way < 0.4:
            self.put(at, f"own[lane] = {self.typed(own, 2)}")
            if rng.random() < 0.5:
                self.put(at, f"if {self.condition(1)}:")
                self.put(at + 1, f"own[lane] {rng.choice(['=', '+='])} {self.typed(own, 1)}")
            self.put(at, "K.barrier()")
            self.put(at, f"{v} = own[{other}]")
            self.put(at, "K.barrier()")
            self.known[v] = own
        elif way < 0.7:
            t = rng.choice([d for d in DTYPES if d != "bool"])
            self.put(at, f"{v} = K.shuffle({self.typed(t, 2)}, {other}, {rng.choice([2, 4, GROUP])})")
            self.known[v] = t
        else:
            self.put(at, "counts[lane] = fb.int32(lane)")
            self.put(at, "K.barrier()")
            self.put(at, f"if {self.condition(1)}:")
            self.put(at + 1, f"K.atomic_add(counts, {self.typed('int64', 1)} & {GROUP - 1}, {self.operand('int32', 1)})")
            self.put(at, "K.barrier()")
            self.put(at, f"{v} = counts[{other}]")
            self.put(at, "K.barrier()")
            self.known[v] = "int32"

    def phases(self, own: str) -> None:
        """The body of a kernel of groups: all items execute each exchange."""
        self.can_return = False
        for _ in range(self.rng.randrange(2, 4)):
            self.block(1, 2)
            self.exchange(1, own)
            if self.rng.random() < 0.5:
                before, c = dict(self.known), self.fresh("c")
                self.put(1, f"for {c} in range({self.rng.choice(['3', '2, 0, -1', 'x0.shape[0] // 8'])}):")
                self.counters.append(c)
                self.block(2, 1)
                self.exchange(2, own)
                self.counters.remove(c)
                self.known = before


GROUP = 8
"""Items of a group."""
HEAD = '''"""A random kernel."""
from __future__ import annotations
import firebrick as fb
K = fb.kernel
LIMIT = 3
WEIGHT = 0.75
'''


def drawn_source(seed: int, loops: bool = True, groups: bool = False) -> str:
    """The text of a module whose function ``kernel`` is a random kernel of the arguments x0, x1, ….

    Args:
        seed: Of the randomness.
        loops: Whether it has loops that are not written out.
        groups: Whether its items are in groups, which exchange numbers.
    """
    rng = Random(seed)
    rank = 1 if groups else rng.choice([1, 1, 2, 3])
    arrays = {f"x{k}": rng.choice(list(ARRAYS)) for k in range(rng.randrange(1, 4))}
    results = {f"y{k}": rng.choice(list(ARRAYS)) for k in range(rng.randrange(1, 3))}
    parts = [HEAD]
    helpers = {}
    for k in range(rng.randrange(0, 3)):
        t = rng.choice([d for d in DTYPES if d != "bool"])
        h = Drawing(rng, 1, {}, {}, {"a": t, "b": "int64"}, [], [], 10 * k, helper=True)
        h.returns, h.loops = t, loops
        h.put(0, "@K.function")
        h.put(0, f"def helper{k}(a, b=LIMIT):")
        h.put(1, "b = fb.int64(b)")
        h.block(1, 2)
        h.put(1, f"return {h.typed(t, 2)}")
        helpers[f"helper{k}"] = t
        parts.append("\n".join(h.lines) + "\n")
    d = Drawing(rng, rank, arrays, results)
    d.loops = loops
    shape = ", ".join(SIZES[:rank])
    params = [f'{n}: K.In[fb.{t}, "{shape}"]' for n, t in arrays.items()]
    params += [f"s: {rng.choice(['float', 'int', 'fb.int32', 'fb.float64'])}"]
    for n, t in results.items():
        first = "1" if t != "bool" else "True"
        params.append(f'{n}: K.Out[fb.{t}, "{shape}", {first}]')
    d.put(0, f'@K(grid="n // {GROUP}", group={GROUP})' if groups else "@K")
    d.put(0, f"def kernel({', '.join(params)}):")
    d.put(1, f"{', '.join(d.indices())} = K.index()")
    d.known |= {"s1": "float32", "s2": "int64"}
    d.counters = d.indices()
    d.put(1, "s1 = fb.float32(s) * WEIGHT")
    d.put(1, "s2 = fb.int64(LIMIT) + i")
    for name, t in helpers.items():
        v = d.fresh("h")
        second = rng.choice(["", ", s2", ", b=i"])
        d.put(1, f"{v} = {name}({d.typed(t, 1)}{second})")
        d.known[v] = t
    if groups:
        own = rng.choice([t for t in DTYPES if t != "bool"])
        d.put(1, "lane = K.lane()")
        d.counters = [*d.counters, "lane"]
        d.put(1, f"own = K.shared(fb.{own}, {GROUP})")
        d.put(1, f"counts = K.shared(fb.int32, {GROUP})")
        d.phases(own)
    else:
        for _ in range(rng.randrange(1, 4)):
            d.block(1, 3)
    d.store(1)
    for name in results:
        d.put(1, f"{name}[{', '.join(d.indices())}] = {name}[{', '.join(d.indices())}]")
    return "\n".join(parts) + "\n" + "\n".join(d.lines) + "\n"


def kernel_of(source: str, path: Path) -> Any:
    """The kernel of a module, which is written to a file."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def arguments_of(kernel: Any, rng: np.random.Generator) -> list[Any]:
    """Arrays of a few elements, among them extreme integers, and a number."""
    shape = tuple(rng.integers(1, most) for most in (12, 4, 4))
    if kernel._group:
        shape = (GROUP * int(rng.integers(1, 4)),)
    out: list[Any] = []
    for p in kernel.signature.given.values():
        if not isinstance(p, ArrayType):
            out.append(2)
            continue
        of, assigned = p.dtype, shape[: p.rank]
        assert isinstance(of, fb.DType)
        if of.kind == "bool":
            out.append(rng.random(assigned) < 0.5)
        elif of.kind == "float":
            out.append((rng.integers(-40, 40, assigned) / 8).astype(of.np))
        else:
            info = np.iinfo(of.np)
            extreme = rng.integers(info.min, info.max, assigned, dtype=of.np, endpoint=True)
            out.append(np.where(rng.random(assigned) < 0.3, extreme, rng.integers(0, 4, assigned).astype(of.np)))
    return out


def same_numbers(a: Array, b: Array) -> bool:
    """Whether arrays are equal in bits, but for NaN's."""
    nan = np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
    return bool((nan | ((a == b) & (np.signbit(a) == np.signbit(b)) if a.dtype.kind == "f" else a == b)).all())
