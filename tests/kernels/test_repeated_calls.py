"""A call of a kernel that repeats an earlier one goes by a plan.

It gives what the first call gave: for other values and layouts, for numbers outside of the kernel that change, for constants
that differ in a bit or type, in threads, and where a check fails.
"""

from __future__ import annotations

import ast
import threading
from typing import Any
from weakref import ref

import numpy as np
import pytest

import firebrick as fb
from firebrick.compiler.kernel.language.parsing import parsed
from firebrick.core import planned
from firebrick.core.config import config

K = fb.kernel
F = fb.float32
CALLS = planned.BEFORE + 3
FACTOR = 2.0


class Numbers:
    """A number, and a property that makes another one each time."""

    def __init__(self) -> None:
        self.factor: Any = 2.0
        self.count = 3

    @property
    def more(self) -> Any:
        return np.float64(self.count)


NUMBERS = Numbers()


@K.function
def doubled(v):
    return 2.0 * v


@K
def by_name(x: K.In[F, "n"], y: K.Out[F, "n"]):
    i = K.index()
    y[i] = float(x[i])


@K
def by_attribute(x: K.In[F, "n"], y: K.Out[F, "n"]):
    i = K.index()
    y[i] = x[i] * NUMBERS.factor + NUMBERS.more


@K
def scaled(x: K.In[F, "n, m"], by: float, y: K.Out[F, "n, m"]):
    i, j = K.index()
    y[i, j] = x[i, j] * by * FACTOR


@K
def stepped(u: K.In[F, "n, m"], out: K.Out[F, "n, m"]):
    i, j = K.index()
    if 0 < i < u.shape[0] - 1 and 0 < j < u.shape[1] - 1:
        out[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    else:
        out[i, j] = u[i, j]


@K
def split(x: K.InOut[F, "n"], at: K.In[fb.int64, "n"], signs: K.Out[F, "n"], big: K.Out[fb.int64, "bins", 0], bins: int):
    i = K.index()
    v = x[at[i]]
    signs[i] = 1.0 if v > 0 else -1.0
    x[i] = x[i] + 1.0
    K.atomic_add(big, i % bins, 1)


@K
def constant(x: K.In[F, "n"], value: K.Constant[float], y: K.Out[F, "n"]):
    i = K.index()
    y[i] = value * x[i]


@K
def filled(n: int, value: float, y: K.Out[F, "n"]):
    y[K.index()] = value


def plans(kernel: Any, *args: Any) -> list[Any]:
    op = kernel.operation(*args)[0]
    return [p for p in op.plans.values() if type(p) is planned.OpPlan]


def test_calls_of_other_values_layouts_and_shapes_are_those_of_numpy() -> None:
    r = np.random.default_rng(0)
    for shape in [(5, 5), (1, 5), (5, 1), (0, 5), (64, 33), (33, 64), (1, 1)] * CALLS:
        x, by = r.standard_normal(shape).astype(np.float32), float(r.integers(1, 9))
        for given in (fb.asarray(x), fb.asarray(np.ascontiguousarray(x.T)).T, fb.asarray(x[::-1])[::-1]):
            assert np.array_equal(scaled(given, by).numpy(), x * np.float32(by) * np.float32(2))
    assert len(plans(scaled, fb.ones((5, 5)), 1.0)) == 7


def test_results_of_repeated_calls_are_memory_of_their_own() -> None:
    x = fb.asarray(np.arange(20000, dtype=np.float32).reshape(100, 200))
    kept = [scaled(x, float(k)) for k in range(CALLS + 2)]
    for k, y in enumerate(kept):
        assert np.array_equal(y.numpy(), x.numpy() * np.float32(2 * k))


def test_a_number_outside_of_the_kernel_that_changes_and_changes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fb.ones((3, 3))
    for factor in (2.0, 7.0, 2.0, -0.0, 0.0, 2.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(CALLS):
            y = scaled(x, 1.0).numpy()
            assert (y == factor).all()
            assert (np.signbit(y) == np.signbit(factor)).all()


def test_a_name_that_is_found_elsewhere_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fb.asarray([-2.0, 3.0])
    for own, result in ((None, [-2.0, 3.0]), (doubled, [-4.0, 6.0]), (None, [-2.0, 3.0])):
        with monkeypatch.context() as patch:
            if own is not None:
                patch.setitem(globals(), "float", own)  # in front of the built-in one
            for _ in range(CALLS):
                assert by_name(x).tolist() == result
    monkeypatch.setitem(globals(), "float", None)
    with pytest.raises(fb.KernelCompileError):
        by_name(x)


def test_an_attribute_that_changes_or_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fb.ones(2)
    for factor in (2.0, 7.0, np.float32(7.0), 2):
        monkeypatch.setattr(NUMBERS, "factor", factor)
        for _ in range(CALLS):
            assert by_attribute(x).tolist() == [factor + 3.0] * 2
    monkeypatch.delattr(NUMBERS, "factor")
    with pytest.raises(fb.KernelCompileError):
        by_attribute(x)
    monkeypatch.setattr(NUMBERS, "factor", 4.0, raising=False)
    assert by_attribute(x).tolist() == [7.0] * 2


def test_a_property_with_another_object_of_the_same_number_each_time() -> None:
    x = fb.ones(2)
    for _ in range(3 * CALLS):
        assert by_attribute(x).tolist() == [NUMBERS.factor + 3.0] * 2
    assert len(by_attribute._programs) == 1  # translated once for its dtypes, while the property returned one number
    NUMBERS.count = 5
    try:
        assert by_attribute(x).tolist() == [NUMBERS.factor + 5.0] * 2
    finally:
        NUMBERS.count = 3


def test_constants_that_differ_in_their_bits_only() -> None:
    x = fb.ones(3)
    for value in (0.0, -0.0, 1.0, 0.0, -0.0):
        for _ in range(CALLS):
            assert (np.signbit(constant(x, value=value).numpy()) == np.signbit(value)).all()


def test_several_results_arguments_that_change_and_sizes_that_are_integers() -> None:
    r = np.random.default_rng(1)
    for bins in (3, 5, 3) * CALLS:
        x, at = r.standard_normal(12).astype(np.float32), r.permutation(12)
        given = fb.asarray(x)
        changed, signs, big = split(given, fb.asarray(at), bins=bins)
        assert np.array_equal(given.numpy(), x)
        assert np.array_equal(changed.numpy(), x + 1)
        assert big.tolist() == [len(range(b, 12, bins)) for b in range(bins)]
        assert signs.shape == (12,)


def test_a_check_that_fails_is_reported_by_each_call_and_harms_no_later_one() -> None:
    x, good, bad = fb.ones(4), fb.asarray([0, 1, 2, 3]), fb.asarray([0, 1, 9, 3])
    for _ in range(CALLS):
        split(x, good, bins=2)
    for _ in range(CALLS):
        with pytest.raises(IndexError, match=r"split: an index of axis 0 of x is at least 0 and below 4\nReceived: 9"):
            split(x, bad, bins=2)
        assert split(x, good, bins=2)[0].tolist() == [2.0] * 4


def test_a_kernel_without_tensors_runs_again_for_other_numbers() -> None:
    for n, value in [(3, 1.0), (4, 2.0), (3, 5.0)] * CALLS:
        assert filled(n, value, device="cpu").tolist() == [value] * n


def test_gradients_of_repeated_calls() -> None:
    x = fb.asarray(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3))
    for k in range(CALLS + 2):
        found = fb.grad(lambda x, k=k: fb.sum(scaled(x, float(k)) * x))(x)
        assert np.allclose(found.numpy(), 4 * k * x.numpy(), rtol=1e-6)
    second = fb.grad(lambda x: fb.sum(fb.grad(lambda x: fb.sum(scaled(x, 3.0) * x))(x) * x))
    for _ in range(CALLS):
        assert np.allclose(second(x).numpy(), 24 * x.numpy(), rtol=1e-6)


def test_a_plan_serves_no_verified_call_and_no_other_settings() -> None:
    x = fb.ones((4, 4))
    for _ in range(CALLS):
        scaled(x, 1.0)
    (plan,) = (p for p in plans(scaled, x, 1.0) if p.avals[0].shape == (4, 4))
    plan.kernel = lambda *natives: np.zeros((4, 4), np.float32)
    assert scaled(x, 1.0).tolist() == [[0.0] * 4] * 4, "the plan is what runs"
    with fb.verify():
        assert scaled(x, 1.0).tolist() == [[2.0] * 4] * 4
    with config.scope(cpu_compile=False):
        assert scaled(x, 1.0).tolist() == [[2.0] * 4] * 4
    scaled.operation(x, 1.0)[0].plans.clear()


def test_threads_call_one_kernel_at_the_same_time() -> None:
    wrong: list[Any] = []

    def work(k: int) -> None:
        x = fb.asarray(np.full((50, 40), k, np.float32))
        for n in range(60):
            y = scaled(x, float(n)).numpy()
            if not (y == 2.0 * k * n).all():
                wrong.append((k, n))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        ((2048, 2048), "rows"), ((9000, 512), "rows"), ((2, 1 << 22), "part of a row"), ((3, 3), "direct"),
        ((1 << 22,), "part of a row"),
    ],
)  # fmt: skip
def test_threads_take_whole_rows_of_a_grid_where_they_take_more_than_one(grid: tuple[int, ...], expected: str) -> None:
    from firebrick.compiler.targets.llvm.lanes import lanes_kernel
    from firebrick.compiler.targets.llvm.target import Target

    u = fb.ones((3, 3)) if len(grid) == 2 else fb.ones(3)
    kernel = stepped if len(grid) == 2 else constant
    args = (u,) if len(grid) == 2 else (u, 1.0)
    _, operands, params = kernel.operation(*args)
    made = lanes_kernel(kernel.program([t.dtype for t in operands], params).translated.function, Target.host())
    chunk, row = made.chunk(grid), made.units(grid[-1:])
    assert 0 <= chunk < made.units(grid)
    found = "direct" if not chunk else "part of a row" if chunk < row else "rows" if chunk % row == 0 else "parts of rows"
    assert found == expected


def test_a_plan_does_not_keep_the_code_of_a_kernel_that_others_have_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    from firebrick.functions import kernels

    monkeypatch.setattr(kernels, "_KEPT", 3)
    x = fb.ones((2, 2))
    programs = []
    for factor in range(8):
        monkeypatch.setitem(globals(), "FACTOR", float(factor))
        for _ in range(CALLS):
            assert scaled(x, 1.0).tolist() == [[factor] * 2] * 2
        _, operands, params = scaled.operation(x, 1.0)
        programs.append(ref(scaled.program([t.dtype for t in operands], params)))
    del operands, params
    assert [p() is None for p in programs[:4]] == [True] * 4
    assert programs[-1]() is not None
    monkeypatch.setitem(globals(), "FACTOR", 0.0)
    assert scaled(x, 1.0).tolist() == [[0.0] * 2] * 2


class Settings:
    def __init__(self, factor: float) -> None:
        self.factor = factor


SETTINGS = Settings(1.0)


@K
def by_settings(x: K.In[F, "n"], y: K.Out[F, "n"]):
    i = K.index()
    y[i] = x[i] * SETTINGS.factor


def test_objects_that_a_kernel_used_are_not_kept_by_its_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    from firebrick.functions import kernels

    monkeypatch.setattr(kernels, "_KEPT", 3)
    monkeypatch.setitem(globals(), "SETTINGS", SETTINGS)
    x, used = fb.ones(3), []
    for factor in range(8):
        held = globals()["SETTINGS"] = Settings(float(factor))  # not by monkeypatch, which keeps what it replaces
        used.append(ref(held))
        for _ in range(CALLS if factor % 2 else 1):
            assert by_settings(x).tolist() == [factor] * 3
    del held
    assert [s() is None for s in used[:4]] == [True] * 4


def test_objects_that_are_not_named_are_those_of_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    op, operands, params = scaled.operation(fb.ones((2, 2)), 1.0)
    for factor in (2.0, 2.0, 2.0, 2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        assert op(*operands, **params | {"captures": None}).tolist() == [[factor] * 2] * 2


def test_a_number_that_comes_back_after_many_others_has_a_plan_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from firebrick.functions import kernels

    monkeypatch.setattr(kernels, "_KEPT", 3)
    x = fb.ones((4, 2))
    for factor in (1.0, 2.0, 3.0, 4.0, 5.0, 1.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(CALLS):
            scaled(x, 1.0)
    op, operands, params = scaled.operation(x, 1.0)
    plan = op.plans[planned.key_of(op, operands, params)]
    assert plan.kernel(*[t.storage.data for t in operands]).tolist() == [[1.0] * 2] * 4


def test_calls_that_began_without_the_compiler_have_a_plan_once_it_is_on() -> None:
    x, by = fb.ones((3, 2)), 1.5
    op = scaled.operation(x, by)[0]
    op.plans.clear()
    with config.scope(cpu_compile=False):
        for _ in range(CALLS):
            scaled(x, by)
        assert not plans(scaled, x, by)
    for _ in range(CALLS):
        assert scaled(x, by).tolist() == [[3.0] * 2] * 3
    assert len(plans(scaled, x, by)) == 1


def test_a_text_is_parsed_again_where_another_thread_parsed_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def plus_one(x: fb.kernel.In[fb.float32, "n"], out: fb.kernel.Out[fb.float32, "(n + 1) - 1"]) -> None:
        out[fb.kernel.index()] = x[fb.kernel.index()] + 1.0

    right, seen, failures = ast.parse, set(), 0

    def parse(text: str, **rest: str) -> ast.AST:
        nonlocal failures
        if text not in seen:
            seen.add(text)
            failures += 1
            raise SystemError("AST constructor recursion depth mismatch")
        return right(text, **rest)  # type: ignore[call-overload]

    with monkeypatch.context() as m:
        m.setattr(ast, "parse", parse)
        assert fb.kernel(plus_one)(fb.ones(3)).tolist() == [2.0, 2.0, 2.0]
        assert failures >= 3  # the function, and its sizes

    def always(text: str, **rest: str) -> ast.AST:
        raise SystemError("another cause")

    monkeypatch.setattr(ast, "parse", always)
    with pytest.raises(SystemError, match="another cause"):
        parsed("x")
