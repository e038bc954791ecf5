"""Gradients of functions: ``value_and_grad``, ``grad``, ``vjp``. They nest to any order.

The first argument is what is differentiated: a tensor, a tree of tensors, or a module (or a tree with modules), whose
trainable parameters are tracked while the function runs. Gradients of tensors come back in the same structure, those of
modules as ``Gradients``, read with the parameters and, of a tree with modules and tensors, with these tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload
from weakref import ref

from firebrick.autodiff.backward import check_cotangent, check_real, filled, leading_to, reachable, run
from firebrick.autodiff.checkpoint import at_once, wanted_at_once
from firebrick.autodiff.distributed import reducer, reducing
from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import Node, choices, enabled, grad_mode, leaf_of, next_leaf_id, own_handle, region
from firebrick.core import trees
from firebrick.core.commit import Row, apply_rows, setter
from firebrick.core.duals import Dual
from firebrick.core.errors import DTypeError, GradientError, OperandError
from firebrick.core.hooks import hooks
from firebrick.core.journal import all_or_none, correct
from firebrick.core.levels import boxed
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor

if TYPE_CHECKING:
    from firebrick.autodiff.function_types import Differentiated

P = ParamSpec("P")
X = TypeVar("X", bound=Any)  # so that the parameter of a lambda is Any
A = TypeVar("A")

_owned: ContextVar[frozenset[int]] = ContextVar("firebrick_owned_leaves", default=frozenset())
_node, _slot, _storage = (setter(Tensor, s) for s in ("node", "slot", "storage"))
_active: set[int] = set()  # leaves of modules that some context is differentiating now


def _is_module(v: Any) -> bool:
    return hasattr(type(v), "trainable_parameters")  # a tensor makes an error with a remedy of one it lacks


def check_floating(name: str, t: Any) -> None:
    if not isinstance(t, Tensor):
        raise OperandError(
            "the first argument holds what is differentiated: tensors or modules",
            f"{name}: {type(t).__name__}",
            "pass other values as further arguments",
        )
    if not t.dtype.is_inexact:
        raise DTypeError("gradients need a floating or complex dtype", describe(name, t), "cast it: fb.astype(x, fb.float32)")


def leaf_on_top(t: Tensor) -> Node:
    """A leaf for a handle, which is not tracked by it yet; on top of a tensor that an outer gradient tracks, it passes its
    cotangent on to that tensor."""
    node = leaf_of(t)
    if t.node is not None:
        node.parents = ((t.node, t.slot),)
    return node


def track(t: Tensor) -> Node:
    """Make a handle a leaf on top of what it shows."""
    node = leaf_on_top(t)
    t.node, t.slot = node, 0
    return node


def is_argument(t: Tensor) -> bool:
    """Whether a tensor is a leaf that a running ``grad``, ``value_and_grad`` or ``vjp`` of this context tracks."""
    return t.node is not None and t.node.id in _owned.get()


def check_constants(where: str, grads: Gradients) -> None:
    """Raise GradientError inside a function that is differentiated, if gradients depend on what it is differentiated by: what
    ``where`` makes of them is a constant, and their part of the derivative would be missing."""
    for _, g in grads.items():
        data = g.storage.data
        if (g.node is not None and _owned.get()) or (type(data) is Dual and data.tangent is not None):
            raise GradientError(
                f"{where} is no operation that is differentiated",
                f"{describe('gradient', g)}, which depends on what the function around it is differentiated by",
                "compute new values by operations, such as p - lr * g of the tensors of a tree; or make the gradients "
                "constants: grads.change(lambda g: g.detach())",
            )


class Leaves:
    """The tracked leaves of one call, from ``track`` to ``restore``."""

    def __init__(self, argument: Any) -> None:
        self._leaves, self.spec = trees.flatten(argument, is_leaf=_is_module)
        self.given, self.empty = argument, not self._leaves
        self.modular = any(_is_module(v) for v in self._leaves)
        self.nodes: list[Node] = []
        self.tracked: list[Any] = []
        self._restore: list[tuple[Tensor, Node, Any, int]] = []  # parameters, their leaves, and what they showed before
        self._boxed: list[tuple[Tensor, Any, Any, Any, int]] = []  # parameters that show a storage of a level of ``vmap``
        self._restored = False
        self._modes: list[tuple[ContextVar[Any], Any]] = [(mode, mode.get()) for mode in (enabled, region, reducer, _owned)]

    def track(self) -> None:
        """Track the leaves. The caller must call ``restore`` too, also after an exception."""
        owned = _owned.get()
        self.tracked = [None] * len(self._leaves)
        leaves = [(i, v, _is_module(v)) for i, v in enumerate(self._leaves)]
        for i, v, module in sorted(leaves, key=lambda leaf: not leaf[2]) if self.modular else leaves:  # modules first
            if module:
                for name, p in v.trainable_parameters():
                    if p.node is not None and any(p.node is n for n in self.nodes):
                        continue  # of a module that occurs twice in the argument, or of two that share the parameter
                    if p.node is not None and p.node.id in _active and p.node.id not in owned:
                        raise GradientError(
                            "a module is differentiated by one thread at a time",
                            f"parameter {name} is being tracked elsewhere",
                            "give each thread its own copy with model.fork(device)",
                        )
                    own = boxed(p) if hooks.levels else p
                    if own is not p:
                        self._boxed.append((p, own.storage, p.storage, p.node, p.slot))
                        p.storage, p.node, p.slot = own.storage, None, 0
                    node = leaf_on_top(p)
                    self.nodes.append(node)  # restore finds it from now on
                    self._restore.append((p, node, p.node, p.slot))
                    _active.add(node.id)
                    p.node, p.slot = node, 0
                self.tracked[i] = v
                continue
            check_floating(f"argument leaf {i}", v)
            self.tracked[i] = t = boxed(own_handle(v))
            if not self.modular:
                self.nodes.append(track(t))
                continue
            # gradients come as ``Gradients``, which are read with the caller's handle and have one for each
            again = next((n for n in self.nodes if n is v.node or n.handle() is v), None)
            if again is None:
                v.leaf = t.leaf = v.leaf if v.leaf > 0 else next_leaf_id()
                again = track(t)
                again.handle = ref(v)
                self.nodes.append(again)
            t.node, t.slot = again, 0
        self.argument = trees.unflatten(self.spec, self.tracked)
        self.ids = frozenset(n.id for n in self.nodes)

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``fn`` of the tracked argument, recorded. After an exception, ``restore`` ends its modes."""
        _owned.set(_owned.get() | self.ids)  # until the end, as what is checkpointed runs again in the backward pass
        enabled.set(True)
        region.set(at_once(region.get()))
        reducer.set(None)
        result = fn(self.argument, *args, **kwargs)
        for mode, value in self._modes[:-1]:
            mode.set(value)
        return result

    def restore(self) -> None:
        """Give the parameters and the context back the tracking they had; also a second time, as an interrupt may end the
        first."""
        for mode, value in self._modes:
            mode.set(value)
        ids = {n.id for n in self.nodes}
        rows: list[Row] = []
        for p, own, node, slot in reversed(self._restore):
            # a parameter that the function rebound is as untracked afterwards as it was before
            if p.node is not None and (p.node.id in ids or (node is None and not self._restored)):
                rows += [(_node, p, node), (_slot, p, slot)]
            correct(p, "node", own, {"node": node, "slot": slot})
        for p, boxed_storage, storage, node, slot in reversed(self._boxed):
            if p.storage is boxed_storage:
                rows += [(_storage, p, storage), (_node, p, node), (_slot, p, slot)]
            correct(p, "storage", boxed_storage, {"storage": storage, "node": node, "slot": slot})
        apply_rows(rows)
        for n in self.nodes:
            n.closed = True
        _active.difference_update(ids)
        self._restored = True

    def within_another(self, nodes: list[Node]) -> bool:
        """Whether these nodes hold leaves that something outside this call tracks, so that the backward pass must be
        recorded too."""
        return any(n.op is None and (bool(n.parents) if n.id in self.ids else not (n.parents or n.closed)) for n in nodes)

    def collect(self, found: dict[Node, Tensor]) -> Any:
        """Gradients in the argument's structure, zeros where the result does not depend on a tensor."""
        if self.modular:
            return Gradients({n: g for n, g in found.items() if n.id in self.ids})
        out = []
        for node, t in zip(self.nodes, self.tracked, strict=True):
            g = found.get(node)
            out.append(filled(0.0, t.detach()) if g is None else g)
        return trees.unflatten(self.spec, out)


def _untracked(value: Any) -> Any:
    return trees.tree_map(lambda v: v._another() if isinstance(v, Tensor) else v, value)


@overload
def value_and_grad(
    fn: Callable[Concatenate[X, P], Tensor], *, has_aux: Literal[False] = False
) -> Differentiated[X, P, tuple[Tensor, Any], tuple[Tensor, Gradients], tuple[Tensor, X]]: ...
@overload
def value_and_grad(
    fn: Callable[Concatenate[X, P], tuple[Tensor, A]], *, has_aux: Literal[True]
) -> Differentiated[X, P, tuple[tuple[Tensor, A], Any], tuple[tuple[Tensor, A], Gradients], tuple[tuple[Tensor, A], X]]: ...
@overload
def value_and_grad(fn: Callable[..., Any], *, has_aux: bool) -> Callable[..., tuple[Any, Any]]: ...
@answers_arguments
def value_and_grad(fn: Callable[..., Any], *, has_aux: bool = False) -> Callable[..., tuple[Any, Any]]:
    """A function that returns ``(fn(...), gradients of it by the first argument)``.

    Args:
        fn: Returns a scalar tensor, or with ``has_aux`` a pair of one and anything else.
        has_aux: Whether ``fn`` returns such a pair.

    Raises:
        GradientError: The result is no scalar or does not depend on the first argument.

    Example:
        >>> import firebrick as fb
        >>> value, g = fb.value_and_grad(lambda w: fb.sum(w["a"] * w["b"]))({"a": fb.ones(2), "b": fb.ones(2) * 3.0})
        >>> value.item(), g["a"].tolist()
        (6.0, [3.0, 3.0])
    """

    return _value_and_grad_of("value_and_grad", fn, has_aux)


def _value_and_grad_of(where: str, fn: Callable[..., Any], has_aux: bool) -> Callable[..., tuple[Any, Any]]:
    check_function(where, fn)

    @wraps(fn)
    def wrapped(argument: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        leaves = Leaves(argument)
        return all_or_none(partial(_value_and_grad, leaves, fn, args, kwargs, has_aux), leaves.restore)

    return wrapped


def check_function(where: str, fn: Any) -> None:
    if not callable(fn):
        raise OperandError(
            f"{where} takes a function and returns one that computes gradients",
            describe("fn", fn) if isinstance(fn, Tensor) else type(fn).__name__,
            f"write the loss as a function: fb.{where}(lambda x: fb.sum(x**2))(x)",
            op=where,
        )


def nothing_to_differentiate(argument: Any) -> GradientError:
    """The error of an argument without tensors."""
    return GradientError(
        "the first argument holds what is differentiated: at least one tensor or module", f"argument {argument!r:.80}",
        "pass what the result is to be differentiated by as the first argument",
    )  # fmt: skip


def _scalar_remedy(loss: Any) -> str:
    """What to do about a result that is no scalar tensor."""
    if isinstance(loss, (tuple, list)):
        return "return (loss, auxiliary) and pass has_aux=True, or return the loss alone"
    if isinstance(loss, (int, float)):
        return "return the tensor itself, not its value (item(), float())"
    return "reduce it with fb.mean or fb.sum" if isinstance(loss, Tensor) else "return the loss"


def _value_and_grad(
    leaves: Leaves, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], has_aux: bool
) -> tuple[Any, Any]:  # fmt: skip
    if leaves.empty:
        raise nothing_to_differentiate(leaves.given)
    leaves.track()
    before = choices()
    result = leaves.run(fn, args, kwargs)
    if has_aux and not (isinstance(result, (tuple, list)) and len(result) == 2):
        raise GradientError(
            "with has_aux=True a function returns a pair, a scalar tensor and anything else",
            f"{len(result)} values" if isinstance(result, (tuple, list)) else type(result).__name__,
            "return (loss, None) where there is nothing else",
        )
    loss, aux = result if has_aux else (result, None)
    if not isinstance(loss, Tensor) or loss.size != 1:
        raise GradientError(
            "a function to differentiate returns a scalar tensor" + (" and auxiliary values" if has_aux else ""),
            describe("result", loss) if isinstance(loss, Tensor) else type(loss).__name__,
            _scalar_remedy(loss),
        )
    check_real(loss)
    constant_here = choices() != before and bool(leaves.nodes)
    if loss.node is None and not constant_here:
        raise GradientError(
            "the result must depend on the first argument",
            describe("result", loss) + ", untracked",
            "nothing that is trained was found: model.unfreeze() trains frozen parameters, and a weight is an nn.Parameter"
            if not leaves.nodes
            else "use the first argument in the function; comparisons, rounding and integer results have no gradient",
        )
    nodes = [] if loss.node is None else reachable(loss.node, leaves.ids)
    outer = leaves.within_another(nodes)
    if not (constant_here or any(n.id in leaves.ids for n in nodes)):
        raise GradientError(
            "the result must depend on the first argument",
            describe("result", loss),
            "use the first argument in the function, not a captured copy of it",
        )
    seed = {} if loss.node is None else {(loss.node.id, loss.slot): filled(1.0, loss.detach())}
    found = run(leading_to(leaves.ids, nodes), seed, outer, leaves.ids, last=not outer)
    if not outer:
        loss, aux = loss._another(), _untracked(aux)
    grads = leaves.collect(found)
    return ((loss, aux), grads) if has_aux else (loss, grads)


@overload
def grad(
    fn: Callable[Concatenate[X, P], Tensor], *, has_aux: Literal[False] = False
) -> Differentiated[X, P, Any, Gradients, X]: ...
@overload
def grad(
    fn: Callable[Concatenate[X, P], tuple[Tensor, A]], *, has_aux: Literal[True]
) -> Differentiated[X, P, tuple[Any, A], tuple[Gradients, A], tuple[X, A]]: ...
@overload
def grad(fn: Callable[..., Any], *, has_aux: bool) -> Callable[..., Any]: ...
@answers_arguments
def grad(fn: Callable[..., Any], *, has_aux: bool = False) -> Callable[..., Any]:
    """A function that returns the gradient of ``fn`` by its first argument (with ``has_aux``: and the auxiliary values).

    Args:
        fn: Function of a tensor, tree of tensors or module, and others; it returns a real scalar tensor.
        has_aux: Whether ``fn`` returns ``(value, auxiliary)``.

    Example:
        >>> import firebrick as fb
        >>> second = fb.grad(fb.grad(lambda x: x**3.0))
        >>> second(fb.asarray(2.0)).item()
        12.0
    """
    both = _value_and_grad_of("grad", fn, has_aux)

    @wraps(fn)
    def wrapped(argument: Any, *args: Any, **kwargs: Any) -> Any:
        value, grads = both(argument, *args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapped


def vjp(fn: Callable[..., Tensor], *primals: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
    """``fn(*primals)`` and the function from its cotangent to those of the primals (callable many times).

    Args:
        fn: Function of tensors that returns a tensor.
        *primals: Where to take the derivative.

    Example:
        >>> import firebrick as fb
        >>> y, pull = fb.vjp(lambda a, b: a * b, fb.asarray([2.0]), fb.asarray([5.0]))
        >>> [t.tolist() for t in pull(fb.ones(1))]
        [[5.0], [2.0]]
    """
    leaves = _primals("vjp", primals)
    return all_or_none(lambda: _pulled(fn, leaves))


def check_primals(name: str, primals: Any, shown: str = "primals") -> None:
    """Check that what is differentiated are floating tensors, and no modules."""
    for path, leaf in trees.leaves_with_paths(primals):
        if _is_module(leaf):
            raise OperandError(
                f"{name} takes tensors and trees of tensors", "a module", "use fb.value_and_grad for modules", op=name
            )
        check_floating(f"{shown}{path}", leaf)


def check_arguments(name: str, what: str, values: Any, remedy: str) -> None:
    """Check that the arguments of a function are given as a tuple or list, not one of them alone."""
    if not isinstance(values, tuple | list):
        raise OperandError(
            f"{name} takes {what} as a tuple, with an entry for each argument of the function",
            describe(what, values) if isinstance(values, Tensor) else f"{what}: {type(values).__name__}", remedy, op=name,
        )  # fmt: skip


def _primals(name: str, primals: tuple[Any, ...]) -> Leaves:
    leaves = Leaves(list(primals))
    if leaves.modular:
        raise OperandError(f"{name} takes tensors and trees of tensors", "a module", "use fb.value_and_grad for modules")
    leaves.track()
    return leaves


def _pulled(fn: Callable[..., Tensor], leaves: Leaves) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
    before = choices()
    with grad_mode(True), wanted_at_once(), reducing(None):
        out = fn(*leaves.argument)
    if not isinstance(out, Tensor):
        raise GradientError("a function to differentiate returns a tensor", type(out).__name__, "return one tensor")
    if out.node is None and choices() != before:

        def zero(cotangent: Tensor) -> tuple[Tensor, ...]:
            check_cotangent(out, cotangent)
            return tuple(leaves.collect({}))

        return out._another(), zero
    if out.node is None:
        raise GradientError("the result must depend on a primal", describe("result", out), "use the arguments of fn")
    root, slot, like = out.node, out.slot, out.detach()
    outer = leaves.within_another(reachable(root, leaves.ids))

    def pullback(cotangent: Tensor) -> tuple[Tensor, ...]:
        check_cotangent(like, cotangent)
        nodes = leading_to(leaves.ids, reachable(root, leaves.ids))  # again each time: another pass may have freed the graph
        found = run(nodes, {(root.id, slot): cotangent}, outer or cotangent.node is not None, leaves.ids)
        return tuple(leaves.collect(found))

    return (out if outer else out._another()), pullback
