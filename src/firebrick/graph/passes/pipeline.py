"""``optimize``: the passes in order, again and again until none finds anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.errors import GraphError
from firebrick.graph.passes.algebra import simplify_algebra
from firebrick.graph.passes.casts import clean_casts
from firebrick.graph.passes.common import merge_common_subexpressions
from firebrick.graph.passes.control import prune_control
from firebrick.graph.passes.dead import eliminate_dead_code
from firebrick.graph.passes.fold import fold_constants
from firebrick.graph.passes.inline import inline_rules
from firebrick.graph.passes.movement import merge_movement
from firebrick.ir import Graph, Node, verify_graph
from firebrick.ir.nested import map_graphs

Pass = Callable[[Graph], Graph]
PASSES: tuple[Pass, ...] = (
    eliminate_dead_code,
    prune_control,
    clean_casts,
    merge_movement,
    fold_constants,
    simplify_algebra,
    merge_common_subexpressions,
)
_ROUNDS = 8  # two or three are usual: what one pass finds lets another find more


def optimize(graph: Graph, verify: bool | None = None) -> Graph:
    """A graph that computes the same with fewer nodes; graphs inside it too.

    Args:
        graph: Program; it is not changed.
        verify: Whether to check the graph before and after every pass; ``config.verify_graphs`` by default.

    Returns:
        A graph of the same inputs and outputs; ``graph`` itself if there is nothing to do.

    Raises:
        GraphError: With ``verify``, if the graph, or what a pass made of it, is not well formed.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.core.aval import Aval
        >>> from firebrick.graph.passes import optimize
        >>> from firebrick.ir import Graph
        >>> g = Graph([Aval((2,), fb.float32)])
        >>> (y,) = g.add(fb.ops.OPS["negative"], 0)
        >>> g.outputs = g.add(fb.ops.OPS["negative"], y)
        >>> print(optimize(g))
        %0: float32[2]
        return %0
    """
    check = config.verify_graphs if verify is None else verify
    if check:
        verify_graph(graph)
    graph = inline_rules(graph)
    graph = prune_control(eliminate_dead_code(graph))  # from the outside in: what is not used there is not used inside
    graph = _inside(graph, lambda inner: optimize(inner, check))
    settled = 0
    for k in range(_ROUNDS * len(PASSES)):
        found = PASSES[k % len(PASSES)](graph)
        if check and found is not graph:
            verify_graph(found)
            _same_signature(graph, found, PASSES[k % len(PASSES)])
        settled = settled + 1 if found is graph else 0
        graph = found
        if settled == len(PASSES):
            break
    return graph


def _same_signature(before: Graph, after: Graph, by: Pass) -> None:
    """Raise GraphError unless a pass kept the inputs, their names and the outputs' shapes and dtypes."""
    for what, a, b in (
        ("inputs", before.inputs, after.inputs),
        ("names", before.names, after.names),
        ("outputs", _outputs(before), _outputs(after)),
    ):
        if a != b:
            received = f"{', '.join(map(str, b))} from {', '.join(map(str, a))}"
            raise GraphError(f"the pass {by.__name__} keeps a graph's {what}", received, "correct the pass")


def _outputs(graph: Graph) -> list[Aval]:
    avals = graph.avals
    return [avals[i] for i in graph.outputs]


def _inside(graph: Graph, change: Pass) -> Graph:
    """The graph with each graph in its nodes' parameters changed."""
    nodes: list[Node] = []
    for node in graph.nodes:
        params = map_graphs(node.params, change) if node.params else node.params
        nodes.append(node if params is node.params else replace(node, params=params))
    if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)):
        return graph
    return Graph(graph.inputs, nodes, graph.outputs, graph.names)
