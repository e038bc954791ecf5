"""Refusals that nothing else meets, each by its kind and the beginning of its text, and a few results of rare calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import distributions, models, nn, optim
from firebrick.core.op import _no_value
from firebrick.distributed import header, process
from firebrick.distributions import Independent, MultivariateNormal, Normal
from firebrick.ir import serialize
from firebrick.ops import OPS
from firebrick.optim.schedule import check_fields
from firebrick.testing.cases import cases
from firebrick.train import TrainingError, metrics, packing
from firebrick.train.optimizers import Optimizers
from firebrick.train.parallel import shares
from firebrick.train.precision import precision_of

V, M = fb.asarray([0.5, 2.0]), fb.asarray([[1.0, 0.0], [0.5, 2.0]])
ROWS, LABELS = np.ones((4, 2), np.float32), np.asarray([0, 1, 0, 1])
GPT = models.GPT(vocabulary=5, length=4, dim=4, heads=2, layers=1)


class Own(distributions.Distribution):
    """A distribution that has nothing of its own."""


def own() -> Own:
    made = Own.__new__(Own)
    made.__dict__["shape"] = ()
    return made


def over(axes: int) -> Independent:
    return Independent(Normal(fb.ones((2, 2)), 1.0), axes)


REFUSED: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "no classes": (fb.ShapeError, "Categorical: there is at least one class", lambda: distributions.Categorical(fb.zeros(0))),
    "counts": (
        fb.ShapeError,
        "Multinomial: value has 2 counts last",
        lambda: distributions.Multinomial(3, V / 2.5).log_prob(fb.ones(3)),
    ),
    "density": (NotImplementedError, "Own has no log_prob", lambda: own().log_prob(0.0)),
    "draws": (NotImplementedError, "Own has no _draw", lambda: own()._draw((), None)),
    "mean": (NotImplementedError, "Own has no mean", lambda: own().mean),
    "variance": (NotImplementedError, "Own has no variance", lambda: own().variance),
    "a list of means": (
        fb.ConfigError,
        "MultivariateNormal: loc and the matrices are tensors",
        lambda: MultivariateNormal([0.0], M),
    ),  # type: ignore[arg-type]
    "matrices": (fb.ShapeError, r"MultivariateNormal: loc is \[..., n\]", lambda: MultivariateNormal(fb.ones(3), scale_tril=M)),
    "divergence": (
        fb.UnsupportedError,
        "kl_divergence has a closed form",
        lambda: distributions.kl_divergence(over(1), over(2)),
    ),
    "images": (
        fb.ShapeError,
        "grid_sample: images have sizes",
        lambda: fb.grid_sample(fb.ones((1, 1, 0, 2)), fb.ones((1, 1, 1, 2))),
    ),
    "a number in time": (fb.ShapeError, "stft takes signals", lambda: fb.fft.stft(fb.asarray(1.0), 4)),
    "beams": (
        fb.ConfigError,
        "generate: there are at most as many beams",
        lambda: models.generate(GPT, [1], max_tokens=2, beams=6),
    ),
    "a token": (fb.ShapeError, r"GPT: tokens are \[batch, n\]", lambda: GPT(fb.asarray([1]))),
    "recurrence": (
        fb.ShapeError,
        "linear_recurrence takes operands of one shape",
        lambda: OPS["linear_recurrence"].infer(V, M, axis=0, reverse=False, shifted=False),
    ),
    "order": (fb.ConfigError, "polygamma takes n", lambda: OPS["polygamma"].infer(V, n=0)),
    "outcomes": (fb.ShapeError, "multinomial: the last axis", lambda: fb.random.multinomial((0,), n=2, p=fb.asarray(1.0))),
    "choice": (fb.ShapeError, "choice takes a tensor of at least one axis", lambda: fb.random.choice(fb.asarray(1.0))),
    "dtype of integers": (fb.DTypeError, "poisson draws integers", lambda: fb.random.poisson((2,), rate=1.0, dtype=fb.bool)),
    "average": (fb.ConfigError, "AUROC: average is macro", lambda: metrics.AUROC(3, "micro")),
    "labels": (fb.DTypeError, "AUROC takes real scores", lambda: metrics.AUROC().update(V, V)),
    "batch norm": (TrainingError, 'batch_norm is "local"', lambda: shares.check_batch_norm("global")),
    "precision": (TrainingError, 'precision is "float32"', lambda: precision_of("float8", nn.Linear(1, 1), [])),
    "axes of a header": (fb.ShapeError, "all_reduce: a tensor of at most 12 axes", lambda: made(shape=(10**9,) * 40).encode()),
    "backend": (fb.ConfigError, "ProcessGroup: backend is gloo or nccl", lambda: process.ProcessGroup("mpi")),
    "address": (fb.ConfigError, "the store's address is host:port", lambda: process._master("localhost")),
    "fields": (
        fb.nn.StateError,
        "a state of step holds lr, every, gamma",
        lambda: check_fields(optim.step, {"lr": 1.0, "phase": 2}),
    ),
    "a group": (
        fb.ConfigError,
        "SGD: groups.1. takes at least one parameter",
        lambda: optim.SGD(nn.Linear(1, 1), 0.1, groups=[{"params": "bias"}, {"params": "bias"}]),
    ),
    "states": (fb.nn.StateError, "Dropout: states of generators by path", lambda: nn.Dropout().set_generator_states([])),
    "an index": (LookupError, "the index is the same", lambda: _no_value(0, (), 1)),
    "several devices": (fb.DeviceError, "a device string names one device", lambda: fb.device("cpu,numpy")),
    "a block that was not entered": (
        fb.ConfigError,
        "a with block that is left was entered",
        lambda: fb.no_grad().__exit__(None, None, None),
    ),
    "shares below 0": (fb.ConfigError, r"quantile: q must lie in \[0, 1\]", lambda: fb.quantile(V, fb.asarray([-0.5]))),
    "shares above 1": (fb.ConfigError, r"quantile: q must lie in \[0, 1\]", lambda: fb.quantile(V, fb.asarray([1.5]))),
    "a length of scan": (fb.OperandError, "scan: length is an int", lambda: fb.scan(lambda c, _: (c, c), V, None, length=2.0)),
    "a setting of no optimizer": (
        AttributeError,
        "'SGD' object has no attribute 'momentum'",
        lambda: setattr(optim.SGD(nn.Linear(2, 2), 0.1), "momentum", 0.5),
    ),
    "a whole number": (
        fb.data.LoaderError,
        "batch_size is a whole number",
        lambda: fb.data.DataLoader(fb.data.ArrayDataset(np.ones(3)), 1.5),
    ),
    "a number that is a bool": (
        fb.data.LoaderError,
        "batch_size is a whole number",
        lambda: fb.data.DataLoader(fb.data.ArrayDataset(np.ones(3)), True),
    ),
    "no array": (fb.OperandError, "from_dlpack takes an object with __dlpack__", lambda: fb.from_dlpack([1.0])),
    "a gradient of what is no tensor": (
        fb.OperandError,
        "gradients are read with a tensor or parameter",
        lambda: fb.backward(fb.sum(fb.attach(V))).get("x"),
    ),
    "text in an encoded graph": (TypeError, "int instead of text", lambda: serialize._text(1)),
    "values of a checkpoint": (
        fb.train.CheckpointError,
        "a checkpoint holds tensors and plain values",
        lambda: packing.text_of({"a": object()}),
    ),
    "a model elsewhere": (
        TrainingError,
        "a model is evaluated on the device of the loader",
        lambda: fb.train.evaluate(nn.Linear(2, 2, device="numpy"), fb.data.DataLoader(fb.data.ArrayDataset(ROWS, LABELS), 2)),
    ),
    "modes": (fb.ConfigError, "modes are eager, ", lambda: list(cases("numpy", modes=("slow",)))),
    "a timeout": (fb.ConfigError, "distributed_timeout", lambda: setattr(fb.config, "distributed_timeout", 0)),
}


def made(**changed: Any) -> Any:
    return header.Header(**{"op": "all_reduce", **changed})


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    error, text, call = REFUSED[name]
    with pytest.raises(error, match=text):
        call()


def test_moments_of_classes_are_no_numbers() -> None:
    d = distributions.Categorical(fb.ones((2, 3)))
    assert d.mean.shape == d.variance.shape == (2,)
    assert bool(fb.all(fb.isnan(d.mean) & fb.isnan(d.variance)))


def test_a_covariance_is_that_of_its_factor() -> None:
    assert np.allclose(MultivariateNormal(V, scale_tril=M).covariance.numpy(), M.numpy() @ M.numpy().T)


def test_the_norm_of_a_dirichlet_is_that_of_gamma_functions() -> None:
    want = math.lgamma(0.5) + math.lgamma(2.0) - math.lgamma(2.5)
    assert distributions.Dirichlet(V).log_norm().item() == pytest.approx(want, rel=1e-6)


def test_a_perplexity_beyond_the_largest_number_is_infinite() -> None:
    found = metrics.Perplexity()
    found.update(fb.asarray([[0.0, -1e4]]), fb.asarray([1]))
    assert found.compute() == math.inf


def test_several_optimizers_are_not_updated_at_once() -> None:
    with pytest.raises(TrainingError, match="several optimizers are updated one by one"):
        Optimizers.update(Optimizers.__new__(Optimizers), None, None)


def test_the_zeroth_power_of_a_singular_matrix_is_the_identity() -> None:
    assert fb.linalg.matrix_power(fb.ones((2, 2)), 0).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_too_many_arguments_are_answered_with_the_names_that_are_not_given_yet() -> None:
    with pytest.raises(TypeError, match="pass the others by name: correction=…, keepdims=…, out=…"):
        fb.std(M, 0, 1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="pass the others by name: correction=…, out=…"):
        fb.std(M, 0, 1.0, keepdims=True)  # type: ignore[call-arg]
