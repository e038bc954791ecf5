"""Gradient rules and updates that run as programs: the same bits as operation by operation, and nothing that is hidden."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.backends.numpy.engine import HostBackend
from firebrick.compiler import build
from firebrick.graph import replays
from firebrick.ops import OPS
from firebrick.optim import repeated_update
from firebrick.testing.cases import avals_of, samples_of

NEVER = 1 << 60


@pytest.fixture(autouse=True)
def no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test alone."""
    for held in (replays.RULES, replays.UPDATES):
        monkeypatch.setattr(held, "_entries", {})


def op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "BEFORE", NEVER)
    monkeypatch.setattr(replays, "LARGE", NEVER)


def pulled(op: Any, arrays: list[Any], params: dict[str, Any], cotangents: list[Any], device: str) -> list[bytes]:
    """The cotangents of an op's operands, as bits."""
    operands = [fb.asarray(a, device=device) for a in arrays]
    wanted = [i for i, x in enumerate(operands) if x.dtype.is_inexact]

    def loss(*tracked: fb.Tensor) -> fb.Tensor:
        given = list(operands)
        for i, t in zip(wanted, tracked, strict=True):
            given[i] = t
        results = op(*given, **params)
        results = results if isinstance(results, tuple) else (results,)
        parts = [
            fb.real(fb.sum(r * fb.asarray(c, device=device))) for r, c in zip(results, cotangents, strict=True) if r.tracked
        ]
        return sum(parts[1:], parts[0])

    _, grads = fb.value_and_grad(lambda xs: loss(*xs))([operands[i] for i in wanted])
    return [g.numpy().tobytes() for g in grads]


@pytest.mark.parametrize("name", [n for n, op in OPS.items() if op.repeats])
def test_a_rule_as_a_program_gives_the_bits_of_its_operations(name: str, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    op = OPS[name]
    rng = np.random.default_rng(seed)
    dtype = "float32" if "float32" in op.dtypes else "complex64"
    samples = [s for s in samples_of(op, dtype, seed) if s.grad_safe]
    for sample, device in zip(samples, ("cpu", "numpy"), strict=False):
        operands, results = avals_of(op, sample)
        if not any(a.dtype.is_inexact for a in operands):
            continue
        cotangents = [rng.standard_normal(a.shape).astype(a.dtype.np) for a in results]
        with monkeypatch.context() as patch:
            op_by_op(patch)
            want = pulled(op, list(sample.inputs), sample.params, cotangents, device)
        for _ in range(4):
            assert pulled(op, list(sample.inputs), sample.params, cotangents, device) == want


def gradient_of_a_norm(layout: str) -> bytes:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((6, 40, 24)).astype(np.float32)
    g = rng.standard_normal((6, 24, 40)).astype(np.float32)
    _, pull = fb.vjp(lambda x, w, b: fb.layer_norm(x, weight=w, bias=b), *(fb.asarray(a) for a in (x, x[0, 0], x[0, 1])))
    turned = fb.permute_dims(fb.asarray(g), (0, 2, 1))
    cotangent = turned if layout == "strided" else fb.asarray(turned.numpy().copy())
    return b"".join(t.numpy().tobytes() for t in pull(cotangent))


def test_operands_of_another_layout_have_the_bits_of_the_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        op_by_op(patch)
        want = gradient_of_a_norm("strided")
    for _ in range(4):
        gradient_of_a_norm("contiguous")
    assert len(replays.RULES) == 1
    assert gradient_of_a_norm("strided") == want
    # and this test can fail: results over dead values have the order of those
    monkeypatch.setattr(replays.RULES, "_entries", {})
    monkeypatch.setattr(HostBackend, "replay", lambda self, graph, device, large: build(self, graph, device))
    found = {gradient_of_a_norm("strided") for _ in range(4)}
    assert len(found) == 2


def test_work_of_large_operands_has_the_same_bits_from_the_first_call_on() -> None:
    x = fb.asarray(np.random.default_rng(0).standard_normal((256, 512)).astype(np.float32))
    w = fb.ones(512)
    found = []
    for _ in range(4):
        grads = fb.grad(lambda xs: fb.sum(fb.layer_norm(xs[0], weight=xs[1], bias=xs[1]) ** 2.0))([x, w])
        found.append(b"".join(g.numpy().tobytes() for g in grads))
    assert len(set(found)) == 1
    assert len(replays.RULES) > 0


def test_rules_of_ones_own_run_each_time() -> None:
    calls = []

    def rule(g: Any, r: Any) -> Any:
        calls.append(g.shape)
        return (g * 3.0,)

    before = dict(OPS)
    try:
        triple = fb.op(
            "triple_of_replays", samples=[(np.ones(3, np.float32),)], operands="x:floating", infer=lambda x: x,
            reference=lambda x: x * np.float32(3), vjp=rule, dtypes=("float32",),
        )  # fmt: skip
        for _ in range(5):
            fb.grad(lambda x: fb.sum(triple(x)))(fb.ones(3))
    finally:
        for name in set(OPS) - set(before):
            del OPS[name]
    assert len(calls) == 5


def test_checks_and_profiles_see_each_operation_of_a_rule() -> None:
    def gradient() -> fb.Tensor:
        found: fb.Tensor = fb.grad(lambda x: fb.sum(fb.softmax(x) ** 2.0))(fb.ones((3, 4)))
        return found

    with fb.profile() as first:
        gradient()
    for _ in range(4):
        gradient()
    assert len(replays.RULES) > 0
    with fb.profile() as then:
        gradient()
    assert str(then).count("\n") == str(first).count("\n")
    with fb.verify():
        gradient()


def test_a_wrong_rule_takes_effect_at_once() -> None:
    from firebrick.testing import faults

    slope = fb.grad(fb.sin)
    for _ in range(4):
        assert slope(fb.asarray(0.0)).item() == 1.0
    with faults.wrong_gradient("sin"):
        assert slope(fb.asarray(0.0)).item() == 2.0
    assert slope(fb.asarray(0.0)).item() == 1.0


def test_second_derivatives_and_graphs_that_are_kept_go_on() -> None:
    def slopes() -> list[float]:
        x = fb.asarray(0.5).require_grad()
        y = fb.exp(x * x)
        first = fb.backward(y, retain_graph=True)[x].item()
        again = fb.backward(y)[x].item()
        second = fb.grad(fb.grad(lambda t: fb.exp(t * t)))(fb.asarray(0.5)).item()
        return [first, again, second]

    found = [slopes() for _ in range(5)]
    assert all(f == found[0] for f in found)
    assert found[0][2] == pytest.approx(np.exp(0.25) * 3.0, rel=1e-5)


def test_programs_are_forgotten_with_a_setting_of_the_engine() -> None:
    def gradient() -> None:
        fb.grad(lambda x: fb.sum(fb.softmax(x) ** 2.0))(fb.ones((3, 4)))

    for _ in range(4):
        gradient()
    assert len(replays.RULES) > 0
    with fb.config.scope(cpu_compile=not fb.config.cpu_compile):
        gradient()
        assert len(replays.RULES) == 0


SHAPES = [(4, 3), (3,), (), (4, 3), (3,)]
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True}, "Adam": {"amsgrad": True, "weight_decay": 0.1}, "AdamW": {}, "Adamax": {},
    "NAdam": {}, "RAdam": {}, "RMSprop": {"centered": True}, "Adagrad": {}, "Adadelta": {}, "LAMB": {}, "Lion": {}, "Muon": {},
}  # fmt: skip


class Bag(nn.Module):
    """Parameters of few shapes."""

    def __init__(self, device: str) -> None:
        rng = np.random.default_rng(0)
        for i, shape in enumerate(SHAPES):
            setattr(self, f"p{i}", nn.Parameter(fb.asarray(rng.normal(size=shape), dtype=fb.float32, device=device)))


def trained(name: str, device: str, **settings: Any) -> list[bytes]:
    bag = Bag(device)
    optimizer = getattr(fb.optim, name)(bag, lr=0.01, **settings)
    for _ in range(6):
        _, grads = fb.value_and_grad(lambda m: sum((fb.sum(p**2.0) for p in m.parameters()), fb.zeros((), device=device)))(bag)
        optimizer.update(bag, grads)
    return [p.numpy().tobytes() for p in bag.parameters()]


@pytest.mark.parametrize("device", ["cpu", "numpy"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_updates_as_programs_have_the_bits_of_their_operations(
    name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    with monkeypatch.context() as patch:
        op_by_op(patch)
        want = trained(name, device, **OPTIMIZERS[name])
        assert len(replays.UPDATES) == 0
    assert trained(name, device, **OPTIMIZERS[name]) == want
    assert 1 <= len(replays.UPDATES) <= 2  # that of the parameters, and where it computes something, that of the scalars


def test_settings_that_are_schedules_are_read_at_each_update() -> None:
    now = [0.5]
    bag = Bag("cpu")
    start = bag.p1.numpy().copy()
    optimizer = fb.optim.SGD(bag, lr=1.0, momentum=lambda step: fb.asarray(now[0]))
    for rate in (0.5, 0.5, 0.9, 0.9):
        now[0] = rate
        _, grads = fb.value_and_grad(lambda m: fb.sum(m.p1))(bag)
        optimizer.update(bag, grads)
    second = 0.5 + 1.0
    third = second * 0.9 + 1.0
    assert bag.p1.numpy() == pytest.approx(start - (1.0 + second + third + third * 0.9 + 1.0), rel=1e-5)
    assert len(replays.UPDATES) == 0


@pytest.mark.parametrize("change", ["rate", "scale", "settings", "parameter", "frozen", "moments", "nothing"])
def test_an_update_that_repeats_sees_what_has_changed(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> list[bytes]:
        bag = Bag("cpu")
        optimizer = fb.optim.Adam(bag, lr=0.01, groups=[{"params": "p1", "lr_scale": 0.5}])
        for step in range(12):
            if step == 8:
                if change == "rate":
                    optimizer.learning_rate = 0.5
                elif change == "scale":
                    optimizer.groups[1].lr_scale = 3.0
                elif change == "settings":
                    optimizer.groups[0].settings = replace(optimizer.groups[0].settings, betas=(0.5, 0.9))
                elif change == "parameter":
                    bag.p0 = bag.p0 * 2.0
                elif change == "frozen":
                    bag.p3.frozen = True
                elif change == "moments":
                    state = optimizer.state_dict()
                    state["moments"]["first"]["p0"] = fb.ones((4, 3))
                    optimizer.load_state_dict(state)
            _, grads = fb.value_and_grad(lambda m: sum((fb.sum(p**2.0) for p in m.parameters()), fb.zeros(())))(bag)
            optimizer.update(bag, grads)
        return [p.numpy().tobytes() for p in bag.parameters()]

    runs = []
    run = repeated_update.RepeatedUpdate.run

    def counted(self: Any, *args: Any) -> bool:
        runs.append(run(self, *args))
        return runs[-1]

    monkeypatch.setattr(repeated_update.RepeatedUpdate, "run", counted)
    found = trained()
    assert sum(runs) >= 5
    monkeypatch.setattr(repeated_update.RepeatedUpdate, "run", lambda *_: False)
    assert trained() == found
    if change != "nothing":
        kept, change = change, "nothing"
        assert trained() != found, kept


def test_a_program_that_gives_back_an_operand_is_not_fresh() -> None:
    x = fb.ones(3)
    made = replays.Replay(lambda natives: (natives[0] + 1,), [(0, x.aval), (0, None)], x.device)  # type: ignore[arg-type]
    assert not made.fresh
    assert made([x.storage.data])[1] == 0
    assert replays.Replay(lambda natives: (natives[0] + 1,), [(0, x.aval)], x.device).fresh  # type: ignore[arg-type]


@pytest.mark.parametrize("fails", ["__call__", "storages"])
def test_a_program_that_fails_leaves_the_work_to_the_operations(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that finds no memory for all its results at once."""
    with monkeypatch.context() as patch:
        op_by_op(patch)
        want = trained("Adam", "cpu")
    calls: list[int] = []

    def failing(self: replays.Replay, operands: Any) -> Any:
        calls.append(len(operands))
        raise MemoryError

    monkeypatch.setattr(replays.Replay, fails, failing)
    assert trained("Adam", "cpu") == want
    assert calls


def test_programs_are_bounded_and_what_was_counted_first_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "KEPT", 4)
    held, x = replays.Programs(), fb.ones(3)
    for key in "abcdef":
        for _ in range(replays.BEFORE + 1):
            made = held.count(key, lambda x: [x + 1.0], [x])
        assert isinstance(made, replays.Replay)
        assert held.count(key, lambda x: [x + 2.0], [x]) is made
        assert held.find(key, x.device) is made
    assert [k for k in "abcdef" if isinstance(held.find(k, x.device), replays.Replay)] == list("cdef")
    held.count("g", lambda x: [x + 1.0], [x])
    assert [k for k in "cdef" if isinstance(held.find(k, x.device), replays.Replay)] == list("ef")
