"""A stable sort by digits, from the lowest digit to the highest: ``digit_counts`` and ``digit_scatter``, and a scan between.

A group has ``group_size`` · ``each`` neighbouring keys, each item ``each`` of them. For each digit, the keys of a group are
counted; the exclusive scan of the counts of all groups, digit by digit, is where those of a group go. Their order within the
group follows from counters of each digit and item in shared memory, and the scan of these: items have neighbouring keys, so
equal digits stay in order. Source: Satish, Harris, Garland, Designing efficient sorting algorithms for manycore GPUs.

Keys are uint32; others are made ones of the same order before. A value, such as the place that a key comes from, moves with it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.compiler.kernel.language.intrinsics import atomic_add, barrier, group, lane, registers, shared, shuffle, unrolled
from firebrick.compiler.templates.template import Template, TemplateSizes, constant, operand, result, template, whole_subgroups
from firebrick.core import dtypes

BITS = 4
"""Bits of a digit."""
DIGITS = 1 << BITS
int32: Any = dtypes.int32
uint32: Any = dtypes.uint32
_CONSTANTS = {"group_size": constant(int), "each": constant(int), "shift": constant(int, 0)}
GROUPS = "(n + group_size * each - 1) // (group_size * each)"
"""The number of groups of a launch."""


def valid_for(launch: TemplateSizes) -> bool:
    """Fewer than 2^31 keys, whose places are int32; whole subgroups of 32 items; ``shift`` is that of a digit."""
    return launch.elements < 1 << 31 and launch.sizes["shift"] in range(0, 32, BITS) and whole_subgroups(launch)


@HelperFunction
def digit(key: Any, shift: Any) -> Any:
    """The digit of a key."""
    return int32((key >> uint32(shift)) & uint32(DIGITS - 1))


@HelperFunction
def apart(at: Any) -> Any:
    """Where counter ``at`` lies: 16 neighbours of one item, and the same ones of the next item, are in different banks."""
    return at + at // DIGITS


@lru_cache(maxsize=1)
def digit_counts() -> Template:
    """The template of the counts of digits.

    Returns:
        Kernel of ``keys`` [n] → ``counts`` [16, groups], with the constants ``group_size``, ``each`` and ``shift``.
    """

    @template(
        {
            "keys": operand(dtypes.uint32, "n"),
            "counts": result(dtypes.int32, f"{DIGITS}, {GROUPS}"), **_CONSTANTS,
        },
        GROUPS, "group_size", valid_for,
    )  # fmt: skip
    def digit_counts(keys: Any, counts: Any, group_size: int, each: int, shift: int) -> None:
        found = shared(int32, DIGITS)
        if lane() < DIGITS:
            found[lane()] = int32(0)
        barrier()
        for k in unrolled(each):
            at = group() * (group_size * each) + k * group_size + lane()
            if at < keys.shape[0]:
                atomic_add(found, digit(keys[at], shift), int32(1))
        barrier()
        if lane() < DIGITS:
            counts[lane(), group()] = found[lane()]

    return digit_counts


@lru_cache(maxsize=1)
def digit_scatter() -> Template:
    """The template that moves keys to their places by one digit.

    Returns:
        Kernel of ``keys`` [n], ``values`` [n] (int32) and ``starts`` [16, groups], the exclusive scan of the counts →
        ``keys_out`` and ``values_out`` alike, with the constants of ``digit_counts``.
    """

    @template(
        {
            "keys": operand(dtypes.uint32, "n"), "values": operand(dtypes.int32, "n"),
            "starts": operand(dtypes.int32, f"{DIGITS}, {GROUPS}"), "keys_out": result(dtypes.uint32, "n"),
            "values_out": result(dtypes.int32, "n"), **_CONSTANTS,
        },
        GROUPS, "group_size", valid_for,
    )  # fmt: skip
    def digit_scatter(
        keys: Any, values: Any, starts: Any, keys_out: Any, values_out: Any, group_size: int, each: int, shift: int
    ) -> None:  # fmt: skip
        counters = shared(int32, (DIGITS + 1) * group_size)
        sums = shared(int32, 32)
        before = registers(int32(0), each)
        first = (group() * group_size + lane()) * each
        for d in unrolled(DIGITS):
            counters[apart(d * group_size + lane())] = int32(0)
        for k in unrolled(each):
            if first + k < keys.shape[0]:
                at = apart(digit(keys[first + k], shift) * group_size + lane())
                before[k] = counters[at]
                counters[at] = before[k] + 1
        barrier()
        # an exclusive scan of the counters: items have 16 neighbours each, whatever digit and item these are of
        total = int32(0)
        for d in unrolled(DIGITS):
            total = total + counters[apart(lane() * DIGITS + d)]
        last = total
        for step in unrolled(5):
            other = shuffle(last, lane() - (1 << step), 32)
            if lane() % 32 >= 1 << step:
                last = last + other
        if lane() % 32 == 31:
            sums[lane() // 32] = last
        barrier()
        part = int32(0)
        if lane() % 32 < group_size // 32:
            part = sums[lane() % 32]
        for step in unrolled(5):
            other = shuffle(part, lane() - (1 << step), 32)
            if lane() % 32 >= 1 << step:
                part = part + other
        earlier = shuffle(part, lane() // 32 - 1, 32)
        total = last - total
        if lane() >= 32:
            total = total + earlier
        for d in unrolled(DIGITS):
            count = counters[apart(lane() * DIGITS + d)]
            counters[apart(lane() * DIGITS + d)] = total
            total = total + count
        barrier()
        for k in unrolled(each):
            if first + k < keys.shape[0]:
                key = keys[first + k]
                mine = digit(key, shift)
                rank = counters[apart(mine * group_size + lane())] - counters[apart(mine * group_size)] + before[k]
                to = starts[mine, group()] + rank
                keys_out[to] = key
                values_out[to] = values[first + k]

    return digit_scatter
