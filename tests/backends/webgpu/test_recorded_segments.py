"""Programs whose segments are recorded as one have the results of their nodes, run one by one without any reuse of memory."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.webgpu import commands, recorded
from firebrick.backends.webgpu.buffers import KEPT, BufferPool, DeviceArray
from firebrick.backends.webgpu.recorded import MOST, RecordedSegment
from firebrick.compiler import Executable
from firebrick.core.aval import Aval
from firebrick.ir import CONSTANT, Graph
from firebrick.ops import OPS

SHAPES = ((8, 8), (16, 4), (4, 16), (64,), (1, 64))


def drawn(rng: np.random.Generator, nodes: int) -> Graph:
    """A graph of products, elementwise operations, views, sums, host operations and arrays without elements."""
    graph = Graph([Aval((8, 8), fb.float32), Aval((16, 4), fb.float32), Aval((3,), fb.int32)])
    values = [0, 1]

    def of(shape: tuple[int, ...]) -> int:
        """A value of a shape: the last ones are drawn more often."""
        found = [v for v in values if graph.avals[v].shape == shape]
        if found and rng.random() < 0.8:
            return int(found[max(0, len(found) - 1 - rng.geometric(0.4) + 1)])
        return int(graph.add(OPS["reshape"], int(rng.choice([v for v in values if graph.avals[v].size == 64])), shape=shape)[0])

    def product(v: int) -> tuple[int, ...]:
        return tuple(graph.add(OPS["matmul"], v, of((8, 8))))

    def indexed(v: int) -> tuple[int, ...]:
        (rows,) = graph.add(OPS["take"], v, 2, axis=0)
        return tuple(graph.add(OPS["matmul"], *graph.add(OPS["permute"], rows, axes=(1, 0)), rows))

    def parts(v: int) -> tuple[int, ...]:
        first, second = graph.add(OPS["split"], v, sizes=(3, 5), axis=0)
        return (*graph.add(OPS["concat"], second, first, axis=0), v)

    def empty(v: int) -> tuple[int, ...]:
        (none,) = graph.add(OPS["slice"], v, starts=(0, 2), stops=(8, 2), steps=(1, 1))
        return (*graph.add(OPS["concat"], v, *graph.add(OPS["tanh"], none), axis=1), *graph.add(OPS["matmul"], none, none_of))

    def view(v: int) -> tuple[int, ...]:
        """A view that kernels read before and after what it is of."""
        (v,) = graph.add(OPS["matmul"], v, of((8, 8)))
        (other,) = graph.add(OPS["reshape"], v, shape=(16, 4))
        first, second = (lambda: graph.add(OPS["flip"], other, axes=(0,))), (lambda: graph.add(OPS["matmul"], v, v))
        made = (*first(), *second()) if rng.random() < 0.5 else (*second(), *first(), other)
        return (*made, *graph.add(OPS["add"], *(graph.add(OPS["reshape"], u, shape=(64,))[0] for u in made[:2])))

    (none_of,) = graph.add(CONSTANT, value=np.zeros((0, 8), np.float32))
    kinds: dict[str, tuple[int, Callable[[int], Any]]] = {
        "product": (8, product),
        "a view": (5, view),
        "tanh": (2, lambda v: graph.add(OPS["tanh"], v)),
        "add": (3, lambda v: graph.add(OPS["add"], v, of((8, 8)))),
        "turned": (2, lambda v: graph.add(OPS["permute"], of((16, 4)), axes=(1, 0))),
        "in another shape": (3, lambda v: graph.add(OPS["reshape"], v, shape=SHAPES[rng.integers(len(SHAPES))])),
        "rows in another order": (1, lambda v: graph.add(OPS["flip"], v, axes=(0,))),
        "parts": (1, parts),
        "indexed": (1, indexed),
        "on the host": (1, lambda v: graph.add(OPS["cumulative_prod"], v, axis=0, reverse=False)),
        "a constant": (1, lambda v: graph.add(OPS["add"], v, *graph.add(CONSTANT, value=np.full((8, 8), v, np.float32)))),
        "sum": (1, lambda v: graph.add(OPS["add"], v, *graph.add(OPS["sum"], v, axes=(1,), keepdims=True))),
        "empty": (1, empty),
    }
    weights = np.array([weight for weight, _ in kinds.values()], float)
    for _ in range(nodes):
        kind = str(rng.choice([*kinds], p=weights / weights.sum()))
        made = [*kinds[kind][1](of((8, 8)))]
        made = [v for v in made if graph.avals[v].size == 64]
        if rng.random() < 0.4 and graph.avals[made[0]].shape == (8, 8):  # numbers stay of a size
            made[:1] = graph.add(OPS["tanh"], made[0])
        values += made
    graph.outputs = [int(v) for v in rng.choice(values, size=int(rng.integers(1, 6)))]
    return graph


DEVICE = "webgpu:0"
WIDE = 12
"""Values that are alive at the same time."""


def _given(rng: np.random.Generator) -> list[DeviceArray]:
    device = fb.device(DEVICE)
    arrays = rng.normal(size=(8, 8)), rng.normal(size=(16, 4)), rng.integers(0, 8, 3)
    backend = device.backend
    return [backend.from_host(x.astype(d), device) for x, d in zip(arrays, ("f4", "f4", "i4"), strict=True)]


def _segments(program: Executable) -> list[RecordedSegment]:
    return [f for f in program._run.__globals__.values() if isinstance(f, RecordedSegment)]


def _numbers(arrays: Any) -> list[np.ndarray]:
    return [fb.device(DEVICE).backend.to_host(x) for x in arrays]


def _compiled(graph: Graph) -> Executable:
    device = fb.device(DEVICE)
    with fb.config.scope(fallback="silent"):
        found: Executable = device.backend.compile(graph, device)
    return found


def _check(seed: int, calls: int) -> int:
    """Run a drawn program with new and with old arguments, some results of which live on; the number of its segments."""
    rng = np.random.default_rng(seed)
    program = _compiled(drawn(rng, int(rng.integers(4, 30))))
    sets = [_given(rng) for _ in range(3)]
    wanted = [_numbers(program.stepwise(s, lambda step, xs: step.run(*xs))) for s in sets]
    alive: list[tuple[int, tuple[DeviceArray, ...]]] = []
    for _ in range(calls):
        k = int(rng.integers(3))
        alive.append((k, program(sets[k])))
        if rng.random() < 0.5:
            del alive[int(rng.integers(len(alive)))]
        if rng.random() < 0.2:
            fb.device(DEVICE).backend.flush(fb.device(DEVICE))
        if rng.random() < 0.05:
            fb.device(DEVICE).backend.memory_cleanup(fb.device(DEVICE))
    for k, results in alive:
        for found, want in zip(_numbers(results), wanted[k], strict=True):
            assert found.dtype == want.dtype
            assert found.shape == want.shape
            assert found.tobytes() == want.tobytes(), f"seed {seed}"
    for s, want in zip(sets, wanted, strict=True):  # arguments are as they were
        assert _numbers(program(s))[0].tobytes() == want[0].tobytes()
    return len(_segments(program))


@pytest.mark.filterwarnings("ignore::firebrick.FallbackWarning")
def test_drawn_programs_have_the_results_of_their_nodes() -> None:
    segments = sum(_check(seed, 8) for seed in range(12))
    assert segments > 12, "programs without segments"


@pytest.mark.soak
@pytest.mark.parametrize("block", range(1, 30))
@pytest.mark.filterwarnings("ignore::firebrick.FallbackWarning")
def test_more_drawn_programs_have_the_results_of_their_nodes(block: int) -> None:
    for seed in range(12 * block, 12 * block + 12):
        _check(seed, 20)


def _chain(x: fb.Tensor, count: int) -> fb.Tensor:
    for _ in range(count):
        x = fb.tanh(x @ x)
    return x


def test_a_program_of_many_kernels_is_recorded_in_segments_that_are_submitted_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng, gpu = np.random.default_rng(0), fb.device(DEVICE).backend.groups(fb.device(DEVICE)).gpu
    counts: list[int] = []
    submit = type(gpu).submit

    def counted(self: Any) -> None:
        counts.append(self._recorded)
        submit(self)

    monkeypatch.setattr(type(gpu), "submit", counted)
    x = fb.asarray(rng.normal(size=(8, 8)).astype(np.float32), device=DEVICE)
    long = fb.jit(lambda x: _chain(x, 3 * MOST))
    for _ in range(2):
        found = long(x).numpy()
    assert max(counts) <= commands.BATCH
    want = x
    for _ in range(3):
        want = _chain(want, MOST)
    assert found.tobytes() == want.numpy().tobytes()


def test_a_view_between_kernels_does_not_divide_their_segment() -> None:
    graph = Graph([Aval((8, 8), fb.float32)])
    v, results = 0, []
    for _ in range(4):
        (v,) = graph.add(OPS["matmul"], v, v)
        (other,) = graph.add(OPS["reshape"], v, shape=(16, 4))
        results += [other, *graph.add(OPS["flip"], other, axes=(0,))]
    graph.outputs = results
    assert len(_segments(_compiled(graph))) == 1


def test_memory_of_what_dies_in_a_segment_is_used_in_it_and_by_the_next_call() -> None:
    """Each segment writes over what earlier ones leave: the peak is that of a few values, whatever the number of nodes."""
    device = fb.device(DEVICE)
    pool = device.backend.groups(device).gpu.pool
    x = fb.asarray(np.eye(128, dtype=np.float32) / 2, device=DEVICE)

    def softmaxes(x: fb.Tensor, count: int) -> fb.Tensor:
        many = [x * float(k) for k in range(WIDE)]
        for _ in range(count // WIDE):
            many = [fb.softmax(x, axis=0) for x in many]
        return fb.sum(fb.stack(many), axis=0)

    for count in (6, 2 * MOST):
        run = fb.jit(lambda x, count=count: softmaxes(x, count))
        gc.collect()
        device.backend.memory_cleanup(device)
        before = pool.created
        run(x).numpy()
        made = pool.created - before
        assert made <= (2 * WIDE + 3) * x.nbytes, f"{made:,} bytes for {count} kernels"
        for _ in range(2):
            result = run(x)
        result.numpy()
        assert pool.created - before <= made + 2 * x.nbytes, "each call has buffers of its own"


def test_what_dies_in_a_segment_is_given_up_at_its_end() -> None:
    """And not at the end of the program: here the program has something else to do after the segment."""
    graph = Graph([Aval((8, 8), fb.float32)])
    made, _, other = graph.add(OPS["svd"], 0)
    product = made
    for _ in range(4):
        (product,) = graph.add(OPS["matmul"], product, made)
    graph.outputs = [*graph.add(OPS["svd"], product), other]
    program = _compiled(graph)
    lines = [x.strip() for x in program.source.splitlines()]
    assert f"(v{product},) = native(v{made})" in lines, program.source
    assert lines[lines.index(f"(v{product},) = native(v{made})") + 1] == f"del v{made}", program.source


def test_a_branch_that_returns_its_operand_keeps_it() -> None:
    """Memory that other nodes than those of segments use may live on in what they return."""

    def f(x: fb.Tensor, go: fb.Tensor) -> Any:
        y = fb.tanh(x @ x)
        z = fb.cond(go, lambda y: y, lambda y: y * 2.0, y)
        w = fb.tanh(y @ x)  # what uses the operand last
        for _ in range(4):
            w = fb.tanh(w @ x)
        return z @ w, w

    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    for go in (True, False):
        found = fb.jit(f)(fb.asarray(x, device=DEVICE), fb.asarray(go, device=DEVICE))
        want = f(fb.asarray(x, device="numpy"), fb.asarray(go, device="numpy"))
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5, atol=2e-6)


def test_threads_run_one_program_at_the_same_time() -> None:
    x = [fb.asarray(np.random.default_rng(k).normal(size=(8, 8)).astype(np.float32), device=DEVICE) for k in range(3)]
    run = fb.jit(lambda x: _chain(x, 6))
    wanted = [run(t).numpy() for t in x]
    wrong: list[int] = []

    def work(k: int) -> None:
        results = [run(x[k]) for _ in range(20)]
        wrong.extend(k for r in results if r.numpy().tobytes() != wanted[k].tobytes())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_recordings_are_kept_for_a_few_sets_of_buffers() -> None:
    x = fb.asarray(np.eye(8, dtype=np.float32), device=DEVICE)
    graph = Graph([Aval((8, 8), fb.float32)])
    v = 0
    for _ in range(5):
        (v,) = graph.add(OPS["matmul"], v, v)
    graph.outputs = [v]
    program = _compiled(graph)
    (segment,) = _segments(program)
    alive = [program([x.storage.data]) for _ in range(3 * commands._RECORDINGS)]
    kept = sum(map(len, segment.prepared.groups.values()))
    assert 0 < kept <= commands._RECORDINGS
    gpu = fb.device(DEVICE).backend.groups(fb.device(DEVICE)).gpu
    del alive
    gpu.pool.release()  # kept bind groups would keep buffers that are given back
    assert not segment.prepared.groups
    assert _numbers(program([x.storage.data]))[0].tobytes() == x.numpy().tobytes()


def test_a_view_that_is_made_between_segments_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "SITES", 0)  # no segment goes on behind a check
    graph = Graph([Aval((8, 8), fb.float32), Aval((3,), fb.int32)])
    (a,) = graph.add(OPS["matmul"], *graph.add(OPS["matmul"], 0, 0), 0)
    (first,) = graph.add(OPS["take"], 0, 1, axis=0)
    (view,) = graph.add(OPS["reshape"], a, shape=(64,))
    (second,) = graph.add(OPS["take"], 0, 1, axis=1)
    b = graph.add(OPS["matmul"], a, 0)
    for _ in range(3):
        b = graph.add(OPS["matmul"], *b, 0)
    graph.outputs = [*b, view, first, second]
    program, given = _compiled(graph), _given(np.random.default_rng(0))
    given = [given[0], given[2]]
    assert len(_segments(program)) == 2
    wanted = _numbers(program.stepwise(given, lambda step, xs: step.run(*xs)))
    for found, want in zip(_numbers(program(given)), wanted, strict=True):
        assert found.tobytes() == want.tobytes()


def _taking(x: fb.Tensor, first: fb.Tensor, second: fb.Tensor) -> fb.Tensor:
    a = fb.take(fb.tanh(x @ x), first, axis=0)
    b = fb.take(fb.tanh(x), second, axis=1)
    return b @ fb.matrix_transpose(a @ x)


def test_a_program_waits_once_for_all_its_checks_and_reports_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = fb.device(DEVICE).backend.groups(fb.device(DEVICE)).gpu
    waits: list[int] = []
    bytes_of = type(gpu).bytes_of

    def counted(self: Any, buffer: Any, size: int) -> Any:
        waits.append(size)
        return bytes_of(self, buffer, size)

    monkeypatch.setattr(type(gpu), "bytes_of", counted)
    x = fb.asarray(np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32), device=DEVICE)
    right, other = (
        fb.asarray(np.array(v, np.int32), device=DEVICE) for v in ([1, 0, 3, 7, -8, 2, 2, 5], [0, 1, 2, 3, 4, 5, 6, 7])
    )
    wrong = fb.asarray(np.array([0, 8, 2, 99, 4, 5, 6, 7], np.int32), device=DEVICE)
    run = fb.jit(_taking)
    want = _taking(x, right, other).numpy()
    run(x, right, other)
    # by a kernel from which the host does not know what they are
    computed = [fb.cumulative_sum(fb.asarray(np.diff(x.numpy(), prepend=0), device=DEVICE), axis=0) for x in (right, other)]
    computed = [fb.astype(x, fb.int32) for x in computed]
    for _ in range(3):
        del waits[:]
        found = run(x, *computed)
        assert len(waits) == 1
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-5, atol=1e-6)
        for arguments, line in (
            ((right, wrong), "b = fb.take"),
            ((wrong, right), "a = fb.take"),
            ((wrong, wrong), "a = fb.take"),
        ):
            with pytest.raises(IndexError, match=r"take: indices must lie in \[-8, 8\)[\s\S]*Received: 8, at ") as e:
                run(x, *arguments)
            number = int(str(e.value).partition("test_recorded_segments.py:")[2].partition(" in ")[0])
            with open(__file__, encoding="utf-8") as f:
                assert line in f.read().splitlines()[number - 1]


def test_a_fault_leaves_the_state_of_a_program_as_it_was() -> None:
    table = fb.nn.Embedding(5, 4, device=DEVICE)
    optimizer = fb.optim.Adam(table, lr=0.1)

    @fb.jit
    def step(tokens: fb.Tensor) -> fb.Tensor:
        value, gradients = fb.value_and_grad(lambda m: fb.sum(m(tokens) ** 2))(table)
        optimizer.update(table, gradients)
        return value

    tokens = [fb.asarray(np.array(v, np.int32), device=DEVICE) for v in ([0, 4, 4], [0, 5, 1])]
    step(tokens[0])
    before = table.weight.numpy()
    with pytest.raises(IndexError, match=r"indices must lie in \[0, 5\)"):
        step(tokens[1])
    assert table.weight.numpy().tobytes() == before.tobytes()
    step(tokens[0])
    assert table.weight.numpy().tobytes() != before.tobytes()


def test_threads_have_tables_of_faults_of_their_own() -> None:
    x = fb.asarray(np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32), device=DEVICE)
    indices = [fb.asarray(np.array([k] * 8, np.int32), device=DEVICE) for k in (3, 8, 9)]
    run = fb.jit(_taking)
    want = run(x, indices[0], indices[0]).numpy().tobytes()
    found: list[str] = []

    def work(k: int) -> None:
        for _ in range(15):
            try:
                value = run(x, indices[0], indices[k])
                found.append("" if k == 0 and value.numpy().tobytes() == want else f"thread {k} got a value")
            except IndexError as e:
                found.append("" if f"Received: {(3, 8, 9)[k]}, at" in str(e) and k else f"thread {k}: {e}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert set(found) == {""}


def test_more_checks_than_a_table_has_room_for_are_made_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "SITES", 3)
    graph = Graph([Aval((8, 8), fb.float32), *[Aval((8,), fb.int32)] * 6])
    v = 0
    for k in range(6):
        (v,) = graph.add(OPS["matmul"], v, 0)
        (v,) = graph.add(OPS["take"], v, k + 1, axis=0)
        (v,) = graph.add(OPS["tanh"], v)
    graph.outputs = [v]
    program = _compiled(graph)
    assert 0 < sum(len(f.prepared.steps) for f in _segments(program)) < 18
    device = fb.device(DEVICE)
    rng = np.random.default_rng(1)
    x = device.backend.from_host(rng.normal(size=(8, 8)).astype(np.float32), device)
    right = [device.backend.from_host(rng.permutation(8).astype(np.int32), device) for _ in range(6)]
    wanted = _numbers(program.stepwise([x, *right], lambda step, xs: step.run(*xs)))
    assert _numbers(program([x, *right]))[0].tobytes() == wanted[0].tobytes()
    for k in range(6):
        wrong = [*right]
        wrong[k] = device.backend.from_host(np.full(8, 8 + k, np.int32), device)
        with pytest.raises(IndexError, match=rf"Received: {8 + k}\."):
            program([x, *wrong])
    assert _numbers(program([x, *right]))[0].tobytes() == wanted[0].tobytes()


def test_buffers_that_nothing_owns_are_bounded_by_what_was_in_use() -> None:
    """Programs of many sizes would keep one set of buffers for each size class."""
    pool = BufferPool(lambda size: object(), 1 << 40)
    most = 0
    for k in range(40):
        size = pool.size_of((4 << 20) + k * (1 << 20))
        leases = [pool.sized(size) for _ in range(8)]
        most = max(most, pool.created - pool.kept)
        del leases
    assert most == 8 * pool.size_of(43 << 20)
    assert pool.kept <= 2 * most
    assert pool.created == sum(b.size for b in pool._blocks)
    before = pool.created
    for _ in range(5):  # a program that runs again makes no buffer
        leases = [pool.sized(size) for _ in range(8)]
        del leases
    assert pool.created == before
    held = [pool.lease(256) for _ in range(300)]  # and what much was in use long ago does not count
    assert len(held) == 300
    assert pool.kept <= KEPT
