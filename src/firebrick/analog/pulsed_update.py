"""The kernel of a pulsed update: for each cross-point, the pulses of all samples in order, each by the device's own pulse.

Each pulse acts on the weight that the pulse before left. All pulses that a cross-point gets in one sample have one sign, so
their order within the sample does not matter.

Cross-points are the lanes of vectors, and most samples give most of them no pulse or a few. So each cross-point first collects
the pulses of many samples in a *queue*, a bit for each, which is whether it is a pulse up, and then takes pulses from it, four
for each block of random words, whichever samples they are of. Coincidences are found in words of 32 slots, which are those of
many samples where trains are short (``Slots``): such a word adds its pulses slot by slot, in those in which the row fires.
Samples in which no pulse reaches a row are left out for all of its cross-points (``Trains.fired``).

Where most cross-points get no pulse, the first group of a row visits the pulses of the whole row, by the lists of columns that
fire in each slot (``column_lists``), and the other groups do nothing. The pulses, their order and their numbers are the same.

Where the step of noisy pulses does not depend on the weight, the sum of the pulses of some samples is one normal number, as
long as no bound is in reach; cross-points near a bound take pulse after pulse.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from firebrick.analog.column_lists import OF_LISTS, first_slot
from firebrick.analog.normal_numbers import normal_block, normal_of_block, normal_pair
from firebrick.analog.pulse_trains import STOCHASTIC, count_of_pulses, lowest, set_bits, word_of
from firebrick.analog.typed_kernel import reads
from firebrick.analog.update_parameters import PulseType
from firebrick.compiler.kernel.language.annotations import ArrayTuple, ArrayType, sizes_of
from firebrick.compiler.kernel.language.calls import HelperFunction, IndexedFunction
from firebrick.core.dtypes import float32, int32, int64, uint32
from firebrick.functions.kernels import Kernel, kernel

number_of: Any = float32
"""The cast to float32, in kernels."""


@kernel.function
def coincidences(x: Any, d: Any, length: Any, b: Any, w: Any, i: Any, j: Any) -> Any:
    """Slots of a sample, which begins with a word, in which both lines of a cross-point fire."""
    count = count_of_pulses(0)
    for k in range((length[b] + 31) // 32):
        if j < x.shape[1]:
            count += set_bits(x[w + k, j] & d[w + k, i])
    return count


@kernel.function
def rounded(numerator: Any, denominator: Any) -> Any:
    """A quotient of integers, rounded to the nearest one, ties to even."""
    double = 2 * numerator + denominator
    found = double // (2 * denominator)
    if double % (2 * denominator) == 0 and found % 2 == 1:
        found -= 1
    return found


@kernel.function
def mean_count(x: Any, d: Any, length: Any, b: Any, w: Any, i: Any, j: Any) -> Any:
    """Coincidences of trains in which each line fires as often as is expected."""
    count = 0
    if j < x.shape[1]:
        of_x = rounded(length[b] * x[b, j], 4294967296)
        of_d = rounded(length[b] * d[b, i], 4294967296)
        count = rounded(of_x * of_d, length[b])
    return count


@kernel.function
def expected_count(x: Any, d: Any, length: Any, b: Any, w: Any, i: Any, j: Any) -> Any:
    """The expected number of coincidences, rounded."""
    count = 0
    if j < x.shape[1]:
        count = rounded(length[b] * (((x[b, j] >> 1) * (d[b, i] >> 1)) >> 30), 4294967296)
    return count


COUNTS: dict[PulseType, HelperFunction] = {
    PulseType.STOCHASTIC_COMPRESSED: coincidences, PulseType.STOCHASTIC: coincidences, PulseType.MEAN_COUNT: mean_count,
    PulseType.DETERMINISTIC_IMPLICIT: expected_count,
}  # fmt: skip
"""Pulse type → number of pulses that a cross-point gets in a sample."""
WORDS = 64
"""Words of 32 pulses of the queue of a cross-point."""
PIECE = 1024
"""Most pulses of a sample that a queue gets at a time."""
JOINED, ANY = 10, 1 << 30
"""Most samples whose pulses are one normal number: the more there are, the more often a bound is in reach. And any number."""


@kernel.function
def fitting(fired: Any, begins: Any, room: Any, samples: Any) -> Any:
    """The slots of the first samples of a word that a queue has room for, and the number of slots and of samples.

    Args:
        fired: All slots of samples that count.
        begins: Where samples begin.
        room: Slots that there is room for.
        samples: Most samples.
    """
    part, ahead, slots, many = word_of(0), fired, 0, 0
    while ahead != word_of(0):
        first = ahead & (word_of(0) - ahead)
        later = begins & ~((first << word_of(1)) - word_of(1))
        sample = ahead & ((later & (word_of(0) - later)) - first)
        ahead = ahead ^ sample
        if slots + int(set_bits(sample)) > room or many == samples:
            ahead = word_of(0)
        else:
            part, slots, many = part | sample, slots + int(set_bits(sample)), many + 1
    return part, slots, many


@kernel.function
def appended(queue: Any, lane: Any, last: Any, waiting: Any, bits: Any, count: Any) -> Any:
    """Add at most 32 pulses to a queue; the word that is being filled, and the number of pulses afterwards.

    Args:
        queue: Words that are full.
        lane: Of the cross-point in its group.
        last: The word that is being filled.
        waiting: Number of pulses in the queue.
        bits: Whether each is a pulse up.
        count: Number of pulses that are added.
    """
    room = 32 - (waiting & 31)
    last = last | (bits << word_of(waiting & 31))
    if count >= room:
        queue[int(waiting) >> 5, lane] = last
        last = bits >> word_of(room)
    return last, waiting + count


@kernel.function
def appended_all(queue: Any, lane: Any, last: Any, waiting: Any, up: Any, count: Any) -> Any:
    """Add any number of pulses of one direction; other arguments as of ``appended``."""
    while count > 0:
        some = min(count, count_of_pulses(32))
        last, waiting = appended(queue, lane, last, waiting, lowest(some) if up else word_of(0), some)
        count -= some
    return last, waiting


@kernel.function
def stored_if_full(queue: Any, lane: Any, last: Any, waiting: Any, bit: Any) -> Any:
    """Store the word that is being filled when it is full; ``bit``, that of the next pulse in it, is 0 then."""
    if bit == word_of(0):
        queue[(int(waiting) >> 5) - 1, lane] = last
        last, bit = word_of(0), word_of(1)
    return last, bit


@kernel.function
def appended_slots(queue: Any, lane: Any, last: Any, waiting: Any, bits: Any, both: Any, row: Any, most: Any) -> Any:
    """Add the pulses of a word's slots; other arguments as of ``appended``.

    Args:
        queue: As of ``appended``.
        lane: Likewise.
        last: Likewise.
        waiting: Likewise.
        bits: Whether the pulse of a slot is a pulse up.
        both: Slots with a pulse.
        row: Slots in which the row fires, one after the other for all cross-points of the group.
        most: The most pulses that a cross-point may have afterwards.
    """
    bit, left = word_of(1) << word_of(waiting & 31), row
    while left != word_of(0):
        slot = left & (word_of(0) - left)
        left = left ^ slot
        if (both & slot) != word_of(0):
            last = last | (bit if (bits & slot) != word_of(0) else word_of(0))
            bit = bit << word_of(1)
            waiting += 1
        if most >= 32:  # the same for all cross-points of the group, and seldom true
            last, bit = stored_if_full(queue, lane, last, waiting, bit)
    return last, waiting


@kernel.function
def appended_sample(queue: Any, lane: Any, last: Any, waiting: Any, up: Any, both: Any) -> Any:
    """Add the pulses of a word whose slots are of one sample: where ``both`` has ones, pulses of one direction."""
    count = set_bits(both)
    return appended(queue, lane, last, waiting, lowest(count) if up else word_of(0), count)


@lru_cache(maxsize=256)
def update_kernel(
    pulse: HelperFunction, hidden: tuple[str, ...], settings: tuple[str, ...], pulse_type: PulseType, noisy: bool,
    joint: HelperFunction | None = None, long: bool = False,
) -> Kernel:  # fmt: skip
    """The kernel of updates of one device.

    Args:
        pulse: Of the device: a function of the weight, the direction, a normal number and its parameters.
        hidden: Names of the parameters that each cross-point has.
        settings: Names of those that all have in common.
        pulse_type: How pulses are counted.
        noisy: Whether pulses use their normal number; it is 0 otherwise.
        joint: All pulses of a queue at once: a function of the weight, the numbers of pulses up and down, a normal number
            and the parameters. It gives the weight, and the highest and the lowest that the pulses come to.
        long: Whether a pulse takes longer than a branch: see ``PulsedDevice.long_pulse``.

    Returns:
        Kernel of the weights, their bounds, the inputs and errors, their trains, attributes of their ``Slots``, in which
        samples rows fire, the ``ColumnLists``, the key of the normal numbers, whether the learning rate is negative, which
        pulses count (see ``device_array.BOTH``), and the parameters. Its results are the weights, and the number of pulses
        that each cross-point got.
    """
    whole, trained = "rows, columns", pulse_type in STOCHASTIC
    units, of_lines = ("words", uint32) if trained else ("samples", int64)
    step = IndexedFunction(pulse, (*(((0, 1),) * len(hidden)), *(((),) * len(settings))))
    # cross-points of a group, two or four registers of AVX-512: the longer a pulse, the more of them hide that it waits
    lanes = 64 if long else 32
    listed = trained and joint is None
    joins, at_once = joint is not None, IndexedFunction(joint or pulse, step.axes)
    count_of, joined = COUNTS[pulse_type], JOINED if joint is not None else ANY

    def pulsed_update(
        changed: Any, low: Any, high: Any, x: Any, d: Any, x_lines: Any, d_lines: Any, x_negative: Any, d_negative: Any,
        length: Any, first: Any, begins: Any, used: Any, fired: Any, sparse: Any, firing: Any, begin: Any, end: Any,
        column: Any, key: Any, ascent: Any, side: Any, parameters: Any, pulses: Any,
    ) -> None:  # fmt: skip
        i, part = kernel.group()
        lane = kernel.lane()
        queue = kernel.shared(uint32, (WORDS + 1, lanes))
        summed = kernel.shared(uint32, (2 * JOINED if joins else 1, lanes))  # pulses, and directions, of each part of a sum
        if listed and sparse[0] != 0:
            if part == 0:
                for of_word in range(used[0]):
                    left = firing[of_word, i]
                    while left != word_of(0):
                        slot, s = first_slot(left)
                        left = left ^ slot
                        for first_entry in range(begin[of_word, s], end[of_word, s], lanes):
                            entry = first_entry + lane
                            if entry < end[of_word, s]:
                                j = int(column[entry])
                                up = (((x_negative[of_word, j] ^ d_negative[of_word, i]) & slot) != word_of(0)) != ascent
                                if side == 0 or up == (side > 0):
                                    n = pulses[i, j]
                                    block = (int(n >> 2) * changed.shape[0] + i) * changed.shape[1] + j
                                    xi = normal_of_block(key, block, n & 3) if noisy else 0.0
                                    after = step((changed[i, j], up or side != 0, xi), parameters, (i, j))
                                    after = low[i, j] if after < low[i, j] else after
                                    changed[i, j] = high[i, j] if after > high[i, j] else after
                                    pulses[i, j] = n + 1
                        kernel.barrier()
        else:
            j = part * lanes + lane  # items behind the last column get no pulses: around all, a condition would be in each step
            w, least, most = 0.0, 0.0, 0.0
            if j < changed.shape[1]:
                w, least, most = changed[i, j], low[i, j], high[i, j]
            total = count_of_pulses(0)
            word, piece, flushes = 0, 0, 0
            fires = fired[0, i] if used[0] > 0 else word_of(0)
            while word < used[0]:
                last, waiting = word_of(0), count_of_pulses(0)  # the word that is being filled, and the pulses in the queue
                ups, downs = count_of_pulses(0), count_of_pulses(0)
                room, samples, most_waiting = 32 * WORDS, joined, 0  # the last is no less than any cross-point's ``waiting``
                parts, counted, alone = 0, 0, 0  # of a sum, which of them are numbers of pulses, and which are of one sample
                full = False
                while word < used[0] and not full:
                    if fires == word_of(0):
                        word += 1
                        piece = 0
                        if word < used[0]:
                            fires = fired[word, i]
                    else:
                        b = first[word]
                        slots, many = length[b] - PIECE * piece, 1
                        bits, both = word_of(0), word_of(0)
                        if trained and length[b] <= 32:
                            now = fires
                            slots, many = int(set_bits(now)), int(set_bits(now & begins[word]))
                            if slots > room or many > samples:
                                now, slots, many = fitting(fires, begins[word], room, samples)
                                full = True
                            fires = fires ^ now
                            if j < changed.shape[1]:
                                both = now & x_lines[word, j] & d_lines[word, i]
                                bits = x_negative[word, j] ^ d_negative[word, i]
                                bits = ~bits if ascent else bits
                                if side != 0:  # devices that only get pulses up: those up, or those down
                                    both = both & (bits if side > 0 else ~bits)
                                    bits = word_of(0xFFFFFFFF)
                            if joins:
                                n = set_bits(both)
                                total += n
                                ups += set_bits(both & bits)
                                downs += n - set_bits(both & bits)
                                alone += (1 << parts) if begins[word] == word_of(1) else 0
                            else:
                                row, earlier = now & d_lines[word, i], waiting
                                most_waiting += int(set_bits(row))
                                if begins[word] == word_of(1):
                                    up = (bits & both) != word_of(0)
                                    last, waiting = appended_sample(queue, lane, last, waiting, up, both)
                                else:
                                    last, waiting = appended_slots(queue, lane, last, waiting, bits, both, row, most_waiting)
                                total += waiting - earlier
                        elif slots <= 0:
                            fires = word_of(0)
                            slots, many = 0, 0
                        elif min(slots, PIECE) > room or samples == 0:
                            full = True
                            slots, many = 0, 0
                        else:
                            n = count_of_pulses(count_of(x_lines, d_lines, length, b, word, i, j))
                            up = False
                            if j < changed.shape[1] and n > 0:
                                up = ((x[b, j] < 0.0) != (d[b, i] < 0.0)) != ascent
                                if side != 0:
                                    n = n if up == (side > 0) else count_of_pulses(0)
                                    up = True
                                total += n if piece == 0 else count_of_pulses(0)
                                n = max(min(n - count_of_pulses(PIECE * piece), count_of_pulses(PIECE)), count_of_pulses(0))
                            if joins:
                                ups += n if up else count_of_pulses(0)
                                downs += count_of_pulses(0) if up else n
                                bits, both = word_of(1 if up else 0), word_of(n)
                                counted += 1 << parts
                            else:
                                last, waiting = appended_all(queue, lane, last, waiting, up, n)
                                most_waiting += PIECE
                            piece += 1
                            slots = min(slots, PIECE)
                            if PIECE * piece >= length[b]:
                                fires = word_of(0)
                        if joins and many > 0:
                            summed[2 * parts, lane] = both
                            summed[2 * parts + 1, lane] = bits
                            parts += 1
                        room -= slots
                        samples -= many
                if joins and j < changed.shape[1] and ups + downs > 0:
                    at = 4 * ((flushes * (8 * WORDS) * changed.shape[0] + i) * changed.shape[1] + j)
                    xi, _ = normal_pair(key, at)
                    after, top, bottom = at_once((w, number_of(ups), number_of(downs), xi), parameters, (i, j))
                    if top < most and bottom > least:
                        w = after
                    else:
                        for p in range(parts):
                            both, bits = summed[2 * p, lane], summed[2 * p + 1, lane]
                            if (counted >> p) & 1 == 1:
                                up = bits != word_of(0)
                                last, waiting = appended_all(queue, lane, last, waiting, up, count_of_pulses(both))
                            elif (alone >> p) & 1 == 1:
                                up = (bits & both) != word_of(0)
                                last, waiting = appended_sample(queue, lane, last, waiting, up, both)
                            else:
                                last, waiting = appended_slots(queue, lane, last, waiting, bits, both, both, 32 * WORDS)
                    most_waiting = 32 * WORDS
                if j < changed.shape[1] and waiting > 0:
                    if most_waiting < 32:
                        queue[0, lane] = last
                    else:
                        queue[int(waiting) >> 5, lane] = last
                    for q in range((int(waiting) + 3) >> 2):
                        block = ((flushes * (8 * WORDS) + q) * changed.shape[0] + i) * changed.shape[1] + j
                        rises = queue[q >> 3, lane] >> word_of(4 * (q & 7))
                        z = normal_block(key, block) if noisy else (0.0, 0.0, 0.0, 0.0)
                        for c in kernel.unrolled(4):  # computed for all, unless a pulse takes longer than a branch
                            if not long or count_of_pulses(4 * q + c) < waiting:
                                after = step((w, (rises & word_of(1 << c)) != word_of(0), z[c]), parameters, (i, j))
                                after = least if after < least else after
                                after = most if after > most else after
                                w = after if count_of_pulses(4 * q + c) < waiting else w
                flushes += 1
            if j < changed.shape[1]:
                changed[i, j] = w
                pulses[i, j] = total

    pulsed_update.__annotations__ = {
        "changed": ArrayType("InOut", float32, sizes_of(whole)), "low": reads(float32, whole), "high": reads(float32, whole),
        "x": reads(float32, "samples, columns"), "d": reads(float32, "samples, rows"),
        "x_lines": reads(of_lines, f"{units}, columns"), "d_lines": reads(of_lines, f"{units}, rows"),
        "x_negative": reads(uint32, f"{units}, columns"),
        "d_negative": reads(uint32, f"{units}, rows"),
        "length": reads(int64, "samples"), "first": reads(int64, units), "begins": reads(uint32, units),
        "used": reads(int64, "1"), "fired": reads(uint32, f"{units}, rows"),
        **OF_LISTS, "key": reads(uint32, "4"), "ascent": bool, "side": int,
        "parameters": ArrayTuple((
            *((f"device_{name}", reads(float32, whole)) for name in hidden),
            *((f"device_{name}", reads(float32, "")) for name in settings),
        )), "pulses": ArrayType("Out", int32, sizes_of(whole), 0),
    }  # fmt: skip
    return kernel(grid=f"rows, (columns + {lanes - 1}) // {lanes}", group=lanes)(pulsed_update)
