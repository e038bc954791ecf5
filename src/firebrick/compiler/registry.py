"""``register_kind``: a kind of kernels from outside of the compiler, or from one file of it.

The kinds of the compiler have a row in each of the tables that are written here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from firebrick.compiler.fusion.alone import CHECKS
from firebrick.compiler.kernel.naive import NAIVE, Naive
from firebrick.compiler.spec.faults import Fault
from firebrick.compiler.spec.interpret import INTERPRETERS
from firebrick.compiler.spec.kinds import KINDS, Kind
from firebrick.compiler.spec.text import SPECS
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
        OperandError: There is a kind of this name, or one with this specification.
    """
    if name in KINDS or spec.__name__ in SPECS:
        raise OperandError("a kind has a name of its own", f"{name} with {spec.__name__}", "choose another name")
    KINDS[name] = Kind(build)
    SPECS[spec.__name__] = spec
    INTERPRETERS[spec], NAIVE[spec], CHECKS[spec] = interpret, naive, check
