"""Schedules: torch's rate at every step of the same definition, their state, and what has no meaning."""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.core.errors import ConfigError
from firebrick.optim.schedule import from_state, to_state

STEPS = 240
LR = 0.7


def at(rate: optim.Schedule, t: int, device: str = "cpu") -> float:
    found = rate(fb.asarray(float(t), dtype=fb.float64, device=device))
    assert found.shape == ()
    assert found.dtype is fb.float64
    return float(found)


def cases() -> dict[str, tuple[optim.Schedule, Callable[[Any, Any], Any], int]]:
    """Ours; torch's of (torch.optim.lr_scheduler, optimizer); and for how many steps torch's goes on."""
    o = optim

    def one_cycle(**more: Any) -> Callable[[Any, Any], Any]:
        return lambda s, opt: s.OneCycleLR(opt, LR, total_steps=STEPS, cycle_momentum=False, **more)

    return {
        "constant": (o.constant(LR), lambda s, opt: s.LambdaLR(opt, lambda t: 1.0), STEPS),
        "step": (o.step(LR, 17, 0.6), lambda s, opt: s.StepLR(opt, 17, 0.6), STEPS),
        "multi step": (o.multi_step(LR, (5, 40, 40, 90), 0.4), lambda s, opt: s.MultiStepLR(opt, [5, 40, 40, 90], 0.4), STEPS),
        "exponential": (o.exponential(LR, 0.97), lambda s, opt: s.ExponentialLR(opt, 0.97), STEPS),
        "linear": (o.linear(LR, 50, 0.2, 0.9), lambda s, opt: s.LinearLR(opt, 0.2, 0.9, 50), STEPS),
        "polynomial": (o.polynomial(LR, 150, 1.7), lambda s, opt: s.PolynomialLR(opt, 150, 1.7), STEPS),
        "cosine": (o.cosine(LR, 200, final=0.1), lambda s, opt: s.CosineAnnealingLR(opt, 200, 0.1), 201),
        "cosine, restarts": (
            o.cosine_restarts(LR, 13, final=0.05), lambda s, opt: s.CosineAnnealingWarmRestarts(opt, 13, 1, 0.05), STEPS,
        ),
        "cosine, restarts twice as long": (
            o.cosine_restarts(LR, 7, 2, 0.05), lambda s, opt: s.CosineAnnealingWarmRestarts(opt, 7, 2, 0.05), STEPS,
        ),
        "cosine, restarts three times as long": (
            o.cosine_restarts(LR, 3, 3), lambda s, opt: s.CosineAnnealingWarmRestarts(opt, 3, 3), STEPS,
        ),
        "one cycle": (o.one_cycle(LR, STEPS), one_cycle(), STEPS),
        "one cycle of lines": (
            o.one_cycle(LR, STEPS, 0.4, 10.0, 100.0, "linear"),
            one_cycle(pct_start=0.4, div_factor=10.0, final_div_factor=100.0, anneal_strategy="linear"), STEPS,
        ),
        "one cycle of three phases": (o.one_cycle(LR, STEPS, 0.3, three_phase=True), one_cycle(three_phase=True), STEPS),
        "warmup": (
            o.warmup(o.exponential(LR, 0.98), 20, 0.1),
            lambda s, opt: s.SequentialLR(opt, [s.LinearLR(opt, 0.1, 1.0, 20), s.ExponentialLR(opt, 0.98)], [20]), STEPS,
        ),
        "sequential": (
            o.sequential((o.linear(LR, 30, 0.1), o.step(LR, 20, 0.5), o.exponential(LR, 0.9)), (30, 120)),
            lambda s, opt: s.SequentialLR(
                opt, [s.LinearLR(opt, 0.1, 1.0, 30), s.StepLR(opt, 20, 0.5), s.ExponentialLR(opt, 0.9)], [30, 120]
            ), STEPS,
        ),
        "product": (
            o.product((o.exponential(LR, 0.99), o.linear(1.0, 40, 0.25), o.step(1.0, 60, 0.3))),
            lambda s, opt: s.ChainedScheduler(
                [s.ExponentialLR(opt, 0.99), s.LinearLR(opt, 0.25, 1.0, 40), s.StepLR(opt, 60, 0.3)], optimizer=opt
            ), STEPS,
        ),
        "a function": (
            lambda step: LR / fb.sqrt(step + 1.0), lambda s, opt: s.LambdaLR(opt, lambda t: 1.0 / math.sqrt(t + 1)), STEPS,
        ),
    }  # fmt: skip


@pytest.mark.turns
@pytest.mark.parametrize("case", cases())
def test_the_rate_of_every_step_equals_torchs(case: str, device: str) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare schedules with")
    ours, make, steps = cases()[case]
    opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own use of a deprecated argument
        theirs = make(torch.optim.lr_scheduler, opt)
        for t in range(steps):
            np.testing.assert_allclose(at(ours, t, device), opt.param_groups[0]["lr"], rtol=1e-10, atol=1e-15, err_msg=f"{t}")
            opt.step()
            if t + 1 < steps:
                theirs.step()


@pytest.mark.parametrize("three", [False, True])
def test_momentum_cycles_as_in_torch_for_sgd_and_adam(three: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare schedules with")
    cycle = optim.one_cycle(0.05, 30, 0.4, three_phase=three)
    start = np.asarray([[0.5, -1.0], [2.0, 0.25]])
    for name, settings in (
        ("SGD", {"momentum": cycle.momentum(0.6, 0.9)}),
        ("SGD", {"momentum": cycle.momentum(0.6, 0.9), "nesterov": True}),
        ("Adam", {"betas": (cycle.momentum(0.6, 0.9), 0.95)}),
        ("AdamW", {"betas": (cycle.momentum(0.6, 0.9), 0.95)}),
    ):
        layer = nn.Linear(2, 2, bias=False, dtype=fb.float64)
        layer.load_state_dict({"weight": fb.asarray(start)})
        weight = torch.tensor(start, requires_grad=True)
        ours = getattr(optim, name)(layer, lr=cycle, **settings)
        plain = {"momentum": 0.9, "nesterov": "nesterov" in settings} if name == "SGD" else {"betas": (0.9, 0.95)}
        theirs = getattr(torch.optim, name)([weight], lr=0.05, **plain)
        rates = torch.optim.lr_scheduler.OneCycleLR(
            theirs, 0.05, total_steps=30, pct_start=0.4, base_momentum=0.6, max_momentum=0.9, three_phase=three
        )
        for t in range(30):
            theirs.zero_grad()
            (weight**2 / 2 + weight).sum().backward()
            theirs.step()
            ours.update(layer, fb.grad(lambda m: fb.sum(m.weight**2.0 / 2.0 + m.weight))(layer))
            np.testing.assert_allclose(layer.weight.numpy(), weight.detach().numpy(), rtol=1e-10, atol=1e-10)
            if t < 29:
                rates.step()


# reduce on plateau


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"factor": 0.5, "patience": 2, "cooldown": 3},
        {"factor": 0.5, "patience": 0, "threshold": 0.05, "threshold_mode": "abs"},
        {"factor": 0.3, "patience": 1, "mode": "max", "threshold": 0.01},
        {"factor": 0.3, "patience": 1, "mode": "max", "threshold_mode": "abs", "least": 0.01},
        {"factor": 0.1, "patience": 1, "eps": 1e-3},
    ],
    ids=str,
)
def test_reduce_on_plateau_equals_torchs(settings: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare schedules with")
    opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, **{{"least": "min_lr"}.get(k, k): v for k, v in settings.items()})
    ours = optim.reduce_on_plateau(LR, **settings)
    rng = np.random.default_rng(0)
    changes = 0
    for t in range(STEPS):
        metric = float(1.0 / (1.0 + t / 20.0) + 0.2 * rng.normal())
        theirs.step(metric)
        before = ours.rate
        assert ours.observe(metric) == ours.rate
        changes += ours.rate != before
        np.testing.assert_allclose(at(ours, t), opt.param_groups[0]["lr"], rtol=1e-12)
    assert changes


def test_a_reduction_changes_the_tensor_that_was_read_before(device: str) -> None:
    rate = optim.reduce_on_plateau(1.0, factor=0.5, patience=0)
    assert at(rate, 0, device) == 1.0
    held = next(iter(rate._shown.values()))
    rate.observe(1.0)
    rate.observe(1.0)
    assert held.item() == 0.5
    assert at(rate, 0, device) == 0.5


def test_a_plateau_may_scale_another_schedule_and_is_found_within_it() -> None:
    plateau = optim.reduce_on_plateau(1.0, factor=0.5, patience=0)
    rate = optim.warmup(optim.product((optim.exponential(1.0, 0.5), plateau)), 2)
    model = nn.Linear(2, 1)
    opt = optim.SGD(model, lr=rate, groups=[{"params": "bias", "lr": optim.product((plateau, 0.1))}])
    assert opt.plateaus() == [plateau]
    for metric in (1.0, 1.0):
        plateau.observe(metric)
    assert at(rate, 3) == 0.25


@pytest.mark.parametrize("mode", ["min", "max"])
def test_an_infinite_first_metric_is_no_improvement(mode: str) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    worst = math.inf if mode == "min" else -math.inf
    given = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(given, mode, patience=1)
    ours = optim.reduce_on_plateau(1.0, patience=1, mode=mode)
    for metric in (worst, worst, worst, 1.0, 1.0):
        theirs.step(metric)
        assert ours.observe(metric) == pytest.approx(given.param_groups[0]["lr"])


def test_nan_is_never_better() -> None:
    rate = optim.reduce_on_plateau(1.0, factor=0.5, patience=0)
    assert [rate.observe(v) for v in (math.nan, 2.0, math.nan)] == [0.5, 0.5, 0.25]
    assert rate.best == 2.0


# state


@pytest.mark.parametrize("case", [*(c for c in cases() if c != "a function"), "plateau", "momentum"])
def test_schedules_come_back_from_plain_values(case: str) -> None:
    plateau = optim.reduce_on_plateau(1.0, factor=0.5, patience=0)
    for metric in (3.0, 3.0, 2.0):
        plateau.observe(metric)
    more = {"plateau": optim.product((plateau, 0.5)), "momentum": optim.one_cycle(0.1, 20).momentum()}
    rate = more.get(case) or cases()[case][0]
    state = pickle.loads(pickle.dumps(to_state(rate)))
    found = from_state(state, None)
    assert found == rate
    assert [at(found, t) for t in range(50)] == [at(rate, t) for t in range(50)]


def test_a_function_within_a_schedule_is_taken_from_the_one_that_loads() -> None:
    def own(step: fb.Tensor) -> fb.Tensor:
        return step * 0.0 + 0.5

    rate = optim.sequential((own, optim.step(0.1, 5)), (4,))
    state = to_state(rate)
    found = from_state(state, optim.sequential((own, 1.0), (9,)))
    assert [at(found, t) for t in range(12)] == [at(rate, t) for t in range(12)]
    with pytest.raises(ConfigError, match="function in the state, none in its place"):
        from_state(state, optim.constant(0.1))


def test_a_plateaus_state_goes_with_its_optimizer() -> None:
    def make() -> optim.SGD:
        return optim.SGD(nn.Linear(2, 1), lr=optim.product((1.0, optim.reduce_on_plateau(1.0, factor=0.5, patience=1))))

    first, second = make(), make()
    for metric in (1.0, 1.0, 1.0, 1.0):
        first.plateaus()[0].observe(metric)
    second.load_state_dict(first.state_dict())
    assert second.learning_rate == first.learning_rate == 0.5
    assert [o.plateaus()[0].observe(1.0) for o in (first, second)] == [0.25, 0.25]


# what has no meaning, edges


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: optim.constant(-1.0), "lr is a finite number ≥ 0"),
        (lambda: optim.step(0.1, every=0), "step: every is an int ≥ 1"),
        (lambda: optim.step(0.1, every=2.5), "step: every is an int ≥ 1"),
        (lambda: optim.multi_step(0.1, 5), "multi_step: milestones are ints"),
        (lambda: optim.exponential(0.1, math.nan), "gamma is a finite number"),
        (lambda: optim.cosine(0.1, 5.5), "cosine: steps is an int ≥ 1"),
        (lambda: optim.one_cycle(0.1, 100, pct_start="half"), "pct_start is a finite number"),
        (lambda: optim.sequential(0.1, (5,)), "sequential: schedules is a tuple of schedules"),
        (lambda: optim.sequential((0.1, 0.2), 5), "sequential: milestones are ints"),
        (lambda: optim.product(0.1), "product: schedules is a tuple of schedules"),
        (lambda: optim.cosine(0.1, 5, warmup=5), r"cosine: warmup lies in \[0, steps\)"),
        (lambda: optim.cosine_restarts(0.1, 5, 1.5), "factor is an int ≥ 1"),
        (lambda: optim.one_cycle(0.1, 100, pct_start=1.0), r"pct_start lies in \(0, 1\)"),
        (lambda: optim.one_cycle(0.1, 100, anneal="cosine"), 'anneal is "cos" or "linear"'),
        (lambda: optim.one_cycle(0.1, 3), "each part of the cycle has at least one update"),
        (lambda: optim.one_cycle(0.1, 10).momentum(0.9, 0.8), "0 ≤ low ≤ high < 1"),
        (lambda: optim.polynomial(0.1, 0), "polynomial: steps is an int ≥ 1"),
        (lambda: optim.warmup(0.1, 5, math.nan), "warmup: start is a finite number"),
        (lambda: optim.warmup(0.1, 5, -0.5), "warmup: start is a finite number ≥ 0"),
        (lambda: optim.warmup("fast", 5), "a learning rate is a number or a schedule"),
        (lambda: optim.sequential((0.1, 0.2), (5, 6)), "there is one less than schedules"),
        (lambda: optim.sequential((0.1, 0.2, 0.3), (6, 5)), "milestones increase"),
        (lambda: optim.product(()), "product: at least one schedule"),
        (lambda: optim.reduce_on_plateau(0.1, factor=1.0), r"factor lies in \(0, 1\)"),
        (lambda: optim.reduce_on_plateau(0.1, mode="best"), 'mode is "min" or "max"'),
    ],
)
def test_settings_without_meaning_are_refused(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


def test_cosine_rises_and_falls_by_its_formula() -> None:
    rate = optim.cosine(0.5, steps=12, warmup=4, final=0.1)
    for t in range(15):
        u = min(max(t - 4, 0) / 8, 1.0)
        expected = 0.5 * (t + 1) / 4 if t < 4 else 0.1 + 0.4 * (1 + np.cos(np.pi * u)) / 2
        np.testing.assert_allclose(at(rate, t), expected, rtol=1e-12)


@pytest.mark.parametrize("factor", [2, 3, 5, 10])
def test_restarts_begin_exactly_where_they_should_also_in_float32(factor: int) -> None:
    rate = optim.cosine_restarts(1.0, 7, factor)
    begin = 0
    for n in range(6):
        for dtype in (fb.float32, fb.float64):
            assert rate(fb.asarray(float(begin), dtype=dtype)).item() == 1.0
            if begin:
                assert rate(fb.asarray(float(begin - 1), dtype=dtype)).item() < 0.1
        begin += 7 * factor**n


def test_after_its_last_step_a_rate_stays() -> None:
    for rate in (optim.one_cycle(0.1, 20), optim.polynomial(0.1, 20, final=0.01), optim.cosine(0.1, 20, final=0.01)):
        assert at(rate, 20) == at(rate, 500)


def test_changing_what_a_schedule_returned_changes_no_schedule() -> None:
    for schedule in (optim.constant(0.5), optim.reduce_on_plateau(0.5)):
        rate = schedule(fb.asarray(3.0))
        rate += 1.0
        assert schedule(fb.asarray(3.0)).item() == 0.5


def _restarted(period: int, factor: int, t: int) -> float:
    """The rate after t updates from 0.1 down to 0, counted in integers."""
    begin, length = 0, period
    while t >= begin + length:
        begin, length = begin + length, length * factor
    return 0.05 * (1 + math.cos(math.pi * (t - begin) / length))


@pytest.mark.parametrize("dtype", [fb.float32, fb.float64], ids=str)
@pytest.mark.parametrize("device", ["numpy", "cpu", "torch:cpu"])
@pytest.mark.parametrize(("period", "factor"), [(10, 10), (6, 6), (1000, 1000), (7, 1), (1, 2), (5, 3), (49, 1)])
def test_restarts_are_exact_in_integers(period: int, factor: int, device: str, dtype: fb.dtype) -> None:
    rate = fb.optim.cosine_restarts(0.1, period, factor)
    begins, length = [0], period
    while begins[-1] + length < 1 << 22 and len(begins) < 3000:
        begins.append(begins[-1] + length)
        length *= factor
    steps = sorted({t for b in (*begins[:6], *begins[-6:]) for t in (b - 1, b, b + 1) if t >= 0} | {19_999, 20_000})
    compiled = fb.jit(lambda t: rate(t))
    for k, t in enumerate(steps):
        step = fb.asarray(float(t), dtype=dtype, device=device)
        for function in (rate, compiled) if k % 4 == 0 or t in begins[-3:] else (rate,):
            assert function(step).item() == pytest.approx(_restarted(period, factor, t), abs=2e-8)


@pytest.mark.parametrize("device", ["numpy", "cpu", "torch:cpu"])
def test_steps_change_at_the_update_they_name(device: str) -> None:
    every = 3
    rate = fb.optim.step(1.0, every, 0.99999)
    for t in (8_388_605, 8_388_606, 8_388_607, 8_388_608, 299, 300):
        want = 0.99999 ** (t // every)
        exponent = math.log(rate(fb.asarray(float(t), dtype=fb.float64, device=device)).item()) / math.log(0.99999)
        assert round(exponent) == t // every, want
    last = fb.optim.cosine(0.1, steps=49, warmup=7)
    shown = [last(fb.asarray(float(t), device=device)).item() for t in (6, 7, 49, 50)]
    assert shown == pytest.approx([0.1, 0.1, 0.0, 0.0], abs=1e-8)
    assert shown[2:] == [0.0, 0.0]
