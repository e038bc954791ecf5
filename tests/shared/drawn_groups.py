"""Random kernels of groups, with one result in every order of items and groups: shared arrays, barriers, shuffles, atomics.

Between two barriers a shared array is used in one way. ``own``: each item reads and stores its own elements. ``open``: all
items read all elements. ``claimed``: each item accesses its own elements, by atomic operations with results. The name of an
operation: all items change all elements, by that atomic operation, which commutes, without results. A barrier changes the
ways; a block with barriers ends in one that restores them, so that it may be executed any number of times. Arrays of the
launch that are accessed by atomics are used in one way throughout. Each element is stored before it is read.

Kernels without a group have several axes, and the arrays of the launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from drawn_kernels import OWN, Drawn, Maker, Names
from written_kernels import Launch, whole

from firebrick.compiler.kernel import (
    ArrayParameter,
    Assign,
    Atomic,
    Barrier,
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
)
from firebrick.scalar.expr import FLOATS, Expr, binary, cast, const, local
from firebrick.scalar.storage import STORAGE, computed

WORDS = ("int32", "int64", "uint32", "uint64")
COMMUTATIVE = ("add", "min", "max", "and", "or", "xor")
GROUPS = (0, 1, 2, 4, 6, 8, 16, 32, 48, 64)


def draw_group(seed: int) -> Launch:
    """The random kernel of a seed, with a launch; what it makes is not known."""
    return DrawnGroup(seed).launch()


class DrawnGroup(Drawn):
    """A kernel of groups while it is drawn.

    Attributes:
        together: Whether all items of a group execute the statement that is drawn.
        same: Names with one value for all items of a group.
        ways: How each shared array is used here.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        self.group = int(rng.choice(GROUPS))
        sizes = [int(n) for n in rng.integers(1, 4, rng.integers(3))]
        self.grid = (*sizes, self.group or int(rng.integers(1, 20)))
        self.outer = tuple(f"r{a}" for a in range(len(sizes)))
        self.counts = [ScalarParameter(f"n{a}") for a in range(len(self.grid))]
        self.scalars += self.counts
        self.number = local("i", "int64") if not sizes else local("r0", "int64")
        for a, name in list(enumerate((*self.outer, "i")))[1:]:
            self.number = self.number * self.counts[a].value + local(name, "int64")
        self.shared: list[SharedArray] = []
        if self.group:
            dtypes = [str(rng.choice(STORAGE)), *(str(d) for d in rng.choice((*WORDS, *FLOATS), 2))]
            self.shared = [SharedArray(f"shared{k}", d, self.group * OWN) for k, d in enumerate(dtypes)]
        self.claimed = ArrayParameter("claimed", str(rng.choice((*WORDS, *FLOATS))), "read_write")
        self.added = ArrayParameter("added", str(rng.choice(WORDS)), "read_write", 8)
        self.together, self.uniform = True, False
        self.same = {s.name for s in self.scalars} | set(self.outer)
        self.operation = str(rng.choice(COMMUTATIVE))
        self.ways: dict[str, str] = dict.fromkeys((a.name for a in self.shared), "unset")

    def launch(self) -> Launch:
        indices = dict.fromkeys((*self.outer, "i"), ("int64", False))
        visible: Names = {s.name: (s.dtype, False) for s in self.scalars} | indices
        body: list[Statement] = []
        for a in self.shared:  # whose elements have no value so far
            k = For(self.name(), whole(0), whole(OWN), 1, ())
            value = self.value(visible, computed(a.dtype), 1)
            body.append(For(k.name, k.start, k.stop, 1, (Store(a.name, local("i", "int64") * OWN + k.counter, value),)))
            self.ways[a.name] = "own"
        body += self.met() if self.shared else []
        body += [*self.block(visible, 3, 8), *self.store(visible), *self.store(visible)]
        for a in self.shared:  # what is left in them
            if self.ways[a.name] != "own":
                body += self.met({a.name: "own"})
            out = self.outputs[self.rng.integers(len(self.outputs))]
            body.append(Store(out.name, self.own(visible), cast(self.read(a, visible), computed(out.dtype))))
        arrays = (*self.inputs, *self.outputs, self.claimed, self.added)
        f = Function(
            f"drawn{self.seed}", arrays, tuple(self.scalars), "i", tuple(body), self.outer, self.group, tuple(self.shared)
        )
        items = 1
        for n in self.grid:
            items *= n
        sizes = {a.name: a.extent or items * OWN for a in arrays}
        memory = {a.name: self.numbers(a.dtype, sizes[a.name]) for a in arrays}
        scalars = {s.name: self.numbers(s.dtype, 1).item() for s in self.scalars}
        scalars |= {s.name: n for s, n in zip(self.counts, self.grid, strict=True)}
        return Launch(f, memory, {}, self.grid, scalars)

    # statements

    def kinds(self, depth: int) -> list[Maker]:
        out = super().kinds(depth) + [self.atomic, self.claim] + [self.share, self.share] * bool(self.shared)
        if self.group and self.together:
            out += [self.shuffle, self.barrier, self.barrier]
        return out

    def barrier(self, visible: Names, depth: int) -> list[Statement]:
        return self.met()

    def met(self, ways: dict[str, str] | None = None) -> list[Statement]:
        """A barrier, after which shared arrays are used in given ways, or in others than before."""
        if ways is None:
            choices = {a.name: ["own", "open"] + (["claimed", *COMMUTATIVE] if a.dtype in WORDS else []) for a in self.shared}
            choices |= {a.name: ["own", "open", "claimed"] for a in self.shared if a.dtype in FLOATS}
            ways = {name: str(self.rng.choice(c)) for name, c in choices.items()}
        self.ways = self.ways | ways
        return [Barrier()]

    def share(self, visible: Names, depth: int) -> list[Statement]:
        """Use a shared array in the way that it is used here."""
        a = self.shared[self.rng.integers(len(self.shared))]
        way = self.ways[a.name]
        if way == "own":
            return [Store(a.name, self.mine(visible), self.value(visible, computed(a.dtype)))]
        if way == "open":
            s = Let(self.name(), self.read(a, visible))
            visible[s.name] = (s.value.dtype, True)
            return [s]
        if way == "claimed":
            return self.claimed_access(a, self.mine(visible), visible)
        return [Atomic(way, a.name, self.any_of(a.extent, visible), self.value(visible, a.dtype))]

    def atomic(self, visible: Names, depth: int) -> list[Statement]:
        value = self.value(visible, self.added.dtype)
        return [Atomic(self.operation, "added", self.any_of(self.added.extent or 0, visible), value)]

    def claim(self, visible: Names, depth: int) -> list[Statement]:
        return self.claimed_access(self.claimed, self.own(visible), visible)

    def claimed_access(self, a: ArrayParameter | SharedArray, index: Expr, visible: Names) -> list[Statement]:
        value, name = self.value(visible, a.dtype), self.name()
        ops = ("add", "exchange") if a.dtype in FLOATS else (*COMMUTATIVE, "exchange")
        kind = self.rng.random()
        if kind < 0.2:
            return [Atomic(str(self.rng.choice(ops)), a.name, index, value)]
        visible[name] = (a.dtype, False)
        if kind < 0.6 or a.dtype in FLOATS:
            return [Atomic(str(self.rng.choice(ops)), a.name, index, value, name)]
        return [CompareExchange(name, a.name, index, self.value({}, a.dtype, 1), value)]

    def shuffle(self, visible: Names, depth: int) -> list[Statement]:
        widths = [w for w in (1, 2, 4, 8, 16, 32, 64) if self.group % w == 0]
        value = self.value(visible, self.dtype(), 2)
        s = Shuffle(self.name(), value, self.value(visible, "int64", 2), int(self.rng.choice(widths)))
        visible[s.name] = (value.dtype, False)
        return [s]

    def branch(self, visible: Names, depth: int) -> list[Statement]:
        if not self.shall_stay():
            with self.apart():
                return super().branch(visible, depth)
        condition = self.uniform_value(visible, "bool")
        return [If(condition, self.restoring(visible, depth - 1), self.restoring(visible, depth - 1))]

    def counted(self, visible: Names, depth: int) -> list[Statement]:
        if not self.shall_stay():
            with self.apart():
                return super().counted(visible, depth)
        name, start = self.name(), self.uniform_value(visible, "int64") & 3
        stop = self.uniform_value(visible, "int64") & 3
        self.same.add(name)
        body = self.restoring(visible | {name: ("int64", False)}, depth - 1)
        return [For(name, start - 2, stop, int(self.rng.integers(1, 3)), body)]

    def loop(self, visible: Names, depth: int) -> list[Statement]:
        if not self.shall_stay():
            with self.apart():
                return super().loop(visible, depth)
        rounds = Let(self.name(), self.uniform_value(visible, "int64") & 3)
        self.same.add(rounds.name)
        inner = visible | {rounds.name: ("int64", False)}
        body = self.restoring(inner, depth - 1)
        more = (rounds.local > 0) & self.uniform_value(inner, "bool")
        return [rounds, While(more, (*body, Assign(rounds.name, rounds.local - 1)))]

    def restoring(self, visible: Names, depth: int) -> tuple[Statement, ...]:
        """A block with the ways that arrays have before it at its end too."""
        ways = dict(self.ways)
        return (*self.block(visible, depth, 4), *self.met(ways))

    def shall_stay(self) -> bool:
        return bool(self.group) and self.together and self.rng.random() < 0.6

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Control flow that may differ between items of a group."""
        before, self.together = self.together, False
        try:
            yield
        finally:
            self.together = before

    # expressions

    def mine(self, visible: Names) -> Expr:
        """The index of an element that a group leaves to the item."""
        return local("i", "int64") * OWN + (self.value(visible, "int64", 1) & (OWN - 1))

    def any_of(self, extent: int, visible: Names) -> Expr:
        """An index below an extent."""
        return binary("rem", self.value(visible, "int64", 1) & 0xFFFFF, extent)

    def read(self, a: SharedArray, visible: Names) -> Expr:
        return a[self.mine(visible) if self.ways[a.name] == "own" else self.any_of(a.extent, visible)]

    def uniform_value(self, visible: Names, dtype: str) -> Expr:
        """An expression with one value for all items of a group."""
        self.uniform = True
        try:
            return self.value({n: d for n, d in visible.items() if n in self.same}, dtype, 2)
        finally:
            self.uniform = False

    def leaf(self, visible: Names, dtype: str) -> Expr:
        if self.uniform:
            if self.rng.random() < 0.3:
                array = self.inputs[self.rng.integers(len(self.inputs))]
                return cast(array[whole(int(self.rng.integers(array.extent or 1)))], dtype)
            names = [n for n, (d, _) in visible.items() if d == dtype]
            if names and self.rng.random() < 0.7:
                return local(str(self.rng.choice(names)), dtype)
            return const(self.numbers(dtype, 1).item(), dtype)
        readable = [a for a in self.shared if self.ways[a.name] in ("own", "open")]
        if readable and self.rng.random() < 0.15:
            a = readable[self.rng.integers(len(readable))]
            return cast(a[local("i", "int64") * OWN + int(self.rng.integers(OWN))], dtype)
        return super().leaf(visible, dtype)
