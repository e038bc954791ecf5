"""``launched``: a launch of a template, as one of the launches that a specification becomes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firebrick.compiler.naive.building import Buffer, NaiveLaunch
from firebrick.compiler.templates.template import Template, TemplateProblem
from firebrick.core.aval import Aval
from firebrick.scalar.capabilities import Capabilities

_ALIGNED = 16
"""The addresses of buffers are multiples of this, and of more."""


def launched(
    template: Template, arrays: Mapping[str, tuple[Buffer, Aval]], capabilities: Capabilities, **constants: Any
) -> NaiveLaunch | None:
    """A launch; None if the template does not compute all of it, or needs more than the target has.

    Args:
        template: The template.
        arrays: Buffer of each of its arrays, and the shape and dtype that the template is to see there.
        capabilities: Of the target.
        **constants: Its compile-time constants.
    """
    avals = {name: aval for name, (_, aval) in arrays.items()}
    problem = TemplateProblem(avals, {}, _ALIGNED, capabilities.shared_bytes)
    if constants[template.group] > capabilities.group_items or not template.valid_for(problem, **constants):
        return None
    program = template.program({name: a.dtype.name for name, a in avals.items()}, **constants)
    sizes = program.sizes([avals[name].shape for name in program.operands], {})
    function = program.translated.function
    if capabilities.buffers is not None and len(function.arrays) > capabilities.buffers:
        return None
    scalars = tuple(sizes.scalars[s.name] for s in function.scalars)
    return NaiveLaunch(function, tuple(arrays[a.name][0] for a in function.arrays), scalars, sizes.grid)
