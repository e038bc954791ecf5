"""Random programs that read and change state in the ways that Python has, eagerly and under jit, in two worlds alike.

A program is text: statements of a function ``step``, what it returns, and what happens between its calls. Each world is a
Python module of its own, with objects, containers, arrays, modules and generators to read and to change. After each call,
results and the whole state must agree. A call that jit refuses ends a program, and must have left the state as it was.
"""

from __future__ import annotations

import decimal
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np

import firebrick as fb

CALLS = 4
_numbers = count()

WORLD = """
import array, contextvars, ctypes, dataclasses, decimal, inspect, mmap, operator, sys, types, weakref
from collections import namedtuple
import numpy as np
import firebrick as fb

F64 = fb.float64
def T(*values): return fb.asarray(list(values), dtype=F64)

class Box:
    def __init__(self, s, *t): self.s, self.t = s, T(*t)
class Slots:
    __slots__ = ("s", "t", "__weakref__")
    def __init__(self, s, *t): self.s, self.t = s, T(*t)
@dataclasses.dataclass
class Data:
    s: float
    t: object
class Klass:
    s = 0.75
    t = T(0.1, 0.2, 0.3)
class Net(fb.nn.Module):
    def __init__(self):
        self.s = 1.25
        self.t = fb.nn.Buffer(T(0.3, 0.1, 0.2))
        self.drop = fb.nn.Dropout(0.5, generator=fb.random.Generator(11))
    def forward(self, x): return self.drop(x) * self.s + self.t
def fun(): pass
fun.s, fun.t = 0.5, T(0.2, 0.2, 0.1)
Pair = namedtuple("Pair", ["s", "t"])

box, slot, data, net = Box(0.5, 0.1, 0.2, 0.3), Slots(0.75, 0.3, 0.2, 0.1), Data(1.25, T(0.2, 0.1, 0.3)), Net()
space = types.SimpleNamespace(s=1.5, t=T(0.4, 0.1, 0.2))
mod = types.ModuleType(__name__ + "_mod")
mod.s, mod.t = 0.5, T(0.1, 0.1, 0.4)
sys.modules[mod.__name__] = mod
MOD, NAME, PARTS = mod.__name__, "s", ("", "s")
table = {"s": 0.5, "t": T(0.2, 0.3, 0.4)}
numbers, tensors = [0.75, 1.25], [T(0.1, 0.3, 0.5), T(0.5, 0.3, 0.1)]
nested = {"a": [T(0.2, 0.4, 0.1), {"s": 1.5}]}
pair = Pair(0.5, T(0.1, 0.2, 0.1))
carray, cnumber, parray = (ctypes.c_double * 2)(0.5, 0.75), ctypes.c_double(1.25), array.array("d", [0.5, 0.25])
host = np.asarray([0.5, 0.75])
mapped = mmap.mmap(-1, 8)
mapped[0] = 4
key = Box(1.0, 0.0, 0.0, 0.0)
weak = weakref.WeakKeyDictionary({key: Box(0.5, 0.3, 0.3, 0.3)})
held = Box(0.25, 0.1, 0.4, 0.2)
seen, stand_in, group = weakref.ref(held), weakref.proxy(held), weakref.WeakSet([held])
variable = contextvars.ContextVar("variable")
variable.set(0.5)
number = 0.75
source = fb.random.Generator(5)
def closing():
    hidden = 0.5
    def get(): return hidden
    def put(v):
        nonlocal hidden
        hidden = v
    return get, put
get_hidden, put_hidden = closing()
def default(v=0.5): return v
last = {}

def snapshot():
    owners = (box, slot, data, net, space, mod, Klass, fun, pair, held, weak[key])
    return [
        [o.s for o in owners], [o.t.tolist() for o in owners], table["s"], table["t"].tolist(), list(numbers),
        [t.tolist() for t in tensors], nested["a"][0].tolist(), nested["a"][1]["s"], list(carray), cnumber.value,
        list(parray), host.tolist(), mapped[0], variable.get(), number, get_hidden(), default(),
        source.state()["counter"].tolist(), net.drop.generator.state()["counter"].tolist(),
    ]
"""

OWNERS = ("box", "slot", "data", "space", "mod", "Klass", "fun", "net")
WAYS = (
    "{o}.s", 'getattr({o}, "s")', "getattr({o}, NAME)", 'getattr({o}, "".join(PARTS))', 'operator.attrgetter("s")({o})',
    'inspect.getattr_static({o}, "s")', 'vars({o})["s"]', '{o}.__dict__["s"]',
)  # fmt: skip
NUMBERS = {  # ways to read a number, and how it is changed
    'table["s"]': 'table["s"] = {v}', "numbers[0]": "numbers[0] = {v}", 'nested["a"][1]["s"]': 'nested["a"][1]["s"] = {v}',
    "pair.s": "pair = Pair({v}, pair.t)", "carray[0]": "carray[0] = {v}", "cnumber.value": "cnumber.value = {v}",
    "parray[0]": "parray[0] = {v}", "float(host[0])": "host[0] = {v}", "mapped[0] / 8.0": "mapped[0] = int(8 * {v})",
    "weak[key].s": "weak[key].s = {v}", "seen().s": "held.s = {v}", "stand_in.s": "held.s = {v}",
    "next(iter(group)).s": "held.s = {v}", "variable.get()": "variable.set({v})", "number": "number = {v}",
    'globals()["number"]': "number = {v}", 'getattr(sys.modules[__name__], "number")': "number = {v}",
    'getattr(sys.modules[MOD], "s")': "mod.s = {v}", "sys.modules[MOD].s": "mod.s = {v}", "get_hidden()": "put_hidden({v})",
    "default()": "default.__defaults__ = ({v},)", "n": "",
    "float(decimal.Decimal(1) / decimal.Decimal(7))": "decimal.getcontext().prec = 2 + int(4 * {v})",
}  # fmt: skip
TENSORS = {
    **{f"{o}.t": f"{o}.t = T({{v}}, 0.1, 0.2)" for o in OWNERS}, 'table["t"]': 'table["t"] = T({v}, 0.2, 0.2)',
    "tensors[0]": "tensors[0], tensors[1] = tensors[1], tensors[0]", "tensors[1]": "tensors[1] = T({v}, 0.0, 0.1)",
    'nested["a"][0]': 'nested["a"][0] *= {v}', "pair.t": "pair = Pair(pair.s, T({v}, 0.1, 0.1))",
    "weak[key].t": "weak[key] = Box({v}, 0.1, 0.1, {v})", "seen().t": "held.t += {v}", 'getattr(box, "t")': "box.t += {v}",
    'vars(space)["t"]': "space.t = box.t", 'getattr(mod, "t")': "mod.t[1] = {v}",
    "next(iter(group)).t": "held.t = T({v}, 0.2, 0.1)",
}  # fmt: skip
BODIES = (  # of a scan over x: c is the carry, t an element
    "c *= 0.5\nc += t * {n}\nreturn c, c",
    "c[0] += t\nreturn c, {{'c': c, 't': t * {n}}}",
    "c[1] = t * {n}\nreturn c * 0.9, c",
    "d = c\nd += t\nreturn d, (c, d)",
    "return {t}, c + t",
    "c += {t}\nreturn c * 0.5, [c, {t}]",
    "c = c + t\ny = c\ny *= {n}\nreturn c, y",
)
PAIRED = (  # of a scan whose carry is a pair
    "a, b = c\na += t\nreturn (a, a), b",
    "a, b = c\na *= 0.5\nb += a * t\nreturn (b, a), (a, b)",
    "a, b = c\nreturn (a + t, {t}), b",
)
EFFECTS = (  # what a graph carries out, raises in both worlds, or refuses: then the state is as before
    "numbers.append({n})",
    "box.s = {n}",
    "table['x'] = x",
    "_effect(x, {t})",
    "x = fb.scan(lambda c, t: (_effect(c, {t}), None), x * 0.5, x)[0]",
    "x = fb.cond(fb.sum(x) > 0.5, lambda: _effect(x, {t}), lambda: x * 0.5)",
    "x = x + fb.scan(lambda c, t: (c * 0.5 + source.uniform((3,), dtype=F64), c), x, x)[1][1] * 0.1",
    "x = fb.checkpoint(lambda v: _effect(fb.sin(v), {t}))(x)",
    "x = x + fb.grad(lambda v: fb.sum(fb.checkpoint(lambda v: _effect(v * v, {t}))(v)))(x) * 0.1",
    "x[fb.asarray([int(mapped[0])])]",
    "x = x + fb.take(x, fb.asarray([len(numbers)]), axis=0)",
    "x = x * len(numbers) * 0.3",
    "x = x * (2.0 if 'u' in table else 0.5)",
    "x = x * (1.5 if hasattr(Klass, 'u') else 0.5)",
    "x = x * (1.5 if box.t is tensors[0] else 0.5)",
    "box.t, space.t = space.t, box.t",
)
INSIDE = (  # of a function that is differentiated by v
    "fb.sum(v * v * {n})",
    "fb.sum(fb.scan(_accumulate, v[:1] * 0.0, v)[1] * {n})",
    "fb.sum(fb.checkpoint(lambda v: fb.sin(v) * v * {n})(v) + {t} * v)",
    "fb.sum(fb.cond(fb.sum(v) > 0.0, lambda: v * {t}, lambda: v * v))",
    "fb.sum(fb.while_loop(lambda c: fb.sum(c * c) > 4.0, lambda c: c * 0.5, v * {n}))",
)
OTHER = (  # changes of what a program may or may not read
    *(f"{o}.t += {{v}}" for o in OWNERS), "source.uniform((2,))", "(net.eval if net.training else net.train)()",
    "space.t = box.t.detach()", "box.t = tensors[0]", "numbers.append({v})", 'table["u"] = {v}', 'last["x"] += {v}',
    'last["t"] *= {v}', "Klass.u = {v}", "fun.u = {v}", "box.__class__ = type('Box2', (Box,), {{}})",
)  # fmt: skip
BETWEEN = (*NUMBERS.values(), *TENSORS.values(), *(f"{o}.s = {{v}}" for o in OWNERS), *OTHER)


@dataclass(frozen=True)
class Program:
    """A program: the statements of ``step(x, n)``, what it returns, and what happens before each call after the first."""

    seed: int
    body: tuple[str, ...]
    result: tuple[str, ...]
    between: tuple[tuple[str, ...], ...]

    @property
    def source(self) -> str:
        """``step`` as Python."""
        lines = [
            "def _accumulate(c, t):", "    c += t * t", "    return c, c",
            "def _effect(v, t):", "    t += v.detach() * 0.1", "    return v * t", "def step(x, n):",
            *(f"    {line}" for s in self.body for line in s.split("\n")),
            f"    return {{'x': x, {', '.join(f'{chr(97 + i)!r}: {r}' for i, r in enumerate(self.result))}, 't': x * 2.0}}",
        ]  # fmt: skip
        return "\n".join(lines)

    def __str__(self) -> str:
        changes = "\n".join(f"before call {i + 2}: {'; '.join(b) or 'nothing'}" for i, b in enumerate(self.between))
        return f"seed {self.seed}\n{self.source}\n{changes}"


def generate(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    used: list[str] = []

    def number() -> str:
        if rng.random() < 0.5:
            owner = rng.choice(OWNERS)
            way = rng.choice(WAYS[:6] if owner in ("slot", "net") else WAYS)
            used.append(f"{owner}.s = {{v}}")
            return (WAYS[0] if owner == "slot" and "static" in way else way).format(o=owner)
        found = rng.choice(list(NUMBERS))
        used.append(NUMBERS[found])
        return found

    def tensor() -> str:
        found = rng.choice(list(TENSORS))
        used.append(TENSORS[found])
        return found

    def filled(text: str) -> str:
        return text.format(n=number(), t=tensor())

    def statement(k: int) -> str:
        kind = rng.randrange(13)
        if kind == 0:
            return filled("x = x * {n}")
        if kind == 1:
            return filled("x = x * 0.5 + {t}")
        if kind == 2:
            return filled(f"v{k} = {{t}}\nv{k}" + rng.choice([" += x * 0.1", "[0] = x[1] * {n}", " *= 0.5"]))
        if kind == 3:
            return filled(f"y{k} = x.detach()\ny{k}[0] = {{n}}\nx = x * 0.5 + y{k}")
        if kind in (4, 5):
            body = filled(rng.choice(BODIES)).replace("\n", "\n    ")
            after = f"x = x * 0.5 + e{k}"
            start = rng.choice(["x * 0.5", filled("{t}"), "fb.zeros(3, dtype=F64)"])
            reverse = rng.random() < 0.3
            return (
                f"def b{k}(c, t):\n    {body}\ne{k}, z{k} = fb.scan(b{k}, {start}, x * 0.5, reverse={reverse})\n"
                f"z.append(z{k})\n{after}"
            )
        if kind == 6:
            body = filled(rng.choice(PAIRED)).replace("\n", "\n    ")
            return (
                f"def b{k}(c, t):\n    {body}\n(e{k}, f{k}), z{k} = fb.scan(b{k}, (x * 0.5, {tensor()}), x * 0.5)\n"
                f"z.append(z{k})\nx = x * 0.5 + e{k} - f{k} * 0.1"
            )
        if kind == 7:
            low = rng.choice(["c", "c * 2.0"])
            spoil = rng.choice(["", "c *= 1.5\n    "])
            return filled(
                f"def w{k}(c):\n    {spoil}return fb.sum({low}) < 9.0\n"
                f"x = fb.while_loop(w{k}, lambda c: c * 1.5 + 0.5, x * 0.1) * {{n}}"
            )
        if kind == 8:
            return filled(
                f"y{k} = fb.cond(fb.sum(x) > {{n}}, lambda v: {{t}}, lambda v: v * 0.5, x)\ny{k} += 0.25\nx = x + y{k} * 0.1"
            )
        if kind == 9:
            return filled(f"x = x * 0.5 + fb.grad(lambda v: {rng.choice(INSIDE)})(x) * 0.1")
        if kind == 10:
            drawn = "source.uniform((3,), dtype=F64)"
            return rng.choice([f"x = x + {drawn}", "x = net(x) * 0.5", f"x = net(x) + {drawn}"])
        if kind == 11 and rng.random() < 0.5:
            return filled(rng.choice(EFFECTS))
        return rng.choice([
            f"r{k} = [x * 1.0, x]\nr{k}[0] += 1.0\nx = r{k}[0] - r{k}[1] * 0.5",
            f"r{k} = {{'x': x * 1.0}}\ns{k} = r{k}['x']\ns{k} += 0.5\nx = r{k}['x'] * 0.5",
            f"r{k} = Pair(1.0, x * 1.0)\ns{k} = r{k}.t\ns{k}[1] = 0.5\nx = r{k}.t + x * 0.1",
        ])  # fmt: skip

    body = ("z = []", *(statement(k) for k in range(rng.randint(1, 5))))
    result = ("z", *(rng.choice([tensor, number])() for _ in range(rng.randint(0, 2))))
    values = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)

    def change() -> str:
        return rng.choice(used if used and rng.random() < 0.7 else BETWEEN).format(v=rng.choice(values))

    between = tuple(tuple(change() for _ in range(rng.randint(0, 3))) for _ in range(CALLS - 1))
    return Program(seed, body, result, between)


# running


@dataclass(frozen=True)
class Outcome:
    """What became of a program: ``wrong`` says how the two worlds differ; ``refused`` which error jit gave."""

    wrong: str = ""
    refused: str = ""


class World:
    """A module in which a program runs."""

    def __init__(self, program: Program, compiled: bool) -> None:
        self.module = ModuleType(f"state_world_{next(_numbers)}")
        self.space = vars(self.module)
        sys.modules[self.module.__name__] = self.module
        exec(compile(WORLD + program.source, f"<state program {program.seed}>", "exec"), self.space)
        self.step = fb.jit(self.space["step"]) if compiled else self.space["step"]

    def change(self, line: str) -> None:
        exec(line, self.space)

    def call(self, i: int) -> Any:
        x = fb.asarray([0.5 + 0.25 * i, 1.0, -0.5], dtype=fb.float64)
        out = self.step(x, 0.5 + 0.5 * i)
        self.space["last"] = out
        return out, x

    def close(self) -> None:
        for name in (self.module.__name__, self.space["MOD"]):
            sys.modules.pop(name, None)


def run(program: Program, device: str) -> Outcome:
    """Run a program in two worlds, one of them compiled, and compare them after each call."""
    with fb.use_device(device), decimal.localcontext():
        precision = decimal.getcontext().prec
        worlds = [World(program, compiled) for compiled in (False, True)]
        try:
            for i in range(CALLS):
                for line in program.between[i - 1] if i else ():
                    for w in worlds:
                        w.change(line)
                before = worlds[1].space["snapshot"]()
                found, errors = [], []
                for w in worlds:
                    try:
                        found.append(w.call(i))
                    except fb.FirebrickError as e:
                        errors.append(e)
                if len(errors) == 2:
                    return Outcome()
                if errors and isinstance(errors[0], fb.TraceError) and len(found) == 1:
                    after = worlds[1].space["snapshot"]()
                    text = str(errors[0]).split("\n")
                    if difference(before, after):
                        return Outcome(f"call {i + 1} was refused and changed the state: {difference(before, after)}")
                    return Outcome(refused=f"{type(errors[0]).__name__}: {' | '.join(text[:2])}")
                if errors:
                    return Outcome(f"call {i + 1}: one world raised {type(errors[0]).__name__}: {errors[0]}")
                if text := difference(*map(_plain, found)):
                    return Outcome(f"call {i + 1}, eager and jit: {text}")
                if text := difference(*(w.space["snapshot"]() for w in worlds)):
                    return Outcome(f"state after call {i + 1}, eager and jit: {text}")
        finally:
            decimal.getcontext().prec = precision
            for w in worlds:
                w.close()
    return Outcome()


def _plain(v: Any) -> Any:
    return fb.tree_map(lambda leaf: leaf.tolist() if isinstance(leaf, fb.Tensor) else leaf, v)


def difference(a: Any, b: Any, path: str = "") -> str:
    """Where two trees of numbers differ by more than rounding; "" if they do not."""
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return next((d for k in a if (d := difference(a[k], b[k], f"{path}[{k!r}]"))), "")
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return next((d for i in range(len(a)) if (d := difference(a[i], b[i], f"{path}[{i}]"))), "")
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return "" if np.isclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True) else f"{path}: {a} and {b}"
    return "" if a == b else f"{path}: {a!r:.200} and {b!r:.200}"


# shrinking


def shrunk(program: Program, wrong: Callable[[Program], bool]) -> Program:
    """The smallest program found, by leaving out statements, results and changes, that is still wrong."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(program):
            if wrong(candidate):
                program, smaller = candidate, True
                break
    return program


def _smaller(p: Program) -> Iterator[Program]:
    for i in range(1, len(p.body)):
        yield replace(p, body=p.body[:i] + p.body[i + 1 :])
    for i in range(len(p.result) - 1, -1, -1):
        if len(p.result) > 1:
            yield replace(p, result=p.result[:i] + p.result[i + 1 :])
    for k, lines in enumerate(p.between):
        for i in range(len(lines)):
            yield replace(p, between=(*p.between[:k], lines[:i] + lines[i + 1 :], *p.between[k + 1 :]))
