"""Pulse trains of an update: their length for each sample, and which pulses fire on which line.

All decisions are made in integers, by a procedure that every engine computes alike, so that the same pulses fire everywhere. A
positive number is a mantissa of 31 bits and an exponent (``scaled``); products, quotients and square roots of such numbers are
those of integers, rounded down. The probability that a line fires is a *level* in [0, 2^32], and it fires where a random word
is below it.

Source: Gokmen, Vlasov, "Acceleration of deep neural network training with resistive cross-point devices", Front. Neurosci. 10,
2016; Gokmen, Onen, Haensch, "Training deep convolutional neural networks with resistive cross-point devices", Front. Neurosci.
11, 2017 (update management).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from firebrick.analog.typed_kernel import reads, results, typed_kernel
from firebrick.analog.update_parameters import PulseType, UpdateParameters
from firebrick.compiler.kernel.language.annotations import ConstantType
from firebrick.compiler.kernel.language.calls import InlinedExpression
from firebrick.core.dtypes import bool_, float32, float64, int32, int64, uint32
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.functions.creation import full
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import isfinite, minimum, where
from firebrick.functions.kernels import kernel
from firebrick.functions.movement import broadcast_to
from firebrick.functions.ranges import arange
from firebrick.functions.statistical import max as largest_of
from firebrick.scalar.expr import bitcast, load

FULL = 1 << 32
"""The level of a line that always fires."""
WORD = 32
"""Slots of a word of a train."""
PARTS = 32
"""Parts of the words that samples use, each of neighbouring words; they are few of those that there is room for."""
AHEAD = 4
"""Words of which inputs are read ahead together."""
SHORT = 4
"""Most slots of a sample that shares blocks of random words with its neighbours."""
ROUNDING = 1 << 62
"""Number of the first random word that rounds levels, beyond those of trains."""
STOCHASTIC = (PulseType.STOCHASTIC_COMPRESSED, PulseType.STOCHASTIC)
"""Pulse types whose counts are those of coincidences in random trains."""
MOST_SLOTS = 65536
"""Of trains that grow."""
LARGEST = float(np.finfo(np.float32).max)
"""The largest float32."""
wide: Any = float64
"""The cast to float64, in kernels."""
word_of: Any = uint32
"""The cast to uint32, in kernels."""
count_of_pulses: Any = int32
"""Likewise, of what is counted."""
whole_of: Any = int32
"""The cast to int32, in kernels: from float32 it is an instruction of vectors, unlike that to int64."""


_BITS = InlinedExpression("the bits of a float32", bitcast(load(0, "float32"), "int32"))
_OF_BITS = InlinedExpression("the float32 of some bits", bitcast(load(0, "int32"), "float32"))


@kernel.function
def scaled(value: Any) -> Any:
    """A float32 > 0 as (mantissa in [2^30, 2^31), exponent), exactly."""
    exponent = -157
    if value < 1.1754943508222875e-38:  # a subnormal number
        value = value * 4294967296.0
        exponent = -189
    bits = _BITS(value)
    return int(((bits & 0x7FFFFF) | 0x800000) << 7), exponent + int(bits >> 23)


@kernel.function
def product(a: Any, a_exponent: Any, b: Any, b_exponent: Any) -> Any:
    """The product of two such numbers."""
    mantissa = (a * b) >> 30
    exponent = a_exponent + b_exponent + 30
    if mantissa >= 2147483648:
        mantissa = mantissa >> 1
        exponent += 1
    return mantissa, exponent


@kernel.function
def quotient(a: Any, a_exponent: Any, b: Any, b_exponent: Any) -> Any:
    """The quotient of two such numbers. No vector divides integers, and a quotient of float64 is at most 1 too large."""
    mantissa = int(wide(a << 31) / wide(b))
    if mantissa * b > a << 31:
        mantissa -= 1
    exponent = a_exponent - b_exponent - 31
    if mantissa >= 2147483648:
        mantissa = mantissa >> 1
        exponent += 1
    return mantissa, exponent


@kernel.function
def root(a: Any, a_exponent: Any) -> Any:
    """The square root of such a number. One of float64 differs by at most 1."""
    radicand = a << 30
    exponent = a_exponent - 30
    if exponent % 2 != 0:
        radicand = radicand << 1
        exponent -= 1
    found = int(math.sqrt(wide(radicand)))
    if found * found > radicand:
        found -= 1
    if (found + 1) * (found + 1) <= radicand:
        found += 1
    exponent = exponent // 2
    if found >= 2147483648:
        found = found >> 1
        exponent += 1
    return found, exponent


@kernel.function
def ceiling(a: Any, exponent: Any, most: Any) -> Any:
    """Such a number rounded up to an integer, at most ``most``."""
    found = most
    if exponent < 0:
        if exponent < -61:
            found = 1
        else:
            shift = 0 - exponent
            found = (a + (1 << shift) - 1) >> shift
    return min(found, most)


@kernel.function
def power_of_two(exponent: Any) -> Any:
    """2^exponent as float32, for exponents up to 127; 2^127 above."""
    scale = 1.0
    if exponent < -126:  # a subnormal number, or 0
        exponent = max(exponent, -190) + 64
        scale = 5.421010862427522e-20  # 2^-64
    return _OF_BITS(whole_of(min(exponent, 127) + 127) << 23) * scale


@typed_kernel("n", rates=reads(float32, "n"), granularity=float32, ratio=results(int64, "n, 2"))
def ratios(rates: Any, granularity: Any, ratio: Any) -> None:
    """Pulses for x = d = 1 at each learning rate, as such numbers; (0, 0) for a rate of 0."""
    b = kernel.index()
    lr = rates[b]
    assert lr - lr == 0.0, "the learning rate of an update is finite"
    found, exponent = 0, 0
    if 0.0 < abs(lr) <= 3.4028234663852886e38:
        rate, rate_exponent = scaled(abs(lr))
        step, step_exponent = scaled(granularity)
        found, exponent = quotient(rate, rate_exponent, step, step_exponent)
    ratio[b, 0] = found
    ratio[b, 1] = exponent


@typed_kernel(
    "samples", x_largest=reads(float32, "samples"), d_largest=reads(float32, "samples"), ratio=reads(int64, "n, 2"),
    desired_length=int, management=bool, length_management=bool, fixed_length=bool,
    length=results(int64, "samples"), x_factor=results(int64, "samples"), x_scale=results(float32, "samples, 2", unread=True),
    d_factor=results(int64, "samples"), d_scale=results(float32, "samples, 2", unread=True),
)  # fmt: skip
def schedule(
    x_largest: Any, d_largest: Any, ratio: Any, desired_length: Any, management: Any, length_management: Any,
    fixed_length: Any, length: Any, x_factor: Any, x_scale: Any, d_factor: Any, d_scale: Any,
) -> None:  # fmt: skip
    """The length of each sample's trains, and what its levels are computed from. ``ratio`` is of one rate, or of each sample's.

    The level of x is ⌊⌊|x| · x_scale[0] · x_scale[1]⌋ · x_factor / 2^23⌋, with powers of two as scales, so that the product is
    2^55 where the line always fires; and likewise for d.
    """
    b = kernel.index()
    assert x_largest[b] - x_largest[b] == 0.0, "the inputs x of an update are finite"
    assert d_largest[b] - d_largest[b] == 0.0, "the errors d of an update are finite"
    most = 3.4028234663852886e38
    slots, factor, factor_exponent, a, a_exponent = 0, 0, -55, 0, -55
    own = min(b, ratio.shape[0] - 1)
    pulses, pulses_exponent = ratio[own, 0], ratio[own, 1]
    if 0.0 < x_largest[b] <= most and 0.0 < d_largest[b] <= most and pulses > 0:
        x, x_exponent = scaled(x_largest[b])
        d, d_exponent = scaled(d_largest[b])
        k, k_exponent = product(x, x_exponent, d, d_exponent)
        k, k_exponent = product(k, k_exponent, pulses, pulses_exponent)  # pulses for the largest element
        slots = desired_length
        certain = False
        if length_management:
            slots = ceiling(k, k_exponent, desired_length)
        elif not fixed_length and ceiling(pulses, pulses_exponent, 2 * desired_length) > desired_length:
            slots = ceiling(pulses, pulses_exponent, MOST_SLOTS)
            certain = True
        factor, factor_exponent = 1 << 30, -30
        if not certain:
            count, count_exponent = scaled(float(slots))
            factor, factor_exponent = quotient(pulses, pulses_exponent, count, count_exponent)
            factor, factor_exponent = root(factor, factor_exponent)  # √(lr / (g · BL))
        a, a_exponent = factor, factor_exponent
        if management or length_management:
            if ceiling(k, k_exponent, desired_length + 1) > desired_length:  # x is not clipped, d is
                limit, limit_exponent = scaled(float(desired_length))
                d, d_exponent = product(d, d_exponent, limit, limit_exponent)
                d, d_exponent = quotient(d, d_exponent, k, k_exponent)
            balance, balance_exponent = quotient(d, d_exponent, x, x_exponent)
            balance, balance_exponent = root(balance, balance_exponent)
            factor, factor_exponent = product(factor, factor_exponent, balance, balance_exponent)
            a, a_exponent = quotient(a, a_exponent, balance, balance_exponent)
    length[b] = slots
    x_factor[b] = factor
    d_factor[b] = a
    half = (factor_exponent + 55) // 2
    x_scale[b, 0] = power_of_two(half)
    x_scale[b, 1] = power_of_two(factor_exponent + 55 - half)
    half = (a_exponent + 55) // 2
    d_scale[b, 0] = power_of_two(half)
    d_scale[b, 1] = power_of_two(a_exponent + 55 - half)


@kernel.function
def level_of(value: Any, first: Any, second: Any, factor: Any) -> Any:
    """The level of a line, which is driven by ``value``; arguments as ``schedule`` made them."""
    relative = int(whole_of(max(min(abs(value) * first * second, 268435456.0), 0.0)))  # bounds that a cast need not look for
    return min((relative * factor) >> 23, 4294967296)


@kernel.function
def level_at(
    values: Any, factor: Any, scale: Any, key: Any, resolution: Any, stochastic: Any, b: Any, line: Any
) -> Any:  # fmt: skip
    """The level of a line for a sample; arguments as of ``levels``."""
    found = level_of(values[b, line], scale[b, 0], scale[b, 1], factor[b])
    if resolution > 0:
        shift = resolution // 2
        if stochastic:
            shift = (int(kernel.random_bits(key, ROUNDING + b * values.shape[1] + line)) * resolution) >> 32
        found = min((found + shift) // resolution * resolution, 4294967296)
    return found


# constants: without a resolution there is no division, which no vector has
_OF_LINES: dict[str, Any] = {
    "values": reads(float32, "samples, lines"), "factor": reads(int64, "samples"), "scale": reads(float32, "samples, 2"),
    "key": reads(uint32, "4"), "resolution": ConstantType(int), "stochastic": ConstantType(bool),
}  # fmt: skip


@typed_kernel("samples, lines", **_OF_LINES, out=results(int64, "samples, lines"))
def levels(values: Any, factor: Any, scale: Any, key: Any, resolution: Any, stochastic: Any, out: Any) -> None:
    """The level of each line for each sample.

    Args:
        values: Of the lines.
        factor: As ``schedule`` made it.
        scale: Likewise.
        key: Of the random numbers.
        resolution: Step of the levels, to which they are rounded; 0 for none.
        stochastic: Whether they are rounded up with the probability of the remainder.
        out: The levels.
    """
    b, line = kernel.index()
    out[b, line] = level_at(values, factor, scale, key, resolution, stochastic, b, line)


@typed_kernel(
    "1", length=reads(int64, "samples"), words=int, start=results(int64, "samples", unread=True),
    first=results(int64, "words", unread=True), begins=results(uint32, "words", unread=True), used=results(int64, "1"),
    before=results(int64, "words", unread=True), active=results(int64, "samples", unread=True),
)  # fmt: skip
def arranged(length: Any, words: Any, start: Any, first: Any, begins: Any, used: Any, before: Any, active: Any) -> None:
    """Where the slots of each sample are; see ``Slots``, whose attributes the results are."""
    at, many = 0, 0
    found = word_of(0)
    for b in range(length.shape[0]):
        slots = length[b]
        if at % WORD + slots > WORD:
            at = (at + WORD - 1) // WORD * WORD
        start[b] = at
        if slots > 0:
            if at % WORD == 0:
                found = word_of(0)
                for k in range((slots + WORD - 1) // WORD):
                    first[at // WORD + k] = b
                    begins[at // WORD + k] = word_of(0)
                    before[at // WORD + k] = many
            found = found | (word_of(1) << word_of(at % WORD))
            begins[at // WORD] = found
            active[many] = b
            many += 1
        at += slots if slots <= WORD else (slots + WORD - 1) // WORD * WORD
    used[0] = (at + WORD - 1) // WORD


@kernel.function
def part_of_words(used: Any, part: Any) -> Any:
    """The first word of a part of so many, and that of the next part. Neighbouring words are those of neighbouring samples."""
    return used * part // PARTS, used * (part + 1) // PARTS


@kernel.function
def set_bits(word: Any) -> Any:
    """The number of bits of a uint32 that are 1."""
    pairs = word - ((word >> word_of(1)) & word_of(0x55555555))
    nibbles = (pairs & word_of(0x33333333)) + ((pairs >> word_of(2)) & word_of(0x33333333))
    octets = (nibbles + (nibbles >> word_of(4))) & word_of(0x0F0F0F0F)
    return count_of_pulses((octets * word_of(0x01010101)) >> word_of(24))


@kernel.function
def lowest(count: Any) -> Any:
    """The word of which so many of the lowest bits are 1."""
    return (word_of(1) << word_of(count)) - word_of(1)


@kernel.function
def part_of(start: Any, length: Any, b: Any, w: Any) -> Any:
    """The part of a sample that is in a word: how many slots come before it, how many it has, and their bits."""
    before = max(WORD * w - start[b], 0)
    slots = max(min(length[b] - before, WORD), 0)
    return before, slots, word_of(((1 << (slots & 63)) - 1) << (max(start[b] - WORD * w, 0) & 63))


_OF_SLOTS: dict[str, Any] = {
    "length": reads(int64, "samples"), "start": reads(int64, "samples"), "first": reads(int64, "words"),
    "used": reads(int64, "1"),
}  # fmt: skip
_OF_SAMPLES: dict[str, Any] = {
    "begins": reads(uint32, "words"), "before": reads(int64, "words"), "active": reads(int64, "samples"),
}  # fmt: skip


@kernel.function
def lowest_slot(slots: Any) -> Any:
    """The lowest bit of a word that is not 0."""
    return slots & (word_of(0) - slots)


@kernel.function
def highest_slot(slots: Any) -> Any:
    """The highest bit of a word that is not 0."""
    for k in kernel.unrolled(5):
        slots = slots | (slots >> word_of(1 << k))
    return slots ^ (slots >> word_of(1))


@kernel.function
def sample_of(slot: Any, w: Any, begins: Any, before: Any, active: Any) -> Any:
    """The sample of a slot, a bit of a word; that of the slot before it, if none has it. Other arguments are of ``Slots``."""
    return active[before[w] + max(int(set_bits(begins[w] & (slot | (slot - word_of(1))))) - 1, 0)]


@kernel.function
def driven(
    values: Any, factor: Any, scale: Any, key: Any, resolution: Any, stochastic: Any, own: Any, b: Any, line: Any
) -> Any:  # fmt: skip
    """The level of a line for a sample, and the slots in which it is negative: all of ``own``, or none."""
    falling = own if values[b, line] < 0.0 else word_of(0)
    level = level_at(values, factor, scale, key, resolution, stochastic, b, line)
    return level, falling


@kernel.function
def driven_shortly(
    values: Any, factor: Any, scale: Any, key: Any, resolution: Any, stochastic: Any, length: Any, start: Any, needed: Any,
    b: Any, w: Any, line: Any,
) -> Any:  # fmt: skip
    """What a line does in a sample that is short.

    Returns:
        The number of slots of the sample, 0 if it is not short or has none in this word that is needed; the number of the
        first one in the word; their bits; and what ``driven`` returns, or zeros.
    """
    few, shift, bits, level, falling = 0, 0, word_of(0), 0, word_of(0)
    if b < length.shape[0]:
        slots, at = length[b], start[b] - WORD * w
        if slots <= SHORT and 0 <= at < WORD:
            own = lowest(slots) << word_of(at)
            if (own & needed) != word_of(0):
                few, shift, bits = slots, at, own
                level, falling = driven(values, factor, scale, key, resolution, stochastic, own, b, line)
    return few, shift, bits, level, falling


@kernel.function
def long_train(key: Any, block: Any, lines: Any, slots: Any, level: Any) -> Any:
    """The slots of a sample that is not short in which a line fires.

    Args:
        key: Of the random numbers.
        block: Of its first four slots.
        lines: Number of lines.
        slots: Of the sample.
        level: Of the line.
    """
    found = word_of(0)
    for q in range((slots + 3) >> 2):
        for c in kernel.unrolled(4):
            if int(kernel.random_bits(key, 4 * (block + q * lines) + c)) < level:
                found = found | (word_of(1) << word_of(4 * q + c))
    return found


@typed_kernel(
    f"{PARTS}, lines", unchecked=True, **_OF_LINES, **_OF_SLOTS, **_OF_SAMPLES, needed=reads(uint32, "words"),
    scattered=ConstantType(bool),
    fires=results(uint32, "words, lines", unread=True), negative=results(uint32, "words, lines", unread=True),
)  # fmt: skip
def trains(
    values: Any, factor: Any, scale: Any, key: Any, resolution: Any, stochastic: Any, length: Any, start: Any, first: Any,
    used: Any, begins: Any, before: Any, active: Any, needed: Any, scattered: Any, fires: Any, negative: Any,
) -> None:  # fmt: skip
    """Pulse trains, in words of ``Slots``: in which slots lines fire, and in which they are negative.

    Arguments are as of ``levels`` and attributes of ``Slots``. Samples without a slot that is needed get no pulses.
    ``scattered`` is whether these are many: inputs of the others are far apart in memory, and are read ahead.

    Four neighbouring samples have 36 blocks of four random words for each line and each 32 of their slots. Word k of block
    s < 4 is that of slot s of sample k, if that is short (``SHORT``): so four trains of one slot need one block. The words of
    the other samples are those of blocks 4 + 8 k to 11 + 8 k, one after the other. Block j is number
    ((w · fours + four) · 36 + j) · lines + line, where w counts 32 slots of the sample each.
    """
    part, line = kernel.index()
    lines, fours, driving = values.shape[1], (length.shape[0] + 3) >> 2, whole_of(0 if scattered else 1)
    begin, end_of_part = part_of_words(used[0], part)
    for w in range(begin, end_of_part):
        if scattered and (w - begin) % AHEAD == 0:  # one after the other below, each would be waited for
            for v in range(w, min(w + AHEAD, end_of_part)):
                left = needed[v]
                while left != word_of(0):
                    slot = lowest_slot(left)
                    driving = driving | _BITS(values[sample_of(slot, v, begins, before, active), line])
                    later = begins[v] & ~(slot | (slot - word_of(1)))
                    left = left & ~(lowest_slot(later) - word_of(1))  # all slots of a sample at once
        firing, falling, left = word_of(0), word_of(0), needed[w]
        earlier = max(WORD * w - start[first[w]], 0) >> 5  # words of the first sample; if there are, there is no other sample
        while left != word_of(0):
            four = sample_of(lowest_slot(left), w, begins, before, active) >> 2
            end = WORD
            if 4 * four + 4 < length.shape[0]:
                end = min(start[4 * four + 4] - WORD * w, WORD)
            block = 36 * (earlier * fours + four) * lines + line
            a_few, a_shift, a_bits, a, a_falling = driven_shortly(
                values, factor, scale, key, resolution, stochastic, length, start, needed[w], 4 * four + 0, w, line
            )
            b_few, b_shift, b_bits, b, b_falling = driven_shortly(
                values, factor, scale, key, resolution, stochastic, length, start, needed[w], 4 * four + 1, w, line
            )
            c_few, c_shift, c_bits, c, c_falling = driven_shortly(
                values, factor, scale, key, resolution, stochastic, length, start, needed[w], 4 * four + 2, w, line
            )
            d_few, d_shift, d_bits, d, d_falling = driven_shortly(
                values, factor, scale, key, resolution, stochastic, length, start, needed[w], 4 * four + 3, w, line
            )
            falling = falling | a_falling | b_falling | c_falling | d_falling
            if driving != 0 and max(a, b, c, d) > 0:  # of inputs that are one-hot, few lines fire
                a_found = word_of(1) if int(kernel.random_bits(key, 4 * block + 0)) < a else word_of(0)
                b_found = word_of(1) if int(kernel.random_bits(key, 4 * block + 1)) < b else word_of(0)
                c_found = word_of(1) if int(kernel.random_bits(key, 4 * block + 2)) < c else word_of(0)
                d_found = word_of(1) if int(kernel.random_bits(key, 4 * block + 3)) < d else word_of(0)
                for s in range(1, max(a_few, b_few, c_few, d_few)):
                    bit = word_of(1) << word_of(s)
                    a_found = a_found | (bit if int(kernel.random_bits(key, 4 * (block + s * lines) + 0)) < a else word_of(0))
                    b_found = b_found | (bit if int(kernel.random_bits(key, 4 * (block + s * lines) + 1)) < b else word_of(0))
                    c_found = c_found | (bit if int(kernel.random_bits(key, 4 * (block + s * lines) + 2)) < c else word_of(0))
                    d_found = d_found | (bit if int(kernel.random_bits(key, 4 * (block + s * lines) + 3)) < d else word_of(0))
                firing = firing | ((a_found << word_of(a_shift)) & a_bits) | ((b_found << word_of(b_shift)) & b_bits)
                firing = firing | ((c_found << word_of(c_shift)) & c_bits) | ((d_found << word_of(d_shift)) & d_bits)
            for other in range(4 * four, min(4 * four + 4, length.shape[0])):
                if length[other] > SHORT and start[other] < WORD * (w + 1):
                    _, slots, own = part_of(start, length, other, w)
                    if (own & needed[w]) != word_of(0):
                        level, negative_slots = driven(values, factor, scale, key, resolution, stochastic, own, other, line)
                        falling = falling | negative_slots
                        if driving != 0 and level > 0:
                            found = long_train(key, block + (4 + 8 * (other & 3)) * lines, lines, slots, level)
                            firing = firing | ((found << word_of(max(start[other] - WORD * w, 0))) & own)
            later = ~lowest(end)  # slots behind the last sample of a word are of none
            left = left & later if (begins[w] & later) != word_of(0) else word_of(0)
        fires[w, line] = firing
        negative[w, line] = falling


@typed_kernel(
    f"{PARTS}, lines", whole=reads(uint32, "words, lines"), kept=reads(bool_, "samples, lines"), **_OF_SLOTS,
    out=results(uint32, "words, lines", unread=True),
)  # fmt: skip
def of_samples(whole: Any, kept: Any, length: Any, start: Any, first: Any, used: Any, out: Any) -> None:
    """The words of trains without the slots of samples that a line does not keep."""
    part, line = kernel.index()
    begin, end_of_part = part_of_words(used[0], part)
    for w in range(begin, end_of_part):
        found = word_of(0)
        b = first[w]
        while b < length.shape[0] and start[b] < WORD * (w + 1):
            _, _, bits = part_of(start, length, b, w)
            if kept[b, line]:
                found = found | bits
            b += 1
        out[w, line] = whole[w, line] & found


@typed_kernel(
    f"{PARTS}, rows", d=reads(uint32, "words, rows"), **_OF_SLOTS, **_OF_SAMPLES, needed=reads(uint32, "words"),
    out=results(uint32, "words, rows", unread=True),
)  # fmt: skip
def firing_rows(
    d: Any, length: Any, start: Any, first: Any, used: Any, begins: Any, before: Any, active: Any, needed: Any, out: Any
) -> None:  # fmt: skip
    """All slots of the samples in which each row fires; of a sample of several words, those of the first one."""
    part, i = kernel.index()
    begin, end_of_part = part_of_words(used[0], part)
    for w in range(begin, end_of_part):
        found, b = word_of(0), first[w]
        if length[b] > WORD:
            fires = word_of(0)
            for k in range((length[b] + WORD - 1) // WORD if start[b] == WORD * w else 0):
                fires = fires | d[w + k, i]
            found = lowest(WORD) if fires != word_of(0) else word_of(0)
        else:
            last = active[before[w] + max(int(set_bits(begins[w])) - 1, 0)]
            left, own = needed[w], lowest(start[last] + length[last] - WORD * w)
            while left != word_of(0):
                slot = lowest_slot(left)
                past = slot | (slot - word_of(1))
                behind = lowest_slot(begins[w] & ~past) - word_of(1)  # all slots before the next sample
                bits = behind & ~(highest_slot(begins[w] & past) - word_of(1)) & own
                found = found | (bits if (d[w, i] & bits) != word_of(0) else word_of(0))
                left = left & ~behind
        out[w, i] = found


@typed_kernel("samples, lines", level=reads(int64, "samples, lines"), out=results(uint32, "samples, lines"))
def may_fire(level: Any, out: Any) -> None:
    """Where the level of a line is above 0."""
    b, line = kernel.index()
    out[b, line] = word_of(1) if level[b, line] > 0 else word_of(0)


@typed_kernel("words", d=reads(uint32, "words, rows"), used=reads(int64, "1"), out=results(uint32, "words"))
def any_row(d: Any, used: Any, out: Any) -> None:
    """The slots in which a row fires."""
    w = kernel.index()
    found = word_of(0)
    if w < used[0]:
        for i in range(d.shape[1]):
            found = found | d[w, i]
    out[w] = found


class Slots(NamedTuple):
    """Where the slots of each sample are: the trains of all samples are one, in words of 32 slots.

    A sample of at most 32 slots is in one word, and a longer one begins with a word; where the counts of coincidences are
    computed without random numbers, each sample has a word.

    Attributes:
        length: Slots of each sample, int64 [samples].
        start: Number of its first slot, int64 [samples].
        first: The first sample of each word, int64 [words].
        begins: Bit s is whether a sample begins in slot s of the word, uint32 [words].
        used: Number of words that samples have, int64 [1]; nothing reads what is behind them.
        before: Number of samples that have slots, and begin before the first sample of each word, int64 [words].
        active: The samples that have slots, int64 [samples].
    """

    length: Tensor
    start: Tensor
    first: Tensor
    begins: Tensor
    used: Tensor
    before: Tensor
    active: Tensor

    @property
    def places(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What kernels need of them."""
        return self.length, self.start, self.first, self.used

    @property
    def samples(self) -> tuple[Tensor, Tensor, Tensor]:
        """What the sample of a slot is found by."""
        return self.begins, self.before, self.active


class Trains(NamedTuple):
    """What the lines of a tile do in an update.

    Attributes:
        slots: Of the samples.
        x: In which slots columns fire, uint32 [words, columns]; levels, int64 [samples, columns], where the counts of
            coincidences are computed without random numbers.
        d: Of the rows, likewise.
        x_negative: Slots of samples in which columns are negative, uint32 [words, columns]; not used beside levels.
        d_negative: Of the rows, likewise.
        fired: In which samples each row fires, of ``firing_rows``. Trains of the columns have no pulses in samples in which no
            row fires: there they do not matter.
    """

    slots: Slots
    x: Tensor
    d: Tensor
    x_negative: Tensor
    d_negative: Tensor
    fired: Tensor

    def kept(self, lines: Tensor, kept: Tensor) -> Tensor:
        """Lines without the samples that each does not keep.

        Args:
            lines: Like ``x``, ``d`` or ``fired``.
            kept: Bool [samples, lines].
        """
        if self.x.dtype is int64:
            return where(kept, lines, 0)
        found: Tensor = of_samples(lines, broadcast_to(kept, (kept.shape[0], lines.shape[1])), *self.slots.places)
        return found

    def of_samples(self, chosen: Tensor) -> Trains:
        """The trains of some of the samples.

        Args:
            chosen: Of which, bool [samples].
        """
        each = chosen[:, None]
        return self._replace(d=self.kept(self.d, each), fired=self.kept(self.fired, each))


def most_slots(parameters: UpdateParameters, lr: float, granularity: float) -> int:
    """The longest train of an update whose trains grow.

    Args:
        parameters: Of the update.
        lr: Learning rate.
        granularity: Step of a pulse.
    """
    needed = abs(lr) / granularity
    return max(parameters.desired_bl, math.ceil(needed) + 1 if needed < MOST_SLOTS else MOST_SLOTS)


def made_trains(
    x: Tensor, d: Tensor, lr: Tensor, granularity: float, parameters: UpdateParameters, slots: int, keys: tuple[Tensor, Tensor]
) -> Trains:
    """The pulse trains of an update.

    Args:
        x: Inputs [samples, columns].
        d: Errors [samples, rows].
        lr: Learning rate, 0-d, or one of each sample [samples].
        granularity: Step of a pulse.
        parameters: Of the update.
        slots: The longest train.
        keys: Of the random numbers of the columns and of the rows.
    """
    x_largest = largest_of(absolute(x), axis=1)
    d_largest = largest_of(absolute(d), axis=1)
    if parameters.um_grad_scale != 1.0:  # a product that overflows is no error that is not finite
        d_largest = where(isfinite(d_largest), minimum(d_largest * parameters.um_grad_scale, LARGEST), d_largest)
    rates = broadcast_to(lr, (1,) if lr.ndim == 0 else (x.shape[0],))
    length, x_factor, x_scale, d_factor, d_scale = schedule(
        x_largest, d_largest, ratios(rates, asarray(granularity, dtype=float32, device=x.device)), parameters.desired_bl,
        parameters.update_management, parameters.update_bl_management, parameters.fixed_bl,
    )  # fmt: skip
    implicit = parameters.pulse_type is PulseType.DETERMINISTIC_IMPLICIT
    stochastic = parameters.pulse_type in STOCHASTIC

    samples, room = x.shape[0], max(1, -(-slots // WORD))

    def of_lines(values: Tensor, factor: Tensor, scale: Tensor, key: Tensor, implicit_step: float) -> tuple[Any, ...]:
        step = implicit_step if implicit else parameters.res
        step = 1.0 / step if step > 1.0 else max(step, 0.0)
        return values, factor, scale, key, round(step * FULL), parameters.sto_round and not implicit

    of_rows = of_lines(d, d_factor, d_scale, keys[1], parameters.d_res_implicit)
    of_columns = of_lines(x, x_factor, x_scale, keys[0], parameters.x_res_implicit)
    if not stochastic:
        each = arange(samples, dtype=int64, device=x.device)
        ones = full((samples,), 1, dtype=uint32, device=x.device)
        columns, rows = levels(*of_columns), levels(*of_rows)
        where_ = Slots(length, each, each, ones, full((1,), samples, dtype=int64, device=x.device), each, each)
        fired = may_fire(rows)
        return Trains(where_, columns, rows, may_fire(columns), fired, fired)
    where_ = Slots(length, *arranged(length, samples * room))
    all_slots = full((samples * room,), 0xFFFFFFFF, dtype=uint32, device=x.device)
    rows, d_negative = trains(*of_rows, *where_.places, *where_.samples, all_slots, False)
    needed = any_row(rows, where_.used)
    columns, x_negative = trains(*of_columns, *where_.places, *where_.samples, needed, True)
    fired = firing_rows(rows, *where_.places, *where_.samples, needed)
    return Trains(where_, columns, rows, x_negative, d_negative, fired)
