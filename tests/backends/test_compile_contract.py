"""What the contract says of executables besides values: errors, fallbacks, threads, control flow, ``torch.compile``."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends import register_backend, unregister_backend
from firebrick.backends.decorators import VerificationError
from firebrick.backends.fallback import forget_fallbacks
from firebrick.backends.numpy import HostBackend
from firebrick.compiler import Kernel
from firebrick.core.aval import Aval
from firebrick.core.errors import ShapeError
from firebrick.core.op import Cost, Nondifferentiable, Op, operands
from firebrick.ir import Graph, Node
from firebrick.ops import OPS
from firebrick.testing import faults

MATRIX = Aval((3, 4), fb.float32)


def graph_of(*steps: tuple[Any, ...], inputs: int = 1, outputs: tuple[int, ...] | None = None) -> Graph:
    """A graph of (op, operands, params) on 3 × 4 matrices; the last result is the output."""
    graph = Graph([MATRIX] * inputs)
    for name, at, params in steps:
        last = graph.add(OPS[name], *at, **params)
    graph.outputs = last if outputs is None else outputs
    return graph


def matrix(device: Any, value: float = 0.5) -> Any:
    return device.backend.from_host(np.full((3, 4), value, np.float32), device)


# errors


def test_a_failure_before_the_first_write_leaves_donated_inputs_alone_and_names_the_line() -> None:
    graph = Graph([MATRIX, Aval((2,), fb.int64)])
    (new,) = graph.add(OPS["exp"], 0)
    (rows,) = graph.add(OPS["take"], 0, 1, axis=0)
    (total,) = graph.add(OPS["sum"], rows, axes=(0, 1), keepdims=False)
    n = graph.nodes[1]
    graph.nodes[1] = Node(n.op, n.inputs, n.params, n.first, n.avals, line="train.py:12 in step")
    graph.outputs = (new, total)
    for name in ("numpy", "torch:cpu"):
        device = fb.device(name) if name == "numpy" else _torch()
        program = device.backend.compile(graph, device, donate=(0,))
        assert program.writes == {0}
        state = matrix(device)
        began: list[int] = []
        at = device.backend.from_host(np.asarray([0, 7]), device)
        with pytest.raises(IndexError) as caught:
            program([state, at], lambda began=began: began.append(1))
        assert not began
        assert (device.backend.to_host(state) == 0.5).all()
        assert "in a compiled program, at take, train.py:12 in step" in caught.value.__notes__


def _torch() -> Any:
    pytest.importorskip("torch")
    return fb.device("torch:cpu")


def test_a_wrong_number_of_inputs_is_told() -> None:
    program = fb.device("numpy").backend.compile(graph_of(("exp", (0,), {})))
    with pytest.raises(ShapeError, match="2 of 1"):
        program([np.ones((3, 4), np.float32)] * 2)


def test_pytorch_without_memory_raises_a_memory_error() -> None:
    device = _torch()
    graph = Graph([Aval((), fb.float32)])
    (wide,) = graph.add(OPS["broadcast_to"], 0, shape=(1 << 30, 1 << 20))
    graph.outputs = graph.add(OPS["exp"], wide)
    with pytest.raises(MemoryError) as caught:
        device.backend.compile(graph, device)([device.backend.from_host(np.ones((), np.float32), device)])
    assert any("exp" in note for note in caught.value.__notes__)


# engines that lack an op


class Poor(HostBackend):
    engine = "poor"
    platforms = ("poor",)

    def supports(self, op: Any, dtypes: Any) -> bool:
        return op.name in ("add", "sum", "exp", "subtract", "max", "divide")

    def execute(self, op: Any, inputs: Any, params: Any, out: Any = None) -> Any:
        return np.asarray(op.reference(*inputs, **params))


@pytest.fixture
def poor() -> Iterator[Any]:
    register_backend(Poor())
    forget_fallbacks()
    yield fb.device("poor")
    unregister_backend("poor")


def test_a_missing_op_is_decomposed_in_a_program_too(poor: Any) -> None:
    with fb.config.scope(fallback="error"):
        program = poor.backend.compile(graph_of(("softmax", (0,), {"axis": 1})), poor)
        (y,) = program([matrix(poor)])
    assert np.allclose(y, 0.25)


def test_a_scan_runs_on_an_engine_without_the_ops_that_cut_and_join_its_sequences(poor: Any) -> None:
    x = fb.asarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device=poor)
    start = fb.zeros((2,), device=poor)
    scan = fb.jit(lambda start, x: fb.scan(lambda c, e: (c + e, c + e), start, x))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", fb.FallbackWarning)
        last, sums = scan(start, x)
    assert last.tolist() == [9.0, 12.0]
    assert sums.tolist() == [[1.0, 2.0], [4.0, 6.0], [9.0, 12.0]]
    assert any("split" in str(w.message) for w in said)


def test_a_host_fallback_in_a_program_is_announced_counted_and_can_be_forbidden(poor: Any) -> None:
    program = poor.backend.compile(graph_of(("sin", (0,), {}), ("exp", (1,), {})), poor)
    with pytest.warns(fb.FallbackWarning, match=r"sin on float32\[.*\] has no kernel on poor:0"):
        (y,) = program([matrix(poor)])
    assert np.allclose(y, np.exp(np.sin(0.5)))
    program([matrix(poor)])  # no second warning
    assert ("sin", "poor:0", 2) in fb.explain_fallbacks()
    with fb.config.scope(fallback="error"), pytest.raises(fb.UnsupportedError, match="no kernel for sin"):
        poor.backend.compile(graph_of(("sin", (0,), {})), poor)


def test_an_engine_with_an_execute_of_its_own_runs_it_in_programs() -> None:
    with faults.planted(faults.reads_zero("exp")) as device:
        (y,) = device.backend.compile(graph_of(("exp", (0,), {})), device)([matrix(device)])
    assert (y == 0).all()


# verify and profile


LONG = graph_of(
    ("exp", (0,), {}), ("tanh", (1,), {}), ("multiply", (1, 2), {}), ("sum", (3,), {"axes": (1,), "keepdims": False})
)  # fmt: skip


@pytest.mark.parametrize("name", ["numpy", "torch:cpu"])
def test_verify_runs_a_sound_program_and_keeps_the_promises_of_donation(name: str) -> None:
    device = fb.device(name) if name == "numpy" else _torch()
    graph = graph_of(("tanh", (1,), {}), ("subtract", (0, 2), {}), inputs=2)
    with fb.verify(device.engine):
        backend = device.backend
        program = backend.compile(graph, device, donate=(0,))
        assert program.writes == {0}
        began: list[int] = []
        (y,) = program([matrix(device), matrix(device)], lambda: began.append(1))
        assert began == [1]
        assert backend.checked == 2
    assert np.allclose(fb.device(name).backend.to_host(y), 0.5 - np.tanh(0.5))


def test_verify_names_the_first_op_of_a_program_that_differs_and_its_line() -> None:
    n = LONG.nodes[1]
    graph = Graph(LONG.inputs, list(LONG.nodes), LONG.outputs)
    graph.nodes[1] = Node(n.op, n.inputs, n.params, n.first, n.avals, label="hidden", line="model.py:3 in forward")
    with faults.planted(faults.reads_zero("tanh")) as device, fb.verify("faulty"):
        program = device.backend.compile(graph, device)
        with pytest.raises(VerificationError, match=r"tanh on faulty \(%2, hidden, model.py:3 in forward\) must agree"):
            program([matrix(device)])


def test_verify_finds_a_kernel_that_is_wrong_only_in_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    right = HostBackend.kernel

    def wrong(self: Any, op: Any, *more: Any) -> Kernel:
        return right(self, OPS["sinh"] if op.name == "tanh" else op, *more)

    monkeypatch.setattr(HostBackend, "kernel", wrong)
    device = fb.device("numpy")
    with fb.verify("numpy"), pytest.raises(VerificationError, match="tanh on numpy"):
        device.backend.compile(LONG, device)([matrix(device)])


def test_verify_finds_a_plan_that_reuses_memory_too_early() -> None:
    with faults.careless() as device:
        program = device.backend.compile(LONG, device)
        assert not np.allclose(program([matrix(device)])[0], 4 * np.exp(0.5) * np.tanh(np.exp(0.5)))
        with fb.verify("faulty"), pytest.raises(VerificationError, match="memory plan is wrong"):
            device.backend.compile(LONG, device)([matrix(device)])


@pytest.mark.parametrize("name", ["numpy", "torch:cpu"])
def test_profile_counts_the_ops_of_programs(name: str) -> None:
    device = fb.device(name) if name == "numpy" else _torch()
    with fb.profile(device.engine) as report:
        program = device.backend.compile(LONG, device, donate=(0,))
        assert program.writes == frozenset()
        program([matrix(device)])
        (y,) = program([matrix(device)])
    assert {op: r.calls for (_, op), r in report.rows.items()} == {"exp": 2, "tanh": 2, "multiply": 2, "sum": 2}
    assert all(r.time_ns > 0 for r in report.rows.values())
    assert np.allclose(fb.device(name).backend.to_host(y), 4 * np.exp(0.5) * np.tanh(np.exp(0.5)))


# threads, control flow, other engines


@pytest.mark.parametrize("name", ["numpy", "torch:cpu"])
def test_threads_share_an_executable(name: str) -> None:
    device = fb.device(name) if name == "numpy" else _torch()
    graph = graph_of(*(("tanh" if i % 2 else "exp", (i,), {}) for i in range(40)))
    program = device.backend.compile(graph, device)
    values = np.linspace(-1, 1, 8)
    want = [device.backend.to_host(program([matrix(device, v)])[0]).copy() for v in values]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(50):
            (got,) = program([matrix(device, values[k])])
            if not np.array_equal(device.backend.to_host(got), want[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def _twice(backend: Any, params: dict[str, Any], device: Any) -> Any:
    body = backend.compile(params["body"], device)

    def run(x: Any) -> Any:
        for _ in range(params["times"]):
            (x,) = body((x,))
        return x

    return run


REPEAT = Op(
    name="repeat", doc="A body, several times.", operands=operands("x:any"), infer=lambda x, *, body, times: x,
    reference=lambda x, *, body, times: x, vjp=Nondifferentiable("a test"), residuals=(), samples=lambda rng, dtype: [],
    cost=lambda ins, outs, params: Cost(0, 0), bound="memory", fusion="opaque", tolerance=0, control=_twice,
)  # fmt: skip


@pytest.mark.parametrize("name", ["numpy", "cpu", "torch:cpu", "meta"])
def test_an_op_that_runs_graphs_compiles_them_for_its_engine(name: str) -> None:
    device = _torch() if name == "torch:cpu" else fb.device(name)
    graph = _repeat()
    program = device.backend.compile(graph, device)
    if name == "meta":
        assert program([MATRIX]) == (MATRIX,)
        return
    (y,) = program([matrix(device)])
    assert np.allclose(device.backend.to_host(y), -np.exp(-np.exp(0.5)))
    with fb.verify(device.engine):
        device.backend.compile(graph, device)([matrix(device)])


def _repeat() -> Graph:
    graph = Graph([MATRIX])
    graph.outputs = graph.add(REPEAT, 0, body=graph_of(("exp", (0,), {}), ("negative", (1,), {})), times=2)
    return graph


def test_verify_looks_into_the_graphs_that_an_op_runs() -> None:
    with faults.planted(faults.reads_zero("negative")) as device, fb.verify("faulty"):
        program = device.backend.compile(_repeat(), device)
        with pytest.raises(VerificationError, match="negative on faulty"):
            program([matrix(device)])


def test_profile_counts_the_ops_of_graphs_that_an_op_runs() -> None:
    device = fb.device("numpy")
    with fb.profile("numpy") as report:
        device.backend.compile(_repeat(), device)([matrix(device)])
    assert {op: r.calls for (_, op), r in report.rows.items()} == {"exp": 2, "negative": 2}


def test_meta_gives_the_shapes_of_outputs() -> None:
    graph = graph_of(("permute", (0,), {"axes": (1, 0)}), ("split", (1,), {"sizes": (1, 3), "axis": 0}))
    graph.outputs = (3, 1)
    assert fb.device("meta").backend.compile(graph)([MATRIX]) == (
        Aval((3, 3), fb.float32),
        Aval((4, 3), fb.float32),
    )


@pytest.mark.slow
def test_torch_compile_takes_a_program_and_keeps_its_promises() -> None:
    device = _torch()
    graph = graph_of(("tanh", (0,), {}), ("exp", (1,), {}), ("exp", (1,), {}), outputs=(2, 3, 2, 0))
    with fb.config.scope(torch_compile=True):
        program = device.backend.compile(graph, device, donate=(0,))
    assert program.writes == frozenset()
    assert "compiled by PyTorch" in program.explain()
    assert len(program.explain()) < len(program.explain(source=True))
    x = matrix(device)
    outputs = program([x])
    for y, want in zip(outputs, [np.exp(np.tanh(0.5))] * 3 + [0.5], strict=True):
        assert np.allclose(y.numpy(), want)
    assert len({y.data_ptr() for y in (*outputs, x)}) == 5


def test_what_runs_under_torch_compile_is_what_pytorch_made(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _torch()
    import torch

    from firebrick.backends.torch.inductor import Inductor

    plain, asked = device.backend.compile(LONG, device), []

    def compiled(function: Any, **options: Any) -> Any:
        asked.append((function, options))
        return made

    made = object()
    monkeypatch.setattr(torch, "compile", compiled)
    assert Inductor(plain)._run is made
    assert asked == [(plain._run, {"dynamic": False})]


def test_torch_compile_that_fails_says_what_to_do() -> None:
    device = _torch()
    from torch._dynamo.exc import TorchDynamoException

    from firebrick.backends.torch.inductor import Inductor

    program = Inductor(device.backend.compile(LONG, device))

    def fails(*_: Any) -> Any:
        raise TorchDynamoException("no g++ here")

    program._run = fails
    with pytest.raises(fb.UnsupportedError, match=r"C\+\+ compiler[\s\S]*torch_compile = False"):
        program([matrix(device)])


def test_an_engine_copies_by_a_cast_unless_it_says_how(poor: Any) -> None:
    graph = graph_of(("exp", (0,), {}), outputs=(1, 1))
    first, second = poor.backend.compile(graph, poor)([matrix(poor)])
    assert not np.shares_memory(first, second)

    class Plain(fb.backends.Backend):
        def describe(self, native: Any) -> Aval:
            return Aval(native.shape, fb.float32)

        def supports(self, op: Any, dtypes: Any) -> bool:
            return True

        def execute(self, op: Any, inputs: Any, params: Any, out: Any = None) -> Any:
            return op.reference(*inputs, **params)

    class WithoutCast(Plain):
        def supports(self, op: Any, dtypes: Any) -> bool:
            return False

        def to_host(self, native: Any) -> Any:
            return native

        def from_host(self, array: Any, device: Any) -> Any:
            assert device.name == "torch:cpu:1"
            return array

    for engine in (Plain(), WithoutCast()):
        x = np.ones(3, np.float32)
        y = engine.copy(x, fb.device("torch:cpu:1"))
        assert np.array_equal(x, y)
        assert not np.shares_memory(x, y)
