"""The backward pass: from a result's cotangent to the gradients of its leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from firebrick.autodiff.anomaly import check_backward
from firebrick.autodiff.distributed import Reduce, reduced, reducing, reduction
from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.residuals import Memo, handle, strategy
from firebrick.autodiff.rules import cotangents_of, repeated, replays
from firebrick.autodiff.tape import Node, anomaly, grad_mode, make_leaf, own_handle, region
from firebrick.core.bind import bind
from firebrick.core.constants import constant
from firebrick.core.errors import DeviceMismatchError, DTypeError, GradientError, ShapeError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.levels import tracked_beneath
from firebrick.core.operands import check_operand, describe, not_a_tensor
from firebrick.core.tensor import Tensor
from firebrick.ops.elementwise import add
from firebrick.ops.movement import broadcast_to

sums: list[Callable[[Tensor, Tensor, Tensor], None]] = []
"""Called with two cotangents of one tensor and their sum. The first is of uses after those that the second is of."""


def filled(value: float, like: Tensor) -> Tensor:
    """A constant of a tensor's shape, dtype and device."""
    one: Tensor = constant(value, like.dtype, like.device)
    return broadcast_to(one, shape=like.shape) if like.shape else one


def require_grad(x: Tensor) -> Tensor:
    """Track ``x`` as a leaf; returns it.

    Raises:
        DTypeError: Only floating and complex tensors have gradients.
        GradientError: It is the result of tracked operations already.
    """
    if not x.dtype.is_inexact:
        raise DTypeError("gradients need a floating or complex dtype", describe("x", x), "cast it: fb.astype(x, fb.float32)")
    if x.node is None:
        make_leaf(x).lasting = True
    elif x.node.op is not None:
        raise GradientError(
            "a leaf is no result of tracked operations",
            describe("x", x),
            "use x.detach().require_grad() for a new leaf",
        )
    return x


def attach(x: Tensor) -> Tensor:
    """A tracked leaf with the values of ``x``, which is not changed: the inverse of ``x.detach()``.

    Integer and bool tensors carry no gradient and are returned as they are.

    Args:
        x: Tensor.

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray(3.0)
        >>> y = fb.attach(x)
        >>> y.tracked, x.tracked, fb.backward(y * y)[y].item()
        (True, False, 6.0)
    """
    check_operand("attach", x)
    if x.dtype.kind in ("int", "uint", "bool"):
        return x
    check_operand("attach", x, "inexact")
    return require_grad(x.detach())


def register_hook(x: Tensor, fn: Callable[[Tensor], Tensor | None]) -> None:
    """Call ``fn`` with the cotangent of ``x`` in every backward pass; what it returns (if not None) replaces it.

    Args:
        x: Tracked tensor.
        fn: Function of a cotangent of its shape and dtype.

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray(3.0).require_grad()
        >>> fb.register_hook(x, lambda g: g * 10.0)
        >>> fb.backward(x * x)[x].item()
        60.0
    """
    if x.node is None:
        raise GradientError("a hook needs a tracked tensor", describe("x", x), "call x.require_grad() first")
    if x.slot:
        raise GradientError("a hook needs the first result of an operation", describe("x", x), "hook a later tensor")
    trace = hooks.trace()
    if trace is not None and trace.parent is not None:
        raise UnsupportedError(
            "a hook inside the branches and bodies of fb.cond, fb.while_loop and fb.scan is not run under jit",
            f"{describe('x', x)} in {trace.name}",
            "hook what goes in or comes out, or do this part outside jit",
        )
    x.node.hooks.append(fn)


def reachable(root: Node, stop: frozenset[int] = frozenset()) -> list[Node]:
    """Nodes reachable from ``root`` without passing those of ``stop``, newest first.

    Raises:
        GradientError: Part of the graph was freed.
    """
    seen = {root.id: root}
    left = [root]
    while left:
        node = left.pop()
        if node.id in stop:
            continue
        for p in node.parents:
            if p is not None and p[0].id not in seen:
                seen[p[0].id] = p[0]
                left.append(p[0])
    out = [seen[i] for i in sorted(seen, reverse=True)]
    for node in out:
        if node.freed:
            raise GradientError(
                "this graph was freed by an earlier backward pass",
                f"a result of {node.op.shown if node.op else 'a leaf'}, {node.out_avals[0]}",
                "pass retain_graph=True to the earlier backward pass, run the forward pass again, or keep x.detach() of a "
                "tensor that must outlive its step",
            )
    return out


def leading_to(leaves: frozenset[int], nodes: list[Node]) -> list[Node]:
    """The nodes, newest first, from which a backward pass comes to a leaf of ``leaves``. The gradients of these leaves need no
    others: what a function captured has a graph of its own, which an outer pass runs through."""
    leading = set(leaves)
    kept = []
    for node in reversed(nodes):  # operands first
        if node.id in leading:
            kept.append(node)
            continue
        for p in node.parents:
            if p is not None and p[0].id in leading:
                leading.add(node.id)
                kept.append(node)
                break
    kept.reverse()
    return kept


def leaves_early(nodes: list[Node]) -> list[Node]:
    """The nodes of a backward pass, newest first, but each leaf directly after the last node that adds to its cotangent."""
    last = {p[0].id: i for i, n in enumerate(nodes) for p in n.parents if p is not None}
    order = [(last.get(n.id, i) if n.op is None else i, n.op is None, i) for i, n in enumerate(nodes)]
    return [nodes[i] for *_, i in sorted(order)]


def _free(node: Node) -> None:
    """Free the residuals of a node, which no later backward pass may use."""
    if node.op is not None:
        node.freed = True
        node.inputs = node.outputs = node.recipes = ()


def backward(
    result: Tensor, cotangent: Tensor | None = None, *, retain_graph: bool = False, create_graph: bool = False
) -> Gradients:
    """Gradients of a scalar (or, with a cotangent, of its inner product with ``result``) for every leaf it depends on.

    Args:
        result: Tracked tensor; a scalar unless ``cotangent`` is given.
        cotangent: Of the result's shape, dtype and device.
        retain_graph: Keep the graph for another backward pass.
        create_graph: Record the backward pass itself, for higher derivatives (implies ``retain_graph``).

    Raises:
        GradientError: The result is untracked, no scalar, or its graph was freed.

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray(2.0).require_grad()
        >>> fb.backward(x**3.0)[x].item()
        12.0
    """
    if result.node is None:
        raise GradientError(
            "a backward pass starts at a tracked result",
            describe("result", result),
            "track its inputs with x.require_grad() or fb.value_and_grad, outside fb.no_grad()",
        )
    if cotangent is None:
        if result.size != 1:
            raise GradientError(
                "a backward pass starts at a scalar, or needs a cotangent",
                describe("result", result),
                "reduce it with fb.sum or fb.mean, or pass cotangent=",
            )
        check_real(result)
        cotangent = filled(1.0, result.detach())
    check_cotangent(result, cotangent)
    nodes = reachable(result.node)
    return Gradients(
        run(nodes, {(result.node.id, result.slot): cotangent}, create_graph, last=not (retain_graph or create_graph))
    )


def check_real(result: Tensor) -> None:
    """Check that a scalar to differentiate is real: a complex one has no single gradient."""
    if result.dtype.kind == "complex":
        raise DTypeError(
            "a gradient is that of a real scalar", describe("result", result), "pass a cotangent, or make the result real"
        )


def check_cotangent(result: Tensor, cotangent: Any, names: tuple[str, str] = ("result", "cotangent")) -> None:
    """Check that a cotangent (or tangent) has its tensor's device, dtype and shape."""
    of, name = names
    if not isinstance(cotangent, Tensor):
        raise not_a_tensor("autodiff", name, cotangent, result.device.name)
    received = f"{describe(of, result)} and {describe(name, cotangent)}"
    if cotangent.device is not result.device:
        raise DeviceMismatchError(f"{name} must lie on the device of {of}", received, f'move it: {name}.to("{result.device}")')
    if cotangent.dtype is not result.dtype:
        raise DTypeError(f"{name} must have the dtype of {of}", received, f"cast it: fb.astype({name}, fb.{result.dtype})")
    if cotangent.shape != result.shape:
        raise ShapeError(f"{name} must have the shape of {of}", received, "reshape it")


def run(
    nodes: list[Node],
    cotangents: dict[tuple[int, int], Tensor],
    create_graph: bool,
    stop: frozenset[int] = frozenset(),
    last: bool = False,
) -> dict[Node, Tensor]:
    """Propagate cotangents through the nodes (newest first), not past those of ``stop``, nor to any other node; returns those
    of the leaves.

    In the ``last`` pass over these nodes, each frees its residuals as soon as its rule has run.
    """
    reduce = reduction()
    if reduce is not None:
        nodes = leaves_early(nodes)
    elif not (create_graph or anomaly.get()):  # operations of ``sums`` have no plan, and no function
        whole: dict[Node, Tensor] | None = replays.whole(nodes, cotangents, stop)
        if whole is not None:
            if last:
                for node in nodes:
                    _free(node)
            return whole
    found: dict[Node, Tensor] = {}
    cotangents = {at: own_handle(g) for at, g in cotangents.items()}  # hooks may change the caller's
    memo = Memo(nodes)
    numbers = frozenset(n.id for n in nodes)
    tokens = region.set(None), strategy.set("none")
    try:
        with grad_mode(create_graph or tracked_beneath()), reducing(None):  # gradients that rules and hooks take are their own
            for node in nodes:
                _step(node, cotangents, found, memo, create_graph, stop, reduce, numbers)
                memo.forget()
                if last:
                    _free(node)
    finally:
        region.reset(tokens[0])
        strategy.reset(tokens[1])
    return found


def _step(
    node: Node,
    cotangents: dict[tuple[int, int], Tensor],
    found: dict[Node, Tensor],
    memo: Memo,
    create_graph: bool,
    stop: frozenset[int],
    reduce: Reduce | None,
    numbers: frozenset[int],
) -> None:
    gs = [cotangents.pop((node.id, slot), None) for slot in range(len(node.out_avals))]
    if all(g is None for g in gs):
        return
    for fn in node.hooks:
        if gs[0] is not None:
            changed = fn(own_handle(gs[0]))
            if changed is not None:
                if not isinstance(changed, Tensor):
                    raise not_a_tensor("register_hook", "what the hook returns", changed, gs[0].device.name)
                if changed.aval != gs[0].aval or changed.device is not gs[0].device:
                    raise GradientError(
                        "a hook returns None or a cotangent like the one it got",
                        f"{describe('got', gs[0])} and {describe('returned', changed)}",
                        "keep shape, dtype and device",
                    )
                gs[0] = own_handle(changed)  # the hook may keep its handle and change it
    if node.op is None:
        assert gs[0] is not None
        if node.parents and node.id not in stop:  # a leaf made on top of a tensor that an outer gradient tracks
            _add(cotangents, node.parents[0], gs[0])
        else:
            g = own_handle(gs[0])
            found[node] = g if reduce is None else reduced(reduce, node.handle(), g)
        return
    needs = tuple([p is not None and p[0].id in numbers for p in node.parents])
    if create_graph:
        inputs = tuple(
            handle(v, memo, p[0] if p else None, p[1] if p else 0) for v, p in zip(node.inputs, node.parents, strict=False)
        )
        outputs = tuple(handle(v, memo, node if v.aval.dtype.is_inexact else None, i) for i, v in enumerate(node.outputs))
        results: Sequence[Any] = cotangents_of(node, gs, inputs, outputs, needs)
    else:
        results = repeated(node, gs, memo, needs)
    for i, (g, p) in enumerate(zip(results, node.parents, strict=True)):
        if g is None or p is None or not needs[i]:
            continue
        aval = node.in_avals[i]
        if anomaly.get():
            check_backward(node, i, g)
        if g.shape != aval.shape or g.dtype is not aval.dtype:
            raise GradientError(
                f"the gradient rule of {node.op.shown} must return {aval} for operand {i}",
                str(g.aval),
                "report this as a bug of the op's entry",
            )
        _add(cotangents, p, g)


def _add(cotangents: dict[tuple[int, int], Tensor], to: tuple[Node, int] | None, g: Tensor) -> None:
    assert to is not None
    key = (to[0].id, to[1])
    held = cotangents.get(key)
    if held is None:
        cotangents[key] = g
        return
    total = cotangents[key] = bind(add, (held, g), {})
    for summed in sums:
        summed(held, g, total)


hooks.methods["require_grad"] = require_grad
