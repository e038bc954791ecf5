"""Kernel IR as a WGSL compute shader: one invocation for each work item.

Bindings of group 0 are the kernel's arrays, in order, then the words of the launch, a uniform buffer, then the table of faults
if the kernel has checks. Workgroups of a launch are counted along x, then along y, since each axis has at most 65,535.

======================  =======================================================
word of the launch      meaning
======================  =======================================================
0                       items, or groups, of the launch
1                       0, which the driver does not know
2                       number of the kernel's first site in the table of faults
3, …                    sizes of the grid
…                       scalars, of which a float64 has two words
======================  =======================================================

The table of faults is that of ``faults`` with 32-bit payloads, since WebGPU has no larger atomic operations: word 0 as there,
word 1 + site 2³² - 1 - (payload + 2³¹). Payloads beyond 32 bits are saturated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from firebrick.compiler.kernel.ir import (
    Assign,
    Atomic,
    Barrier,
    Check,
    CompareExchange,
    For,
    Function,
    If,
    Let,
    ScalarParameter,
    Shuffle,
    Statement,
    Store,
    While,
    statements,
)
from firebrick.compiler.targets.wgsl.bindings import WORD, BoundArray
from firebrick.compiler.targets.wgsl.operations import TYPES, UNKNOWN_ZERO, constant, fenced, float64_of, operation
from firebrick.compiler.targets.wgsl.packed_elements import FOUR, NARROW, ElementMemory, QuadMemory
from firebrick.compiler.targets.wgsl.quads import LoopQuads, in_quads
from firebrick.compiler.targets.wgsl.subgroups import (
    GLOBALS,
    PARAMETERS,
    agreement,
    moved_together,
    moves,
    source,
    test,
    width_of,
)
from firebrick.scalar.expr import FLOATS, Expr, local, walk

ITEMS = 64
"""Items of a workgroup of a kernel without groups."""
MOST_GROUPS = 65535
"""Maximum number of workgroups of a launch along an axis."""
_HEAD = 3


@dataclass(frozen=True, slots=True)
class Shader:
    """A compute shader.

    Attributes:
        text: WGSL, with the entry point ``main``.
        access: For each array, whether it is only read.
        checks: Whether the last binding is a table of faults.
        axes: Number of axes of the grid.
        group: As of ``Function``.
        scalars: The dtypes of its scalars.
        elements: Elements of the grid that an item computes: the last items may read and store up to three behind the end of an
            array, so bindings are of whole quads.
        windows: For each array the number of its bindings.
        window: Bytes of each binding of an array but its last; 0 if all have one.
    """

    text: str
    access: tuple[bool, ...]
    checks: bool
    axes: int
    group: int
    scalars: tuple[str, ...]
    elements: int = 1
    windows: tuple[int, ...] = ()
    window: int = 0

    @property
    def reads(self) -> tuple[bool, ...]:
        """For each binding of an array, whether it is only read."""
        return tuple(read for read, n in zip(self.access, self.windows, strict=True) for _ in range(n))

    def bindings(self, sizes: Sequence[int]) -> list[tuple[int, int, int]]:
        """The bindings of a launch: the number of the array, the offset, and the size, in bytes, a multiple of four.

        Args:
            sizes: Bytes of each array.
        """
        found, whole = [], WORD * self.elements
        for k, size in enumerate(sizes):
            end = max(-(-size // whole) * whole, WORD)
            for j in range(self.windows[k]):
                begin = j * self.window
                found.append((k, begin, end - begin if j + 1 == self.windows[k] else self.window))
        return found

    def words(self, scalars: Sequence[float], grid: Sequence[int], site: int = 0) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """The words of a launch, uint32, a multiple of four.

        Args:
            scalars: A number for each scalar.
            grid: Sizes of the grid.
            site: Number of the kernel's first site in the table of faults.
        """
        words = [self._count(grid), 0, site, *grid]
        for value, dtype in zip(scalars, self.scalars, strict=True):
            if dtype in FLOATS:
                words += np.asarray([value], dtype).view(np.uint32).tolist()
            else:
                words.append(int(value) & 0xFFFFFFFF)
        return np.array(words + [0] * (-len(words) % 4), np.uint32)

    def workgroups(self, grid: Sequence[int]) -> tuple[int, int]:
        """The number of workgroups along x and y."""
        count = self._count(grid) if self.group else -(-self._count(grid) // ITEMS)
        if count <= MOST_GROUPS:
            return count, 1
        rows = -(-count // MOST_GROUPS)
        return -(-count // rows), rows

    def _count(self, grid: Sequence[int]) -> int:
        """The number of items, or of groups."""
        return int(np.prod(grid[:-1])) if self.group else -(-int(np.prod(grid)) // self.elements)


def shader(
    function: Function, fences: bool = True, contracts: bool = True, quads: bool = False, fours: Collection[str] | None = None,
    windows: Sequence[int] = (), window: int = 0, subgroup: int = 1,
) -> Shader:  # fmt: skip
    """The shader of a kernel.

    Args:
        function: A legalized kernel without arrays of half precision and atomic operations of 64 bits (see ``prepared``).
        fences: Whether the results of float arithmetic are fenced (see ``operations``).
        contracts: Whether the driver may round a product and a sum once; if not, a product in a sum is not fenced.
        quads: Whether an item computes four elements, if the kernel is one of ``in_quads``.
        fours: Scalars that are multiples of four, by which loops of rows are taken in quads; None for no such loops.
        windows: For each array the number of its bindings; by default one.
        window: Bytes of each binding of an array but its last.
        subgroup: Maximum width of shuffles by subgroup operations; 1 for none.
    """
    own = in_quads(function) if quads else frozenset[str]()
    loops = LoopQuads(function, fours) if fours is not None and not own else None
    counts = tuple(windows) or (1,) * len(function.arrays)
    return _ShaderPrinter(
        function, fences, contracts, own, loops, counts, window if max(counts, default=1) > 1 else 0, subgroup
    ).shader()


class _ShaderPrinter:
    """Prints one kernel."""

    def __init__(
        self, function: Function, fences: bool, contracts: bool, quads: frozenset[str], loops: LoopQuads | None,
        windows: tuple[int, ...], window: int, subgroup: int,
    ) -> None:  # fmt: skip
        self.function, self.fences, self.contracts = function, fences, contracts
        self.loops, self.windows, self.window = loops, windows, window
        self.items = bool(quads)  # whether an item computes a quad
        inside = quads or (loops.arrays if loops else frozenset())
        counts = dict(zip((a.name for a in function.arrays), windows, strict=True))
        self.quads = {
            a.name: QuadMemory(f"a_{a.name}", a.dtype, counts[a.name], window) for a in function.arrays if a.name in inside
        }
        self.element = 0  # of a quad, which the statements are of
        self.held: dict[tuple[str, Expr], str] = {}  # arrays and indices → quads that were read
        self.lines: list[str] = []
        self.constants: dict[Expr, str] = {}
        self.indent = 1
        self._count = 0
        self._bounds = 0
        self.exchanges: set[str] = set()
        self.subgroup = width_of(function, subgroup) if subgroup > 1 else 1
        self.by_subgroups = False  # how the statements that are being printed shuffle
        changed = {s.array for s in statements(function.body) if isinstance(s, Atomic | CompareExchange)}
        self.memory: dict[str, ElementMemory] = {}
        for a in function.arrays:
            atomic = a.name in changed or (a.dtype in NARROW and a.access != "read")
            self.memory[a.name] = ElementMemory(f"a_{a.name}", a.dtype, False, atomic, counts[a.name], window)
        for s in function.shared:
            self.memory[s.name] = ElementMemory(f"s_{s.name}", s.dtype, True, s.name in changed)

    def shader(self) -> Shader:
        f = self.function
        if self.items:
            self._quads(f.body)
        elif self.subgroup > 1:
            self._either(f.body)
        else:
            self.block(f.body)
        checks = any(isinstance(s, Check) for s in statements(f.body))
        words = _HEAD + len(f.outer) + 1 + sum(map(_words, f.scalars))
        text = "\n".join(
            [
                *self._globals(checks, -(-words // 4)),
                *self._windows("\n".join(self.lines)),
                "@compute @workgroup_size(" + str(f.group or ITEMS) + ")",
                "fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,",
                f"        @builtin(local_invocation_index) own: u32{PARAMETERS if self.subgroup > 1 else ''}) {{",
                *self._opening(),
                *(f"    let {name}: {TYPES[e.dtype]} = {constant(e, opaque=True)};" for e, name in self.constants.items()),
                *self.lines,
                "}",
                "",
            ]
        )
        access = tuple(a.access == "read" for a in f.arrays)
        elements = FOUR if self.items else 1
        return Shader(
            text,
            access,
            checks,
            len(f.outer) + 1,
            f.group,
            tuple(s.dtype for s in f.scalars),
            elements,
            self.windows,
            self.window,
        )

    def _either(self, body: Sequence[Statement]) -> None:
        """The statements twice: with shuffles by subgroup operations, where these do what they should, and without."""
        for line in (*test(self.subgroup), *agreement()):
            self.put(line)
        for self.by_subgroups in (True, False):
            self.put("if (workgroupUniformLoad(&agreed) == 0u) {" if self.by_subgroups else "} else {")
            self.inner(body)
        self.put("}")

    def _quads(self, body: Sequence[Statement]) -> None:
        """The statements for each element of a quad, between reads and stores of whole quads."""
        own = local(self.function.item, "int32")
        values = [s.value for s in body if isinstance(s, Let | Store)]
        for name in sorted({str(e.value) for e in walk(values) if e.op == "element"} & self.quads.keys()):
            self.put(f"let q_{name} = {self.quads[name].quads.load('quad')};")
            self.held[name, own] = f"q_{name}"
        self._four(body, f"v_{self.function.item}", "first", {s.array: "quad" for s in body if isinstance(s, Store)})

    def _loop_of_quads(self, s: For) -> None:
        """A loop of which each round has the statements of four, between reads and stores of whole quads."""
        assert self.loops is not None
        (stop,) = self.values(s.stop)
        end, counter = self._fresh("stop"), self._fresh("round")
        self.put(f"let {end}: i32 = {stop};")
        self.put(f"for (var {counter}: i32 = 0i; {counter} < {end}; {counter} += {FOUR}i) {{")
        self.indent += 1
        self.put(f"let v_{s.name} = {counter};")
        stored: dict[str, str] = {}
        before, self.held = self.held, {}
        for name, at, writes in self.loops.accesses[s]:
            (index,) = self.values(at)
            quad = self._fresh("quad")
            self.put(f"let {quad} = u32({index}) / {FOUR}u;")
            if writes:
                stored[name] = quad
            else:
                self.held[name, at] = self._fresh("q")
                self.put(f"let {self.held[name, at]} = {self.quads[name].quads.load(quad)};")
        self._four(s.body, f"v_{s.name}", counter, stored)
        self.held = before
        self.indent -= 1
        self.put("}")

    def _four(self, body: Sequence[Statement], counter: str, first: str, stored: Mapping[str, str]) -> None:
        """The statements for each element of a quad; ``stored``: the arrays that they store to, and the index of the quad."""
        for name in stored:
            for k in range(FOUR):
                self.put(f"var s_{name}_{k}: {self.quads[name].held};")
        for self.element in range(FOUR):
            self.put("{")
            self.indent += 1
            self.put(f"let {counter} = {first} + {self.element}i;")
            self.block(body)
            self.indent -= 1
            self.put("}")
        for name, quad in sorted(stored.items()):
            m = self.quads[name]
            self.put(m.quads.store(quad, m.quad([f"s_{name}_{k}" for k in range(FOUR)])))

    # declarations

    def _globals(self, checks: bool, words: int) -> list[str]:
        f = self.function
        lines = ["enable f16;"] if any(a.dtype == "float16" for a in f.memory) else []
        count = 0
        for a, bound in zip(f.arrays, self._bound(), strict=True):
            lines += bound.declarations(count, "read" if a.access == "read" else "read_write")
            count += bound.windows
        lines.append(f"@group(0) @binding({count}) var<uniform> launch: array<vec4<u32>, {words}>;")
        if checks:
            lines.append(f"@group(0) @binding({count + 1}) var<storage, read_write> faults: array<atomic<u32>>;")
        for s in f.shared:
            m = self.memory[s.name]
            lines.append(f"var<workgroup> {m.name}: array<{m.type}, {s.extent}>;")
        lines += [f"var<workgroup> {_exchange(t)}: array<{t}, {f.group}>;" for t in sorted(self.exchanges)]
        lines += GLOBALS if self.subgroup > 1 else ()
        return lines

    def _bound(self) -> list[BoundArray]:
        """The arrays as they are bound."""
        return [self.quads[a.name].quads if a.name in self.quads else self.memory[a.name].words for a in self.function.arrays]

    def _windows(self, text: str) -> list[str]:
        """The functions by which a text accesses arrays of several windows."""
        return [line for bound in self._bound() for line in bound.functions(text)]

    def _opening(self) -> list[str]:
        """The locals that each shader begins with."""
        f = self.function
        lines = [
            f"    let {UNKNOWN_ZERO} = {_word(1)};",
            "    let place = workgroup.y * workgroups.x + workgroup.x;",
        ]
        axes = [*f.outer, f.item]
        if f.group:
            lines += [f"    if (place >= {_word(0)}) {{ return; }}", "    var rest = place;"]
            lines.append(f"    let v_{f.item} = i32(own);")
            axes.pop()
        else:
            lines.append(f"    var rest = place * {ITEMS}u + own;")
            lines.append(f"    if (rest >= {_word(0)}) {{ return; }}")
        if self.items:
            return [*lines, "    let quad = rest;", f"    let first = i32({FOUR}u * rest);", *self._scalars()]
        for k in range(len(axes) - 1, -1, -1):
            size = _word(_HEAD + k)
            lines.append(f"    let v_{axes[k]} = i32({f'rest % {size}' if k else 'rest'});")
            if k:
                lines.append(f"    rest = rest / {size};")
        return [*lines, *self._scalars()]

    def _scalars(self) -> list[str]:
        scalars = self.function.scalars
        places = accumulate(map(_words, scalars), initial=_HEAD + len(self.function.outer) + 1)
        return [
            f"    let v_{s.name}: {TYPES[s.dtype]} = {_scalar(s.dtype, at)};" for s, at in zip(scalars, places, strict=False)
        ]

    # statements

    def put(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def block(self, body: Sequence[Statement]) -> None:
        for s in moved_together(body):
            if isinstance(s, list):
                self._shuffle(s)
            else:
                self.statement(s)

    def inner(self, body: Sequence[Statement]) -> None:
        self.indent += 1
        self.block(body)
        self.indent -= 1

    def statement(self, s: Statement) -> None:
        match s:
            case Let():
                (value,) = self.values(s.value)
                self.put(f"var v_{s.name}: {TYPES[s.value.dtype]} = {value};")
            case Assign():
                (value,) = self.values(s.value)
                self.put(f"v_{s.name} = {value};")
            case For() if self.loops is not None and s in self.loops.accesses:
                self._loop_of_quads(s)
            case For():
                self._for(s)
            case While():
                self.put("loop {")
                self.indent += 1
                (more,) = self.values(s.condition)
                self.put(f"if (!({more})) {{ break; }}")
                self.block(s.body)
                self.indent -= 1
                self.put("}")
            case If():
                (condition,) = self.values(s.condition)
                self.put(f"if ({condition}) {{")
                self.inner(s.then)
                if s.otherwise:
                    self.put("} else {")
                    self.inner(s.otherwise)
                self.put("}")
            case Store():
                at, value = self.values(s.index, s.value)
                if s.array in self.quads:
                    self.put(f"s_{s.array}_{self.element} = {self.quads[s.array].part(value)};")
                    return
                for line in self.memory[s.array].write(f"u32({at})", value):
                    self.put(line)
            case Check():
                self._check(s)
            case Atomic():
                self._atomic(s)
            case CompareExchange():
                self._compare_exchange(s)
            case Barrier():
                self.put("storageBarrier();")
                self.put("workgroupBarrier();")

    def _for(self, s: For) -> None:
        start, stop = self.values(s.start, s.stop)
        end = self._fresh("stop")
        self.put(f"let {end}: i32 = {stop};")
        name = f"v_{s.name}"
        if s.step == 1:
            self.put(f"for (var {name}: i32 = {start}; {name} < {end}; {name}++) {{")
        else:  # the counter does not wrap around: the last distance is shorter than a step
            left = f"bitcast<u32>({end}) - bitcast<u32>({name})"
            following = f"{name} = select({end}, {name} + {s.step}, {left} > {s.step}u)"
            self.put(f"for (var {name}: i32 = {start}; {name} < {end}; {following}) {{")
        self.inner(s.body)
        self.put("}")

    def _check(self, s: Check) -> None:
        (holds,) = self.values(s.condition)
        self.put(f"if (!({holds})) {{")
        self.indent += 1
        (payload,) = self.values(s.payload)
        self.put(f"let site = {_word(2)} + {s.site}u;")
        self.put("atomicMax(&faults[0], 0xffffffffu - site);")
        self.put(f"atomicMax(&faults[1u + site], 0xffffffffu - (bitcast<u32>({payload}) ^ 0x80000000u));")
        self.indent -= 1
        self.put("}")

    def _atomic(self, s: Atomic) -> None:
        m = self.memory[s.array]
        at, value = self.values(s.index, s.value)
        to, name = f"u32({at})", f"v_{s.name}" if s.name else self._fresh("before")
        if m.dtype == "float32" and s.op != "exchange":
            self._float_atomic(s, m, to, name, value)
            return
        value = f"bitcast<u32>({value})" if m.dtype == "float32" else value
        call = m.words.atomic(s.op.title(), to, value)
        if s.name:
            self.put(f"var {name} = {f'bitcast<f32>({call})' if m.dtype == 'float32' else call};")
        else:
            self.put(f"{call};")

    def _float_atomic(self, s: Atomic, m: ElementMemory, to: str, name: str, value: str) -> None:
        """A read-modify-write that is tried until no other item's came between."""
        old, tried = self._fresh("old"), self._fresh("tried")
        x = f"bitcast<f32>({old})"
        nan = "(bitcast<u32>({0}) & 0x7fffffffu) > 0x7f800000u"
        combined = {
            "add": fenced(f"{x} + {value}"),
            "min": f"select(select({value}, {x}, {x} < {value}), select({value}, {x}, {nan.format(x)}),"
            f" {nan.format(x)} || {nan.format(value)})",
            "max": f"select(select({value}, {x}, {x} > {value}), select({value}, {x}, {nan.format(x)}),"
            f" {nan.format(x)} || {nan.format(value)})",
        }[s.op]
        self.put(f"var {old} = {m.words.load(to)};")
        self.put("loop {")
        self.put(f"    let {tried} = {m.words.atomic('CompareExchangeWeak', to, old, f'bitcast<u32>({combined})')};")
        self.put(f"    if ({tried}.exchanged) {{ break; }}")
        self.put(f"    {old} = {tried}.old_value;")
        self.put("}")
        if s.name:
            self.put(f"var {name} = {x};")

    def _compare_exchange(self, s: CompareExchange) -> None:
        m = self.memory[s.array]
        at, expected, value = self.values(s.index, s.expected, s.value)
        tried = self._fresh("tried")
        self.put(f"var v_{s.name}: {TYPES[s.value.dtype]};")
        self.put("loop {")  # the weak form may fail although the element has the expected value
        self.put(f"    let {tried} = {m.words.atomic('CompareExchangeWeak', f'u32({at})', expected, value)};")
        self.put(f"    v_{s.name} = {tried}.old_value;")
        self.put(f"    if ({tried}.exchanged || {tried}.old_value != {expected}) {{ break; }}")
        self.put("}")

    def _shuffle(self, together: Sequence[Shuffle]) -> None:
        """Shuffles from one item."""
        at, *values = self.values(together[0].source, *(s.value for s in together))
        width, kind = together[0].width, TYPES[together[0].value.dtype]
        held = "u32" if kind == "bool" else kind
        values = [f"u32({v})" for v in values] if kind == "bool" else values
        many, moved = len(values) > 1, self._fresh("moved")
        held = f"vec{len(values)}<{held}>" if many else held
        given = f"{held}({', '.join(values)})" if many else values[0]
        if self.by_subgroups and moves(together[0], self.subgroup):
            self.put(f"let {moved} = subgroupShuffle({given}, {source(width, f'u32({at})')});")
        else:
            self.exchanges.add(held)
            self.put("workgroupBarrier();")  # others may still read what was stored by the shuffle before
            self.put(f"{_exchange(held)}[own] = {given};")
            self.put("workgroupBarrier();")
            self.put(f"let {moved} = {_exchange(held)}[(own & ~{width - 1}u) | (u32({at}) & {width - 1}u)];")
        for k, s in enumerate(together):
            value = f"{moved}.{'xyzw'[k]}" if many else moved
            self.put(f"var v_{s.name}: {kind} = {f'({value} != 0u)' if kind == 'bool' else value};")

    # expressions

    def values(self, *roots: Expr) -> list[str]:
        """The values of expressions here; appends a local for each node that is not a leaf."""
        texts: dict[Expr, str] = {}
        nodes = walk(roots)
        inlined = _products_of_sums(nodes, roots) if self.fences and not self.contracts else set()
        for e in nodes:
            if e in inlined:
                texts[e] = f"({texts[e.args[0]]} * {texts[e.args[1]]})"
            elif e.op == "const":
                texts[e] = self._constant(e)
            elif e.op == "local":
                texts[e] = f"v_{e.value}"
            else:
                args = [texts[a] for a in e.args]
                if e.op == "element" and e.value in self.quads:
                    at = self.loops.index(e.args[0]) if self.loops else e.args[0]
                    text = self.quads[str(e.value)].read(self.held[str(e.value), at], self.element)
                elif e.op == "element":
                    text = self.memory[str(e.value)].read(f"u32({args[0]})")
                else:
                    text = operation(e, args, self.fences)
                texts[e] = self._fresh("t")
                self.put(f"let {texts[e]}: {TYPES[e.dtype]} = {text};")
        return [texts[r] for r in roots]

    def _constant(self, e: Expr) -> str:
        if e.dtype not in FLOATS or not self.fences:
            return constant(e)
        return self.constants.setdefault(e, f"c{len(self.constants)}")

    def _fresh(self, stem: str) -> str:
        self._count += 1
        return f"{stem}{self._count}"


def _products_of_sums(nodes: Sequence[Expr], roots: Sequence[Expr]) -> set[Expr]:
    """Products that need no fence of their own: each is one term of one sum, whose other term is fenced."""
    users: dict[Expr, list[Expr]] = {}
    for e in nodes:
        for a in e.args:
            users.setdefault(a, []).append(e)
    found: set[Expr] = set()
    for e in nodes:
        if e.op == "add" and e.dtype in FLOATS:
            terms = [a for a in e.args if a.op == "mul" and len(users[a]) == 1 and a not in roots]
            found.update(terms[:1])
    return found


def _words(s: ScalarParameter) -> int:
    """The number of words of a scalar."""
    return 2 if s.dtype == "float64" else 1


def _exchange(kind: str) -> str:
    """The workgroup memory by which values of a type are exchanged."""
    return f"exchange_{kind.replace('<', '_').replace('>', '')}"


def _word(k: int) -> str:
    return f"launch[{k // 4}].{'xyzw'[k % 4]}"


def _scalar(dtype: str, at: int) -> str:
    word = _word(at)
    if dtype == "float64":
        return float64_of(word, _word(at + 1))
    if dtype == "bool":
        return f"({word} != 0u)"
    return word if dtype == "uint32" else f"bitcast<{TYPES[dtype]}>({word})"
