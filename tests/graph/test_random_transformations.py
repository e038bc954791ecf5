"""Random functions under every combination of transformations: results are those of a loop over the examples, derivatives those
of the eager gradient, which differences confirm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from transform_programs import Transformed, arguments, drawn

import firebrick as fb
from firebrick.ops import OPS

EXAMPLES = 3
ENGINES = {"numpy": 9, "cpu": 2, "torch:cpu": 3}
SKIPPED = {"torch:cpu": pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")}
Fn = Callable[..., Any]
Case = tuple[str, Callable[[], Any], Any]  # what is computed, how, and the arrays that it must give


def _loss(f: Fn) -> Fn:
    def loss(a: fb.Tensor, b: fb.Tensor) -> fb.Tensor:
        total = 0.0 * fb.sum(a)
        for i, y in enumerate(f(a, b)):
            total = total + fb.sum(fb.sin(y * (0.3 + i)))
        return total

    return loss


def _axes(rng: np.random.Generator, shapes: Any) -> tuple[int | None, ...]:
    while True:
        found = tuple(None if rng.random() < 0.25 else int(rng.integers(-len(s) - 1, len(s) + 1)) for s in shapes)
        if any(axis is not None for axis in found):
            return found


def _arrays(*tensors: Any) -> list[Any]:
    return [t.numpy() for t in tensors]


def cases(program: Transformed, device: str, rng: np.random.Generator) -> Iterator[Case]:
    """What transformations of a program must give."""
    f = program.function()
    loss = _loss(f)
    each = [arguments(rng, program.shapes, device) for _ in range(EXAMPLES)]
    a, b = (fb.stack([e[k] for e in each]) for k in range(2))
    results = [f(*e) for e in each]

    in_axes = _axes(rng, program.shapes)
    alike = [[e[k] if axis is not None else each[0][k] for k, axis in enumerate(in_axes)] for e in each]
    given = [each[0][k] if axis is None else fb.stack([e[k] for e in each], axis=axis) for k, axis in enumerate(in_axes)]
    rows = [f(*e) for e in alike]
    out_axes = tuple(int(rng.integers(-y.ndim - 1, y.ndim + 1)) for y in rows[0])
    want = [np.stack([r[k].numpy() for r in rows], axis=axis) for k, axis in enumerate(out_axes)]
    mapped = fb.vmap(f, in_axes=in_axes, out_axes=out_axes)
    yield "vmap", lambda: mapped(*given), want
    yield "jit of vmap", lambda: fb.jit(mapped)(*given), want
    yield "vmap of jit", lambda: fb.vmap(fb.jit(f), in_axes=in_axes, out_axes=out_axes)(*given), want
    yield "jit", lambda: fb.jit(f)(*each[0]), _arrays(*results[0])
    table = [np.stack([np.stack([f(x[0], y[1])[k].numpy() for y in each]) for x in each]) for k in range(len(out_axes))]
    turned = [np.swapaxes(t, 0, 1) for t in table]
    yield "vmap of vmap", lambda: fb.vmap(fb.vmap(f, in_axes=(None, 0)), in_axes=(0, None))(a, b), table
    yield "jit of vmap of vmap", lambda: fb.jit(fb.vmap(fb.vmap(f, in_axes=(0, None)), in_axes=(None, 0)))(a, b), turned

    def both(a: fb.Tensor, b: fb.Tensor) -> Any:
        return fb.grad(lambda ab: loss(*ab))((a, b))

    def of_all(a: fb.Tensor, b: fb.Tensor) -> Any:
        return fb.grad(lambda ab: fb.sum(fb.vmap(loss)(*ab)))((a, b))

    slopes = [both(*e) for e in each]
    want = [np.stack([g[k].numpy() for g in slopes]) for k in range(2)]
    yield "vmap of grad", lambda: fb.vmap(both)(a, b), want
    yield "jit of vmap of grad", lambda: fb.jit(fb.vmap(both))(a, b), want
    yield "grad of vmap", lambda: of_all(a, b), want
    yield "jit of grad of vmap", lambda: fb.jit(of_all)(a, b), want
    yield "grad of jit", lambda: fb.grad(lambda ab: fb.jit(loss)(*ab))(tuple(each[1])), _arrays(*slopes[1])
    yield "jit of grad", lambda: fb.jit(both)(*each[1]), _arrays(*slopes[1])

    along = arguments(rng, program.shapes, device)

    def directed(a: fb.Tensor, b: fb.Tensor) -> fb.Tensor:
        return fb.jvp(loss, (a, b), tuple(along))[1]

    change = [sum(float(np.sum(g.numpy() * d.numpy())) for g, d in zip(gs, along, strict=True)) for gs in slopes]
    yield "jvp", lambda: [directed(*each[0])], change[:1]
    yield "jit of jvp", lambda: [fb.jit(directed)(*each[0])], change[:1]
    yield "linearize", lambda: [fb.linearize(loss, *each[0])[1](*along)], change[:1]
    yield "vmap of jvp", lambda: [fb.vmap(directed)(a, b)], [np.asarray(change)]
    many = tuple(fb.stack([t] * EXAMPLES) for t in along)
    yield "jvp of vmap", lambda: [fb.jvp(fb.vmap(loss), (a, b), many)[1]], [np.asarray(change)]

    if len(program.shapes[0]) <= 1:

        def of_first(a: fb.Tensor) -> fb.Tensor:
            return loss(a, each[0][1])

        point = each[0][0]
        want = _arrays(fb.jacobian(fb.grad(of_first), mode="reverse")(point))
        yield "hessian", lambda: [fb.hessian(of_first)(point)], want
        yield "jit of hessian", lambda: [fb.jit(fb.hessian(of_first))(point)], want
        yield "jacobian of grad", lambda: [fb.jacobian(fb.grad(of_first), mode="forward")(point)], want
        yield "jacobian of grad of jit", lambda: [fb.jacobian(fb.grad(fb.jit(of_first)), mode="reverse")(point)], want
        yield "jit of jacobian of grad", lambda: [fb.jit(fb.jacobian(fb.grad(of_first), mode="reverse"))(point)], want


def _differs(got: Sequence[Any], want: Sequence[Any]) -> str:
    for a, b in zip(got, want, strict=True):
        found, right = a.numpy(), np.asarray(b)
        if found.shape != right.shape or found.dtype != right.dtype:
            return f"{found.dtype}{found.shape} for {right.dtype}{right.shape}"
        if not np.isfinite(right).all():  # at a point without a derivative
            continue
        scale = max(1.0, float(np.abs(right).max(initial=0.0)))
        if not np.all(np.abs(found - right) <= 1e-8 * scale):
            return f"{np.abs(found - right).max()} of {scale}"
    return ""


def disagreements(program: Transformed, device: str, seed: int) -> list[str]:
    """The transformations that give something else."""
    rng = np.random.default_rng(seed)
    with fb.use_device(device), fb.config.scope(fallback="silent"):
        return [f"{name}: {text}" for name, run, want in cases(program, device, rng) if (text := _differs(run(), want))]


def difference_quotient(program: Transformed, seed: int) -> tuple[float, float]:
    """The derivative in a direction, by the gradient and by differences."""
    rng = np.random.default_rng(seed)
    with fb.use_device("numpy"):
        loss = _loss(program.function())
        point, along = arguments(rng, program.shapes), arguments(rng, program.shapes)
        slopes = fb.grad(lambda ab: loss(*ab))(tuple(point))
        step = 1e-6
        ends = [loss(*(p + s * step * d for p, d in zip(point, along, strict=True))).item() for s in (1.0, -1.0)]
    return sum(fb.sum(g * d).item() for g, d in zip(slopes, along, strict=True)), (ends[0] - ends[1]) / (2 * step)


def agree(seed: int, device: str, longest: int) -> None:
    """Hold one random program to all of it."""
    rng = np.random.default_rng(seed)
    program = drawn(rng, int(rng.integers(2, longest + 1)))
    found = disagreements(program, device, seed)
    assert not found, f"seed {seed}\n{program.source}" + "\n".join(found)
    if device == "numpy" and "detach" not in program.source:
        slope, quotient = difference_quotient(program, seed)
        large = abs(slope) > 1e3 or not np.isfinite(slope)  # a loss of large numbers turns too quickly for differences
        assert large or abs(slope - quotient) <= 1e-4 * max(1.0, abs(slope)), (
            f"seed {seed}: {slope} {quotient}\n{program.source}"
        )


@pytest.mark.parametrize("device", [pytest.param(d, marks=SKIPPED.get(d, ())) for d in ENGINES])
def test_random_functions_under_transformations_give_what_loops_give(device: str, seed: int) -> None:
    for k in range(ENGINES[device]):
        agree(seed * 1000 + k, device, 6)


@pytest.mark.soak
@pytest.mark.parametrize("device", [pytest.param(d, marks=SKIPPED.get(d, ())) for d in ENGINES])
@pytest.mark.parametrize("part", range(20))
def test_many_random_functions_under_transformations(device: str, part: int) -> None:
    for k in range(5 * ENGINES[device]):
        agree(10**7 + part * 1000 + k, device, 12)


@pytest.mark.parametrize(("op", "field"), [("multiply", "batch"), ("sin", "jvp"), ("sin", "vjp")])
def test_a_wrong_rule_is_seen(op: str, field: str) -> None:
    program = Transformed(((2,), (3,)), ("fb.sin(a) * fb.sum(b)",), ("v0",))
    assert not disagreements(program, "numpy", 0)
    right = getattr(OPS[op], field)
    wrong: dict[str, Any] = {
        "batch": lambda b: right(replace(b, op=OPS["add"])), "jvp": lambda f: 2.0 * right(f),
        "vjp": lambda g, r: tuple(None if t is None else 2.0 * t for t in right(g, r)),
    }  # fmt: skip
    object.__setattr__(OPS[op], field, wrong[field])
    try:
        slope, quotient = difference_quotient(program, 0)
        assert disagreements(program, "numpy", 0) or abs(slope - quotient) > 0.01
    finally:
        object.__setattr__(OPS[op], field, right)
