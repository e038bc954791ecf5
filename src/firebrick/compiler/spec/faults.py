"""Faults: what a kernel does about an index out of range, and the error that is made of it. All targets share this mechanism.

A kernel clamps such an index and goes on, so no thread has to stop another. It reports the fault in a table of uint32, which
is 0 before the first launch. The runtime reads the first word after the launches, where they run, and commits the results of
a program only if it is 0; otherwise it reads the rest and raises the error.

======================  =======================================================
word                    meaning
======================  =======================================================
0                       0 for no fault, else 2³² - 1 - site
1                       not used; it aligns the payloads
2 + 2·site              of a fault at the site: the lower half of 2⁶³ - 1 - index
3 + 2·site              the upper half
======================  =======================================================

A kernel changes both by an atomic unsigned maximum. Since the table holds differences, the smallest site remains, and of each
site the smallest index. No order of threads, chunks, lanes or items changes either, so a program reports the same fault in
every run. A payload for each site makes this possible without an atomic operation of more than 64 bits.

Sites are numbered in each kernel from 0: programs share kernels. An index that depends on an element found by another index
has the larger number. A kernel for a processor gets the table of its launch, and a run ends after the first launch that
reports a fault. A kernel for a GPU gets the table of the program and the number of its first site there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.spec.base import Size
from firebrick.core.errors import FirebrickError, OutOfRangeError

FIRST_PAYLOAD = 8
"""Bytes of a table before its first payload."""
PAYLOAD = 8
"""Bytes of a payload."""
LARGEST_SITE, LARGEST_INDEX = (1 << 32) - 1, (1 << 63) - 1
"""What sites and indices are subtracted from."""

Table = np.ndarray[Any, np.dtype[np.uint32]]


def number_of(index: int, bits: int) -> str:
    """An index that a table reports, as a bound if its payload of so many bits may not have held it."""
    # unsigned indices that int64 cannot hold are reported as its largest number
    largest = (1 << (bits - 1)) - 1
    clamped_below = bits < 64 and index == -1 - largest
    return f"{index}{' or more' if index == largest else ' or less' if clamped_below else ''}"


@dataclass(frozen=True, slots=True)
class Site:
    """A check of an index: a place of a program where a fault may occur.

    Attributes:
        op: The operation's name, as users know it.
        size: Of the axis that is indexed.
        line: Of the program; empty if not known.
    """

    op: str
    size: Size
    line: str = ""

    def error(self, index: int, bits: int = 64) -> OutOfRangeError:
        """The error of a fault here.

        Args:
            index: The index that is out of range, as it was given.
            bits: Of the table's payloads: an index that they cannot hold was clamped.

        Example:
            >>> from firebrick.compiler.spec.faults import Site
            >>> print(Site("take", 5, "model.py:12").error(7))
            take: indices must lie in [-5, 5)
            Received: 7, at model.py:12.
            Remedy: check the index tensor (labels, tokens) against the axis it indexes.
        """
        number = number_of(index, bits)
        return OutOfRangeError(
            f"{self.op}: indices must lie in [{-self.size}, {self.size})",
            f"{number}, at {self.line}" if self.line else number,
            "check the index tensor (labels, tokens) against the axis it indexes",
            op=self.op,
            index=index,
        )


def out_of_range(site: int, indices: np.ndarray[Any, np.dtype[np.int64]], size: int) -> Fault | None:
    """The fault that a check of indices reports; None if all are in range.

    Args:
        site: Number of the check.
        indices: int64.
        size: Of the axis that they index.
    """
    smallest, largest = (int(indices.min()), int(indices.max())) if indices.size else (0, 0)
    if smallest < -size:
        return Fault(site, smallest)
    return Fault(site, int(indices[indices >= size].min())) if largest >= size else None


def first_fault(*faults: Fault | None) -> Fault | None:
    """The fault that is reported of several."""
    return min((x for x in faults if x is not None), default=None)


class FaultSite(Protocol):
    """A check of a kernel, of an operation's indices (``Site``) or a user's kernel (``custom``)."""

    def error(self, index: int) -> FirebrickError:
        """The error of a fault here, with its payload."""
        ...


def sites_of(spec: object) -> tuple[FaultSite, ...]:
    """The checks of a specification of any kind, by the numbers that its kernels have for them."""
    sites: tuple[FaultSite, ...] = getattr(spec, "sites", ())
    return sites


def table(sites: int) -> Table:
    """A table without a fault.

    Args:
        sites: How many sites it has payloads for.
    """
    return np.zeros((FIRST_PAYLOAD + PAYLOAD * sites) // 8, np.uint64).view(np.uint32)  # uint64, so that payloads are aligned


def found(words: Table) -> Fault | None:
    """The fault that a table holds; None if there is none.

    Args:
        words: A table.

    Raises:
        IndexError: The table has no payload for the site.
    """
    if not words[0]:
        return None
    site = LARGEST_SITE - int(words[0])
    low, high = int(words[2 + 2 * site]), int(words[3 + 2 * site])
    return Fault(site, _signed(LARGEST_INDEX - (high << 32 | low)))


def _signed(x: int) -> int:
    """A number modulo 2⁶⁴ as int64."""
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)
