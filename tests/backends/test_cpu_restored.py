"""Programs that are kept on disk: the same bits and errors without planning again, and never one of anything else."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size

import firebrick as fb
from firebrick import nn, optim
from firebrick.backends.cpu import engine
from firebrick.backends.cpu.restored import Restored
from firebrick.backends.cpu.runtime.segment import Segment
from firebrick.compiler import cache, reuse
from firebrick.compiler.cache import CacheWarning, ObjectStore
from firebrick.compiler.fusion.policy import thresholds
from firebrick.compiler.program.launch import Launch
from firebrick.compiler.targets.llvm import lower
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core import sources
from firebrick.core.aval import Aval
from firebrick.core.errors import OutOfRangeError
from firebrick.ir import Graph
from firebrick.ops import OPS

pipeline = sys.modules["firebrick.graph.passes.optimized"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache of its own, in which programs of any size are kept."""
    monkeypatch.setattr(cache, "store", ObjectStore())
    monkeypatch.setattr(reuse, "MIN_NODES", 1)
    settings = {"cache_dir": str(tmp_path / "cache"), "cache_plans": True, "verify_graphs": False}
    with fb.config.scope(**settings), kernels_of_any_size():
        yield tmp_path / "cache" / "objects"


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done anew: ``passes`` over a graph, and the ``plan`` of a program."""
    seen: list[str] = []
    fuse, optimize = engine.fuse, pipeline.optimize
    monkeypatch.setattr(engine, "fuse", lambda *args, **more: seen.append("plan") or fuse(*args, **more))
    monkeypatch.setattr(pipeline, "optimize", lambda graph: seen.append("passes") or optimize(graph))
    return seen


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x + self.down(fb.gelu(self.up(self.norm(x))))


def trained(rate: float = 1e-2, width: int = 8, steps: int = 3) -> list[np.ndarray[Any, Any]]:
    """Losses and parameters of some steps of training, compiled by a function that no other call has."""
    fb.random.seed(0)
    model = nn.Sequential(nn.Embedding(11, width), nn.Linear(width, 8), Block(), nn.Dropout(0.1), nn.Linear(8, 11))
    optimizer = optim.Adam(model, rate)
    tokens = fb.asarray(np.random.default_rng(0).integers(0, 11, (4, 6)))

    def loss(model: nn.Module) -> fb.Tensor:
        return fb.cross_entropy(fb.reshape(model(tokens), (-1, 11)), fb.reshape(tokens, (-1,)))

    @fb.jit
    def step(model: nn.Module, optimizer: optim.Adam) -> fb.Tensor:
        value, grads = fb.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    losses = [np.asarray(step(model, optimizer).numpy()) for _ in range(steps)]
    return [*losses, *(p.numpy() for p in model.parameters())]


def bits(arrays: list[np.ndarray[Any, Any]]) -> list[bytes]:
    return [a.tobytes() for a in arrays]


def test_a_program_that_was_kept_has_the_same_bits_and_is_not_planned_again(planned: list[str]) -> None:
    with fb.config.scope(cache_plans=False):
        want = bits(trained())
    assert planned
    planned.clear()
    assert bits(trained()) == want  # makes the entries
    assert {"passes", "plan"} <= set(planned)
    planned.clear()
    assert bits(trained()) == want
    assert not planned


@pytest.fixture(autouse=True)
def sorts_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorts have no kernel: they are the operation between runs that the tests here need."""
    monkeypatch.setitem(lower._REFUSED, "sort", lambda n, operands: "on the host in these tests")


def chained(n: int = 3, shape: tuple[int, ...] = (5, 7), more: Callable[[fb.Tensor], fb.Tensor] = fb.exp) -> Any:
    """A function of one array with a kernel, an operation of NumPy and another kernel, and its result."""

    def f(x: fb.Tensor) -> fb.Tensor:
        for _ in range(n):
            x = fb.sort(more(x) * 0.5, axis=0) - 1.0
        return fb.sum(x, axis=1)

    made = fb.jit(f)
    x = fb.asarray(np.linspace(-1.0, 1.0, int(np.prod(shape)), dtype=np.float32).reshape(shape))
    return made, x, made(x).numpy()


def executable(made: Any) -> Any:
    (entry,) = made._entries.graphs.values()
    return entry.program.executable()


def test_operations_of_the_engine_between_runs_are_part_of_what_is_kept(planned: list[str]) -> None:
    first, _, want = chained()
    planned.clear()
    again, x, got = chained()
    assert not planned
    assert isinstance(executable(again), Restored)
    assert not isinstance(executable(first), Restored)
    assert got.tobytes() == want.tobytes()
    assert not planned
    assert again.explain(x) == first.explain(x)
    assert planned == ["plan"]  # what is only looked at is made when it is asked for
    assert executable(again).plan.peak == executable(first).plan.peak
    assert executable(again).writes == executable(first).writes


def test_steps_of_a_program_that_was_kept_are_those_of_its_graph() -> None:
    first = executable(chained()[0])
    again = executable(chained()[0])
    assert isinstance(again, Restored)
    assert [s.node.op for s in again.steps] == [s.node.op for s in first.steps]
    x = [np.ones((5, 7), np.float32)]
    run = lambda step, operands: step.run(*operands)  # noqa: E731
    assert again.stepwise(x, run)[0].tobytes() == first.stepwise(x, run)[0].tobytes()
    assert again.source == first.source
    assert again.graph.outputs == first.graph.outputs


def test_a_program_that_was_kept_is_verified_as_others_are() -> None:
    want = chained()[2]
    with fb.verify("cpu"):
        made, _x, got = chained()
        assert got.tobytes() == want.tobytes()
        program = executable(made)
    assert isinstance(program._program, Restored)
    assert program.graph.outputs == program._program.graph.outputs


OTHERS: dict[str, Callable[[], Any]] = {
    "another operation": lambda: chained(more=fb.sin),
    "another number of operations": lambda: chained(n=4),
    "another shape": lambda: chained(shape=(7, 5)),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_graph_is_planned_anew(what: str, planned: list[str]) -> None:
    chained()
    planned.clear()
    _, _x, got = OTHERS[what]()
    assert planned == ["passes", "plan"]
    with fb.config.scope(cache_dir="off"):
        assert got.tobytes() == OTHERS[what]()[2].tobytes()


def compile_graph(value: float, donate: tuple[int, ...] = (), ready: tuple[int, ...] = (), flip: bool = False) -> Any:
    """A program of two inputs and two outputs, with a constant."""
    graph = Graph([Aval((64,), fb.float32)] * 2)
    c = graph.constant(np.asarray(value, np.float32))
    (a,) = graph.add(OPS["multiply"], 0, c)
    (b,) = graph.add(OPS["subtract"], a, 1)
    (e,) = graph.add(OPS["less"], b, a)
    graph.outputs = (e, b) if flip else (b, e)
    return fb.device("cpu").backend.compile(graph, donate=donate, ready=ready)


def test_constants_donated_inputs_early_outputs_and_their_order_are_part_of_what_a_program_is_found_by() -> None:
    given: list[dict[str, Any]] = [
        {"value": 2.0}, {"value": 3.0}, {"value": -0.0}, {"value": 0.0}, {"value": 2.0, "donate": (1,)},
        {"value": 2.0, "ready": (1,)}, {"value": 2.0, "flip": True},
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 64)).astype(np.float32)
    for arguments in given:
        assert not isinstance(compile_graph(**arguments), Restored), arguments
    for arguments in given:
        found = compile_graph(**arguments)
        assert isinstance(found, Restored), arguments
        assert found.writes == set(arguments.get("donate", ()))
        results = found([x.copy(), y.copy()])
        b, e = results[::-1] if arguments.get("flip") else results
        want = x * np.float32(arguments["value"]) - y
        assert b.tobytes() == want.tobytes()
        assert e.tobytes() == (want < x * np.float32(arguments["value"])).tobytes()


def test_settings_and_processors_have_programs_of_their_own(planned: list[str]) -> None:
    chained()
    widths = [w for w in (128, 256) if w < Target.host().width_bits]
    for scope in ({"deterministic": False}, *({"cpu_vector_bits": w} for w in widths)):
        planned.clear()
        with fb.config.scope(**scope):
            chained()
            assert planned == ["plan"], scope  # passes know neither
            chained()
        assert planned == ["plan"], scope
    planned.clear()
    chained()
    assert not planned


def test_limits_of_groups_that_somebody_changes_give_programs_of_their_own(
    planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    chained()
    planned.clear()
    with thresholds(most_nodes=1):
        chained()
    assert planned == ["plan"]


def test_graphs_that_are_verified_are_planned_anew_each_time(planned: list[str]) -> None:
    for _ in range(2):
        planned.clear()
        with fb.config.scope(verify_graphs=True):
            chained()
        assert planned == ["passes", "plan"]


def test_other_sources_and_tools_have_programs_of_their_own(planned: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    chained()
    for patch in (
        lambda m: m.setattr(reuse, "fingerprint", lambda: b"of other sources"),
        lambda m: m.setattr(cache, "versions", lambda: ("0.1.0", "1.0.0")),
        lambda m: m.setattr(np, "__version__", "0.0.1"),
    ):
        planned.clear()
        with monkeypatch.context() as m:
            patch(m)
            chained()
            assert planned == ["passes", "plan"]


def test_nothing_is_kept_of_sources_that_changed_since_they_were_imported(
    home: Path, planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(reuse, "fingerprint", lambda: None)
    chained()
    planned.clear()
    chained()
    assert planned == ["passes", "plan"]
    assert not any(b"(program)" in path.read_bytes() for path in home.iterdir())


def test_the_fingerprint_follows_each_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for floor in sources.FLOORS:
        (tmp_path / floor / "inner").mkdir(parents=True)
        (tmp_path / floor / "inner" / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(sources, "_ROOT", tmp_path)
    monkeypatch.setattr(sources, "_IMPORTED", float("inf"))
    fingerprint = sources.fingerprint.__wrapped__
    found = {fingerprint()}
    (tmp_path / "ops" / "inner" / "a.py").write_text("x = 2\n")
    found.add(fingerprint())
    (tmp_path / "ops" / "inner" / "a.py").rename(tmp_path / "ops" / "inner" / "b.py")
    found.add(fingerprint())
    (tmp_path / "ir" / "c.py").write_text("")
    found.add(fingerprint())
    assert len(found) == 4
    assert None not in found
    monkeypatch.setattr(sources, "_IMPORTED", 0.0)
    assert fingerprint() is None


def entries(home: Path, kind: str) -> list[Path]:
    return [path for path in home.iterdir() if f"({kind})".encode() in path.read_bytes()]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda c: b"",
    "cut short": lambda c: c[: len(c) // 2],
    "one bit": lambda c: c[:-9] + bytes([c[-9] ^ 1]) + c[-8:],
    "one bit in the middle": lambda c: c[: len(c) // 2] + bytes([c[len(c) // 2] ^ 16]) + c[len(c) // 2 + 1 :],
    "longer": lambda c: c + b"]",
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("kind", ["program", "passes"])
def test_a_damaged_entry_is_not_used_and_replaced(home: Path, planned: list[str], kind: str, how: str) -> None:
    want = chained()[2]
    (path,) = entries(home, kind)
    good = path.read_bytes()
    path.write_bytes(DAMAGE[how](good))
    planned.clear()
    with pytest.warns(CacheWarning, match="entry replaced"):
        assert chained()[2].tobytes() == want.tobytes()
    assert planned == ["plan" if kind == "program" else "passes"]
    assert path.read_bytes() == good
    planned.clear()
    assert chained()[2].tobytes() == want.tobytes()
    assert not planned


@pytest.mark.parametrize("kind", ["program", "passes"])
def test_an_entry_of_another_form_is_not_used(
    home: Path, planned: list[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Such as two graphs of one hash would give."""
    monkeypatch.setattr(reuse, "_key", lambda kind, form, llvm=True: kind.encode().ljust(32, b"-"))
    chained()
    (path,) = entries(home, kind)
    before = path.read_bytes()
    planned.clear()
    _, _, got = chained(more=fb.sin)
    assert planned == ["passes", "plan"]
    assert path.read_bytes() != before
    with fb.config.scope(cache_dir="off"):
        assert got.tobytes() == chained(more=fb.sin)[2].tobytes()


NONSENSE: list[Any] = [
    None, 1, [], {}, "text", [1, 2], [[0], [0], [[], [], [], []]], {"keys": [], "names": []}, {"keys": ["zz"], "names": ["f"]},
]  # fmt: skip


@pytest.mark.parametrize("content", NONSENSE[:3] + NONSENSE[4:], ids=repr)
def test_content_of_another_kind_is_not_used(planned: list[str], monkeypatch: pytest.MonkeyPatch, content: Any) -> None:
    want = chained()[2]
    real = reuse.load
    monkeypatch.setattr(reuse, "load", lambda kind, form, llvm=True: content if kind == "program" else real(kind, form))
    planned.clear()
    assert chained()[2].tobytes() == want.tobytes()
    assert planned == ["plan"]


def test_a_program_whose_objects_are_gone_is_compiled_again(home: Path, planned: list[str]) -> None:
    from firebrick.compiler.targets.llvm import host

    want = chained()[2]
    known = {*entries(home, "program"), *entries(home, "passes")}
    for path in set(home.iterdir()) - known:
        path.unlink()
    host._linked.clear()  # a module that still lives would be found without its objects
    planned.clear()
    assert chained()[2].tobytes() == want.tobytes()
    assert planned == ["plan"]


def test_a_setting_switches_it_off(home: Path, planned: list[str]) -> None:
    with fb.config.scope(cache_plans=False):
        chained()
        planned.clear()
        chained()
    assert planned == ["passes", "plan"]
    assert not entries(home, "program")
    assert not entries(home, "passes")


def test_small_graphs_are_not_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse, "MIN_NODES", 64)
    chained()
    assert not entries(home, "program")
    assert not entries(home, "passes")


def test_operations_of_others_and_large_arrays_are_not_kept(home: Path) -> None:
    exp = OPS["exp"]
    own = dataclasses.replace(exp, reference=lambda x: np.exp(x), name="exp_of_mine")
    own.reference.__module__ = "mine"
    for op, size in ((own, 1), (exp, 1 << 19)):
        graph = Graph([Aval((64,), fb.float32)])
        c = graph.constant(np.arange(size, dtype=np.float32))
        (s,) = graph.add(OPS["sum"], c, axes=(0,), keepdims=False)
        (x,) = graph.add(exp, *graph.add(OPS["multiply"], 0, s))
        graph.outputs = (*graph.add(op, x), c)
        backend = fb.device("cpu").backend
        backend.compile(graph)
        assert not entries(home, "program") if home.exists() else True


def looking_up(lines: int) -> Any:
    """A function that looks up rows, at a line so many lines further down in its file."""
    source = "\n" * lines + "def f(x, i):\n    y = x * 2.0\n    return fb.take(y, i, axis=0) + 1.0\n"
    space: dict[str, Any] = {"fb": fb, "__name__": "user"}
    exec(compile(source, "user.py", "exec"), space)
    return fb.jit(space["f"])


def test_an_error_of_a_program_that_was_kept_names_the_line_as_it_is_now(planned: list[str]) -> None:
    x, good, bad = fb.ones((40, 8)), fb.asarray([1, 2]), fb.asarray([1, 40])
    for lines in (0, 5):
        f = looking_up(lines)
        planned.clear()
        f(x, good)
        assert bool(planned) == (lines == 0)
        assert isinstance(executable(f), Restored) == bool(lines)
        with pytest.raises(OutOfRangeError, match=rf"Received: 40, at .*user\.py:{lines + 3} in f"):
            f(x, bad)


def test_errors_of_operations_between_runs_name_the_line_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    for lines in (0, 5):
        source = "\n" * lines + "def f(x):\n    return fb.exp(fb.sort(x, axis=0)) + 1.0\n"
        space: dict[str, Any] = {"fb": fb, "__name__": "user"}
        exec(compile(source, "user.py", "exec"), space)
        f = fb.jit(space["f"])
        f(fb.ones((40, 8)))
        program = executable(f)
        assert isinstance(program, Restored) == bool(lines)
        with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever NumPy says of it
            program(["no array"])
        assert any(f"user.py:{lines + 2} in f" in note for note in getattr(raised.value, "__notes__", []))
        with pytest.raises(fb.ShapeError, match="0 of 1"):
            program([])


def test_loops_branches_and_their_bodies_are_kept(planned: list[str]) -> None:
    def made() -> Any:
        def step(carry: fb.Tensor, x: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
            new = fb.tanh(carry * 0.5 + x)
            return new, fb.cond(fb.sum(new) > 0, lambda y: fb.exp(y), lambda y: fb.sort(y), new)

        return fb.jit(lambda x: fb.scan(step, fb.zeros(9), x))

    x = fb.asarray(np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32))
    want = [t.numpy().tobytes() for t in made()(x)]
    planned.clear()
    assert [t.numpy().tobytes() for t in made()(x)] == want
    assert "passes" not in planned


def test_loops_in_slices_of_rows_are_kept(planned: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Launch]] = []
    make = Segment.__init__

    def made(self: Segment, launches: Sequence[Launch], *args: Any, **more: Any) -> None:
        seen.append(list(launches))
        make(self, launches, *args, **more)

    monkeypatch.setattr(Segment, "__init__", made)
    model, rng = nn.LSTM(16, 64), np.random.default_rng(0)
    x = fb.asarray(rng.normal(size=(32, 12, 16)).astype(np.float32))

    def jitted() -> Any:
        return fb.jit(lambda x: model(x)[0])

    want = jitted()(x).numpy().tobytes()
    planned.clear()
    again = jitted()
    assert again(x).numpy().tobytes() == want
    assert type(executable(again)) is Restored
    assert "plan" not in planned
    first, second = seen
    assert [len(launch.sequences) for launch in first if launch.sequences] == [4]
    assert [launch.sequences for launch in first] == [launch.sequences for launch in second]


def test_an_index_out_of_range_leaves_donated_state_as_it_was(planned: list[str]) -> None:
    def made() -> tuple[Any, nn.Module]:
        fb.random.seed(0)
        model = nn.Linear(8, 8)

        @fb.jit
        def step(model: nn.Module, x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
            model.weight -= 0.1 * fb.exp(model.weight)
            return fb.sum(fb.take(x, i, axis=0), axis=1)

        return step, model

    good, bad = fb.asarray([0, 2]), fb.asarray([0, 3])
    for again in (False, True):
        planned.clear()
        step, model = made()
        step(model, fb.ones((3, 8)), good)
        assert isinstance(executable(step), Restored) == again
        assert executable(step).writes
        after = (model.weight * 1.0).numpy()  # memory that NumPy has seen is not donated
        with pytest.raises(OutOfRangeError, match="Received: 3,"):
            step(model, fb.ones((3, 8)), bad)
        assert model.weight.numpy().tobytes() == after.tobytes()
    assert not planned
