"""Refuses, where a batch is run in parts, a mean that does not divide by the number of its rows.

Strategies weigh the loss of each part by its rows. A mean over the labels that count, or by class weights, divides by another
number, which differs from part to part: the parts would not add up to the batch, for some batches and not for others. So such
a mean is refused by its arguments, whatever labels a batch holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor

_in_part: ContextVar[bool] = ContextVar("firebrick_part_of_batch", default=False)


@contextmanager
def part_of_batch() -> Iterator[None]:
    """A ``with`` block in which tensors hold a part of a batch's rows, and losses are weighed by those rows."""
    token = _in_part.set(True)
    try:
        yield
    finally:
        _in_part.reset(token)


def check_divisor(name: str, reduction: str, weight: Tensor | None, ignored: int | None) -> None:
    """Raise ConfigError if a mean over labels divides by something other than their number, within a part of a batch."""
    if not _in_part.get() or reduction != "mean" or (weight is None and ignored is None):
        return
    given = " and ".join(
        ([] if weight is None else ["class weights"]) + ([] if ignored is None else [f"ignore_index={ignored}"])
    )
    divisor = "the number of labels that count" if weight is None else "the sum of the weights of its labels"
    raise ConfigError(
        f"{name}: where a batch is divided, over devices or by accumulate, or is one of several (batches_per_step), its loss "
        "is the mean of the losses of its rows",
        f'reduction="mean" with {given}, which divides by {divisor}, another one in each part',
        f'take the mean over all rows: fb.mean(fb.{name}(…, reduction="none")); or train on one device, each batch as a whole',
    )
