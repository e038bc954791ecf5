"""Random programs give the same bits under ``jit`` as without: results, gradients, arguments and state, call after call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size
from hypothesis import currently_in_test_context, given, note, settings
from programs import Program, World, programs

import firebrick as fb
from firebrick.graph.passes.rewriter import rewrite
from firebrick.ir import Graph

CALLS = 3
KERNELS = "cpu, compiled whatever the size"
ENGINES = [
    "numpy",
    "cpu",
    KERNELS,
    pytest.param("torch:cpu", marks=pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")),
]
Way = Callable[[Callable[..., Any], bool], Callable[..., Any]]


def _plain(program: Callable[..., Any], jit: bool) -> Callable[..., Any]:
    return fb.jit(program) if jit else program


def _loss(program: Callable[..., Any]) -> Callable[..., Any]:
    """What a program returns, as a loss that depends on every float among it."""

    def loss(x: fb.Tensor, *more: Any) -> Any:
        out = program(x, *more)
        total = fb.sum(x) * 0.0
        for t in out:
            if t.dtype.is_floating:
                total = total + fb.sum(fb.where(fb.isfinite(t), fb.astype(t, fb.float32), 0.0) * 0.5)
        return total, tuple(t.detach() for t in out)

    return loss


def _gradient_inside(program: Callable[..., Any], jit: bool) -> Callable[..., Any]:
    fn = fb.value_and_grad(_loss(program), has_aux=True)
    return fb.jit(fn) if jit else fn


def _gradient_outside(program: Callable[..., Any], jit: bool) -> Callable[..., Any]:
    loss = _loss(program)
    return fb.value_and_grad(fb.jit(loss) if jit else loss, has_aux=True)


def _bits(value: Any) -> Any:
    """A value as dtype, shape and bytes; all NaNs are one."""
    if isinstance(value, (list, tuple)):
        return [_bits(v) for v in value]
    if isinstance(value, dict):
        return {k: _bits(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if not isinstance(value, fb.Tensor):
        return value
    array = np.array(value.numpy())
    if array.dtype.kind in "fV":
        array[array != array] = np.nan
    return str(value.dtype), value.shape, array.tobytes()


def outcome(program: Program, way: Way, jit: bool, device: str) -> tuple[list[Any], Any]:
    """Results, arguments and state after each of the calls, and the function."""
    forced, device = device == KERNELS, device.partition(",")[0]
    world = World(device)
    fn = way(world.define(program), jit)
    found = []
    with fb.use_device(device), kernels_of_any_size() if forced else nullcontext():
        for k in range(CALLS):
            given = world.arguments(k)
            result = fn(*given)
            found.append({"result": _bits(result), "arguments": _bits(given), "state": _bits(world.state())})
    return found, fn


def _unit(program: Program) -> float:
    """The precision of the narrowest dtype that a program mentions."""
    for name in ("bfloat16", "float16"):
        if name in program.source:
            return float(fb.finfo(name).eps)
    return float(fb.finfo("float32").eps)


def _close(got: Any, want: Any, unit: float) -> bool:
    """Whether values are equal but for the order of sums."""
    if isinstance(got, list):
        return len(got) == len(want) and all(_close(a, b, unit) for a, b in zip(got, want, strict=True))
    if isinstance(got, dict):
        return got.keys() == want.keys() and all(_close(a, want[k], unit) for k, a in got.items())
    if got == want or not isinstance(got, tuple) or got[:2] != want[:2] or "float" not in got[0]:
        return bool(got == want)
    a, b = (np.frombuffer(x[2], fb.dtype(x[0].removeprefix("firebrick.")).np).astype(np.float64) for x in (got, want))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    return bool(np.all(same | (np.abs(a - b) <= 64 * unit * scale)))


def agree(program: Program, way: Way, device: str = "numpy") -> None:
    if currently_in_test_context():
        note(program.source)
    want, _ = outcome(program, way, False, device)
    got, fn = outcome(program, way, True, device)
    # the second derivative of a scan is that of its steps computed again, which adds in another order than the loop's
    twice = way is not _plain and "fb.grad(lambda u: fb.sum(fb.scan(" in program.source
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        for part, value in a.items():
            ok = value == b[part] or ((device != "numpy" or twice) and _close(value, b[part], _unit(program)))
            assert ok, f"call {k}: {part} differ"
    if way is not _gradient_outside:
        assert fn.traces == 1


@pytest.mark.parametrize("device", ENGINES)
@given(program=programs())
@settings(max_examples=30)
def test_programs_give_the_same_bits(device: str, program: Program) -> None:
    agree(program, _plain, device)


@pytest.mark.parametrize("device", ENGINES)
@given(program=programs(detached=True))
@settings(max_examples=15)
def test_gradients_taken_inside_have_the_same_bits(device: str, program: Program) -> None:
    agree(program, _gradient_inside, device)


@pytest.mark.parametrize("device", ENGINES)
@given(program=programs(detached=True))
@settings(max_examples=15)
def test_gradients_taken_outside_have_the_same_bits(device: str, program: Program) -> None:
    agree(program, _gradient_outside, device)


def _swapped(graph: Graph) -> Graph:
    """Another graph: differences the other way round."""
    return rewrite(graph, {"subtract": lambda r, n, xs: r.emit(n.op, xs[::-1], {}, n)})


def test_another_result_or_another_state_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in (Program(("v0 = x - y",), ("v0",)), Program(("state += x - y",), ("x",))):
        agree(program, _plain)
    monkeypatch.setattr(import_module("firebrick.graph.making"), "optimize", _swapped)
    with pytest.raises(AssertionError, match="call 0: result differ"):
        agree(Program(("v0 = x - y",), ("v0",)), _plain)
    with pytest.raises(AssertionError, match="call 0: state differ"):
        agree(Program(("state += x - y",), ("x",)), _plain)


@pytest.mark.soak
@pytest.mark.parametrize("device", ENGINES)
@given(program=programs(30))
@settings(max_examples=400)
def test_many_longer_programs(device: str, program: Program) -> None:
    agree(program, _plain, device)


@pytest.mark.soak
@pytest.mark.parametrize("way", [_gradient_inside, _gradient_outside], ids=["inside", "outside"])
@pytest.mark.parametrize("device", ENGINES)
@given(program=programs(30, detached=True))
@settings(max_examples=300)
def test_gradients_of_many_longer_programs(device: str, way: Way, program: Program) -> None:
    agree(program, way, device)
