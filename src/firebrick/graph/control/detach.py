"""``detach``: the operation that returns its operand and lets no gradient through. It marks inside a graph what handles
mark outside; passes remove it once gradients have been taken."""

from __future__ import annotations

from firebrick.core.aval import Aval
from firebrick.core.op import Cost, Nondifferentiable, Op, Operand
from firebrick.ir import INTERNAL
from firebrick.ops.batch_rules import leading

DETACH = Op(
    name="detach",
    doc="x, through which no gradient flows.",
    operands=(Operand("x", "any"),),
    infer=lambda x: Aval(x.shape, x.dtype),
    reference=lambda x: x,
    vjp=Nondifferentiable("detach lets no gradient through"),
    residuals=(),
    samples=lambda rng, dtype: [],
    cost=lambda inputs, outputs, params: Cost(0.0, 0.0),
    bound="memory",
    fusion="none",
    tolerance=0,
    view=lambda x, slot, shape: x,
    control=lambda backend, params, device: lambda x: x,
    batch=leading(),
)
INTERNAL[DETACH.name] = DETACH
