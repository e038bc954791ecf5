"""``doubt_convolution``: whether contractions compute the convolution of a node.

The three convolutions are one relation: with p = h · stride + i · dilation - before along each axis of the image, an element of
the result y[n, o, h] is the sum of x[n, c', p] · w[o, c, i] over c and i, c' = c + (o // out) · channels, where p lies in the
image; those of the gradients are sums of the two others. Addresses are decoded to indices, and compared with that relation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from firebrick.compiler.fusion.affine import Affine, affine, variable
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.convolution import FORWARD, INPUT, WEIGHT, Convolution
from firebrick.compiler.spec.parts import Bound, Factor, Part
from firebrick.core.views import Digit, View
from firebrick.ir import Node
from firebrick.ops.index_maps import flat, unflattened

Index = tuple[Affine | int, ...]
Address = Callable[[View, Sequence[Affine | int]], Affine]


def doubt_convolution(n: Node, shapes: Sequence[tuple[int, ...]], spec: Contract, address: Address) -> str:
    """The reason why a specification is not proved to be a convolution; empty if it is.

    Args:
        n: The convolution.
        shapes: Shapes of its operands.
        spec: Its specification.
        address: The address of a view's element.
    """
    p, result = n.params, n.avals[0].shape
    size, kernel = p.get("size"), p.get("kernel")
    y, x, w = _arrays(n, shapes)
    before = [a for a, _ in p["padding"]]
    stride, dilation, groups = p["stride"], p["dilation"], p["groups"]
    out, channels = w[0] // groups, w[1]
    seen: set[tuple[int, ...]] = set()
    for part in spec.parts:
        group = variable("group", groups)
        row, column, k = variable("row", part.m), variable("column", part.n), variable("k", part.k)
        if part.batch != (groups,) or not _fits(part):
            return f"a part of {n.op.name} has factors of another shape than its domain"
        if part.omits != (size is not None):
            return f"a part of {n.op.name} omits other products than those beyond its result"
        own = unflattened(address(part.result, (group, row, column)), result)
        if part.k == 0:
            first = second = None
        else:
            first = address(part.left.view, (group, row, k))
            second = address(part.right.view, (group, column, k))
        if size is not None:  # x's gradient: A is w, B is y's
            residue = tuple(affine(affine(i) + b) % s for i, b, s in zip(own[2:], before, stride, strict=True))
            if any(r.terms for r in residue):
                return "positions of a part do not meet the same taps"
            known = tuple(r.constant for r in residue)
            taps = [_taps(a, r, d, s) for a, r, d, s in zip(w[2:], known, dilation, stride, strict=True)]
            if known in seen or part.k != out * prod(map(len, taps)):
                return "a part sums over other taps than those that meet its positions"
            seen.add(known)
            if first is None or second is None:
                continue
            o, c, *i = unflattened(first, w)
            h = [affine(affine(q) + b + affine(t) * -d) for q, b, t, d in zip(own[2:], before, i, dilation, strict=True)]
            if any((a % s) != affine(0) for a, s in zip(h, stride, strict=True)):
                return "a tap does not meet the positions of its part"
            spots = [a // s for a, s in zip(h, stride, strict=True)]
            wanted = flat((own[0], o, *spots), y)
            agree = _same(own[1], affine(group) * channels + affine(c)) and _same(affine(o) // out, group)
            bounds = _bounded(part.right, part.k, spots, y[2:], column, k)
            once = _injective(part.left.view.axes[-1])
        else:
            if first is None or second is None:
                return f"a part of {n.op.name} sums over nothing"
            if kernel is None:  # y: A is w, B is x
                image, o, *spots = own
                o2, c, *i = unflattened(first, w)
                once = _same(flat((c, *i), w[1:]), k) and part.k == prod(w[1:])
            else:  # w's gradient: A is y's, B is x
                o, c, *i = own
                image, o2, *spots = unflattened(first, y)
                once = _same(flat((image, *spots), (y[0], *y[2:])), k) and part.k == y[0] * prod(y[2:])
            positions = [
                affine(a) * s + affine(t) * d + -b for a, s, t, d, b in zip(spots, stride, i, dilation, before, strict=True)
            ]
            # addresses are compared without bounds, since no element outside of the bounds is read
            wanted = flat((image, affine(group) * channels + affine(c), *positions), x)
            agree = _same(o, o2) and _same(affine(o) // out, group)
            bounds = _bounded(part.right, part.k, positions, x[2:], column, k)
        if not (agree and once and bounds and _same(second, wanted)):
            return f"a part is not proved to be that of {n.op.name}"
    elements = sum(prod(part.domain) for part in spec.parts)
    once = all(_injective([d for axis in part.result.axes for d in axis]) for part in spec.parts)
    return "" if elements == prod(result) and once else f"the parts are not each element of the result of {n.op.name} once"


def _arrays(n: Node, shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shapes of a convolution's result, image and weight."""
    result = n.avals[0].shape
    if "size" in n.params:
        return shapes[0], result, shapes[1]
    return (shapes[1], shapes[0], result) if "kernel" in n.params else (result, shapes[0], shapes[1])


def geometry_of(n: Node, shapes: Sequence[tuple[int, ...]]) -> Convolution:
    """The geometry of a convolution, from the node alone.

    Args:
        n: The convolution.
        shapes: Shapes of its operands.
    """
    p = n.params
    direction = INPUT if "size" in p else WEIGHT if "kernel" in p else FORWARD
    _, image, weight = _arrays(n, shapes)
    pairs = tuple((before, after) for before, after in p["padding"])
    dtype = n.avals[0].dtype.name
    return Convolution(dtype, image, weight, tuple(p["stride"]), pairs, tuple(p["dilation"]), p["groups"], direction)


def _fits(part: Part) -> bool:
    domain = part.domain
    views = (
        (part.left.view, (*part.batch, part.m, part.k)),
        (part.right.view, (*part.batch, part.n, part.k)),
        (part.result, domain),
    )
    return all(view.shape == shape for view, shape in views)


def _same(a: Affine | int, b: Affine | int) -> bool:
    return affine(a) == affine(b)


def _taps(kernel: int, residue: int, dilation: int, stride: int) -> list[int]:
    """The taps of the positions whose padded coordinate has a given residue modulo the stride."""
    return [i for i in range(kernel) if (residue - i * dilation) % stride == 0]


def _injective(digits: Sequence[Digit]) -> bool:
    """Whether different indices have different addresses."""
    reach = 0
    for size, stride in sorted((d for d in digits if d.size > 1), key=lambda d: abs(d.stride)):
        if abs(stride) <= reach:
            return False
        reach += (size - 1) * abs(stride)
    return True


def _bounded(
    x: Factor, length: int, wanted: Sequence[Affine], sizes: Sequence[int], column: Affine | int, k: Affine | int
) -> bool:
    """Whether an element is read exactly if all coordinates are in bounds. A coordinate that is always in bounds needs none."""
    found = [(b.size, _coordinate(b, x.view, column, k)) for b in x.bounds]
    for at, size in zip(wanted, sizes, strict=True):
        low, high = at.range
        if (size, at) in found:
            found.remove((size, at))
        elif low < 0 or high >= size:
            return False
    return not found or length == 0


def _coordinate(b: Bound, view: View, column: Affine | int, k: Affine | int) -> Affine:
    """The coordinate of a bound at indices of n and k."""
    at = affine(b.start)
    for digits, coefficients, index in ((view.axes[-2], b.lanes, column), (view.axes[-1], b.k, k)):
        shape = tuple(d.size for d in digits)
        for i, c in zip(unflattened(index, shape), coefficients, strict=True):
            at = at + affine(i) * c
    return at
