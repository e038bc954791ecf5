"""``fb.custom_vjp`` and ``fb.custom_jvp``: functions with derivative rules of the user's own.

A call of such a function is one node of the tape, whose rule is the user's. ``Call`` has the function and its rules as
functions of flat lists of tensors. Inside ``fb.vmap`` a call is one of all examples, made of the mapped function and mapped
rules, so the rule is also the one that a gradient outside of ``vmap`` uses; inside ``fb.jvp`` its tangents are those of the
rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import numpy as np

from firebrick.autodiff.backward import filled
from firebrick.autodiff.batching import EXAMPLES, taken
from firebrick.autodiff.forward import DIRECTIONS, taken_apart
from firebrick.autodiff.linear import Linear, Tangents
from firebrick.autodiff.tape import grad_enabled, grad_mode, own_handle
from firebrick.autodiff.vmap import vmap
from firebrick.backends.handles import wrap
from firebrick.core import trees
from firebrick.core.aval import Aval
from firebrick.core.batched import batched
from firebrick.core.device import Device
from firebrick.core.dtypes import finfo
from firebrick.core.duals import Dual, dual
from firebrick.core.errors import GradientError, OperandError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.journal import Journal
from firebrick.core.levels import Level, enter, innermost_of, leave
from firebrick.core.op import Cost, Op, Operand, Vjp
from firebrick.core.storage import Absent
from firebrick.core.tensor import Tensor
from firebrick.ops.reduction import sum_

P = ParamSpec("P")
R = TypeVar("R")
Flat = list[Tensor]


@dataclass(frozen=True)
class Call:
    """A function with its rules, of flat lists of tensors.

    Attributes:
        name: The function's.
        run: From operands to results.
        forward: From operands to results, and tensors that ``backward`` reads; None without such a rule.
        backward: From these tensors and the cotangents of the results to those of the operands.
        tangent: From operands and tangents to the tangents of the results; None without such a rule.
        key: Equal for calls that compute the same.
        shape: Holds the structure of the results once the function has run.
        linear: For operands of which shapes and dtypes ``tangent`` was seen to be linear.
    """

    name: str
    run: Callable[[Flat], Flat]
    forward: Callable[[Flat], tuple[Flat, Flat]] | None = None
    backward: Callable[[Flat, Flat], list[Tensor | None]] | None = None
    tangent: Callable[[Flat, Tangents], list[Tensor | None]] | None = None
    key: Any = None
    shape: list[Any] = field(default_factory=list)
    linear: set[Any] = field(default_factory=set)


class _Staging:
    """A slot that ``graph.control.own_rules`` fills.

    Attributes:
        call: ``(call, operands, recorded)`` gives the results as a node of the running trace; None where the call needs none.
    """

    call: Callable[..., Flat | None] = staticmethod(lambda c, operands, recorded: None)


staging = _Staging()


def call(c: Call, operands: Flat) -> Flat:
    """The results of a function with rules of its own."""
    level = innermost_of(operands)
    recorded = grad_enabled() and any(t.node is not None for t in operands)
    if level is not None:
        if level.kind is EXAMPLES:
            results = _for_examples(c, level, operands)
        else:
            assert level.kind is DIRECTIONS
            results = _with_tangents(c, level, operands)
        if recorded:
            hooks.record(_op(c, [], results), tuple(operands), {}, tuple(results))
        return results
    if hooks.tracing and (staged := staging.call(c, operands, recorded)) is not None:
        return staged
    kept: list[Flat] = []
    results = _executed(c, operands, kept, recorded)
    if recorded:
        hooks.record(_op(c, kept, results), tuple(operands), {}, tuple(results))
    return results


def _executed(c: Call, operands: Flat, kept: list[Flat], recorded: bool) -> Flat:
    """The results, untracked; what ``backward`` reads is put into ``kept``."""
    plain = [t.detach() for t in operands]
    if c.forward is None or not recorded:
        found = c.run(plain)
    else:
        found, residuals = c.forward(plain)
        kept.append([t.detach() for t in residuals])
    for t in found:
        if t.node is not None or (type(t.storage.data) is Dual and t.storage.data.tangent is not None):
            raise refuse_captured(c.name)
    return [own_handle(t) for t in found]


def refuse_captured(name: str) -> GradientError:
    """The error of a function with a rule that captures what is differentiated."""
    return GradientError(
        f"{name} has a derivative rule of its own, which has derivatives by its arguments only",
        "a result that depends on a tensor that it captures and that is differentiated",
        "pass that tensor as an argument, or capture x.detach() where it counts as a constant", op=name,
    )  # fmt: skip


def _op(c: Call, kept: list[Flat], results: Flat) -> Op:
    """The operation that one call is for the tape."""
    avals = tuple(t.aval for t in results)

    def rule(cotangents: Any, r: Vjp) -> Sequence[Tensor | None]:
        given = list(cotangents) if isinstance(cotangents, tuple) else [cotangents]
        return cotangents_of_call(c, list(r.inputs), given, kept[0] if kept else None)

    def kernel(backend: Any, params: Any, device: Any) -> Callable[..., tuple[Any, ...]]:
        def run(*natives: Any) -> tuple[Any, ...]:
            given = [wrap(n, backend.describe(n), device) for n in natives]
            with grad_mode(False):
                return tuple(t.storage.data for t in c.run(given))

        return run

    def shapes(*operands: Any) -> Any:
        return avals  # a call is repeated for its own operands only

    def unused(*arrays: Any) -> Any:
        raise UnsupportedError(f"{c.name} has no reference in NumPy", "a call of it", "report this as a bug")

    return Op(
        name=c.name, doc="A function with a derivative rule of its own.", operands=(Operand("operands", "any", "", True),),
        infer=shapes, reference=unused, vjp=rule, residuals=("inputs",), samples=lambda rng, dtype: [],
        cost=lambda inputs, outputs, params: Cost(0.0, float(sum(a.nbytes for a in (*inputs, *outputs)))), bound="compute",
        fusion="opaque", tolerance=0, control=kernel, recomputes=False,
    )  # fmt: skip


def cotangents_of_call(c: Call, operands: Flat, cotangents: Flat, kept: Flat | None) -> Sequence[Tensor | None]:
    """The cotangents of the operands, by the rule; ``kept`` are the residuals of the call, where it kept them."""
    if c.backward is None:
        return _transposed(c, operands, cotangents)
    assert c.forward is not None
    recorded = grad_enabled() and any(t.node is not None for t in operands)
    residuals = kept if kept is not None and not recorded else c.forward(operands)[1]
    return c.backward(residuals, cotangents)


def _transposed(c: Call, operands: Flat, cotangents: Flat) -> list[Tensor | None]:
    """The cotangents of the operands by the rule of tangents, which is linear in them."""
    assert c.tangent is not None
    places = [i for i, t in enumerate(operands) if t.dtype.is_inexact]
    results: list[int] = []

    def along(*some: Tensor) -> list[Tensor]:
        tangents: list[Tensor | None] = [None] * len(operands)
        for i, t in zip(places, some, strict=True):
            tangents[i] = t
        assert c.tangent is not None
        found = c.tangent(operands, tangents)
        results[:] = [k for k, t in enumerate(found) if t is not None]
        return [t for t in found if t is not None]

    at = Linear(along, [filled(0.0, operands[i]._another()) for i in places])
    pulled = at.pull([cotangents[k] for k in results], recorded=True)
    if at.is_bent(pulled):
        raise _not_linear(c.name, "a tangent that is multiplied by a tangent, or a function of one, such as its sine")
    if not hooks.tracing and all(_is_there(t) for t in (*operands, *at.results)):
        _check_linear(c, operands, places, along, at.results)
    found: list[Tensor | None] = [None] * len(operands)
    for i, g in zip(places, pulled, strict=True):
        found[i] = g if grad_enabled() else g._another()
    return found


def _is_there(t: Tensor) -> bool:
    return not isinstance(t.storage.data, Absent) and t.device.engine != "meta"


_FACTOR = -1024.0
"""By which tangents are multiplied: a rule that cuts them off, or takes their magnitudes, gives something else then."""


def _check_linear(
    c: Call, operands: Flat, places: list[int], along: Callable[..., list[Tensor]], of_zeros: Sequence[Tensor]
) -> None:  # fmt: skip
    """Raise GradientError where values show that a rule of tangents is not linear: of zeros it is 0; and of multiples of the
    tangents it is the same multiple, up to rounding, which is looked at once for operands of each shape and dtype, not counting
    values that are not finite."""
    for t in of_zeros:
        given = hooks.to_host(t)
        if np.any((given != 0) & ~np.isnan(given)):
            raise _not_linear(c.name, "a tangent that is not 0 where all tangents of the arguments are")
    key = tuple(t.aval for t in operands)
    if key in c.linear:
        return
    both = []
    for factor in (1.0, _FACTOR):
        some = [
            hooks.from_host((factor * np.cos(1.0 + np.arange(x.size))).reshape(x.shape).astype(x.dtype.np), x.device)
            for x in (operands[i] for i in places)
        ]
        journal = Journal(draws=True)  # what the rule changes and draws counts once
        journal.enter()
        try:
            with grad_mode(False):
                both.append([hooks.to_host(t) for t in along(*some)])
        finally:
            journal.leave()
            journal.restore()
    if not all(_are_multiples(a, b) for a, b in zip(*both, strict=True)):
        raise _not_linear(c.name, f"a tangent that is not multiplied by {_FACTOR:g} where all tangents of the arguments are")
    if all(np.isfinite(t).all() for found in both for t in found):
        c.linear.add(key)


def _are_multiples(a: Any, b: Any) -> bool:
    """Whether an array is ``_FACTOR`` times another one where both are finite; engines may add up in any order, and flush
    denormal numbers."""
    limits, b = finfo(a.dtype), b / b.dtype.type(_FACTOR)
    known = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(known, a, 0), np.where(known, b, 0)
    bound = np.max(np.abs(a), initial=0.0) * float(limits.eps) ** 0.5 + float(limits.smallest_normal)
    return bool(np.all(np.abs(a - b) <= bound))


def _not_linear(name: str, received: str) -> GradientError:
    return GradientError(
        f"the rule of {name} is linear in the tangents, since gradients are its transpose", received,
        "compute the tangent of the result as a sum of tangents times factors that depend on the primals alone", op=name,
    )  # fmt: skip


def _with_tangents(c: Call, level: Level, operands: Flat) -> Flat:
    """The call inside ``fb.jvp``."""
    pairs = [taken_apart(t, level) for t in operands]
    values, tangents = [v for v, _ in pairs], [t for _, t in pairs]
    results = call(c, values)
    found: Sequence[Tensor | None] = [None] * len(results)
    if any(t is not None for t in tangents):
        token = enter(level.parent)
        try:
            if c.tangent is not None:
                found = c.tangent(values, tangents)
            else:
                places = [i for i, t in enumerate(tangents) if t is not None]
                found = Linear(partial(_of_some, c, values, places), [values[i] for i in places]).push(
                    [tangents[i] for i in places]
                )
        finally:
            leave(token)
    return [dual(level, y, t) if y.dtype.is_inexact else y for y, t in zip(results, found, strict=True)]


def _of_some(c: Call, operands: Flat, places: list[int], *some: Tensor) -> Flat:
    full = list(operands)
    for i, t in zip(places, some, strict=True):
        full[i] = t
    return call(c, full)


# examples


def _for_examples(c: Call, level: Level, operands: Flat) -> Flat:
    """The call inside ``fb.vmap``: one of the function and the rules of all examples."""
    pairs = [taken(t, level) for t in operands]
    mapped = [m for _, m in pairs]
    if not any(mapped):
        return [level.kind.box(level, t) for t in call(c, [v for v, _ in pairs])]
    token = enter(level.parent)
    try:
        results = call(mapped_call(c, mapped, level.size), [v for v, _ in pairs])
    finally:
        leave(token)
    return [batched(level, t) for t in results]


def mapped_call(c: Call, mapped: list[bool], size: int) -> Call:
    """A call of all examples."""
    axes = [0 if m else None for m in mapped]

    def backward(residuals: Flat, cotangents: Flat) -> list[Tensor | None]:
        assert c.backward is not None
        known: list[int] = []

        def of_one(residuals: Flat, cotangents: Flat) -> Flat:
            found = c.backward(residuals, cotangents)  # type: ignore[misc]
            known[:] = [i for i, g in enumerate(found) if g is not None]
            return [g for g in found if g is not None]

        rows = vmap(of_one)(residuals, cotangents)
        out: list[Tensor | None] = [None] * len(mapped)
        for i, g in zip(known, rows, strict=True):
            out[i] = g if mapped[i] else sum_(g, axes=(0,), keepdims=False)
        return out

    def tangent(operands: Flat, tangents: Tangents) -> list[Tensor | None]:
        given = [i for i, t in enumerate(tangents) if t is not None]
        along: list[Any] = [tangents[i] for i in given]
        known: list[int] = []

        def of_one(operands: Flat, some: Flat) -> Flat:
            whole: list[Tensor | None] = [None] * len(mapped)
            for i, t in zip(given, some, strict=True):
                whole[i] = t
            assert c.tangent is not None
            found = c.tangent(operands, whole)
            known[:] = [i for i, t in enumerate(found) if t is not None]
            results[:] = [len(found)]
            return [t for t in found if t is not None]

        results = [0]
        rows = vmap(of_one, in_axes=(axes, [0 if mapped[i] else None for i in given]))(operands, along)
        out: list[Tensor | None] = [None] * results[0]
        for i, t in zip(known, rows, strict=True):
            out[i] = t
        return out

    return replace(
        c,
        run=lambda operands: vmap(c.run, in_axes=(axes,))(operands),
        forward=None if c.forward is None else lambda operands: vmap(c.forward, in_axes=(axes,))(operands),  # type: ignore[arg-type]
        backward=None if c.backward is None else backward,
        tangent=None if c.tangent is None else tangent,
        key=("examples", size, tuple(mapped), c.key),
    )


# the public classes


class _Like(NamedTuple):
    """What the derivative of a tensor has in common with it."""

    aval: Aval
    device: Device


class _Taken:
    """Arguments or results taken apart: their tensors, and what is left.

    The tape holds it, so it holds no tensors itself once they are ``released``: a handle that lives is one that is kept.
    """

    def __init__(self, tree: Any) -> None:
        self.leaves, self.spec = trees.flatten(tree)
        self.places = [i for i, v in enumerate(self.leaves) if isinstance(v, Tensor)]
        self.tensors: Flat = [self.leaves[i] for i in self.places]
        self.like = [_Like(t.aval, t.device) for t in self.tensors]

    def released(self) -> Flat:
        """The tensors, which it holds no longer."""
        tensors, self.tensors = self.tensors, []
        for i in self.places:
            self.leaves[i] = None
        return tensors

    def with_tensors(self, tensors: Sequence[Any]) -> Any:
        """The tree with other tensors."""
        leaves = list(self.leaves)
        for i, t in zip(self.places, tensors, strict=True):
            leaves[i] = t
        return trees.unflatten(self.spec, leaves)

    def key(self) -> Any:
        """What the call depends on besides its tensors: plain values, and other objects by identity."""
        return self.spec, tuple(self.places), tuple((type(v), v) if type(v) in _PLAIN else id(v) for v in self.leaves)

    def with_only(self, values: Sequence[Any]) -> Any:
        """The tree with these in place of its tensors, and None in place of other values."""
        leaves: list[Any] = [None] * len(self.leaves)
        for i, t in zip(self.places, values, strict=True):
            leaves[i] = t
        return trees.unflatten(self.spec, leaves)


_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def _function(where: str, fn: Any) -> None:
    if not callable(fn):
        raise OperandError(f"{where} takes a function", type(fn).__name__, f"write fb.{where}(fn)", op=where)


def _results(name: str, out: Any) -> _Taken:
    """A function's results, all of them tensors."""
    found = _Taken(out)
    for i, v in enumerate(found.leaves):
        if not isinstance(v, Tensor):
            path = trees.leaves_with_paths(out)[i][0]
            raise GradientError(
                f"{name}, which has a derivative rule of its own, returns tensors",
                f"result{path}: {type(v).__name__}", "return tensors only", op=name,
            )  # fmt: skip
    return found


def _fitting(name: str, what: str, found: Sequence[Any], like: Sequence[_Like], remedy: str) -> None:
    """Check that derivatives have the shapes, dtypes and devices of their tensors."""
    for i, (t, x) in enumerate(zip(found, like, strict=True)):
        if t is None or not x.aval.dtype.is_inexact:
            continue
        if not isinstance(t, Tensor):
            raise GradientError(
                f"the rule of {name} returns tensors or None", f"{what} {i}: {type(t).__name__}", remedy, op=name
            )
        if t.aval != x.aval or t.device is not x.device:
            raise GradientError(
                f"the rule of {name} returns for {what} {i} a tensor like it, {x.aval} on {x.device}",
                f"{t.aval} on {t.device}", remedy, op=name,
            )  # fmt: skip


class custom_vjp(Generic[P, R]):
    """A function with a gradient rule of its own. Give the rule with ``defvjp``; call it as the function itself.

    The rule is used wherever the function is differentiated: inside and outside of ``vmap``, under ``jit``, in higher
    derivatives, where the rule itself is differentiated, and transposed for forward mode.

    Args:
        fn: Function of tensors, trees of them and other values, that returns a tensor or a tree of tensors.

    Example:
        >>> import firebrick as fb
        >>> @fb.custom_vjp
        ... def clipped(x):
        ...     return x * 1.0
        >>> clipped.defvjp(lambda x: (clipped(x), None), lambda residuals, g: (fb.clip(g, -1.0, 1.0),))
        >>> fb.grad(lambda x: fb.sum(clipped(x) * 5.0))(fb.ones(2)).tolist()
        [1.0, 1.0]
    """

    def __init__(self, fn: Callable[P, R]) -> None:
        _function("custom_vjp", fn)
        self.fn = fn
        self._forward: Callable[..., Any] | None = None
        self._backward: Callable[..., Any] | None = None
        update_wrapper(self, fn)

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Set the rule.

        Args:
            forward: Of the arguments of the function; returns what that returns, and residuals: a tree of what the backward
                rule needs.
            backward: ``(residuals, cotangents)`` gives a tuple with the cotangent of each argument, in its structure; None
                for one that has none. Cotangents have the structure of the result.
        """
        _function("custom_vjp.defvjp", forward)
        _function("custom_vjp.defvjp", backward)
        self._forward, self._backward = forward, backward

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        forward, backward = self._forward, self._backward
        if forward is None or backward is None:
            raise GradientError(
                f"{_name(self.fn)} has a gradient rule of its own", "none yet", "set it with .defvjp(forward, backward)"
            )
        if kwargs:
            raise OperandError(
                f"{_name(self.fn)}, which has a gradient rule of its own, takes arguments by position",
                ", ".join(kwargs), "pass them by position",
            )  # fmt: skip
        given, name = _Taken(args), _name(self.fn)
        tensors, likes = given.released(), [_Taken(a).like for a in args]
        fn: Callable[..., Any] = self.fn
        shape: list[_Taken] = []
        left: list[_Taken] = []

        def run(operands: Flat) -> Flat:
            shape[:] = [_results(name, fn(*given.with_tensors(operands)))]
            return shape[0].released()

        def first(operands: Flat) -> tuple[Flat, Flat]:
            pair = forward(*given.with_tensors(operands))
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise GradientError(
                    f"the forward rule of {name} returns a pair, the result and residuals", type(pair).__name__,
                    "return (result, None) where there are none", op=name,
                )  # fmt: skip
            shape[:] = [_results(name, pair[0])]
            left[:] = [_Taken(pair[1])]
            return shape[0].released(), left[0].released()

        def last(residuals: Flat, cotangents: Flat) -> list[Tensor | None]:
            found = backward(left[0].with_tensors(residuals), shape[0].with_tensors(cotangents))
            if not isinstance(found, tuple | list) or len(found) != len(likes):
                count = len(found) if isinstance(found, tuple | list) else type(found).__name__
                raise GradientError(
                    f"the backward rule of {name} returns a tuple of {len(likes)}, a cotangent or None for each argument",
                    str(count), "return (cotangent,) for one argument", op=name,
                )  # fmt: skip
            return _of_arguments(name, likes, found)

        found = call(Call(name, run, first, last, key=("vjp", id(self), given.key()), shape=shape), tensors)
        result: R = shape[0].with_tensors(found)
        return result


def _of_arguments(name: str, likes: Sequence[Sequence[_Like]], found: Sequence[Any]) -> list[Tensor | None]:
    """The cotangents of all tensors among the arguments."""
    out: list[Tensor | None] = []
    for i, (like, g) in enumerate(zip(likes, found, strict=True)):
        parts = [None] * len(like) if g is None else trees.flatten(g)[0]
        if len(parts) != len(like):
            raise GradientError(
                f"the backward rule of {name} returns for argument {i} its structure, of {len(like)} tensors",
                f"{len(parts)}", "return None for an argument without a cotangent", op=name,
            )  # fmt: skip
        _fitting(name, f"argument {i}, tensor", parts, like, "sum or reshape the cotangent")
        out += parts
    return out


class custom_jvp(Generic[P, R]):
    """A function with a rule of forward mode of its own. Give the rule with ``defjvp``; call it as the function itself.

    Gradients are computed by the transpose of the rule, which must be linear in the tangents. One that is not is refused, as
    far as its operations and, outside of ``jit`` and ``vmap``, values of a few tangents show it.

    Args:
        fn: Function of tensors, trees of them and other values, that returns a tensor or a tree of tensors.

    Example:
        >>> import firebrick as fb
        >>> @fb.custom_jvp
        ... def log1pexp(x):
        ...     return fb.log(1.0 + fb.exp(x))
        >>> log1pexp.defjvp(lambda primals, tangents: (log1pexp(*primals), tangents[0] * fb.sigmoid(primals[0])))
        >>> fb.grad(log1pexp)(fb.asarray(100.0)).item()
        1.0
    """

    def __init__(self, fn: Callable[P, R]) -> None:
        _function("custom_jvp", fn)
        self.fn = fn
        self._rule: Callable[..., Any] | None = None
        self._linear: set[Any] = set()
        update_wrapper(self, fn)

    def defjvp(self, rule: Callable[..., Any]) -> None:
        """Set the rule.

        Args:
            rule: ``(primals, tangents)``, both tuples like the arguments, gives the result and its tangent. The tangent of an
                argument that does not change is zeros; that of a value that is no floating tensor is None.
        """
        _function("custom_jvp.defjvp", rule)
        self._rule, self._linear = rule, set()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        rule = self._rule
        if rule is None:
            raise GradientError(f"{_name(self.fn)} has a rule of its own", "none yet", "set it with .defjvp(rule)")
        if kwargs:
            raise OperandError(
                f"{_name(self.fn)}, which has a rule of its own, takes arguments by position", ", ".join(kwargs),
                "pass them by position",
            )  # fmt: skip
        given, name = _Taken(args), _name(self.fn)
        tensors = given.released()
        fn: Callable[..., Any] = self.fn
        shape: list[_Taken] = []

        def run(operands: Flat) -> Flat:
            shape[:] = [_results(name, fn(*given.with_tensors(operands)))]
            return shape[0].released()

        def tangent(operands: Flat, along: Tangents) -> list[Tensor | None]:
            whole = [
                (filled(0.0, x._another()) if t is None else t) if x.dtype.is_inexact else None
                for x, t in zip(operands, along, strict=True)
            ]
            pair = rule(given.with_tensors(operands), given.with_only(whole))
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise GradientError(
                    f"the rule of {name} returns a pair, the result and its tangent", type(pair).__name__,
                    "return (result, tangent)", op=name,
                )  # fmt: skip
            results, found = _results(name, pair[0]), trees.flatten(pair[1])[0]
            if len(found) != len(results.like):
                raise GradientError(
                    f"the rule of {name} returns a tangent for each of {len(results.like)} results", str(len(found)),
                    "give the tangent the structure of the result", op=name,
                )  # fmt: skip
            _fitting(name, "result", found, results.like, "give the tangent the shape and dtype of the result")
            return list(found)

        found = call(
            Call(name, run, tangent=tangent, key=("jvp", id(self), given.key()), shape=shape, linear=self._linear), tensors
        )
        result: R = shape[0].with_tensors(found)
        return result


def _name(fn: Any) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))
