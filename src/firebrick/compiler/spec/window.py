"""``Window``: the maximum or the mean of each window of images, and its gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from firebrick.compiler.spec.base import Cost, Size, Triple
from firebrick.compiler.spec.nest import itemsize
from firebrick.compiler.spec.single import single
from firebrick.ir import Graph


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of ``planes`` images, whose axes are padded by ``before`` at their start. Images with one or two axes have
    leading axes of size 1. ``places`` is the number of windows along each axis."""

    planes: Size
    image: Triple
    places: Triple
    kernel: Triple
    stride: Triple
    before: Triple
    dilation: Triple

    @property
    def elements(self) -> Iterator[Triple]:
        """A window's elements in row-major order."""
        z, y, x = self.kernel
        return product(range(z), range(y), range(x))

    def offset(self, at: Triple, axis: int) -> int:
        """The coordinate of element ``at`` minus ``stride`` times the window's number, along an axis."""
        return at[axis] * self.dilation[axis] - self.before[axis]

    def inside(self, axis: int, offset: int) -> bool:
        """Whether an element is in the image for every window along an axis."""
        return offset >= 0 and (self.places[axis] - 1) * self.stride[axis] + offset < self.image[axis]


@dataclass(frozen=True, slots=True)
class Window:
    """Pooling. Arrays are row-major, [planes, *image] or [planes, *places].

    Attributes:
        windows: Their geometry.
        fold: ``"max"``: the maximum of each window and its index in the image (int64), of equal values the first, and the first
            NaN before any number; ``"mean"``: the mean, with zeros for padding.
        gradient: Whether the result is the gradient: each window's cotangent is added to the element at its index, if that is
            in the window, or divided among all elements of the window if there are no indices.
        dtype: Dtype of the images and the values.
        index: Dtype of the indices; empty if there are none.
        sources: The inputs that are the images or cotangents, and the indices.
    """

    windows: Windows
    fold: str
    gradient: bool
    dtype: str
    index: str
    sources: tuple[int, ...]

    @property
    def cost(self) -> Cost:
        """Work of one run."""
        w = self.windows
        outs = w.planes * prod(w.places)
        indices = 8 if self.fold == "max" else 0
        nbytes = w.planes * prod(w.image) * itemsize(self.dtype) + outs * (itemsize(self.dtype) + indices)
        return Cost(float(outs * prod(w.kernel)), float(nbytes))


def window(body: Graph) -> Window:
    """The specification of a group of one pooling node."""
    s = single(body)
    index = s.operands[1].dtype.name if len(s.operands) > 1 else ""
    facts = s.facts
    return Window(windows_of(facts), facts["fold"], facts["gradient"], s.operands[0].dtype.name, index, s.inputs)


def windows_of(facts: dict[str, Sequence[int]]) -> Windows:
    """The geometry of a node, by the op table's facts of it."""
    return Windows(
        prod(facts["planes"]), _triple(facts["image"], 1), _triple(facts["places"], 1), _triple(facts["kernel"], 1),
        _triple(facts["stride"], 1), _triple(facts["before"], 0), _triple(facts["dilation"], 1),
    )  # fmt: skip


def _triple(axes: Sequence[int], missing: int) -> Triple:
    z, y, x = (missing,) * (3 - len(axes)) + tuple(axes)
    return z, y, x
