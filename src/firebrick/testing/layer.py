"""``check_layer``: everything that any layer must do, tested with one call.

Each check works on copies and says what it found; all of them run, so one call reports all that is wrong with a layer.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from firebrick.autodiff import gradcheck, no_grad, value_and_grad
from firebrick.backends.registry import find_device
from firebrick.core import trees
from firebrick.core.dtypes import DType, bfloat16, float16, float32, float64
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import DeviceError, DeviceMismatchError, FirebrickError
from firebrick.core.hooks import hooks
from firebrick.core.settings import python_settings
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype
from firebrick.functions.movement import concat
from firebrick.functions.statistical import sum as sum_
from firebrick.graph import jit
from firebrick.nn import Buffer, Module, Parameter, StateError
from firebrick.random import Generator

_TOLERANCE = {float64: 1e-10, float32: 1e-4, float16: 2e-2, bfloat16: 1e-1}
_ELSEWHERE = ("numpy:1", "torch:cpu")


class LayerError(FirebrickError, AssertionError):
    """A layer fails checks that every layer must pass."""


@dataclass
class LayerReport:
    """What ``check_layer`` checked, and what failed.

    Attributes:
        layer: Name of the layer.
        checked: Names of the checks that were made.
        failures: Texts by the name of the check.

    Example:
        >>> import firebrick as fb
        >>> report = fb.testing.check_layer(lambda: fb.nn.Linear(3, 2), (4, 3), output=(4, 2))
        >>> report.ok, report.failures
        (True, {})
    """

    layer: str
    checked: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether something was checked and nothing failed."""
        return bool(self.checked) and not self.failures

    def __str__(self) -> str:
        lines = [f"{self.layer}: {len(self.checked)} checks, {len(self.failures)} failed"]
        return "\n".join([*lines, *(f"  {name}: {text}" for name, text in self.failures.items())])


class _Wrong(Exception):
    """Ends one check with what it found."""


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise _Wrong(text)


@python_settings
def check_layer(
    layer: Module | Callable[[], Module],
    *inputs: Any,
    keywords: Mapping[str, Any] | None = None,
    output: Any = None,
    dtypes: Sequence[Any] = (float32, float64),
    gradient: bool = True,
    constant: Sequence[int] = (),
    devices: Sequence[str] = _ELSEWHERE,
    skip: Sequence[str] = (),
    seed: int = 0,
) -> LayerReport:
    """Check a layer: outputs, gradients, modes, state, devices, ties, copies, and that calls do not depend on earlier ones.

    The checks are ``outputs`` (shapes and dtypes in every dtype, on the ``meta`` engine too), ``gradient`` (finite differences
    in float64, in training and in evaluation), ``modes`` (evaluation changes nothing and repeats itself; training differs from
    it only where there is randomness or a buffer), ``state`` (a state dict makes a fresh layer equal, to the bit; missing and
    unknown paths raise), ``devices`` (the same values elsewhere, and inputs left behind raise), ``ties`` (a layer used in
    two places stays one through state, copies and moves, and gets the summed gradient), ``inputs`` (they stay as they were),
    ``calls`` (a call leaves nothing in attributes, and one with twice the batch gives what it gives without the call before
    it), ``jit`` (outputs, gradients and what a call leaves behind are the same under ``fb.jit``, and two equal calls make one
    graph), ``pickle`` and ``repr``.

    Args:
        layer: Function that makes a fresh layer, each time with other initial values; or a layer, of which copies are made.
        inputs: What the layer is called with: tensors, or tuples of sizes for normal numbers, or lists and tuples of such.
            Floating ones are cast to the dtype of the check.
        keywords: Further arguments by name, in the same way.
        output: Expected shape of the output, or list of shapes; not checked by default.
        dtypes: Floating dtypes to run in.
        gradient: Whether the layer has gradients to check.
        constant: Positions of floating inputs by which there is no gradient, such as signs.
        devices: Where to move it; those that are not there are passed over.
        skip: Names of checks to leave out; without "gradient", ties are not checked for gradients either, without "pickle"
            (which a class inside a function does not have) not through it.
        seed: Of the inputs.

    Returns:
        LayerReport of what was checked.

    Raises:
        LayerError: A check failed; the text lists all that did.

    Example:
        >>> import firebrick as fb
        >>> print(fb.testing.check_layer(lambda: fb.nn.Linear(3, 2), (4, 3), output=(4, 2)))
        Linear: 11 checks, 0 failed
    """
    if isinstance(layer, Module):
        kept = layer.fork("cpu")

        def make() -> Module:
            return kept.fork()

    else:
        make = layer
    gradient = gradient and "gradient" not in skip
    run = _Run(
        make,
        inputs,
        dict(keywords or {}),
        [as_dtype(d) for d in dtypes],
        output,
        gradient,
        "pickle" not in skip,
        tuple(constant),
        tuple(devices),
        seed,
    )
    report = LayerReport(type(run.fresh(float32)).__name__)
    checks = {n.removeprefix("check_"): getattr(run, n) for n in dir(run) if n.startswith("check_")}
    for name, check in checks.items():
        if name in skip:
            continue
        report.checked.append(name)
        try:
            check()
        except _Wrong as e:
            report.failures[name] = str(e)
        except Exception as e:  # noqa: BLE001 - whatever a layer raises is its failure, and the other checks still run
            report.failures[name] = f"{type(e).__name__}: {e}".replace("\n", " ")
    if report.failures:
        first = next(iter(report.failures.items()))
        raise LayerError(f"{report.layer} must do what every layer does", str(report), f"start with {first[0]}")
    return report


@dataclass
class _Run:
    """One call of ``check_layer``."""

    make: Callable[[], Module]
    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    dtypes: list[DType]
    output: Any
    gradient: bool
    pickles: bool
    constant: tuple[int, ...]
    devices: tuple[str, ...]
    seed: int

    # pieces

    def fresh(self, dtype: DType) -> Module:
        return self.make().fork("cpu").astype(dtype)

    def arguments(self, dtype: DType, device: str = "cpu") -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The layer's arguments in a dtype on a device."""
        rng = np.random.default_rng(self.seed)

        def made(v: Any) -> Any:
            if isinstance(v, Tensor):
                moved = v.detach().to(device)
                return astype(moved, dtype) if v.dtype.kind == "float" else moved
            if isinstance(v, tuple) and all(isinstance(n, int) for n in v):
                drawn: Tensor = hooks.from_host(rng.normal(size=v), find_device("cpu"))
                return astype(drawn, dtype).to(device)
            if isinstance(v, (list, tuple)):
                return type(v)(made(x) for x in v)
            return v

        return tuple(made(v) for v in self.inputs), {k: made(v) for k, v in self.keywords.items()}

    def call(self, layer: Module, dtype: DType, device: str = "cpu") -> list[Tensor]:
        """Outputs without gradients."""
        args, keywords = self.arguments(dtype, device)
        with no_grad():
            return _tensors(layer(*args, **keywords))

    def used(self, dtype: DType) -> Module:
        """A layer that has been trained with a little: its buffers are no longer the first ones."""
        layer = self.fresh(dtype)
        for _ in range(2):
            self.call(layer, dtype)
        return layer

    def floats(self, leaves: list[Any], spec: Any) -> list[int]:
        """Places, among the leaves of the arguments, of those to differentiate by."""
        fixed = {id(v) for i in self.constant for v in _tensors(trees.unflatten(spec, leaves)[0][i])}
        return [i for i, v in enumerate(leaves) if isinstance(v, Tensor) and v.dtype.kind == "float" and id(v) not in fixed]

    # checks

    def check_outputs(self) -> None:
        shapes: list[tuple[int, ...]] | None = None
        for dtype in self.dtypes:
            outs = self.call(self.fresh(dtype), dtype)
            _require(bool(outs), "it returns no tensor")
            for i, t in enumerate(outs):
                if t.dtype.kind == "float":
                    _require(t.dtype is dtype, f"output {i} is {t.dtype.name} for inputs and parameters of {dtype.name}")
                    _require(not np.isnan(t.numpy().astype(np.float64)).any(), f"output {i} holds NaN in {dtype.name}")
            found = [t.shape for t in outs]
            _require(shapes is None or found == shapes, f"shapes {found} in {dtype.name} and {shapes} in {self.dtypes[0].name}")
            shapes = found
            meta = self.call(self.fresh(dtype).to("meta"), dtype, "meta")
            got, want = [(t.shape, t.dtype.name) for t in meta], [(t.shape, t.dtype.name) for t in outs]
            _require(got == want, f"the meta engine infers {got}, but the layer returns {want}")
        if self.output is not None:
            wanted = [tuple(s) for s in self.output] if isinstance(self.output, list) else [tuple(self.output)]
            _require(shapes == wanted, f"outputs have the shapes {shapes}, not {wanted}")

    def check_gradient(self) -> None:
        if not self.gradient:
            return
        for mode in ("train", "eval"):
            layer = getattr(self.fresh(float64), mode)()
            begin = _snapshot(layer)
            named = layer.trainable_parameters()
            leaves, spec = trees.flatten(self.arguments(float64))
            floats = self.floats(leaves, spec)
            fn = partial(_called, layer, begin, leaves, spec, floats)
            values = [p.detach() for _, p in named] + [leaves[i] for i in floats]
            names = [n for n, _ in named] + [f"input {i}" for i in range(len(floats))]
            try:
                gradcheck(fn, values, seed=self.seed)
            except FirebrickError as e:
                text = str(e)
                for i, n in enumerate(names):
                    text = text.replace(f"by input {i} ", f"by {n} ")
                raise _Wrong(f"in {mode} mode: {text}".replace("\n", " ")) from None

    def check_modes(self) -> None:
        dtype = self.dtypes[0]
        layer = self.used(dtype).eval()
        _require(not any(m.training for _, m in layer.modules()), "eval() leaves a part in training")
        begin = _snapshot(layer)
        first, second = self.call(layer, dtype), self.call(layer, dtype)
        _require(_same(first, second), "two calls in evaluation differ")
        _require(_snapshot(layer) == begin, "a call in evaluation changes buffers or generators")
        layer.train()
        _require(all(m.training for _, m in layer.modules()), "train() leaves a part in evaluation")
        if not layer.generators() and not layer.buffers():
            _require(
                _same(self.call(layer, dtype), first),
                "training differs from evaluation, but there is no randomness and no buffer",
            )

    def check_state(self) -> None:
        dtype = self.dtypes[0]
        layer = self.used(dtype).eval()
        state = layer.state_dict()
        want = self.call(layer, dtype)
        through = {n: v.numpy().copy() for n, v in state.items()}
        for saved in (state, through):
            other = _scrambled(self.fresh(dtype)).eval()
            other.load_state_dict(saved)
            _require(
                {n: _bits(v) for n, v in other.state_dict().items()} == {n: _bits(v) for n, v in state.items()},
                "a fresh layer that loaded the state has another one",
            )
            _require(
                _same(self.call(other, dtype), want),
                "a fresh layer that loaded the state gives other outputs: something that counts is no Parameter or Buffer",
            )
        if state:
            path = next(iter(state))
            _refuses(other, {**state, "no such path": state[path]}, "an unknown path")
            _refuses(other, {n: v for n, v in state.items() if n != path}, f"a state without {path}")

    def check_devices(self) -> None:
        dtype = self.dtypes[0]
        layer = self.used(dtype).eval()
        want = self.call(layer, dtype)
        for name in self.devices:
            try:
                goal = find_device(name)
            except (DeviceError, ImportError):
                continue
            moved = layer.fork(name)
            for path, t in (*moved.named_parameters(), *moved.named_buffers()):
                _require(t.device is goal, f"{path} stays on {t.device} when the layer moves to {goal}")
            got = self.call(moved, dtype, name)
            for path, t in _all_tensors(moved):
                _require(
                    t.device is goal, f"{path} stays on {t.device} when the layer moves to {goal}, also after a call there"
                )
            for i, (a, b) in enumerate(zip(got, want, strict=True)):
                _require(a.device is goal, f"output {i} is on {a.device} after a move to {goal}")
                _require(_close(a, b, dtype), f"output {i} on {goal} differs from that on {b.device}")
            if any(True for _ in _all_tensors(moved)) and any(
                isinstance(v, Tensor) for v in trees.flatten(self.arguments(dtype))[0]
            ):
                try:
                    self.call(moved, dtype)
                except DeviceMismatchError:
                    continue
                raise _Wrong(f"inputs on cpu:0 pass through a layer on {goal} without an error")

    def check_ties(self) -> None:
        layer, sharing = self.fresh(float64).eval(), self.fresh(float64).eval()
        for path, p in layer.named_parameters():
            _replace(sharing, path, p)
        names = [n for n, _ in layer.named_parameters()]
        for pair, what in ((_Twice(layer, layer), "layer"), (_Twice(layer, sharing), "layer's parameters")):
            _require(len(pair.parameters()) == len(names), f"a {what} in two places are there twice")
            homes = {f"a.{n}" for n, _ in layer.named_parameters()}
            found = {n for n in pair.state_dict() if n in dict(pair.named_parameters())}
            _require(found == homes, f"the state of a shared {what} has the paths {sorted(found)}")
            copies = {"fork()": pair.fork(), "a move": pair.fork("cpu:1")}
            if self.pickles:
                copies["pickle"] = pickle.loads(pickle.dumps(pair))
            for how, twin in copies.items():
                one, two = ([id(p) for p in m.parameters()] for m in (twin.a, twin.b))
                _require(one == two, f"{how} unties a shared {what}")
        pair = _Twice(layer, layer)
        loaded = _Twice(*[_scrambled(self.fresh(float64)).eval()] * 2)
        loaded.load_state_dict(pair.state_dict())
        _require(_same(self.call(loaded.a, float64), self.call(layer, float64)), "a tied state does not load")
        if not self.gradient or not names:
            return
        args, keywords = self.arguments(float64)
        rng = np.random.default_rng(self.seed)
        weights = [hooks.from_host(rng.normal(size=t.shape), t.device) for t in self.call(layer, float64)]

        def loss(m: Any) -> Tensor:
            total = None
            for k, part in enumerate((m.a, m.b)):
                for t, w in zip(_tensors(part(*args, **keywords)), weights, strict=True):
                    if t.dtype.kind == "float":
                        term = sum_(t * w * (1.0 + 2.0 * k))
                        total = term if total is None else total + term
            assert total is not None
            return total

        free = _Twice(layer.fork(), layer.fork())
        _, tied_grads = value_and_grad(loss)(pair)
        _, free_grads = value_and_grad(loss)(free)
        parts = [m.trainable_parameters() for m in (pair.a, free.a, free.b)]
        for (n, p), (_, first), (_, second) in zip(*parts, strict=True):
            whole = free_grads[first].numpy() + free_grads[second].numpy()
            _require(
                np.allclose(tied_grads[p].numpy(), whole, rtol=1e-10, atol=1e-12),
                f"the gradient of {n}, shared by two places, is not the sum of both",
            )

    def check_jit(self) -> None:
        dtype = float64 if float64 in self.dtypes else self.dtypes[0]
        leaves, spec = trees.flatten(self.arguments(dtype))
        floats = self.floats(leaves, spec)
        given = [leaves[i] for i in floats]

        def call(layer: Module, values: list[Tensor]) -> list[Tensor]:
            full = dict(zip(floats, values, strict=True))
            args, keywords = trees.unflatten(spec, [full.get(i, v) for i, v in enumerate(leaves)])
            return _tensors(layer(*args, **keywords))

        def loss(layer: Module, values: list[Tensor]) -> Tensor:
            terms = [sum_(t * _weights(t)) for t in call(layer, values) if t.dtype.kind == "float"]
            return sum(terms[1:], terms[0])

        for mode in ("train", "eval"):
            plain = getattr(self.used(dtype), mode)()
            traced, compiled = plain.fork(), jit(call)
            with no_grad():
                for _ in range(2):  # the second call runs what the first has made
                    want, got = call(plain, given), compiled(traced, given)
                    _agree(f"in {mode} mode, ", got, want, plain, traced)
            _require(compiled.traces == 1, f"in {mode} mode, two equal calls under jit trace it {compiled.traces} times")
            if self.gradient and plain.trainable_parameters():
                found = [value_and_grad(loss)(plain, given)[1], jit(value_and_grad(loss))(traced, given)[1]]
                slopes = [[g[p] for _, p in m.trainable_parameters()] for g, m in zip(found, (plain, traced), strict=True)]
                _agree(f"in {mode} mode, gradients: ", slopes[1], slopes[0], plain, traced)
            if self.gradient and given:
                want, got = value_and_grad(partial(loss, plain))(given)[1], jit(value_and_grad(partial(loss, traced)))(given)[1]
                _agree(f"in {mode} mode, gradients by inputs: ", got, want, plain, traced)

    def check_inputs(self) -> None:
        layer = self.fresh(float64)
        args, keywords = self.arguments(float64)
        given = [v for v in trees.flatten((args, keywords))[0] if isinstance(v, Tensor)]
        before = [(v.storage, _bits(v)) for v in given]
        with no_grad():
            layer(*args, **keywords)
        for i, (v, (storage, bits)) in enumerate(zip(given, before, strict=True)):
            _require(v.storage is storage and _bits(v) == bits, f"input {i} is another after the call")

    def check_calls(self) -> None:
        dtype = self.dtypes[0]
        for mode in ("train", "eval"):
            layer = getattr(self.fresh(dtype), mode)()
            before = dict(_attributes(layer))
            self.call(layer, dtype)
            after = dict(_attributes(layer))
            changed = sorted(n for n in before.keys() | after.keys() if not _unchanged(before.get(n, _NOTHING), after.get(n)))
            _require(
                not changed, f"a call in {mode} mode changes {', '.join(changed)}: what a call keeps is a Buffer, or not kept"
            )
        layer = self.fresh(dtype).eval()
        twin = layer.fork()
        args, keywords = trees.tree_map(_doubled, self.arguments(dtype))
        with no_grad():
            try:
                want = _tensors(twin(*args, **keywords))
            except Exception:  # noqa: BLE001 - inputs of this layer are not doubled along their first axes
                return
            self.call(layer, dtype)
            try:
                got = _tensors(layer(*args, **keywords))
            except Exception as e:  # noqa: BLE001 - whatever it raises, it does so for the call before
                what = f"after a call, one with twice the batch raises {type(e).__name__}: {e}"
                raise _Wrong(what.replace("\n", " ")) from None
        _require(_same(got, want), "after a call, one with twice the batch gives something else than without it")

    def check_pickle(self) -> None:
        dtype = self.dtypes[0]
        layer = self.used(dtype).eval()
        for what, twin in (("pickle", pickle.loads(pickle.dumps(layer))), ("deepcopy", copy.deepcopy(layer))):
            _require(_snapshot(twin) == _snapshot(layer), f"{what} changes parameters, buffers or generators")
            _require(_same(self.call(twin, dtype), self.call(layer, dtype)), f"outputs differ after {what}")

    def check_repr(self) -> None:
        layer = self.fresh(self.dtypes[0])
        text = repr(layer)
        _require(type(layer).__name__ in text, f"its repr does not name it: {text!r}")
        self.call(layer, self.dtypes[0])
        _require(repr(layer) == text, "its repr is another after a call")


def _called(layer: Module, begin: Any, leaves: list[Any], spec: Any, floats: list[int], *values: Tensor) -> tuple[Tensor, ...]:
    """Floating outputs of a layer, from where it began, for these values of its parameters and floating arguments."""
    _restore(layer, begin)
    named = layer.trainable_parameters()
    for (_, p), x in zip(named, values, strict=False):
        Tensor._rebind(p, x)  # also weights of tiles
    given = list(leaves)
    for i, x in zip(floats, values[len(named) :], strict=True):
        given[i] = x
    args, keywords = trees.unflatten(spec, given)
    return tuple(t for t in _tensors(layer(*args, **keywords)) if t.dtype.kind == "float")


class _Twice(Module):
    """A layer in two places."""

    def __init__(self, a: Module, b: Module) -> None:
        self.a, self.b = a, b


def _replace(module: Any, path: str, value: Parameter) -> None:
    """Put a parameter in the place of the one at a path; those in lists and dicts too."""
    *owners, last = path.split(".")
    holder: Any = module
    for name in owners:
        if isinstance(holder, (list, tuple)):
            holder = holder[int(name)]
        else:
            holder = holder[name] if isinstance(holder, dict) else getattr(holder, name)
    if isinstance(holder, Module):
        setattr(holder, last, value)
    else:
        holder[int(last) if isinstance(holder, list) else last] = value


def _tensors(result: Any) -> list[Tensor]:
    return [t for t in trees.flatten(result)[0] if isinstance(t, Tensor)]


def _bits(t: Tensor) -> tuple[tuple[int, ...], str, bytes]:
    return t.shape, t.dtype.name, np.ascontiguousarray(t.numpy()).tobytes()


def _same(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    return [_bits(t) for t in a] == [_bits(t) for t in b]


def _close(a: Tensor, b: Tensor, dtype: DType) -> bool:
    x, y = (t.numpy() for t in (a, b))
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if a.dtype.kind != "float":
        return bool(np.array_equal(x, y))
    x, y = x.astype(np.float64), y.astype(np.float64)
    scale = max(1.0, float(np.abs(y[np.isfinite(y)]).max(initial=0.0)))
    return bool(np.allclose(x, y, rtol=_TOLERANCE[dtype], atol=_TOLERANCE[dtype] * scale))


def _weights(t: Tensor) -> Tensor:
    """A number for each element, so that a sum of products depends on all of them."""
    made: Tensor = hooks.from_host(np.cos(np.arange(t.size)).reshape(t.shape).astype(t.dtype.np), t.device)
    return made


def _agree(where: str, got: Sequence[Tensor], want: Sequence[Tensor], plain: Module, traced: Module) -> None:
    """Check that a layer under jit, and its state after the call, are as without."""
    _require(len(got) == len(want), f"{where}there are {len(got)} tensors under jit and {len(want)} without")
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        _require(_close(a, b, b.dtype), f"{where}tensor {i} differs under jit")
    for (name, a), (_, b) in zip(traced.named_buffers(), plain.named_buffers(), strict=True):
        _require(_close(a, b, b.dtype), f"{where}the call leaves another {name} under jit")
    _require(_snapshot(traced)[1] == _snapshot(plain)[1], f"{where}its generators stand elsewhere after a call under jit")


def _all_tensors(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, buffers, and tensors that are neither but sit in attributes."""
    for path, m in module.modules():
        for name, value in m.__dict__.items():
            for i, t in enumerate(v for v in trees.flatten(value)[0] if isinstance(v, Tensor)):
                kind = "" if isinstance(t, (Parameter, Buffer)) else " (a tensor that is no Parameter or Buffer)"
                yield f"{path}.{name}{f'[{i}]' if i else ''}{kind}".removeprefix("."), t


_NOTHING = object()


def _attributes(module: Module) -> Iterator[tuple[str, Any]]:
    """All attributes of a module and its parts that are neither modules, parameters, buffers nor generators."""

    def held(value: Any) -> Any:
        if isinstance(value, (Parameter, Buffer, Module, Generator)):
            return type(value)
        if isinstance(value, Tensor):
            return value.detach()
        if isinstance(value, Mapping):
            return {k: held(v) for k, v in value.items()}
        if isinstance(value, (list, tuple, set)):
            return [held(v) for v in value]
        if isinstance(value, np.ndarray):
            return value.shape, value.tobytes()
        return value

    for path, m in module.modules():
        for name, value in m.__dict__.items():
            yield f"{path}.{name}".removeprefix("."), held(value)


def _unchanged(a: Any, b: Any) -> bool:
    """Whether what ``_attributes`` found is as before; a tensor may be computed anew, with other roundings."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.device is b.device and _close(a, b, a.dtype)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_unchanged(v, b[k]) for k, v in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_unchanged, a, b))
    return a is b or (isinstance(a, (str, bytes, int, float, complex, tuple)) and type(a) is type(b) and a == b)


def _doubled(value: Any) -> Any:
    """A tensor twice, one after another along its first axis."""
    return concat([value, value]) if isinstance(value, Tensor) and value.ndim else value


def _snapshot(layer: Module) -> Any:
    """Values of parameters and buffers, and where generators stand."""
    return (
        {n: _bits(v) for n, v in layer.state_dict().items()},
        {n: tuple((k, v.tobytes()) for k, v in sorted(g.state().items())) for n, g in layer.generators().items()},
    )


def _restore(layer: Module, begin: Any) -> None:
    """Buffers and generators as they were."""
    values, generators = begin
    for n, b in layer.named_buffers():
        shape, dtype, raw = values[n]
        b._rebind(hooks.from_host(np.frombuffer(raw, as_dtype(dtype).np).reshape(shape), b.device))
    for n, g in layer.generators().items():
        g.set_state({k: np.frombuffer(raw, np.uint32) for k, raw in generators[n]})


def _scrambled(layer: Module) -> Module:
    """Other parameters, as a fresh layer that was initialised differently has them."""
    for p in layer.parameters():
        Tensor._rebind(p, (p.detach() * 0.5 + 0.25).detach())
    return layer


def _refuses(layer: Module, state: Any, what: str) -> None:
    try:
        layer.load_state_dict(state)
    except StateError:
        return
    raise _Wrong(f"{what} loads without an error")
