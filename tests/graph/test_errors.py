"""What a compiled function cannot do raises: naming the line and the remedy, with everything as it was before."""

from __future__ import annotations

import functools
import itertools
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import currentframe
from queue import SimpleQueue
from types import SimpleNamespace

import numpy as np
import pytest

import firebrick as fb

pytestmark = pytest.mark.usefixtures("nothing_left")

COUNT = 0
KEPT = None


def ones(n: int = 2) -> fb.Tensor:
    return fb.ones(n)


@dataclass
class State:
    """A bit of everything that a function may change."""

    w: fb.Tensor = field(default_factory=lambda: fb.asarray([1.0, 2.0]))
    items: list = field(default_factory=lambda: [1, 2])
    table: dict = field(default_factory=lambda: {"n": 1})
    group: set = field(default_factory=lambda: {1})
    host: np.ndarray = field(default_factory=lambda: np.ones(2, np.float32))
    n: int = 0
    generator: fb.random.Generator = field(default_factory=lambda: fb.random.Generator(0))
    model: fb.nn.Module = field(default_factory=lambda: fb.nn.Sequential(fb.nn.Linear(2, 2), fb.nn.BatchNorm1d(2)))


def photograph(state: State) -> tuple:
    """Identities, bits and attributes of all that a state holds."""
    model = state.model
    tensors = [state.w, *model.parameters(), *model.buffers()]
    return (
        [(id(t), id(t.storage), t.numpy().tobytes(), t.dtype, t.shape, t.device, t.node, t.leaf, t.label) for t in tensors],
        (id(state.items), list(state.items), id(state.table), dict(state.table), id(state.group), set(state.group)),
        (id(state.host), state.host.tobytes(), state.n, str(state.generator.state())),
        {name: vars(m).keys() for name, m in model.modules()},
        [m.training for _, m in model.modules()],
        sorted(vars(state)),
        COUNT,
    )


@contextmanager
def unchanged(state: State) -> Iterator[None]:
    before = photograph(state)
    yield
    assert photograph(state) == before


def line_of(what: str) -> str:
    """``file:line`` of the line of the calling test that ends with this comment."""
    frame = currentframe().f_back
    with open(frame.f_code.co_filename) as f:
        lines = f.read().splitlines()
    first = frame.f_code.co_firstlineno
    number = next(i for i, text in enumerate(lines, 1) if i > first and text.endswith(f"# {what}"))
    return f"{frame.f_code.co_filename}:{number}"


# values that are not there yet


ASKING = {
    "if": (lambda x: x if fb.sum(x) > 0 else -x, "fb.cond"),
    "while": (lambda x: next(x for _ in iter(lambda: bool(fb.sum(x) > 0), False)), "fb.while_loop"),
    "and": (lambda x: (fb.sum(x) > 0) and x, "fb.where"),
    "not": (lambda x: -x if not fb.any(x) else x, "fb.where"),
    "item": (lambda x: x * fb.sum(x).item(), "after the call"),
    "float": (lambda x: x * float(fb.sum(x)), "after the call"),
    "int": (lambda x: x * int(fb.sum(x)), "static_argnames"),
    "range": (lambda x: [x for _ in range(fb.sum(x).astype(fb.int64))], "static_argnames"),
    "index": (lambda x: [x, -x][fb.argmax(x)], "static_argnames"),
    "size": (lambda x: fb.zeros(fb.argmax(x)), "static_argnames"),
    "tolist": (lambda x: x.tolist(), "after the call"),
    "numpy": (lambda x: x.numpy(), "after the call"),
    "np function": (lambda x: np.asarray(x), "after the call"),
    "nonzero": (lambda x: fb.nonzero(x), "size="),
    "unique": (lambda x: fb.unique_values(x), "size="),
    "mask": (lambda x: x[x > 0], "fb.where"),
    "repeat": (lambda x: fb.repeat(x, fb.argsort(x)), "size="),
    "in": (lambda x: 1.0 in x, "fb.where"),
    "max of python": (lambda x: max(x[0], x[1]), "fb.where"),
}


@pytest.mark.parametrize("how", ASKING)
def test_asking_for_a_value_names_the_line_and_the_remedy(how) -> None:
    fn, remedy = ASKING[how]
    state = State()

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        state.w += x
        state.generator.uniform((2,))
        state.model.layers[1](fb.ones((4, 2)))
        return fn(x)

    with unchanged(state):
        with pytest.raises(fb.DataDependentError) as caught:
            f(ones())
        text = str(caught.value)
        del caught
        assert f"{__file__}:{fn.__code__.co_firstlineno} in " in text
        assert remedy in text
    assert f.traces == 0


def test_an_assertion_on_a_value_names_the_line() -> None:
    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        assert fb.all(x > 0)  # here
        return x

    with pytest.raises(fb.DataDependentError, match=re.escape(line_of("here"))):
        f(ones())


# tensors that outlive their trace


def test_a_tensor_kept_in_a_list_an_attribute_a_global_or_a_dict_raises_and_puts_it_back() -> None:
    global KEPT
    state = State()

    def keep_list(x: fb.Tensor) -> None:
        state.items.append(x * 2.0)  # list

    def keep_attribute(x: fb.Tensor) -> None:
        state.kept = x * 2.0  # attribute

    def keep_global(x: fb.Tensor) -> None:
        global KEPT
        KEPT = x * 2.0  # global

    def keep_dict(x: fb.Tensor) -> None:
        state.table["x"] = x * 2.0  # dict

    def keep_module(x: fb.Tensor) -> None:
        state.model.kept = x * 2.0  # module

    def keep_set(x: fb.Tensor) -> None:
        state.group.add(x * 2.0)  # set

    lines = {}
    for k in ("list", "attribute", "global", "dict", "module", "set"):
        lines[k] = line_of(k)
    for keep in (keep_list, keep_attribute, keep_global, keep_dict, keep_module, keep_set):
        f = fb.jit(keep)
        with unchanged(state):
            with pytest.raises(fb.StateChangedError, match=r"(?s)keeps a tensor.*return the tensor") as caught:
                f(ones())
            assert lines[keep.__name__.removeprefix("keep_")] in str(caught.value)
            del caught
        assert KEPT is None


def test_a_tensor_kept_in_a_closure_variable_raises_and_puts_it_back() -> None:
    kept = None

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        nonlocal kept
        kept = x * 2.0
        return x

    with pytest.raises(fb.StateChangedError, match="keeps a tensor"):
        f(ones())
    assert kept is None


def test_a_tensor_that_gets_out_otherwise_raises_where_it_is_used() -> None:
    out = SimpleQueue()

    @fb.jit
    def f(x: fb.Tensor) -> None:
        y = x * 2.0  # made
        out.put(y)

    f(ones())
    kept = out.get()
    made = line_of("made")
    for use in (lambda t: t.tolist(), lambda t: t + 1.0, lambda t: fb.sum(t), lambda t: t.item(), fb.jit(lambda t: t + 1.0)):
        with pytest.raises((fb.LeakedTracerError, fb.ShapeError)) as caught:
            use(kept)
        if isinstance(caught.value, fb.LeakedTracerError):
            assert re.search(
                rf"(?s)made at {re.escape(made)}.*used at {re.escape(__file__)}.*return it from", str(caught.value)
            )
        del caught
    assert "value" in repr(kept)
    del kept


def numbers(x: fb.Tensor):
    yield x * 2.0
    yield x * 3.0


class Slotted:
    __slots__ = ("me",)


def holding_itself(x: fb.Tensor) -> list:
    made = [x]
    made.append(made)
    return made


def slotted_holding_itself(x: fb.Tensor) -> Slotted:
    made = Slotted()
    made.me = made
    return made


async def later(x: fb.Tensor) -> fb.Tensor:
    return x


REFUSED_RESULTS = {
    "a generator": numbers,
    "a map": lambda x: map(abs, [x]),
    "a zip": lambda x: zip([x], [x], strict=True),
    "a list_iterator": lambda x: iter([x]),
    "a dict_values": lambda x: {"x": x}.values(),
    "a function that holds a tensor": lambda x: lambda: x,
    "a function with a default": lambda x: lambda y=x: y,
    "a partial": lambda x: functools.partial(fb.add, x),
    "a method of a tensor": lambda x: x.tolist,
    "a builtin method": lambda x: [x].append,
    "an array of objects": lambda x: np.frompyfunc(lambda i: x, 1, 1)(np.arange(2)),
    "a list that holds itself": holding_itself,
    "an object that holds itself": slotted_holding_itself,
    "a lock": lambda x: threading.Lock(),
}


@pytest.mark.parametrize("kind", REFUSED_RESULTS)
def test_a_result_that_cannot_be_made_anew_raises_rather_than_being_the_first_calls_again(kind) -> None:
    with pytest.raises(fb.TraceError, match=r"(?s)returns what a graph can make anew at each call.*return"):
        fb.jit(REFUSED_RESULTS[kind])(ones())


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_coroutine_raises_at_the_first_call() -> None:
    with pytest.raises(fb.TraceError, match="a coroutine, which would be the same one at each call"):
        fb.jit(later)(ones())


@pytest.mark.parametrize("how", [lambda x: float(fb.sum(x)), lambda x: 1.0 if x[0] > 0.0 else 2.0, lambda x: x[0].item()])
def test_a_refusal_that_the_function_catches_raises_all_the_same(how) -> None:
    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        try:
            return x * how(x)
        except Exception:  # noqa: BLE001 - which is what the test is about
            return x

    with pytest.raises(fb.DataDependentError):
        f(ones())


def test_an_exception_that_carries_a_tensor_of_the_trace() -> None:
    class Odd(Exception):
        pass

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        raise Odd(x * 2.0)

    with pytest.raises(Odd) as caught:
        f(ones())
    with pytest.raises(fb.LeakedTracerError):
        caught.value.args[0].tolist()
    del caught


# other effects


def effects(state: State) -> dict:
    def assign_global() -> None:
        global COUNT
        COUNT += 1

    def lose() -> None:
        state.items.pop()

    def delete() -> None:
        del state.table["n"]

    return {
        "list": lambda: state.items.append(3),
        "pop": lose,
        "dict": lambda: state.table.update(n=2),
        "delete": delete,
        "set": lambda: state.group.add(2),
        "attribute": lambda: setattr(state, "n", state.n + 1),
        "new attribute": lambda: setattr(state, "more", 1),
        "module attribute": lambda: setattr(state.model, "n", 1),
        "training": lambda: state.model.eval(),
        "freeze": lambda: state.model.freeze(),
        "layer": lambda: setattr(state.model, "layers", (*state.model.layers, fb.nn.ReLU())),
        "global": assign_global,
        "array": lambda: state.host.__setitem__(0, 5.0),
    }


@pytest.mark.parametrize("how", effects(State()))
def test_changing_something_besides_tensors_raises_and_puts_it_back(how) -> None:
    state = State()
    act = effects(state)[how]

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        state.w += x
        act()
        state.model.layers[1](fb.ones((4, 2)))
        return x * fb.asarray(state.host)

    before = [p.frozen for p in state.model.parameters()]
    with unchanged(state), pytest.raises(fb.StateChangedError, match=r"(?s)changed something.*do it outside"):
        f(ones())
    assert [p.frozen for p in state.model.parameters()] == before


def test_an_attribute_set_on_a_module_names_its_line_and_change() -> None:
    model = fb.nn.Linear(2, 2)
    model.calls = 0

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        model.calls += 1  # here
        return model(x)

    with pytest.raises(fb.StateChangedError) as caught:
        f(fb.ones((1, 2)))
    assert "model.calls: int 0 → int 1" in str(caught.value)
    assert line_of("here") in str(caught.value)
    assert model.calls == 0


def test_a_container_given_as_an_argument_and_changed_raises_and_puts_it_back() -> None:
    @fb.jit
    def f(table: dict) -> None:
        table["y"] = table["x"] * table["n"]

    for table in ({"x": ones(), "n": 2.0}, {"x": ones(), "n": fb.asarray(2.0)}):
        held = dict(table)
        with pytest.raises(fb.StateChangedError):
            f(table)
        assert table.keys() == held.keys()
        assert all(table[k] is held[k] for k in held)


def test_a_class_attribute_set_inside_raises_and_puts_it_back() -> None:
    class Counter:
        n = 0

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        Counter.n += 1
        return x * Counter.n

    with pytest.raises(fb.StateChangedError):
        f(ones())
    assert Counter.n == 0


def test_an_object_with_slots_changed_inside_is_put_back() -> None:
    class Slotted:
        __slots__ = ("n",)

    held = Slotted()
    held.n = 1

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        held.n += 1
        return x * held.n

    with pytest.raises(fb.StateChangedError, match=r"held\.n: int 1 → int 2"):
        f(ones())
    assert held.n == 1


def test_an_exception_of_the_function_leaves_everything_as_it_was() -> None:
    state = State()
    optimizer = fb.optim.Adam(state.model, lr=0.1)

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        grads = fb.value_and_grad(lambda m, x: fb.sum(m(x)))(state.model, x)[1]
        optimizer.update(state.model, grads)
        state.items.append(1)
        state.table["x"] = x
        state.group.add(5)
        state.n = 7
        state.w[0] = 9.0
        state.host[0] = 3.0
        state.generator.uniform((2,))
        raise KeyError("stop")

    saved = str(optimizer.state_dict())
    with unchanged(state), pytest.raises(KeyError, match="stop"):
        f(fb.ones((4, 2)))
    assert str(optimizer.state_dict()) == saved
    assert f.traces == 0
    with pytest.raises(KeyError):
        f(fb.ones((4, 2)))


def test_a_call_that_raised_once_may_succeed_later() -> None:
    wrong = True

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        if wrong:
            raise ValueError("not yet")
        return x * 2.0

    with pytest.raises(ValueError, match="not yet"):
        f(ones())
    wrong = False
    assert f(ones()).tolist() == [2.0, 2.0]


# devices


def test_a_move_inside_names_the_line_and_the_remedy() -> None:
    state = State()

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        state.w += x
        return x.to("numpy") * 2.0  # here

    with unchanged(state):
        with pytest.raises(fb.DeviceMismatchError, match=r'(?s)before the call.*x\.to\("numpy:0"\)') as caught:
            f(ones())
        assert line_of("here") in str(caught.value)
        del caught


def test_tensors_of_two_devices_raise_as_in_eager() -> None:
    f = fb.jit(lambda x, y: x + y)
    with pytest.raises(fb.DeviceMismatchError, match=r"x2: float32\[2\] on numpy:0"):
        f(ones(), fb.ones(2, device="numpy"))

    @fb.jit
    def two(x: fb.Tensor, y: fb.Tensor):
        a = x + 1.0
        return a, y + 1.0  # here

    with pytest.raises(fb.DeviceMismatchError) as caught:
        two(ones(), fb.ones(2, device="numpy"))
    assert line_of("here") in str(caught.value)
    assert "split the function" in str(caught.value)


# tensors that cannot be found


def test_a_tensor_in_an_opaque_object_raises_naming_the_line() -> None:
    hidden = SimpleQueue()
    hidden.put(ones())

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        return x * hidden.get()  # here

    with pytest.raises(fb.TraceError, match=r"(?s)jit finds the tensors.*pass it as an argument") as caught:
        f(ones())
    assert line_of("here") in str(caught.value)


@pytest.mark.parametrize("make", [lambda: iter([1.0, 2.0]), itertools.count, lambda: (i for i in range(3)), lambda: zip([1.0])])
def test_an_iterator_in_reach_raises_naming_it(make) -> None:
    items = make()
    f = fb.jit(lambda x: x * next(items))
    with pytest.raises(fb.TraceError, match=r"(?s)takes no items from an iterator.*items.*take the item before"):
        f(ones())


def test_shapes_and_kinds_are_checked_as_in_eager_at_the_users_line() -> None:
    f = fb.jit(lambda x, y: fb.matmul(x, y))
    with pytest.raises(fb.ShapeError, match="matmul"):
        f(fb.ones((2, 3)), fb.ones((2, 3)))
    with pytest.raises(fb.DTypeError):
        fb.jit(lambda x: fb.bitwise_and(x, x))(ones())


def test_an_index_that_is_out_of_range_raises_at_each_run_and_changes_nothing() -> None:
    table, seen = fb.asarray([[1.0], [2.0]]), fb.zeros(())

    @fb.jit
    def f(index: fb.Tensor) -> fb.Tensor:
        seen[...] = seen + 1.0
        return fb.take(table, index, axis=0)

    assert f(fb.asarray([0, 1])).tolist() == [[1.0], [2.0]]
    with pytest.raises(fb.OutOfRangeError):
        f(fb.asarray([0, 2]))
    assert seen.item() == 1.0
    assert f(fb.asarray([1, 1])).tolist() == [[2.0], [2.0]]
    assert seen.item() == 2.0
    assert f.traces == 1


def test_a_label_out_of_range_names_the_users_line() -> None:
    @fb.jit
    def f(scores: fb.Tensor, labels: fb.Tensor) -> fb.Tensor:
        return fb.cross_entropy(scores, labels)

    scores = fb.ones((2, 3))
    assert f(scores, fb.asarray([0, 2])).item() > 0.0
    line = f.fn.__code__.co_firstlineno + 2
    for labels in ([0, 3], [-1, 0]):
        with pytest.raises(fb.OutOfRangeError, match=r"labels must lie in \[0, 3\)") as caught:
            f(scores, fb.asarray(labels))
        assert caught.value.__notes__ == [f"in a compiled program, at {__file__}:{line} in f"]


def test_what_a_function_changed_in_an_argument_is_named_by_the_argument() -> None:
    @fb.jit
    def f(state: dict[str, fb.Tensor], **more: dict[str, fb.Tensor]) -> fb.Tensor:
        state["w"] = state["w"] + 1.0
        more["extra"]["b"] = state["w"]
        return state["w"]

    state = {"w": ones()}
    with pytest.raises(fb.StateChangedError, match=r"arguments\['state'\]\['w'\]"):
        f(state, extra={})
    g = fb.jit(lambda **more: more["extra"].update(b=1))
    with pytest.raises(fb.StateChangedError, match=r"keywords\['extra'\]\['b'\]"):
        g(extra={})
    assert state["w"].tolist() == [1.0, 1.0]


def test_errors_pickle() -> None:
    import pickle

    for kind in (fb.TraceError, fb.DataDependentError, fb.LeakedTracerError, fb.StateChangedError):
        e = pickle.loads(pickle.dumps(kind("expected", "received", "remedy")))
        assert type(e) is kind
        assert "remedy" in str(e)


def test_a_deep_recursion_in_a_trace_is_put_right() -> None:
    state = State()

    @fb.jit
    def f(x: fb.Tensor) -> fb.Tensor:
        state.w += x
        return f.fn(x + 1.0)

    limit = sys.getrecursionlimit()
    with unchanged(state), pytest.raises(RecursionError):
        f(ones())
    assert sys.getrecursionlimit() == limit


def test_a_namespace_result_of_a_trace_is_made_anew() -> None:
    f = fb.jit(lambda x: SimpleNamespace(y=x * 2.0))
    a, b = f(ones()), f(fb.zeros(2))
    assert (a.y.tolist(), b.y.tolist()) == ([2.0, 2.0], [0.0, 0.0])


READS = {
    "if, while, and, or, not": lambda x: 1 if x[0] > 0 else 2,
    "int()": lambda x: int(x[0]),
    "float()": lambda x: float(x[0]),
    "complex()": lambda x: complex(x[0]),
    "a size, an index or range()": lambda x: range(fb.astype(x[0], fb.int64)),
    "item()": lambda x: x[0].item(),
    "tolist()": lambda x: x.tolist(),
    "numpy()": lambda x: x.numpy(),
    "a NumPy function": lambda x: np.asarray(x),
    "another library": lambda x: np.from_dlpack(x),
}


@pytest.mark.parametrize("asked", READS)
def test_what_needs_a_value_in_a_trace_is_named(asked: str) -> None:
    with pytest.raises(fb.DataDependentError, match=re.escape(f"{asked} needs the value of a tensor")):
        fb.jit(READS[asked])(ones())
