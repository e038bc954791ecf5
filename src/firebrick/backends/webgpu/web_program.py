"""``WebPlan``: a program for web pages, as data: kernels, buffers, and the steps that run them.

A page runs the steps in order. Most of them are launches of kernels. Loops and branches hold steps of their own: a page
repeats or skips these, and reads the condition of a ``while_loop`` or ``cond`` from the GPU to decide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from firebrick.compiler.spec.faults import Site
from firebrick.compiler.spec.matrix import MatrixSite
from firebrick.compiler.targets.wgsl.shader import Shader


@dataclass(frozen=True, slots=True)
class WebLaunch:
    """A launch of a kernel.

    Attributes:
        kernel: Number of its kernel.
        name: The operations that it belongs to.
        bindings: For each binding of the kernel's arrays, the buffer, the offset and the bytes.
        words: Of the uniform buffer, uint32.
        workgroups: Along x and y.
    """

    kernel: int
    name: str
    bindings: tuple[tuple[int, int, int], ...]
    words: tuple[int, ...]
    workgroups: tuple[int, int]


@dataclass(frozen=True, slots=True)
class WebCopy:
    """A copy from one buffer to another.

    Attributes:
        source: Buffer that is read.
        goal: Buffer that is written.
        nbytes: Bytes, a multiple of 4.
        source_stride: Bytes between what is read in successive rounds of the loop whose step this is.
        goal_stride: Bytes between what is written there.
    """

    source: int
    goal: int
    nbytes: int
    source_stride: int = 0
    goal_stride: int = 0


@dataclass(frozen=True, slots=True)
class WebScan:
    """Steps that are repeated.

    Attributes:
        times: Number of rounds.
        reverse: Whether the last round of the strides is the first.
        steps: Of a round.
    """

    times: int
    reverse: bool
    steps: tuple[WebStep, ...]


@dataclass(frozen=True, slots=True)
class WebWhile:
    """Steps that are repeated as long as a bool in a buffer holds, which is read before each round."""

    condition: int
    steps: tuple[WebStep, ...]


@dataclass(frozen=True, slots=True)
class WebCond:
    """Steps that run if a bool in a buffer holds, and those that run if not."""

    condition: int
    steps: tuple[WebStep, ...]
    otherwise: tuple[WebStep, ...]


WebStep = WebLaunch | WebCopy | WebScan | WebWhile | WebCond


@dataclass
class WebPlan:
    """A program for web pages.

    Attributes:
        kernels: Different kernels.
        steps: In order.
        buffers: Bytes of each buffer, a multiple of 4.
        inputs: The buffer of each input of the graph.
        outputs: The buffer of each output.
        constants: Arrays that are part of the program, by their buffers.
        sites: The checks of indices and matrices, by their numbers in the table of faults.
    """

    kernels: list[Shader] = field(default_factory=list)
    steps: list[WebStep] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    constants: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    sites: list[Site | MatrixSite] = field(default_factory=list)

    @property
    def launches(self) -> list[WebLaunch]:
        """All launches, also those in loops and branches, each once."""
        return _launches(self.steps)


def _launches(steps: list[WebStep] | tuple[WebStep, ...]) -> list[WebLaunch]:
    found: list[WebLaunch] = []
    for s in steps:
        if isinstance(s, WebLaunch):
            found.append(s)
        elif isinstance(s, WebCond):
            found += _launches(s.steps) + _launches(s.otherwise)
        elif not isinstance(s, WebCopy):
            found += _launches(s.steps)
    return found
