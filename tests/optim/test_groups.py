"""Parameter groups: who is in which, what differs there, and their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.core.errors import ConfigError


class Net(nn.Module):
    """Two dense layers and a norm."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.body = nn.Linear(3, 4, dtype=fb.float64)
        self.norm = nn.LayerNorm(4, dtype=fb.float64)
        self.head = nn.Linear(4, 2, dtype=fb.float64)
        for _, p in self.named_parameters():
            p[...] = fb.asarray(rng.normal(size=p.shape))

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.head(self.norm(self.body(x)))


def train(net: Net, opt: Any, steps: int = 20) -> None:
    for step in range(steps):
        x = fb.asarray(np.random.default_rng(step).normal(size=(5, 3)))
        opt.update(net, fb.grad(lambda m, x=x: fb.mean(m(x) ** 2.0))(net))


NO_DECAY = {"params": ["*.bias", "norm.*"], "weight_decay": 0.0}


def test_groups_are_chosen_by_pattern_module_list_or_function_and_the_first_that_names_one_has_it() -> None:
    net = Net()
    rows = [
        {"params": "*.bias", "weight_decay": 0.0},
        {"params": net.norm, "weight_decay": 0.1},
        {"params": [net.head.weight, net.head.bias], "lr_scale": 0.5},
        {"params": lambda name, p: p.ndim == 2, "lr": 0.3},
    ]
    opt = optim.AdamW(net, groups=rows)
    assert [g.names for g in opt.groups] == [
        (), ("body.bias", "norm.bias", "head.bias"), ("norm.weight",), ("head.weight",), ("body.weight",),
    ]  # fmt: skip
    assert [g.settings.weight_decay for g in opt.groups] == [0.01, 0.0, 0.1, 0.01, 0.01]
    assert "6 parameters in 5 groups" in repr(opt)


@pytest.mark.parametrize("name", ["SGD", "AdamW", "RMSprop"])
def test_groups_equal_torchs(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare groups with")
    net = Net()
    theirs = {n: torch.tensor(p.numpy().copy(), requires_grad=True) for n, p in net.named_parameters()}
    plain = [n for n in theirs if n.endswith("bias") or n.startswith("norm")]
    ours = getattr(optim, name)(
        net, lr=0.05, weight_decay=0.2, groups=[NO_DECAY, {"params": net.head, "lr": optim.step(0.5, 4, 0.5)}]
    )
    other = getattr(torch.optim, name)(
        [
            {"params": [theirs["body.weight"]]},
            {"params": [theirs[n] for n in plain], "weight_decay": 0.0},
            {"params": [theirs["head.weight"]], "lr": 0.5},
        ],
        lr=0.05,
        weight_decay=0.2,
    )
    for step in range(20):
        x = np.random.default_rng(step).normal(size=(5, 3))
        ours.update(net, fb.grad(lambda m, x=x: fb.mean(m(fb.asarray(x)) ** 2.0))(net))
        other.zero_grad()
        hidden = torch.nn.functional.linear(torch.asarray(x), theirs["body.weight"], theirs["body.bias"])
        hidden = torch.nn.functional.layer_norm(hidden, (4,), theirs["norm.weight"], theirs["norm.bias"])
        (torch.nn.functional.linear(hidden, theirs["head.weight"], theirs["head.bias"]) ** 2).mean().backward()
        other.param_groups[2]["lr"] = 0.5 * 0.5 ** (step // 4)
        other.step()
        for n, p in net.named_parameters():
            np.testing.assert_allclose(p.numpy(), theirs[n].detach().numpy(), rtol=1e-10, atol=1e-10)


def test_a_scaled_rate_follows_the_optimizers_schedule() -> None:
    nets = Net(), Net()
    rate = optim.exponential(0.2, 0.9)
    train(nets[0], optim.SGD(nets[0], lr=rate, groups=[{"params": "body.*", "lr_scale": 0.25}]))
    train(nets[1], optim.SGD(nets[1], lr=rate, groups=[{"params": "body.*", "lr": optim.exponential(0.05, 0.9)}]))
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-13)


def test_the_first_layer_stands_still_at_rate_0() -> None:
    net = Net()
    before = net.body.weight.tolist()
    train(net, optim.Adam(net, lr=0.1, groups=[{"params": net.body, "lr_scale": 0}]), 3)
    assert net.body.weight.tolist() == before


def make(net: Net) -> optim.Optimizer:
    rows = [
        NO_DECAY,
        {"params": "head.*", "lr": optim.reduce_on_plateau(0.1, patience=0), "betas": (0.5, 0.9), "amsgrad": True},
    ]
    return optim.AdamW(net, lr=optim.cosine(0.1, 30, warmup=4), weight_decay=0.3, groups=rows)


def test_groups_resume_bit_for_bit_with_their_settings_and_schedules() -> None:
    whole, first, second = Net(), Net(), Net()
    opts = [make(n) for n in (whole, first)]
    for net, opt in zip((whole, first), opts, strict=True):
        train(net, opt, 5)
        for metric in (1.0, 1.0):
            opt.plateaus()[0].observe(metric)
    second.load_state_dict(first.state_dict())
    rows = [{"params": ["*.bias", "norm.*"]}, {"params": "head.*"}]  # all else comes from the state
    resumed = optim.AdamW(second, groups=rows)
    resumed.load_state_dict(opts[1].state_dict())
    assert resumed.groups == opts[0].groups
    for net, opt in ((whole, opts[0]), (second, resumed)):
        train(net, opt, 7)
        opt.plateaus()[0].observe(1.0)
        train(net, opt, 2)
    assert [p.numpy().tobytes() for p in second.parameters()] == [p.numpy().tobytes() for p in whole.parameters()]


def test_settings_that_are_schedules_come_back_too() -> None:
    cycle = optim.one_cycle(0.1, 40)
    nets = Net(), Net(), Net()
    opts = [optim.Adam(n, lr=cycle, betas=(cycle.momentum(), 0.9)) for n in nets[:2]]
    for net, opt in zip(nets, opts, strict=False):
        train(net, opt, 5)
    nets[2].load_state_dict(nets[1].state_dict())
    resumed = optim.Adam(nets[2])
    resumed.load_state_dict(opts[1].state_dict())
    assert resumed.settings == opts[1].settings
    for net, opt in ((nets[0], opts[0]), (nets[2], resumed)):
        train(net, opt, 5)
    assert [p.numpy().tobytes() for p in nets[2].parameters()] == [p.numpy().tobytes() for p in nets[0].parameters()]


def test_a_state_of_other_groups_is_refused() -> None:
    net = Net()
    state = make(net).state_dict()
    with pytest.raises(nn.StateError, match="3 groups for 1"):
        optim.AdamW(net).load_state_dict(state)
    with pytest.raises(nn.StateError, match=r"elsewhere: .*norm\.weight"):
        optim.AdamW(net, groups=[{"params": "*.bias"}, {"params": "head.*"}]).load_state_dict(state)


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"params": "*"}, "SGD: groups is a list of dicts"),
        (["*.bias"], r"groups\[0\] is a dict with params\nReceived: str"),
        ([{"lr": 0.1}], r"groups\[0\] is a dict with params\nReceived: no params among lr"),
        ([{"params": "*.bias", "decay": 0.1}], r"unknown: decay"),
        ([{"params": "*.bais"}], r"groups\[0\]: each name pattern(.|\n)*'\*\.bais'; the parameters are body\.w"),
        ([{"params": "*"}, {"params": "*.bias"}], r"groups\[1\] takes at least one parameter(.|\n)*left are none"),
        ([{"params": 3}], r"params is a name pattern or several"),
        ([{"params": []}], r"params is a name pattern or several"),
        ([{"params": "*", "lr": 0.1, "lr_scale": 0.5}], "lr and lr_scale"),
        ([{"params": "*", "lr_scale": -1.0}], "lr_scale is a finite number ≥ 0"),
        ([{"params": "*", "momentum": 2.0}], r"SGD: momentum lies in \[0, 1\)"),
        ([{"params": "*", "lr": "fast"}], "a learning rate is a number or a schedule"),
    ],
)
def test_groups_without_meaning_are_refused(rows: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        optim.SGD(Net(), lr=0.1, groups=rows)


@pytest.mark.parametrize("fault", [lambda s: s.update(weight_decay=0.5), lambda s: s.update(betas=(0.8, 0.999))])
def test_a_comparison_of_resumed_groups_can_fail(fault: Callable[[dict[str, Any]], None]) -> None:
    nets = Net(), Net()
    opts = [make(n) for n in nets]
    state = opts[0].state_dict()
    fault(state["groups"][0]["settings"])
    opts[1].load_state_dict(state)
    for net, opt in zip(nets, opts, strict=True):
        train(net, opt, 3)
    assert nets[0].body.weight.tolist() != nets[1].body.weight.tolist()


def _before_groups(state: dict[str, Any]) -> None:
    """What an optimizer's state was before there were groups."""
    state["settings"] = state.pop("groups")[0]["settings"]
    state.pop("missed")


def _of_a_later_version(state: dict[str, Any]) -> None:
    state["groups"][1]["settings"]["cautious"] = True


def _of_a_later_schedule(state: dict[str, Any]) -> None:
    state["schedule"] = {**state["schedule"], "floor": 0.1}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_before_groups, "no groups, missed, as in a checkpoint of a version before(.|\n)*with a new optimizer"),
        (_of_a_later_version, "a state of AdamSettings holds betas(.|\n)*unknown: cautious"),
        (_of_a_later_schedule, "a state of constant holds lr(.|\n)*unknown: floor"),
    ],
)
def test_a_state_of_another_version_is_refused_and_nothing_is_changed(change: Callable[[Any], None], text: str) -> None:
    rows = [{"params": "*.bias", "lr": 0.5}]
    state = optim.Adam(Net(), lr=0.3, betas=(0.5, 0.6), groups=rows).state_dict()
    change(state)
    opt = optim.Adam(Net(), lr=0.1, groups=rows)
    with pytest.raises(nn.StateError, match=text):
        opt.load_state_dict(state)
    assert (opt.learning_rate, opt.settings.betas, opt.step) == (0.1, (0.9, 0.999), 0)


def test_a_state_with_a_function_that_is_not_given_again_changes_nothing() -> None:
    state = optim.SGD(Net(), lr=optim.product((lambda t: t * 0.0 + 0.1, 0.5)), momentum=0.9).state_dict()
    opt = optim.SGD(Net(), lr=0.1, momentum=0.5)
    with pytest.raises(ConfigError, match="given again when its state is loaded"):
        opt.load_state_dict(state)
    assert opt.settings.momentum == 0.5


def test_functions_of_ones_own_in_a_tuple_of_settings_are_those_of_the_optimizer_that_loads() -> None:
    def rising(t: Any) -> Any:
        return 0.9 - 0.5 / (t + 1.0)

    state = optim.Adam(Net(), betas=(rising, 0.99)).state_dict()
    resumed = optim.Adam(Net(), betas=(rising, 0.9))
    resumed.load_state_dict(state)
    assert resumed.settings.betas == (rising, 0.99)
    for betas in ((0.9, 0.9), (0.9, rising)):  # none in its place
        with pytest.raises(ConfigError, match="given again when its state is loaded"):
            optim.Adam(Net(), betas=betas).load_state_dict(state)


def test_what_a_group_names_is_there() -> None:
    net = Net()
    with pytest.raises(ConfigError, match=r"groups\[0\]: each name pattern fits a parameter(.|\n)*'bodi\.\*'"):
        optim.SGD(net, lr=0.1, groups=[{"params": ["*.bias", "bodi.*"], "lr": 0.2}])
    with pytest.raises(ConfigError, match="1 of 2 are not"):
        optim.SGD(net, lr=0.1, groups=[{"params": [net.body.bias, Net().body.bias], "lr": 0.2}])
    with pytest.raises(ConfigError, match="2 of 2 are not"):
        optim.SGD(net, lr=0.1, groups=[{"params": Net().body, "lr": 0.2}])


class Tied(nn.Module):
    """A head whose weight is the embedding's."""

    def __init__(self) -> None:
        self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5)
        self.head.weight = self.embed.weight


@pytest.mark.parametrize(
    "params",
    ["head.*", "head.weight", ["head.bias", "head.w*"], lambda name, p: name.startswith("head."), "module", "parameters"],
    ids=["pattern", "name", "patterns", "function", "module", "parameters"],
)
def test_a_tied_parameter_is_taken_by_any_of_its_names(params: Any) -> None:
    model = Tied()
    given = {"module": model.head, "parameters": model.head.parameters()}.get(params) if isinstance(params, str) else params
    opt = optim.SGD(model, 0.1, groups=[{"params": given or params, "lr": 0.0}])
    assert "embed.weight" in opt.groups[1].names
    before = model.embed.weight.tolist()
    opt.update(model, fb.autodiff.Gradients.of([(p, p.detach() + 1.0) for p in model.parameters()]))
    assert model.embed.weight.tolist() == before


@pytest.mark.parametrize("second", ["head.*", lambda name, p: name == "head.weight"], ids=["pattern", "function"])
def test_two_groups_that_take_a_tied_parameter_by_different_names_are_refused(second: Any) -> None:
    model = Tied()
    groups = [{"params": "embed.*", "lr": 1.0}, {"params": second, "lr": 0.0}]
    with pytest.raises(ConfigError, match=r"groups\[0\] takes embed\.weight, and groups\[1\] head\.weight") as caught:
        optim.AdamW(model, groups=groups)
    assert "leave it out of one of them" in str(caught.value)
    by_place = optim.AdamW(model, groups=[{"params": model.embed}, {"params": ["head.*"]}])  # the first takes all of its names
    assert [g.names for g in by_place.groups] == [(), ("embed.weight",), ("head.bias",)]
