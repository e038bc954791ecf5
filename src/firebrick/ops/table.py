"""The op table: ``register`` adds one complete entry; everything else in Firebrick is derived from the entries.

An entry is its NumPy reference, decorated with the rest of the declaration. ``register`` refuses an entry that lacks
anything, since checks, dispatch, gradients, conformance cases, gradient checks and documents all read it.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from firebrick.core.op import Nondifferentiable, Op, Operand, operands
from firebrick.core.precision import in_float32
from firebrick.ops import batch_rules, forward_rules
from firebrick.ops.index_maps import elementwise

OPS: dict[str, Op] = {}

_REQUIRED = (
    "operands",
    "infer",
    "vjp",
    "residuals",
    "samples",
    "cost",
    "bound",
    "fusion",
    "tolerance",
    "dtypes",
)
_OPTIONAL = (
    "complex_tolerance", "scale", "view", "broadcasts", "decompose", "index_map", "scalar", "complex_scalar", "discontinuous",
    "access", "known_as", "kind", "facts", "expand", "indexes", "partial", "control", "one_step",
    "reshapes", "transfers", "batch", "jvp", "exact", "laws",
)  # fmt: skip
_CHOICES = {
    "bound": ("compute", "memory"),
    "fusion": ("map", "row", "contract", "window", "scatter", "prefix", "sort", "search", "move", "opaque"),
    "scale": ("result", "operands", "magnitude"),
    "exact": ("moved", "all", "real", "integers", ""),
}


_KINDS = {
    "map": "map", "row": "row", "contract": "contract", "window": "window", "scatter": "scatter", "prefix": "prefix",
    "sort": "sort", "search": "search", "move": "copy",
}  # fmt: skip
"""The kind of kernel that an op of a fusion class has by default."""


class IncompleteOpError(TypeError):
    """An entry of the op table lacks a field, or gives one a meaning it cannot have."""


def register(**fields: Any) -> Callable[[Callable[..., Any]], Op]:
    """Declare an op by decorating its NumPy reference.

    Keyword Args: the fields of ``Op``; ``operands`` as text (see ``core.op.operands``); ``index_map`` is that of elementwise
    ops by default where ``fusion`` is ``"map"``, and ``exact`` is ``"moved"`` where it is ``"move"``; ``batch`` and ``jvp``
    are derived where that is possible (``ops.batch_rules``, ``ops.forward_rules``).

    Raises:
        IncompleteOpError: A field is missing, unknown or meaningless, or the name is taken.
    """

    def declare(reference: Callable[..., Any]) -> Op:
        name = reference.__name__.rstrip("_")
        doc = (reference.__doc__ or "").strip()
        problems = [f"{f} is missing" for f in _REQUIRED if f not in fields]
        problems += [f"{f} is no field of an op" for f in fields if f not in _REQUIRED + _OPTIONAL]
        if not doc:
            problems.append("the reference has no docstring")
        if name in OPS:
            problems.append("the name is taken")
        vjp = fields.get("vjp")
        if "vjp" in fields and not callable(vjp) and not (isinstance(vjp, Nondifferentiable) and vjp.reason):
            problems.append("vjp must be a rule, or Nondifferentiable with a reason")
        for f, choices in _CHOICES.items():
            if f in fields and fields[f] not in choices and not (f == "scale" and callable(fields[f])):
                problems.append(f"{f} must be one of {', '.join(choices)}, not {fields[f]!r}")
        if not set(fields.get("residuals", ())) <= {"inputs", "outputs"}:
            problems.append('residuals may hold "inputs" and "outputs"')
        if any(f in fields and not fields[f] >= 0 for f in ("tolerance", "complex_tolerance")):
            problems.append("tolerance must be ≥ 0, in units of the dtype's precision")
        if "dtypes" in fields and not fields["dtypes"]:
            problems.append("dtypes names no dtype to test")
        if problems:
            raise IncompleteOpError(f"op {name!r} cannot be registered: " + "; ".join(problems))
        if fields["fusion"] == "map":
            fields.setdefault("index_map", elementwise)
        if fields["fusion"] == "move" and not fields.get("transfers"):
            fields.setdefault("exact", "moved")
        fields.setdefault("kind", _KINDS.get(fields["fusion"], ""))
        declared: tuple[Operand, ...] = operands(fields["operands"])
        if "batch" not in fields:
            own = fields.get("index_map") is elementwise
            parameters = {p.name for p in signature(reference).parameters.values() if p.kind is p.KEYWORD_ONLY}
            fields["batch"] = batch_rules.derived(fields.get("broadcasts", False), own, len(declared), parameters)
        if "jvp" not in fields and callable(fields["vjp"]):
            own = fields.get("index_map") is elementwise or fields.get("broadcasts", False)
            fields["jvp"] = forward_rules.derived(fields["residuals"], own)
        made = {**fields, "operands": declared}
        if fields.get("decompose"):
            made["decompose"] = in_float32(fields["decompose"])
        op = Op(name=name, doc=doc, reference=reference, **made)
        OPS[name] = op
        return op

    return declare
