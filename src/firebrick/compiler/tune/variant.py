"""``KernelVariant``: a way to compute a specification. ``KernelProblem``: it with its sizes and a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

from firebrick.compiler.spec.base import problem as structure_and_sizes
from firebrick.ir import Graph

DEFAULT = "default"
"""Name of the variant that a target uses without tuning."""


@dataclass(frozen=True)
class KernelProblem:
    """What a kernel computes, and where.

    Attributes:
        kind: Kind of the specification, such as ``Contract``.
        structure: Hash of the specification without its sizes (``spec.key``).
        sizes: The sizes, strides and offsets (``spec.problem``).
        device: The device: model, features, driver, versions of libraries, and a hash of the sources that generate kernels.
        threads: Number of threads that may run a kernel; 1 for devices without threads of their own.
        text: Description for people.
    """

    kind: str
    structure: str
    sizes: tuple[int, ...]
    device: str
    threads: int = 1
    text: str = ""

    @cached_property
    def id(self) -> str:
        """Identifies exactly this problem."""
        parts = repr((self.kind, self.structure, self.sizes, self.device, self.threads))
        return blake2b(parts.encode(), digest_size=12).hexdigest()


def problem_of(body: Graph, spec: Any, device: str, threads: int = 1) -> KernelProblem:
    """The problem that a group of nodes is.

    Args:
        body: The group.
        spec: Its specification.
        device: As in ``KernelProblem``.
        threads: As in ``KernelProblem``.
    """
    structure, sizes = structure_and_sizes(spec)
    ops = " ".join(dict.fromkeys(n.op.name for n in body.nodes if n.op.name != "constant"))
    outputs = [body.avals[v] for v in body.outputs]
    text = f"{ops} {', '.join(map(str, body.inputs))} → {', '.join(map(str, outputs))}"
    return KernelProblem(type(spec).__name__, structure, sizes, device, threads, text)


def _always(problem: KernelProblem) -> bool:
    return True


@dataclass(frozen=True)
class KernelVariant:
    """A way to compute a specification.

    Attributes:
        name: Generator and parameters, such as ``mr=6 nr=32``; unique among the variants of a problem.
        order: Class of bits: variants of equal order combine the same numbers in the same order, so their results are equal in
            every bit.
        build: Makes its kernels.
        valid_for: Whether it may compute a problem. It is evaluated with the real problem at every use.
        cost_us: Estimated time, by which the search is ordered.
        exact: Whether sums of integers that are exact in the dtype have exact results, as those of all orders of plain sums
            have.
    """

    name: str
    order: str
    build: Callable[[], Any]
    valid_for: Callable[[KernelProblem], bool] = _always
    cost_us: float = 0.0
    exact: bool = True


Added = Callable[[Any, KernelProblem, KernelVariant], "list[KernelVariant]"]
_added: list[Added] = []


def add_variants(function: Added) -> Callable[[], None]:
    """Offer further variants for the problems of a kind.

    Args:
        function: Called with the specification, the problem and the default variant; returns the variants that it offers.

    Returns:
        A function that withdraws them.
    """
    _added.append(function)
    return lambda: _added.remove(function)


def added(spec: Any, problem: KernelProblem, default: KernelVariant) -> list[KernelVariant]:
    """The variants that ``add_variants`` offers for a problem."""
    return [v for function in _added for v in function(spec, problem, default)]
