"""``Repeats``: inside a trace, what is computed alike for many tensors is traced once for each kind of operands, then copied.

An optimizer computes the same operations for each of thousands of parameters, which have few shapes. Their nodes differ only
in the numbers of their values. So the nodes of the first parameter of a kind are kept, and appended again with other numbers,
without a call of the Python code or of ``bind``. The trace is the same, node by node, as if each had been computed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from firebrick.autodiff.tape import grad_enabled
from firebrick.core.aval import Aval
from firebrick.core.hooks import hooks
from firebrick.core.op import Op
from firebrick.core.tensor import Tensor
from firebrick.graph.trace import Trace, is_shared_constant
from firebrick.graph.traced import Traced
from firebrick.ir import Node

Compute = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True, slots=True)
class _Template:
    """The nodes of one computation. Its values have positions: the operands, values from outside, then results in order.

    Attributes:
        nodes: For each node: op, a function that takes its operands from the list of values, parameters, shapes and dtypes of
            its results, line.
        flows: For each node: which operands were tracked, which are none.
        avals: Of all results.
        outside: Numbers of values that are the same in each copy: constants.
        returned: Positions of the values that are returned.
        line: Where it was computed.
    """

    nodes: tuple[tuple[Op, Callable[[list[int]], tuple[int, ...]], dict[str, Any], tuple[Aval, ...], str | None], ...]
    flows: tuple[tuple[bool, ...], ...]
    avals: tuple[Aval, ...]
    outside: tuple[int, ...]
    returned: tuple[int, ...]
    line: str


class Repeats:
    """Computations of one call, each traced once for operands of the same kind.

    Attributes:
        traced: How many computations were traced, not copied.
    """

    def __init__(self) -> None:
        self._known: dict[Any, _Template] = {}
        self.traced = 0

    def __call__(self, key: Hashable, compute: Compute, operands: Sequence[Tensor]) -> Sequence[Tensor]:
        """``compute(*operands)``.

        Args:
            key: What else than its operands the computation depends on.
            compute: Computes untracked tensors by operations that depend on nothing of the operands but their shapes and
                dtypes, and changes no tensor.
            operands: Tensors.
        """
        trace: Trace | None = hooks.trace()
        numbers = None if trace is None else _numbers(trace, operands)
        if trace is None or numbers is None or grad_enabled():
            return compute(*operands)
        # operands that are one value: nodes do not tell which of the two they mean
        ties = () if len(set(numbers)) == len(numbers) else tuple([numbers.index(i) for i in numbers])
        kind = key, ties, trace.region, tuple([(t.dtype, t.shape) for t in operands])
        known = self._known.get(kind)
        if known is not None:
            return _copy(trace, known, operands, numbers)
        first, before = len(trace.nodes), _marks(trace)
        made = compute(*operands)
        self.traced += 1
        if _marks(trace) == before:
            found = _template(trace, first, numbers, made)
            if found is not None:
                self._known[kind] = found
        return made


def _numbers(trace: Trace, operands: Sequence[Tensor]) -> list[int] | None:
    """The numbers of tensors; None if one is tracked or no value of this trace itself."""
    found = []
    for t in operands:
        data = t.storage.data
        if type(data) is not Traced or data.trace is not trace or t.node is not None:
            return None
        found.append(data.number)
    return found


def _marks(trace: Trace) -> tuple[Any, ...]:
    """What a computation leaves as it is if it can be copied: it takes no inputs, keys or numbers, and asks for no checks."""
    draws = [(d.next, d.count) for d in trace.draws.values()]
    return len(trace.sources), len(trace.handles), len(trace.checks), len(trace.callbacks), draws


def _template(trace: Trace, first: int, numbers: list[int], made: Sequence[Tensor]) -> _Template | None:
    """The nodes from an index on, as a computation of the operands; None if they cannot be copied."""
    nodes = [n for n in trace.nodes[first:] if not is_shared_constant(n)]
    returned = _numbers(trace, made)
    if returned is None or any(n.op.control is not None for n in nodes):
        return None
    inside = [v for n in nodes for v in n.results]
    own = {*numbers, *inside}
    outside = dict.fromkeys(v for v in [*(i for n in nodes for i in n.inputs), *returned] if v not in own)
    at: dict[int, int] = {}
    for position, v in enumerate([*numbers, *outside, *inside]):
        at.setdefault(v, position)
    rows = [(n.op, _taking([at[i] for i in n.inputs]), n.params, n.avals, n.line) for n in nodes]
    return _Template(
        tuple(rows), tuple((False,) * len(n.inputs) for n in nodes), tuple(a for n in nodes for a in n.avals), tuple(outside),
        tuple(at[v] for v in returned), nodes[-1].line or "" if nodes else "",
    )  # fmt: skip


def _taking(positions: list[int]) -> Callable[[list[int]], tuple[int, ...]]:
    """A function that returns the items at these positions as a tuple."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda values: tuple([values[i] for i in positions])


def _copy(trace: Trace, template: _Template, operands: Sequence[Tensor], numbers: list[int]) -> list[Tensor]:
    """Append a template's nodes for these operands; returns what the computation would."""
    first = len(trace.avals)
    values = [*numbers, *template.outside, *range(first, first + len(template.avals))]
    trace.avals.extend(template.avals)
    trace.flows.extend(template.flows)
    append, region = trace.nodes.append, trace.region
    for op, take, params, avals, line in template.nodes:
        append(Node(op, take(values), params, first, avals, None, line, region))
        first += len(avals)
    device, given = operands[0].device, len(operands)
    return [operands[i] if i < given else trace.handle(values[i], device, template.line) for i in template.returned]
