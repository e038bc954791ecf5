"""``fb.op``: operations of one's own, which become entries of the op table."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from firebrick.compiler.kernel.language.annotations import ArrayType, ConstantType, NumberType
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.dtypes import dtype, float32
from firebrick.core.errors import ExecutionError, GradientError, OperandError
from firebrick.core.op import Cost, MissingRule, Op, Sample, Vjp
from firebrick.core.tensor import Tensor
from firebrick.functions.kernels import Kernel, elementwise_of, operation
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
            _, operands, found = self.kernel.operation(*args, **params)
            return bind(self.op, operands, found)
        names = [o.name for o in self.op.operands]
        if len(args) != len(names) and not self.op.operands[-1].variadic:
            raise OperandError(f"{self.op.name} has {len(names)} operands: {', '.join(names)}", str(len(args)), "pass these")
        return bind(self.op, args, params)

    def __repr__(self) -> str:
        return f"<operation {self.op.name}>"


def op(
    name: str,
    *,
    samples: Any,
    kernel: Kernel | None = None,
    infer: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    vjp: Callable[..., Any] | None = None,
    operands: str | None = None,
    dtypes: Sequence[str] = ("float64", "float32"),
    tolerance: float | None = None,
    replace: bool = False,
) -> CustomOperation:
    """Declare an operation: an entry of the op table, which checks, dispatch, gradients, ``jit``, conformance and doctor know.

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
        dtypes: Names of dtypes that ``samples`` makes cases of.
        tolerance: Error that engines may have, in units of the dtype's precision: 4 by default, 0 for kernels.
        replace: Whether an operation that was declared before under this name is replaced.

    Returns:
        A function of tensors.

    Raises:
        OperandError: The name is taken, or something is missing.

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
    before = OPS.pop(name, None)
    try:
        if kernel is not None:
            made = _of_kernel(name, kernel, vjp, samples, tolerance or 0.0)
            OPS[name] = made
        else:
            assert reference is not None
            assert infer is not None
            units = 4.0 if tolerance is None else tolerance
            made = _of_reference(name, infer, reference, vjp, samples, operands, tuple(dtypes), units)
        if not made.samples(np.random.default_rng(0), (made.dtypes or ("float32",))[0]):
            raise OperandError(f"fb.op: {name} has samples, by which it is tested", "none", "pass at least one")
    except BaseException:
        OPS.pop(name, None)
        if before is not None:
            OPS[name] = before
        raise
    return CustomOperation(made, kernel, (reference, infer, vjp))


def _no_rule(name: str, cotangents: Any, r: Vjp) -> Any:
    raise GradientError(
        f"the gradient of {name} has a rule", "none: it was declared without vjp",
        "declare it with vjp=…, or detach its arguments: x.detach()", op=name,
    )  # fmt: skip


def _rule(name: str, vjp: Callable[..., Any]) -> Callable[..., Any]:
    """A user's gradient rule as one of the op table."""

    def rule(cotangents: Any, r: Vjp) -> Any:
        params = {k: v for k, v in r.params.items() if k not in ("statics", "constants", "captures")}
        params |= dict(r.params.get("statics", ())) | dict(r.params.get("constants", ()))
        found = vjp(cotangents, *r.inputs, **params)
        found = tuple(found) if isinstance(found, tuple | list) else (found,)
        if len(found) != len(r.inputs):
            raise GradientError(
                f"the gradient rule of {name} returns a cotangent, or None, for each of {len(r.inputs)} operands",
                str(len(found)), "return a tuple of as many",
            )  # fmt: skip
        for k, g in enumerate(found):
            if g is None and r.needs[k] and r.avals[k].dtype.is_inexact:
                raise GradientError(
                    f"the gradient rule of {name} gives the cotangent of each operand that is differentiated",
                    f"None for operand {k}", "return a tensor, of zeros if the result does not depend on it", op=name,
                )  # fmt: skip
            if g is not None and not isinstance(g, Tensor):
                raise GradientError(
                    f"the gradient rule of {name} returns tensors",
                    f"{type(g).__name__} for operand {k}",
                    "return a tensor or None",
                )
        return found

    return rule


def _cases(samples: Any, convert: Callable[[tuple[Any, ...], dict[str, Any]], Sample]) -> Callable[..., list[Sample]]:
    def made(rng: np.random.Generator, of: str) -> list[Sample]:
        found = samples(rng, of) if callable(samples) else samples
        out = []
        for case in found:
            if isinstance(case, Sample):
                out.append(case)
                continue
            pair = isinstance(case, tuple) and len(case) == 2 and isinstance(case[0], tuple) and isinstance(case[1], dict)
            arguments, params = case if pair else (case, {})
            if not isinstance(arguments, tuple):
                raise OperandError(
                    "fb.op: a sample is a tuple of the arguments of a call", type(arguments).__name__, "write (x,)"
                )
            out.append(convert(arguments, params))
        return out

    return made


def _of_reference(
    name: str, infer: Callable[..., Any], reference: Callable[..., Any], vjp: Any, samples: Any, operands: str | None,
    dtypes: tuple[str, ...], tolerance: float,
) -> Op:  # fmt: skip
    if operands is None:
        parameters = [p for p in inspect.signature(reference).parameters.values() if p.default is p.empty]
        operands = " ".join(f"{p.name}:any" for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))

    def inferred(*avals: Aval, **params: Any) -> Any:
        found = infer(*avals, **params)
        several = isinstance(found, list)
        made = tuple(_aval(name, f) for f in (found if several else [found]))
        return made if several else made[0]

    def computed(*arrays: Any, **params: Any) -> Any:
        given = [_read_only(x) for x in arrays]
        found = reference(*given, **params)
        wanted = inferred(*(Aval(x.shape, dtype(x.dtype)) for x in given), **params)
        return _results(name, found, wanted, given)

    computed.__name__, computed.__module__ = name, str(reference.__module__)
    computed.__doc__ = (reference.__doc__ or f"{name}.").strip()
    made: Op = register(
        operands=operands, infer=inferred, residuals=("inputs",),
        vjp=MissingRule(partial(_no_rule, name)) if vjp is None else _rule(name, vjp),
        samples=_cases(samples, lambda arguments, params: Sample(tuple(map(np.asarray, arguments)), params)),
        cost=lambda ins, outs, params: Cost(0.0, float(sum(a.nbytes for a in (*ins, *outs)))), bound="memory", fusion="opaque",
        tolerance=tolerance, dtypes=dtypes,
    )(computed)  # fmt: skip
    return made


def _read_only(x: Any) -> Any:
    view = np.asarray(x).view()
    view.flags.writeable = False
    return view


def _results(name: str, found: Any, wanted: Any, given: list[Any]) -> Any:
    """What a reference returns, as arrays of their own, if it is what the shape rule says."""
    several = type(wanted) is tuple
    avals = wanted if several else (wanted,)
    if several != isinstance(found, tuple) or (several and len(found) != len(avals)):
        raise _unlike(name, avals, f"{len(found)} results" if isinstance(found, tuple) else type(found).__name__)
    made = []
    for a, r in zip(avals, found if several else (found,), strict=True):
        r = np.asarray(r)
        wide = r.dtype == np.float64 and a.dtype.is_floating and any(x.dtype == np.float64 for x in given)  # in tests
        if r.shape != a.shape or (r.dtype != a.dtype.np and not wide):
            shape = ",".join(map(str, r.shape))
            raise _unlike(name, avals, type(found).__name__ if r.dtype == object else f"{r.dtype}[{shape}]")
        shared = not r.flags.writeable or any(np.may_share_memory(r, x) for x in given)
        made.append(r.copy() if shared else r)
    return tuple(made) if several else made[0]


def _unlike(name: str, avals: tuple[Aval, ...], received: str) -> ExecutionError:
    return ExecutionError(
        f"the reference of {name} returns {', '.join(map(str, avals))}, as its shape rule says", received,
        "correct the reference, or infer", op=name,
    )  # fmt: skip


def _aval(name: str, found: Any) -> Aval:
    if isinstance(found, Aval | Tensor):
        return Aval(found.shape, found.dtype)
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], tuple):
        return Aval(tuple(int(n) for n in found[0]), dtype(found[1]))
    raise OperandError(
        f"the shape rule of {name} gives a shape and a dtype, or an operand that has the same", f"{found!r}"[:80],
        "return (x.shape, x.dtype), or a list of pairs for several results",
    )  # fmt: skip


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
        params = {
            "statics": tuple((n, int(values[n])) for n in signature.static),
            "constants": tuple((n, values[n]) for n in constants), "captures": None,
        }  # fmt: skip
        return Sample(tuple(inputs), params)

    cases = _cases(samples, convert)
    first = cases(np.random.default_rng(0), "float32")
    if not first:
        raise OperandError(f"fb.op: {name} has samples, by which it is tested", "none", "pass at least one")
    program = kernel.program([dtype(x.dtype) for x in first[0].inputs] or [float32], first[0].params)
    made = operation(kernel, program, elementwise_of(program) is not None)
    found = dtype(first[0].inputs[0].dtype).name if first[0].inputs else "float32"
    reference = made.reference
    reference.__module__ = str(kernel.__module__)  # an entry that is not Firebrick's own is not kept on disk
    more: dict[str, Any] = {"vjp": _rule(name, vjp), "residuals": ("inputs",)} if vjp is not None else {}
    return dataclasses.replace(made, fast={}, name=name, samples=cases, dtypes=(found,), tolerance=tolerance, **more)
