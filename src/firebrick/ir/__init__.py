"""Programs as data: graphs of op nodes and their reference interpreter."""

from firebrick.ir.graph import Graph, Node, interpret

__all__ = ["Graph", "Node", "interpret"]
