"""What a primitive operation is: the fields of one entry of the op table.

``firebrick.ops.table.register`` makes entries and refuses incomplete ones; ``core.bind`` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from firebrick.core.aval import Aval

KINDS: dict[str, frozenset[str]] = {
    "any": frozenset({"bool", "int", "uint", "float", "complex", "storage"}),
    "comparable": frozenset({"bool", "int", "uint", "float", "complex"}),
    "numeric": frozenset({"int", "uint", "float", "complex"}),
    "real": frozenset({"int", "uint", "float"}),
    "inexact": frozenset({"float", "complex"}),
    "floating": frozenset({"float"}),
    "complex": frozenset({"complex"}),
    "integer": frozenset({"int", "uint"}),
    "bits": frozenset({"bool", "int", "uint"}),
    "bool": frozenset({"bool"}),
}
KIND_TEXT = {
    "any": "any",
    "comparable": "a bool, integer, floating or complex",
    "numeric": "a numeric",
    "real": "a real-valued numeric",
    "inexact": "a floating or complex",
    "floating": "a floating",
    "complex": "a complex",
    "integer": "an integer",
    "bits": "an integer or the bool",
    "bool": "the bool",
}


@dataclass(frozen=True)
class Operand:
    """One operand: its ``name``, the dtype ``kind`` it takes, the ``group`` it promotes with, whether it repeats."""

    name: str
    kind: str
    group: str = ""
    variadic: bool = False


@dataclass(frozen=True, slots=True)
class MissingRule:
    """The rule of an operation that has a gradient, which nobody wrote: it raises.

    Attributes:
        refuse: Raises the error.
    """

    refuse: Callable[[Any, Any], Any]

    def __call__(self, cotangents: Any, r: Any) -> Any:
        return self.refuse(cotangents, r)


@dataclass(frozen=True)
class Nondifferentiable:
    """Replaces a ``vjp``: the reason why there is none."""

    reason: str


@dataclass
class Vjp:
    """The values that a ``vjp`` rule may read.

    Attributes:
        inputs: The operands, where the entry's residuals hold ``inputs`` (else empty).
        outputs: The results, where they hold ``outputs`` (else empty).
        avals: Shape and dtype of each operand.
        needs: Which operands need a cotangent; rules may return None for the others.
        params: The operation's parameters.
        given: Which results have a cotangent; those of the others are zeros.
        parents: Of each operand the node of the tape that made it, and its slot there; None where untracked.
        rounded: Whether inputs, outputs and cotangents are float32 here, and were rounded to half precision before.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    avals: tuple[Aval, ...]
    needs: tuple[bool, ...]
    params: dict[str, Any]
    given: tuple[bool, ...]
    parents: tuple[Any, ...]
    rounded: bool


@dataclass(frozen=True)
class Batching:
    """The values that a ``batch`` rule may read: an op of examples, some of whose operands have one value for each example.

    Attributes:
        op: The op.
        size: How many examples there are.
        operands: The operands; where ``mapped``, those of all examples, along a new first axis.
        mapped: Which operands differ from example to example.
        shapes: The shape of each operand of one example.
        params: The op's parameters for one example.
        each: ``(fn) -> results``: ``fn`` of one example's operands and parameters, for all examples; its results have the
            new first axis.
    """

    op: Op
    size: int
    operands: tuple[Any, ...]
    mapped: tuple[bool, ...]
    shapes: tuple[tuple[int, ...], ...]
    params: dict[str, Any]
    each: Callable[[Callable[..., Any]], Any]


@dataclass(frozen=True)
class Forward:
    """The values that a ``jvp`` rule may read: an op with a derivative in a direction.

    Attributes:
        op: The op.
        operands: The operands.
        tangents: Their tangents; None for zero.
        results: The results.
        params: The op's parameters.
        rounded: Whether these are float32 here, and were rounded to half precision before.
        each: ``(fn) -> tangents``: those of ``fn`` of the operands and parameters.
    """

    op: Op
    operands: tuple[Any, ...]
    tangents: tuple[Any, ...]
    results: tuple[Any, ...]
    params: dict[str, Any]
    rounded: bool
    each: Callable[[Callable[..., Any]], Any]


@dataclass(frozen=True)
class Cost:
    """Work of one call: floating-point operations, and bytes read and written at least."""

    flops: float
    bytes: float


@dataclass
class Sample:
    """One test case: operands as NumPy arrays, parameters, and whether a gradient check makes sense there.

    With ``edges``, signs of zeros are compared, and each part of a complex number that is not finite is compared by itself.
    """

    inputs: tuple[Any, ...]
    params: dict[str, Any] = field(default_factory=dict)
    grad_safe: bool = True
    name: str = ""
    edges: bool = False


def _no_value(operand: int, index: tuple[Any, ...], size: int) -> Any:
    raise LookupError("the index is the same whatever the operands hold")


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a result, for an entry's ``index_map``.

    Attributes:
        index: Its index, one number for each axis of the result; 0 for axes of size 1.
        along: The position along an axis of the first operand that is reduced, or read as a whole row.
        slot: Which result it is in.
        value: ``(operand, index, size)`` gives an operand's element as an index into ``size`` positions, counted from the
            front.
    """

    index: tuple[Any, ...]
    along: Callable[[int], Any]
    slot: int = 0
    value: Callable[[int, tuple[Any, ...], int], Any] = _no_value


@dataclass(frozen=True, slots=True)
class Access:
    """How an op reads elements of its operands elsewhere than at the position of its result's element.

    Attributes:
        element: ``(reader, operands, result, **params)`` gives the scalar expression of a result's element; see ``ops.access``.
        whole: ``(shapes, **params)`` gives the operands, by number, that are read at any position, and must be row-major in
            memory.
        refused: ``(shapes, **params)`` says why there is no such expression; empty if there is one, None if the op then has
            kernels of another kind.
        of_rows: ``(shapes, **params)`` says whether it picks one element of each row of the first operand.
        form: Where an element is neither an operand's nor a scalar expression of one of each: ``"position"`` for the sum of
            indices times strides, ``"random"`` for a word of Philox, ``"update"`` for an element and its one update.
        of: What a word, or an updated element, is computed by: ``(key, at, **params)`` or ``(old, new, **params)``.
    """

    element: Callable[..., Any]
    whole: Callable[..., tuple[int, ...]]
    refused: Callable[..., str | None]
    of_rows: Callable[..., bool] = lambda shapes, **params: False
    form: str = ""
    of: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class Laws:
    """Laws of an op that hold bit for bit on every engine, by which compilers simplify it.

    Attributes:
        neutral: The value of an operand with which the result is the other operand: of floats, and of integers and bools; None
            where there is none.
        sides: The operands, by number, that may be neutral.
        absorbing: The value of an operand that is the result whatever the other one is, of integers and bools; None for none.
        idempotent: Whether the result of two equal operands is that operand.
        of_equals: The result of two equal operands, integers or bools; None where there is none.
        involution: Whether the op, applied twice, gives its operand.
    """

    neutral: tuple[float | None, int | bool | None] = (None, None)
    sides: tuple[int, ...] = (0, 1)
    absorbing: int | bool | None = None
    idempotent: bool = False
    of_equals: int | bool | None = None
    involution: bool = False


@dataclass(frozen=True, eq=False)
class Op:
    """One primitive operation. Call it with tensors and keyword parameters: ``add(x1, x2)``.

    Attributes:
        name: Unique name.
        doc: One line: what it computes.
        operands: Names, kinds and promotion groups.
        infer: ``(*avals, **params) -> Aval | tuple of Aval``; raises ShapeError.
        reference: ``(*arrays, **params) -> array | tuple`` in NumPy.
        vjp: ``(cotangents, Vjp) -> tuple`` written with ops, or ``Nondifferentiable``.
        residuals: What ``vjp`` reads: any of ``"inputs"``, ``"outputs"``.
        samples: ``(rng, dtype) -> list of Sample``.
        cost: ``(in_avals, out_avals, params) -> Cost``.
        bound: ``"compute"`` or ``"memory"``.
        fusion: How a compiler may fuse it.
        tolerance: k in error ≤ k · eps(dtype) · scale.
        complex_tolerance: k for complex operands, whose error is measured as a modulus; ``tolerance`` by default. An entry
            gives its own where one complex operation is made of several real ones, each of which rounds.
        scale: ``"result"``: |result|; ``"operands"``: the same op on |operands|; ``"magnitude"``: the largest of the
            operands' elements; or a function of arrays and parameters like ``reference``, of several results as a tuple
            if they differ in it.
        dtypes: Names of the dtypes that ``samples`` accepts for the first group.
        view: For ops that only move elements: ``(x, slot, shape, **params)`` gives the ``core.views.View`` that result number
            ``slot``, of this shape, is of its operand's buffer, in which the operand's elements lie as the view ``x``; None if
            that needs a copy. An engine may return memory of such an operand.
        broadcasts: Whether operands broadcast (cotangents are then summed back by autodiff).
        decompose: The same function written with other ops, or None. ``register`` makes it compute half precision in float32.
        index_map: ``(element, shapes, **params)`` gives the index that is read of each operand, of these shapes, for an
            ``Element`` of a result; None if the indices depend on values in another way. See ``ops.index_maps``.
        one_step: Whether the gradient rule is one operation for each operand, which rounds once anyway. Rules of several
            steps compute half precision in float32 (see ``widens``).
        scalar: ``(*elements, **params)`` gives the scalar expression (``firebrick.scalar``) of a result's element, made of
            the operands' elements. For a ``fusion`` of ``"row"`` it holds ``reduce`` nodes, and takes ``count``, how many
            elements are reduced.
        complex_scalar: The same where an operand or the result is complex; each such element is a
            ``scalar.complex_numbers.Parts``. None if there is no such expression.
        discontinuous: Whether a small difference in an operand may change a result by a whole number.
        known_as: What users call it in errors of indices, of a kernel in all errors; its name by default.
        kind: The kind of kernel that computes it alone (``compiler.spec``); empty if there is none.
        facts: ``(operands, results, **params)`` gives what a specification of that kind needs to know, as keyword arguments.
        expand: ``(operands, results, **params)`` gives simpler ops that compilers fuse better, as a rule; None where there are
            none. See ``ops.expansions``.
        access: For ops that read elements elsewhere than at the position of their result's element.
        indexes: For ops that raise where an index lies outside its axis: ``(in_avals, params) -> {operand: size}``, the
            operands that hold indices, and the sizes of the axes that they index.
        partial: Whether it raises for some values of its operands other than indices, such as matrices without an inverse.
        control: For ops that run graphs, which are among their parameters: ``(backend, params, device) -> kernel`` compiles
            them, and the kernel takes and returns native arrays like ``Backend.execute``.
        reshapes: For views that have all elements of their operand in its order: whether the result may be written wherever the
            operand may. NumPy's broadcast arrays are read-only.
        transfers: Whether it moves its operand to another device, which no engine does alone.
        recomputes: Whether its results may be computed again from its operands by running it. Entries of the tape for a whole
            call, whose ``reference`` is not that call, or which draws or counts, keep their results.
        batch: ``(Batching) -> result or tuple of results`` computes the op for all examples of ``fb.vmap`` with other ops; its
            results have the examples as first axis. None, or a rule that returns None: it runs in a loop over the examples.
            ``register`` derives it for elementwise ops, and for those of one operand whose parameters of axes are known.
        jvp: ``(Forward) -> tangent or tuple of tangents`` of the results, written with ops; None for a tangent of zero. None,
            or a rule that returns None: the gradient rule is differentiated once more. ``register`` derives it for elementwise
            ops, and for those that are linear, whose gradient rules read no values.
        exact: For which operands every engine computes the same bits: ``"moved"``, any, and results are elements of operands,
            NaNs too; ``"all"``; ``"real"``, no complex ones; ``"integers"``, integers and bools; empty for none. Compilers
            compute such ops of constants.
        laws: By which compilers simplify it; None for none.
        program: For ops that are written in the kernel language: the ``KernelProgram`` that computes it; ``reference`` is its
            interpreter.
        differentiable: Whether there is a gradient rule.
        repeats: Whether the rule computes the same operations for all operands of the same shapes and dtypes, so that it may
            be traced and run as a program.
    """

    __jit_constant__ = True  # compiled functions compare it by identity, whatever its dicts of plans and kernels hold

    name: str
    doc: str
    operands: tuple[Operand, ...]
    infer: Callable[..., Any]
    reference: Callable[..., Any]
    vjp: Callable[[Any, Vjp], Sequence[Any]] | Nondifferentiable
    residuals: tuple[str, ...]
    samples: Callable[..., list[Sample]]
    cost: Callable[..., Cost]
    bound: str
    fusion: str
    tolerance: float
    complex_tolerance: float = -1.0
    scale: str | Callable[..., Any] = "result"
    dtypes: tuple[str, ...] = ()
    view: Callable[..., Any] | None = None
    broadcasts: bool = False
    decompose: Callable[..., Any] | None = None
    index_map: Callable[..., tuple[tuple[Any, ...], ...]] | None = None
    scalar: Callable[..., Any] | None = None
    complex_scalar: Callable[..., Any] | None = None
    discontinuous: bool = False
    access: Access | None = None
    known_as: str = ""
    kind: str = ""
    facts: Callable[..., dict[str, Any]] | None = None
    expand: Callable[..., Callable[..., tuple[int, ...]] | None] | None = None
    indexes: Callable[..., dict[int, int]] | None = None
    partial: bool = False
    control: Callable[..., Callable[..., Any]] | None = None
    one_step: bool = False
    reshapes: bool = False
    transfers: bool = False
    recomputes: bool = True
    batch: Callable[[Batching], Any] | None = None
    jvp: Callable[[Forward], Any] | None = None
    exact: str = ""
    laws: Laws | None = None
    program: Any = None
    differentiable: bool = field(init=False)
    repeats: bool = field(init=False)
    fast: dict[Any, Any] = field(default_factory=dict, repr=False)
    plans: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "differentiable", not isinstance(self.vjp, Nondifferentiable))
        # rules of one's own may read values, count or print
        ours = str(getattr(self.vjp, "__module__", "")).startswith("firebrick.ops.")
        object.__setattr__(self, "repeats", ours and self.control is None and self.program is None and not self.transfers)
        if self.complex_tolerance < 0:
            object.__setattr__(self, "complex_tolerance", self.tolerance)

    def __call__(self, *operands: Any, **params: Any) -> Any:
        from firebrick.core.bind import bind

        return bind(self, operands, params)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def shown(self) -> str:
        """The name that errors have: a kernel's own, where its entry has a longer one."""
        return self.known_as if self.program is not None and self.known_as else self.name

    @property
    def widens(self) -> bool:
        """Whether its gradient rule computes half precision in float32: one of elementwise steps,
        reductions or scans, and several."""
        return self.fusion in ("map", "row", "prefix") and not self.one_step and self.control is None

    def operand_names(self, count: int) -> list[str]:
        """A user's name for each of ``count`` operands: ``x1``, ``arrays[2]``."""
        if self.operands and self.operands[-1].variadic:
            fixed = len(self.operands) - 1
            last = self.operands[-1].name
            return [o.name for o in self.operands[:-1]] + [f"{last}[{i}]" for i in range(count - fixed)]
        return [o.name for o in self.operands[:count]]

    def operand(self, i: int) -> Operand:
        """The declaration of operand ``i``."""
        return self.operands[min(i, len(self.operands) - 1)]


def operands(spec: str) -> tuple[Operand, ...]:
    """Operand declarations from text: ``"condition:bool x1:any=T x2:any=T"``; ``*arrays:any=T`` repeats."""
    out = []
    for word in spec.split():
        name, _, kind = word.partition(":")
        kind, _, group = kind.partition("=")
        if kind not in KINDS:
            raise ValueError(f"operand {name!r}: kind must be one of {', '.join(KINDS)}, got {kind!r}")
        out.append(Operand(name.lstrip("*"), kind, group, name.startswith("*")))
    return tuple(out)
