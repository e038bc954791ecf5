"""``fb.kernel``: functions in the kernel language, as operations on tensors."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, overload
from weakref import WeakKeyDictionary

import numpy as np

from firebrick.autodiff.transforms import vjp
from firebrick.compiler.kernel.language import intrinsics
from firebrick.compiler.kernel.language.annotations import (
    ArrayType,
    Constant,
    ConstantType,
    In,
    InOut,
    NumberType,
    Out,
    Signature,
    floating_of,
    signature_of,
)
from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.compiler.kernel.language.composed import composed, obstacle, pure_expression
from firebrick.compiler.kernel.language.kernel_program import KernelProgram
from firebrick.compiler.kernel.language.outside import exact
from firebrick.compiler.kernel.language.source import Source
from firebrick.compiler.kernel.language.translate import Instance, translate
from firebrick.compiler.spec.base import structure
from firebrick.compiler.spec.custom import LoopSite, launched
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.constants import constant
from firebrick.core.dtypes import DType, bool_, dtype, scalar_fits
from firebrick.core.errors import DTypeError, GradientError, KernelCompileError, OperandError
from firebrick.core.hooks import hooks
from firebrick.core.op import Cost, MissingRule, Op, Operand, Vjp
from firebrick.core.operands import not_a_tensor
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, as_tensor
from firebrick.ops import index_maps
from firebrick.ops.table import OPS
from firebrick.scalar.expr import Expr
from firebrick.scalar.storage import STORAGE

_KEPT = 64
"""Maximum number of translations of a kernel that are kept, for what it uses from outside."""


class Kernel:
    """A function in the kernel language. Call it with its arguments: it returns the tensors of its results.

    ``@fb.kernel`` makes it. Arrays are tensors on one device, of the annotated dtypes; numbers are Python numbers or 0-d
    tensors. The results of several ``Out`` and ``InOut`` parameters are a tuple in the order of the parameters.

    Attributes:
        name: Of the function.
        signature: Its parameters.
    """

    __jit_through__ = "_watched"
    __qualname__: str  # of the function

    def __init__(
        self, function: Callable[..., Any], grid: str | None, group: int | str, unchecked: bool, deterministic: bool
    ) -> None:
        functools.update_wrapper(self, function)
        self._source = Source(function)
        self.name = self._source.name
        self.signature: Signature = signature_of(function, grid)
        self._group, self._unchecked, self._deterministic = group, unchecked, deterministic
        self._watched = function, grid, group, unchecked, deterministic  # what a compiled program depends on
        self._programs: dict[Any, list[KernelProgram]] = {}
        self._found: dict[Any, KernelProgram] = {}
        self._ops: dict[str, Op] = {}
        self._lock = threading.Lock()
        line = self._source.line(self._source.tree)
        if isinstance(group, str) and self.signature.parameters.get(group) != ConstantType(int):
            raise KernelCompileError(
                f"kernel {self.name}: the size of a group is a number, or the name of a parameter annotated Constant[int]",
                f"{group!r}, at {line}", f"write group=256, or add a parameter {group}: fb.kernel.Constant[int]",
                kernel=self.name, line=line,
            )  # fmt: skip
        if isinstance(group, int) and not 0 <= group <= 1024:
            raise KernelCompileError(
                f"kernel {self.name}: a group has 1 to 1024 items", f"{group}, at {line}", "write a smaller group",
                kernel=self.name, line=line,
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __reduce__(self) -> str:
        """Copies of a kernel are the kernel itself, and pickles its name, as of a function."""
        return str(self.__qualname__)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, device: Any = None, **named: Any) -> Any:
        """Run the kernel.

        Args:
            *args: Arguments of the parameters that are not ``Out``, in order.
            device: Where a kernel without tensors runs; the default device by default.
            **named: Arguments by name.

        Returns:
            The tensor of the result, or a tuple of them.

        Raises:
            OperandError: An argument is missing, unknown, or no tensor where one is needed.
            DTypeError: An array has another dtype than its parameter.
            ShapeError: The shapes do not fit the annotations.
            OutOfRangeError: An index is outside of its array.
            KernelCompileError: The function is not in the kernel language.
        """
        op, operands, params = self._operation(self.bound(args, named), device)
        return bind(op, operands, params)

    def operation(self, *args: Any, device: Any = None, **named: Any) -> tuple[Op, tuple[Tensor, ...], dict[str, Any]]:
        """The operation that a call with these arguments is, its operands and its parameters."""
        return self._operation(self.bound(args, named), device)

    def bound(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by the names of the parameters."""
        given = self.signature.given
        names = list(given)
        if len(args) > len(names):
            raise OperandError(
                f"{self.name} has the arguments {', '.join(names) or 'none'}", f"{len(args)} arguments", f"pass {len(names)}"
            )
        values = dict(zip(names, args, strict=False))
        for name, v in named.items():
            if name not in given or name in values:
                expected = f"{self.name} has the arguments {', '.join(names) or 'none'}"
                if name in self.signature.results:
                    raise OperandError(expected, f"{name}, which is a result", "leave it out: the call returns it")
                if name in values:
                    raise OperandError(expected, f"{name} twice", f"pass {name} once")
                raise OperandError(expected, name, "correct the name")
            values[name] = v
        for name in names:
            if name not in values:
                if name not in self.signature.defaults:
                    raise OperandError(f"{self.name} has the arguments {', '.join(names)}", f"none for {name}", f"pass {name}")
                values[name] = self.signature.defaults[name]
        return {n: values[n] for n in names}

    def _operation(self, values: dict[str, Any], device: Any) -> tuple[Op, tuple[Tensor, ...], dict[str, Any]]:
        signature = self.signature
        tensors = [v for v in values.values() if isinstance(v, Tensor)]
        where = tensors[0].device if tensors else hooks.find_device(device)
        dtypes: dict[str, DType] = {}
        constants: dict[str, Any] = {}
        statics: dict[str, int] = {}
        for name, p in signature.given.items():
            v = values[name]
            if isinstance(p, ArrayType):
                dtypes[name] = self._array_dtype(name, p, v)
            elif isinstance(p, ConstantType):
                constants[name] = self._constant(name, p, v)
            elif name in signature.static:
                statics[name] = self._static(name, v)
        dtypes = self._dtypes(dtypes)
        operands = tuple(
            self._number(n, dtypes[n], values[n], where) if isinstance(signature.given[n], NumberType) else values[n]
            for n in self.operands
        )  # fmt: skip
        params: dict[str, Any] = {"statics": tuple(statics.items()), "constants": tuple(constants.items()), "captures": None}
        program = self.program([dtypes[n] for n in self.operands], params)
        params["captures"] = program.translated.captures
        # an operand says where an operation runs
        return self._op(program), operands or (constant(False, bool_, where),), params

    @functools.cached_property
    def operands(self) -> tuple[str, ...]:
        """The parameters that are operands of the operation: arrays, and numbers that no size depends on."""
        static = self.signature.static
        return tuple(n for n, p in self.signature.given.items() if not isinstance(p, ConstantType) and n not in static)

    def _dtypes(self, dtypes: dict[str, DType]) -> dict[str, DType]:
        """The dtypes of all arrays and numbers, from those of the arguments."""
        signature = self.signature
        dtypes = dict(dtypes)
        for name, p in signature.arrays.items():
            if isinstance(p.dtype, str):
                want = dtypes[p.dtype]
                if dtypes.setdefault(name, want) is not want:
                    raise DTypeError(
                        f"{self.name}: {name} has the dtype of {p.dtype}, {want.name}", f"{name}: {dtypes[name].name}",
                        f"cast it: fb.astype({name}, fb.{want.name})",
                    )  # fmt: skip
            elif isinstance(p.dtype, DType):
                dtypes[name] = p.dtype
        floating = floating_of({n: dtypes[n] for n in signature.arrays})
        for name, n in signature.given.items():
            if isinstance(n, NumberType) and name not in signature.static:
                dtypes[name] = n.dtype or floating
        return dtypes

    def program(self, dtypes: Sequence[DType], params: Mapping[str, Any]) -> KernelProgram:
        """The kernel for operands of certain dtypes.

        Args:
            dtypes: Of the operands. Where an annotation has another dtype, that counts.
            params: ``constants``, and ``captures``: the objects from outside of the function that it uses; None for those now.
        """
        key = tuple(dtypes), exact(params["constants"]), params["captures"]
        found = self._found.get(key)
        if found is not None and (key[2] is not None or found.translated.captures.holds()):
            return found
        made = self._made(dtypes, params)
        if len(self._found) >= _KEPT:
            self._found.clear()
        self._found[key] = made
        return made

    def identity(self, operands: Sequence[Aval], params: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
        """The kernel for certain operands as text, equal for kernels that do the same, and the lines that errors name.

        Args:
            operands: Shapes and dtypes of the operands.
            params: As of ``program``, and ``statics``.
        """
        program = self.program([a.dtype for a in operands], params)
        spec = launched(program, operands, range(len(operands)), dict(params["statics"]))
        lines: list[str] = []
        for site in spec.sites:
            lines += [line for line, _ in site.lines] if isinstance(site, LoopSite) else [site.line]
        return json.dumps(structure(spec)), tuple(lines)

    def _made(self, dtypes: Sequence[DType], params: Mapping[str, Any]) -> KernelProgram:
        known = self._dtypes(dict(zip(self.operands, dtypes, strict=False)))
        constants = params["constants"]
        group = dict(constants)[self._group] if isinstance(self._group, str) else self._group
        instance = Instance(
            tuple((n, known[n]) for n in self.signature.parameters if n in known), constants, group, self._unchecked,
            self._deterministic,
        )  # fmt: skip
        captures = params["captures"]
        with self._lock:
            made = self._programs.setdefault((instance.dtypes, exact(constants)), [])
            for found in reversed(made):
                before = found.translated.captures
                if before.holds() if captures is None else before == captures:
                    return found
            translated = translate(self._source, self.signature, instance, captures)
            made.append(KernelProgram(self.name, self.signature, instance, translated))
            if len(made) > _KEPT:
                del made[0]
            return made[-1]

    @property
    def checks(self) -> bool:
        """Whether a call may raise an error of an index or an assertion."""
        with self._lock:
            return any(p.translated.sites for made in self._programs.values() for p in made)

    def _array_dtype(self, name: str, p: ArrayType, v: Any) -> DType:
        if not isinstance(v, Tensor):
            raise not_a_tensor(self.name, name, v, None)
        if isinstance(p.dtype, DType) and v.dtype is not p.dtype:
            raise DTypeError(
                f"{self.name}: {name} has dtype {p.dtype.name}", f"{name}: {v.dtype.name}{list(v.shape)}",
                f"cast it: fb.astype({name}, fb.{p.dtype.name})", op=self.name,
            )  # fmt: skip
        if v.dtype.name not in STORAGE:
            raise DTypeError(
                f"{self.name}: the elements of an array are {', '.join(STORAGE)}", f"{name}: {v.dtype.name}{list(v.shape)}",
                f"cast it: fb.astype({name}, fb.float32)" if v.dtype.kind != "complex" else "pass its parts: fb.real, fb.imag",
                op=self.name,
            )  # fmt: skip
        return v.dtype

    def _constant(self, name: str, p: ConstantType, v: Any) -> Any:
        if isinstance(v, np.generic):
            v = v.item()
        if p.kind is float and type(v) is int:
            v = float(v)
        if type(v) is not p.kind:
            raise OperandError(
                f"{self.name}: {name} is a compile-time constant, {p.kind.__name__}", f"{name}: {type(v).__name__}",
                "pass a Python number" if p.kind is not DType else "pass a dtype, such as fb.float32",
            )  # fmt: skip
        return v

    def _static(self, name: str, v: Any) -> int:
        if isinstance(v, np.integer):
            v = int(v)
        if type(v) is not int:
            kind = "traced int" if isinstance(v, Weak) else type(v).__name__
            raise OperandError(
                f"{self.name}: {name} is a Python int, since a size depends on it", f"{name}: {kind}",
                "pass an int that is known when the program is traced",
            )  # fmt: skip
        return v

    def _number(self, name: str, to: DType, v: Any, device: Any) -> Tensor:
        if isinstance(v, np.generic):
            v = v.item()
        if isinstance(v, Tensor):
            if v.shape != () or v.dtype is not to:
                raise DTypeError(
                    f"{self.name}: {name} is a number, or a 0-d tensor of {to.name}", f"{name}: {v.dtype.name}{list(v.shape)}",
                    f"pass a Python number, or fb.astype({name}, fb.{to.name})", op=self.name,
                )  # fmt: skip
            return v
        if isinstance(v, Weak):
            made: Tensor = as_tensor(v, to, device)
            return made
        if not isinstance(v, bool | int | float) or not scalar_fits(v, to):
            raise OperandError(f"{self.name}: {name} is a number of {to.name}", f"{name}: {v!r}"[:100], "pass a Python number")
        return constant(v, to, device)

    def checked(self, arrays: Sequence[Any], params: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The results by the interpreter, which reports races, and reads of what was not stored.

        Args:
            arrays: Operands.
            params: As of ``program``, and ``statics``.

        Returns:
            The results, which every engine must give; None if they depend on the order of the items.
        """
        program = self.program([dtype(a.dtype) for a in arrays], params)
        found = program.interpreted(arrays[: len(self.operands)], dict(params["statics"]), checked=True)
        return found if self._deterministic else None

    def _op(self, program: KernelProgram) -> Op:
        """The operation: one whose elements are expressions, or a general one."""
        kind = "map" if elementwise_of(program) is not None else "opaque"
        with self._lock:
            found = self._ops.get(kind)
            if found is None:
                found = self._ops[kind] = operation(self, program, kind == "map")
        return found


def elementwise_of(program: KernelProgram) -> Callable[..., Expr] | None:
    """The expression of an element of the result, if it depends on the elements at its place alone; computed once."""
    if program not in _EXPRESSIONS:
        _EXPRESSIONS[program] = pure_expression(program)
    return _EXPRESSIONS[program]


_EXPRESSIONS: WeakKeyDictionary[KernelProgram, Callable[..., Expr] | None] = WeakKeyDictionary()


def operation(kernel: Kernel, first: KernelProgram, elementwise: bool, name: str = "") -> Op:
    """The operation that a kernel is, for all dtypes.

    Args:
        kernel: Kernel.
        first: One instance of it, whose structure the others share.
        elementwise: Whether each element of its result is an expression of the operands' elements at the same place.
        name: That users know it by; the kernel's by default.
    """
    name = name or kernel.name
    count = len(kernel.operands)

    def infer(*avals: Aval, **params: Any) -> Any:
        program = kernel.program([a.dtype for a in avals[:count]], params)
        found = program.sizes([a.shape for a in avals[:count]], dict(params["statics"])).results
        return found if len(found) > 1 else found[0]

    def reference(*arrays: Any, **params: Any) -> Any:
        program = kernel.program([dtype(a.dtype) for a in arrays[:count]], params)
        given = [a.astype(program.dtype(n).np, copy=False) for n, a in zip(kernel.operands, arrays, strict=False)]
        found = program.interpreted(given, dict(params["statics"]))
        return found if len(found) > 1 else found[0]

    def cost(inputs: Any, outputs: Any, params: Any) -> Cost:
        program = kernel.program([a.dtype for a in inputs], params)
        found = launched(program, inputs, range(len(inputs)), dict(params["statics"])).cost
        return Cost(found.flops, found.nbytes)

    def scalar(*elements: Expr, **params: Any) -> Expr:
        program = kernel.program([dtype(e.dtype) for e in elements], params)
        rule = elementwise_of(program)
        assert rule is not None, "instances of a kernel share its structure"
        return rule(*elements)

    def facts(operands: Sequence[Aval], results: Sequence[Aval], **params: Any) -> dict[str, Any]:
        return {"program": kernel.program([a.dtype for a in operands], params)}

    reason = obstacle(first)
    fields: dict[str, Any] = {"fusion": "opaque", "kind": "custom", "facts": facts}
    if elementwise:  # computed with its neighbours in one kernel
        fields = {"fusion": "map", "kind": "map", "scalar": scalar, "index_map": index_maps.elementwise, "broadcasts": True}
    return Op(
        # engines know ops by name: none has this one
        name=f"kernel_{kernel.name}", doc=(kernel.__doc__ or kernel.name).strip().split("\n")[0],
        operands=tuple(Operand(n, "any") for n in kernel.operands) or (Operand("device", "any"),), infer=infer,
        reference=reference, vjp=MissingRule(partial(_refused, name, reason)) if reason else partial(_derived, kernel),
        residuals=() if reason else ("inputs",), known_as=name,
        samples=lambda rng, dtype: [], cost=cost, bound="memory", tolerance=0.0, program=kernel, **fields,
    )  # fmt: skip


def _refused(name: str, reason: str, cotangents: Any, r: Vjp) -> Any:
    raise GradientError(
        f"the gradient of {name} is derived from its statements", reason,
        "give it a rule: fb.op(name, kernel=…, vjp=…, samples=…), or detach its arguments: x.detach()", op=name,
    )  # fmt: skip


def _derived(kernel: Kernel, cotangents: Any, r: Vjp) -> Any:
    """The gradient of a kernel without loops, by that of the operations that it is composed of."""
    program = kernel.program([t.dtype for t in r.inputs], r.params)
    given = cotangents if isinstance(cotangents, tuple) else (cotangents,)
    statics = dict(r.params["statics"])
    places = [k for k, (t, needed) in enumerate(zip(r.inputs, r.needs, strict=True)) if needed and t.dtype.is_floating]
    slots = [k for k, g in enumerate(given) if g is not None and g.dtype.is_floating]
    if not places or not slots:
        return (None,) * len(r.inputs)

    def total(*leaves: Tensor) -> Tensor:
        operands = list(r.inputs)
        for k, t in zip(places, leaves, strict=False):
            operands[k] = t
        results = composed(program, tuple(operands), statics)
        parts: list[Tensor] = []
        for k, g in zip(slots, leaves[len(places) :], strict=True):
            part = OPS["sum"](OPS["multiply"](results[k], g), axes=tuple(range(len(g.shape))), keepdims=False)
            parts.append(part if not parts or part.dtype is parts[0].dtype else OPS["cast"](part, dtype=parts[0].dtype))
        out: Tensor = reduce(OPS["add"], parts)
        return out

    # the cotangents are leaves too: what they were made by is no part of this gradient
    value, pull = vjp(total, *(r.inputs[k] for k in places), *(given[k] for k in slots))
    found = dict(zip(places, pull(constant(1, value.dtype, value.device)), strict=False))
    return tuple(found.get(k) for k in range(len(r.inputs)))


class _KernelLanguage:
    """``fb.kernel``: the decorator, and the names of the kernel language."""

    In, Out, InOut, Constant = In, Out, InOut, Constant
    index, group, lane = staticmethod(intrinsics.index), staticmethod(intrinsics.group), staticmethod(intrinsics.lane)
    shared, registers = staticmethod(intrinsics.shared), staticmethod(intrinsics.registers)
    barrier, unrolled = staticmethod(intrinsics.barrier), staticmethod(intrinsics.unrolled)
    atomic_add, atomic_min = staticmethod(intrinsics.atomic_add), staticmethod(intrinsics.atomic_min)
    atomic_max, atomic_and = staticmethod(intrinsics.atomic_max), staticmethod(intrinsics.atomic_and)
    atomic_or, atomic_xor = staticmethod(intrinsics.atomic_or), staticmethod(intrinsics.atomic_xor)
    atomic_exchange = staticmethod(intrinsics.atomic_exchange)
    compare_exchange = staticmethod(intrinsics.compare_exchange)
    shuffle, fma = staticmethod(intrinsics.shuffle), staticmethod(intrinsics.fma)
    random_bits, random_uniform = staticmethod(intrinsics.random_bits), staticmethod(intrinsics.random_uniform)

    def __repr__(self) -> str:
        return "fb.kernel"

    @overload
    def __call__(self, function: Callable[..., Any], /) -> Kernel: ...
    @overload
    def __call__(
        self, /, *, grid: str | None = None, group: int | str = 0, unchecked: bool = False, deterministic: bool = True
    ) -> Callable[[Callable[..., Any]], Kernel]: ...
    def __call__(
        self, function: Any = None, /, *, grid: str | None = None, group: int | str = 0, unchecked: bool = False,
        deterministic: bool = True,
    ) -> Any:  # fmt: skip
        """Make a kernel of a function in the kernel language.

        The function is executed for each item of a grid, in any order or at once.

        Args:
            function: Whose parameters are annotated with ``In``, ``Out``, ``InOut``, ``Constant``, float, int, bool or a dtype.
            grid: Sizes of the grid, as integer expressions of size names, separated by commas; those of the first result by
                default. Of a kernel with groups, the number of groups along each axis.
            group: Number of items of a group, or the name of a ``Constant[int]``; 0 for none.
            unchecked: Whether indices are not compared with sizes. A wrong index then reads or writes other memory.
            deterministic: Whether results must not depend on the order of items; False allows atomic sums of floats.

        Returns:
            The kernel, which is called with tensors.

        Example:
            >>> import firebrick as fb
            >>> @fb.kernel
            ... def axpy(
            ...     a: float,
            ...     x: fb.kernel.In[fb.float32, "n"],
            ...     y: fb.kernel.In[fb.float32, "n"],
            ...     out: fb.kernel.Out[fb.float32, "n"],
            ... ):
            ...     i = fb.kernel.index()
            ...     out[i] = a * x[i] + y[i]
            >>> axpy(2.0, fb.ones(3), fb.ones(3)).tolist()
            [3.0, 3.0, 3.0]
        """

        def make(f: Callable[..., Any]) -> Kernel:
            return Kernel(f, grid, group, unchecked, deterministic)

        return make if function is None else make(function)

    @staticmethod
    def function(function: Callable[..., Any]) -> HelperFunction:
        """A function that kernels call; it becomes part of each kernel that calls it.

        Args:
            function: In the kernel language. Its parameters are not annotated.

        Example:
            >>> import firebrick as fb
            >>> @fb.kernel.function
            ... def square(v):
            ...     return v * v
            >>> @fb.kernel
            ... def squares(x: fb.kernel.In[fb.float32, "n"], out: fb.kernel.Out[fb.float32, "n"]):
            ...     i = fb.kernel.index()
            ...     out[i] = square(x[i])
            >>> squares(fb.asarray([2.0, 3.0])).tolist()
            [4.0, 9.0]
        """
        return HelperFunction(function)


kernel = _KernelLanguage()
