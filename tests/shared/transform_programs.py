"""Random functions of two tensors in float64, as Python that runs, for tests of transformations.

Each line is one operation on values before it, drawn so that axes often have equal sizes or size 1. ``drawn`` keeps a line only
if it runs and its result is finite and of moderate size, so that derivatives can be compared with differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import firebrick as fb

SHAPES = ((), (1,), (2,), (3,), (2, 2), (1, 3), (3, 2), (2, 1, 3))
MOST = 200  # elements of a value


def line_of(rng: np.random.Generator, values: dict[str, tuple[int, ...]]) -> str:
    """A random expression of named values of these shapes."""
    names = list(values)
    x = names[-1 if rng.random() < 0.6 else int(rng.integers(len(names)))]
    y = names[int(rng.integers(len(names)))]
    shape, n = values[x], len(values[x])
    axis = int(rng.integers(-n, n)) if n else 0
    size = shape[axis] if n else 1
    facts: dict[str, Any] = {
        "x": x, "y": y, "axis": axis, "keep": bool(rng.integers(2)), "size": max(size, 1),
        "axes": tuple(int(a) for a in rng.permutation(n)[: int(rng.integers(1, n + 1))]) if n else (),
        "perm": tuple(int(a) for a in rng.permutation(n)),
        "fixed": [int(i) for i in rng.integers(-max(size, 1), max(size, 1), 3)],
        "index": ", ".join(str(rng.choice([":", "::-1", "0", "-1", "None", "1:", ":-1", "::2"])) for _ in shape),
    }  # fmt: skip
    forms = [*ELEMENTWISE, *CONTROL, *NESTED, *_products(shape, values[y])]
    if n:
        forms += REDUCING + MOVING + INDEXING + CONTROL_OF_AXES + NESTED_OF_AXES
        forms += ["fb.squeeze({x}, axis={axis})" if size == 1 else "fb.diff({x}, axis={axis})"]
    if n >= 2:
        rows, columns = shape[-2:]
        facts["spd"] = f"({x} @ {x}.mT + 2.0 * fb.eye({rows}, dtype=fb.float64))"
        facts["eye"] = f"fb.eye({rows}, {columns}, dtype=fb.float64)"
        forms += MATRICES
    return str(forms[int(rng.integers(len(forms)))]).format(**facts)


ELEMENTWISE = [
    "fb.sin({x})", "fb.tanh({x}) * 1.5", "fb.exp(-{x} * {x})", "fb.sqrt({x} * {x} + 1.0)", "fb.sigmoid({x})",
    "fb.softplus({x})", "fb.gelu({x})", "{x} + {y}", "{x} * {y}", "{x} - 2.0 * {y}", "{x} / (1.0 + {y} * {y})",
    "fb.where({x} > {y}, {x} * 2.0, {y})",
    "fb.maximum({x}, {y} * 0.7)", "fb.atan2({x}, {y} * {y} + 1.0)", "fb.clip({x}, -0.6, 0.8)", "fb.abs({x})",
    "fb.log1p({x} * {x})", "fb.logaddexp({x}, {y})", "fb.lgamma({x} * {x} + 1.5)", "fb.erfinv(fb.tanh({x}) * 0.9)",
    "fb.astype(fb.astype({x} > 0.0, fb.int64), fb.float64) * {x}", "fb.pow({x} * {x} + 0.5, {y})", "fb.hypot({x}, {y} + 2.0)",
    "{x}.detach() * {x}", "fb.sum({x}) + {x}",
]  # fmt: skip
REDUCING = [
    "fb.sum({x}, axis={axes}, keepdims={keep})", "fb.mean({x}, axis={axes}, keepdims={keep})", "fb.sort({x}, axis={axis})",
    "fb.max({x}, axis={axis}, keepdims={keep})", "fb.min({x}, axis={axis}, keepdims={keep})", "fb.softmax({x}, axis={axis})",
    "fb.prod({x}, axis={axis}, keepdims={keep})", "fb.logsumexp({x}, axis={axis}, keepdims={keep})",
    "fb.var({x}, axis={axis}, keepdims={keep})", "fb.median({x}, axis={axis}, keepdims={keep})",
    "fb.log_softmax({x}, axis={axis})", "fb.cumulative_sum({x}, axis={axis})", "fb.cumulative_prod({x} * 0.9, axis={axis})",
    "fb.cumulative_logsumexp({x}, axis={axis})", "fb.astype(fb.argmax({x}, axis={axis}), fb.float64)",
    "fb.astype(fb.argsort({x}, axis={axis}), fb.float64) * {x}", "fb.linalg.norm({x} + 0.1, axis={axis})",
]  # fmt: skip
MOVING = [
    "fb.permute_dims({x}, {perm})", "fb.flip({x}, axis={axis})", "fb.roll({x}, 1, axis={axis})", "fb.reshape({x}, (-1,))",
    "fb.expand_dims({x}, axis={axis})", "fb.concat([{x}, {x} * 2.0], axis={axis})", "fb.stack([{x}, -{x}], axis={axis})",
    "{x}[{index}]", "{x}[..., None]", "fb.broadcast_to({x}, (2, *{x}.shape))", "fb.repeat({x}, 2, axis={axis})",
    "fb.tile({x}, (2,))", "fb.unstack({x}, axis={axis})[0]", "fb.moveaxis({x}, {axis}, 0)",
]  # fmt: skip
INDEXING = [
    "fb.take({x}, fb.asarray({fixed}), axis={axis})", "changed({x}, {y}, {fixed}[0])", "fb.top_k({x}, 1, axis={axis})[0]",
    "fb.take_along_axis({x}, fb.argmax({x}, axis={axis}, keepdims=True), axis={axis})",
    "fb.take({x}, fb.argsort(fb.reshape({y}, (-1,)))[:1] % {size}, axis={axis})",
    "{x}[fb.argmax(fb.reshape({y}, (-1,))) % {x}.shape[0]]",
]  # fmt: skip
MATRICES = [
    "{x} @ {x}.mT", "fb.linalg.inv{spd}", "fb.linalg.det{spd}", "fb.linalg.cholesky{spd}", "fb.linalg.solve({spd}, {x})",
    "fb.linalg.slogdet{spd}[1]", "fb.linalg.eigvalsh{spd}", "fb.linalg.trace({x})", "fb.linalg.diagonal({x})",
    "fb.linalg.qr{spd}[1]", "fb.linalg.svdvals({x} + {eye})", "fb.linalg.matrix_power({x} @ {x}.mT, 2)", "fb.tril({x})",
    "fb.linalg.expm({x} @ {x}.mT * 0.1)", "fb.linalg.pinv({x} + 2.0 * {eye})",
    "fb.linalg.solve_triangular(fb.tril{spd}, {x}, upper=False)",
]  # fmt: skip
CONTROL = [
    "fb.cond(fb.sum({x}) > 0.1, lambda v: v * fb.sum({y}), lambda v: fb.sin(v), {x})",
    "fb.while_loop(lambda s: fb.sum(s * s) > 2.0, lambda s: s * 0.6 + 0.01 * fb.tanh(fb.sum({y})), {x})",
    "fb.scan(lambda c, _: (fb.sin(c) + 0.1 * fb.sum({y}), c), {x}, length=3)[1]",
    "fb.scan(lambda c, _: (c * 0.9 + fb.sum({y}), fb.sum(c)), {x}, length=2, reverse=True)[0]",
    "fb.scan(lambda c, _: (fb.cond(fb.sum(c) > 0.0, lambda c: c * 0.5, lambda c: c - fb.sum({y}), c), None), {x}, length=2)[0]",
    "fb.checkpoint(lambda v: fb.exp(fb.sin(v)) * fb.sum({y}))({x})", "own({x}, {y})", "own_forward({x})",
]  # fmt: skip
CONTROL_OF_AXES = [
    "fb.scan(lambda c, e: (c + fb.sum(e) * fb.sum({y}), e * c), fb.sum({x}), {x})[1]",
    "fb.scan(lambda c, e: (own(c, e), fb.sum(c)), {x}[0] * 1.0, {x}, reverse=True)[0]",
    "fb.scan(lambda c, e: (fb.tanh(c + e), c), {x}[0] * 0.0 + 1.0, {x})[0]",
]  # fmt: skip
NESTED = [
    "fb.grad(lambda v: fb.sum(fb.sin(v) * {x}))({x})", "fb.jvp(lambda v: fb.exp(-v * v) * {x}, ({x},), ({x} * 0.5,))[1]",
    "fb.jit(lambda v: fb.sin(v) * {x})({x})", "fb.grad(fb.jit(lambda v: fb.sum(own(v, {x}.detach()) * v)))({x})",
    "fb.vjp(lambda v: v * fb.sum(v * {x}), {x})[1]({x} * 0.3)[0]", "fb.linearize(lambda v: v * fb.sum(v), {x})[1]({y} * {x})",
]  # fmt: skip
NESTED_OF_AXES = [
    "fb.vmap(lambda v: v * fb.sum(v) + fb.sum({x}))({x})", "fb.vmap(fb.grad(lambda v: fb.sum(v * fb.sin(v))))({x})",
    "fb.vmap(lambda v: fb.scan(lambda c, _: (fb.sin(c) * v, c), v, length=2)[0])({x})", "fb.vmap(lambda v: own(v, v))({x})",
    "fb.vmap(lambda v: fb.cond(fb.sum(v) > 0.0, lambda: v * 2.0, lambda: v * fb.sum({x})))({x})",
    "fb.jacobian(lambda v: fb.sin(v) * fb.sum(v))(fb.reshape({x}, (-1,))[:3])",
]  # fmt: skip


def _products(x: tuple[int, ...], y: tuple[int, ...]) -> list[str]:
    """Products of two values, as far as their shapes fit."""
    forms = ["fb.tensordot({x}, {y}, axes=0)"]
    if x and y and x[-1] == y[0]:
        forms += ["fb.tensordot({x}, {y}, axes=1)"] * 2
    if len(x) >= 2 and y and x[-1] == y[-2 if len(y) > 1 else 0]:
        forms += ["{x} @ {y}"] * 2
    if x and y and x[-1] == y[-1]:
        forms += ["fb.linalg.vecdot({x}, {y})"] * 2
    if len(x) == 2:
        forms += ["fb.einsum('ij,kj->ik', {x}, {x})", "fb.einsum('ii->i', {x} @ {x}.mT)"]
    return forms


def _own() -> Any:
    @fb.custom_vjp
    def own(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        return fb.sin(x) * fb.mean(y) + x

    def backward(r: Any, g: fb.Tensor) -> Any:
        x, y = r
        dx = g * (fb.cos(x) * fb.mean(y) + 1.0)
        return dx, fb.ones_like(y) * (fb.sum(g * fb.sin(x)) / float(y.size))

    own.defvjp(lambda x, y: (own(x, y), (x, y)), backward)
    return own


def _own_forward() -> Any:
    @fb.custom_jvp
    def own(x: fb.Tensor) -> fb.Tensor:
        return fb.log1p(fb.exp(x))

    own.defjvp(lambda p, t: (own(*p), t[0] / (1.0 + fb.exp(-p[0]))))
    return own


def _changed(x: fb.Tensor, y: fb.Tensor, at: int) -> fb.Tensor:
    made = x * 1.0
    made[at] = fb.sum(y)
    made += 0.5
    return made


def space_of() -> dict[str, Any]:
    """The names that expressions use besides those of values."""
    return {"fb": fb, "own": _own(), "own_forward": _own_forward(), "changed": _changed}


@dataclass(frozen=True)
class Transformed:
    """A random function.

    Attributes:
        shapes: Of its two operands.
        lines: Its expressions, each of the values before.
        results: Names of the values that it returns.
    """

    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    lines: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def source(self) -> str:
        """Its text."""
        body = "".join(f"    v{i} = {line}\n" for i, line in enumerate(self.lines))
        return f"def f(a, b):  # {self.shapes[0]}, {self.shapes[1]}\n{body}    return {', '.join(self.results)},\n"

    def function(self) -> Callable[..., tuple[fb.Tensor, ...]]:
        """The function itself."""
        space = space_of()
        exec(self.source, space)
        return space["f"]  # type: ignore[no-any-return]


def arguments(rng: np.random.Generator, shapes: Any, device: str = "numpy") -> list[fb.Tensor]:
    """Operands of these shapes."""
    return [fb.asarray(rng.normal(size=s) * 0.7, dtype=fb.float64, device=device) for s in shapes]


def drawn(rng: np.random.Generator, length: int) -> Transformed:
    """A random function of at most so many lines."""
    shapes = tuple(SHAPES[int(rng.integers(len(SHAPES)))] for _ in range(2))
    inputs = dict(zip("ab", arguments(rng, shapes), strict=True))
    space = {**space_of(), **inputs}
    values = {k: t.shape for k, t in inputs.items()}
    lines: list[str] = []
    with fb.use_device("numpy"), fb.config.scope(fallback="silent"):
        for _ in itertools.repeat(None, 12 * length):
            if len(lines) == length:
                break
            line = line_of(rng, values)
            try:
                found = eval(line, space)
            except (fb.FirebrickError, ValueError, IndexError, TypeError, NotImplementedError, AttributeError):
                continue
            if not isinstance(found, fb.Tensor) or not 0 < found.size <= MOST or found.dtype is not fb.float64:
                continue
            if not np.isfinite(found.numpy()).all() or np.abs(found.numpy()).max() > 30.0:
                continue
            name = f"v{len(lines)}"
            lines.append(line)
            space[name], values[name] = found, found.shape
    last = [k for k in values if k.startswith("v")][-2:] or ["a"]
    return Transformed(shapes, tuple(lines), tuple(last))  # type: ignore[arg-type]
