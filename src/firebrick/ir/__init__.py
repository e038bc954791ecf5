"""Programs as data: graphs of op nodes, their reference interpreter, their verifier and their text forms."""

import firebrick.ops as _ops  # noqa: F401  before its parts
from firebrick.ir.graph import CONSTANT, INTERNAL, Graph, Node, interpret
from firebrick.ir.serialize import from_json, to_json
from firebrick.ir.verifier import verify_graph

__all__ = ["CONSTANT", "INTERNAL", "Graph", "Node", "from_json", "interpret", "to_json", "verify_graph"]
