"""Movement of elements: identities are removed, and two consecutive movements of one kind become one."""

from __future__ import annotations

from firebrick.core.errors import ShapeError
from firebrick.core.shapes import broadcast_shapes, slice_length
from firebrick.graph.passes.rewriter import BROADCAST_TO, Rewriter, Rule, inner, rewrite
from firebrick.ir import Graph, Node
from firebrick.ops import OPS

_RESHAPE, _PERMUTE, _SLICE, _FLIP = (OPS[n] for n in ("reshape", "permute", "slice", "flip"))
Inputs = tuple[int, ...]


def _reshape(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    x, shape = inputs[0], node.avals[0].shape
    if r.avals[x].shape == shape:
        return x
    before = inner(r, node, x, "reshape", "slice")
    if before is None:
        return None
    if before.op is _SLICE:  # a slice drops and adds axes of size 1 itself
        alike = [d for d in shape if d != 1] == [d for d in r.avals[x].shape if d != 1]
        return r.emit(_SLICE, before.inputs, before.params | {"shape": shape}, node) if alike else None
    source = before.inputs[0]
    return source if r.avals[source].shape == shape else r.emit(_RESHAPE, (source,), {"shape": shape}, node)


def _permute(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    x, axes = inputs[0], tuple(node.params["axes"])
    before = inner(r, node, x, "permute")
    if before is not None:
        x, axes = before.inputs[0], tuple([before.params["axes"][a] for a in axes])
    shape = r.avals[x].shape
    if axes == tuple(range(len(axes))):
        return x
    long = [a for a in axes if shape[a] != 1]
    if long == sorted(long):  # only axes of size 1 are permuted
        return r.emit(_RESHAPE, (x,), {"shape": node.avals[0].shape}, node)
    return None if before is None else r.emit(_PERMUTE, (x,), {"axes": axes}, node)


def _broadcast_to(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    x, shape = inputs[0], node.avals[0].shape
    if r.avals[x].shape == shape:
        return x
    before = inner(r, node, x, "broadcast_to")
    return None if before is None else r.emit(BROADCAST_TO, before.inputs, {"shape": shape}, node)


def _slice(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    x, shape, p = inputs[0], node.avals[0].shape, node.params
    size = r.avals[x].shape
    whole = all(
        n == 0 or (slice_length(a, b, c) == n and (n == 1 or c == 1))
        for n, a, b, c in zip(size, p["starts"], p["stops"], p["steps"], strict=True)
    )
    if whole:
        return x if size == shape else r.emit(_RESHAPE, (x,), {"shape": shape}, node)
    before = inner(r, node, x, "slice")
    if before is None or before.params.get("shape") is not None:
        return None
    q = before.params
    starts, stops, steps = [], [], []
    for a1, c1, a2, b2, c2 in zip(q["starts"], q["steps"], p["starts"], p["stops"], p["steps"], strict=True):
        count = slice_length(a2, b2, c2)
        start, step = (a1 + a2 * c1, c1 * c2) if count else (0, 1)
        last = start + (count - 1) * step
        starts.append(start)
        steps.append(step)
        stops.append((last + 1 if step > 0 else last - 1) if count else start)
    params = {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)}
    return r.emit(_SLICE, before.inputs, params | ({"shape": shape} if p.get("shape") is not None else {}), node)


def _flip(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    x, axes = inputs[0], set(node.params["axes"])
    before = inner(r, node, x, "flip")
    if before is not None:
        x, axes = before.inputs[0], axes ^ set(before.params["axes"])
    axes = {a for a in axes if r.avals[x].shape[a] > 1}
    if not axes:
        return x
    return None if before is None else r.emit(_FLIP, (x,), {"axes": tuple(sorted(axes))}, node)


def _pad(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    return inputs[0] if r.avals[inputs[0]] == node.avals[0] else None


def _concat(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    """The concatenation of one tensor, or of all the parts that one split made."""
    if len(inputs) == 1:
        return inputs[0]
    made = inner(r, node, inputs[0], "split")
    if made is None or inputs != tuple(made.results) or made.params["axis"] != node.params["axis"]:
        return None
    return made.inputs[0]


def _split(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    return inputs[0] if len(node.avals) == 1 else None


def _broadcasting(r: Rewriter, node: Node, inputs: Inputs) -> int | None:
    """An elementwise node broadcasts its operands itself: what only repeats or adds leading axes before it goes.

    Leading axes of size 1 and repetitions stay where the result's shape comes from them.
    """
    goal = node.avals[0].shape
    operands = list(inputs)
    for k, x in enumerate(inputs):
        before = inner(r, node, x, "broadcast_to", "reshape")
        if before is None or (before.op is _RESHAPE and not _leads(r, before)):
            continue
        shapes = [r.avals[i].shape for i in operands]
        shapes[k] = r.avals[before.inputs[0]].shape
        try:
            if broadcast_shapes(*shapes) == goal:
                operands[k] = before.inputs[0]
        except ShapeError:
            continue
    if tuple(operands) == inputs:
        return None
    return r.emit(node.op, tuple(operands), node.params, node)


def _leads(r: Rewriter, reshape: Node) -> bool:
    """Whether a reshape only adds leading axes of size 1."""
    before, after = r.avals[reshape.inputs[0]].shape, reshape.avals[0].shape
    lead = len(after) - len(before)
    return lead >= 0 and after[lead:] == before and set(after[:lead]) <= {1}


RULES: dict[str, Rule] = {
    "reshape": _reshape,
    "permute": _permute,
    "broadcast_to": _broadcast_to,
    "slice": _slice,
    "flip": _flip,
    "pad": _pad,
    "concat": _concat,
    "split": _split,
    "detach": lambda r, node, inputs: inputs[0],
    **{op.name: _broadcasting for op in OPS.values() if op.broadcasts},
}


def merge_movement(graph: Graph) -> Graph:
    """The graph with fewer reshapes, permutations, broadcasts, slices, flips, pads, splits and concatenations, and without
    what keeps gradients apart."""
    return rewrite(graph, RULES)
