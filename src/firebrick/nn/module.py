"""``Module``: a layer or model, as a Python object whose attributes are its parameters, buffers and parts.

There is no registration: ``named_parameters`` walks the attributes, looking into modules, lists, tuples and dicts, and
reports every parameter once, under its first name. A module is called like a function; the call first checks its tensor
arguments against its own parameters, by the names a user knows them by.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

import numpy as np

from firebrick.autodiff.tape import no_grad
from firebrick.autodiff.transforms import is_argument
from firebrick.backends.contract import check_storable
from firebrick.backends.registry import find_device
from firebrick.core.commit import Commit
from firebrick.core.device import Device
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ArgumentError, ConfigError, DeviceMismatchError, DTypeError, ShapeError
from firebrick.core.hooks import changed
from firebrick.core.lines import warn
from firebrick.core.operands import describe, not_a_tensor
from firebrick.core.other_arguments import refuse_unknown
from firebrick.core.other_names import OF_MODULES, UnknownNameError
from firebrick.core.settings import python_settings
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype
from firebrick.nn import saved
from firebrick.nn.changes import changes
from firebrick.nn.forward_hooks import Entry, ForwardHook, Function, after
from firebrick.nn.parameter import Buffer, Parameter
from firebrick.random import Generator

if TYPE_CHECKING:
    from firebrick.nn.call_types import CompiledForward, Forward
    from firebrick.nn.summary import Summary

P = ParamSpec("P")
R = TypeVar("R")

watch: ContextVar[Callable[[Module, Any], None] | None] = ContextVar("firebrick_watch_modules", default=None)


def _settings(init: Callable[..., None]) -> Callable[..., None]:
    """The ``__init__`` of a layer: NumPy's scalars become Python's, and a tensor, which a call takes, is refused."""
    with_settings = python_settings(init)

    @wraps(init)
    def made(self: Any, *args: Any, **named: Any) -> None:
        given = next((v for v in args if isinstance(v, Tensor)), None)
        if given is not None:
            name = type(self).__name__
            raise ArgumentError(
                f"{name} takes settings when it is made, and tensors when it is called",
                describe("x", given),
                f"make the layer, then call it: nn.{name}(…)({', '.join(('x', 'y', 'z')[: len(args)])})",
            )
        with_settings(self, *args, **named)

    return made


def _without_settings(self: object) -> None:
    """The ``__init__`` of a layer that has no settings."""


_without_settings.__name__ = "__init__"  # by which the error reports the layer


class Module:
    """Base of layers and models: assign parameters and parts as attributes, and write ``forward``.

    Only a ``Parameter`` or ``Buffer`` is state: a plain tensor attribute is a constant, which neither ``state_dict`` nor ``to``
    looks at. ``super().__init__()`` need not be called.

    Example:
        >>> import firebrick as fb
        >>> class Scale(fb.nn.Module):
        ...     def __init__(self):
        ...         self.factor = fb.nn.Parameter(fb.ones(()))
        ...
        ...     def forward(self, x):
        ...         return x * self.factor
        >>> model = Scale()
        >>> model(fb.asarray([2.0])).tolist(), [name for name, _ in model.named_parameters()]
        ([2.0], ['factor'])
    """

    versioned = True  # every attribute that is set raises hooks.settings
    unwatched = frozenset({"_path"})  # names for messages, which no result depends on
    training: bool = True
    _forward_hooks: tuple[Entry, ...] = ()
    _path: str | None = None  # from the root that first named it; "" for a root

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if "__init__" in cls.__dict__ and cls.__module__.startswith("firebrick."):  # a user's layer gets what it is given
            cls.__init__ = _settings(cls.__init__)  # type: ignore[method-assign]
        elif cls.__init__ is object.__init__ and cls.__module__.startswith("firebrick."):
            cls.__init__ = _settings(_without_settings)  # type: ignore[method-assign]

    if TYPE_CHECKING:
        forward: Any  # may be overridden by any signature
    else:

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            """What the module computes; subclasses write it.

            Args:
                *args: As the subclass has them.
                **kwargs: As the subclass has them.
            """
            raise NotImplementedError(f"{type(self).__name__} has no forward: write what it computes there")

    @overload
    def __call__(self: CompiledForward[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self: Forward[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """``forward``, after checking the arguments.

        Args:
            *args: Those of ``forward``.
            **kwargs: Those of ``forward``.

        Raises:
            OperandError: An argument is a NumPy array.
            DeviceMismatchError: A tensor argument and a parameter of this module are on different devices.
        """
        if self._path is None:
            self._name("")
        self._check_entry(args, kwargs)
        seen = watch.get()
        before = changes.count
        try:
            result = self.forward(*args, **kwargs)
            if self._forward_hooks:
                result = after(self, args, result)
        except BaseException as e:
            changes.failed(before)
            if kwargs and type(e) is TypeError and type(self).__module__.startswith("firebrick."):
                refuse_unknown(self.forward, (), kwargs)
            raise
        if seen is not None:
            seen(self, result)
        return result

    def _check_entry(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        home: Device | None = None
        for v in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(v, Tensor):
                if home is not None and v.device is not home:
                    raise self._mismatch(args, kwargs)
                home = v.device
            elif isinstance(v, (list, tuple)):
                for t in v:
                    if isinstance(t, Tensor):
                        if home is not None and t.device is not home:
                            raise self._mismatch(args, kwargs)
                        home = t.device
            elif isinstance(v, np.ndarray):
                name = next(n for n, a in self._arguments(args, kwargs) if a is v)
                raise not_a_tensor(type(self).__name__, name, v, home.name if home else None)
        for v in self.__dict__.values():
            if isinstance(v, (Parameter, Buffer)):
                if home is not None and v.device is not home:
                    raise self._mismatch(args, kwargs)
                home = v.device

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """The arguments with the names that ``forward`` gives them."""
        for name, v in signature(self.forward).bind(*args, **kwargs).arguments.items():
            for n, a in v.items() if isinstance(v, dict) else ((name, v),):
                if isinstance(a, (list, tuple)):
                    yield from ((f"{n}[{i}]", t) for i, t in enumerate(a))
                else:
                    yield n, a

    def _mismatch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> DeviceMismatchError:
        prefix = f"{self._path}." if self._path else ""
        given = [(n, t) for n, t in self._arguments(args, kwargs) if isinstance(t, Tensor)]
        own = [(prefix + n, t) for n, t in self.__dict__.items() if isinstance(t, (Parameter, Buffer))]
        first, x = (given or own)[0]
        name, other = next((n, t) for n, t in given + own if t.device is not x.device)
        shown = describe(name, other.detach()) if any(other is t for _, t in own) else describe(name, other)
        shown = shown.removesuffix(f" ({name})")
        if any(other is t for _, t in own) and given:
            remedy = f'move the input, {first}.to("{other.device}"), or the model, model.to("{x.device}")'
        else:
            remedy = f'move one of them: {name}.to("{x.device}") or {first}.to("{other.device}")'
        return DeviceMismatchError(
            f"{type(self).__name__}: all tensors must be on one device",
            f"{describe(first, x)} and {shown}",
            remedy,
            op=type(self).__name__,
            operands=[first, name],
            devices=[x.device.name, other.device.name],
        )

    # attributes

    if not TYPE_CHECKING:  # for which an unknown attribute is an error by itself

        def __getattr__(self, name: str) -> Any:
            """Raise the error for an attribute that a module has not; it names what to write."""
            raise UnknownNameError(f"{type(self).__name__!r} object", name, OF_MODULES, lambda: dir(self), "model.{}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a plain tensor over a parameter or buffer changes that one's values.

        Gradients pass through a parameter to the tensor that it was given, as after ``p[...] = value``; a buffer has none.

        Raises:
            DeviceMismatchError, DTypeError, ShapeError: The tensor differs from the parameter in device, dtype or shape.
        """
        held = self.__dict__.get(name)
        if isinstance(held, (Parameter, Buffer)) and isinstance(value, Tensor) and not isinstance(value, (Parameter, Buffer)):
            _check_fits(type(self).__name__, name, held, value)
            held._rebind(value if isinstance(held, Parameter) else value.detach())
            return
        own = isinstance(value, Tensor) and not isinstance(value, (Parameter, Buffer))
        if own and value.tracked and value.leaf > 0 and not is_argument(value):
            warn(
                f"{type(self).__name__}.{name} is a tensor with require_grad(), which an optimizer does not find: "
                f"write self.{name} = nn.Parameter(value)",
                UserWarning,
            )
        elif isinstance(value, (set, frozenset, deque, partial)):
            self._check_found(name, value)
        object.__setattr__(self, name, value)
        changed(self, name)
        path = name if not self._path else f"{self._path}.{name}"
        if isinstance(value, (Parameter, Buffer)):
            value.label = value.label or path
        elif isinstance(value, Module) and self._path is not None:
            value._name(path)

    def _check_found(self, name: str, value: Any) -> None:
        """Warn of parts in a container into which a module does not look."""
        items = (
            (getattr(value.func, "__self__", value.func), *value.args, *value.keywords.values())
            if isinstance(value, partial)
            else value
        )
        known = {id(v) for _, v in _walk(self)}
        part = next(
            (v for v in items if isinstance(v, (Parameter, Buffer, Module)) and v is not self and id(v) not in known), None
        )
        if part is not None:
            warn(
                f"{type(self).__name__}.{name} is a {type(value).__name__} with a {type(part).__name__}, which neither "
                "optimizers nor checkpoints find there: keep it in an attribute, a list, a tuple or a dict as well",
                UserWarning,
            )

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        changed(self, name)

    def _name(self, path: str) -> None:
        """Label every parameter, buffer and part with its path from the root, first names first."""
        prefix = f"{path}." if path else ""
        object.__setattr__(self, "_path", path)
        for name, member in reversed(_walk(self)):
            if isinstance(member, Module):
                object.__setattr__(member, "_path", prefix + name)
            elif isinstance(member, Tensor):
                member.label = prefix + name

    # parts

    def _tensors(self) -> list[tuple[str, Any]]:
        if self._path is None:
            self._name("")
        found = []
        prefix = f"{self._path}." if self._path else ""
        for name, member in _walk(self):
            if isinstance(member, (Parameter, Buffer)):
                member.label = prefix + name
                found.append((name, member))
        return found

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """All parameters, frozen ones too, with their paths (``conv1.weight``); a shared one once, under its first."""
        return [(n, p) for n, p in self._tensors() if isinstance(p, Parameter)]

    def aliases(self) -> dict[str, str]:
        """The further paths of shared parameters and buffers, each with its first, under which ``named_parameters`` has it.

        Example:
            >>> import firebrick as fb
            >>> model = fb.nn.Sequential(fb.nn.Linear(2, 2), fb.nn.Linear(2, 2))
            >>> model.layers[1].weight = model.layers[0].weight
            >>> model.aliases()
            {'layers.1.weight': 'layers.0.weight'}
        """
        return _aliases(self)

    def parameters(self) -> list[Parameter]:
        """All parameters, each once."""
        return [p for _, p in self.named_parameters()]

    def trainable_parameters(self) -> list[tuple[str, Parameter]]:
        """The parameters that are not frozen, with their paths: what ``fb.value_and_grad`` differentiates by."""
        return [(n, p) for n, p in self.named_parameters() if not p.frozen]

    def named_buffers(self) -> list[tuple[str, Buffer]]:
        """All buffers with their paths."""
        return [(n, b) for n, b in self._tensors() if isinstance(b, Buffer)]

    def buffers(self) -> list[Buffer]:
        """All buffers, each once."""
        return [b for _, b in self.named_buffers()]

    def modules(self) -> list[tuple[str, Module]]:
        """This module (path "") and all its parts, each once, in the order of their attributes."""
        return [("", self), *((n, m) for n, m in _walk(self) if isinstance(m, Module))]

    def _optimized_by(self, path: str, optimizer: Any) -> None:
        """Raise an error, or warn, if an optimizer that is made for a model cannot train this part of it."""

    def _loaded_in_part(self, prefix: str, state: Any) -> None:
        """Raise StateError if this part cannot load what a state that may lack paths has under its prefix."""

    def named_modules(self) -> list[tuple[str, Module]]:
        """``modules()``, by the name that it has in PyTorch."""
        return self.modules()

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call a function with each part, the innermost first, and with the module itself last; returns the module.

        Args:
            fn: Called with each module once; what it returns is not used.

        Example:
            >>> import firebrick as fb
            >>> model = fb.nn.Sequential(fb.nn.Linear(2, 2), fb.nn.Linear(2, 1))
            >>> def zero(module):
            ...     if isinstance(module, fb.nn.Linear):
            ...         module.bias = fb.zeros_like(module.bias)
            >>> model.apply(zero)[0].bias.tolist()
            [0.0, 0.0]
        """
        for _, module in reversed(self.modules()):
            fn(module)
        return self

    def register_forward_hook(self, fn: Function) -> ForwardHook:
        """Have a function called after each call of this module: to look at what passes through it, or to change it.

        Under ``jit`` a hook runs while the graph is made, so a list cannot keep what it sees there: return it, write it into
        an ``nn.Buffer`` that is there before the call, or call the module outside of ``jit``. Copies of the module
        (``fork``, ``copy.deepcopy``) have the same hooks; ``state_dict`` and checkpoints have none.

        Args:
            fn: Called with the module, the tuple of its positional arguments and its result. What it returns replaces the
                result, unless it is None.

        Returns:
            Its ``remove`` method takes the hook out again, and so does the end of a ``with`` block.

        Raises:
            ConfigError: It is no function.

        Example:
            >>> import firebrick as fb
            >>> model = fb.nn.Sequential(fb.nn.Linear(4, 3), fb.nn.ReLU())
            >>> shapes = []
            >>> with model[0].register_forward_hook(lambda module, args, result: shapes.append(result.shape)):
            ...     _ = model(fb.ones((2, 4)))
            >>> _ = model(fb.ones((5, 4)))
            >>> shapes
            [(2, 3)]
        """
        if not callable(fn):
            raise ConfigError(
                "a forward hook is a function of (module, args, result)",
                type(fn).__name__,
                "pass a function, without calling it",
            )
        entry = Entry(fn)
        self._forward_hooks = (*self._forward_hooks, entry)
        return ForwardHook(self, entry)

    def generators(self) -> dict[str, Generator]:
        """The random generators of the parts (of dropout, say) by path: their states belong in a checkpoint."""
        return {n: g for n, g in _walk(self) if isinstance(g, Generator)}

    def generator_states(self) -> dict[str, Any]:
        """The positions of the generators of the parts, by path: a plain tree for a checkpoint, as is ``state_dict()``."""
        return {n: g.state() for n, g in self.generators().items()}

    def set_generator_states(self, states: Any) -> None:
        """Go to where ``generator_states()`` was taken, so that dropout goes on with the masks that came next.

        Args:
            states: What ``generator_states()`` returned, of this module or one like it.

        Raises:
            StateError: It has other generators than this module, or one of its states is none; nothing was changed.

        Example:
            >>> import firebrick as fb
            >>> dropout = fb.nn.Dropout(0.5)
            >>> states, x = dropout.generator_states(), fb.ones((4, 8))
            >>> first = dropout(x)
            >>> dropout.set_generator_states(states)
            >>> bool(fb.all(dropout(x) == first))
            True
        """
        saved.load_generators(type(self).__name__, self.generators(), states)

    # state

    def state_dict(self) -> saved.StateDict:
        """The values of all parameters and buffers by path, as handles that later changes do not reach.

        A shared parameter is there once; ``.aliases`` maps its other paths to that one.
        """
        return saved.StateDict({n: t.detach() for n, t in self._tensors()}, _aliases(self))

    def load_state_dict(self, state: Any, strict: bool = True) -> saved.Loaded:
        """Take over the values of a ``state_dict()``; identity and ties stay.

        Args:
            state: Mapping from path to values: tensors, NumPy arrays, or arrays of other libraries that have DLPack, such as
                PyTorch's and JAX's, which are copied; with ``.aliases`` if it came from ``state_dict()``.
            strict: Whether every path must be on both sides.

        Returns:
            Paths that the state lacks (``missing``) and that the module lacks (``unexpected``); both empty if strict.

        Raises:
            StateError: Paths, shapes or dtypes differ; the first ten of each kind of difference are listed with their number,
                and nothing was changed.
        """
        with no_grad():
            for path, part in () if strict else self.modules():
                part._loaded_in_part(f"{path}." if path else "", state)
            return saved.load(type(self).__name__, self._tensors(), _aliases(self), state, strict)

    # modes and places

    def train(self) -> Self:
        """Switch to training mode: dropout is active, batch norm uses and updates statistics; returns the module."""
        return self._switch(True)

    def eval(self) -> Self:
        """Switch to evaluation mode: no dropout, and batch norm with its running statistics; returns the module."""
        return self._switch(False)

    def _switch(self, training: bool) -> Self:
        for _, m in self.modules():
            if m.training is not training:
                if training is type(m).training:
                    m.__dict__.pop("training")
                else:
                    object.__setattr__(m, "training", training)
                changed(m, "training")
        return self

    def freeze(self) -> Self:
        """Exclude all parameters of this module from gradients and updates."""
        for p in self.parameters():
            p.frozen = True
        return self

    def unfreeze(self) -> Self:
        """Undo ``freeze``."""
        for p in self.parameters():
            p.frozen = False
        return self

    def to(self, device: Any) -> Self:
        """Move all parameters and buffers, in place: their identity and ties stay. Returns the module.

        Args:
            device: Device or device string.

        Raises:
            DeviceError: The device is unknown or absent.
            DTypeError: It cannot store a dtype; nothing was moved.
        """
        goal = find_device(device)
        tensors = [t for _, t in self._tensors() if t.device is not goal]
        for t in tensors:
            check_storable(t.dtype, goal)
        with no_grad(), goal.backend.memory_persistent_allocations(goal):
            moved = [t.detach().to(goal) for t in tensors]
        commit = Commit()
        for t, m in zip(tensors, moved, strict=True):
            commit.rebind(t, m)
        commit.apply()
        return self

    def astype(self, dtype: Any) -> Self:
        """Cast all parameters and floating buffers, in place. Returns the module.

        Args:
            dtype: Floating DType, or its name.

        Raises:
            DTypeError: The dtype is not floating, or a device cannot store it; nothing was cast.
        """
        goal = as_dtype(dtype)
        if goal.kind != "float":
            raise DTypeError("a module's parameters have a floating dtype", goal.name, "pass e.g. fb.float32")
        tensors = [t for _, t in self._tensors() if t.dtype.kind == "float" and t.dtype is not goal]
        with no_grad():
            cast = [astype(t.detach(), goal) for t in tensors]
        commit = Commit()
        for t, c in zip(tensors, cast, strict=True):
            commit.rebind(t, c)
        commit.apply()
        return self

    def fork(self, device: Any = None) -> Self:
        """An independent copy, on another device if one is named: equal values, ties and generator states, untracked.

        Updates of one do not reach the other. ``copy.deepcopy`` does the same on the same device.

        Args:
            device: Device or device string; the module's own by default.
        """
        twin = copy.deepcopy(self)
        return twin if device is None else twin.to(device)

    def summary(self, *inputs: Any) -> Summary:
        """A table of the layers: output shape, parameters and bytes.

        Args:
            inputs: For the output shapes: one shape for each argument of ``forward``, of the parameters' dtype, or a tensor
                like the argument. The model runs on the ``meta`` engine, which computes shapes only.

        Example:
            >>> import firebrick as fb
            >>> print(fb.nn.Sequential(fb.nn.Linear(8, 4), fb.nn.ReLU()).summary((2, 8)))
            layer                 output  parameters  bytes
            layers.0 (Linear)     [2, 4]          36    144
            layers.1 (ReLU)       [2, 4]           0      0
            Sequential            [2, 4]          36    144
        """
        from firebrick.nn.summary import summary

        return summary(self, inputs)

    def describe(self) -> str:
        """Its own settings, as ``__repr__`` shows them; subclasses override it."""
        return ""

    def _repr_html_(self) -> str:
        """What notebooks show: its layers with their parameters, as ``summary()`` has them."""
        return self.summary()._repr_html_()

    def __repr__(self) -> str:
        parts = [(n, m) for n, m in members(self.__dict__.items()) if isinstance(m, Module)]
        if not parts:
            return f"{type(self).__name__}({self.describe()})"
        rows = [f"({n}): {m!r}".replace("\n", "\n  ") for n, m in parts]
        return "\n  ".join([f"{type(self).__name__}({self.describe()}", *rows]) + "\n)"


_PLAIN = frozenset({int, float, bool, str, type(None)})  # types of most attributes, which hold nothing


def members(items: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Parameters, buffers, modules and generators among attributes, and in lists, tuples and dicts."""
    for name, v in items:
        if type(v) in _PLAIN:
            continue
        if isinstance(v, (Parameter, Buffer, Module, Generator)):
            yield f"{prefix}{name}", v
        elif isinstance(v, (list, tuple)):
            yield from members(enumerate(v), f"{prefix}{name}.")
        elif isinstance(v, dict):
            yield from members(v.items(), f"{prefix}{name}.")


def _walk(root: Module, ties: bool = False) -> list[tuple[str, Any]]:
    """Every member below a module with its path, depth first, each once (with ``ties``: the further paths instead)."""
    found: list[tuple[str, Any]] = []
    further: list[tuple[str, Any]] = []
    seen = {id(root)}

    def visit(items: Any, prefix: str) -> None:  # ``members`` of all depths, without generators
        for name, v in items:
            if type(v) in _PLAIN:
                continue
            if isinstance(v, Module):
                if id(v) in seen:
                    further.append((f"{prefix}{name}", v))
                else:
                    seen.add(id(v))
                    found.append((f"{prefix}{name}", v))
                    visit(v.__dict__.items(), f"{prefix}{name}.")
            elif isinstance(v, (Parameter, Buffer, Generator)):
                (further if id(v) in seen else found).append((f"{prefix}{name}", v))
                seen.add(id(v))
            elif isinstance(v, (list, tuple)):
                visit(enumerate(v), f"{prefix}{name}.")
            elif isinstance(v, dict):
                visit(v.items(), f"{prefix}{name}.")

    visit(root.__dict__.items(), "")
    paths = [name for name, _ in found]
    paths += [name for name, _ in further]
    if len(set(paths)) < len(paths):
        double = next(p for p in paths if paths.count(p) > 1)
        raise saved.StateError(
            f"{type(root).__name__}: every member has a path of its own",
            f"{double} twice",
            'rename a key of a dict: 1 and "1", or "a.b" and "b" inside "a", give one path',
        )
    return further if ties else found


def parameters_in_order(root: Module) -> list[Parameter]:
    """``root.parameters()``, without their names."""
    found: list[Parameter] = []
    seen = {id(root)}

    def visit(items: Any) -> None:
        for v in items:
            if type(v) in _PLAIN:
                continue
            if isinstance(v, (Module, Parameter)):
                if id(v) not in seen:
                    seen.add(id(v))
                    if isinstance(v, Module):
                        visit(v.__dict__.values())
                    else:
                        found.append(v)
            elif isinstance(v, (list, tuple)):
                visit(v)
            elif isinstance(v, dict):
                visit(v.values())

    visit(root.__dict__.values())
    return found


def _aliases(root: Module) -> dict[str, str]:
    """Further paths of shared tensors (also those inside shared modules), each with the path it is stored under."""
    first = {id(t): n for n, t in _walk(root)}
    out: dict[str, str] = {}
    for path, member in _walk(root, ties=True):
        if isinstance(member, (Parameter, Buffer)):
            out[path] = first[id(member)]
        elif isinstance(member, Module) and member is not root:
            out.update({f"{path}.{n}": first[id(t)] for n, t in _walk(member) if isinstance(t, (Parameter, Buffer))})
    return out


def _check_fits(module: str, name: str, held: Tensor, value: Tensor) -> None:
    received = f"{describe(name, held)} and {describe('value', value)}"
    if value.device is not held.device:
        raise DeviceMismatchError(
            f"{module}: a new value of {name} lies on its device", received, f'move it: value.to("{held.device}")'
        )
    if value.dtype is not held.dtype:
        raise DTypeError(
            f"{module}: a new value of {name} has its dtype", received, f"cast it: fb.astype(value, fb.{held.dtype})"
        )
    if value.shape != held.shape:
        raise ShapeError(
            f"{module}: a new value of {name} has its shape", received, "assign an nn.Parameter to replace the parameter"
        )
