"""A line search for the strong Wolfe conditions: a step that lowers the loss enough and where its slope is small enough.

Steps first grow until an interval must hold such a point; then the interval shrinks around it. Trial steps are minima of the
cubic through the values and slopes at two points, kept away from the interval's ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SUFFICIENT, CURVATURE = 1e-4, 0.9  # c₁ and c₂


@dataclass(frozen=True)
class Point:
    """A step along the direction: the loss there, its slope, and whatever else was found (the gradient)."""

    step: float
    loss: float
    slope: float
    found: Any = None


def cubic_minimum(a: Point, b: Point, low: float | None = None, high: float | None = None) -> float:
    """The step at which the cubic through two points is least, within [low, high] (between the points by default).

    Source: Nocedal, Wright, "Numerical Optimization", 2nd edition, equation 3.59.
    """
    low = min(a.step, b.step) if low is None else low
    high = max(a.step, b.step) if high is None else high
    if a.step > b.step:
        a, b = b, a
    if a.step == b.step:
        return a.step
    first = a.slope + b.slope - 3.0 * (a.loss - b.loss) / (a.step - b.step)
    square = first * first - a.slope * b.slope
    root = math.sqrt(square) if square >= 0.0 else math.nan
    below = b.slope - a.slope + 2.0 * root
    if not below > 0.0:  # no cubic with a minimum: a line, one that only falls, or NaN
        return (low + high) / 2.0
    step = b.step - (b.step - a.step) * ((b.slope + root - first) / below)
    return min(max(step, low), high)


def strong_wolfe(
    at: Callable[[float], Point], start: Point, step: float, most: int, least_change: float, size: float
) -> tuple[Point, int]:
    """A step that fulfils the strong Wolfe conditions, or the best one that was seen.

    Args:
        at: The point of a step; it computes loss and gradient.
        start: The point of step 0, where the slope is negative.
        step: First trial.
        most: Most trials.
        least_change: Interval, times ``size``, at which the search ends.
        size: Largest element of the direction.

    Returns:
        The point, and how many were computed.

    Source: Nocedal, Wright, "Numerical Optimization", 2nd edition, algorithms 3.5 and 3.6.
    """

    def lowers(p: Point) -> bool:
        return not p.loss > start.loss + SUFFICIENT * p.step * start.slope

    def flat(p: Point) -> bool:
        return abs(p.slope) <= -CURVATURE * start.slope

    before, now = start, at(step)
    count, grown = 1, 0
    while grown < most:
        if not lowers(now) or (grown > 1 and now.loss >= before.loss):
            break
        if flat(now):
            return now, count
        if now.slope >= 0.0:
            break
        step = cubic_minimum(before, now, now.step + 0.01 * (now.step - before.step), 10.0 * now.step)
        before, now = now, at(step)
        count, grown = count + 1, grown + 1
    else:
        before = start
    low, high = (before, now) if before.loss <= now.loss else (now, before)
    stuck = False
    while grown < most and abs(high.step - low.step) * size >= least_change:
        left, right = min(low.step, high.step), max(low.step, high.step)
        step, margin = cubic_minimum(low, high), 0.1 * (right - left)
        if min(right - step, step - left) < margin:  # twice so near an end, or beyond it: move in from there
            if stuck or step >= right or step <= left:
                step = right - margin if right - step < step - left else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        now = at(step)
        count, grown = count + 1, grown + 1
        if not lowers(now) or now.loss >= low.loss:
            high = now
            low, high = (low, high) if low.loss <= high.loss else (high, low)
            continue
        if flat(now):
            return now, count
        if now.slope * (high.step - low.step) >= 0.0:
            high = low
        low = now
    return low, count
