"""Settings of optimizers and schedules at their limits: the last value that is allowed is taken, and the next is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from limits import check_limit

import firebrick as fb
from firebrick import nn, optim

KINDS = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "LAMB", "Lion", "Muon", "NAdam", "RAdam", "RMSprop", "SGD")
BELOW_ONE = {"betas", "alpha", "rho", "momentum"}  # [0, 1)
UP_TO_ONE = {"dampening"}  # [0, 1]
ABOVE_ZERO = {("Adamax", "eps"), ("RAdam", "eps")}
LAST = math.nextafter(1.0, 0.0)


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(fb.asarray([[1.0, 2.0]]))]


def numeric() -> list[tuple[str, str]]:
    """Every optimizer with each of its settings that is a number, or several."""
    made = {kind: getattr(optim, kind)(parameters(), lr=0.1).settings for kind in KINDS}
    return [
        (kind, f.name)
        for kind, settings in made.items()
        for f in fields(settings)
        if isinstance(getattr(settings, f.name), (float, tuple)) and f.name != "coefficients"
    ]


@pytest.mark.parametrize(("kind", "name"), numeric())
def test_a_number_of_an_optimizer_is_taken_up_to_its_limits_and_refused_beyond_by_its_name(kind: str, name: str) -> None:
    def make(value: Any, groups: bool = False) -> Any:
        own = {name: (0.5, value) if name == "betas" else value}
        how: dict[str, Any] = {"groups": [{"params": "*", **own}]} if groups else own
        return getattr(optim, kind)(parameters(), lr=0.1, **how)

    allowed = [0.0, 0, LAST] if name in BELOW_ONE else [0.0, 1.0] if name in UP_TO_ONE else [0.0, 1e9, 2]
    refused = [-1e-9, math.inf, math.nan, "0.1", None, True]
    refused += [1.0] if name in BELOW_ONE else [1.0 + 1e-9] if name in UP_TO_ONE else []
    if (kind, name) in ABOVE_ZERO:
        allowed, refused = allowed[1:], [*refused, 0.0]
    for value in allowed:
        settings = make(value).settings
        assert getattr(settings, name) == ((0.5, value) if name == "betas" else value)
        make(value, groups=True)
    for value in refused:
        for groups in (False, True):
            with pytest.raises(fb.ConfigError, match=rf"^{kind}: {name}"):
                make(value, groups)


@pytest.mark.parametrize("kind", [k for k in KINDS if "betas" in {n for m, n in numeric() if m == k}])
@pytest.mark.parametrize("betas", [0.9, (0.9,), (0.9, 0.9, 0.9), None])
def test_betas_are_two_numbers(kind: str, betas: Any) -> None:
    with pytest.raises(fb.ConfigError, match=f"^{kind}: betas are two numbers"):
        getattr(optim, kind)(parameters(), lr=0.1, betas=betas)


def gradients() -> fb.Gradients:
    x = fb.asarray([3.0, 4.0]).require_grad()
    return fb.backward(fb.sum(x * x))


o = optim
# a call with one setting; values that are allowed, and values that are not
LIMITS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "Muon steps": (lambda v: o.Muon(parameters(), steps=v), (1, 99), (0, 100, 2.0, True)),
    "Muon coefficients": (lambda v: o.Muon(parameters(), coefficients=v), ((1, 2, 3),), ((1, 2), (1, 2, 3, 4))),
    "LBFGS lr": (lambda v: o.LBFGS(parameters(), lr=v), (0.0, 1e9), (-1e-9, math.inf, math.nan, True)),
    "LBFGS iterations": (lambda v: o.LBFGS(parameters(), iterations=v), (1,), (0, 1.0, True, None)),
    "LBFGS evaluations": (lambda v: o.LBFGS(parameters(), evaluations=v), (1, None), (0, 1.0, True)),
    "LBFGS history": (lambda v: o.LBFGS(parameters(), history=v), (1,), (0, 1.0, True, None)),
    "LBFGS gradients": (lambda v: o.LBFGS(parameters(), tolerance_gradient=v), (0.0,), (-1e-9, math.inf, True)),
    "LBFGS changes": (lambda v: o.LBFGS(parameters(), tolerance_change=v), (0.0,), (-1e-9, math.inf, True)),
    "EMA decay": (lambda v: o.EMA(parameters(), v), (0.0, LAST), (-1e-9, 1.0, math.nan, True)),
    "lr_scale": (
        lambda v: o.SGD(parameters(), 0.1, groups=[{"params": "*", "lr_scale": v}]), (0.0, 2),
        (-1e-9, math.inf, math.nan, "1", True),
    ),
    "clip_norm": (lambda v: o.clip_norm(gradients(), v), (1e-9, 1), (0.0, -1.0, math.inf, math.nan, "1", True)),
    "clip_norm p": (lambda v: o.clip_norm(gradients(), 1.0, p=v), (0.5, 1, math.inf), (0.0, -1.0, math.nan, True)),
    "clip_value": (lambda v: o.clip_value(gradients(), v), (1e-9, 1), (0.0, -1.0, math.inf, math.nan, True)),
    "constant": (lambda v: o.constant(v), (0.0, 1), (-1e-9, math.inf, math.nan, True, "1")),
    "step every": (lambda v: o.step(0.1, v), (1,), (0, 1.0, True)),
    "step gamma": (lambda v: o.step(0.1, 2, v), (0.0, 2.0), (-1e-9, math.inf)),
    "step lr": (lambda v: o.step(v, 2), (0.0,), (-1e-9, math.inf)),
    "multi_step milestones": (lambda v: o.multi_step(0.1, v), ((0,), (), [3, 3]), ((-1,), (1.0,), 3)),
    "multi_step gamma": (lambda v: o.multi_step(0.1, (1,), v), (0.0,), (-1e-9, math.inf)),
    "multi_step lr": (lambda v: o.multi_step(v, (1,)), (0.0,), (-1e-9, math.inf)),
    "exponential gamma": (lambda v: o.exponential(0.1, v), (0.0,), (-1e-9, math.inf)),
    "exponential lr": (lambda v: o.exponential(v, 0.1), (0.0,), (-1e-9, math.inf)),
    "linear lr": (lambda v: o.linear(v, 2), (0.0,), (-1e-9, math.inf)),
    "linear steps": (lambda v: o.linear(0.1, v), (1,), (0, 1.0, True)),
    "linear start": (lambda v: o.linear(0.1, 2, v), (0.0,), (-1e-9, math.inf)),
    "linear end": (lambda v: o.linear(0.1, 2, 0.1, v), (0.0,), (-1e-9, math.inf)),
    "polynomial lr": (lambda v: o.polynomial(v, 2), (0.0,), (-1e-9, math.inf)),
    "polynomial steps": (lambda v: o.polynomial(0.1, v), (1,), (0, 1.0, True)),
    "polynomial power": (lambda v: o.polynomial(0.1, 2, v), (0.0,), (-1e-9, math.inf)),
    "polynomial final": (lambda v: o.polynomial(0.1, 2, final=v), (0.0,), (-1e-9, math.inf)),
    "cosine lr": (lambda v: o.cosine(v, 2), (0.0,), (-1e-9, math.inf)),
    "cosine steps": (lambda v: o.cosine(0.1, v), (1,), (0, 1.0, True)),
    "cosine warmup": (lambda v: o.cosine(0.1, 4, v), (0, 3), (-1, 4, 1.0, True)),
    "cosine final": (lambda v: o.cosine(0.1, 4, final=v), (0.0,), (-1e-9, math.inf)),
    "cosine_restarts lr": (lambda v: o.cosine_restarts(v, 2), (0.0,), (-1e-9, math.inf)),
    "cosine_restarts period": (lambda v: o.cosine_restarts(0.1, v), (1,), (0, 1.0, True)),
    "cosine_restarts factor": (lambda v: o.cosine_restarts(0.1, 2, v), (1,), (0, 1.0, True)),
    "cosine_restarts final": (lambda v: o.cosine_restarts(0.1, 2, final=v), (0.0,), (-1e-9, math.inf)),
    "one_cycle lr": (lambda v: o.one_cycle(v, 20), (0.0,), (-1e-9, math.inf)),
    "one_cycle steps": (lambda v: o.one_cycle(0.1, v, 0.6), (2, 20), (1, 0, 20.0, True)),
    "one_cycle pct_start": (lambda v: o.one_cycle(0.1, 20, v), (0.051, 0.99), (0.0, 0.05, 1.0, "0.3")),
    "one_cycle of three phases": (lambda v: o.one_cycle(0.1, 20, v, three_phase=True), (0.3, 0.52), (0.05, 0.525)),
    "one_cycle div_factor": (lambda v: o.one_cycle(0.1, 20, div_factor=v), (1e-9,), (0.0, -1.0, math.inf)),
    "one_cycle final_div_factor": (lambda v: o.one_cycle(0.1, 20, final_div_factor=v), (1e-9,), (0.0, -1.0, math.inf)),
    "one_cycle_momentum low": (lambda v: o.one_cycle_momentum(v, 0.9, 20), (0.0, 0.9), (-1e-9, 0.91, True)),
    "one_cycle_momentum high": (lambda v: o.one_cycle_momentum(0.5, v, 20), (0.5, LAST), (0.49, 1.0, True)),
    "one_cycle_momentum steps": (lambda v: o.one_cycle_momentum(0.5, 0.9, v, 0.6), (2,), (1, 2.0, True)),
    "warmup steps": (lambda v: o.warmup(0.1, v), (1,), (0, 1.0, True)),
    "warmup start": (lambda v: o.warmup(0.1, 2, v), (0.0, 1.0), (-1e-9, math.inf)),
    "sequential": (lambda v: o.sequential((0.1, 0.2, 0.3), v), ((1, 2), [3, 9]), ((0, 2), (2, 2), (1,), (1, 2, 3), (1, 2.0))),
    "plateau lr": (lambda v: o.reduce_on_plateau(v), (0.0,), (-1e-9, math.inf)),
    "plateau factor": (lambda v: o.reduce_on_plateau(0.1, factor=v), (1e-9, LAST), (0.0, 1.0)),
    "plateau patience": (lambda v: o.reduce_on_plateau(0.1, patience=v), (0,), (-1, 1.0, True)),
    "plateau cooldown": (lambda v: o.reduce_on_plateau(0.1, cooldown=v), (0,), (-1, 1.0, True)),
    "plateau threshold": (lambda v: o.reduce_on_plateau(0.1, threshold=v), (0.0,), (-1e-9, math.inf)),
    "plateau least": (lambda v: o.reduce_on_plateau(0.1, least=v), (0.0,), (-1e-9, math.inf)),
    "plateau eps": (lambda v: o.reduce_on_plateau(0.1, eps=v), (0.0,), (-1e-9, math.inf)),
    "plateau mode": (lambda v: o.reduce_on_plateau(0.1, mode=v), ("min", "max"), ("rel", None)),
    "plateau threshold_mode": (lambda v: o.reduce_on_plateau(0.1, threshold_mode=v), ("rel", "abs"), ("min", None)),
}  # fmt: skip


@pytest.mark.parametrize("what", LIMITS)
def test_the_last_allowed_value_is_taken_and_the_next_is_refused(what: str) -> None:
    check_limit(LIMITS[what], fb.ConfigError)


@pytest.mark.parametrize(("eps", "rate"), [(0.5, 1.0), (0.499, 0.5)])
def test_a_plateau_lowers_the_rate_by_more_than_eps_or_not_at_all(eps: float, rate: float) -> None:
    plateau = optim.reduce_on_plateau(1.0, factor=0.5, patience=0, eps=eps)
    plateau.observe(1.0)
    assert plateau.observe(1.0) == rate


@pytest.mark.parametrize(
    ("mode", "threshold_mode", "wanted"), [("min", "rel", 1.5), ("max", "rel", 2.5), ("min", "abs", 1.75), ("max", "abs", 2.25)]
)
def test_a_metric_is_better_only_past_the_threshold(mode: str, threshold_mode: str, wanted: float) -> None:
    plateau = optim.reduce_on_plateau(1.0, patience=9, threshold=0.25, threshold_mode=threshold_mode, mode=mode)
    plateau.observe(2.0)
    plateau.observe(wanted)
    assert (plateau.best, plateau.waited) == (2.0, 1)
    better = wanted - 1e-9 if mode == "min" else wanted + 1e-9
    plateau.observe(better)
    assert (plateau.best, plateau.waited) == (better, 0)
