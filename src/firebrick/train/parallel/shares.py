"""How the rows of a batch are dealt to devices of unlike speed: always the same rows to the same device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from firebrick.data import DataLoader, UnknownLengthError
from firebrick.train.errors import TrainingError

MEASURED, EVEN = "measured", "even"
SYNCHRONISED = "synchronised"


def check_shares(shares: Any, count: int, each: str = "device") -> tuple[float, ...] | None:
    """Shares as fractions of 1, in the order of the devices; None where they are to be measured.

    Args:
        shares: As given.
        count: How many devices there are.
        each: What messages call one.

    Raises:
        TrainingError: They are neither "even" nor "measured" nor one number > 0 a device.
    """
    if isinstance(shares, str):
        if shares in (EVEN, MEASURED):
            return (1.0 / count,) * count if shares == EVEN else None
    elif isinstance(shares, (list, tuple)) and len(shares) == count:
        numbers = [float(s) for s in shares if isinstance(s, (int, float)) and not isinstance(s, bool)]
        if len(numbers) == count and all(0.0 < s < math.inf for s in numbers):
            total = math.fsum(numbers)
            return tuple(s / total for s in numbers)
    raise TrainingError(
        f'shares are "{EVEN}", "{MEASURED}", or one number > 0 for each of the {count} {each}s',
        repr(shares),
        f"pass e.g. shares={[round(1 / count, 2)] * count}, which are scaled to a sum of 1",
    )


def sizes_of(loader: DataLoader) -> list[int]:
    """The numbers of rows that batches of an epoch have, as far as they are known."""
    try:
        full, rest = divmod(loader.samples, loader.batch_size)
    except UnknownLengthError:
        return [loader.batch_size]
    return [size for size, there in ((loader.batch_size, full), (rest, rest)) if there]


def divided(rows: int, shares: Sequence[float]) -> list[int]:
    """How many of ``rows`` each device takes: the whole parts of its share, and what is left over to those that miss most, the
    first ones among equals.

    Args:
        rows: Of a batch, ≥ 0.
        shares: Fractions of 1.

    Returns:
        Whole numbers ≥ 0 whose sum is ``rows``.

    Source: the method of largest remainders (Hamilton's).
    """
    exact = [rows * s for s in shares]
    whole = [int(e + 1e-9) for e in exact]
    missing = sorted(range(len(shares)), key=lambda i: (round(whole[i] - exact[i], 9), i))
    for i in missing[: rows - sum(whole)]:
        whole[i] += 1
    return whole


def balanced(rows: Sequence[int], seconds: Sequence[float]) -> tuple[float, ...]:
    """Shares for which all devices take equally long.

    Args:
        rows: How many each device had.
        seconds: How long it took for them.
    """
    speeds = [n / max(1e-9, s) for n, s in zip(rows, seconds, strict=True)]
    total = math.fsum(speeds)
    return tuple(v / total for v in speeds)


def check_batch_norm(how: Any) -> bool:
    """Whether batch norm is synchronised.

    Raises:
        TrainingError: It is neither "local" nor "synchronised".
    """
    if how not in ("local", SYNCHRONISED):
        raise TrainingError(f'batch_norm is "local" or "{SYNCHRONISED}"', repr(how), "choose one of these")
    return bool(how == SYNCHRONISED)
