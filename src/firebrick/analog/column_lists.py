"""Lists of the columns that fire in each slot, by which a sparse update visits its pulses alone.

Where most cross-points get no pulse, vectors over all of them do almost nothing. So a row takes the slots in which it fires one
after the other, and of each the list of the columns that fire in it: each of these is a pulse. The lists serve all rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from firebrick.analog.pulse_trains import STOCHASTIC, WORD, Trains, set_bits, whole_of, word_of
from firebrick.analog.typed_kernel import reads, results
from firebrick.analog.update_parameters import PulseType
from firebrick.core.dtypes import int32, int64, uint32
from firebrick.core.tensor import Tensor
from firebrick.functions.creation import zeros
from firebrick.functions.kernels import Kernel, kernel

LISTED = 16
"""Most words of slots of which columns are listed; in the mean, a list of all columns for each has room."""
SPARSE = 2
"""The least number of cross-points for each pulse of a sparse update."""
LARGE = 1 << 14
"""Cross-points of a tile from which on its updates may be sparse: the lists take longer than the update of a smaller one."""


def _lists() -> Kernel:
    def column_lists(x: Any, d: Any, used: Any, sparse: Any, begin: Any, end: Any, column: Any) -> None:
        lane = kernel.lane()  # a slot of a word
        counts = kernel.shared(int32, (LISTED, WORD))  # columns that fire in a slot
        sums = kernel.shared(int64, WORD)
        few = used[0] <= LISTED
        pulses = 0
        if few:
            for w in range(used[0]):
                rows, columns = whole_of(0), whole_of(0)
                for i in range(d.shape[1]):
                    rows += whole_of((d[w, i] >> word_of(lane)) & word_of(1))
                for j in range(x.shape[1]):
                    columns += whole_of((x[w, j] >> word_of(lane)) & word_of(1))
                counts[w, lane] = columns if rows > 0 else whole_of(0)
                pulses += int(rows) * int(columns)
        sums[lane] = pulses
        kernel.barrier()
        if few:
            total, entries = 0, 0
            for s in range(WORD):
                total += sums[s]
                for w in range(used[0]):
                    entries += int(counts[w, s])
            if total * SPARSE <= d.shape[1] * x.shape[1] and entries <= column.shape[0]:
                behind = 0
                for w in range(used[0]):
                    at = behind
                    for s in range(WORD):
                        at += int(counts[w, s]) if s < lane else 0
                        behind += int(counts[w, s])
                    begin[w, lane] = at
                    if counts[w, lane] > 0:
                        for j in range(x.shape[1]):
                            if ((x[w, j] >> word_of(lane)) & word_of(1)) != word_of(0):
                                column[at] = whole_of(j)
                                at += 1
                    end[w, lane] = at
                if lane == 0:
                    sparse[0] = 1

    column_lists.__annotations__ = {
        "x": reads(uint32, "words, columns"), "d": reads(uint32, "words, rows"),
        "used": reads(int64, "1"), "sparse": results(int64, "1"), "begin": results(int64, f"{LISTED}, {WORD}"),
        "end": results(int64, f"{LISTED}, {WORD}"), "column": results(int32, f"{LISTED} * columns"),
    }  # fmt: skip
    return kernel(grid="1", group=WORD)(column_lists)


@kernel.function
def first_slot(slots: Any) -> Any:
    """The lowest bit of a word that is not 0, and its number."""
    slot = slots & (word_of(0) - slots)
    return slot, int(set_bits(slot - word_of(1)))


class ColumnLists(NamedTuple):
    """The columns that fire in each slot.

    Attributes:
        sparse: 1 where there are lists, else 0, int64 [1].
        firing: In which slots rows fire, uint32 [words, rows].
        begin: Where the list of each slot of each word begins, int64 [words, 32].
        end: Where it ends.
        column: The lists, int32.
    """

    sparse: Tensor
    firing: Tensor
    begin: Tensor
    end: Tensor
    column: Tensor


OF_LISTS: dict[str, Any] = {
    "sparse": reads(int64, "1"), "firing": reads(uint32, "slots, rows"), "begin": reads(int64, f"listed, {WORD}"),
    "end": reads(int64, f"listed, {WORD}"), "column": reads(int32, "entries"),
}  # fmt: skip
"""Their types in kernels."""
_of_columns = _lists()


def column_lists_of(trains: Trains, kind: PulseType | None, size: int) -> ColumnLists:
    """The lists of an update; none where it is not sparse.

    Args:
        trains: Of the update.
        kind: How pulses are counted; None where several are one normal number.
        size: Number of cross-points.
    """
    device = trains.x.device
    if kind in STOCHASTIC and size >= LARGE:
        sparse, *lists = _of_columns(trains.x, trains.d, trains.slots.used)
        return ColumnLists(sparse, trains.d, *lists)
    rows, none = zeros((0, trains.d.shape[1]), dtype=uint32, device=device), zeros((0, WORD), dtype=int64, device=device)
    return ColumnLists(zeros((1,), dtype=int64, device=device), rows, none, none, zeros((0,), dtype=int32, device=device))
