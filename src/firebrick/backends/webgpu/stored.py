"""Launches of groups on disk: what ``lowering`` makes of a group, read by later processes in place of making it again.

An entry is found by the group's operations, shapes and parameters, by what was measured of the driver, by the settings that
compilers read and by the sources (``compiler.reuse``), so it holds what would be made now. What is refused is not stored. The
checks of a group are made anew, as they have lines of the user's program.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from firebrick.backends.webgpu.lowering import LoweredGroup, LoweredLaunch, lowered_body, lowered_view
from firebrick.backends.webgpu.probes import Measured
from firebrick.compiler import reuse
from firebrick.compiler.spec import kinds
from firebrick.compiler.spec.faults import FaultSite, sites_of
from firebrick.compiler.targets.wgsl.shader import Shader
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.dtypes import dtype
from firebrick.core.views import View
from firebrick.ir import Graph, Node
from firebrick.ir.encoding import encoded

KIND = "kernels of webgpu"
T = TypeVar("T")
_DAMAGED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def stored_body(body: Graph, driver: Measured) -> LoweredGroup:
    """As ``lowering.lowered_body`` without ``form_of``, with launches that an earlier process has stored."""

    def form() -> bytes | None:
        # no line or label changes a kernel
        nodes = [Node(n.op, n.inputs, n.params, n.first, n.avals, region=n.region) for n in body.nodes]
        found = encoded(Graph(body.inputs, nodes, body.outputs))
        return None if found is None else found[1]

    def sites() -> tuple[FaultSite, ...]:
        return sites_of(kinds.spec_of(body))

    return _stored(form, driver, lambda: lowered_body(body, driver), [body.avals[v] for v in body.outputs], sites)


def stored_view(view: View, source: Aval, result: Aval, driver: Measured) -> LoweredGroup:
    """As ``lowering.lowered_view``, with a launch that an earlier process has stored."""

    def form() -> bytes:
        return json.dumps(
            ["view", view.axes, view.offset, *source.shape, str(source.dtype), *result.shape, str(result.dtype)]
        ).encode()

    return _stored(form, driver, lambda: lowered_view(view, source, result, driver), [result], tuple)


def _stored(
    form_of: Callable[[], bytes | None], driver: Measured, lower: Callable[[], LoweredGroup], results: Sequence[Aval],
    sites: Callable[[], tuple[FaultSite, ...]],
) -> LoweredGroup:  # fmt: skip
    """The launches of a group, from its entry if there is one that is valid.

    Args:
        form_of: Gives what the group is known by; None if no other process can recognise it.
        driver: What is known of the driver.
        lower: Makes the launches.
        results: Shapes and dtypes of the group's results.
        sites: Gives the checks of its kernels.
    """
    form = form_of() if reuse.active() else None
    if form is None:
        return lower()
    form = hashlib.sha256(repr((driver, config.compiled_with)).encode()).digest() + form
    content = reuse.load(KIND, form, llvm=False)
    if content is not None:
        try:
            return _read(content, results, sites)
        except _DAMAGED:  # it is replaced
            pass
    made = lower()
    reuse.save(KIND, form, _written(made), llvm=False)
    return made


def _written(group: LoweredGroup) -> list[Any]:
    """A group in terms of JSON, but for its results and its checks, of which there is the number."""
    launches = [
        [
            s.shader.text, s.shader.access, s.shader.checks, s.shader.axes, s.shader.group, s.shader.scalars, s.shader.elements,
            s.shader.windows, s.shader.window, s.arrays, s.sizes, s.scalars, s.grid,
        ]
        for s in group.launches
    ]  # fmt: skip
    return [len(group.sites), [[a.dtype.name, *a.shape] for a in group.temporaries], launches]


def _read(content: Any, results: Sequence[Aval], sites: Callable[[], tuple[FaultSite, ...]]) -> LoweredGroup:
    """The group that ``_written`` gave.

    Raises:
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError: It is not of that form.
    """
    checks, temporaries, launches = content
    made = LoweredGroup(
        tuple([_launch(*row) for row in launches]),
        tuple(results),
        tuple([Aval(_all(int, shape), dtype(name)) for name, *shape in temporaries]),
        sites() if checks else (),
    )
    if len(made.sites) != checks:
        raise ValueError("other checks than the group has")
    return made


def _launch(
    text: Any, access: Any, checks: Any, axes: Any, group: Any, scalars: Any, elements: Any, windows: Any, window: Any,
    arrays: Any, sizes: Any, values: Any, grid: Any,
) -> LoweredLaunch:  # fmt: skip
    numbers = _all(int, [axes, group, elements, window])
    axes, group, elements, window = numbers
    (text,), access, (checks,), scalars = _all(str, [text]), _all(bool, access), _all(bool, [checks]), _all(str, scalars)
    shader = Shader(text, access, checks, axes, group, scalars, elements, _all(int, windows), window)
    return LoweredLaunch(shader, _all(int, arrays), _all(int, sizes), _all(int, values), _all(int, grid))


def _all(kind: type[T], values: Any) -> tuple[T, ...]:
    """Values of a type."""
    if type(values) is not list or any(type(v) is not kind for v in values):
        raise TypeError(f"a list of {kind.__name__}, not {values!r:.80}")
    return tuple(values)
