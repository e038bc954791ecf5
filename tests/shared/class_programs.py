"""Random classes whose methods call each other, eagerly and under jit: what a method reads is read at each call.

A program is text: classes with attributes, methods, properties and operators that read numbers of their own object, call other
methods of it or of an object that it holds, in the ways that Python has; a function that starts somewhere; and changes of
attributes and methods between its calls. The same text runs in two worlds, one of them compiled, which must agree.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import firebrick as fb

CALLS = 5
CLASSES = ("A", "B", "C")
METHODS = ("m0", "m1", "m2", "m3", "m4", "m5")
SPECIAL = {  # members that Python or a library calls, and what calls them
    "p": "    p = property(lambda self: {body})", "item": "    def __getitem__(self, i): return {body}",
    "add": "    def __add__(self, v): return v + {body}", "len": "    def __len__(self): return 1 + int(4 * {body})",
    "bool": "    def __bool__(self): return {body} > 0.75", "call": "    def __call__(self): return {body}",
    "close": "    def close(self): CLOSED.append({body})", "float": "    def __float__(self): return float({body})",
    "late": "    def __getattr__(self, name):\n        if name == 'late': return {body}\n        raise AttributeError(name)",
    "of": "    def of(self): return {body}", "k": "    @classmethod\n    def k(cls): return cls().{last}()",
    "iter": "    def __iter__(self): yield {body}", "enter": "    def __enter__(self): return {body}",
    "first": "    def first(self): return self", "str": "    def __str__(self): return str({body})",
    "eq": "    def __eq__(self, v): return {body} > 0.75", "f": "    @plain\n    def f(self): return {body}",
    "g": "    @bare\n    def g(self): return {body}", "part": "    part = functools.partialmethod(of)",
    "c": "    @functools.cache\n    def c(self): return {body}\n    def __hash__(self): return id(self)",
}  # fmt: skip
PRELUDE = """
import contextlib, functools, operator
from abc import ABC
def apply(f, *a): return f(*a)
def given(o): return o.of()
def same(o): return o
def plain(f):
    @functools.wraps(f)
    def around(*a): return f(*a)
    return around
def bare(f): return lambda o: f(o)
class Held:
    def __init__(self, v): self.v = v
    def __get__(self, o, kind=None): return self.v if o is None else self.look(o)
    def look(self, o): return self.v * o.of()
def close_all(o):
    with contextlib.closing(o): pass
    return CLOSED.pop()
def entered(o):
    with o as v: return v
CLOSED = []
"""
NAMED = (  # ways to run a method {m} of an object {o} that name it
    "{o}.{m}()", "{o}.{m}()", "{o}.{m}()", "(lambda: {o}.{m}())()", "apply({o}.{m})", "sum([{o}.{m}() for _ in (1,)])",
    "functools.partial({o}.{m})()", "[{o}.{m}][0]()", "(0.5 if {o} is None else {o}.{m}())", "{o}.__class__.{m}({o})",
    "(lambda v={o}: v.{m}())()", "{{'a': {o}.{m}}}['a']()",
)  # fmt: skip
OTHER = (  # ways that let Python, a library or another function run what the class calls otherwise
    "given({o})", "[{o}][0].of()", "(lambda w: w.of())({o})", "{o}.p", "{o}[0]", "0.25 * len({o})", "({o} + 1.0)",
    "type({o}).of({o})", "close_all({o})", "{o}.d", "(0.5 if {o} else 0.25)", "{o}()", "float('%.3f' % {o})", "{o}.items[0]()",
    "{o}.late", "{o}.k()", "next(iter({o}))", "entered({o})", "{o}.first().of()", "same({o}).p", "float(str({o}))", "{o}.f()",
    "(0.5 if {o} == 1 else 0.25)", "{o}.g()", "{o}.part()", "{o}.c.__wrapped__({o})", "{o}.of.__self__[0]",
    "{o}.of.__self__[0]", "{o}.__class__()[0]", "{o}.of.__self__()",
    "float(f'{{{o}}}')", "max([{o}], key=lambda w: w.of()).p", "{o}.__class__.factor", "(lambda: {o})().of()", "{o}.s()",
)  # fmt: skip
COMPUTED = ("getattr({o}, '{m}')()", "operator.methodcaller('{m}')({o})", "operator.attrgetter('p')({o})")


@dataclass(frozen=True)
class Program:
    """A program: the source of its classes and function, and what is run before each call after the first."""

    seed: int
    source: str
    between: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        changes = "\n".join(f"before call {i + 2}: {'; '.join(b) or 'nothing'}" for i, b in enumerate(self.between))
        return f"seed {self.seed}\n{self.source}\n{changes}"


def generate(seed: int) -> Program:
    """The program of a seed. Each member of a class reads a number of its own, so that one that the walk misses shows; methods
    call those of higher numbers, and members that are called otherwise call none, so that each call ends."""
    rng = random.Random(seed)
    computed = rng.random() < 0.1  # then every attribute counts

    def way(owner: str, above: int) -> str:
        """An expression of an object, whose methods above a number are called."""
        later = [m for m in METHODS if int(m[1]) > above]
        pool = COMPUTED if computed and rng.random() < 0.5 else NAMED if later and rng.random() < 0.5 else OTHER
        text = rng.choice(pool)
        return "0.5" if "{m}" in text and not later else text.format(o=owner, m=rng.choice(later or METHODS[-1:]))

    numbers = {c: [f"{m}_{c}" for m in (*METHODS, *SPECIAL)] for c in CLASSES}
    everything = [n for names in numbers.values() for n in names]
    lines = [PRELUDE]
    for at, name in enumerate(CLASSES):
        base = rng.choice(["", "ABC", CLASSES[at - 1] if at else ""])
        lines += [
            f"class {name}({base}):", "    factor = 0.5", "    def __init__(self, inner=None):",
            "        self.inner, self.done, self.history, self.items = inner or self, 0, [], [self.of]",
            f"        {' = '.join(f'self.{n}' for n in everything)} = 0.5",
            "    def advance(self): self.done += 1; self.history.append(self.done)",
            "    @staticmethod", f"    def s(): return {name}.factor", "    d = Held(1.0)",
        ]  # fmt: skip
        for k, m in enumerate(METHODS):
            owner = rng.choice(["self", "self", "self.inner"])
            more = rng.choice([f" + 0.5 * {way(owner, k)}", f" + 0.5 * {way(owner, k)}", ""])
            above = f" + super().{m}()" if base in CLASSES and rng.random() < 0.3 else ""
            lines.append(f"    def {m}(self): return self.{m}_{name}{more}{above}")
        for k, text in SPECIAL.items():
            lines.append(text.format(body=f"self.{k}_{name}", last=METHODS[-1]))
    lines += [
        f"low = {rng.choice(CLASSES)}({rng.choice(CLASSES)}())",
        f"top = {rng.choice(CLASSES)}(low)",
    ]
    start = " + ".join(way(rng.choice(["top", "top", "low", "top.inner"]), -1) for _ in range(rng.randint(1, 2)))
    lines.append(f"def step(x): return x * ({start})")
    owners = ("top", "low", "low.inner")

    def change() -> list[str]:
        v, c, m = rng.choice((0.25, 1.0, 1.5, 2.0)), rng.choice(CLASSES), rng.choice(METHODS)
        if rng.random() < 0.7:  # many numbers at once: of most members, none is reached
            return [f"{o}.{n} = {v}" for o in owners for n in rng.sample(everything, 16)]
        return [rng.choice([
            f"{rng.choice(owners)}.advance()", f"{c}.{m} = lambda self: self.{m}_{c} * {v}",
            f"{rng.choice(owners)}.{m} = lambda: {v}", f"{c}.factor = {v}", f"vars({c})['d'].v = {v}",
            f"{c}.p = property(lambda self: self.p_{c} * {v})", f"{c}.of = lambda self: self.of_{c} * {v}",
        ])]  # fmt: skip

    between = tuple(tuple(change()) for _ in range(CALLS - 1))
    return Program(seed, "\n".join(lines), between)


@dataclass(frozen=True)
class Outcome:
    """What became of a program: ``wrong`` says how the two worlds differ; ``traces`` how many graphs were made."""

    wrong: str = ""
    traces: int = 0


class World:
    """A namespace in which a program runs."""

    def __init__(self, program: Program) -> None:
        self.space: dict[str, Any] = {"__name__": "a_world_of_classes"}
        exec(compile(program.source, f"<class program {program.seed}>", "exec"), self.space)

    def outcome(self, fn: Any) -> tuple[str, float]:
        try:
            return "value", fn(fb.ones(1, dtype=fb.float64)).item()
        except (AttributeError, RecursionError, TypeError) as e:
            return type(e).__name__, 0.0


def run(program: Program) -> Outcome:
    """Run a program in two worlds, one of them compiled, and compare them after each call."""
    eager, compiled = World(program), World(program)
    step = fb.jit(compiled.space["step"])
    for i in range(CALLS):
        for line in program.between[i - 1] if i else ():
            for world in (eager, compiled):
                exec(line, world.space)
        want, found = eager.outcome(eager.space["step"]), compiled.outcome(step)
        if want[0] != found[0] or abs(want[1] - found[1]) > 1e-9 * max(1.0, abs(want[1])):
            return Outcome(f"call {i + 1}, eager and jit: {want} and {found}", step.traces)
    return Outcome(traces=step.traces)


def shrunk(program: Program) -> Program:
    """The program with as few changes as still fail."""
    smaller = True
    while smaller:
        smaller = False
        for k, lines in enumerate(program.between):
            for i in range(len(lines)):
                less = (*program.between[:k], lines[:i] + lines[i + 1 :], *program.between[k + 1 :])
                if run(replace(program, between=less)).wrong:
                    program, smaller = replace(program, between=less), True
                    break
            if smaller:
                break
    return program
