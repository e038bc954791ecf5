"""``Tensor``: a small handle on a storage, with value semantics.

No operation on one tensor changes what another shows: ``x[i] = v``, ``x += v`` and ``out=x`` rebind the handle ``x`` to a
new result. Reading (``numpy``, ``item``, printing, DLPack) always waits for the engine first.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any, Never, Self

import numpy as np

from firebrick.core import html
from firebrick.core.aval import Aval, Shape
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.errors import DTypeError, OperandError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.other_arguments import unknown_argument
from firebrick.core.other_names import METHODS, UnknownNameError
from firebrick.core.storage import Absent, Storage
from firebrick.core.uncalled import Method

_call = hooks.methods
_PROTOCOLS = frozenset({"__array_interface__", "__array_struct__"})
"""Attributes that NumPy asks for before ``__array__``; their errors, which nobody reads, cost more than the rest."""


class Tensor:
    """A multi-dimensional array on one device. Make one with ``fb.asarray``, ``fb.zeros``, ….

    Attributes:
        storage: The engine's buffer and who owns it.
        dtype: Element type.
        shape: Sizes of the axes.
        device: Device that holds the elements.
        node: Its node on the autodiff tape, or None when untracked.
        slot: Which result of ``node`` it is.
        leaf: Its leaf id (positive), 0 if it never was one, negative if rebound since.
        label: A name that error messages use, such as ``conv1.weight``.

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray([[1.0, 2.0], [3.0, 4.0]])
        >>> x.shape, x.dtype.name, x.device.name
        ((2, 2), 'float32', 'cpu:0')
        >>> (x[:, 0] + 1.0).tolist()
        [2.0, 4.0]
        >>> (x @ x.T).sum().item()
        52.0
    """

    __slots__ = ("__weakref__", "device", "dtype", "label", "leaf", "node", "shape", "slot", "storage")
    _title = "tensor"  # what its text begins with
    __array_priority__ = 1000

    def __init__(self, storage: Storage, dtype: DType, shape: Shape, device: Device, label: str | None = None) -> None:
        self.storage = storage
        self.dtype = dtype
        self.shape = shape
        self.device = device
        self.node: Any = None
        self.slot = 0
        self.leaf = 0
        self.label = label

    # what it is

    @property
    def aval(self) -> Aval:
        """Shape and dtype."""
        return Aval(self.shape, self.dtype)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(prod(self.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.size * self.dtype.itemsize

    @property
    def tracked(self) -> bool:
        """Whether gradients flow to it."""
        return self.node is not None

    @property
    def T(self) -> Tensor:
        """The transpose of a matrix (two axes only; ``mT`` for stacks of matrices)."""
        if self.ndim != 2:
            raise ShapeError("x.T needs exactly two axes", f"shape {self.shape}", "use x.mT or fb.permute_dims")
        return self.mT

    @property
    def mT(self) -> Tensor:
        """The transpose of the last two axes."""
        return _call["matrix_transpose"](self)

    @property
    def real(self) -> Tensor:
        """The real part; a real tensor as it is."""
        return _call["real"](self)

    @property
    def imag(self) -> Tensor:
        """The imaginary part; zeros for a real tensor."""
        return _call["imag"](self)

    # reading

    def numpy(self) -> np.ndarray[Any, Any]:
        """Its values as a read-only NumPy array (without a copy where the engine shares host memory)."""
        return hooks.to_host(self)

    def item(self) -> Any:
        """The value of a tensor of one element, as a Python scalar."""
        if self.size != 1:
            raise ShapeError("item() needs a tensor of one element", str(self.aval), "index it first, or use x.numpy()")
        return hooks.to_host(self).reshape(()).item()

    if not TYPE_CHECKING:  # for which its use without a call is an error by itself
        item = Method(item)

    def tolist(self) -> Any:
        """Its values as nested lists of Python scalars."""
        return hooks.to_host(self).tolist()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        """Operators of a NumPy scalar and a tensor; NumPy's functions of tensors raise."""
        return _call["universal"](ufunc, method, inputs, settings)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Functions of NumPy that read tensors."""
        return _call["array_function"](function, args, kwargs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if self.node is not None or isinstance(self.storage.data, Absent):
            _call["constant"](self, "NumPy array")
        host = hooks.to_host(self)
        if dtype is not None and host.dtype != np.dtype(dtype):
            if copy is False:
                raise ValueError("a copy is needed to convert the dtype, and copy=False forbids it")
            return np.asarray(host.astype(dtype))
        return np.asarray(host.copy() if copy else host)

    def _scalar(self, kind: str) -> Any:
        if self.ndim and self.size != 1:
            raise ShapeError(
                f"{kind}() of a tensor needs exactly one element",
                str(self.aval),
                "reduce it first, for example with fb.any, fb.all or fb.sum",
            )
        return hooks.to_host(self).reshape(()).item()

    def __bool__(self) -> bool:
        return bool(self._scalar("bool"))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise DTypeError("an index needs an integer dtype", str(self.aval), "cast it to fb.int64")
        return int(self._scalar("index"))

    def __len__(self) -> int:
        if not self.shape:
            raise OperandError(
                "len() needs a tensor with an axis", str(self.aval), "x.size is the number of elements", op="len"
            )
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.shape:
            raise OperandError(
                "iteration needs a tensor with an axis", str(self.aval), "read its value with x.item()", op="iteration"
            )
        return (self[i] for i in range(self.shape[0]))

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        label = f", label={self.label!r}" if self.label else ""
        tracked = ", tracked" if self.node is not None else ""
        data = self.storage.data
        if isinstance(data, Absent):
            shape = f"shape={self.shape}, dtype={self.dtype.name}, device={self.device}"
            return f"{self._title}({data.shown()}, {shape}{label}{tracked})"
        body = self._shown(f"{self._title}(")
        return f"{self._title}({body}, dtype={self.dtype.name}, device={self.device}{label}{tracked})"

    def _shown(self, prefix: str = "") -> str:
        """Its values as text; of many, some."""
        try:
            return np.array2string(hooks.to_host(self), separator=", ", prefix=prefix, threshold=100)
        except Exception as e:  # noqa: BLE001 - printing must not fail
            return f"<unreadable: {e}>"

    def _repr_html_(self) -> str:
        """What notebooks show: a line with dtype, shape and device, and the values."""
        data = self.storage.data
        about = [f"{self.dtype.name}{list(self.shape)} on {self.device}", self.label or "", "tracked" if self.tracked else ""]
        title = f"{self._title} {', '.join(filter(None, about))}"
        values = data.shown() if isinstance(data, Absent) else self._shown()
        return f"<div><b>{html.escape(title)}</b>{html.text(values)}</div>"

    if not TYPE_CHECKING:  # for which an unknown attribute is an error by itself

        def __getattr__(self, name: str) -> Any:
            """Raise the error for an attribute that tensors have not; it names what to write."""
            if name in _PROTOCOLS:
                raise AttributeError(name)
            raise UnknownNameError("'Tensor' object", name, METHODS, lambda: dir(Tensor), "x.{}")

    def __format__(self, spec: str) -> str:
        """Its text; with a format, such as ``f"{loss:.4f}"``, the value of a tensor of one element in that format.

        Raises:
            ShapeError: A format is given, and there are several elements or none.
        """
        if not spec:
            return str(self)
        if self.size != 1:
            raise ShapeError(
                f"the format {spec!r} is one of a number", str(self.aval), "format its elements, or index it first", op="format"
            )
        return format(self.item(), spec)

    # moving and exchanging

    def to(self, device: Device | str) -> Tensor:
        """This tensor on another device (itself if it is there already); gradients flow through the move.

        Args:
            device: Device, or device string such as "numpy" or "torch:cuda:0".

        Raises:
            DeviceError: The device is unknown or absent.
            DTypeError: The device cannot store the dtype.
        """
        return _call["to_device"](self, device)

    def to_device(self, device: Device | str, /, *, stream: Any = None) -> Tensor:
        """The Array API standard's name of ``to``.

        Args:
            device: Device or device string.
            stream: Must be None.
        """
        if stream is not None:
            raise ValueError("stream must be None: Firebrick orders its own streams")
        return self.to(device)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return _call["to_dlpack"](self, **{k: v for k, v in given.items() if v is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return _call["dlpack_device"](self)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return _call["array_namespace"](api_version)

    # tracking

    def require_grad(self) -> Tensor:
        """Track this handle as a leaf, and deep and pickled copies of it; returns it."""
        return _call["require_grad"](self)

    def detach(self) -> Tensor:
        """The same values, untracked, as another handle."""
        made = self._another()
        if hooks.levels and isinstance(made.storage.data, Absent):
            made.storage = made.storage.data.detached(made.storage)
        return made

    def _another(self) -> Tensor:
        """Another handle on the same storage, without a place on the tape. Under ``fb.vmap``, gradients that are taken outside
        of it still flow to what the storage holds."""
        if hooks.tracing:
            hooks.capture(self)
        return Tensor(self.storage, self.dtype, self.shape, self.device, self.label)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy = self.detach()  # nobody writes what another handle shows, so a copy may share it
        return copy.require_grad() if self._lasting else copy

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (np.array(hooks.to_host(self)), self.device, self.label, self._lasting)

    @property
    def _lasting(self) -> bool:
        """Whether ``require_grad`` made it a leaf, which copies are as well."""
        return self.node is not None and bool(self.node.lasting)

    def _rebind(self, to: Tensor) -> None:
        """Make this handle show ``to``; what other handles show stays as it is."""
        if hooks.tracing:
            hooks.capture(self)
            hooks.capture(to)
        if to.dtype is not self.dtype or to.shape != self.shape:
            hooks.version += 1
        if hooks.journals:
            hooks.note(self)
        with hooks.rebinding:
            if hooks.tracing and hooks.elsewhere(self, to.storage, to.dtype, to.shape, to.node, to.slot):
                return
            self.storage, self.dtype, self.shape = to.storage, to.dtype, to.shape
            self.node, self.slot = to.node, to.slot
            self.leaf = -abs(self.leaf)

    def _assign(self, name: str, result: Tensor) -> Self:
        if result.shape != self.shape:
            raise ShapeError(
                f"x {name} v must keep the shape of x, {self.shape}",
                f"result {result.aval}",
                "write x = x + v",
            )
        if result.dtype is not self.dtype:
            raise DTypeError(
                f"x {name} v must keep the dtype of x, {self.dtype.name}",
                f"result {result.aval}",
                f"cast v with fb.astype(v, fb.{self.dtype.name}), or write x = x + v",
            )
        self._rebind(result)
        return self

    # indexing

    def __getitem__(self, key: Any) -> Tensor:
        return _call["getitem"](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._rebind(_call["setitem"](self, key, value))

    # operators

    def __add__(self, other: Any) -> Tensor:
        return _call["add"](self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _call["add"](other, self)

    def __iadd__(self, other: Any) -> Self:
        return self._assign("+=", _call["add"](self, other))

    def __sub__(self, other: Any) -> Tensor:
        return _call["subtract"](self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _call["subtract"](other, self)

    def __isub__(self, other: Any) -> Self:
        return self._assign("-=", _call["subtract"](self, other))

    def __mul__(self, other: Any) -> Tensor:
        return _call["multiply"](self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _call["multiply"](other, self)

    def __imul__(self, other: Any) -> Self:
        return self._assign("*=", _call["multiply"](self, other))

    def __truediv__(self, other: Any) -> Tensor:
        return _call["divide"](self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _call["divide"](other, self)

    def __itruediv__(self, other: Any) -> Self:
        return self._assign("/=", _call["divide"](self, other))

    def __floordiv__(self, other: Any) -> Tensor:
        return _call["floor_divide"](self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return _call["floor_divide"](other, self)

    def __ifloordiv__(self, other: Any) -> Self:
        return self._assign("//=", _call["floor_divide"](self, other))

    def __mod__(self, other: Any) -> Tensor:
        return _call["remainder"](self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return _call["remainder"](other, self)

    def __imod__(self, other: Any) -> Self:
        return self._assign("%=", _call["remainder"](self, other))

    def __pow__(self, other: Any) -> Tensor:
        return _call["pow"](self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return _call["pow"](other, self)

    def __ipow__(self, other: Any) -> Self:
        return self._assign("**=", _call["pow"](self, other))

    def __matmul__(self, other: Any) -> Tensor:
        return _call["matmul"](self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return _call["matmul"](other, self)

    def __imatmul__(self, other: Any) -> Self:
        return self._assign("@=", _call["matmul"](self, other))

    def __neg__(self) -> Tensor:
        return _call["negative"](self)

    def __pos__(self) -> Tensor:
        return _call["positive"](self)

    def __abs__(self) -> Tensor:
        return _call["abs"](self)

    def __divmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Tensor, Tensor]:
        return other // self, other % self

    def __invert__(self) -> Tensor:
        return _call["bitwise_invert"](self)

    def __and__(self, other: Any) -> Tensor:
        return _call["bitwise_and"](self, other)

    def __rand__(self, other: Any) -> Tensor:
        return _call["bitwise_and"](other, self)

    def __iand__(self, other: Any) -> Self:
        return self._assign("&=", _call["bitwise_and"](self, other))

    def __or__(self, other: Any) -> Tensor:
        return _call["bitwise_or"](self, other)

    def __ror__(self, other: Any) -> Tensor:
        return _call["bitwise_or"](other, self)

    def __ior__(self, other: Any) -> Self:
        return self._assign("|=", _call["bitwise_or"](self, other))

    def __xor__(self, other: Any) -> Tensor:
        return _call["bitwise_xor"](self, other)

    def __rxor__(self, other: Any) -> Tensor:
        return _call["bitwise_xor"](other, self)

    def __ixor__(self, other: Any) -> Self:
        return self._assign("^=", _call["bitwise_xor"](self, other))

    def __lshift__(self, other: Any) -> Tensor:
        return _call["bitwise_left_shift"](self, other)

    def __rlshift__(self, other: Any) -> Tensor:
        return _call["bitwise_left_shift"](other, self)

    def __ilshift__(self, other: Any) -> Self:
        return self._assign("<<=", _call["bitwise_left_shift"](self, other))

    def __rshift__(self, other: Any) -> Tensor:
        return _call["bitwise_right_shift"](self, other)

    def __rrshift__(self, other: Any) -> Tensor:
        return _call["bitwise_right_shift"](other, self)

    def __irshift__(self, other: Any) -> Self:
        return self._assign(">>=", _call["bitwise_right_shift"](self, other))

    def __lt__(self, other: Any) -> Tensor:
        return _call["less"](self, other)

    def __le__(self, other: Any) -> Tensor:
        return _call["less_equal"](self, other)

    def __gt__(self, other: Any) -> Tensor:
        return _call["greater"](self, other)

    def __ge__(self, other: Any) -> Tensor:
        return _call["greater_equal"](self, other)

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        return _call["equal"](self, other)

    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        return _call["not_equal"](self, other)

    # methods with the functions' names

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape: ``fb.reshape``, with the sizes as a tuple or one by one.

        Args:
            *shape: Sizes; one may be -1, which is computed from the others.
        """
        return _call["reshape"](self, shape[0] if len(shape) == 1 else shape)

    def astype(self, dtype: Any, /) -> Tensor:
        """The elements cast to a dtype: ``fb.astype``.

        Args:
            dtype: DType, or its name.
        """
        return _call["astype"](self, dtype)

    def sum(self, axis: Any = None, *, keepdims: bool = False, **_other: Never) -> Tensor:
        """Sum over axes: ``fb.sum``.

        Args:
            axis: Axis or tuple of axes; all by default.
            keepdims: Whether reduced axes stay, with size 1.
        """
        if _other:
            raise unknown_argument(Tensor.sum, _other, "x.sum")
        return _call["sum"](self, axis=axis, keepdims=keepdims)

    def mean(self, axis: Any = None, *, keepdims: bool = False, **_other: Never) -> Tensor:
        """Arithmetic mean over axes: ``fb.mean``.

        Args:
            axis: Axis or tuple of axes; all by default.
            keepdims: Whether reduced axes stay, with size 1.
        """
        if _other:
            raise unknown_argument(Tensor.mean, _other, "x.mean")
        return _call["mean"](self, axis=axis, keepdims=keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False, **_other: Never) -> Tensor:
        """Largest element over axes: ``fb.max``.

        Args:
            axis: Axis or tuple of axes; all by default.
            keepdims: Whether reduced axes stay, with size 1.
        """
        if _other:
            raise unknown_argument(Tensor.max, _other, "x.max")
        return _call["max"](self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False, **_other: Never) -> Tensor:
        """Smallest element over axes: ``fb.min``.

        Args:
            axis: Axis or tuple of axes; all by default.
            keepdims: Whether reduced axes stay, with size 1.
        """
        if _other:
            raise unknown_argument(Tensor.min, _other, "x.min")
        return _call["min"](self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: Any = None, *, keepdims: bool = False, **_other: Never) -> Tensor:
        """Lowest index of the largest element: ``fb.argmax``.

        Args:
            axis: Axis; by default the index is of the flattened tensor.
            keepdims: Whether the axis stays, with size 1.
        """
        if _other:
            raise unknown_argument(Tensor.argmax, _other, "x.argmax")
        return _call["argmax"](self, axis=axis, keepdims=keepdims)


def _restored(values: np.ndarray[Any, Any], device: Device, label: str | None, lasting: bool = False) -> Tensor:
    """A pickled tensor, on the device it was on."""
    made: Tensor = hooks.from_host(values, device)
    made.label = label
    return made.require_grad() if lasting else made
