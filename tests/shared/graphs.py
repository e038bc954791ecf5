"""Graphs in tests: ops run one by one on the host engine, and an op that holds graphs."""

from __future__ import annotations

from typing import Any

from firebrick.backends.numpy import NumpyBackend
from firebrick.core.aval import Aval
from firebrick.core.op import Cost, Nondifferentiable, Op, operands
from firebrick.ir import CONSTANT

HOST = NumpyBackend()


def execute(op: Op, inputs: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """What ``interpret`` calls for each node: NumPy at the operands' own dtypes."""
    return params["value"] if op is CONSTANT else HOST.execute(op, inputs, params)


def passing_op(name: str) -> Op:
    """An op of one operand, its result, that takes any parameters."""
    return Op(
        name=name, doc="Returns its operand.", operands=operands("x:any"), infer=lambda x, **_: Aval(x.shape, x.dtype),
        reference=lambda x, **_: x, vjp=Nondifferentiable("a test"), residuals=(), samples=lambda rng, dtype: [],
        cost=lambda inputs, outputs, params: Cost(0, 0), bound="memory", fusion="opaque", tolerance=0,
    )  # fmt: skip
