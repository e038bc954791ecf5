"""Sums over the replicas of a model while they run their forward and backward passes: what synchronised batch norm needs.

A strategy sets ``joint`` for each replica's pass. All replicas then meet at each sum, in the order of the program, forward as
well as backward; the gradient of a sum over replicas is the sum over replicas of its cotangents.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol

from firebrick.autodiff.tape import no_grad
from firebrick.core.constants import constant
from firebrick.core.dtypes import float32
from firebrick.core.hooks import hooks
from firebrick.core.op import Cost, Op, Operand
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype
from firebrick.functions.normalisation import by_channel
from firebrick.functions.statistical import sum as sum_
from firebrick.ops.normalisation import inverse_spread


class Joint(Protocol):
    """Where replicas meet."""

    def sum(self, x: Tensor) -> Tensor:
        """Σ x over the replicas, in their order, untracked, on x's device; x has the same shape in all of them."""
        ...


joint: ContextVar[Joint | None] = ContextVar("firebrick_joint", default=None)
"""Where the replica that runs in this context meets the others; None where it is the only one."""


def joint_sum(x: Tensor, at: Joint, rows: int) -> Tensor:
    """Σ x over the replicas, differentiable where each replica's loss is the mean over its rows of the batch.

    The loss of the whole batch is the mean of these weighted by rows, so the cotangent that comes back to a replica is
    Σ rows · cotangent over the replicas, divided by its own rows.
    """
    with no_grad():
        out = at.sum(x.detach()).detach()
    if x.node is not None and hooks.grad_enabled():
        hooks.record(_summed(at, rows), (x,), {}, (out,))
    return out


def _summed(at: Joint, rows: int) -> Op:
    """The entry of the tape for one sum."""
    return Op(
        name="joint_sum",
        doc="A sum over the replicas of a model.",
        operands=(Operand("x", "floating"),),
        infer=lambda x: x,
        reference=lambda x: x,
        vjp=lambda g, r: (joint_sum(g * float(rows), at, rows) / float(rows),),
        residuals=(),
        samples=lambda rng, dtype: [],
        cost=lambda inputs, outputs, params: Cost(0.0, float(outputs[0].nbytes)),
        bound="memory",
        fusion="none",
        tolerance=1,
        recomputes=False,
    )


def joint_batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, at: Joint
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Batch norm by the statistics of all replicas' rows: y, mean and biased variance [channels], values a channel in all."""
    axes = (0, *range(2, x.ndim))
    values = x if x.dtype.itemsize >= 4 else astype(x, float32)
    count = int(at.sum(constant(float(x.size // x.shape[1]), float32, x.device)).item())
    mean = joint_sum(sum_(values, axis=axes), at, x.shape[0]) / float(count)
    centred = values - by_channel(mean, x)
    var = joint_sum(sum_(centred * centred, axis=axes), at, x.shape[0]) / float(count)
    y = astype(centred * by_channel(inverse_spread(var, eps), x), x.dtype, copy=False)
    if weight is not None:
        y = y * by_channel(weight, x)
    if bias is not None:
        y = y + by_channel(bias, x)
    return y, mean, var, count
