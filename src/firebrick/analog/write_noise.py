"""The visible weights of devices with write noise after an update: new noise where pulses were."""

from __future__ import annotations

from typing import Any

from firebrick.analog.column_lists import OF_LISTS, first_slot
from firebrick.analog.normal_numbers import normal_block, normal_of_block
from firebrick.analog.pulse_trains import word_of
from firebrick.analog.typed_kernel import reads
from firebrick.compiler.kernel.language.annotations import ArrayType, sizes_of
from firebrick.core.dtypes import float32, int32, int64, uint32
from firebrick.functions.kernels import Kernel, kernel

LANES = 32
"""Cross-points of a group, or blocks of four numbers."""


def _kernel() -> Kernel:
    def written(
        w: Any, pulses: Any, used: Any, sparse: Any, firing: Any, begin: Any, end: Any, column: Any, key: Any, std: Any,
        shown: Any,
    ) -> None:  # fmt: skip
        i, part = kernel.group()
        lane = kernel.lane()
        blocks = (w.shape[1] + 3) // 4  # the numbers are those of ``normals``
        if sparse[0] != 0:
            if part == 0:
                for of_word in range(used[0]):
                    left = firing[of_word, i]
                    while left != word_of(0):
                        slot, s = first_slot(left)
                        left = left ^ slot
                        for first_entry in range(begin[of_word, s], end[of_word, s], LANES):
                            entry = first_entry + lane
                            if entry < end[of_word, s]:
                                j = int(column[entry])
                                if pulses[i, j] > 0:
                                    quarter = (1 if j >= blocks else 0) + (1 if j >= 2 * blocks else 0)
                                    quarter += 1 if j >= 3 * blocks else 0
                                    xi = normal_of_block(key, i * blocks + j - quarter * blocks, quarter)
                                    shown[i, j] = w[i, j] + xi * std
                        kernel.barrier()
            return
        block = part * LANES + lane
        found = normal_block(key, i * blocks + block)
        for c in kernel.unrolled(4):
            if block < blocks and block + c * blocks < w.shape[1] and pulses[i, block + c * blocks] > 0:
                shown[i, block + c * blocks] = w[i, block + c * blocks] + found[c] * std

    whole = "rows, columns"
    written.__annotations__ = {
        "w": reads(float32, whole), "pulses": reads(int32, whole), "used": reads(int64, "1"), **OF_LISTS,
        "key": reads(uint32, "4"), "std": float, "shown": ArrayType("InOut", float32, sizes_of(whole)),
    }  # fmt: skip
    return kernel(grid=f"rows, ((columns + 3) // 4 + {LANES - 1}) // {LANES}", group=LANES)(written)


with_write_noise = _kernel()
