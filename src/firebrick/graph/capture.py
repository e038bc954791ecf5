"""Tracing one call of a function: its graph, how its results are rebuilt, and the checks of what the trace changed.

The function runs once with traced values in the caller's own handles. A graph cannot repeat what the function changed besides
tensors, so that raises, and everything that the walk saw is put back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from firebrick.autodiff.tape import grad_enabled, grad_mode, own_handle
from firebrick.backends.handles import check_present
from firebrick.core.errors import StateChangedError, TraceError
from firebrick.core.hooks import hooks
from firebrick.core.lines import user_line
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.graph.arguments import Flat, for_trace
from firebrick.graph.call import Pulled, pull, split
from firebrick.graph.differences import differences
from firebrick.graph.entries import Entry
from firebrick.graph.making import Making
from firebrick.graph.outside import watched
from firebrick.graph.results import Results, moved, positions
from firebrick.graph.signature import Signature, moved_positions
from firebrick.graph.streams import process_generators
from firebrick.graph.trace import Trace, tracing
from firebrick.graph.traced import Traced
from firebrick.graph.undo import copies
from firebrick.graph.walk import Walk
from firebrick.ir.nested import nodes_in

Keep = Callable[[list[tuple[str, Any]], Walk], Walk]


def capture(
    signature: Signature, args: Any, kwargs: Any, flat: Flat, walk: Walk, key: tuple[Any, ...], keep: Keep
) -> tuple[Entry, Walk]:
    """Trace a function for the arguments of one call.

    Args:
        signature: The function.
        args: The call's arguments by position.
        kwargs: Those by name.
        flat: The arguments taken apart, with their names.
        walk: The walk through what the function captures.
        key: The key of the call, as ``signature.key_of`` makes it.
        keep: Keeps the walk from the arguments after a trace that began state.

    Returns:
        The entry, and the walk after the trace.

    Raises:
        TraceError: The function cannot be a graph; everything that the walk saw is as before.
    """
    name = signature.name
    tracked, ambient, shared = key[3:]
    # an argument that is captured too is traced as a tensor of its own, unless the key has it as shared
    twins = {} if shared else {id(t): _twin(t) for t in flat.tensors if id(t) in walk.ids}
    tensors = [twins.get(id(t), t) for t in flat.tensors]
    numbers: list[Weak] = []
    built = [_argument(signature, signature.named(i), v, numbers, twins) for i, v in enumerate(args)]
    keyed = {k: _argument(signature, k, kwargs[k], numbers, twins) for k in sorted(kwargs)}
    # also the containers among the arguments, those that the function sees
    seen = [("arguments", {signature.named(i): v for i, v in enumerate(built)}), ("keywords", keyed)]
    around = Walk([(name, signature.fn), *flat.objects], seen)
    check_present([*flat.tensors, *walk.tensors])
    back = copies(around)
    drawn = process_generators()
    pulled: Pulled | None = None
    residuals: list[int] = []
    try:
        with tracing(name) as trace:
            handles = _enter(trace, list(zip(flat.paths(), tensors, strict=True)), walk, tracked)
            # a tensor that is there twice, as an argument and captured, or as two arguments, has one leaf
            held = [*tensors, *walk.tensors]
            owned = tuple([i for i in tracked if handles[id(held[i])] == i])
            trace.streams = {id(g): len(flat.numbers) + i for i, g in enumerate(walk.streams)}
            known = len(trace.handles)
            with grad_mode(grad_enabled()), _watched(name, around, trace):
                result = signature.fn(*built, **keyed)
            if trace.refused is not None:
                raise trace.refused  # which the function has caught: its other way would be taken at each call
            for i, t in enumerate(trace.handles[known:], known):
                handles[id(t)] = i
            there = {id(v): i for i, v in enumerate(around.found[: around.ends[len(flat.objects)]])}
            results = Results(trace, handles, there)
            recipe = results.recipe(result)
            own = len(results.values)
            callbacks = [results.callback(*call) for call in trace.callbacks]
            calls = [how for how, _ in callbacks]
            changes = [(handles[id(t)], results.slot(number)) for t, number in trace.changed()]
            _check_arrays(name, trace, around)
            backward = None
            if tracked and callbacks:
                raise TraceError(
                    f"{name} passes values to callbacks (graph.tell), which a graph does only if no gradient flows through it",
                    "a call on tracked tensors",
                    "take the gradient inside the compiled function, or call it under fb.no_grad()",
                )
            if tracked:
                pulled = pull(trace, list(results.tracked.values()), trace.leaves)
                residuals, backward = split(trace, pulled)
        if process_generators() != drawn:
            raise StateChangedError(
                f"{name} takes random numbers of Python, NumPy or PyTorch, which a graph would keep as they were",
                f"the process's generator of random, numpy.random or torch has moved; called at {user_line()}",
                "draw with fb.random, or draw before the call and pass the numbers in",
            )
        after = _settle(name, walk, around, trace, known, partial(keep, flat.objects))
        if after is not walk:  # it finds the state that the trace has begun, and what follows it, at other positions
            owned = moved_positions(owned, len(flat.tensors), walk, after)
            again = partial(Walk, [(name, signature.fn), *flat.objects])
            recipe, *calls = _moved(name, [recipe, *calls], trace, [*tensors, *after.tensors], around, again)
        made = Making(name, trace, [*tensors, *after.tensors])
        if pulled is None or backward is None:
            program, linear = made.program(results.values, own, changes, callbacks=[slots for _, slots in callbacks]), None
        else:
            program, linear = made.linear(results, own, changes, pulled, residuals, backward, owned)
        if program.graph.nodes:
            program.executable()
    except BaseException:
        back()
        raise
    trace.forget()
    return Entry(program, linear, recipe, flat.named or [], after.key, ambient, tracked, bool(shared), calls), after


# before the function runs


def _argument(signature: Signature, name: str, v: Any, numbers: list[Weak], twins: dict[int, Tensor]) -> Any:
    return v if name in signature.static else for_trace(name, v, numbers, twins)


def _twin(t: Tensor) -> Tensor:
    """Another handle on a tensor."""
    made = own_handle(t)
    made.leaf = t.leaf
    return made


def _enter(trace: Trace, arguments: list[tuple[str, Tensor]], walk: Walk, tracked: tuple[int, ...]) -> dict[int, int]:
    """Make the call's handles inputs; returns the index of each."""
    handles: dict[int, int] = {}
    for i, (path, t) in enumerate([*arguments, *walk.leaves]):
        if id(t) in handles:
            trace.handles.append(t)  # keeps indices what they are at a call
            continue
        handles[id(t)] = i
        trace.enter(t, t.label or path, i in tracked)
    return handles


def _watched(name: str, walk: Walk, trace: Trace) -> AbstractContextManager[None]:
    """What raises where the function reads clocks, entropy or files, if its code may do so."""
    if not walk.outside:
        return nullcontext()

    def refuse(error: Exception) -> None:
        trace.refused = trace.refused or error

    return watched(name, refuse)


# after it


def _check_arrays(name: str, trace: Trace, walk: Walk) -> None:
    """Raise if a large NumPy array became a constant of the graph."""
    for path, big in walk.big:
        for n in nodes_in(trace.nodes):
            value = n.params.get("value")
            if n.op.name == "constant" and isinstance(value, np.ndarray) and value.nbytes == big.nbytes:
                raise TraceError(
                    f"{name} makes a tensor of a large NumPy array, which a graph would keep as it is now",
                    f"{path}: {big.dtype}{list(big.shape)}, at {n.line}",
                    f"make the tensor once, outside of the function: {path} = fb.asarray({path})",
                )


def _settle(name: str, walk: Walk, around: Walk, trace: Trace, known: int, keep: Callable[[Walk], Walk]) -> Walk:
    """The walk after the trace; raises if the function changed something that a graph cannot carry out."""
    made = {id(t) for t in trace.handles[known:]}
    if made:
        later, after = Walk.with_and_without(around.roots, around.shown)
    else:
        later, after = walk, Walk(around.roots, around.shown)
    leaked = [p for p, t in after.leaves if type(t.storage.data) is Traced]
    if leaked:
        raise StateChangedError(
            f"{name} keeps a tensor of its trace",
            f"{leaked[0]}, set at {_leak_line(after, leaked[0])}",
            "return the tensor instead; for state, change a tensor that is there before the call: x[...] = v, x += v, or "
            "an nn.Buffer of a module",
        )
    new = sorted(p for p, t in after.leaves if id(t) in made) if made else []
    changed = differences(around.key, after.key, lambda path: path in after.ties or _grown(path, new))
    if not changed and not made and not differences(around.key, after.key):
        changed = around.moved(after)
    if changed:
        names = [c.partition(": ")[0].rpartition(".")[2] for c in changed]
        lines = [f" (set at {trace.set_at[n]})" if n in trace.set_at else "" for n in names]
        raise StateChangedError(
            f"{name} changed something besides tensors while it was traced, which a graph would not repeat",
            "; ".join(c + at for c, at in zip(changed[:4], lines, strict=False)) + f"; called at {user_line()}",
            "do it outside of the function, or keep it in a 0-d tensor (a Buffer) that is changed by x += 1",
        )
    if made:
        hooks.version += 1
        later.version = hooks.version
        return keep(later)
    return walk


def _moved(
    name: str, recipes: list[tuple[Any, ...]], trace: Trace, tensors: list[Tensor], around: Walk, again: Callable[[], Walk]
) -> list[tuple[Any, ...]]:
    """Recipes whose positions are those of later calls, in which ``tensors`` are found."""
    first: dict[int, int] = {}
    for i, t in enumerate(tensors):
        first.setdefault(id(t), i)

    def handle(position: int) -> tuple[Any, ...]:
        t = trace.handles[position]
        now = first.get(id(t))
        return ("plain", t) if now is None else ("handle", now)  # a program holds state that no walk finds

    used = any(positions(r, "known") for r in recipes)
    later = {id(v): i for i, v in enumerate(again().found)} if used else {}

    def known(position: int) -> int:
        v = around.found[position]
        if id(v) not in later:
            raise StateChangedError(
                f"{name} returns an object that it held before it was traced, and holds no more",
                f"a {type(v).__name__}",
                "return its tensors, or do not replace it inside of the function",
            )
        return later[id(v)]

    return [moved(r, handle, known) for r in recipes]


def _grown(path: str, new: list[str]) -> bool:
    """Whether a difference is only that a container got state that began with this call, at one of these paths, sorted; or is
    the label of such a tensor."""
    at = bisect_left(new, path)  # what begins with the path follows it
    return (at < len(new) and new[at].startswith(path)) or (at > 0 and path == f"{new[at - 1]}.label")


def _leak_line(walk: Walk, path: str) -> str:
    data = next(t for p, t in walk.leaves if p == path).storage.data
    return str(data.line)
