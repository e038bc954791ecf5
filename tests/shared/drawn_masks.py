"""Random kernels whose items part often: in nested branches and loops they assign to variables, which are stored at the end.

So each value that a lane has after a join or a loop, and each mask, shows in a result.
"""

from __future__ import annotations

from drawn_kernels import Drawn, Maker, Names
from written_kernels import ITEM, Launch

from firebrick.compiler.kernel import ArrayParameter, Assign, For, Function, If, Let, Statement, Store, While
from firebrick.scalar.expr import FLOATS, Expr, binary, cast, const, eq, local

_DTYPES = ("int64", "int32", "uint8", "float32")


def draw_masks(seed: int) -> Launch:
    """The random kernel of a seed, with a launch; what it makes is not known."""
    return DrawnMasks(seed).launch()


class DrawnMasks(Drawn):
    """A kernel while it is drawn."""

    def launch(self) -> Launch:
        self.outputs = [ArrayParameter(f"out{k}", d, "read_write") for k, d in enumerate(_DTYPES)]
        self.kept = [ArrayParameter(f"kept{k}", d, "read_write") for k, d in enumerate(_DTYPES)]
        arrays = (*self.outputs, *self.kept)
        variables = [Let(f"x{k}", cast(self.bits(), d)) for k, d in enumerate(_DTYPES)]
        visible: Names = {"i": ("int64", False)} | {s.name: (s.value.dtype, True) for s in variables}
        body = self.block(visible, 3, 5)
        last = [Store(a.name, ITEM, s.local) for a, s in zip(self.outputs, variables, strict=True)]
        f = Function(f"masks{self.seed}", arrays, (), "i", (*variables, *body, *last))
        grid = int(self.rng.integers(1, 70))
        return Launch(f, {a.name: self.numbers(a.dtype, grid) for a in arrays}, {}, grid, {})

    def bits(self) -> Expr:
        """A small number that differs between items without a pattern."""
        factor, place = int(self.rng.integers(1, 1 << 31)) | 1, int(self.rng.integers(16, 29))
        return (ITEM * factor >> place) & 15

    def kinds(self, depth: int) -> list[Maker]:
        inner = [self.branch, self.counted, self.loop]
        return [self.assign] * 4 + [self.let, self.store] + inner * (depth > 0)

    def let(self, visible: Names, depth: int) -> list[Statement]:
        s = Let(self.name(), self.changed(visible, str(self.rng.choice(_DTYPES))))
        visible[s.name] = (s.value.dtype, True)
        return [s]

    def assign(self, visible: Names, depth: int) -> list[Statement]:
        name = str(self.rng.choice([n for n, (_, mutable) in visible.items() if mutable]))
        return [Assign(name, self.changed(visible, visible[name][0]))]

    def store(self, visible: Names, depth: int = 0) -> list[Statement]:
        """Change an element of the item."""
        a = self.kept[self.rng.integers(len(self.kept))]
        name = next(n for n, (d, m) in visible.items() if m and d == a.dtype)
        return [Assign(name, local(name, a.dtype) + a[ITEM]), Store(a.name, ITEM, local(name, a.dtype))]

    def branch(self, visible: Names, depth: int) -> list[Statement]:
        both = self.rng.random() < 0.6
        then, otherwise = self.block(visible, depth - 1, 3), self.block(visible, depth - 1, 3) if both else ()
        return [If(self.apart(visible), then, otherwise)]

    def counted(self, visible: Names, depth: int) -> list[Statement]:
        name = self.name()
        body = self.block(visible | {name: ("int64", False)}, depth - 1, 3)
        start, stop = (self.whole_of(visible) & n for n in (1, 3))
        return [For(name, start, stop, int(self.rng.integers(1, 3)), body)]

    def loop(self, visible: Names, depth: int) -> list[Statement]:
        rounds = Let(self.name(), self.whole_of(visible) & 3)
        body = self.block(visible | {rounds.name: ("int64", False)}, depth - 1, 3)
        more = rounds.local > 0
        more = more & self.apart(visible) if self.rng.random() < 0.4 else more
        return [rounds, While(more, (*body, Assign(rounds.name, rounds.local - 1)))]

    def changed(self, visible: Names, dtype: str) -> Expr:
        """A value that follows from those of variables."""
        one = cast(self.whole_of(visible), dtype)
        names = [n for n, (d, _) in visible.items() if d == dtype]
        other = local(str(self.rng.choice(names)), dtype)
        number = const(int(self.rng.integers(1, 9)), dtype)
        op = str(self.rng.choice(("add", "sub") if dtype in FLOATS else ("add", "sub", "xor")))
        return binary(op, one, other * number if dtype not in FLOATS else other * 0.5)

    def whole_of(self, visible: Names) -> Expr:
        """A variable as an integer, or a number of the item's own."""
        if self.rng.random() < 0.3:
            return self.bits()
        name = str(self.rng.choice(list(visible)))
        return cast(local(name, visible[name][0]), "int64")

    def apart(self, visible: Names) -> Expr:
        """A condition that differs between items, or is the same for most."""
        bits = self.whole_of(visible)
        return eq(bits & int(self.rng.choice((1, 2, 3, 7))), 0) if self.rng.random() < 0.7 else bits < 7
