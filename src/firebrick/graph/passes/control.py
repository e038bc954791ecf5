"""Dead code of control flow: unused results of loops and branches are removed, with the nodes that only they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from firebrick.graph.passes.dead import eliminate_dead_code, without_inputs
from firebrick.graph.passes.rewriter import Rewriter
from firebrick.ir import Graph, Node
from firebrick.ir.index_check import checked, raises


def prune_control(graph: Graph) -> Graph:
    """The graph whose branches and loops have used operands, carries and results only."""
    nodes = [n for n in graph.nodes if n.op.name in _RULES and n.op.control is not None]
    if not nodes:
        return graph
    used = {i for n in graph.nodes for i in n.inputs} | set(graph.outputs)
    r = Rewriter(graph)
    for node in graph.nodes:
        inputs = r.inputs(node)
        rule = _RULES.get(node.op.name) if node.op.control is not None else None
        wanted = [v in used for v in node.results]
        found = None if rule is None or not any(wanted) else rule(node, wanted)
        if found is None:
            r.keep(node, inputs)
            continue
        operands, results, params = found
        made = r.emit_all(node, tuple(inputs[i] for i in operands), params, tuple(node.avals[k] for k in results))
        at = dict(zip(results, made, strict=True))
        r.replace(node, *(at.get(k, -1) for k in range(len(node.avals))))
    return r.finish()


Found = tuple[Sequence[int], Sequence[int], dict[str, Any]]  # operands, results and parameters of the remaining node


def _live(graph: Graph, outputs: Iterable[int]) -> set[int]:
    """The inputs that some outputs, and checks, depend on."""
    wanted, avals = set(outputs), graph.avals
    for n in reversed(graph.nodes):
        if raises(n) or not wanted.isdisjoint(n.results):
            wanted.update(n.inputs)
        else:
            wanted.update(i for i, _ in checked(n, avals))
    return {i for i in wanted if i < len(graph.inputs)}


def _reduced(graph: Graph, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    """The graph with these inputs and outputs, by position."""
    whole = Graph(graph.inputs, graph.nodes, tuple(graph.outputs[k] for k in outputs), graph.names)
    return without_inputs(eliminate_dead_code(whole), list(inputs))


def _loop(body: Graph, consts: int, carries: int, first: int, outputs: set[int]) -> tuple[set[int], list[int]]:
    """The inputs and carries that a loop needs for these outputs of its body; outputs from ``first`` on are carries."""
    while True:
        inputs = _live(body, (body.outputs[k] for k in outputs))
        carry = {k for k in range(carries) if first + k in outputs or consts + k in inputs}
        more = {first + k for k in carry} - outputs
        if not more:
            return inputs | {consts + k for k in carry}, sorted(carry)
        outputs = outputs | more


def _scan(node: Node, wanted: Sequence[bool]) -> Found | None:
    p = node.params
    body, consts, carries = p["body"], p["consts"], p["carries"]
    results = [k for k, w in enumerate(wanted) if w]
    inputs, carry = _loop(body, consts, carries, 0, set(results))
    stay = sorted(inputs) or [0]  # an operation needs at least one operand
    results = sorted({*results, *carry})
    if len(stay) == len(body.inputs) and len(results) == len(wanted):
        return None
    params = {
        **p, "body": _reduced(body, stay, results), "consts": sum(i < consts for i in stay),
        "carries": sum(consts <= i < consts + carries for i in stay), "kept": 0,
    }  # fmt: skip
    if params["carries"] != len(carry):  # the one operand is an unused carry
        return None
    return stay, results, params


def _while_loop(node: Node, wanted: Sequence[bool]) -> Found | None:
    body, consts = node.params["body"], node.params["consts"]
    carries = len(body.inputs) - consts
    inputs, carry = _loop(body, consts, carries, 1, {0, *(1 + k for k, w in enumerate(wanted) if w)})
    stay = sorted(inputs)
    if len(stay) == len(body.inputs):
        return None
    shared = [i for i in stay if i < consts]
    params = {"body": _reduced(body, stay, [0, *(1 + k for k in carry)]), "consts": len(shared)}
    return [*shared, consts, *(consts + 1 + k for k in carry)], carry, params


def _cond(node: Node, wanted: Sequence[bool]) -> Found | None:
    branches = node.params["branches"]
    results = [k for k, w in enumerate(wanted) if w]
    stay = sorted({i for b in branches for i in _live(b, (b.outputs[k] for k in results))})
    if len(stay) == len(branches[0].inputs) and len(results) == len(wanted):
        return None
    params = {"branches": tuple(_reduced(b, stay, results) for b in branches)}
    return [0, *(1 + i for i in stay)], results, params


_RULES = {"scan": _scan, "while_loop": _while_loop, "cond": _cond}
