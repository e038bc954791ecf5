"""What a launch and a segment are, before they are recorded: a compiled shader, descriptions of its bindings, and the bind
groups and rows of a table of launches that were made for the buffers of earlier calls. ``commands`` records them.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from firebrick.backends.webgpu.buffers import Block
from firebrick.backends.webgpu.lowering import SITES
from firebrick.compiler.targets.wgsl.bindings import WORD

TABLE_BYTES = WORD * (SITES + 1)
"""Bytes of a table of faults."""


Chooser = Callable[[Sequence[Block]], "tuple[Block, ...]"]
"""Takes some of the elements of a list."""


def chooser(numbers: Sequence[int]) -> Chooser:
    """What takes the elements of these numbers from a list."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda blocks: tuple([blocks[k] for k in numbers])


class Pipeline:
    """A compiled shader and the layout of its bindings.

    Attributes:
        pipeline: wgpu's object.
        layout: That of its one bind group.
        bindings: Number of its bindings.
    """

    __slots__ = ("__weakref__", "bindings", "layout", "pipeline")

    def __init__(self, pipeline: Any, layout: Any, bindings: int) -> None:
        self.pipeline, self.layout, self.bindings = pipeline, layout, bindings


class PreparedLaunch:
    """A launch but for the buffers of its arrays: descriptions that wgpu's C functions read, filled in once.

    Bind groups and launches go by the C functions, without the checks of wgpu's Python interface, which cost more than the
    work. What those would find is ruled out here: bindings have the sizes of their buffers' contents, of at least a word.

    Args:
        pipeline: The kernel.
        reads: For each array, whether it is only read.
        bindings: Of the arrays: the number of the array, offset and bytes.
        words: A buffer with the launch's words.
        checks: Whether it has a table of faults.
        workgroups: Along x and y.

    Attributes:
        arrays: The number of the array of each binding.
        table: The binding of the table of faults; None without one.
    """

    __slots__ = (
        "__weakref__", "_group", "_held", "address", "arrays", "entries", "groups", "pipeline", "reads", "table", "workgroups",
        "writes",
    )  # fmt: skip

    def __init__(
        self, pipeline: Pipeline, reads: Sequence[bool], bindings: Sequence[tuple[int, int, int]], words: Any, checks: bool,
        workgroups: tuple[int, int], native: Any,
    ) -> None:  # fmt: skip
        ffi, self.reads = native.ffi, tuple(reads)
        self.writes = tuple(k for k, read in enumerate(self.reads) if not read)
        self.address = int(ffi.cast("intptr_t", pipeline.pipeline._internal))
        self.pipeline, self.workgroups = pipeline, workgroups
        self.arrays = tuple(number for number, _, _ in bindings)
        self.entries = ffi.new("WGPUBindGroupEntry[]", pipeline.bindings)
        for k in range(pipeline.bindings):
            self.entries[k].binding = k
        for k, (_, offset, size) in enumerate(bindings):
            self.entries[k].offset, self.entries[k].size = offset, size
        k = len(bindings)
        self.entries[k].buffer, self.entries[k].size = words._internal, words.size
        self.table = k + 1 if checks else None
        if checks:
            self.entries[k + 1].size = TABLE_BYTES
        self._group = ffi.new("WGPUBindGroupDescriptor *")
        self._group.layout = pipeline.layout._internal
        self._group.entryCount = pipeline.bindings
        self._group.entries = self.entries
        self._held = words
        # bind groups by the buffers of the arrays, and their rows of a table of launches: operations get the same buffers
        # again and again
        self.groups: dict[tuple[Block, ...], tuple[Any, tuple[int, int, int, int]]] = {}

    @property
    def group(self) -> Any:
        """The description of a bind group."""
        return self._group


@dataclass(frozen=True, slots=True)
class Recording:
    """The rows of a segment for certain buffers.

    Attributes:
        rows: Of the table of launches.
        blocks: The buffers of its operands, its own, and the one for arrays without elements.
        held: What has the addresses of the rows.
    """

    rows: array[int]
    blocks: tuple[Block, ...]
    held: list[Any]


class PreparedSegment:
    """Launches that are recorded as one.

    Args:
        steps: The launches, each with the positions of its arrays among the buffers of the operands, its own ones, and one
            for arrays without elements.
        operands: Number of its operands.
        sizes: Of its own buffers, of ``BufferPool.size_of``.
    """

    __slots__ = ("__weakref__", "groups", "sizes", "steps", "writes")

    def __init__(self, steps: Sequence[tuple[PreparedLaunch, tuple[int, ...]]], operands: int, sizes: Sequence[int]) -> None:
        self.steps, self.sizes = tuple(steps), tuple(sizes)
        nothing = operands + len(self.sizes)
        self.writes = tuple(sorted({numbers[k] for launch, numbers in self.steps for k in launch.writes} - {nothing}))
        # by the buffers of the operands, and then by its own: the order is that of the last calls that found none
        self.groups: OrderedDict[tuple[Block, ...], dict[tuple[Block, ...], Recording]] = OrderedDict()
