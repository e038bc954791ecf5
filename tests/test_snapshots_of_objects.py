"""Snapshots of layers, losses, optimizers, schedules, metrics and distributions with another value for one argument.

``PYTHONPATH=src:tests/shared python tests/test_snapshots_of_objects.py`` writes
``snapshots_of_objects.txt`` anew, where a change is meant; it first compares the results with those of the engine ``torch``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sample_objects import DISTRIBUTIONS, INITIAL, LAYERS, METRICS, OPTIMIZERS, ROWS, SCHEDULES, ramp
from snapshots import FEW, Call, differences, write

import firebrick as fb
from firebrick import distributions, nn, optim
from firebrick.train import metrics

FILE = Path(__file__).with_name("snapshots_of_objects.txt")


def call(name: str, made: Callable[..., Any], given: tuple[Any, ...], used: Callable[[Any], Any]) -> Call:
    """A call that makes an object and uses it."""
    names = [p.name for p in inspect.signature(made).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]

    def run(arguments: dict[str, Any]) -> Any:
        fb.random.seed(1)
        return used(made(**arguments))

    return Call(name, run, dict(zip(names, given, strict=False)), made, settings=FEW)


def updated(made: Any, device: str) -> Callable[[dict[str, Any]], Any]:
    """A function of an optimizer's settings: parameters after two updates."""

    def run(settings: dict[str, Any]) -> Any:
        model = nn.Linear(3, 4, generator=fb.random.Generator(0), device=device)
        rule, x = made(model, **settings), fb.asarray(ramp(2, 3), device=device)
        for scale in (1.0, -2.0):
            _, grads = fb.value_and_grad(lambda m, s=scale: fb.sum(fb.tanh(m(x))) * s)(model)
            rule.update(model, grads)
        return [model.weight.detach(), model.bias.detach()]

    return run


def averaged(settings: dict[str, Any]) -> Any:
    model = nn.Linear(3, 4, generator=fb.random.Generator(0), device=settings.pop("device"))
    rule = optim.EMA(model, **settings)
    for _ in range(3):
        model.load_state_dict({k: v * 2.0 + 1.0 for k, v in model.state_dict().items()})
        rule.update()
    return list(rule.averages.values())


def scheduled(schedule: Any, device: str) -> Any:
    if not callable(schedule):
        return repr(schedule)
    return [schedule(fb.asarray(k, dtype=fb.float32, device=device)) for k in (0, 1, 2, 3, 5, 9)]


def measured(metric: Any, arrays: list[fb.Tensor]) -> Any:
    metric.update(*arrays)
    first = metric.compute()
    metric.update(*(a[:2] for a in arrays))
    return repr(first), repr(metric.compute())


def described(d: Any, device: str) -> Any:
    """Densities and moments; a distribution of numbers lies on the default device."""
    values = [d.log_prob(fb.asarray(v, device=device)) for v in (1.0, 0.5)]
    try:
        entropy = d.entropy()
    except fb.UnsupportedError as e:
        entropy = str(e)[:40]
    return values, d.mean, d.variance, entropy, d.sample((3,), generator=fb.random.Generator(0))


def calls(device: str) -> Iterator[Call]:
    def on(arrays: tuple[Any, ...]) -> list[fb.Tensor]:
        return [fb.asarray(a, device=device) for a in arrays]

    for name, (given, arrays) in LAYERS.items():
        made = getattr(nn, name)
        home = {"device": device} if "device" in inspect.signature(made).parameters else {}

        def used(layer: Any, arrays: Any = arrays) -> Any:
            found = layer(*on(arrays))
            layer.eval()
            return found, layer(*on(arrays)), repr(layer)

        one = call(f"nn.{name}", made, given, used)
        yield one._replace(given=one.given | home)
    for made in (nn.spectral_norm, nn.weight_norm):

        def wrapped(settings: dict[str, Any], made: Any = made) -> Any:
            layer = nn.Linear(6, 4, generator=fb.random.Generator(0), device=device)
            layer = made(layer, **settings)
            found = layer(*on((ROWS,)))
            layer.eval()
            return found, layer(*on((ROWS,))), sorted(layer.state_dict())

        yield Call(f"nn.{made.__name__}", wrapped, {}, made, settings=FEW)
    for name, given in INITIAL.items():
        made = getattr(nn.initial, name)
        one = call(f"initial.{name}", made, given, lambda p: p if isinstance(p, float) else p.detach())
        yield one._replace(given=one.given | ({"device": device} if name != "gain" else {}))
    for name, given in OPTIMIZERS.items():
        made = getattr(optim, name)
        one = call(f"optim.{name}", made, (None, *given), repr)
        del one.given["model"]
        yield one._replace(run=updated(made, device))
    yield Call("optim.EMA", averaged, {"device": device}, optim.EMA, settings=FEW)
    for name, given in SCHEDULES.items():
        yield call(f"optim.{name}", getattr(optim, name), given, lambda s: scheduled(s, device))
    for name, (given, arrays) in METRICS.items():
        yield call(f"metrics.{name}", getattr(metrics, name), given, lambda m, a=arrays: measured(m, on(a)))
    with fb.config.scope(device=device):
        for name, given in DISTRIBUTIONS.items():
            yield call(f"distributions.{name}", getattr(distributions, name), given, lambda d: described(d, device))


def test_calls_have_the_outcomes_of_their_snapshots() -> None:
    assert differences(FILE, calls("numpy")) == [], f"if this is meant: {__doc__}"


if __name__ == "__main__":
    write(FILE, calls("numpy"), calls("torch:cpu"))
