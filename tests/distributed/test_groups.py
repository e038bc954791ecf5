"""The operations of a group: over gloo between threads of one process, with GPUs' memory in their place, and alone."""

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ranks import in_threads

import firebrick as fb
from firebrick.distributed import Group, LocalGroup, mpi, process
from firebrick.distributed.collectives import SMALL
from firebrick.distributed.header import BYTES, Header
from firebrick.distributed.wire import COLLECTIVE, DIRECT, Alone, Wire, WireError
from firebrick.testing import engines

WEIGHTS = [0.7, 0.2, 0.1]
gloo = pytest.mark.skipif("torch" in engines().missing, reason="torch, whose gloo carries the data")


def term(rank: int, shape: tuple[int, ...], dtype: str = "float32", device: str = "cpu") -> fb.Tensor:
    values = np.random.default_rng(rank).standard_normal(shape) * 10.0**rank
    return fb.astype(fb.asarray(values, device=device), fb.dtype(dtype))


@gloo
def test_three_ranks_have_the_bits_of_three_devices() -> None:
    """Below and above the size from which slices have owners, for sizes that do not divide by three, and for buckets."""
    devices = ["cpu:0", "numpy:0", "torch:cpu:0"]
    shapes = [(1,), (7, 3), (SMALL // 4,), (SMALL // 4 + 1,), (50, 100)]

    def body(group: Group) -> list[bytes]:
        own = [term(group.rank, s, d, devices[group.rank]) for s in shapes for d in ("float32", "bfloat16", "float64")]
        works = [group.all_reduce(x, weight=WEIGHTS[group.rank], wait=False) for x in own]
        out = [w.wait() for w in works]
        assert all(x.device is fb.device(devices[group.rank]) and not x.tracked for x in out)
        bucket = group.all_reduce([x for x in own if x.dtype is fb.float64], weight=WEIGHTS[group.rank])
        for x, y in zip(bucket, (x for x in out if x.dtype is fb.float64), strict=True):
            assert x.shape == y.shape
            assert x.numpy().tobytes() == y.numpy().tobytes()
        return [x.numpy().tobytes() for x in out]

    found = in_threads(3, body)
    local = LocalGroup(devices)
    want = [
        local.reduce([term(r, s, d, devices[r]) for r in range(3)], weights=WEIGHTS).numpy().tobytes()
        for s in shapes
        for d in ("float32", "bfloat16", "float64")
    ]
    assert found == [want] * 3


@gloo
def test_what_is_gathered_scattered_sent_and_broadcast_arrives() -> None:
    def body(group: Group) -> dict[str, Any]:
        r, size = group.rank, group.size
        out: dict[str, Any] = {}
        out["gathered"] = [t.tolist() for t in group.all_gather(fb.asarray([[r, -r]]))]
        out["rows"] = group.reduce_scatter(fb.asarray(np.arange(10.0).reshape(5, 2)) + r).tolist()
        out["none"] = group.reduce_scatter(fb.ones((2, 0))).shape, group.all_reduce(fb.ones((0, 3))).shape
        out["broadcast"] = group.broadcast(fb.asarray([r, r + 1, r + 2, r + 3]), root=1).tolist()
        out["few"] = group.broadcast(fb.asarray(r), root=2).item()
        out["several"] = [t.tolist() for t in group.broadcast([fb.asarray([r]), fb.asarray([[r]])], root=2)]
        out["most"] = group.all_reduce(fb.asarray([r, -r]), "max").tolist()
        sent = fb.full((2, 3), float(r))
        sent.label = f"of rank {r}"
        if r == 0:
            group.send(sent, to=1)
            got = group.recv(size - 1)
        else:
            got = group.recv(r - 1, device="numpy:0")
            group.send(sent, to=(r + 1) % size)
        out["ring"] = got.label, got.shape, got.numpy().max(), got.device.engine
        return out

    found = in_threads(3, body)
    whole = 3 * np.arange(10.0).reshape(5, 2) + 3
    for r, out in enumerate(found):
        assert out["gathered"] == [[[0, 0]], [[1, -1]], [[2, -2]]]
        assert out["rows"] == whole[[slice(0, 1), slice(1, 3), slice(3, 5)][r]].tolist()
        assert out["none"] == (([0, 1, 1][r], 0), (0, 3))
        assert out["broadcast"] == [1, 2, 3, 4]
        assert out["few"] == 2
        assert out["several"] == [[2], [[2]]]
        assert out["most"] == [2, 0]
        assert out["ring"] == (f"of rank {(r - 1) % 3}", (2, 3), float((r - 1) % 3), "numpy" if r else "cpu")


@gloo
def test_a_rank_computes_while_its_reduction_waits_for_another() -> None:
    started = threading.Event()

    def body(group: Group) -> Any:
        if group.rank == 1:
            assert started.wait(30)
            return group.all_reduce(fb.ones(3)).tolist()
        work = group.all_reduce(fb.ones(3), wait=False)
        before = work.done
        started.set()
        return before, work.wait().tolist(), work.done, work.wait() is work.wait()

    assert in_threads(2, body) == [(False, [2.0] * 3, True, True), [2.0] * 3]


@gloo
def test_a_note_of_each_rank_comes_along_with_a_sum() -> None:
    def body(group: Group) -> Any:
        terms = [fb.full((2, 3), float(group.rank + 1)), fb.full(5000, float(group.rank))]
        said = f"rank {group.rank}: é".encode() if group.rank else b""
        work = group.all_reduce_noted(terms, said, weight=0.5)
        plain = group.all_reduce(terms, weight=0.5)
        sums, notes = work.wait()
        with pytest.raises(fb.ConfigError, match="up to 1024 bytes"):
            group.all_reduce_noted(terms, b"x" * 1025)
        with pytest.raises(fb.ConfigError, match="none of them zero"):
            group.all_reduce_noted(terms, b"\0")
        return [a.tolist() == b.tolist() for a, b in zip(sums, plain, strict=True)], notes

    for same, notes in in_threads(3, body):
        assert same == [True, True]
        assert notes == [b"", "rank 1: é".encode(), "rank 2: é".encode()]


@gloo
def test_ranks_that_disagree_get_an_error_that_names_them_and_go_on() -> None:
    def body(group: Group) -> list[str]:
        weight = fb.ones((3, 4 + group.rank))
        weight.label = "conv1.weight"
        said = []
        for call in (
            lambda: group.all_reduce(weight),
            lambda: group.all_reduce(fb.ones(2, dtype=fb.float64 if group.rank else fb.float32)),
            lambda: group.barrier() if group.rank else group.all_reduce(fb.ones(2)),
            lambda: group.all_reduce([fb.ones(2), fb.ones(4)] if group.rank else [fb.ones(3), fb.ones(3)]),
            lambda: group.broadcast(fb.ones(2), root=group.rank),
        ):
            with pytest.raises(fb.CollectiveMismatchError) as caught:
                call()
            said.append(str(caught.value))
        assert group.all_reduce(fb.ones(1)).item() == 2.0
        return said

    first, second = in_threads(2, body)
    assert first == second
    shapes, kinds, order, buckets, roots = first
    assert "rank 0: all_reduce(sum) of float32[3,4] (conv1.weight), call 0; rank 1: " in shapes
    assert "float32[3,5] (conv1.weight)" in shapes
    assert "passes zeros" in shapes
    assert "float32[2], call 1; rank 1: all_reduce(sum) of float64[2], call 1" in kinds
    assert "rank 1: barrier, call 2" in order
    assert "the same order" in order
    assert "2 float32 tensors with 6 elements" in buckets
    assert "broadcast(from rank 1)" in roots


@gloo
@pytest.mark.slow
def test_a_rank_that_lives_but_does_not_come_is_named_with_where_it_is() -> None:
    ended = threading.Event()

    def body(group: Group) -> Any:
        group.barrier()
        if group.rank == 1:
            assert ended.wait(30)
            raise RuntimeError("too late")
        group.timeout = 0.5
        try:
            group.all_reduce(fb.ones(2))
        finally:
            ended.set()

    error, _ = in_threads(2, body, timeout=5.0)
    assert isinstance(error, fb.CollectiveTimeoutError)
    assert error.context == {"operation": "all_reduce(sum)", "missing": [1]}
    assert "missing rank 1: it lives, and is at barrier, call 0 (seen by rank 0: Timed out" in str(error)
    assert "raise the timeout" in str(error)


@gloo
def test_a_rank_that_left_is_named_and_every_later_call_says_so() -> None:
    left = threading.Event()

    def body(group: Group) -> Any:
        if group.rank == 1:
            group.close()
            left.set()
            raise RuntimeError("gone")
        assert left.wait(30)
        said = []
        for call in (lambda: group.all_reduce(fb.ones(2)), group.barrier):
            with pytest.raises(fb.CollectiveTimeoutError) as caught:
                call()
            said.append(str(caught.value))
        raise RuntimeError(*said)

    error, _ = in_threads(2, body)
    assert "missing rank 1: its program ended" in error.args[0]
    assert error.args[0] == error.args[1]


def test_arguments_that_cannot_be_are_refused_before_anything_is_sent() -> None:
    with Group() as group:
        with pytest.raises(fb.OperandError, match="takes a tensor or a list of tensors"):
            group.all_reduce(np.ones(2))
        with pytest.raises(fb.DTypeError, match="the tensors of a list are of one dtype"):
            group.all_reduce([fb.ones(2), fb.asarray([1])])
        with pytest.raises(fb.DTypeError, match="reductions take numbers"):
            group.all_reduce(fb.asarray([True]))
        with pytest.raises(fb.DTypeError, match="weights are for floats"):
            group.all_reduce(fb.asarray([1]), weight=0.5)
        with pytest.raises(fb.ConfigError, match="root is a rank from 0 to 0"):
            group.broadcast(fb.ones(1), root=1)
        with pytest.raises(fb.ConfigError, match="but 0"):
            group.send(fb.ones(1), to=0)
        with pytest.raises(fb.ShapeError, match="first axis is shared out"):
            group.reduce_scatter(fb.asarray(1.0))
    with pytest.raises(fb.ConfigError, match="was closed"):
        group.barrier()


def test_one_process_alone_is_a_group_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(fb.ConfigError, match=r"call distributed\.init\(\) first"):
        fb.distributed.current()
    with fb.distributed.init() as group:
        assert fb.distributed.current() is group
        assert (fb.distributed.rank(), fb.distributed.world_size()) == (0, 1)
        x = fb.ones(3)
        assert group.all_reduce(x).tolist() == [1.0] * 3
        assert not group.broadcast(x).tracked
        assert [t.tolist() for t in group.all_gather(x)] == [[1.0] * 3]
        with pytest.raises(fb.ConfigError, match="called once a process"):
            fb.distributed.init()
    with pytest.raises(fb.ConfigError, match=r"call distributed\.init\(\) first"):
        fb.distributed.barrier()


def test_operands_that_are_differentiated_are_refused() -> None:
    """Their collective would be a constant, and a part of the gradient missing without a word."""
    group, x = fb.distributed.Group(), fb.ones(2)
    local = fb.distributed.LocalGroup(["cpu:0"])
    calls = {
        "all_reduce": group.all_reduce, "reduce_scatter": group.reduce_scatter, "all_gather": lambda t: group.all_gather(t)[0],
        "broadcast": group.broadcast, "LocalGroup.all_reduce": lambda t: local.all_reduce([t])[0],
        "LocalGroup.all_gather": lambda t: local.all_gather([t])[0][0], "LocalGroup.broadcast": lambda t: local.broadcast(t)[0],
    }  # fmt: skip
    for name, call in calls.items():
        refused = pytest.raises(fb.GradientError, match=f"{name} is no operation that is differentiated")
        with refused as caught:
            fb.grad(lambda t, call=call: fb.sum(t * call(t)))(x)
        assert "train.Distributed" in caught.value.remedy
        with refused:
            fb.jvp(lambda t, call=call: t * call(t), (x,), (x,))
        with refused:
            call(fb.ones(2).require_grad())

        def constant(t: fb.Tensor, call: Callable[[fb.Tensor], fb.Tensor] = call) -> fb.Tensor:
            with fb.no_grad():
                factor = call(t)
            return fb.sum(t * factor * call(t.detach()))

        assert fb.grad(constant)(x).tolist() == [1.0, 1.0]
        assert fb.jvp(constant, (x,), (x,))[1].item() == 2.0


def test_a_header_with_a_long_label_or_many_axes_still_fits() -> None:
    x = fb.ones((1,) * 20)
    x.label = "ü" * 500
    header = Header.of("reduce_scatter(prod) on GPUs", 10**9, [x])
    data = header.encode()
    assert data.shape == (BYTES,)
    assert Header.decode(data).agreed() == header.agreed()


# the wire between GPUs: its memory, on the CPU, and messages by queues


@gloo
def test_device_memory_gives_the_bits_of_host_memory() -> None:
    import torch

    from firebrick.distributed.nccl import NcclWire

    class InMemory:
        def __init__(self, rank: int, queues: dict[tuple[int, int], SimpleQueue[Any]]) -> None:
            self.rank, self.size, self.queues = rank, 3, queues

        def exchange(self, sends: Sequence[Any], receives: Sequence[Any], deadline: float, tag: int = COLLECTIVE) -> None:
            for peer, buffer in sends:
                self.queues[self.rank, peer].put(buffer.copy() if isinstance(buffer, np.ndarray) else buffer.clone())
            for peer, buffer in receives:
                buffer[:] = self.queues[peer, self.rank].get(timeout=30)

        def close(self) -> None: ...

    class OnHost(InMemory, Wire): ...

    class OnTorch(InMemory, NcclWire):
        def __init__(self, rank: int, queues: dict[tuple[int, int], SimpleQueue[Any]]) -> None:
            super().__init__(rank, queues)
            self._torch, self._stream, self._packed = torch, None, None

        def carries(self, tensors: Sequence[fb.Tensor]) -> bool:
            return True

    shapes, size = [(3, 4), (2000, 3)], 3

    def run(on_torch: bool) -> list[list[bytes]]:
        pairs = [(a, b) for a in range(size) for b in range(size)]
        own_queues, others = {p: SimpleQueue() for p in pairs}, {p: SimpleQueue() for p in pairs}
        groups = [Group(OnHost(r, own_queues), gpu_wire=OnTorch(r, others) if on_torch else None) for r in range(size)]
        own = [[term(r, s, d, "torch:cpu") for s in shapes for d in ("float32", "bfloat16")] for r in range(size)]
        reduced = [[g.all_reduce(x, weight=WEIGHTS[r], wait=False) for x in own[r]] for r, g in enumerate(groups)]
        buckets = [g.all_reduce(own[r][::2], wait=False) for r, g in enumerate(groups)]
        spread = [g.broadcast(own[r][2], root=1, wait=False) for r, g in enumerate(groups)]
        parts = [g.reduce_scatter(own[r][2], wait=False) for r, g in enumerate(groups)]
        out = [[w.wait().numpy().tobytes() for w in works] for works in (*reduced, spread, parts)]
        out += [[x.numpy().tobytes() for x in bucket.wait()] for bucket in buckets]
        for g in groups:
            g.close()
        return out

    assert run(on_torch=True) == run(on_torch=False)


def test_without_heartbeats_the_peers_that_do_not_answer_are_named() -> None:
    class Silent(Wire):
        rank, size = 0, 3

        def exchange(self, *_: Any) -> None:
            raise WireError("time is up", {2})

        def close(self) -> None: ...

    with Group(Silent()) as group, pytest.raises(fb.CollectiveTimeoutError, match="missing rank 2: it did not answer"):
        group.barrier()


def test_a_failed_operation_is_explained_by_its_name_and_number_and_ends_the_group() -> None:
    """Messages of two ranks have no number: no rank is behind them."""
    asked: list[Any] = []

    class Silent(Wire):
        rank, size = 0, 3

        def exchange(self, *_: Any) -> None:
            raise WireError("time is up", {2})

        def close(self) -> None: ...

    def explain(op: str, number: int, error: WireError) -> fb.CollectiveTimeoutError:
        asked.append((op, number, set(error.peers)))
        return fb.CollectiveTimeoutError(f"explained {len(asked)}", "it", "so")

    watch = SimpleNamespace(at=lambda *place: asked.append(place), verdict=lambda: None, close=lambda: None, explain=explain)
    for call, expected in (
        (lambda g: g.send(fb.ones(2), 1), [("send(to rank 1)", -1, {2})]),
        (lambda g: g.recv(2), [("recv(from rank 2)", -1, {2})]),
        (lambda g: g.barrier(), [(0, "barrier"), ("barrier", 0, {2})]),
    ):
        with Group(Silent(), watch=watch) as group:
            for _ in range(2):  # the second time nothing is sent
                with pytest.raises(fb.CollectiveTimeoutError, match=f"explained {len(expected)}"):
                    call(group)
        assert [a for a in asked if a[0] != 1] == expected
        asked.clear()


class Pending:
    """A message that only its peer's answer completes, of MPI and of torch.distributed."""

    def __init__(self, peer: int) -> None:
        self.peer, self.asked = peer, 0

    def Test(self) -> bool:
        self.asked += 1
        assert self.asked == 1, "the deadline is over"
        return self.peer != 2

    is_completed = Test


def test_after_the_deadline_mpi_names_the_peers_that_have_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, at_exit = Fake(), []
    fake.Irecv = fake.Isend = lambda data, peer, tag: Pending(peer)  # type: ignore[attr-defined, method-assign]
    monkeypatch.setattr(mpi, "import_module", lambda name: fake)
    monkeypatch.setattr(mpi.atexit, "register", at_exit.append)
    wire, byte = mpi.MPIWire(), np.zeros(1, np.uint8)
    wire.exchange([(1, byte)], [(1, byte)], deadline=float("-inf"))  # these have answered
    with pytest.raises(WireError, match="time is up") as caught:
        wire.exchange([(1, byte)], [(2, byte), (1, byte)], deadline=float("-inf"))
    assert set(caught.value.peers) == {2}
    wire.close()
    at_exit[0]()
    assert (fake.freed, fake.aborted) == (0, [1])  # as after an error of MPI: messages are under way


class Late:
    """A message that completes when it is asked for the ``asks``-th time."""

    def __init__(self, asks: int) -> None:
        self.asks, self.waited = asks, False

    def Test(self) -> bool:
        self.asks -= 1
        return self.asks <= 0

    is_completed = Test

    def wait(self) -> None:
        self.waited = True


def test_mpi_is_asked_again_after_pauses_that_grow_to_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, pauses, asked = Fake(), [], []
    fake.Irecv = lambda data, peer, tag: asked.append((data[0].dtype, data[1], peer, tag)) or Late(70)  # type: ignore[attr-defined, method-assign, func-returns-value]
    fake.Isend = lambda data, peer, tag: asked.append((data[0].dtype, data[1], peer, tag)) or Late(1)  # type: ignore[attr-defined, func-returns-value]
    monkeypatch.setattr(mpi, "import_module", lambda name: fake)
    monkeypatch.setattr(mpi.atexit, "register", lambda leave: None)
    monkeypatch.setattr(mpi, "time", SimpleNamespace(monotonic=lambda: 1.0, sleep=pauses.append))
    mpi.MPIWire().exchange([(1, np.zeros(2))], [(2, np.zeros(2, np.int16))], deadline=1.0, tag=DIRECT)
    assert asked == [(np.uint8, "byte", 2, DIRECT), (np.uint8, "byte", 1, DIRECT)]  # receives are there before sends
    assert len(pauses) == 69
    assert pauses == sorted(pauses)
    assert pauses[:3] == [0.0, 2e-5, 4e-5]
    assert pauses[-1] == 1e-3


@pytest.mark.parametrize(("level", "error"), [(2, None), (3, None), (1, "a thread of their own")])
def test_mpi_without_threads_is_refused(monkeypatch: pytest.MonkeyPatch, level: int, error: str | None) -> None:
    fake = Fake()
    fake.Query_thread = lambda: level  # type: ignore[method-assign]
    monkeypatch.setattr(mpi, "import_module", lambda name: fake)
    monkeypatch.setattr(mpi.atexit, "register", lambda leave: None)
    if error is None:
        wire = mpi.MPIWire()
        assert (wire.rank, wire.size) == (0, 3)
    else:
        with pytest.raises(fb.UnsupportedError, match=error):
            mpi.MPIWire()


def test_mpi_that_is_not_installed_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise RuntimeError("cannot load MPI library\nsecond line")

    monkeypatch.setattr(mpi, "import_module", absent)
    with pytest.raises(fb.UnsupportedError, match="cannot load MPI library\\.\n"):
        mpi.MPIGroup()


def test_after_the_deadline_nccl_names_all_peers_of_the_exchange() -> None:
    pytest.importorskip("torch", reason="torch, whose interface to NCCL is replaced")
    from firebrick.distributed.nccl import NcclWire

    class Answers:
        irecv, isend = "irecv", "isend"

        @staticmethod
        def P2POp(kind: str, buffer: Any, peer: int, group: Any) -> Pending:
            return Pending(peer)

        @staticmethod
        def batch_isend_irecv(calls: list[Pending]) -> list[Pending]:
            return calls

    wire = NcclWire.__new__(NcclWire)  # which needs CUDA devices to be made
    wire._dist, wire._group = Answers, None
    with pytest.raises(WireError, match="time is up") as caught:
        wire.exchange([(1, "buffer")], [(2, "buffer")], deadline=float("-inf"))  # type: ignore[list-item]
    assert set(caught.value.peers) == {1, 2}


class Fake:
    """MPI, whose every call fails; by its own handler of errors the program would be aborted."""

    ERRORS_RETURN, ERRORS_ARE_FATAL, THREAD_SERIALIZED, BYTE = "return", "fatal", 2, "byte"
    Exception = type("Exception", (RuntimeError,), {})

    def __init__(self) -> None:
        self.COMM_WORLD = self
        self.handler, self.aborted, self.freed = self.ERRORS_ARE_FATAL, [], 0

    def Query_thread(self) -> int:
        return 2

    def Dup(self) -> "Fake":
        return self

    def Set_errhandler(self, handler: str) -> None:
        self.handler = handler

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 3

    def Irecv(self, *_: Any) -> Any:
        assert self.handler == self.ERRORS_RETURN, "the library ends the program by itself"
        raise self.Exception("the peer is gone")

    def Is_finalized(self) -> bool:
        return False

    def Abort(self, code: int) -> None:
        self.aborted.append(code)

    def Free(self) -> None:
        self.freed += 1


def test_an_error_of_mpi_comes_back_as_ours_and_ends_the_others_with_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a handler that returns, the library aborts, and nobody learns which rank was missing."""
    fake, at_exit = Fake(), []
    monkeypatch.setattr(mpi, "import_module", lambda name: fake)
    monkeypatch.setattr(mpi.atexit, "register", at_exit.append)
    wire = mpi.MPIWire()
    with pytest.raises(WireError, match="the peer is gone") as caught:
        wire.exchange([], [(2, np.zeros(1, np.uint8))], deadline=float("inf"))
    assert set(caught.value.peers) == {2}
    wire.close()  # messages are under way: the communicator is not given back
    for leave in at_exit:
        leave()
    assert (fake.freed, fake.aborted) == (0, [1])
    fine = Fake()
    monkeypatch.setattr(mpi, "import_module", lambda name: fine)
    wire = mpi.MPIWire()
    wire.close()
    at_exit[-1]()
    assert (fine.freed, fine.aborted) == (1, [])


@gloo
def test_a_program_that_ends_without_leaving_its_groups_says_goodbye_in_each() -> None:
    """Else the others wait for signs of life of a rank that ended in good order."""

    def body(group: Group) -> Any:
        group.barrier()
        if group.rank == 1:
            process._open.intersection_update({group})  # what is left of this rank's program
            process._leave()
            assert group.closed
            assert group.timeout < 1.0  # what still ran would not have been waited for
            raise RuntimeError("its program ended")
        group.all_reduce(fb.ones(2))

    kept = set(process._open)
    try:
        error, _ = in_threads(2, body)
    finally:
        process._open.update(kept)
    assert isinstance(error, fb.CollectiveTimeoutError)
    assert "missing rank 1: its program ended" in str(error)


ENDS = """
from firebrick.distributed import process

class Group:
    timeout = 60.0

    def close(self):
        print("closed", self.timeout < 1.0)

group = Group()
process._open.add(group)
"""


def test_the_end_of_a_program_closes_the_groups_that_it_left_open() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["closed", "True"]


@pytest.mark.parametrize(
    ("fails", "peers", "reason"),
    [
        (None, (), ""),
        ("recv 2", (2,), "closed"),
        ("send 1", (1,), "closed"),
        ("wait recv 2", (2,), "closed"),
        ("wait send 1", (1,), "closed"),
    ],
)
def test_gloo_waits_until_the_deadline_for_each_message_and_names_the_one_that_failed(
    monkeypatch: pytest.MonkeyPatch, fails: str | None, peers: tuple[int, ...], reason: str
) -> None:
    waits: list[tuple[str, float]] = []

    class Work(SimpleNamespace):
        def wait(self, patience: Any) -> None:
            waits.append((self.what, patience.total_seconds()))
            fail(f"wait {self.what}")

    def fail(what: str) -> None:
        if what == fails:
            raise RuntimeError("[/gloo/transport/tcp/pair.cc:525] closed. This is typically due to a peer\nand more")

    def begin(kind: str) -> Any:
        def call(buffers: Any, peer: int, tag: int) -> Work:
            assert (buffers, tag) == ([(8,)], DIRECT)
            fail(f"{kind} {peer}")
            return Work(what=f"{kind} {peer}")

        return call

    wire = process.GlooWire.__new__(process.GlooWire)
    wire._pairs = SimpleNamespace(recv=begin("recv"), send=begin("send"))
    wire._torch = SimpleNamespace(from_numpy=lambda array: array.shape)
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=iter([3.0, 8.0]).__next__))
    messages = [(1, np.zeros(2, np.float32))], [(2, np.zeros(1))]
    if fails is None:
        wire.exchange(*messages, deadline=5.0, tag=DIRECT)
        assert waits == [("recv 2", 2.0), ("send 1", 0.001)]
        return
    with pytest.raises(WireError) as caught:
        wire.exchange(*messages, deadline=5.0, tag=DIRECT)
    assert (caught.value.peers, caught.value.reason) == (peers, reason)


def test_a_group_that_is_left_closes_its_wires_once_unless_one_is_still_waited_on() -> None:
    closed: list[str] = []
    held = threading.Event()

    class Named(Wire):
        rank, size = 0, 2

        def __init__(self, name: str) -> None:
            self.name = name

        def exchange(self, *_: Any) -> None:
            held.wait(30)
            raise WireError("time is up", {1})

        def close(self) -> None:
            closed.append(self.name)

    watch = SimpleNamespace(
        at=lambda number, op: None, verdict=lambda: None, close=lambda: closed.append("watch"),
        explain=lambda op, number, error: fb.CollectiveTimeoutError("told", "it", "so"),
    )  # fmt: skip
    group = Group(Named("wire"), gpu_wire=Named("GPUs"), watch=watch)
    assert repr(group) == "Group(rank 0 of 2)"
    group.close()
    group.close()
    assert closed == ["watch", "wire", "GPUs"]
    closed.clear()
    group = Group(Named("wire"), gpu_wire=Named("GPUs"), watch=watch, timeout=0.01)
    work = group.all_reduce(fb.ones(2), wait=False)
    group.close()
    assert closed == ["watch"]
    held.set()
    with pytest.raises(fb.CollectiveTimeoutError, match="told"):
        work.wait()
    assert group._lane.close(30.0)


def test_notes_and_ranks_have_limits() -> None:
    with Group() as group:
        sums, notes = group.all_reduce_noted([fb.ones(2)], b"x" * 1024).wait()
        assert ([x.tolist() for x in sums], notes) == ([[1.0, 1.0]], [b"x" * 1024])
        for call, text in (
            (lambda: group.broadcast(fb.ones(1), root=-1), "root=-1"),
            (lambda: group.broadcast(fb.ones(1), root=0.0), "root=0.0"),  # type: ignore[call-overload]
            (lambda: group.send(fb.ones(1), to=1), "to=1"),
            (lambda: group.recv(0), "source=0"),
        ):
            with pytest.raises(fb.ConfigError, match=text):
                call()
        for empty in ([], ()):
            with pytest.raises(fb.OperandError, match="a tensor or a list of tensors"):
                group.all_reduce(empty)
        assert [x.tolist() for x in group.all_reduce((fb.ones(1), fb.zeros(2)))] == [[1.0], [0.0, 0.0]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_an_overflow_in_a_fold_is_part_of_the_result_and_no_warning(dtype: str) -> None:
    like = fb.zeros(2, dtype=dtype, device="numpy")
    largest = np.array([np.finfo(dtype).max, -np.inf], dtype)
    out = np.zeros(2, dtype)
    with np.errstate(all="raise"):
        Alone().fold("sum", [largest, largest], out, like)
    assert out.tolist() == [np.inf, -np.inf]
