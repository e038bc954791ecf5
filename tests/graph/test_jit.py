"""What ``fb.jit`` makes of arguments: which calls share a graph, what the function sees, and what recompiles say."""

from __future__ import annotations

import enum
import gc
import logging
import re
import threading
import warnings
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.graph import entries
from firebrick.graph.entries import KEPT
from firebrick.testing import assert_max_traces

pytestmark = pytest.mark.usefixtures("nothing_left")


def ones(n: int = 2) -> fb.Tensor:
    return fb.ones(n)


Point = namedtuple("Point", "x y")


class Mode(enum.Enum):
    UP = 1
    DOWN = 2


@dataclass
class Batch:
    x: fb.Tensor
    scale: float = 1.0


# which calls share a graph


def test_keywords_positions_and_defaults_share_a_graph() -> None:
    @fb.jit
    def f(x: fb.Tensor, y: fb.Tensor, n: float = 2.0, *, k: float = 0.0) -> fb.Tensor:
        return x - y * n + k

    x, y = fb.ones(2), fb.zeros(2)
    for made in (f(x, y, 2.0), f(x, y=y, n=2.0), f(y=y, x=x, n=2.0)):
        assert made.tolist() == [1.0, 1.0]
    assert f.traces == 1
    assert f(x, y).tolist() == [1.0, 1.0]
    assert f(x, y, k=3.0).tolist() == f(x, y, k=3.0).tolist() == [4.0, 4.0]


def test_star_arguments() -> None:
    f = fb.jit(lambda *args, **kwargs: sum(args) + sum(kwargs[k] * i for i, k in enumerate(sorted(kwargs), 1)))
    a, b = fb.asarray(1.0), fb.asarray(10.0)
    assert f(a, b, p=a, q=b).item() == 32.0
    assert f(a, b, q=b, p=a).item() == 32.0
    assert f.traces == 1
    assert f(a, b, q=a, p=b).item() == 32.0 - 9.0
    assert f(a).item() == 1.0
    assert f(a, z=b).item() == 11.0


def test_another_int_or_float_makes_no_new_graph_but_another_kind_does() -> None:
    f = fb.jit(lambda x, n: x * n)
    assert [f(ones(), n).tolist()[0] for n in (1.5, 2.5, -0.0, float("inf"))] == [1.5, 2.5, -0.0, float("inf")]
    assert np.signbit(f(ones(), -0.0).numpy()).all()
    assert np.isnan(f(ones(), float("nan")).numpy()).all()
    assert f.traces == 1
    assert f(ones(), 3).tolist() == [3.0, 3.0]
    assert f(ones(), 4).tolist() == [4.0, 4.0]
    assert f.traces == 2
    whole = fb.ones(2, dtype=fb.int64)
    with pytest.raises(fb.DTypeError):
        f(whole, 2.5)
    assert f(whole, 2).tolist() == [2, 2]


@pytest.mark.filterwarnings("ignore::firebrick.RecompileWarning")
def test_bools_none_text_enums_dtypes_and_devices_are_part_of_the_program() -> None:
    def g(x: fb.Tensor, how: object) -> fb.Tensor:
        if how is None or how is False:
            return x + 0.0
        if isinstance(how, fb.DType):
            return x.astype(how)
        if isinstance(how, fb.Device):
            return x + fb.ones(2, device=how)
        return x + {True: 1.0, "up": 2.0, Mode.UP: 3.0, Mode.DOWN: 4.0, 2j: 5.0}[how]

    f = fb.jit(g)
    every = [None, False, True, "up", Mode.UP, Mode.DOWN, fb.float64, fb.int32, ones().device, 2j]
    for _ in range(2):
        for how in every:
            a, b = f(ones(), how), g(ones(), how)
            assert (a.tolist(), a.dtype) == (b.tolist(), b.dtype)
    assert f.traces == len(every)


def test_trees_of_arguments_keep_their_kinds() -> None:
    seen = []

    def g(tree):
        seen.clear()
        return {
            "sum": tree["a"][0] + tree["a"][1].x * tree["a"][1].y,
            "kinds": [type(tree).__name__, type(tree["a"][1]).__name__],
        }

    f = fb.jit(g, static_argnames=())
    for n in (2.0, 3.0):
        tree = {"a": (fb.ones(2), Point(fb.ones(2), n))}
        made = f(tree)
        assert made["sum"].tolist() == [1.0 + n] * 2
        assert made["kinds"] == ["dict", "Point"]
    assert f.traces == 1
    assert f(OrderedDict(a=(fb.ones(2), Point(fb.ones(2), 1.0))))["kinds"] == ["OrderedDict", "Point"]
    nested = defaultdict(lambda: 5.0, a=(fb.ones(2), Point(fb.ones(2), 1.0)), n=1.0)
    assert f(nested)["kinds"] == ["defaultdict", "Point"]


def test_dict_subclasses_come_back_as_they_are() -> None:
    f = fb.jit(lambda x: (defaultdict(list, a=x + 1.0), OrderedDict(b=x)))
    for _ in range(2):
        first, second = f(ones())
        assert type(first) is defaultdict
        assert first["missing"] == []
        assert first["a"].tolist() == [2.0, 2.0]
        assert type(second) is OrderedDict
    assert "missing" not in f(ones())[0]


def test_dataclass_arguments_and_results_are_read_and_made_anew() -> None:
    f = fb.jit(lambda b: Batch(b.x * b.scale, b.scale))
    first, second = f(Batch(fb.ones(2), 2.0)), f(Batch(fb.zeros(2), 2.0))
    assert first is not second
    assert (first.x.tolist(), second.x.tolist(), first.scale) == ([2.0, 2.0], [0.0, 0.0], 2.0)
    assert f.traces == 1
    assert f(Batch(fb.ones(2), 3.0)).x.tolist() == [3.0, 3.0]
    assert f.traces == 2
    held = Batch(fb.ones(2))
    assert f(held).x.tolist() == [1.0, 1.0]
    held.x = fb.asarray([5.0, 6.0])
    held.scale = 2.0
    assert f(held).x.tolist() == [10.0, 12.0]


def test_objects_given_as_results_keep_their_identity_if_they_were_there_before() -> None:
    held = SimpleNamespace(w=fb.ones(2))
    f = fb.jit(lambda x: (held, SimpleNamespace(y=x + 1.0)))
    for _ in range(2):
        before, made = f(ones())
        assert before is held
        assert made.y.tolist() == [2.0, 2.0]


def test_a_batch_given_in_an_object_is_not_kept_alive() -> None:
    import weakref

    f = fb.jit(lambda b: b.x + 1.0)
    batch = Batch(fb.ones(2))
    x = weakref.ref(batch.x)
    f(batch)
    f(batch)
    del batch
    gc.collect()
    assert x() is None


def test_a_numpy_array_as_an_argument_raises_naming_it() -> None:
    f = fb.jit(lambda x, rest: x)
    for value in (np.ones(2), np.array(1.0, np.float32)):
        with pytest.raises(fb.OperandError, match=r"(?s)rest\['a'\]\[0\].*fb\.asarray"):
            f(ones(), {"a": [value]})


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,)])
def test_scalars_and_empty_tensors(shape, device) -> None:
    f = fb.jit(lambda x: (x * 2.0, fb.sum(x), fb.reshape(x, (-1,)) if x.size else x))
    for _ in range(2):
        for a, b in zip(f(fb.ones(shape, device=device)), f.fn(fb.ones(shape, device=device)), strict=True):
            assert (a.shape, a.tolist()) == (b.shape, b.tolist())


def test_static_arguments() -> None:
    @fb.jit(static_argnames=("n", "shape"))
    def f(x: fb.Tensor, n: int, shape: tuple[int, ...] = (2,)) -> fb.Tensor:
        for _ in range(n):
            x = x + 1.0
        return fb.reshape(x, shape)

    assert f(ones(), 3).tolist() == [4.0, 4.0]
    assert f(ones(), n=3).tolist() == [4.0, 4.0]
    assert f.traces == 1
    assert f(ones(), 1, (1, 2)).tolist() == [[2.0, 2.0]]
    assert f.traces == 2
    with pytest.raises(fb.OperandError, match=r"(?s)static argument is hashable.*shape: list.*tuple"):
        f(ones(), 1, [1, 2])
    with pytest.raises(fb.ConfigError, match="wrong"):
        fb.jit(lambda x: x, static_argnames="wrong")


@pytest.mark.filterwarnings("ignore::firebrick.RecompileWarning")
def test_static_numbers_that_are_equal_and_yet_differ_make_graphs_of_their_own() -> None:
    f = fb.jit(lambda x, how: x * repr(how).count("-") + len(repr(how)), static_argnames="how")
    for _ in range(2):
        for how in ((1,), (1.0,), (True,), (0.0,), (-0.0,), 1, 1.0, True, -0.0, 0.0):
            assert f(ones(), how).tolist() == f.fn(ones(), how).tolist()
    assert f.traces == 10


def test_a_static_function_is_looked_into() -> None:
    rate = 2.0
    w = fb.asarray(1.0)

    def act(x: fb.Tensor) -> fb.Tensor:
        return x * rate + w

    f = fb.jit(lambda x, act: act(x), static_argnames="act")
    for run in (f, fb.jit(lambda x, act: act(x))):
        rate, w = 2.0, fb.asarray(1.0)
        assert run(ones(), act).tolist() == [3.0, 3.0]
        rate, w = 3.0, fb.asarray(2.0)
        assert run(ones(), act).tolist() == [5.0, 5.0]


def test_functions_classes_and_other_objects_are_arguments_too() -> None:
    f = fb.jit(lambda x, act, kind: kind(act(x)))
    assert f(ones(), fb.relu, list)[0].tolist() == 1.0
    assert type(f(ones(), fb.exp, tuple)) is tuple
    assert f(-ones(), fb.relu, list)[0].tolist() == 0.0
    assert f.traces == 2


def test_a_jitted_module_function_and_transform() -> None:
    model = fb.nn.Linear(2, 2)
    x = fb.ones((1, 2))
    assert np.allclose(fb.jit(model)(x).numpy(), model(x).numpy())

    def loss(m: fb.nn.Module, x: fb.Tensor) -> fb.Tensor:
        return fb.sum(m(x) ** 2.0)

    eager = fb.value_and_grad(loss)(model, x)
    optimizer = fb.optim.SGD(model, lr=0.1)
    for run in (fb.jit(fb.value_and_grad(loss)), fb.jit(lambda m, x: fb.value_and_grad(loss)(m, x))):
        value, grads = run(model, x)
        assert value.item() == pytest.approx(eager[0].item())
        for p in model.parameters():
            assert np.allclose(grads[p].numpy(), eager[1][p].numpy())
    before = model.weight.numpy().copy()
    expected = before - 0.1 * grads[model.weight].numpy()
    optimizer.update(model, grads)
    assert np.allclose(model.weight.numpy(), expected)
    with pytest.raises(fb.GradientError):
        grads[model.weight]
    gradient = fb.jit(fb.grad(lambda x: fb.sum(x**3.0)))
    assert gradient(fb.asarray([1.0, 2.0])).tolist() == [3.0, 12.0]


def test_positional_only_and_keyword_only_names() -> None:
    @fb.jit
    def f(x: fb.Tensor, /, y: fb.Tensor, *, z: fb.Tensor) -> fb.Tensor:
        return x + y * 10.0 + z * 100.0

    a, b, c = (fb.asarray(float(i)) for i in (1, 2, 3))
    assert f(a, b, z=c).item() == f(a, y=b, z=c).item() == 321.0
    assert f.traces == 1
    with pytest.raises(TypeError):
        f(a, b)
    with pytest.raises(TypeError):
        f(a, b, z=c, w=a)


def test_a_call_that_is_wrong_raises_as_the_function_does() -> None:
    f = fb.jit(lambda x, y: x + y)
    with pytest.raises(TypeError, match="y"):
        f(ones())
    with pytest.raises(TypeError):
        f(ones(), ones(), x=ones())
    assert f.traces == 0
    with pytest.raises(fb.OperandError, match="callable"):
        fb.jit(3)


def test_switches() -> None:
    f = fb.jit(lambda x: x + x.item())
    with fb.disable_jit():
        assert f(fb.asarray(1.0)).item() == 2.0
    with fb.config.scope(jit=False):
        assert f(fb.asarray(1.0)).item() == 2.0
    with pytest.raises(fb.DataDependentError):
        f(fb.asarray(1.0))


def test_the_context_is_part_of_the_key() -> None:
    f = fb.jit(lambda x: fb.zeros(2) + x)
    assert f(ones()).device is ones().device
    x = fb.ones(2, device="numpy")
    before = fb.config.device
    try:
        fb.set_default_device("numpy")
        assert f(x).device is x.device
    finally:
        fb.set_default_device(before)
    assert f(ones()).device is ones().device
    x = ones().require_grad()
    assert f(x).tracked
    with fb.no_grad():
        assert not f(x).tracked
    assert f(x).tracked


# how many graphs


def test_graphs_are_explained_and_the_ninth_warns() -> None:
    f = fb.jit(lambda x, how: x + 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", fb.RecompileWarning)
        for n in range(1, 9):
            f(fb.ones(n), None)
    with pytest.warns(fb.RecompileWarning, match=r"traced 9 times.*argument x: float32\[8\] on cpu:0 → float32\[9\]") as caught:
        f(fb.ones(9), None)
    assert caught[0].filename == __file__
    reasons = [r.reason for r in fb.explain_recompiles(f)]
    assert reasons[0] == "first call"
    assert reasons[1] == "argument x: float32[1] on cpu:0 → float32[2] on cpu:0"
    assert __file__ in fb.explain_recompiles(f)[-1].line
    f(fb.ones(9), True)
    assert fb.explain_recompiles(f)[-1].reason == "argument how: None → True"


@pytest.mark.parametrize("make", [object, threading.Lock, lambda: logging.Logger("of this test")])
def test_another_captured_object_is_a_reason_by_its_name(make: Any) -> None:
    held = [make()]
    f = fb.jit(lambda x: x * len(held))
    f(ones())
    held[0] = make()
    f(ones())
    assert re.match(r"held\[0\]: object .* → object ", fb.explain_recompiles(f)[-1].reason)


def test_another_context_is_a_reason_of_its_own() -> None:
    f = fb.jit(lambda x: x * 2.0)
    f(ones())
    with fb.no_grad():
        f(ones())
    f(ones().require_grad())
    reasons = [r.reason for r in fb.explain_recompiles(f)]
    assert reasons[1] == "the context: gradients on or off, the default device, checkpointing or the row offset"
    assert "other tensors are tracked" in reasons[2]


def test_two_captured_generators_beside_a_number_draw_what_they_draw_outside() -> None:
    def make() -> tuple[Any, list[fb.random.Generator]]:
        generators = [fb.random.Generator(1), fb.random.Generator(2)]
        return (lambda x, n: [x * n + g.uniform((2,)) for g in generators]), generators

    (eager, kept), (traced, drawn) = make(), make()
    compiled = fb.jit(traced)
    for n in (0.5, 2.0, 3):
        assert [t.tolist() for t in compiled(ones(), n)] == [t.tolist() for t in eager(ones(), n)]
    assert [g.uniform((2,)).tolist() for g in drawn] == [g.uniform((2,)).tolist() for g in kept]


def test_at_most_64_graphs_are_kept_the_last_used_ones() -> None:
    f = fb.jit(lambda x: x + 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fb.RecompileWarning)
        for n in range(KEPT):
            f(fb.ones(n))
        f(fb.ones(0))
        f(fb.ones(KEPT))  # pushes out the one of size 1
        assert f.traces == KEPT + 1
        f(fb.ones(0))
        assert f.traces == KEPT + 1
        f(fb.ones(1))
        assert f.traces == KEPT + 2
    assert repr(f).endswith(f"{KEPT} graphs>")


def test_a_closure_number_that_always_changes_keeps_no_more_than_that() -> None:
    n = 0.0
    f = fb.jit(lambda x: x * n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fb.RecompileWarning)
        for i in range(KEPT * 5):
            n = float(i)
            assert f(ones()).tolist() == [n, n]
    assert len(f._entries.graphs) <= KEPT
    assert len(f._entries.numbers) <= KEPT * 4
    assert len(f._entries.walks) <= KEPT


def test_traces_are_counted() -> None:
    f, g = fb.jit(lambda x: x + 1.0), fb.jit(lambda x: x + 2.0)
    with assert_max_traces(1, f):
        f(ones())
        g(ones())
        g(fb.ones(3))

    def twice() -> None:
        with assert_max_traces(1, f):
            f(fb.ones(3))
            f(fb.ones(4))

    with pytest.raises(AssertionError, match=r"(?s)2 traces where at most 1.*x: float32\[3\] on cpu:0 → float32\[4\]"):
        twice()
    with pytest.raises(AssertionError, match="1 traces where at most 0"), assert_max_traces(0):
        g(fb.ones(5))

    def fail() -> None:
        with assert_max_traces(0):
            g(fb.ones(6))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    class Thing:
        @fb.jit
        def run(self, x: fb.Tensor) -> fb.Tensor:
            return x * 3.0

    thing = Thing()
    with pytest.raises(AssertionError), assert_max_traces(0, thing.run):
        thing.run(ones())


def test_a_graph_can_be_looked_at() -> None:
    f = fb.jit(lambda x: x * 2.0 + 1.0)
    assert [n.op.name for n in f.graph(ones()).nodes if n.op.name != "constant"] == ["multiply", "add"]
    assert "memory" in f.explain(ones())
    assert f.traces == 1
    assert f(ones()).tolist() == [3.0, 3.0]
    assert f.traces == 1


def test_wrapping_keeps_the_names() -> None:
    @fb.jit
    def named(x: fb.Tensor) -> fb.Tensor:
        """What it does."""
        return x

    assert named.__name__ == "named"
    assert named.__doc__ == "What it does."
    assert "named" in repr(named)


def test_calling_itself() -> None:
    @fb.jit
    def f(x: fb.Tensor, n: object) -> fb.Tensor:
        return x if n is None else f(x * 2.0, None)

    assert f(ones(), "again").tolist() == [2.0, 2.0]
    assert f(ones(), "again").tolist() == [2.0, 2.0]


def test_a_lock_or_thread_local_in_reach_does_not_matter() -> None:
    lock, local = threading.Lock(), threading.local()
    local.n = 2.0

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        with lock:
            return x * 2.0

    assert f(ones()).tolist() == [2.0, 2.0]
    assert not lock.locked()


def test_an_equal_budget_is_the_same_context() -> None:
    f = fb.jit(lambda a: fb.grad(lambda t: fb.sum(fb.exp(fb.sin(t))))(a))
    for _ in range(3):
        with fb.checkpointing(budget=2000):
            f(fb.ones(3))
    assert f.traces == 1
    with fb.checkpointing(budget=3000):
        f(fb.ones(3))
    assert f.traces == 2


def test_a_program_is_compiled_once_for_each_setting_that_decides_how() -> None:
    x = fb.ones(3)
    f = fb.jit(lambda x: fb.exp(x) * 2.0)
    f(x)
    (entry,) = f._entries.graphs.values()
    first = entry.program.executable()
    with fb.config.scope(cpu_compile=not fb.config.cpu_compile):
        other = entry.program.executable()
        assert other is entry.program.executable()
    assert other is not first
    assert entry.program.executable() is first


def test_the_graph_used_longest_ago_is_evicted_first_also_after_repeated_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firebrick.graph.entries.KEPT", 2)
    f = fb.jit(lambda x: x * 2.0)
    for n in (1, 1, 2, 2, 1, 1, 3):  # 3 evicts 2, since 1 was used after it
        f(fb.ones(n))
    assert f.traces == 3
    f(fb.ones(1))
    assert f.traces == 3
    f(fb.ones(2))
    assert f.traces == 4


def test_walks_from_many_objects_are_bounded_by_what_was_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "KEPT", 4)
    f = fb.jit(lambda held, x: x * held.k)
    objects = [SimpleNamespace(k=float(i % 2)) for i in range(8)]
    for _ in range(2):
        assert [f(o, fb.ones(1)).item() for o in objects] == [0.0, 1.0] * 4
    assert len(f._entries.walks) <= 4


def test_a_class_may_be_compiled_and_modules_and_classes_returned() -> None:
    class Doubled:
        def __init__(self, x: fb.Tensor) -> None:
            self.y = x * 2.0

    made = fb.jit(Doubled)
    assert [type(made(fb.ones(1) * k)) is Doubled and made(fb.ones(1) * k).y.item() for k in (1.0, 3.0)] == [2.0, 6.0]
    found, module, kind = fb.jit(lambda x: (x + 1.0, np, int))(fb.ones(1))
    assert (found.item(), module, kind) == (2.0, np, int)
