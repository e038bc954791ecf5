"""Random programs as Python source: what a user might write, over tensors, numbers, captured state and random draws.

A program is a list of statements. Each is chosen from a table, with variables of the kinds that it takes in its holes, and kept
if it runs. Variables are made in order and may be used again; whatever is left at the end is returned.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
from hypothesis import strategies as st

import firebrick as fb
from firebrick.core.errors import FirebrickError

# holes: {f} a float tensor, {m} one of two or more axes, {g} a float32 or float64 one, {i} ints, {b} bools, {a} any,
# {n} a number that floats take, {k} a number that ints take
VALUES: dict[str, tuple[str, ...]] = {
    "elementwise": (
        "fb.sin({f})", "fb.exp(-fb.abs({f}))", "fb.tanh({f})", "fb.relu({f})", "fb.sqrt(fb.abs({f}))", "-{f}", "fb.square({f})",
        "fb.sigmoid({f})", "fb.sign({f})", "fb.floor({f})", "fb.round({f})", "fb.gelu({f})", "fb.log1p(fb.abs({f}))",
        "fb.abs({a})",
        "fb.bitwise_invert({i})", "fb.logical_not({b})", "fb.isfinite({f})", "fb.silu({f})", "fb.erf({f})", "-{i}",
    ),
    "arithmetic": (
        "{f} + {f}", "{f} - {f}", "{f} * {f}", "{f} / (fb.abs({f}) + 1.0)", "fb.maximum({f}, {f})", "fb.minimum({f}, {f})",
        "{i} + {i}", "{i} * {i}", "{i} - {i}", "{i} // {i}", "{i} % {k}", "{f} % {n}", "fb.atan2({f}, {f})",
        "fb.hypot({f}, {f})",
        "{f} * {f} + {f}", "({f} + {f}) * ({f} - {f})", "{f} - fb.mean({f})",
    ),
    "complex": (
        "fb.abs(fb.complex({f}, {f}))", "fb.real(fb.square(fb.complex({f}, {g})))",
        "fb.imag(fb.conj(fb.complex({g}, {n})) * 1.5)",
        "fb.real(fb.sum(fb.complex({m}, 0.5), axis=0))", "fb.real(fb.sin(fb.complex({f}, 0.25)) / fb.complex({f}, 2.0))",
        "fb.imag(fb.complex({m}, 1.0)[0])",
    ),
    "numbers": (
        "{f} + {n}", "{f} * {n}", "{n} - {f}", "{n} / (fb.square({f}) + 1.0)", "{i} + {k}", "{k} * {i}",
        "fb.clip({f}, -1.0, {n})",
        "{f} * 1.0", "{f} + 0.0", "{i} * 0", "{f} ** 2.0", "fb.full((2, 3), {n})", "fb.full((3,), {k})",
        "{f} * ({n} * 2.0 + 1.0)",
        "fb.asarray({n}) * {f}", "fb.zeros((2, 3)) + {f}", "fb.ones_like({f})", "fb.arange(3) + {i}",
    ),
    "choices": (
        "fb.where({b}, {f}, {f})", "fb.where({b}, {f}, {n})", "fb.where({f} > {f}, {f}, {f})", "{f} > {n}", "{f} <= {f}",
        "{i} == {k}", "fb.logical_and({b}, {b})", "{b} | {b}", "fb.where({b}, {i}, 0)", "fb.masked_fill({f}, {b}, {n})",
    ),
    "reductions": (
        "fb.sum({f})", "fb.sum({m}, axis=0)", "fb.sum({m}, axis=-1, keepdims=True)", "fb.mean({m}, axis=1)", "fb.max({f})",
        "fb.min({m}, axis=0)", "fb.prod({f})", "fb.any({b})", "fb.all({b})", "fb.sum({i})", "fb.argmax({m}, axis=1)",
        "fb.var({f})",
        "fb.cumulative_sum({m}, axis=1)", "fb.sort({m}, axis=0)", "fb.logsumexp({m}, axis=1)", "fb.std({m}, axis=0)",
    ),
    "products": (
        "{m} @ fb.matrix_transpose({m})", "fb.matrix_transpose({m}) @ {m}", "{m} @ {m}", "fb.einsum('ij,kj->ik', {m}, {m})",
        "fb.softmax({m}, axis=1)", "fb.log_softmax({m}, axis=-1)", "fb.layer_norm({m})", "fb.softmax({m}, axis=0)",
        "fb.vecdot({m}, {m})", "fb.cross_entropy({m}, fb.asarray([0, 1]))",
    ),
    "movement": (
        "fb.reshape({a}, (-1,))", "fb.reshape({m}, (3, 2))", "fb.matrix_transpose({m})", "fb.flip({a})",
        "fb.expand_dims({a}, axis=0)",
        "fb.squeeze({a}[None], axis=0)", "fb.concat([{m}, {m}], axis=0)", "fb.stack([{f}, {f}])", "fb.roll({m}, 1, axis=1)",
        "fb.broadcast_to({f}, (2, 3))", "fb.pad({m}, ((0, 1), (1, 0)))", "fb.unstack({m})[0]", "fb.tile({m}, (1, 2))",
        "fb.permute_dims(fb.permute_dims({m}, (1, 0)), (1, 0))", "fb.triu({m})",
    ),
    "indexing": (
        "{m}[0]", "{m}[:, 1:]", "{m}[::-1]", "{m}[..., None]", "{m}[-1, ::2]", "{m}[fb.asarray([1, 0, 1])]",
        "{m}[:, 0] + {m}[:, 1]",
        "fb.take({m}, fb.asarray([0, 0]), axis=1)", "fb.take_along_axis({m}, fb.argsort({m}, axis=1), axis=1)", "{i}[None, :1]",
        "fb.one_hot(fb.abs({i}) % 4, 4)", "fb.index_add(fb.zeros(3), fb.asarray([0, 2]), fb.reshape({f}, (-1,))[:2], axis=0)",
    ),
    "casts": (
        "fb.astype({f}, fb.float64)", "fb.astype({f}, fb.float32)", "fb.astype({f}, fb.float16)", "fb.astype({b}, fb.float32)",
        "fb.astype({i}, fb.float32)", "fb.astype({f}, fb.int32)", "fb.astype({b}, fb.int32)", "fb.astype({i}, fb.int8)",
        "fb.astype(fb.astype({f}, fb.bfloat16), fb.float32)", "fb.astype({f}, fb.bool)",
    ),
    "random": (
        "generator.normal((2, 3))", "generator.uniform((3,))", "generator.bernoulli((2, 3), 0.5)",
        "generator.integers((3,), 0, 5)",
        "{f} * generator.uniform((3,))", "dropout({f})",
    ),
    "gradients": (
        "fb.grad(lambda t: fb.sum(fb.sin(t) * t))({g})", "fb.value_and_grad(lambda t: fb.mean(fb.square(t - {n})))({g})[1]",
        "fb.grad(lambda t: fb.sum(fb.exp(-t * t) * weight))({g})",
        "fb.grad(lambda t: fb.sum(fb.softmax(t, axis=-1)[..., 0]))({g})",
        "fb.grad(lambda t: fb.sum(fb.grad(lambda u: fb.sum(u * u * u))(t) * t))({g})", "fb.grad(lambda t: fb.max(t))({g})",
        "fb.vjp(lambda t: fb.tanh(t) * {n}, {g})[0]", "fb.grad(lambda t: fb.sum(fb.checkpoint(fb.sin)(t) * t))({g})",
    ),
    "detours": ("{f}.detach()", "inner({f}, {n})", "fb.positive({a})", "layer(fb.broadcast_to({g}, (2, 3)))"),
}  # fmt: skip
EFFECTS = (
    "state += {v}", "state[0] = {v}[0]", "state[:, 1] = {n}", "count += 1", "state *= 0.5",
    "fb.multiply(state, {n}, out=state)",
    "x[0] = {v}[1]", "state[...] = {v}", "table['w'] += 1.0", "x += 0.25", "state[state > 1.0] = {n}",
)  # fmt: skip
"""Statements that change what outlives the call; {v} is a float32 [2, 3]."""
CONTROL: dict[str, tuple[str, ...]] = {
    "cond": (
        "fb.cond(fb.sum({f}) > {n}, lambda t: fb.sin(t), lambda t: t * 2.0, {f})",
        "fb.cond(fb.any({b}), lambda t: -t, lambda t: fb.exp(-t * t), {f})", "fb.cond({f} > {n}, fb.sin, fb.tanh, {f})",
    ),
    "while_loop": (
        "fb.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * 0.5 + 1.0, s[1] + 1), ({f}, fb.asarray(0)))[0]",
    ),
    "scan": (
        "fb.scan(lambda c, t: (c * 0.5 + t, c), fb.zeros(3), fb.astype(fb.broadcast_to({g}, (2, 3)), fb.float32))[1]",
        "fb.grad(lambda u: fb.sum(fb.scan(lambda c, t: (fb.tanh(c + t * weight), c), fb.zeros(3), u)[0]))(x)",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """One program: statements, then the names that it returns."""

    statements: tuple[str, ...]
    returned: tuple[str, ...]

    @property
    def source(self) -> str:
        body = [*self.statements, f"return ({', '.join(self.returned)},)"]
        return "\n".join(["def program(x, y, k, n, i):", "    global state, count", *(f"    {line}" for line in body), ""])

    def __repr__(self) -> str:
        return f"\n{self.source}"


@dataclass
class World:
    """What a program captures: its globals."""

    device: str
    names: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(5)
        generator = fb.random.Generator(3)
        layer = fb.nn.Linear(3, 3, generator=fb.random.Generator(4), device=self.device)
        self.names |= {
            "fb": fb, "generator": generator, "layer": layer, "weight": self.send(rng.normal(size=3).astype(np.float32)),
            "state": self.send(rng.normal(size=(2, 3)).astype(np.float32)), "count": self.send(np.asarray(0)),
            "table": {"w": self.send(np.float32(1.5))}, "inner": fb.jit(lambda t, n: t * n + 1.0),
            "dropout": fb.nn.Dropout(0.4, generator=generator),
        }  # fmt: skip

    def send(self, array: Any) -> fb.Tensor:
        return fb.asarray(np.asarray(array), device=self.device)

    def arguments(self, call: int) -> tuple[Any, ...]:
        """Those of call number ``call``: other values of the same shapes and dtypes."""
        rng = np.random.default_rng(100 + call)
        x, y = rng.normal(size=(2, 3)).astype(np.float32), rng.normal(size=3).astype(np.float32)
        return self.send(x), self.send(y), self.send(rng.integers(-3, 4, 3)), float(rng.normal()), int(rng.integers(1, 5))

    def define(self, program: Program) -> Callable[..., Any]:
        """The program as a function with this world's names as its globals."""
        file = f"<random program {next(_files)}>"
        linecache.cache[file] = (len(program.source), None, program.source.splitlines(True), file)
        exec(compile(program.source, file, "exec"), self.names)
        made: Callable[..., Any] = self.names["program"]
        return made

    def state(self) -> dict[str, Any]:
        """What a program can change."""
        found = {"state": self.names["state"], "count": self.names["count"], "w": self.names["table"]["w"]}
        return {**found, "generator": self.names["generator"].state()}


_files = count()


class _Writing:
    """A program under construction, run statement by statement as it is written."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.world = World("cpu")
        self.space = self.world.names
        x, y, k, n, i = self.world.arguments(0)
        self.space.update(x=x, y=y, k=k, n=n, i=i)
        self.variables = ["x", "y", "k", "state"]
        self.statements: list[str] = []

    def of(self, items: Any) -> Any:
        return self.draw(st.sampled_from(items))

    def kind(self, hole: str) -> list[str]:
        def fits(t: fb.Tensor) -> bool:
            kind = t.dtype.kind
            return {
                "f": kind == "float", "m": kind == "float" and t.ndim >= 2, "g": t.dtype in (fb.float32, fb.float64),
                "i": kind == "int", "b": kind == "bool", "a": True, "v": t.dtype is fb.float32 and t.shape == (2, 3),
            }[hole]  # fmt: skip

        return [v for v in self.variables if fits(self.space[v])]

    def filled(self, form: str) -> str | None:
        """A form with its holes filled; None if nothing fits."""
        parts = form.split("{")
        text = parts[0]
        for part in parts[1:]:
            hole, rest = part.split("}", 1)
            if hole in ("n", "k"):
                choice = self.of(["n", "0.5", "-1.5", "2.0"] if hole == "n" else ["i", "2", "3"])
            else:
                found = self.kind(hole)
                if not found:
                    return None
                choice = self.of(found[-6:] if self.of([True, True, False]) else found)
            text += choice + rest
        return text

    def add(self, statement: str, name: str = "") -> None:
        """Keep a statement if it runs and what it makes is small."""
        before = self.space.get(name)
        try:
            exec(statement, self.space)
        except FirebrickError:
            return
        if name:
            made = self.space[name]
            if not isinstance(made, fb.Tensor) or made.size > 64:
                self.space[name] = before
                return
            self.variables.append(name)
        self.statements.append(statement)


@st.composite
def programs(draw: Any, most: int = 12, effects: bool = True, detached: bool = False, control: bool = True) -> Program:
    """Programs of up to ``most`` statements; if ``detached``, what they keep is never tracked."""
    w = _Writing(draw)
    forms = [f for kind in VALUES.values() for f in kind]
    if control:
        forms += [f for name, kind in CONTROL.items() if hasattr(fb, name) for f in kind]
    changes = [f.replace("{v}", "{v}.detach()") for f in EFFECTS if not (detached and f.startswith("x"))]
    for k in range(draw(st.integers(1, most))):
        effect = effects and draw(st.integers(0, 4)) == 4
        text = w.filled(w.of(changes if effect else forms))
        if text is not None:
            w.add(text if effect else f"v{k} = {text}", "" if effect else f"v{k}")
    made = [v for v in w.variables if v.startswith("v")]
    more = made[:-3] if detached else [*made[:-3], "x", "state"]
    picked = [v for v in more if draw(st.booleans())]
    return Program(tuple(w.statements), (*made[-3:], *picked[:3]) or ("x",))
