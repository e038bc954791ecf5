"""The functions that ``fb.op`` is given: calls whose errors name the operation and the field, and checks of what they return.

An error of Firebrick, and one of memory, passes as it is. Any other is the cause of an ``ExecutionError`` (``GradientError``
of a gradient rule, ``OperandError`` of samples).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.dtypes import DType, dtype
from firebrick.core.errors import ExecutionError, FirebrickError, GradientError, OperandError
from firebrick.core.op import Batching, Forward, Operand, Sample, Vjp
from firebrick.core.op import operands as parsed
from firebrick.core.tensor import Tensor

_CALLS: dict[str, tuple[str, type[FirebrickError]]] = {
    "samples": ("samples(rng, dtype) of {} returns a list of cases", OperandError),
    "infer": ("infer(*operands, **params) of {} returns the result's shape and dtype", ExecutionError),
    "reference": ("reference(*arrays, **params) of {} returns its result", ExecutionError),
    "batch": ("batch(mapped, *operands, **params) of {} returns the results of all examples", ExecutionError),
    "jvp": ("jvp(tangents, *operands, **params) of {} returns the tangents of its results", GradientError),
    "vjp": ("vjp(cotangent, *operands, **params) of {} returns the cotangents of its operands", GradientError),
}
"""Field of ``fb.op`` → what its function does, and the error where it does not."""
_SHOWN = 300
"""Most characters of a received object or message in an error."""


def called(name: str, field: str, function: Callable[..., Any], *args: Any, **params: Any) -> Any:
    """The result of a user's function.

    Args:
        name: Of the operation.
        field: Of ``fb.op``.
        function: It.
        args: Its arguments.
        params: Its keyword arguments.
    """
    try:
        return function(*args, **params)
    except (FirebrickError, MemoryError):
        raise
    except Exception as e:
        raise failed(name, field, e) from e


def failed(name: str, field: str, e: Exception) -> FirebrickError:
    """The error for one that a user's function raised."""
    expected, kind = _CALLS[field]
    received = f"{type(e).__name__}: {e}"[:_SHOWN].rstrip(". ")
    return kind(
        f"fb.op: {expected.format(name)}", received, f"correct {field}: the error in it is the cause of this one", op=name
    )


def refused(name: str, field: str, expected: str, received: Any, remedy: str) -> OperandError:
    """The error for a field that is not what it must be."""
    shown = received if isinstance(received, str) else repr(received)
    return OperandError(f"fb.op: {field} of {name} must be {expected}", shown[:_SHOWN], remedy, op=name)


def check_fields(
    name: str, functions: Mapping[str, Any], samples: Any, dtypes: Any, tolerance: Any
) -> None:  # fmt: skip
    """Check the fields of a declaration by themselves.

    Raises:
        OperandError: One of them is not what it must be.
    """
    for field, f in functions.items():
        if f is not None and not callable(f):
            raise refused(name, field, "a function", f, "pass a function")
    if not callable(samples) and not isinstance(samples, list | tuple):
        raise refused(
            name, "samples", "a list of cases, or a function (rng, dtype) that returns one", samples, "pass [(x,)]"
        )  # fmt: skip
    if dtypes is not None:
        names = list(dtypes) if isinstance(dtypes, Sequence) and not isinstance(dtypes, str) else []
        if not names or not all(isinstance(n, str) and _known(n) for n in names):
            raise refused(name, "dtypes", "a sequence of names of dtypes", dtypes, 'pass ("float64", "float32")')
    number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if tolerance is not None and not (number and 0 <= tolerance < float("inf")):
        raise refused(
            name, "tolerance", "a number of at least 0, in units of the dtype's precision", tolerance, "pass tolerance=4.0"
        )  # fmt: skip


def _known(name: Any) -> bool:
    try:
        dtype(name)
    except FirebrickError:
        return False
    return True


def declared_operands(name: str, text: Any, reference: Callable[..., Any]) -> tuple[str, tuple[Operand, ...]]:
    """The operands of a reference as text, and parsed.

    Raises:
        OperandError: They are not those of an operation.
    """
    remedy = 'pass operands="x:floating=T y:floating=T"'
    if text is None:
        try:
            parameters = inspect.signature(reference).parameters.values()
        except (TypeError, ValueError) as e:
            raise refused(name, "reference", "a function with a signature, or operands are given", reference, remedy) from e
        text = " ".join(
            f"{p.name}:any" for p in parameters
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        )  # fmt: skip
        if not text:
            raise refused(name, "reference", "a function of at least one operand, or operands are given", reference, remedy)
    try:
        found = parsed(text)
    except (AttributeError, TypeError, ValueError) as e:
        raise refused(name, "operands", "names with their kinds, as x:any", f"{text!r}: {e}", remedy) from e
    names = [o.name for o in found]
    if not names or len(set(names)) < len(names) or not all(n.isidentifier() for n in names):
        raise refused(name, "operands", "different names with their kinds, as x:any", repr(text), remedy)
    if any(o.variadic for o in found[:-1]):
        raise refused(name, "operands", "names, the last of which may repeat", text, "write *x:any at the end")
    return text, found


# shape rules and references


def inferred(name: str, infer: Callable[..., Any], avals: Sequence[Any], params: dict[str, Any]) -> Any:
    """The result of a shape rule, or a tuple of results."""
    found = called(name, "infer", infer, *avals, **params)
    if not isinstance(found, list):
        return _aval(name, found)
    if not found:
        raise _no_aval(name, found)
    return tuple(_aval(name, f) for f in found)


def _aval(name: str, found: Any) -> Aval:
    if isinstance(found, Aval | Tensor):
        return Aval(found.shape, found.dtype)
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], tuple)):
        raise _no_aval(name, found)
    shape, of = found
    if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 0 for n in shape):
        raise _no_aval(name, found)
    try:
        return Aval(tuple(int(n) for n in shape), dtype(of))
    except FirebrickError as e:
        raise _no_aval(name, found) from e


def _no_aval(name: str, found: Any) -> OperandError:
    return OperandError(
        f"fb.op: infer of {name} returns a shape and a dtype, or an operand that has the same", f"{found!r}"[:_SHOWN],
        "return (x.shape, x.dtype), or a list of such pairs for several results", op=name,
    )  # fmt: skip


def computed(name: str, reference: Callable[..., Any], arrays: Sequence[Any], params: dict[str, Any], wanted: Any) -> Any:
    """The results of a reference, as arrays of their own.

    Args:
        name: Of the operation.
        reference: It.
        arrays: Operands.
        params: Parameters.
        wanted: What the shape rule gives.

    Raises:
        ExecutionError: The reference fails, or returns something else.
    """
    given = [_read_only(x) for x in arrays]
    found = called(name, "reference", reference, *given, **params)
    several = type(wanted) is tuple
    avals = wanted if several else (wanted,)
    if several != isinstance(found, tuple) or (several and len(found) != len(avals)):
        raise _unlike(name, avals, f"{len(found)} results" if isinstance(found, tuple) else type(found).__name__)
    made = []
    for a, r in zip(avals, found if several else (found,), strict=True):
        try:
            array = np.asarray(r)
        except Exception as e:
            raise _unlike(name, avals, f"{type(r).__name__}: {type(e).__name__}: {e}"[:_SHOWN].rstrip(". ")) from e
        wide = array.dtype == np.float64 and a.dtype.is_floating and any(x.dtype == np.float64 for x in given)  # in tests
        if array.shape != a.shape or (array.dtype != a.dtype.np and not wide):
            shape = ",".join(map(str, array.shape))
            plain = array.dtype.kind not in "OUS" or isinstance(r, np.ndarray)
            raise _unlike(name, avals, f"{array.dtype}[{shape}]" if plain else type(r).__name__)
        made.append(array.copy())  # it may be an operand, another result, or a buffer that the reference writes again
    return tuple(made) if several else made[0]


def _read_only(x: Any) -> Any:
    view = np.asarray(x).view()
    view.flags.writeable = False
    return view


def _unlike(name: str, avals: tuple[Aval, ...], received: str) -> ExecutionError:
    return ExecutionError(
        f"the reference of {name} returns {', '.join(map(str, avals))}, as its shape rule says", received,
        "correct the reference, or infer", op=name,
    )  # fmt: skip


# gradient, tangent and batch rules


def _named(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of an operation by the names that its user gave them, also those of a kernel."""
    own = {k: v for k, v in params.items() if k not in ("statics", "constants", "captures")}
    return own | dict(params.get("statics", ())) | dict(params.get("constants", ()))


def batched(name: str, batch: Callable[..., Any], b: Batching) -> Any:
    """The results that a batch rule returns for all examples.

    Args:
        name: Of the operation.
        batch: The rule.
        b: The operation.
    """
    found = called(name, "batch", batch, b.mapped, *b.operands, **_named(b.params))
    return tuple(found) if isinstance(found, list) else found


def tangents(name: str, jvp: Callable[..., Any], r: Forward) -> Any:
    """The tangents of the results that a rule of forward mode returns.

    Args:
        name: Of the operation.
        jvp: The rule.
        r: The operation.
    """
    found = called(name, "jvp", jvp, r.tangents, *r.operands, **_named(r.params))
    several = tuple(found) if isinstance(found, tuple | list) else (found,)
    return several  # None is a tangent of zero, not a rule that is missing


def cotangents(name: str, vjp: Callable[..., Any], given: Any, r: Vjp, broadcasts: bool) -> tuple[Any, ...]:
    """The cotangents that a gradient rule returns.

    Args:
        name: Of the operation.
        vjp: The rule.
        given: Cotangents of the results.
        r: The operation.
        broadcasts: Whether cotangents are summed to the shapes of the operands later.

    Raises:
        GradientError: The rule fails, or returns something else.
    """
    found = called(name, "vjp", vjp, given, *r.inputs, **_named(r.params))
    found = tuple(found) if isinstance(found, tuple | list) else (found,)
    if len(found) != len(r.inputs):
        count = f"{len(r.inputs)} operand{'s' if len(r.inputs) != 1 else ''}"
        raise GradientError(
            f"the gradient rule of {name} returns a cotangent, or None, for each of {count}", str(len(found)),
            "return a tuple of as many", op=name,
        )  # fmt: skip
    for k, (g, x) in enumerate(zip(found, r.inputs, strict=True)):
        if g is None:
            if r.needs[k] and r.avals[k].dtype.is_inexact:
                raise GradientError(
                    f"the gradient rule of {name} gives the cotangent of each operand that is differentiated",
                    f"None for operand {k}", "return a tensor, of zeros if the result does not depend on it", op=name,
                )  # fmt: skip
        elif not isinstance(g, Tensor):
            raise GradientError(
                f"the gradient rule of {name} returns tensors", f"{type(g).__name__} for operand {k}",
                "return a tensor or None", op=name,
            )  # fmt: skip
        elif r.needs[k] and (g.device is not x.device or g.dtype is not x.dtype or (g.shape != x.shape and not broadcasts)):
            raise GradientError(
                f"the gradient rule of {name} returns a cotangent like operand {k}, {x.aval} on {x.device}",
                f"{g.aval} on {g.device}", "return one of the operand's shape, dtype and device", op=name,
            )  # fmt: skip
    return found


# samples


def cases(
    name: str, samples: Any, convert: Callable[[tuple[Any, ...], dict[str, Any]], Sample]
) -> Callable[[np.random.Generator, str], list[Sample]]:
    """The samples of an operation as the op table has them: a function of a generator and a dtype's name."""

    def made(rng: np.random.Generator, of: str) -> list[Sample]:
        found = called(name, "samples", samples, rng, of) if callable(samples) else samples
        if not isinstance(found, Iterable) or isinstance(found, str | bytes | dict | np.ndarray | Tensor):
            raise refused(name, "samples", "a list of cases", type(found).__name__, "return [(x,)]")
        return [_case(name, k, case, convert) for k, case in enumerate(_listed(name, found))]

    return made


def _listed(name: str, found: Iterable[Any]) -> list[Any]:
    listed: list[Any] = called(name, "samples", list, found)
    return listed


def _case(name: str, number: int, case: Any, convert: Callable[[tuple[Any, ...], dict[str, Any]], Sample]) -> Sample:
    arguments: Any
    params: Any
    if isinstance(case, Sample):
        arguments, params = case.inputs, case.params
    else:
        pair = isinstance(case, tuple) and len(case) == 2 and isinstance(case[0], tuple) and isinstance(case[1], dict)
        arguments, params = case if pair else (case, {})
    if not isinstance(arguments, tuple) or not isinstance(params, dict):
        raise OperandError(
            f"fb.op: a sample of {name} is a tuple of the arguments of a call", f"{type(arguments).__name__}, case {number}",
            "write (x,), or ((x,), {}) with parameters", op=name,
        )  # fmt: skip
    if isinstance(case, Sample):
        return case
    try:
        return convert(arguments, params)
    except Exception as e:
        received = e.received or e.expected if isinstance(e, FirebrickError) else f"{type(e).__name__}: {e}"
        raise OperandError(
            f"fb.op: a sample of {name} has arguments that the operation takes",
            f"{received[:_SHOWN].rstrip('. ')}, case {number}", "correct the sample: the error is the cause of this one",
            op=name,
        ) from e  # fmt: skip


def plain_case(found: Sequence[Operand], arguments: tuple[Any, ...], params: dict[str, Any]) -> Sample:
    """A sample of a reference's operation.

    Raises:
        OperandError: There are more arguments, or fewer, than operands.
        DTypeError: An argument has a dtype that tensors do not have.
    """
    if len(arguments) != len(found) and not (found[-1].variadic and len(arguments) >= len(found) - 1):
        names = ", ".join(o.name for o in found)
        raise OperandError(f"the operands are {names}", f"{len(arguments)} arguments for the operands {names}", "pass these")
    arrays = tuple(np.asarray(a) for a in arguments)
    for x in arrays:
        _dtype_of(x)
    return Sample(arrays, params)


def _dtype_of(x: np.ndarray[Any, Any]) -> DType:
    return dtype(x.dtype)
