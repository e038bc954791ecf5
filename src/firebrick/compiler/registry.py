"""``register_kind``: a kind of kernels from outside of the compiler, or from one file of it.

The kinds of the compiler have a row in each of the tables that are written here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from firebrick.compiler.fusion.alone import CHECKS
from firebrick.compiler.kernel.fault import Fault
from firebrick.compiler.naive import NAIVE, Naive
from firebrick.compiler.spec.evaluate import INTERPRETERS
from firebrick.compiler.spec.kinds import KINDS, Kind
from firebrick.compiler.spec.text import PARTS, SPECS
from firebrick.core.aval import Aval
from firebrick.core.errors import OperandError
from firebrick.ir import Graph, Node

Array = np.ndarray[Any, Any]


def register_kind(
    name: str,
    spec: type,
    *,
    build: Callable[[Graph], Any],
    check: Callable[[Graph, Node, Sequence[Aval]], dict[str, Any]],
    interpret: Callable[[Any, Sequence[Array], Sequence[Array]], Fault | None],
    naive: Callable[[Any], Naive],
) -> None:
    """Add a kind of kernels, each of which computes one node.

    Targets that have no generator for it compile its naive form.

    Args:
        name: The ``kind`` of the ops that it computes; they must have ``facts``.
        spec: Specification: a frozen dataclass with a property ``cost`` and a field ``sources``, the inputs that the node's
            operands are.
        build: The specification of a group of one node.
        check: What fields of the specification must be, from the node alone: a group whose specification differs is not
            compiled.
        interpret: Writes the results by NumPy, from flat inputs to flat results; gives the fault of its checks of indices.
        naive: The naive form of a specification.

    Raises:
        OperandError: There is a kind of this name, or one with this specification; or an argument is not what it must be.
    """
    functions = {"build": build, "check": check, "interpret": interpret, "naive": naive}
    if wrong := _wrong(name, spec, functions):
        raise OperandError("a kind has a name, a frozen dataclass with sources and cost, and four functions", *wrong)
    if name in KINDS or spec.__name__ in SPECS or spec.__name__ in PARTS:
        raise OperandError("a kind has a name of its own", f"{name} with {spec.__name__}", "choose another name")
    KINDS[name] = Kind(build)
    SPECS[spec.__name__] = spec
    INTERPRETERS[spec], NAIVE[spec], CHECKS[spec] = interpret, naive, check


def _wrong(name: Any, spec: Any, functions: dict[str, Any]) -> tuple[str, str] | None:
    """The argument that a kind cannot have, and what to do; None if there is none."""
    if not isinstance(name, str) or not name:  # ops without a kind have the name ""
        return f"name={name!r:.80}", "pass a text that is not empty"
    frozen = isinstance(spec, type) and is_dataclass(spec) and spec.__dataclass_params__.frozen  # type: ignore[attr-defined]
    names = {f.name for f in fields(spec)} if frozen else set()
    if "sources" not in names or not ("cost" in names or hasattr(spec, "cost")):
        return f"spec={spec!r:.80}", "pass the class of the specification"
    missing = [k for k, fn in functions.items() if not callable(fn)]
    return (f"{missing[0]}={functions[missing[0]]!r:.80}", "pass a function") if missing else None
