"""Runs of native nodes: one call each, an arena between kernels, views without copies, and nothing lost at their borders."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size
from poisoned_memory import poisoned_memory
from rounding import exact, exact_graph

import firebrick as fb
from firebrick.backends.cpu import native
from firebrick.backends.cpu.engine import CpuBackend
from firebrick.compiler.fusion.facts import KINDS
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.program import python
from firebrick.compiler.program.spans import ALIGNMENT, Span, arranged
from firebrick.compiler.targets.llvm import lower
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.core.aval import Aval
from firebrick.core.errors import OutOfRangeError
from firebrick.ir import CONSTANT, Graph, interpret
from firebrick.ops import OPS
from firebrick.testing.cases import avals_of, samples_of

F = fb.float32
N = 96


def backend() -> CpuBackend:
    found = fb.device("cpu").backend
    assert isinstance(found, CpuBackend)
    return found


def calls(program: Any) -> int:
    """How many native calls a program makes."""
    return sum("native" in line for line in program.source.splitlines())


def outside(program: Any) -> Counter[str]:
    """The nodes that a program calls by themselves."""
    return Counter(n.op.name for n in program._lines.values())


class Writer:
    """A graph, an op at a time: ``w.add(x, y)``; ``w.mixed`` is an op without a kernel."""

    def __init__(self, *inputs: Aval) -> None:
        self.graph = Graph(list(inputs))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def append(*operands: int, **params: Any) -> Any:
            made = self.graph.add(OPS[name], *operands, **params)
            return made[0] if len(made) == 1 else made

        return append

    def mixed(self, x: int) -> int:
        """A value that NumPy computes from all of ``x``."""
        return int(self.graph.add(OPS["cumulative_sum"], x, axis=0, reverse=False)[0])

    def compile(self, *outputs: int, **more: Any) -> Any:
        self.graph.outputs = outputs
        return backend().compile(self.graph, **more)


def arrays(graph: Graph, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    made = [rng.integers(0, 5, a.shape) if a.dtype.is_integer else rng.uniform(0.5, 1.5, a.shape) for a in graph.inputs]
    return [x.astype(a.dtype.np) for x, a in zip(made, graph.inputs, strict=True)]


def expected(graph: Graph, given: Any) -> tuple[Any, ...]:
    """What the reference engine makes of a graph, op by op."""
    numpy = fb.device("numpy").backend
    return interpret(graph, given, lambda op, xs, p: p["value"] if op is CONSTANT else numpy.execute(op, xs, p))


def check(program: Any, graph: Graph, given: Any = None) -> tuple[Any, ...]:
    """Run a program; its results, which agree with the reference's."""
    given = arrays(graph) if given is None else given
    got = program([np.copy(x) for x in given])
    for a, v in zip(got, graph.outputs, strict=True):
        assert a.dtype == graph.avals[v].dtype.np
    exact_graph(graph, given).check(got)
    return tuple(got)


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Arenas full of NaN: what is read before it is written shows."""
    with poisoned_memory():
        yield


@pytest.fixture(autouse=True, params=["straight", "looping"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and programs in the form that those of many arrays have, too."""
    if request.param == "looping":
        monkeypatch.setattr(native, "LONG", -1)
        monkeypatch.setattr(python, "LONG", 1)


@pytest.fixture(autouse=True)
def running_sums_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running sums have no kernel: they are the operation between runs that the tests here need."""
    monkeypatch.setitem(lower._REFUSED, "prefix", lambda n, operands: "on the host in these tests")


MATRIX = Aval((N, N), F)


def test_products_maps_and_reductions_that_follow_each_other_are_one_call() -> None:
    w = Writer(MATRIX, MATRIX, Aval((N,), F))
    x = 0
    for _ in range(4):
        x = w.tanh(w.add(w.matmul(x, 1), 2))
    program = w.compile(w.sum(x, axes=(0,), keepdims=False), w.softmax(x, axis=1))
    check(program, w.graph)
    assert calls(program) == 1
    assert not outside(program)
    assert "del" not in program.source


def test_values_that_are_not_needed_at_the_same_time_share_memory() -> None:
    w = Writer(MATRIX, MATRIX)
    x = 0
    for _ in range(12):
        x = w.matmul(w.exp(w.negative(x)), 1)
    program = w.compile(w.sum(x, axes=(0, 1), keepdims=False))
    check(program, w.graph)
    assert 2 * MATRIX.nbytes <= program.plan.peak <= 3 * MATRIX.nbytes


def random_spans(seed: int, largest: int) -> list[Span]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(60):
        first = int(rng.integers(0, 40))
        found.append(Span(int(rng.integers(0, largest)), first, first + int(rng.integers(0, 12))))
    return found


@pytest.mark.parametrize("largest", [5000, 1_500_000])
@pytest.mark.parametrize("seed", range(20))
def test_places_in_an_arena_never_overlap_in_space_and_time(seed: int, largest: int) -> None:
    spans = random_spans(seed, largest)
    whole = arranged(spans)
    most = 0
    for t in range(60):
        live = [s for s in spans if s.first <= t <= s.last]
        most = max(most, sum(s.nbytes for s in live))
        for a, b in zip(
            sorted(live, key=lambda s: (s.at, s.nbytes)), sorted(live, key=lambda s: (s.at, s.nbytes))[1:], strict=False
        ):
            assert a.at + a.nbytes <= b.at or not a.nbytes or not b.nbytes
    assert all(s.at % ALIGNMENT == 0 and s.at + s.nbytes <= whole for s in spans)
    assert whole <= 1.6 * most + 60 * ALIGNMENT


def written_by_the_other_thread(spans: list[Span]) -> int:
    """Bytes of each span that are in the other half of the one that was there before, all in order, twice around."""
    thread = np.full(max(s.at + s.nbytes for s in spans) // ALIGNMENT + 1, -1)
    found = 0
    for s in sorted(spans, key=lambda s: s.first) * 2:
        lines = thread[s.at // ALIGNMENT : (s.at + s.nbytes) // ALIGNMENT]
        own = np.arange(len(lines)) >= len(lines) // 2
        found += ALIGNMENT * int(np.sum((lines != own) & (lines >= 0)))
        lines[:] = own
    return found


def test_halves_of_large_values_lie_over_halves_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    two = [Span(4 << 20, 0, 0), Span(1 << 20, 1, 1)]
    assert arranged(two) == 4 << 20
    assert two[1].at == 3 << 19  # in the middle
    ratios = []
    for seed in range(20):
        spans = random_spans(seed, 1_500_000)
        whole = arranged(spans)
        now = written_by_the_other_thread(spans)
        with monkeypatch.context() as m:
            m.setattr("firebrick.compiler.program.spans.SHARED", 1 << 60)
            small = arranged(spans)
        assert 8 * whole <= 9 * small
        ratios.append(now / written_by_the_other_thread(spans))
    assert np.median(ratios) < 0.8


def test_nodes_without_kernels_come_between_runs_and_as_few_runs_as_possible_are_made() -> None:
    w = Writer(MATRIX, MATRIX)
    a = w.exp(w.negative(w.matmul(0, 1)))
    one = w.mixed(a)
    b = w.tanh(w.matmul(a, 1))  # does not wait for it
    two = w.mixed(w.exp(b))
    program = w.compile(w.matmul(one, w.negative(two)), b)
    check(program, w.graph)
    assert calls(program) == 2
    assert outside(program) == {"cumulative_sum": 2}


def test_a_large_array_from_outside_is_made_when_it_is_needed() -> None:
    wide = Aval((600, 600), F)
    w = Writer(wide, wide)
    x = 0
    for _ in range(3):
        x = w.tanh(w.matmul(w.mixed(w.multiply(x, x)), 1))
    early = [w.mixed(1) for _ in range(3)]  # all could run at once
    for y in early:
        x = w.matmul(x, y)
    program = w.compile(x)
    check(program, w.graph)
    assert program.plan.peak <= 6 * wide.nbytes


VIEWS: dict[str, Callable[[Writer, int], int]] = {
    "reshape": lambda w, x: w.reshape(x, shape=(8, 12, N)),
    "rows": lambda w, x: w.slice(x, starts=(16, 0), stops=(64, N), steps=(1, 1)),
    "columns": lambda w, x: w.slice(x, starts=(0, 8), stops=(N, 40), steps=(1, 1)),
    "every other": lambda w, x: w.slice(x, starts=(1, 1), stops=(N, N), steps=(2, 2)),
    "backwards": lambda w, x: w.slice(x, starts=(N - 1, N - 1), stops=(-1, -1), steps=(-1, -1)),
    "one row": lambda w, x: w.slice(x, starts=(5, 0), stops=(6, N), steps=(1, 1), shape=(N,)),
    "flip": lambda w, x: w.flip(x, axes=(1,)),
    "transposed": lambda w, x: w.permute(x, axes=(1, 0)),
    "part": lambda w, x: w.split(x, sizes=(30, 66), axis=0)[1],
    "part of columns": lambda w, x: w.split(x, sizes=(30, 66), axis=1)[1],
    "broadcast": lambda w, x: w.broadcast_to(w.reshape(x, shape=(N, 1, N)), shape=(N, 3, N)),
    "heads merged": lambda w, x: w.reshape(w.permute(w.reshape(x, shape=(8, 12, 8, 12)), axes=(0, 2, 1, 3)), shape=(64, 144)),
    "view of a copy": lambda w, x: w.slice(
        w.reshape(w.permute(x, axes=(1, 0)), shape=(N * N,)), starts=(100,), stops=(1000,), steps=(3,)
    ),
    "nothing": lambda w, x: w.slice(x, starts=(3, 0), stops=(3, N), steps=(1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_between_kernels(view: Callable[[Writer, int], int]) -> None:
    w = Writer(MATRIX, MATRIX)
    x = w.matmul(0, 1)
    seen, state = view(w, x), view(w, 0)  # of what a kernel made, and of an input
    program = w.compile(
        w.exp(w.negative(seen)), w.sum(seen, axes=(0,), keepdims=False), w.sum(state, axes=(0,), keepdims=False), x
    )
    check(program, w.graph)
    if w.graph.avals[seen].size:
        assert calls(program) == 1
        assert not outside(program)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_that_leave_a_run(view: Callable[[Writer, int], int]) -> None:
    w = Writer(MATRIX, MATRIX)
    x = w.matmul(0, 1)
    seen = view(w, x)
    program = w.compile(seen, w.mixed(seen), w.matmul(x, 1), view(w, 0))
    got = check(program, w.graph)
    assert not any(np.shares_memory(a, b) for i, a in enumerate(got) for b in got[:i])


def test_a_view_in_row_major_order_is_not_copied() -> None:
    w = Writer(MATRIX, MATRIX)
    a, b = w.split(w.matmul(0, 1), sizes=(32, 64), axis=0)
    program = w.compile(w.matmul(a, 1), w.sum(w.reshape(b, shape=(N, 64)), axes=(0,), keepdims=False))
    check(program, w.graph)
    assert "copies" not in program.explain()
    w = Writer(MATRIX, MATRIX)
    left, right = w.split(w.matmul(0, 1), sizes=(32, 64), axis=1)
    program = w.compile(w.sum(left, axes=(0,), keepdims=False), w.sum(right, axes=(0,), keepdims=False))
    check(program, w.graph)
    assert "2 copies of views" in program.explain()


def update(w: Writer, p: int, m: int, g: int) -> tuple[int, int]:
    m = w.add(m, w.multiply(g, g))
    return w.subtract(p, w.divide(g, w.sqrt(m))), m


def test_donated_inputs_are_written_in_a_run_of_their_own_after_begin() -> None:
    w = Writer(MATRIX, MATRIX, MATRIX)
    loss = w.sum(w.matmul(0, 2), axes=(0, 1), keepdims=False)
    new, m = update(w, 0, 1, w.tanh(w.matmul(w.negative(w.permute(0, axes=(1, 0))), 2)))
    w.graph.outputs = (loss, new, m)
    program = backend().compile(w.graph, donate=(0, 1), ready=(0,))
    given = arrays(w.graph)
    truth = exact_graph(w.graph, given)
    assert program.writes == {0, 1}
    assert calls(program) == 2
    natives = [x.copy() for x in given]
    seen = []

    def begin(ready: Any) -> None:
        seen.append((float(ready[0]), all(np.array_equal(x, a) for x, a in zip(natives, given, strict=True))))

    got = program(natives, begin)
    assert seen == [(float(got[0]), True)]
    truth.check(got)
    assert got[1] is natives[0]
    assert got[2] is natives[1]
    np.testing.assert_array_equal(natives[2], given[2])


def test_what_begin_raises_leaves_donated_inputs_as_they_were_and_the_arena_free() -> None:
    w = Writer(MATRIX, MATRIX, MATRIX)
    new, m = update(w, 0, 1, w.matmul(0, 2))
    program = w.compile(new, m, donate=(0, 1))
    given = arrays(w.graph)
    natives = [x.copy() for x in given]

    def begin() -> None:
        raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        program(natives, begin)
    for x, a in zip(natives, given, strict=True):
        np.testing.assert_array_equal(x, a)


@pytest.mark.parametrize("only_for_the_update", [True, False])
def test_an_index_out_of_range_raises_before_donated_inputs_are_written(only_for_the_update: bool) -> None:
    w = Writer(MATRIX, Aval((N, 1), fb.int64), MATRIX)
    picked = w.gather(2, 1, axis=1)
    g = w.multiply(w.broadcast_to(picked, shape=(N, N)), 2)
    new = w.subtract(w.multiply(0, 0), g)
    program = w.compile(*([new] if only_for_the_update else [new, picked]), donate=(0,))
    assert program.writes == {0}
    given = arrays(w.graph)
    good, bad = [x.copy() for x in given], [x.copy() for x in given]
    exact_graph(w.graph, given).check(program(good))
    bad[1][7] = N
    began: list[None] = []
    with pytest.raises(OutOfRangeError, match="indices must lie in"):
        program(bad, lambda: began.append(None))
    np.testing.assert_array_equal(bad[0], given[0])
    assert not began


def test_operands_and_state_may_lie_in_any_way() -> None:
    w = Writer(MATRIX, MATRIX, MATRIX)
    new, m = update(w, 0, 1, w.matmul(0, 2))
    program = w.compile(new, m, donate=(0, 1))
    given = arrays(w.graph)
    truth = exact_graph(w.graph, given)
    raw = np.empty(MATRIX.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(N, N)
    raw[:] = given[2]
    wide = np.zeros((2 * N, 2 * N), np.float32)
    wide[::2, ::2] = given[2]
    assert not raw.flags.aligned
    for x in (given[2], np.asfortranarray(given[2]), wide[::2, ::2], given[2][::-1].copy()[::-1], raw):
        for state in (np.array, np.asfortranarray):
            natives = [state(given[0]), given[1].copy(), x]
            truth.check(program(natives))
            np.testing.assert_array_equal(x, given[2])


def test_outputs_that_are_one_value_or_an_input_or_a_number_are_apart() -> None:
    w = Writer(MATRIX, MATRIX)
    x = w.matmul(0, 1)
    number = w.graph.constant(np.full((3,), 2.0, np.float32))
    program = w.compile(x, x, w.permute(x, axes=(1, 0)), 0, number)
    given = arrays(w.graph)
    got = program(given)
    exact_graph(w.graph, given).check(got)
    for i, a in enumerate(got):
        assert not any(np.shares_memory(a, b) for b in (*got[:i], *given))
    again = program(given)
    assert not any(np.shares_memory(a, b) for a in got for b in again)


def step(x: fb.Tensor, y: fb.Tensor, w: fb.Tensor) -> Any:
    z = fb.softmax(fb.permute_dims(x @ y, (1, 0)) * w)
    u = z @ x
    half = u.shape[1] // 2
    turned = fb.concat([u[:, half:], u[:, :half]], axis=1)
    return fb.sum(turned @ y, axis=0), fb.mean(z * z), fb.reshape(fb.permute_dims(z, (1, 0)), (-1,))


def test_any_number_of_threads_gives_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(500, 500)).astype(np.float32) for _ in range(3)]
    x, y, w = map(fb.asarray, arrays)
    run = fb.jit(step)
    found = []
    for threads in (1, 2, 4):
        with fb.config.scope(num_threads=threads):
            found.append([t.numpy().tobytes() for t in run(x, y, w)])
    assert found[0] == found[1] == found[2]
    exact(lambda: step(*(fb.asarray(a.astype(np.float64)) for a in arrays)), "float32", trials=3).check(run(x, y, w))


def test_several_threads_run_one_program_each_in_an_arena_of_its_own() -> None:
    rng = np.random.default_rng(0)
    run = fb.jit(step)
    data = [tuple(fb.asarray(rng.normal(size=(64, 64)).astype(np.float32)) for _ in range(3)) for _ in range(4)]
    want = [[t.numpy().tobytes() for t in run(*d)] for d in data]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(100):
            if [t.numpy().tobytes() for t in run(*data[k])] != want[k]:
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert not wrong


def test_a_program_run_step_by_step_gives_what_it_gives_as_a_whole() -> None:
    w = Writer(MATRIX, MATRIX)
    x = w.mixed(w.tanh(w.matmul(0, 1)))
    program = w.compile(w.exp(w.negative(w.matmul(w.permute(x, axes=(1, 0)), 1))), w.flip(x, axes=(0,)))
    given = arrays(w.graph)
    ran = []

    def each(step: Any, operands: Any) -> Any:
        ran.append(step.node.op)
        return step.run(*operands)

    for a, b in zip(program.stepwise(given, each), program(given), strict=True):
        np.testing.assert_array_equal(a, b)
    assert ran.count(FUSED) == sum(n.op is FUSED for n in program.graph.nodes) >= 2


def test_what_is_computed_again_to_save_memory_waits_for_what_stands_before_it() -> None:
    def f(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
        for _ in range(3):
            x = fb.checkpoint(lambda x: fb.cumulative_sum(fb.exp(-fb.tanh(x @ y) * x), axis=0))(x)
        return fb.sum(x)

    rng = np.random.default_rng(0)
    x, y = (fb.asarray(rng.normal(size=(64, 64)) / 16) for _ in range(2))
    grad = fb.grad(f)
    np.testing.assert_allclose(fb.jit(grad)(x, y).numpy(), grad(x, y).numpy(), rtol=1e-9, atol=1e-9)


def test_cleanup_gives_arenas_back() -> None:
    w = Writer(MATRIX, MATRIX)
    program = w.compile(w.sum(w.tanh(w.matmul(0, 1)), axes=(0,), keepdims=False))
    check(program, w.graph)
    device = fb.device("cpu")
    assert fb.memory_stats(device)["arenas"] >= MATRIX.nbytes
    fb.memory_cleanup(device)
    assert fb.memory_stats(device)["arenas"] == 0
    check(program, w.graph)


OPS_THAT_MOVE = ("concat", "pad", "slice_update")
MOVES: dict[str, Callable[[Writer, int, int], int]] = {
    "concat rows": lambda w, x, y: w.concat(x, y, x, axis=0),
    "concat columns": lambda w, x, y: w.concat(y, x, axis=1),
    "pad": lambda w, x, y: w.pad(x, widths=((2, 3), (0, 5)), value=1.5),
    "pad nothing": lambda w, x, y: w.pad(x, widths=((0, 0), (0, 0)), value=0),
    "slice_update": lambda w, x, y: w.slice_update(
        x, w.slice(y, starts=(0, 0), stops=(32, 40), steps=(1, 1)), starts=(60, 2), stops=(92, 82), steps=(1, 2)
    ),
    "slice_update backwards": lambda w, x, y: w.slice_update(x, y, starts=(N - 1, 0), stops=(-1, N), steps=(-1, 1)),
    "slice_update of a number": lambda w, x, y: w.slice_update(
        w.broadcast_to(w.graph.constant(np.ones((), np.float32)), shape=(2 * N, N)),
        y, starts=(7, 0), stops=(7 + N, N), steps=(1, 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_arrays_are_put_together_natively(move: Callable[[Writer, int, int], int]) -> None:
    w = Writer(MATRIX, MATRIX)
    x = w.matmul(0, 1)
    made = move(w, x, 1)
    program = w.compile(w.sum(made, axes=(0,), keepdims=False), made, move(w, 0, x))
    check(program, w.graph)
    assert not outside(program)


@pytest.fixture
def any_size() -> Iterator[None]:
    with kernels_of_any_size():
        yield


@pytest.mark.parametrize("name", OPS_THAT_MOVE)
@pytest.mark.usefixtures("any_size")
def test_every_dtype_is_moved(name: str) -> None:
    op, tried = OPS[name], 0
    for dtype in op.dtypes:
        for sample in samples_of(op, dtype, 0):
            graph = Graph(list(avals_of(op, sample)[0]))
            graph.outputs = graph.add(op, *range(len(graph.inputs)), **sample.params)
            if kind_of(graph.nodes[0], tuple(graph.inputs)) not in KINDS:
                continue
            program = backend().compile(graph)
            assert not outside(program)
            given = [np.asarray(x) for x in sample.inputs]  # every one is computed natively
            (got,) = program(given)
            want = op.reference(*given, **sample.params)
            assert got.dtype == want.dtype
            assert got.tobytes() == np.ascontiguousarray(want).tobytes()
            tried += 1
    assert tried > 20


def test_state_whose_part_is_replaced_stays_where_it_is() -> None:
    w = Writer(Aval((50, N, N), F), MATRIX)
    part = w.reshape(w.tanh(w.matmul(1, 1)), shape=(1, N, N))
    new = w.slice_update(0, part, starts=(3, 0, 0), stops=(4, N, N), steps=(1, 1, 1))
    program = w.compile(new, donate=(0,))
    given = arrays(w.graph)
    truth = exact_graph(w.graph, given)
    (got,) = program(given)
    assert got is given[0]
    truth.check([got])
