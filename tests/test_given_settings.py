"""A device, dtype or generator that a call is given, itself or with its tensors, is that of all that it makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import sample_arguments
from other_defaults import refusing
from sample_objects import INDICES, INITIAL, LAYERS, METRICS, OPTIMIZERS, SCHEDULES, SERIES, ramp

import firebrick as fb
from firebrick import analog, data, distributions, models, nn, optim, random
from firebrick.core import trees
from firebrick.train import metrics

DEVICE = "other:0"
RECURRENT = ("RNN", "LSTM", "GRU")
X, SQUARE = ramp(5, 6), ramp(3, 3)
CHANCES = np.asarray([[0.25, 0.5, 0.25], [0.5, 0.125, 0.375]], np.float32)
SIZES = np.asarray([0.5, 1.5, 3.0], np.float32)
SPREAD = np.asarray([[2.0, 0.5, 0.25], [0.5, 1.0, 0.125], [0.25, 0.125, 3.0]], np.float32)


def on(*arrays: Any) -> list[fb.Tensor]:
    """Arrays on the device."""
    return [fb.asarray(a, device=DEVICE) for a in arrays]


def made(function: Any, *args: Any, seed: int = 0, **settings: Any) -> Any:
    """What a function or class makes with the device, float32 and a generator, as far as it takes them."""
    names = inspect.signature(function).parameters
    own = {"device": DEVICE, "dtype": fb.float32, "generator": random.Generator(seed), "seed": seed}
    if "generator" in names:
        del own["seed"]
    return function(*args, **{k: v for k, v in own.items() if k in names}, **settings)


def used(layer: nn.Module, *arrays: Any) -> Any:
    """Results of a layer in training and in evaluation, gradients of its parameters, and its state."""
    x = on(*arrays)

    def loss(m: Any) -> Any:
        floats = [t for t in trees.flatten(m(*x))[0] if isinstance(t, fb.Tensor) and t.dtype.kind == "float"]
        return sum([fb.sum(t * t) for t in floats[1:]], fb.sum(floats[0] * floats[0]))

    found = [layer(*x)]
    if list(layer.parameters()):
        found.append(fb.value_and_grad(loss)(layer))
    layer.eval()
    return [*found, layer(*x), layer.state_dict()]


def functions() -> Iterator[tuple[str, Callable[[], Any]]]:
    for c in (*sample_arguments.calls(), *sample_arguments.chapters()):
        where = {"device": DEVICE, "dtype": fb.float32} if c.name in ("fft.fftfreq", "fft.rfftfreq") else {}
        if c.name != "astype":
            yield c.name, lambda c=c, where=where: c(c.on(DEVICE), **where)
    yield "histogram", lambda: fb.histogram(on(X)[0], bins=[-1.0, 0.0, 1.0])


def layers() -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, (args, arrays) in LAYERS.items():
        yield name, lambda name=name, args=args, arrays=arrays: used(made(getattr(nn, name), *args), *arrays)
    for stack, arrays in ((nn.TransformerEncoder, (SERIES,)), (nn.TransformerDecoder, (SERIES, SERIES))):
        for norm_first in (True, False):
            yield (
                stack.__name__,
                lambda stack=stack, arrays=arrays, norm_first=norm_first: used(
                    made(stack, 6, 2, 1, norm_first=norm_first), *arrays
                ),
            )
    for name, args in INITIAL.items():
        if name != "gain":
            yield name, lambda name=name, args=args: made(getattr(nn.initial, name), *args).detach()


def draws() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from {
        "exponential": lambda: made(random.exponential, 9), "gumbel": lambda: made(random.gumbel, 9),
        "laplace": lambda: made(random.laplace, 9), "truncated_normal": lambda: made(random.truncated_normal, 9),
        "gamma": lambda: made(random.gamma, 9, alpha=0.5), "beta": lambda: made(random.beta, 9, a=0.5, b=2.0),
        "dirichlet": lambda: made(random.dirichlet, (9, 3), alpha=on(SIZES)[0]),
        "poisson": lambda: [made(random.poisson, 9, rate=r) for r in (2.0, 50.0)],
        "binomial": lambda: [made(random.binomial, 9, n=n, p=0.25) for n in (5, 500)],
        "multinomial": lambda: made(random.multinomial, (9, 3), n=5, p=on(CHANCES[0])[0]),
        "categorical": lambda: made(random.categorical, *on(CHANCES)),
        "choice": lambda: [made(random.choice, 9, 4, replace=r) for r in (True, False)],
        "choice with p": lambda: made(random.choice, on(SIZES)[0], 4, p=on(CHANCES[0])[0]),
        "of a generator": lambda: [
            made(getattr(random.Generator(0), n), 5) for n in ("uniform", "normal", "bernoulli", "permutation")
        ],
    }.items()  # fmt: skip


def drawn_and_measured(d: distributions.Distribution) -> Any:
    x = d.sample((4,), generator=random.Generator(1))
    found = [x, d.log_prob(x)]
    for take in (lambda: d.mean, lambda: d.variance, d.entropy, lambda: d.cdf(x), lambda: d.icdf(d.cdf(x))):
        try:
            found.append(take())
        except (fb.UnsupportedError, AttributeError):  # not every distribution has each
            continue
    return found


NUMBERED = {"Beta": 2, "Exponential": 1, "Gamma": 2, "HalfNormal": 1, "Poisson": 1, "Cauchy": 2, "Gumbel": 2, "Laplace": 2,
         "LogNormal": 2, "Normal": 2, "StudentT": 3}  # fmt: skip
FAMILIES: dict[str, Callable[[], distributions.Distribution]] = {
    **{n: lambda n=n, k=k: getattr(distributions, n)(*on(*[SIZES + 3.0] * k)) for n, k in NUMBERED.items()},
    "Uniform": lambda: distributions.Uniform(*on(-SIZES, SIZES)), "Bernoulli": lambda: distributions.Bernoulli(*on(CHANCES)),
    "Bernoulli of logits": lambda: distributions.Bernoulli(logits=on(SQUARE)[0]),
    "Binomial": lambda: distributions.Binomial(4, *on(CHANCES)),
    "Binomial of logits": lambda: distributions.Binomial(4, logits=on(SQUARE)[0]),
    "Geometric": lambda: distributions.Geometric(*on(CHANCES)),
    "Geometric of logits": lambda: distributions.Geometric(logits=on(SQUARE)[0]),
    "Categorical": lambda: distributions.Categorical(*on(CHANCES)),
    "Categorical of logits": lambda: distributions.Categorical(logits=on(SQUARE)[0]),
    "Dirichlet": lambda: distributions.Dirichlet(*on(SIZES)),
    "Multinomial": lambda: distributions.Multinomial(5, *on(CHANCES)),
    "Independent": lambda: distributions.Independent(distributions.Normal(*on(SQUARE, SPREAD)), 1),
    "MultivariateNormal": lambda: distributions.MultivariateNormal(*on(SIZES, SPREAD)),
}  # fmt: skip


def laws() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from ((n, lambda f=f: drawn_and_measured(f())) for n, f in FAMILIES.items())
    for name, family in FAMILIES.items():

        def divergence(family: Any = family) -> Any:
            try:
                return distributions.kl_divergence(family(), family())
            except fb.UnsupportedError:
                return []

        yield f"divergence of {name}", divergence


def whole_models() -> Iterator[tuple[str, Callable[[], Any]]]:
    images, series, one = ramp(2, 1, 8, 8), ramp(2, 12, 2), ramp(2, 12)
    yield from {
        "mlp": lambda: used(made(models.mlp, 64, (3,), 4), images),
        "lenet": lambda: used(made(models.lenet, image=12), ramp(2, 1, 12, 12)),
        "cnn": lambda: used(made(models.cnn, image=8, width=2, features=4), images),
        "resnet18": lambda: used(made(models.resnet18, channels=1, width=1), images),
        "transformer": lambda: used(made(models.transformer, image=8, patch=4, dim=4, heads=2, layers=1), images),
        "forecaster": lambda: used(made(models.patch_transformer_forecaster, 12, 2, 4, dim=4, heads=2, layers=1), one),
        "patchtst": lambda: used(
            made(models.patchtst, 2, 12, 2, patch=4, stride=2, dim=4, heads=2, hidden=4, layers=1, dropout=0.25), series
        ),
        "lstm": lambda: used(made(models.lstm_forecaster, 2, 12, 2, hidden=3), series),
        "GPT": lambda: used(made(models.GPT, 7, length=8, dim=8, heads=2, layers=1, key_heads=1), INDICES),
        "generate": lambda: [
            models.generate(made(models.GPT, 7, length=12, dim=8, heads=2, layers=1), [[1, 2], [3]], max_tokens=3, **how)
            for g in [random.Generator(1)]
            for how in ({"generator": g, "top_p": 0.5, "top_k": 3}, {"generator": g, "beams": 2})
        ],
    }.items()  # fmt: skip


def training() -> Iterator[tuple[str, Callable[[], Any]]]:
    def updated(rule: Any, *args: Any) -> Any:
        model = made(nn.Linear, 6, 2)
        rule = rule(model, *args)
        for _ in range(2):
            rule.update(model, fb.value_and_grad(lambda m: fb.sum(m(*on(X)) ** 2.0))(model)[1])
        return [model.state_dict(), rule.state_dict()]

    def averaged() -> Any:
        model = made(nn.Linear, 6, 2)
        rule = optim.EMA(model)
        rule.update()
        return [rule.averages, rule.state_dict()]

    def measured(metric: Any, arrays: Any) -> Any:
        metric.update(*on(*arrays))
        return metric.compute()

    yield "EMA", averaged
    for name, args in OPTIMIZERS.items():
        yield name, lambda name=name, args=args: updated(getattr(optim, name), *args)
    for name, args in SCHEDULES.items():
        yield name, lambda name=name, args=args: [s(on(np.float32(3))[0]) if callable(s := getattr(optim, name)(*args)) else []]
    for name, (args, arrays) in METRICS.items():
        yield name, lambda name=name, args=args, arrays=arrays: measured(getattr(metrics, name)(*args), arrays)
    rows = data.ArrayDataset(X, np.arange(5))
    yield "DataLoader", lambda: list(made(data.DataLoader, rows, 2, shuffle=True))


def tiles() -> Iterator[tuple[str, Callable[[], Any]]]:
    x, d = ramp(3, 2), ramp(3, 3)

    def used_up(config: analog.RPUConfig) -> Any:
        tile = made(analog.Tile, 3, 2, config)
        tile.set_weights(*on(ramp(3, 2) * 0.05))
        found = [tile.forward(*on(x)), tile.backward(*on(d))]
        for lr in (0.5, *on(np.float32(0.25))):
            tile.update(*on(x, d), lr)
            tile.end_mini_batch()
        for change in (tile.decay, tile.diffuse, lambda: tile.drift(60.0), tile.reset, lambda: tile.reset(0, 1, 0.5)):
            try:
                change()
            except (fb.UnsupportedError, fb.ConfigError):  # not every device fades or can be reset
                continue
        return [*found, tile.scaled_weights(), tile.state_dict()]

    def inferred(config: analog.InferenceRPUConfig) -> Any:
        tile = made(analog.InferenceTile, 3, 2, config)
        tile.set_weights(*on(ramp(3, 2) * 0.05))
        found = [tile.forward(*on(x)), tile.backward(*on(d))]
        tile.end_mini_batch()
        tile.eval()
        tile.program_weights()
        tile.drift_weights(86400.0)
        return [*found, tile.forward(*on(x)), tile.state_dict()]

    soft, a = analog.SoftBoundsDevice(dw_min=0.02, lifetime=99.0, diffusion=0.01), analog
    few = {"desired_bl": 2, "update_management": False, "update_bl_management": False}
    devices = (
        a.IdealDevice(), a.FloatingPointDevice(),
        a.ConstantStepDevice(drift=a.DriftParameter(nu=0.1, nu_std=0.1), dw_min_std=0.3), a.ReferenceUnitCell((soft, soft)),
        *(a.VectorUnitCell((soft, soft), update_policy=p) for p in a.VectorUnitCellUpdatePolicy),
        a.TransferCompound((soft, soft), random_selection=True, with_reset_prob=0.5, transfer_every=1),
        a.OneSidedUnitCell((soft, soft), refresh_every=1), a.MixedPrecisionCompound((soft,)),
        a.PowStepReferenceDevice(subtract_symmetry_point=True, n_estimation_steps=20),
        a.PiecewiseStepDevice(piecewise_up=(1.2, 0.5), piecewise_down=(0.2, 0.9)), a.SoftBoundsPmaxDevice(),
        a.SoftBoundsReferenceDevice(reference_std=0.05, subtract_symmetry_point=True), a.DynamicTransferCompound((soft, soft)),
        a.ExpStepDevice(write_noise_std=0.1), a.LinearStepDevice(), a.TransferCompound((soft, soft), transfer_columns=False),
    )  # fmt: skip
    for device in devices:
        update = a.UpdateParameters(**few)
        policy = f" {device.update_policy.name}" if isinstance(device, a.VectorUnitCell) else ""
        yield (
            f"{type(device).__name__}{policy}",
            lambda device=device, update=update: used_up(a.RPUConfig(device, update=update)),
        )
    for kind in a.PulseType:
        yield str(kind), lambda kind=kind: used_up(a.RPUConfig(soft, update=a.UpdateParameters(kind, **few)))
    models_of_noise = (a.PCMLikeNoiseModel, a.StateIndependentNoiseModel, a.HermesNoiseModel, a.ReRamWan2022NoiseModel,
                       a.ReRamCMONoiseModel, a.CustomDriftPCMLikeNoiseModel)  # fmt: skip
    for model in models_of_noise:
        yield model.__name__, lambda model=model: inferred(a.InferenceRPUConfig(noise_model=model()))
    for of in a.WeightModifierType:
        modifier = a.WeightModifierParameter(type=of, res=0.2, std_dev=0.3, coeffs=(0.1, 0.2), pdrop=0.25)
        yield str(of), lambda modifier=modifier: inferred(a.InferenceRPUConfig(modifier=modifier))


def analog_layers() -> Iterator[tuple[str, Callable[[], Any]]]:
    kinds = (
        "Linear",
        "Conv1d",
        "Conv2d",
        "Conv3d",
        "RNN",
        "LSTM",
        "GRU",
        "RNNCell",
        "LSTMCell",
        "GRUCell",
        "MultiheadAttention",
    )
    for name in kinds:
        args, arrays = LAYERS[name]
        yield name, lambda name=name, args=args, arrays=arrays: used(made(getattr(analog, name), *args), *arrays)

    def converted() -> Any:
        few = analog.UpdateParameters(desired_bl=2, update_management=False, update_bl_management=False)
        model = analog.convert(made(models.mlp, 6, (3,), 2), analog.RPUConfig(update=few), generator=random.Generator(0))
        rule = analog.SGD(model, 0.1)
        rule.update(model, fb.value_and_grad(lambda m: fb.sum(m(*on(X))))(model)[1])
        return [model.state_dict(), rule.state_dict()]

    def programmed() -> Any:
        model = analog.convert_for_inference(made(models.mlp, 6, (3,), 2), analog.InferenceRPUConfig(), seed=0).eval()
        analog.program_weights(model)
        analog.drift_weights(model, 60.0)
        return [model(*on(X)), model.state_dict()]

    yield from {"convert": converted, "convert_for_inference": programmed}.items()


def checked(call: Callable[[], Any]) -> set[str]:
    """What is wrong with the tensors that a call gives: devices that are not its own, dtypes wider than what it was given."""
    before = repr(random.state())
    tensors = [t for t in trees.flatten(call())[0] if isinstance(t, fb.Tensor)]
    wide = {t.dtype.name for t in tensors} & {"float64", "complex128"}
    moved = {"the default generators"} if repr(random.state()) != before else set()
    return wide | moved | {t.device.name for t in tensors} - {DEVICE}


GROUPS = {f.__name__: f for f in (functions, layers, draws, laws, whole_models, training)}
ANALOG = {**dict(tiles()), **dict(analog_layers())}


@pytest.mark.filterwarnings("ignore:.* is not defined")  # a metric of classes that have no rows
@pytest.mark.parametrize("group", GROUPS)
def test_no_call_forgets_the_device_the_dtype_or_the_generator_that_it_was_given(group: str) -> None:
    with refusing():
        for name, call in GROUPS[group]():
            assert checked(call) == set(), name


@pytest.mark.filterwarnings("ignore:.* outside of the bounds of their devices")
@pytest.mark.parametrize("name", ANALOG)
def test_no_tile_forgets_its_device_or_its_generator(name: str) -> None:
    with refusing():
        assert checked(ANALOG[name]) == set()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_value_on_another_device_is_refused_by_name(name: str) -> None:
    with refusing():
        law = FAMILIES[name]()
        own = getattr(law, "base", law)  # which an independent one asks
        text = f"^{type(own).__name__}: all tensors must be on one device\nReceived: value: .* on numpy:0 and .* on other:0"
        with pytest.raises(fb.DeviceMismatchError, match=text):
            law.log_prob(fb.ones(law.shape, device="numpy"))
