"""``fb.op``: operations of one's own, which become entries of the op table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from firebrick.compiler.kernel.language.annotations import ArrayType, ConstantType, NumberType
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.dtypes import dtype, float32
from firebrick.core.errors import FirebrickError, GradientError, OperandError
from firebrick.core.op import Cost, MissingRule, Op, Sample, Vjp
from firebrick.functions.kernels import Kernel, elementwise_of, operation
from firebrick.functions.user_functions import (
    batched,
    cases,
    check_fields,
    computed,
    cotangents,
    declared_operands,
    inferred,
    plain_case,
    tangents,
)
from firebrick.ir.graph import INTERNAL
from firebrick.ops.table import OPS, register

_BUILT_IN = frozenset(OPS)


class CustomOperation:
    """An operation that ``fb.op`` declares. Call it with tensors; keyword arguments are its parameters.

    Attributes:
        op: Its entry of the op table.
        kernel: That it is written as; None for a reference.
    """

    __jit_through__ = "_watched"

    def __init__(self, op: Op, kernel: Kernel | None, rules: tuple[Any, ...]) -> None:
        self.op, self.kernel = op, kernel
        self._watched = (op.name, kernel, *rules)  # what a compiled program depends on
        self.__name__, self.__doc__ = op.name, op.doc

    def __call__(self, *args: Any, **params: Any) -> Any:
        """The result, or results as a tuple."""
        if self.kernel is not None:
            try:
                _, operands, found = self.kernel.operation(*args, **params)
            except FirebrickError as e:  # of an argument, by the kernel's name
                raise _renamed(e, self.kernel.name, self.op.name) from e.__cause__
            return bind(self.op, operands, found)
        names = [o.name for o in self.op.operands]
        if len(args) != len(names) and not self.op.operands[-1].variadic:
            count = f"{len(names)} operand{'s' if len(names) != 1 else ''}"
            raise OperandError(f"{self.op.name} has {count}: {', '.join(names)}", str(len(args)), "pass these")
        return bind(self.op, args, params)

    def __repr__(self) -> str:
        return f"<operation {self.op.name}>"


def _renamed(e: FirebrickError, old: str, new: str) -> FirebrickError:
    """An error with another name for the operation, if it begins with its name."""
    if not e.expected.startswith((f"{old}:", f"{old} ")):
        return e
    return type(e)(new + e.expected[len(old) :], e.received, e.remedy, **{**e.context, "op": new})


def op(
    name: str,
    *,
    samples: Any,
    kernel: Kernel | None = None,
    infer: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    operands: str | None = None,
    dtypes: Sequence[str] | None = None,
    tolerance: float | None = None,
    batch: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    replace: bool = False,
) -> CustomOperation:
    """Declare a custom operation: an entry of the op table, with its checks, gradient and conformance cases.

    It is written either as a kernel, or as a reference in NumPy, which runs on the host on every engine.

    Args:
        name: Of the operation, an identifier that no other one has.
        samples: Test cases: a list, or a function of a NumPy generator and the name of a dtype that returns one. Each is a
            tuple of the arguments of a call, with NumPy arrays for tensors; or a pair of such a tuple and a dict of parameters.
        kernel: In the kernel language (``fb.kernel``). Its gradient is derived if it has no loops and no atomic operations.
        infer: ``(*operands, **params)`` gives the result's shape and dtype, as a pair or as an operand that has the same; of
            several results a list of these. Operands have ``shape`` and ``dtype``.
        reference: ``(*arrays, **params)`` computes the result, or a tuple of results, in NumPy. Half precision comes as
            float32, and in tests all floats as float64.
        vjp: ``(cotangent, *operands, **params)`` gives the cotangents of the operands, one or a tuple with None for those
            that are never differentiated, written with Firebrick's functions. The cotangent is a tuple where there are several
            results. Without a rule, gradients through the operation are an error, but for kernels without loops.
        operands: Names and kinds, as ``"x:floating=T y:floating=T"``: kinds are any, numeric, real, floating, inexact, integer,
            bool; operands with the same letter promote to one dtype. By default those of the reference's
            signature, of any kind.
        dtypes: Names of dtypes that ``samples`` makes cases of: float64 and float32 by default. A kernel has those of its
            annotations.
        tolerance: Error that engines may have, in units of the dtype's precision: 4 by default, 0 for kernels.
        batch: ``(mapped, *operands, **params)`` gives the results for all examples of ``fb.vmap``, written with Firebrick's
            functions: ``mapped`` says of each operand whether it has the examples as first axis, as each result must have
            them. None, or a rule that returns None, runs the operation in a loop over the examples.
        jvp: ``(tangents, *operands, **params)`` gives the tangents of the results in forward mode, written with Firebrick's
            functions: ``tangents`` are those of the operands, None where zero, and so are results that do not change. Without
            it, the gradient rule is differentiated once more.
        replace: Whether an operation that was declared before under this name is replaced.

    Returns:
        A function of tensors.

    Raises:
        OperandError: The name is taken, something is missing, or a field is not what it must be. Errors of the functions,
            when they are called, name the operation and the field too.

    Example:
        >>> import firebrick as fb
        >>> import numpy as np
        >>> cube = fb.op(
        ...     "cube",
        ...     infer=lambda x: x,
        ...     reference=lambda x: x**3,
        ...     vjp=lambda g, x: g * 3.0 * x * x,
        ...     samples=lambda rng, dtype: [(rng.normal(size=3).astype(dtype),)],
        ... )
        >>> fb.grad(lambda x: fb.sum(cube(x)))(fb.asarray([2.0])).tolist()
        [12.0]
    """
    if not isinstance(name, str):
        raise OperandError("fb.op: the name of an operation is a new identifier", repr(name)[:80], "pass a text")
    built_in = _BUILT_IN | INTERNAL.keys()  # operations of graphs, which passes know by name
    if not (name.isidentifier() and name.isascii()) or name in built_in or (name in OPS and not replace):
        what = "an operation of Firebrick" if name in built_in else "declared already" if name in OPS else "no identifier"
        remedy = "choose another name" + (", or pass replace=True" if what == "declared already" else "")
        raise OperandError("fb.op: the name of an operation is a new identifier", f"{name!r}, {what}", remedy)
    if (kernel is None) == (reference is None):
        raise OperandError(
            "fb.op: a kernel, or a reference in NumPy", "both" if kernel is not None else "neither", "pass one of them"
        )
    if kernel is not None and not isinstance(kernel, Kernel):
        raise OperandError("fb.op: kernel is a function that @fb.kernel decorates", repr(kernel)[:80], "decorate it")
    if kernel is None and infer is None:
        raise OperandError("fb.op: a shape rule", "no infer", "pass infer=lambda x: x if the result is like the operand x")
    if kernel is not None and infer is not None:
        raise OperandError("fb.op: a kernel has its own shape rule", "infer", "leave it out")
    if kernel is not None and (operands is not None or dtypes is not None):
        given = "operands" if operands is not None else "dtypes"
        raise OperandError("fb.op: a kernel's annotations have the names and dtypes of its operands", given, "leave it out")
    check_fields(
        name, {"infer": infer, "reference": reference, "vjp": vjp, "batch": batch, "jvp": jvp}, samples, dtypes, tolerance
    )
    before = OPS.pop(name, None)
    try:
        if kernel is not None:
            made = _of_kernel(name, kernel, vjp, samples, tolerance or 0.0)
            OPS[name] = made
        else:
            assert reference is not None
            assert infer is not None
            units = 4.0 if tolerance is None else tolerance
            of = tuple(dtypes or ("float64", "float32"))
            made = _of_reference(name, infer, reference, vjp, samples, operands, of, units)
        if batch is not None:
            OPS[name] = made = dataclasses.replace(made, fast={}, batch=partial(batched, name, batch))
        if jvp is not None:
            OPS[name] = made = dataclasses.replace(made, fast={}, jvp=partial(tangents, name, jvp))
        for of_dtype in made.dtypes:
            if not made.samples(np.random.default_rng(0), of_dtype):
                raise OperandError(f"fb.op: {name} has samples, by which it is tested", "none", "pass at least one")
    except BaseException:
        OPS.pop(name, None)
        if before is not None:
            OPS[name] = before
        raise
    return CustomOperation(made, kernel, (reference, infer, vjp, batch, jvp))


def _no_rule(name: str, cotangents: Any, r: Vjp) -> Any:
    raise GradientError(
        f"the gradient of {name} has a rule", "none: it was declared without vjp",
        "declare it with vjp=…, or detach its arguments: x.detach()", op=name,
    )  # fmt: skip


def _rule(name: str, vjp: Callable[..., Any], broadcasts: bool = False) -> Callable[..., Any]:
    """A user's gradient rule as one of the op table."""
    return lambda given, r: cotangents(name, vjp, given, r, broadcasts)


def _of_reference(
    name: str, infer: Callable[..., Any], reference: Callable[..., Any], vjp: Any, samples: Any, operands: str | None,
    dtypes: tuple[str, ...], tolerance: float,
) -> Op:  # fmt: skip
    text, found = declared_operands(name, operands, reference)

    def shape_rule(*avals: Aval, **params: Any) -> Any:
        return inferred(name, infer, avals, params)

    def run(*arrays: Any, **params: Any) -> Any:
        wanted = shape_rule(*(Aval(x.shape, dtype(x.dtype)) for x in arrays), **params)
        return computed(name, reference, arrays, params, wanted)

    run.__name__, run.__module__ = name, str(reference.__module__)
    run.__doc__ = (reference.__doc__ or f"{name}.").strip()
    made: Op = register(
        operands=text, infer=shape_rule, residuals=("inputs",),
        vjp=MissingRule(partial(_no_rule, name)) if vjp is None else _rule(name, vjp),
        samples=cases(name, samples, partial(plain_case, found)),
        cost=lambda ins, outs, params: Cost(0.0, float(sum(a.nbytes for a in (*ins, *outs)))), bound="memory", fusion="opaque",
        tolerance=tolerance, dtypes=dtypes,
    )(run)  # fmt: skip
    return made


def _of_kernel(name: str, kernel: Kernel, vjp: Any, samples: Any, tolerance: float) -> Op:
    signature = kernel.signature
    constants = {n: signature.defaults.get(n) for n, p in signature.given.items() if isinstance(p, ConstantType)}

    def convert(arguments: tuple[Any, ...], named: dict[str, Any]) -> Sample:
        values = kernel.bound(arguments, named)
        inputs = []
        for n in kernel.operands:
            p = signature.given[n]
            of = p.dtype if isinstance(p, NumberType | ArrayType) and not isinstance(p.dtype, str) else None
            inputs.append(np.asarray(values[n], None if of is None else of.np))
        floats = [x.dtype for x in inputs if dtype(x.dtype).is_floating]
        inputs = [
            x.astype(floats[0] if floats else np.float32) if signature.given[n] == NumberType(None) else x
            for n, x in zip(kernel.operands, inputs, strict=True)
        ]
        statics = tuple((n, int(values[n])) for n in signature.static)
        params = {
            "statics": statics,
            "constants": tuple((n, values[n]) for n in constants), "captures": None,
        }  # fmt: skip
        program = kernel.program([dtype(x.dtype) for x in inputs] or [float32], params)
        program.sizes([x.shape for x in inputs], dict(statics))  # whose error is that of shapes which do not fit
        return Sample(tuple(inputs), params)

    made_cases = cases(name, samples, convert)
    first = made_cases(np.random.default_rng(0), "float32")
    if not first:
        raise OperandError(f"fb.op: {name} has samples, by which it is tested", "none", "pass at least one")
    program = kernel.program([dtype(x.dtype) for x in first[0].inputs] or [float32], first[0].params)
    made = operation(kernel, program, elementwise_of(program) is not None, name)
    found = dtype(first[0].inputs[0].dtype).name if first[0].inputs else "float32"
    reference = made.reference
    reference.__module__ = str(kernel.__module__)  # an entry that is not Firebrick's own is not kept on disk
    more: dict[str, Any] = {"vjp": _rule(name, vjp, made.broadcasts), "residuals": ("inputs",)} if vjp is not None else {}
    return dataclasses.replace(made, fast={}, name=name, samples=made_cases, dtypes=(found,), tolerance=tolerance, **more)
