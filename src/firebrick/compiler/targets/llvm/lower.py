"""From the body of a ``fused`` node to kernels, by its specification: ``EMIT`` has a generator for each kind.

Operands and results lie row by row. A kernel's name is a hash of its code, so that equal bodies are one kernel, whatever plan
they are part of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any
from weakref import WeakValueDictionary

from firebrick.compiler.fusion.facts import ALONE, COLUMNS, CONTRACT, MAP, ROWS
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.spec import kinds
from firebrick.compiler.spec.attention import Attention
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.convolution import FORWARD
from firebrick.compiler.spec.copy import Copy
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.elements import element, is_product, reduced_axes
from firebrick.compiler.spec.nest import Fold, Map, Row
from firebrick.compiler.spec.prefix import Prefix
from firebrick.compiler.spec.scatter import FEW as FEW_UPDATES
from firebrick.compiler.spec.scatter import Scatter
from firebrick.compiler.spec.sort import Sort
from firebrick.compiler.spec.window import Window, windows_of
from firebrick.compiler.targets.llvm import (
    attention_tiles,
    custom_kernels,
    loop_kernels,
    naive_form,
    pieces,
    prefix_kernels,
    products,
    scatter_kernels,
    sort_kernels,
    window_kernels,
)
from firebrick.compiler.targets.llvm.axes import split
from firebrick.compiler.targets.llvm.cpu_policy import MANY, MIDDLE, RANKED, SHORT
from firebrick.compiler.targets.llvm.lowered import Lowered
from firebrick.compiler.targets.llvm.sort_elements import MOST
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.ir import Graph, Node
from firebrick.ir.keys import key_of
from firebrick.scalar.expr import COMPLEX, load
from firebrick.scalar.storage import STORAGE, computed

FACTORS = 9
"""Up to so many factors, n, two products in float64 agree to the op table's 2 · (1 + √n) eps in any order: each rounds n - 1
times at most, by half an eps. Of more, that of equal ones may err by more, as the errors are alike."""

EMIT: dict[type, Callable[[Any, Sequence[Aval], Sequence[Aval], Target], Lowered]] = {
    Map: loop_kernels.lowered,
    Row: loop_kernels.lowered,
    Fold: loop_kernels.lowered,
    Contract: products.lowered,
    Attention: attention_tiles.lowered,
    Window: window_kernels.lowered,
    Scatter: scatter_kernels.lowered,
    Copy: pieces.lowered,
    Prefix: prefix_kernels.lowered,
    Sort: sort_kernels.lowered,
    Custom: custom_kernels.lowered,
}
"""Kind of specification → (the specification, the group's inputs, its results, target) → its kernels. Kinds without a row are
compiled from their naive form."""


LAPACK = "LAPACK computes it"
"""Why operations on matrices have no kernels."""


def kind_of(n: Node, operands: tuple[Aval, ...]) -> str:
    """How a node can be computed in kernels, one of ``facts.KINDS``; else why it cannot."""
    strange = [a.dtype.name for a in (*operands, *n.avals) if a.dtype.name not in STORAGE]
    kind = kinds.kind_of(n, operands)
    if strange and (not kind or not COMPLEX.keys() >= set(strange)):
        return f"no kernels of {strange[0]}"
    if not kind:
        empty = n.op.access is not None and n.op.access.refused([a.shape for a in operands], **n.params)
        return empty or ("several results" if len(n.avals) != 1 else "no scalar expression")
    if kind == "map" and n.op.access is not None:
        return MAP
    if kind not in ("map", "row"):
        refused = _REFUSED.get(kind, _no_elements)(n, operands)
        return refused or (CONTRACT if kind == "contract" and _grouped(n, operands) else ALONE)
    if len(n.avals) != 1:
        return "several results"
    found = MAP if kind == "map" else _reduced(n, operands)
    if found not in (MAP, ROWS, COLUMNS):
        return found
    try:
        made = element(n, [load(i, computed(a.dtype.name)) for i, a in enumerate(operands)], operands)
    except TypeError as e:
        return str(e)
    return found if made.dtype == computed(n.avals[0].dtype.name) else f"a result of dtype {made.dtype}"


def _grouped(n: Node, operands: Sequence[Aval]) -> bool:
    """Whether other nodes may follow a contraction in its group."""
    if n.op.facts is None:
        return True
    facts = n.op.facts(operands, n.avals, **n.params)
    return bool(facts["direction"] == FORWARD and facts["groups"] == 1)


def _reduced(n: Node, operands: Sequence[Aval]) -> str:
    """Along what a node reduces an operand of this shape; else why it has no kernel."""
    shape = operands[0].shape
    last = len(shape) - 1
    if prod(shape) == 0:
        return "no elements"
    axes = reduced_axes(n, len(shape))
    many = prod(shape[a] for a in axes) > FACTORS
    if many and n.avals[0].dtype.name == "float64" and is_product(n, operands):
        return "float64 products of many factors"
    if axes == (last,):
        if shape[last] < 2:
            return "rows of one element"
        if loop_kernels.in_rows(shape, axes) and (prod(shape[:-1]) >= loop_kernels.FEW or shape[last] < loop_kernels.LONG):
            return ROWS
    if "axes" not in n.params or not axes:
        return "few long rows" if axes == (last,) else f"along axes {axes}"
    return COLUMNS if split(shape, axes) else ROWS


def _no_contraction(n: Node, operands: Sequence[Aval]) -> str:
    x, y = operands
    if x.dtype.name not in products.DTYPES:
        return f"no contractions of {x.dtype.name}"
    return "" if prod(x.shape) and prod(y.shape) else "no elements"


def _no_attention(n: Node, operands: Sequence[Aval]) -> str:
    return "" if all(prod(a.shape) for a in operands[:-1]) else "no elements"


def _no_window(n: Node, operands: Sequence[Aval]) -> str:
    if operands[0].dtype.name not in products.DTYPES:
        return f"no windows of {operands[0].dtype.name}"
    assert n.op.facts is not None
    w = windows_of(n.op.facts(operands, n.avals, **n.params))
    if not all(prod(a.shape) for a in (*operands, *n.avals)):
        return "no elements"
    if prod(w.kernel) > window_kernels.MOST or prod(w.stride) > window_kernels.MOST:
        return f"windows of more than {window_kernels.MOST} elements"
    return "" if prod(w.image) < 1 << 31 and prod(w.places) < 1 << 31 else "images of 2³¹ elements"


def _no_scatter(n: Node, operands: Sequence[Aval]) -> str:
    x, at = operands[:2]
    assert n.op.facts is not None
    adds = n.op.facts(operands, n.avals, **n.params)["fold"] == "add"
    if adds and x.dtype.name in ("float64", "complex128") and at.size > FEW_UPDATES:
        return "float64 sums that may be of many updates, which nothing wider adds up"
    return "" if prod(x.shape) else "no elements"


def _no_copy(n: Node, operands: Sequence[Aval]) -> str:
    return "" if n.avals[0].size else "no elements"


def _no_sort(n: Node, operands: Sequence[Aval]) -> str:
    (x,), axis = operands, n.params["axis"]
    size = x.shape[axis]
    if size >= MOST:
        return f"sorts of {size} elements"
    short = RANKED < size < (MIDDLE if len(n.avals) == 1 else SHORT) and n.avals[0].shape == x.shape
    if short and x.size >= MANY and x.dtype.itemsize in (2, 4):
        return f"sorts of many lines of {size} elements, which the host computes faster"
    return _no_elements(n, operands)


def _no_elements(n: Node, operands: Sequence[Aval]) -> str:
    return "" if all(a.size for a in (*operands, *n.avals)) else "no elements"


_REFUSED: dict[str, Callable[[Node, Sequence[Aval]], str]] = {
    "contract": _no_contraction, "attention": _no_attention, "window": _no_window, "scatter": _no_scatter, "copy": _no_copy,
    "sort": _no_sort, "cholesky": lambda n, operands: LAPACK, "triangular_solve": lambda n, operands: LAPACK,
    "custom": lambda n, operands: "",
}  # fmt: skip
"""Kind of kernel → (node, operands) → why it has none; empty if it has. Kinds without a row have kernels unless an
array is empty."""


_lowered: WeakValueDictionary[Any, Lowered] = WeakValueDictionary()
kept: deque[Lowered] = deque(maxlen=256)
"""The kernels that were lowered last. A program that is traced again, after the one before was freed, finds them."""


def lower(body: Graph, target: Target) -> Lowered:
    """The kernels of a body, whose nodes are one group of ``fuse``; equal bodies have the same while these are alive."""
    lines = tuple(n.line for n in body.nodes if n.op.indexes is not None)  # which faults report
    key = key_of(body), lines, target, config.compiled_with
    found = _lowered.get(key)
    if found is None or found.doubt:  # a doubt names lines of all nodes
        spec, avals = kinds.spec_of(body), body.avals
        made = EMIT.get(type(spec), naive_form.lowered)(spec, body.inputs, [avals[v] for v in body.outputs], target)
        found = _lowered[key] = replace(made, doubt=doubt(body, spec))
        kept.append(found)
    return found
