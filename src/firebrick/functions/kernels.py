"""``fb.kernel``: functions in the kernel language, as operations on tensors."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, overload

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
from firebrick.compiler.kernel.language.source import Source
from firebrick.compiler.kernel.language.translate import Instance, translate
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.constants import constant
from firebrick.core.dtypes import DType, bool_, scalar_fits
from firebrick.core.errors import DTypeError, KernelCompileError, OperandError
from firebrick.core.hooks import hooks
from firebrick.core.op import Cost, Nondifferentiable, Op, Operand, Vjp
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak, as_tensor
from firebrick.ops.index_maps import elementwise
from firebrick.ops.table import OPS

_INSTANCES = 64
"""Maximum number of compiled instances (dtypes, constants) of a kernel that are kept."""


class Kernel:
    """A function in the kernel language. Call it with its arguments: it returns the tensors of its results.

    ``@fb.kernel`` makes it. Arrays are tensors on one device, of the annotated dtypes; numbers are Python numbers or 0-d
    tensors. The results of several ``Out`` and ``InOut`` parameters are a tuple in the order of the parameters.

    Attributes:
        name: Of the function.
        signature: Its parameters.
    """

    __jit_through__ = "_watched"

    def __init__(
        self, function: Callable[..., Any], grid: str | None, group: int | str, unchecked: bool, deterministic: bool
    ) -> None:
        functools.update_wrapper(self, function)
        self._source = Source(function)
        self.name = self._source.name
        self.signature: Signature = signature_of(function, grid)
        self._group, self._unchecked, self._deterministic = group, unchecked, deterministic
        self._watched = function, grid, group, unchecked, deterministic  # what a compiled program depends on
        self._ops: dict[Any, tuple[Op, tuple[tuple[str, Any], ...]]] = {}
        self._lock = threading.Lock()
        if isinstance(group, str) and self.signature.parameters.get(group) != ConstantType(int):
            raise KernelCompileError(
                f"kernel {self.name}: the size of a group is a number, or the name of a parameter annotated Constant[int]",
                repr(group), "write group=256",
            )  # fmt: skip
        if isinstance(group, int) and not 0 <= group <= 1024:
            raise KernelCompileError(f"kernel {self.name}: a group has 1 to 1024 items", repr(group), "write group=256")

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

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
        values = self._bound(args, named)
        op, operands, statics = self._operation(values, device)
        return bind(op, operands, {"statics": statics})

    def op_for(self, *args: Any, device: Any = None, **named: Any) -> Op:
        """The operation that a call with these arguments runs, for tests of it."""
        return self._operation(self._bound(args, named), device)[0]

    def _bound(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        given = self.signature.given
        names = list(given)
        if len(args) > len(names):
            raise OperandError(
                f"{self.name} has {len(names)} arguments: {', '.join(names) or 'none'}", f"{len(args)}", "pass these"
            )
        values = dict(zip(names, args, strict=False))
        for name, v in named.items():
            if name not in given or name in values:
                why = "twice" if name in values else "no argument"
                raise OperandError(
                    f"{self.name} has the arguments {', '.join(names) or 'none'}", f"{name}, {why}", "correct the call"
                )
            values[name] = v
        for name in names:
            if name not in values:
                if name not in self.signature.defaults:
                    raise OperandError(f"{self.name} has the arguments {', '.join(names)}", f"none for {name}", f"pass {name}")
                values[name] = self.signature.defaults[name]
        return {n: values[n] for n in names}

    def _operation(self, values: dict[str, Any], device: Any) -> tuple[Op, tuple[Any, ...], tuple[tuple[str, int], ...]]:
        """The op of a call, its operands, and the integers that sizes depend on."""
        signature = self.signature
        tensors = {n: v for n, v in values.items() if isinstance(v, Tensor)}
        where = next(iter(tensors.values())).device if tensors else hooks.find_device(device)
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
        for name, p in signature.arrays.items():
            if isinstance(p.dtype, str):
                if name in dtypes and dtypes[name] is not dtypes[p.dtype]:
                    want = dtypes[p.dtype].name
                    raise DTypeError(
                        f"{self.name}: {name} has the dtype of {p.dtype}, {want}", f"{name}: {dtypes[name].name}",
                        f"cast it: fb.astype({name}, fb.{want})",
                    )  # fmt: skip
                dtypes[name] = dtypes[p.dtype]
            elif isinstance(p.dtype, DType):
                dtypes[name] = p.dtype
        floating = floating_of({n: dtypes[n] for n in signature.arrays})
        operands: list[Any] = []
        for name, p in signature.given.items():
            if isinstance(p, NumberType) and name not in statics:
                dtypes[name] = p.dtype or floating
                operands.append(self._number(name, dtypes[name], values[name], where))
            elif isinstance(p, ArrayType):
                operands.append(values[name])
        group = constants[self._group] if isinstance(self._group, str) else self._group
        instance = Instance(
            tuple((n, dtypes[n]) for n in signature.parameters if n in dtypes), tuple(constants.items()), group,
            self._unchecked, self._deterministic,
        )  # fmt: skip
        op = self._op(instance)
        if not operands:  # an operand says where an operation runs
            operands.append(constant(False, bool_, where))
        return op, tuple(operands), tuple(statics.items())

    def _array_dtype(self, name: str, p: ArrayType, v: Any) -> DType:
        if not isinstance(v, Tensor):
            raise OperandError(
                f"{self.name}: {name} is a tensor", f"{name}: {type(v).__name__}", f"pass fb.asarray({name})"
            )  # fmt: skip
        if isinstance(p.dtype, DType) and v.dtype is not p.dtype:
            raise DTypeError(
                f"{self.name}: {name} has dtype {p.dtype.name}", f"{name}: {v.dtype.name}{list(v.shape)}",
                f"cast it: fb.astype({name}, fb.{p.dtype.name})", op=self.name,
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

    def _op(self, instance: Instance) -> Op:
        """The op of an instance; translated again if a number outside of the function that it uses has changed."""
        found = self._ops.get(instance)
        if found is not None and self._captures_hold(found[1]):
            return found[0]
        translated = translate(self._source, self.signature, instance)
        program = KernelProgram(self.name, self.signature, instance, translated)
        op = operation(program)
        with self._lock:
            if len(self._ops) >= _INSTANCES:
                self._ops.pop(next(iter(self._ops)))
            self._ops[instance] = op, translated.captures
        return op

    def _captures_hold(self, captures: tuple[tuple[str, Any], ...]) -> bool:
        return all(_same(self._source.captured_again(name), value) for name, value in captures)


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b or (a != a and b != b))


def operation(program: KernelProgram) -> Op:
    """The op that a kernel is."""
    function = program.translated.function

    def infer(*avals: Aval, statics: Any) -> Any:
        shapes = [a.shape for a in avals[: len(program.operands)]]
        found = program.sizes(shapes, dict(statics)).results
        return found if len(found) > 1 else found[0]

    def reference(*arrays: Any, statics: Any) -> Any:
        found = program.interpreted(arrays[: len(program.operands)], dict(statics))
        return found if len(found) > 1 else found[0]

    def cost(inputs: Any, outputs: Any, params: Any) -> Cost:
        moved = float(sum(a.nbytes for a in (*inputs, *outputs)))
        return Cost(moved, moved)

    operands = tuple(Operand(n, "any") for n in program.operands) or (Operand("device", "any"),)
    reason = obstacle(program)
    scalar = None if reason else pure_expression(program)
    fields: dict[str, Any] = {"fusion": "opaque"}
    if scalar is not None:  # computed with its neighbours in one kernel
        fields = {"fusion": "map", "kind": "map", "scalar": scalar, "index_map": elementwise, "broadcasts": True}
    return Op(
        name=program.name, doc=function.name, operands=operands, infer=infer, reference=reference,
        vjp=Nondifferentiable(reason) if reason else partial(_derived, program), residuals=("inputs",),
        samples=lambda rng, dtype: [], cost=cost, bound="memory", tolerance=0.0, program=program, **fields,
    )  # fmt: skip


def _derived(program: KernelProgram, cotangents: Any, r: Vjp) -> Any:
    """The gradient of a kernel without loops, by that of the operations that it is composed of."""
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
    """``fb.kernel``: the decorator, and the words of the kernel language."""

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
        """
        return HelperFunction(function)


kernel = _KernelLanguage()
