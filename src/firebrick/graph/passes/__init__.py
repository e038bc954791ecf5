"""Passes over graphs: each a pure function that returns a graph of the same values with fewer operations."""

from firebrick.graph.passes.algebra import simplify_algebra
from firebrick.graph.passes.casts import clean_casts
from firebrick.graph.passes.common import merge_common_subexpressions
from firebrick.graph.passes.control import prune_control
from firebrick.graph.passes.dead import eliminate_dead_code
from firebrick.graph.passes.fold import fold_constants
from firebrick.graph.passes.movement import merge_movement
from firebrick.graph.passes.pipeline import PASSES, optimize

__all__ = [
    "PASSES",
    "clean_casts",
    "eliminate_dead_code",
    "fold_constants",
    "merge_common_subexpressions",
    "merge_movement",
    "optimize",
    "prune_control",
    "simplify_algebra",
]
