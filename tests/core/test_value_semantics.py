"""No operation on one tensor changes what another shows: random programs against a model that copies everything."""

from __future__ import annotations

import gc
import operator
from typing import Any
from weakref import finalize

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import firebrick as fb
from firebrick.core.journal import all_or_none

N = 3
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "view",
                "flip",
                "transpose",
                "reshape",
                "detach",
                "iadd",
                "isub",
                "out",
                "add_out",
                "setitem",
                "setrow",
                "setmask",
                "numpy",
                "dlpack",
                "read",
                "drop",
                "move",
            ]
        ),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    max_size=25,
)


class Program:
    """Tensors, and beside each a NumPy array of its own that says what it must show."""

    def __init__(self, device: str) -> None:
        self.device = device
        start = np.arange(float(N * N)).reshape(N, N)
        self.tensors = [fb.asarray(start, device=device)]
        self.model = [start.copy()]
        self.handed: list[tuple[Any, Any]] = []

    def put(self, t: fb.Tensor, a: Any) -> None:
        self.tensors.append(t)
        self.model.append(np.array(a))

    def step(self, name: str, i: int, j: int) -> None:
        i, j = i % len(self.tensors), j % len(self.tensors)
        t, u = self.tensors[i], self.tensors[j]
        a, b = self.model[i], self.model[j]
        match name:
            case "view":
                self.put(t[...], a)
            case "flip":
                self.put(t[::-1], a[::-1])
            case "transpose":
                self.put(t.T, a.T)
            case "reshape":
                self.put(t.reshape(-1).reshape(N, N), a)
            case "detach":
                self.put(t.detach(), a)
            case "iadd":
                t += u
                self.tensors[i], self.model[i] = t, a + b
            case "isub":
                t -= 1.0
                self.model[i] = a - 1.0
            case "out":
                fb.multiply(t, 2.0, out=u)
                self.model[j] = a * 2.0
            case "add_out":
                fb.add(t, u, out=t)
                self.model[i] = a + b
            case "setitem":
                t[0, 1:] = 5.0
                self.model[i] = a.copy()
                self.model[i][0, 1:] = 5.0
            case "setrow":
                t[1] = u[2]
                self.model[i] = a.copy()
                self.model[i][1] = b[2]
            case "setmask":
                t[t > 4.0] = 0.5
                self.model[i] = np.where(a > 4.0, 0.5, a)
            case "numpy":
                self.handed.append((t.numpy(), a.copy()))
            case "dlpack":
                self.handed.append((np.from_dlpack(t), a.copy()))
            case "read":
                self.handed.append((fb.read([t])[0], a.copy()))
            case "move":
                self.put(t.to("cpu:1").to(self.device), a)
            case "drop":
                if len(self.tensors) > 1:
                    del self.tensors[i], self.model[i]

    def check(self) -> None:
        for t, a in zip(self.tensors, self.model, strict=True):
            got = np.asarray(t.detach().tolist())  # a read that hands out no memory of the tensor to the program
            np.testing.assert_array_equal(got, a)
        for host, a in self.handed:
            np.testing.assert_array_equal(host, a)


@given(program=steps)
def test_no_program_can_notice_that_memory_is_shared(device: str, program: list[tuple[str, int, int]]) -> None:
    run = Program(device)
    for name, i, j in program:
        run.step(name, i, j)
    run.check()


def test_what_numpy_gives_is_read_only(device: str) -> None:
    x = fb.ones(3, device=device)
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 5.0
    with pytest.raises(ValueError, match="read-only"):
        fb.read([x])[0][0] = 5.0
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0] = 5.0
    assert x.tolist() == [1.0] * 3


def test_a_copy_that_numpy_asks_for_is_its_own(device: str) -> None:
    x = fb.ones(3, device=device)
    a = np.array(x)
    a[0] = 9.0
    assert x.tolist() == [1.0] * 3


def test_an_exported_tensor_keeps_its_values_when_it_is_a_destination_afterwards(device: str) -> None:
    x = fb.ones(3, device=device)
    handed = np.from_dlpack(x)
    fb.add(x, x, out=x)
    assert handed.tolist() == [1.0] * 3
    assert x.tolist() == [2.0] * 3


def test_asarray_copies_what_numpy_may_change_later(device: str) -> None:
    a = np.ones(3)
    x = fb.asarray(a, device=device)
    a[0] = 9.0
    assert x.tolist() == [1.0] * 3


def test_an_assignment_through_one_handle_is_not_seen_through_another(device: str) -> None:
    x = fb.zeros((2, 2), device=device)
    row, again = x[0], x.detach()
    x[0] = 1.0
    assert row.tolist() == [0.0, 0.0]
    assert again.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    row[0] = 7.0
    assert x.tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_positive_and_astype_give_another_handle(device: str) -> None:
    x = fb.ones(2, device=device)
    for y in (+x, x.astype(fb.float32), fb.asarray(x, copy=True)):
        y += 1.0
        assert x.tolist() == [1.0, 1.0]


def test_an_update_keeps_shape_and_dtype(device: str) -> None:
    x = fb.ones(2, dtype=fb.float32, device=device)
    with pytest.raises(fb.ShapeError, match="must keep the shape"):
        x += fb.ones((2, 2), device=device)
    with pytest.raises(fb.DTypeError, match="must keep the dtype"):
        x += fb.ones(2, dtype=fb.float64, device=device)
    assert x.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("device", ["cpu", "numpy", "torch:cpu"])
@pytest.mark.parametrize(
    ("source", "goal"),
    [
        ("float32", "float64"),
        ("float32", "int16"),
        ("int64", "float32"),
        ("bool", "int8"),
        ("bfloat16", "float32"),
        ("float64", "complex128"),
    ],
)
def test_numpy_gets_an_array_of_the_dtype_that_it_asks_for(source: str, goal: str, device: str) -> None:
    x = fb.asarray([0, 1, 3], device=device).astype(fb.dtype(source))
    own = x.numpy()
    found = np.asarray(x, dtype=goal)
    assert found.dtype == np.dtype(goal)
    assert found.tolist() == own.astype(goal).tolist()
    assert np.array(x, dtype=goal).flags.writeable
    assert np.asarray(x).dtype == np.asarray(x, dtype=own.dtype).dtype == own.dtype
    with pytest.raises(ValueError, match="a copy is needed to convert the dtype"):
        np.asarray(x, dtype=goal, copy=False)
    copied = np.array(x, copy=True)
    copied[...] = 0
    assert x.tolist() == ([False, True, True] if source == "bool" else [0, 1, 3])


def test_a_finalizer_that_runs_when_a_failed_block_is_undone_finds_all_of_it_undone() -> None:
    """What the handles showed in the block is dropped after the last of them shows its old value again."""
    a, b, seen = fb.zeros(2), fb.zeros(2), []

    def block() -> None:
        for t in (a, b):
            t[:] = 1.0
            finalize(t.storage, lambda: seen.append((a.tolist(), b.tolist())))
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError, match="interrupted"):
        all_or_none(block)
    gc.collect()
    assert seen == [([0.0, 0.0], [0.0, 0.0])] * 2


OPERATORS = ("lt", "le", "gt", "ge", "eq", "ne", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
WHOLE = ("and_", "or_", "xor", "lshift", "rshift")


@pytest.mark.parametrize("name", [*OPERATORS, *WHOLE])
def test_operators_keep_the_order_of_their_operands(name: str) -> None:
    function = getattr(operator, name)
    a, b = (np.array(v, np.int64 if name in WHOLE else np.float64) for v in ([[2, 3], [5, 4]], [[3, 3], [2, 1]]))
    x, y = fb.asarray(a), fb.asarray(b)
    assert function(x, y).tolist() == function(a, b).tolist()
    if name != "matmul":
        assert function(x, 3).tolist() == function(a, 3).tolist()
        assert function(3, x).tolist() == function(3, a).tolist()
    if name not in OPERATORS[:6]:  # comparisons
        handle = x
        x = getattr(operator, f"i{name.strip('_')}")(x, y)
        assert x is handle
        assert x.tolist() == function(a, b).tolist()


@pytest.mark.parametrize("name", ["max", "min", "sum", "mean", "argmax"])
def test_a_method_reduces_the_axis_that_it_is_given(name: str) -> None:
    a = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    method, x = getattr(fb.asarray(a), name), getattr(a, name)
    assert method().tolist() == x().tolist()
    for axis in (0, -1):
        assert method(axis).tolist() == x(axis).tolist()
        assert method(axis=axis, keepdims=True).tolist() == x(axis=axis, keepdims=True).tolist()


def test_no_stream_is_taken() -> None:
    x = fb.ones(2)
    assert x.to_device("cpu:1", stream=None).device == fb.device("cpu:1")
    with pytest.raises(ValueError, match="stream must be None"):
        x.to_device("cpu", stream=1)
