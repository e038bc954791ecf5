"""A step of one's own, with several losses and optimizers, is the same loop by hand: on any device, compiled, resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Callback, DataParallel, Learner, TrainingError, TrainingInterrupted
from firebrick.train.optimizers import Optimizers


class GAN(nn.Module):
    """A generator and a discriminator of points in the plane."""

    def __init__(self) -> None:
        self.generator = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
        self.discriminator = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))


def of_discriminator(model: Any, points: Any, noise: Any) -> Any:
    made = model.generator(noise).detach()
    real, fake = model.discriminator(points), model.discriminator(made)
    return fb.mean(fb.softplus(-real)) + fb.mean(fb.softplus(fake))


def of_generator(model: Any, points: Any, noise: Any) -> Any:
    return fb.mean(fb.softplus(-model.discriminator(model.generator(noise))))


def step(minimizer: Any, batch: Any) -> dict[str, Any]:
    d = minimizer.minimize(of_discriminator, batch, "discriminator")
    g = minimizer.minimize(of_generator, batch, "generator")
    return {"discriminator": d, "generator": g}


def parts(lr: float = 0.02) -> tuple[GAN, dict[str, Any]]:
    fb.random.seed(4)
    model = GAN()
    return model, {
        "generator": optim.Adam(model.generator, lr=lr, betas=(0.5, 0.99)),
        "discriminator": optim.Adam(model.discriminator, lr=lr, betas=(0.5, 0.99)),
    }


def loader() -> DataLoader:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30, 2)) * 0.3 + [1.0, -1.0]
    return DataLoader(ArrayDataset(points, rng.normal(size=(30, 3))), 8, shuffle=True, seed=2)


def bits(model: nn.Module) -> dict[str, bytes]:
    return {n: t.numpy().tobytes() for n, t in model.state_dict().items()}


def by_hand(epochs: int) -> tuple[GAN, list[tuple[float, float]]]:
    model, rules = parts()
    found, order = [], loader()
    for epoch in range(epochs):
        order.set_epoch(epoch)
        total = np.zeros(2)
        for points, noise in order:
            values = []
            for name, fn in (("discriminator", of_discriminator), ("generator", of_generator)):
                value, gradients = fb.value_and_grad(fn)(model, points, noise)
                part = getattr(model, name)
                pairs = [(p, gradients[p]) for p in part.parameters()]
                rules[name].update(part, fb.Gradients.of(pairs))
                values.append(value.item())
            total += np.array(values) * points.shape[0]
        found.append(tuple(total / 30))
    return model, found


@pytest.mark.parametrize("jit", [True, False])
def test_a_gan_in_a_learner_is_the_one_of_a_loop_by_hand(jit: bool) -> None:
    model, rules = parts()
    rows = Learner(model, rules, step=step, jit=jit, log=None).fit(loader(), epochs=3)
    own, expected = by_hand(3)
    for (name, a), (_, b) in zip(model.named_parameters(), own.named_parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-5, atol=2e-6, err_msg=name)
    for row, (d, g) in zip(rows, expected, strict=True):
        assert row.metrics == pytest.approx({"train_discriminator": d, "train_generator": g}, rel=1e-5)
        assert row.train_loss == pytest.approx(d + g, rel=1e-5)


def test_one_device_runs_it_as_one_graph() -> None:
    model, rules = parts()
    learner = Learner(model, rules, step=step, log=None)
    learner.fit(loader(), epochs=3)
    assert learner.compiled["training step"].reason is None
    assert learner.compiled["training step"].traces == 2  # of a whole batch and of the last one


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize("options", [{"accumulate": 3}, {"strategy": ["cpu:0", "cpu:1", "numpy:0"]}])
def test_parts_and_devices_give_the_same(options: dict[str, Any], jit: bool) -> None:
    if "strategy" in options:
        options = {"strategy": DataParallel(options["strategy"])}
    alone, divided = parts(), parts()
    rows = [
        Learner(*made, step=step, log=None, jit=jit, **more).fit(loader(), epochs=2)
        for made, more in ((alone, {}), (divided, options))
    ]
    for (name, a), (_, b) in zip(alone[0].named_parameters(), divided[0].named_parameters(), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)
    for a, b in zip(*rows, strict=True):
        assert a.metrics == pytest.approx(b.metrics, rel=1e-4)


class Stop(Callback):
    """Stops after a step, as Ctrl-C does."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_step_end(self, learner: Learner, step: int, values: Any) -> None:
        if step == self.at:
            learner.interrupts.stop()


@pytest.mark.parametrize("at", [2, 4, 5])
def test_a_gan_resumes_to_the_same_bits(tmp_path: Path, at: int) -> None:
    whole, rules = parts()
    rows = Learner(whole, rules, step=step, log=None, seed=3).fit(loader(), epochs=3)
    model, rules = parts()
    with pytest.raises(TrainingInterrupted):
        Learner(model, rules, step=step, log=None, seed=3, out=tmp_path / "run", callbacks=[Stop(at)]).fit(
            loader(), epochs=3, draw=False
        )
    model, rules = parts()
    learner = Learner(model, rules, step=step, log=None, seed=3, out=tmp_path / "run")
    learner.resume()
    again = learner.fit(loader(), epochs=3, draw=False)
    assert bits(model) == bits(whole)
    assert [r.metrics for r in again] == [r.metrics for r in rows]
    other = Learner(parts()[0], optim.Adam(model, lr=1.0), log=None)
    with pytest.raises(fb.FirebrickError):
        other.resume(tmp_path / "run")


def test_an_exception_within_a_step_leaves_a_run_that_goes_on() -> None:
    whole, rules = parts()
    Learner(whole, rules, step=step, log=None, seed=3).fit(loader(), epochs=2)
    calls = iter(range(100))

    def failing(minimizer: Any, batch: Any) -> Any:
        found = step(minimizer, batch)
        if next(calls) == 2:
            raise ZeroDivisionError("by the user")
        return found

    model, rules = parts()
    learner = Learner(model, rules, step=failing, log=None, seed=3, jit=False)
    with pytest.raises(ZeroDivisionError):
        learner.fit(loader(), epochs=2)
    assert learner.step == 2
    learner.fit(loader(), epochs=2)
    plain, rules = parts()
    Learner(plain, rules, step=step, log=None, seed=3, jit=False).fit(loader(), epochs=2)
    assert bits(model) == bits(plain)


def test_one_optimizer_and_one_loss_need_no_name_and_average_and_clip() -> None:
    model, _ = parts()

    def only(minimizer: Any, batch: Any) -> None:
        minimizer.minimize(of_generator, batch)

    rule = optim.SGD(model, lr=0.1)
    learner = Learner(model, rule, step=only, clip_norm=0.01, ema=0.5, log=None)
    seen: list[dict[str, float]] = []

    class Watch(Callback):
        def on_step_end(self, learner: Learner, step: int, values: Any) -> None:
            seen.append(dict(values))

    learner.callbacks = (Watch(),)
    before = bits(model.discriminator)
    rows = learner.fit(loader(), epochs=1)
    assert rows[0].metrics == {}
    assert all(v["gradient_norm"] > 0 for v in seen)
    assert bits(model.discriminator) != before
    assert learner.ema is not None
    assert learner.ema.step == learner.step == len(seen) > 2
    own, averages = dict(model.named_parameters()), learner.ema.averages
    assert any(not np.array_equal(own[n].numpy(), a.numpy()) for n, a in averages.items())


def tried(model: GAN, rules: Any, fn: Any) -> Any:
    return Learner(model, rules, step=fn, log=None).fit(loader(), epochs=1)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda m, r: Learner(m, r, log=None), "no step"),
        (lambda m, r: Learner(m, {}, step=step), "an empty dict"),
        (lambda m, r: Learner(m, {"a": print}, step=step), "optimizers by name"),
        (lambda m, r: Learner(m, {**r, "all": optim.SGD(m, lr=0.1)}, step=step), "one optimizer at most"),
        (lambda m, r: Learner(m, {"a": optim.SGD(GAN(), lr=0.1)}, step=step), "none of another model"),
        (lambda m, r: Learner(m, r, step=3), "step is a function"),
        (lambda m, r: Learner(m, r, step=step, precision="bfloat16"), "chooses its precision itself"),
        (lambda m, r: Learner(m, r, step=step, strategy=DataParallel(["cpu:0", "cpu:1"], "measured")), "shares of devices"),
        (lambda m, r: tried(m, r, lambda s, b: s.minimize(of_generator, b)), "names one"),
        (lambda m, r: tried(m, r, lambda s, b: s.minimize(of_generator, b, "other")), "names one"),
        (lambda m, r: tried(m, r, lambda s, b: s.minimize(lambda m, *b: b[0], b, "generator")), "one floating number"),
        (lambda m, r: tried(m, r, lambda s, b: (step(s, b), {"a": 1})[1]), "by name"),
        (lambda m, r: tried(m, r, lambda s, b: None), "did not call minimize"),
        (lambda m, r: setattr(Learner(m, r, step=step).optimizer, "learning_rate", 1.0), r'\["generator"\]\.learning'),
    ],
)  # fmt: skip
def test_wrong_steps_and_optimizers_are_refused(make: Any, match: str) -> None:
    with pytest.raises(TrainingError, match=match):
        make(*parts())


def test_several_optimizers_are_one() -> None:
    model, rules = parts()
    both = Optimizers(model, rules)
    assert both["generator"] is rules["generator"]
    assert [name for name, _ in both.parameters("discriminator")] == [
        f"discriminator.{n}" for n, _ in model.discriminator.named_parameters()
    ]
    assert both.named("discriminator") == ("discriminator", rules["discriminator"])
    for name in (None, "other"):
        with pytest.raises(TrainingError, match=f"one of the optimizers generator, discriminator\nReceived: {name!r}"):
            both.named(name)
    alone = Optimizers(model, {"all": optim.SGD(model, lr=0.25)})
    assert alone.named(None)[0] == "all"
    assert alone.learning_rate == 0.25
    with pytest.raises(TrainingError, match="several optimizers are updated one by one"):
        both.update(model, None)
    assert both.step == 0
    assert len(both.counters()) == 2


@pytest.mark.parametrize(
    ("state", "received"),
    [
        ({}, "one optimizer"), ({"optimizers": [1]}, "one optimizer"), ({"optimizers": {"a": {}, "b": {}}}, "a, b"),
        ({"optimizers": {"generator": {}}}, "generator"),
    ],
)  # fmt: skip
def test_a_state_of_other_optimizers_is_refused(state: Any, received: str) -> None:
    model, rules = parts()
    with pytest.raises(nn.StateError, match=f"a state of the optimizers generator, discriminator\nReceived: {received}[.]"):
        Optimizers(model, rules).load_state_dict(state)


def test_a_state_of_which_one_part_is_wrong_changes_none() -> None:
    model, rules = parts()
    both = Optimizers(model, rules)
    state = both.state_dict()
    rules["generator"].learning_rate = 0.5
    state["optimizers"]["discriminator"] = {**state["optimizers"]["discriminator"], "optimizer": "SGD"}
    with pytest.raises(nn.StateError):
        both.load_state_dict(state)
    assert rules["generator"].learning_rate == 0.5
