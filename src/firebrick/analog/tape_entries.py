"""Entries of the tape for products of tiles: what is recorded is over, so an entry has the rule of its gradient alone."""

from __future__ import annotations

from typing import Any

from firebrick.core.op import Cost, Op, Operand


def tape_entry(name: str, doc: str, operands: tuple[str, ...], pull: Any) -> Op:
    """The entry of the tape for one computation, whose operands all may have gradients.

    Args:
        name: Of the operation, for messages.
        doc: What it computes.
        operands: Their names.
        pull: Rule of the gradient, as ``Op.vjp``.
    """
    return Op(
        name=name, doc=doc, operands=tuple(Operand(n, "any") for n in operands), infer=lambda *x: x[0],
        reference=lambda *x: x[0], vjp=pull, residuals=("inputs",), samples=lambda rng, dtype: [],
        cost=lambda inputs, outputs, params: Cost(0.0, 0.0), bound="compute", fusion="none", tolerance=0, recomputes=False,
    )  # fmt: skip
