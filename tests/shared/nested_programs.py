"""Random nests of ``scan``, ``cond``, ``while_loop``, ``checkpoint``, ``jit``, ``grad`` and ``vjp``, with kernels and updates.

A program is Python text, written twice: for Firebrick, and as plain loops and branches for torch, whose values and gradients in
float64 are the truth. Its values are vectors of one size.
"""
# ruff: noqa: F821, UP037

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import torch

import firebrick as fb

K = fb.kernel
Array = np.ndarray[Any, Any]
SIZES = (3, 4, 8, 9, 16, 17)
DEEPEST, NESTS = 3, 14


@K
def bent(x: K.In[None, "n"], y: K.In["x", "n"], s: float, out: K.Out["x", "n"]):
    i = K.index()
    if x[i] > y[i]:
        out[i] = x[i] * y[i] * s
    else:
        out[i] = fb.sin(x[i]) - s


@K
def around(x: K.In[None, "n"], out: K.Out["x", "n"]):
    i = K.index()
    n = x.shape[0]
    before = x[i - 1] if i > 0 else x[n - 1]
    after = x[i + 1] if i + 1 < n else x[0]
    out[i] = 0.5 * x[i] + 0.25 * (before * after)


@K
def both_ways(x: K.In[None, "n"], y: K.In["x", "n"], p: K.Out["x", "n"], q: K.Out["x", "n"]):
    i = K.index()
    p[i] = fb.tanh(x[i]) * y[i]
    q[i] = x[x.shape[0] - 1 - i] + y[i]


@K
def changed(x: K.InOut[None, "n"], y: K.In["x", "n"]):
    i = K.index()
    x[i] = x[i] * 0.5 + y[i] * y[i] * 0.1


# what a line computes of vectors {a} and {b}: for Firebrick, and for torch
LINES: tuple[tuple[str, str], ...] = (
    ("fb.sin({a})", "torch.sin({a})"),
    ("{a} * {b}", "{a} * {b}"),
    ("{a} - 0.5 * {b}", "{a} - 0.5 * {b}"),
    ("fb.flip({a})", "torch.flip({a}, (0,))"),
    ("fb.roll({a}, 1)", "torch.roll({a}, 1)"),
    ("{a} - fb.mean({a})", "{a} - {a}.mean()"),
    ("fb.sum({a} * {b}) * 0.05 * {b}", "({a} * {b}).sum() * 0.05 * {b}"),
    ("fb.sort({a})", "torch.sort({a}, stable=True).values"),
    ("fb.cumulative_sum({a}) * 0.3", "torch.cumsum({a}, 0) * 0.3"),
    ("fb.softmax({a}, axis=0) * {b}", "torch.softmax({a}, 0) * {b}"),
    ("fb.where({a} > {b}, {a}, {b} * 0.5)", "torch.where({a} > {b}, {a}, {b} * 0.5)"),
    ("{a}[at]", "{a}[at]"),
    ("fb.index_add({a}, at, {b}, axis=0) * 0.4", "{a}.index_add(0, at, {b}) * 0.4"),
    ("fb.concat([{a}[1:], {b}[:1]])", "torch.cat([{a}[1:], {b}[:1]])"),
    ("matrix @ {a}", "matrix @ {a}"),
    ("fb.sum(fb.outer({a}, {b}), axis=0) * 0.1", "torch.outer({a}, {b}).sum(0) * 0.1"),
    ("{a} / ({b} * {b} + 1.0)", "{a} / ({b} * {b} + 1.0)"),
    ("bent({a}, {b}, 0.7)", "torch.where({a} > {b}, {a} * {b} * 0.7, torch.sin({a}) - 0.7)"),
    ("around({a})", "0.5 * {a} + 0.25 * (torch.roll({a}, 1) * torch.roll({a}, -1))"),
    ("both_ways({a}, {b})[0]", "torch.tanh({a}) * {b}"),
    ("both_ways({a}, {b})[1]", "torch.flip({a}, (0,)) + {b}"),
    ("changed({a}, {b})", "{a} * 0.5 + {b} * {b} * 0.1"),
)


@dataclass(frozen=True)
class Program:
    """A function of vectors x and y, sequences xs of vectors, a matrix and indices, that returns three vectors.

    Attributes:
        seed: Of its choices and operands.
        firebrick: Its text.
        torch: The same for torch.
    """

    seed: int
    firebrick: str
    torch: str

    def operands(self) -> tuple[Array, ...]:
        rng = np.random.default_rng(self.seed)
        n = SIZES[self.seed % len(SIZES)]
        x, y, xs, matrix = rng.normal(size=n), rng.normal(size=n), rng.normal(size=(3, n)), rng.normal(size=(n, n))
        return x, y, xs, 0.3 * matrix, rng.integers(0, n, n)

    def function(self, text: str) -> Callable[..., Any]:
        name = f"<nested program {self.seed} {len(text)}>"
        linecache.cache[name] = len(text), None, text.splitlines(True), name
        space = dict(globals())
        exec(compile(text, name, "exec"), space)
        return space["program"]


class _Writer:
    """Draws a program, as lines for both."""

    def __init__(self, seed: int) -> None:
        self.d, self.count, self.nests = Random(seed), 0, 0
        self.differentiated = 0  # how many functions are being written whose gradients are taken, and so differentiated twice

    def new(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def block(self, known: list[str], depth: int, most: int) -> tuple[list[str], list[str]]:
        """Statements that add values to ``known``."""
        ours, theirs = [], []
        for _ in range(self.d.randint(1, most)):
            a, b = self.d.choice(known[-4:]), self.d.choice(known)
            chance = self.d.random()
            if chance < 0.4 and depth < DEEPEST and self.nests < NESTS:
                self.nests += 1
                nest = self.d.choice(_NESTS)
                if nest is _Writer.loop and self.differentiated:  # while_loop has first derivatives only
                    nest = _Writer.scan
                first, second = nest(self, known, depth, a, b)
            elif chance < 0.5:
                v = self.new()
                first, second = [f"{v} = {a} * 1.0", f"{v} += {b}"], [f"{v} = {a} * 1.0 + {b}"]
                if self.d.random() < 0.5:
                    first[1] = f"{v}[1:3] = {b}[:2] * 0.5"
                    second = [f"{v} = torch.cat([{a}[:1], {b}[:2] * 0.5, {a}[3:]])"]
                known.append(v)
            else:
                v = self.new()
                first, second = ([f"{v} = {text.format(a=a, b=b)}"] for text in self.d.choice(LINES))
                known.append(v)
            ours += first
            theirs += second
        return ours, theirs

    def function(self, known: list[str], depth: int, arguments: str, more: list[str], result: str) -> tuple[Any, Any, str]:
        """A function in both texts, and its name; ``result`` has holes for values that it knows."""
        name, inner = self.new("f"), [*known, *more]
        ours, theirs = self.block(inner, depth + 1, 2)
        o, p = self.d.choice(inner[-3:]), self.d.choice(inner)
        texts = [
            [f"def {name}({arguments}):", *("    " + line for line in [*body, "return " + result.format(o=o, p=p, sp=sp)])]
            for body, sp in ((ours, "fb"), (theirs, "torch"))
        ]
        return texts[0], texts[1], name

    def scan(self, known: list[str], depth: int, a: str, b: str) -> tuple[list[str], list[str]]:
        v, w, y, c, t = (self.new(s) for s in ("v", "v", "v", "c", "t"))
        result = "({sp}.tanh({o}), {p} * 0.9), {o}"
        ours, theirs, f = self.function(known, depth, f"{c}, {t}", [f"{c}[0]", f"{c}[1]", t], result)
        length, reverse = self.d.randint(1, 3), self.d.random() < 0.3
        known += [w, v, y]
        ours += [f"({v}, {w}), {y} = fb.scan({f}, ({a}, {b}), xs[:{length}], reverse={reverse})", f"{y} = fb.sum({y}, axis=0)"]
        theirs += [f"({v}, {w}), {y} = scan({f}, ({a}, {b}), xs[:{length}], {reverse})"]
        return ours, theirs

    def cond(self, known: list[str], depth: int, a: str, b: str) -> tuple[list[str], list[str]]:
        v, u = self.new(), self.new("u")
        ours, theirs, f = self.function(known, depth, u, [u], "{o} * 1.5")
        others, more, g = self.function(known, depth, u, [u], "{p} - 0.1")
        known.append(v)
        test = f"sum({b}) > 0.1"
        ours += [*others, f"{v} = fb.cond(fb.{test}, {f}, {g}, {a})"]
        theirs += [*more, f"{v} = {f}({a}) if torch.{test} else {g}({a})"]
        return ours, theirs

    def loop(self, known: list[str], depth: int, a: str, b: str) -> tuple[list[str], list[str]]:
        v, c = self.new(), self.new("c")
        ours, theirs, f = self.function(known, depth, c, [f"{c}[1]"], c + "[0] + 1, {sp}.tanh({o})")
        most = self.d.randint(1, 3)
        known.append(v)
        ours.append(f"_, {v} = fb.while_loop(lambda c: c[0] < {most}, {f}, (fb.asarray(0), {a}))")
        theirs += [f"{v} = (0, {a})", f"while {v}[0] < {most}: {v} = {f}({v})", f"{v} = {v}[1]"]
        return ours, theirs

    def call(self, known: list[str], depth: int, a: str, b: str) -> tuple[list[str], list[str]]:
        v, u = self.new(), self.new("u")
        ours, theirs, f = self.function(known, depth, u, [u], "{o}")
        known.append(v)
        return [*ours, f"{v} = fb.{self.d.choice(['jit', 'checkpoint'])}({f})({a})"], [*theirs, f"{v} = {f}({a})"]

    def gradient(self, known: list[str], depth: int, a: str, b: str) -> tuple[list[str], list[str]]:
        v, u = self.new(), self.new("u")
        self.differentiated += 1
        ours, theirs, f = self.function(known, depth, u, [u], "{o} * " + u)
        self.differentiated -= 1
        known.append(v)
        if self.d.random() < 0.5:
            taken = f"fb.grad(lambda u: fb.sum({f}(u)))({a})", f"pulled({f}, {a}, torch.ones_like({a}))"
        else:
            taken = f"fb.vjp({f}, {a})[1]({b})[0]", f"pulled({f}, {a}, {b})"
        return [*ours, f"{v} = fb.tanh({taken[0]})"], [*theirs, f"{v} = torch.tanh({taken[1]})"]


_NESTS = (
    _Writer.scan,
    _Writer.scan,
    _Writer.cond,
    _Writer.loop,
    _Writer.call,
    _Writer.call,
    _Writer.gradient,
    _Writer.gradient,
)


def scan(f: Callable[..., Any], carry: Any, xs: Any, reverse: bool) -> Any:
    """``fb.scan`` for torch, its results summed."""
    results = []
    for x in torch.flip(xs, (0,)) if reverse else xs:
        carry, y = f(carry, x)
        results.append(y)
    return carry, torch.stack(results).sum(0)


def pulled(f: Callable[..., Any], at: Any, cotangent: Any) -> Any:
    """The cotangent of ``f``'s argument, for torch."""
    u = (at if at.requires_grad else at.clone().requires_grad_()) * 1.0
    return torch.autograd.grad(f(u), u, cotangent, create_graph=True)[0]


def drawn(seed: int) -> Program:
    """The program of a seed."""
    writer, known = _Writer(seed), ["x", "y"]
    texts = writer.block(known, 0, 5)
    head, end = "def program(x, y, xs, matrix, at):", f"return {', '.join(known[-3:])}"
    ours, theirs = ("\n    ".join([head, *lines, end]) + "\n" for lines in texts)
    return Program(seed, ours, theirs)


def truth(program: Program) -> list[Array] | None:
    """The results, and the gradients of their weighted sum by x, y and xs; None where they are too large to compare."""
    x, y, xs, *rest = (torch.tensor(a) for a in program.operands())
    leaves = [t.requires_grad_() for t in (x, y, xs)]
    results = program.function(program.torch)(*leaves, *rest)
    total = sum((r * torch.cos(torch.arange(len(r), dtype=torch.float64) + i)).sum() for i, r in enumerate(results))
    found = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    arrays = [t.detach().numpy() for t in (*results, *found)]
    return arrays if all(np.abs(a).max() < 1e6 for a in arrays) else None


def run(program: Program, device: str, wrap: Callable[..., Any]) -> list[Array]:
    """The same from Firebrick; ``wrap`` is applied to the function that computes results and gradients."""
    function = program.function(program.firebrick)
    with fb.use_device(device):
        x, y, xs, *rest = (fb.asarray(a) for a in program.operands())

        def weighted(leaves: Any) -> Any:
            results = function(*leaves, *rest)
            total = sum(fb.sum(r * fb.asarray(np.cos(np.arange(x.shape[0]) + i))) for i, r in enumerate(results))
            return total + 0.0 * sum(fb.sum(t) for t in leaves), results  # depends on each leaf

        def all_of_it(x: Any, y: Any, xs: Any) -> Any:
            (_, results), gradients = fb.value_and_grad(weighted, has_aux=True)((x, y, xs))
            return *results, *gradients

        return [t.numpy() for t in wrap(all_of_it)(x, y, xs)]
