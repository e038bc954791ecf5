"""The kernel of a pulsed update: for each cross-point, the pulses of all samples in order, each by the device's own pulse.

Each pulse acts on the weight that the pulse before left. All pulses that a cross-point gets in one sample have one sign, so
their order within the sample does not matter.

Cross-points are the lanes of vectors, and most samples give most of them no pulse or a few. So each cross-point first collects
the pulses of many samples in a *queue*, a bit for each, which is whether it is a pulse up, and then takes pulses from it, four
for each block of random words, whichever samples they are of. Samples in which no pulse reaches a row are left out for all of
its cross-points (``Trains.fired``).

Where the step of noisy pulses does not depend on the weight, the sum of the pulses of some samples is one normal number, as
long as no bound is in reach; cross-points near a bound take pulse after pulse.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from firebrick.analog.normal_numbers import normal_block, normal_pair
from firebrick.analog.pulse_trains import SAMPLES, STOCHASTIC, word_of
from firebrick.analog.typed_kernel import reads, results
from firebrick.analog.update_parameters import PulseType
from firebrick.compiler.kernel.language.annotations import ArrayTuple
from firebrick.compiler.kernel.language.calls import HelperFunction, IndexedFunction
from firebrick.core.dtypes import float32, int32, int64, uint32
from firebrick.functions.kernels import Kernel, kernel

count_of_pulses: Any = int32
"""The cast to int32, in kernels."""
number_of: Any = float32
"""The cast to float32, in kernels."""


@kernel.function
def set_bits(word: Any) -> Any:
    """The number of bits of a uint32 that are 1."""
    pairs = word - ((word >> word_of(1)) & word_of(0x55555555))
    nibbles = (pairs & word_of(0x33333333)) + ((pairs >> word_of(2)) & word_of(0x33333333))
    octets = (nibbles + (nibbles >> word_of(4))) & word_of(0x0F0F0F0F)
    return count_of_pulses((octets * word_of(0x01010101)) >> word_of(24))


@kernel.function
def coincidences(x: Any, d: Any, length: Any, b: Any, i: Any, j: Any) -> Any:
    """Slots of a sample in which both lines of a cross-point fire."""
    count = count_of_pulses(0)
    for w in range(min((length[b] + 31) // 32, x.shape[1])):
        if j < x.shape[2]:
            count += set_bits(x[b, w, j] & d[b, w, i])
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
def mean_count(x: Any, d: Any, length: Any, b: Any, i: Any, j: Any) -> Any:
    """Coincidences of trains in which each line fires as often as is expected."""
    count = 0
    if j < x.shape[1]:
        of_x = rounded(length[b] * x[b, j], 4294967296)
        of_d = rounded(length[b] * d[b, i], 4294967296)
        count = rounded(of_x * of_d, length[b])
    return count


@kernel.function
def expected_count(x: Any, d: Any, length: Any, b: Any, i: Any, j: Any) -> Any:
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
LANES, WORDS = 32, 64
"""Cross-points of a group, two registers of AVX-512, and words of 32 pulses of the queue of each."""
PIECE = 1024
"""Most pulses of a sample that a queue gets at a time."""
JOINED = 10
"""Most samples whose pulses are one normal number: the more there are, the more often a bound is in reach."""


@kernel.function
def appended(queue: Any, lane: Any, last: Any, waiting: Any, count: Any, up: Any) -> Any:
    """Add pulses of one direction to a queue; the word that is being filled, and the number of pulses afterwards.

    Args:
        queue: Words that are full.
        lane: Of the cross-point in its group.
        last: The word that is being filled.
        waiting: Number of pulses in the queue.
        count: Number of pulses that are added.
        up: Whether they are pulses up.
    """
    ones = word_of(0xFFFFFFFF) if up else word_of(0)
    room = 32 - (waiting & 31)
    last = last | ((ones & ((word_of(1) << word_of(count)) - word_of(1))) << word_of(waiting & 31))
    while count >= room:
        queue[int(waiting) >> 5, lane] = last
        waiting += room
        count -= room
        room = count_of_pulses(32)
        last = ones & ((word_of(1) << word_of(count)) - word_of(1))
    return last, waiting + count


@lru_cache(maxsize=256)
def update_kernel(
    pulse: HelperFunction, hidden: tuple[str, ...], settings: tuple[str, ...], pulse_type: PulseType, noisy: bool,
    joint: HelperFunction | None = None,
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

    Returns:
        Kernel of the weights, their bounds, the inputs and errors, their trains, in which samples rows fire, the key of the
        normal numbers, whether the learning rate is negative, which pulses count (see ``device_array.BOTH``), and the
        parameters. Its results are the weights, and the number of pulses that each cross-point got.
    """
    whole, lines = "rows, columns", "samples, words, " if pulse_type in STOCHASTIC else "samples, "
    of_lines = uint32 if pulse_type in STOCHASTIC else int64
    step = IndexedFunction(pulse, (*(((0, 1),) * len(hidden)), *(((),) * len(settings))))
    joins, at_once = joint is not None, IndexedFunction(joint or pulse, step.axes)
    count_of = COUNTS[pulse_type]

    def pulsed_update(
        weights: Any, low: Any, high: Any, x: Any, d: Any, x_lines: Any, d_lines: Any, length: Any, fired: Any, key: Any,
        ascent: Any, side: Any, parameters: Any, changed: Any, pulses: Any,
    ) -> None:  # fmt: skip
        i, part = kernel.group()
        lane = kernel.lane()
        j = part * LANES + lane  # items behind the last column get no pulses: a condition around all would be one for each step
        queue = kernel.shared(uint32, (WORDS + 1 + JOINED, LANES))
        w, least, most = 0.0, 0.0, 0.0
        if j < weights.shape[1]:
            w, least, most = weights[i, j], low[i, j], high[i, j]
        total, ups, downs = count_of_pulses(0), count_of_pulses(0), count_of_pulses(0)
        last, waiting = word_of(0), count_of_pulses(0)  # the word that is being filled, and the pulses in the queue
        used, queued, flushes = 0, 0, 0  # of all cross-points of a row: slots and samples in the queue
        for k in range(fired.shape[0] + 1):
            samples = word_of(1)  # the last round empties the queue
            if k < fired.shape[0]:
                samples = fired[k, i]
            while samples != word_of(0):
                first = samples & (word_of(0) - samples)
                samples = samples ^ first
                slots = 1
                n, up = count_of_pulses(0), False
                if k < fired.shape[0]:
                    b = SAMPLES * k + int(set_bits(first - word_of(1)))
                    slots = length[b]
                    if slots > 0:
                        n = count_of_pulses(count_of(x_lines, d_lines, length, b, i, j))
                    if j < weights.shape[1] and n > 0:
                        up = ((x[b, j] < 0.0) != (d[b, i] < 0.0)) != ascent
                        if side != 0:  # devices that only get pulses up: those up, or those down
                            n = n if up == (side > 0) else count_of_pulses(0)
                            up = True
                        total += n
                while slots > 0:
                    here = min(slots, PIECE)
                    if k == fired.shape[0] or used + here > 32 * WORDS or (joins and queued == JOINED):
                        if joins and j < weights.shape[1] and ups + downs > 0:
                            at = 4 * ((flushes * (8 * WORDS) * weights.shape[0] + i) * weights.shape[1] + j)
                            xi, _ = normal_pair(key, at)
                            after, highest, lowest = at_once((w, number_of(ups), number_of(downs), xi), parameters, (i, j))
                            if highest < most and lowest > least:
                                w = after
                            else:
                                for s in range(queued):
                                    part_of = queue[WORDS + 1 + s, lane]
                                    last, waiting = appended(
                                        queue,
                                        lane,
                                        last,
                                        waiting,
                                        count_of_pulses(part_of >> word_of(1)),
                                        (part_of & word_of(1)) != word_of(0),
                                    )
                        count = waiting
                        if j < weights.shape[1] and count > 0:
                            queue[int(waiting) >> 5, lane] = last
                            for q in range((int(count) + 3) >> 2):
                                z = (0.0, 0.0, 0.0, 0.0)
                                if noisy:
                                    block = flushes * (8 * WORDS) + q
                                    z = normal_block(key, (block * weights.shape[0] + i) * weights.shape[1] + j)
                                rises = queue[q >> 3, lane] >> word_of(4 * (q & 7))
                                for c in kernel.unrolled(4):  # computed for all, as a branch takes longer than a pulse
                                    after = step((w, (rises & word_of(1 << c)) != word_of(0), z[c]), parameters, (i, j))
                                    after = least if after < least else after
                                    after = most if after > most else after
                                    w = after if count_of_pulses(4 * q + c) < count else w
                        ups, downs = count_of_pulses(0), count_of_pulses(0)
                        last, waiting = word_of(0), count_of_pulses(0)
                        used, queued = 0, 0
                        flushes += 1
                    some = min(n, count_of_pulses(PIECE))
                    n -= some
                    if joins:
                        ups += some if up else count_of_pulses(0)
                        downs += count_of_pulses(0) if up else some
                        if k < fired.shape[0]:
                            queue[WORDS + 1 + queued, lane] = word_of(2 * some + (1 if up else 0))
                    elif some > 0:
                        last, waiting = appended(queue, lane, last, waiting, some, up)
                    used += here
                    queued += 1
                    slots -= PIECE
        if j < weights.shape[1]:
            changed[i, j] = w
            pulses[i, j] = total

    pulsed_update.__annotations__ = {
        "weights": reads(float32, whole), "low": reads(float32, whole), "high": reads(float32, whole),
        "x": reads(float32, "samples, columns"), "d": reads(float32, "samples, rows"),
        "x_lines": reads(of_lines, f"{lines}columns"), "d_lines": reads(of_lines, f"{lines}rows"),
        "length": reads(int64, "samples"), "fired": reads(uint32, f"(samples + {SAMPLES - 1}) // {SAMPLES}, rows"),
        "key": reads(uint32, "4"), "ascent": bool, "side": int,
        "parameters": ArrayTuple((
            *((f"device_{name}", reads(float32, whole)) for name in hidden),
            *((f"device_{name}", reads(float32, "")) for name in settings),
        )), "changed": results(float32, whole), "pulses": results(int32, whole),
    }  # fmt: skip
    return kernel(grid=f"rows, (columns + {LANES - 1}) // {LANES}", group=LANES)(pulsed_update)
