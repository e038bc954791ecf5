"""Models: built by name, the same training on every engine, and good enough for the data they are meant for."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from combinations import pairs_of

import firebrick as fb
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.testing import check_layer

SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": (32,)},
    "cnn": {"width": 4, "features": 32},
    "transformer-classifier": {"dim": 16, "heads": 2, "layers": 1},
}


@cache
def _curve(name: str, device: str, dtype: str, steps: int = 100) -> np.ndarray:
    """Losses of a small model with Adam on sixteen random images."""
    fb.random.seed(0)
    model = fb.models.build(name, 8, dtype=dtype, device=device, **SMALL[name])
    opt = fb.optim.Adam(model, lr=1e-3)
    rng = np.random.default_rng(0)
    x = fb.asarray(rng.normal(size=(16, 1, 8, 8)), dtype=dtype, device=device)
    y = fb.asarray(rng.integers(0, 10, 16), device=device)
    step = fb.value_and_grad(lambda m: fb.cross_entropy(m(x), y))
    losses = []
    for _ in range(steps):
        loss, grads = step(model)
        opt.update(model, grads)
        losses.append(loss)
    return np.asarray([v.item() for v in losses])


# float32 rounds differently on each engine and the differences grow from step to step; float64 shows that only rounding differs
@pytest.mark.parametrize(("name", "device", "dtype"), pairs_of(SMALL, ["cpu", "torch:cpu"], ["float32", "float64"]))
def test_loss_curves_agree_between_engines_over_100_steps(name: str, device: str, dtype: str) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch", reason="torch, for the engine torch:cpu")
    here, there = _curve(name, "numpy", dtype), _curve(name, device, dtype)
    assert here[-1] < 0.7 * here[0]  # it learns, so there is something to agree on
    np.testing.assert_allclose(there, here, rtol={"float32": 1e-3, "float64": 1e-9}[dtype])


def test_agreement_in_float64_would_show_a_wrong_update() -> None:
    here, shorter = _curve("mlp", "numpy", "float64"), _curve("mlp", "numpy", "float32")
    assert np.max(np.abs(here / shorter - 1)) > 1e-9


IMAGES: dict[str, Any] = {"image_size": 12}
SERIES: dict[str, Any] = {"series": 2, "window": 24, "horizon": 4}


@pytest.mark.parametrize(
    ("name", "sizes", "settings"),
    [
        ("mlp", IMAGES, {"hidden": (5,)}),
        ("cnn", IMAGES, {"width": 2, "features": 4}),
        ("lenet", IMAGES, {}),
        ("resnet18", IMAGES, {"width": 1}),
        ("transformer-classifier", IMAGES, {"dim": 4, "heads": 2, "layers": 1}),
        ("lstm-forecaster", SERIES, {"hidden": 3, "dropout": 0.2}),
        ("patchtst", SERIES, {"dim": 4, "heads": 2, "hidden": 4, "layers": 1}),
    ],
)
def test_a_model_does_what_every_layer_does(name: str, sizes: dict[str, Any], settings: dict[str, Any]) -> None:
    fb.random.seed(0)
    shape = (2, 24, 2) if sizes is SERIES else (2, 1, 12, 12)
    # blocks of a residual network meet relu exactly at 0, where the slope from both sides is no gradient
    check_layer(lambda: fb.models.build(name, **sizes, **settings), shape, gradient=name != "resnet18")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "epochs", "goal"),
    [("mlp", {}, 10, 0.95), ("cnn", {}, 8, 0.97), ("transformer-classifier", {"dim": 32}, 12, 0.90)],
    ids=["mlp", "cnn", "transformer-classifier"],
)
def test_models_learn_the_digits(name: str, settings: dict[str, Any], epochs: int, goal: float) -> None:
    train, test = fb.data.datasets.load("digits", "train"), fb.data.datasets.load("digits", "test")

    def images(d: Any) -> np.ndarray:
        return ((d.images[:, None] / d.pixel_max - d.mean) / d.std).astype(np.float32)

    fb.random.seed(0)
    model = fb.models.build(name, 8, **settings)
    opt = fb.optim.Adam(model, lr=3e-3)
    gradient = fb.value_and_grad(lambda m, x, y: fb.cross_entropy(m(x), y))

    def eager(x: fb.Tensor, y: fb.Tensor) -> None:
        opt.update(model, gradient(model, x, y)[1])

    step = eager if name == "mlp" else fb.jit(eager)
    x, y, order = images(train), train.labels.astype(np.int64), fb.random.Generator(0)
    for _ in range(epochs):
        picks = order.permutation(len(x)).numpy()
        for i in range(0, len(x), 32):
            batch = picks[i : i + 32]
            step(fb.asarray(x[batch]), fb.asarray(y[batch]))
    predicted = fb.argmax(model.eval()(fb.asarray(images(test))), axis=1).numpy()
    assert (predicted == test.labels).mean() >= goal


@pytest.mark.parametrize("name", fb.models.names("classification"))
@pytest.mark.parametrize(("image", "channels", "classes"), [(12, 1, 10), (28, 1, 10), (32, 3, 5)])
def test_models_are_built_for_their_images_and_classes(name: str, image: int, channels: int, classes: int) -> None:
    model = fb.models.build(name, image, channels, classes, **({"width": 4} if name == "resnet18" else {}))
    assert model(fb.zeros((2, channels, image, image))).shape == (2, classes)


def test_patches_are_squares_of_the_image_row_by_row() -> None:
    model = fb.models.transformer(4, 2, dim=8, heads=1, layers=0)
    x = fb.reshape(fb.arange(16), (1, 1, 4, 4))
    assert model._patches(x)[0].tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]


def test_a_forecaster_follows_the_level_and_scale_of_its_window() -> None:
    model = fb.models.patch_transformer_forecaster(16, 4, patch=4, dim=8, heads=2, layers=1, dtype=fb.float64)
    x = fb.random.Generator(0).normal((3, 16), dtype=fb.float64)
    got, expected = model(x * 100.0 + 7.0).numpy(), (model(x) * 100.0 + 7.0).numpy()
    np.testing.assert_allclose(got, expected, atol=100 * 1e-4)  # the 1e-5 beside the variance is 1e-5 of a variance of 1


def test_a_forecaster_learns_a_sine() -> None:
    fb.random.seed(0)
    model = fb.models.patch_transformer_forecaster(16, 4, patch=4, dim=16, heads=2, layers=1)
    t = np.arange(20)[None] + np.random.default_rng(0).uniform(0, 40, (64, 1))
    series = fb.asarray(np.sin(t * 0.4).astype(np.float32))
    opt = fb.optim.Adam(model, lr=3e-3)
    step = fb.value_and_grad(lambda m: fb.mse_loss(m(series[:, :16]), series[:, 16:]))
    losses = []
    for _ in range(80):
        loss, grads = step(model)
        opt.update(model, grads)
        losses.append(loss.item())
    assert losses[-1] < 0.02 < 0.5 < losses[0]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: fb.models.build("resnet", 8),
            ConfigError,
            "a model is one of mlp, cnn, lenet, resnet18, transformer-classifier, .*, patchtst, gpt\nReceived: 'resnet'",
        ),
        (lambda: fb.models.build("cnn"), ConfigError, "cnn takes images\nReceived: no image_size"),
        (lambda: fb.models.build("patchtst", 8), ConfigError, "patchtst takes windows of series"),
        (lambda: fb.models.build("gpt", 8), ConfigError, "gpt takes tokens\n.*image_size = 8.*\n.*vocabulary= and length="),
        (lambda: fb.models.build("gpt", length=8), ConfigError, "gpt takes tokens\nReceived: no vocabulary"),
        (lambda: fb.models.build("gpt", vocabulary=8, depth=3), ConfigError, "gpt has the settings dim, .*\nReceived: depth"),
        (lambda: fb.models.build("cnn", 8, depth=3), ConfigError, "cnn has the settings width, .*\nReceived: depth"),
        (lambda: fb.models.build("lenet", 12, image=9), ConfigError, "lenet has the settings .*\nReceived: image"),
        (lambda: fb.models.build("mlp", 8, hidden=64), ConfigError, "mlp: hidden is a list"),
        (lambda: fb.models.build("mlp", 8, hidden=[0]), ConfigError, r"mlp: hidden\[0\] is an int ≥ 1"),
        (lambda: fb.models.build("cnn", 8, classes=0), ConfigError, "cnn: classes is an int ≥ 1"),
        (lambda: fb.models.build("patchtst", series=2, window=24, horizon=4.0), ConfigError, "patchtst: horizon is an int ≥ 1"),
        (lambda: fb.models.patchtst(dim=0), ConfigError, "patchtst: dim is an int ≥ 1"),
        (lambda: fb.models.settings("vit"), ConfigError, "a model is one of"),
        (lambda: fb.models.names("vision"), ConfigError, "a task is one of classification, forecasting, language"),
        (lambda: fb.models.lenet(image=8), ConfigError, "lenet: image is a height and width of at least 12"),
        (lambda: fb.models.resnet18(width=0), ConfigError, "resnet: width is an int ≥ 1"),
        (lambda: fb.models.cnn(image=3), ConfigError, "cnn: image is a height and width of at least 4"),
        (lambda: fb.models.transformer(8, 3), ConfigError, "transformer: patch divides image\nReceived: image = 8, patch = 3"),
        (
            lambda: fb.models.patch_transformer_forecaster(8, 2, patch=4, dim=9, heads=2, layers=0),
            ConfigError,
            "patch_transformer_forecaster: heads divides dim\nReceived: dim = 9, heads = 2",
        ),
        (lambda: fb.models.transformer(8, 2)(fb.zeros((2, 1, 9, 9))), ShapeError, r"x is \[batch, 1, 8, 8\]"),
        (lambda: fb.models.patch_transformer_forecaster(8, 2, 4)(fb.zeros((2, 9))), ShapeError, r"x is \[batch, 8\]"),
    ],
)
def test_errors_say_what_was_expected_and_received(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("name", fb.models.names())
def test_a_batch_of_no_samples_gives_no_results(name: str) -> None:
    if name in fb.models.names("language"):
        model, shape, dtype = fb.models.build(name, vocabulary=9, length=8, dim=8, heads=2, layers=1), (8,), fb.int64
    elif name in fb.models.names("forecasting"):
        model, shape, dtype = fb.models.build(name, series=2, window=16, horizon=4), (16, 2), fb.float32
    else:
        model, shape, dtype = fb.models.build(name, 16, **({"width": 2} if name == "resnet18" else {})), (1, 16, 16), fb.float32
    model.eval()
    of_two, none = model(fb.zeros((2, *shape), dtype=dtype)), fb.zeros((0, *shape), dtype=dtype)
    assert model(none).shape == fb.jit(model)(none).shape == (0, *of_two.shape[1:])
    gradients = fb.grad(lambda model: fb.sum(model(none)))(model)
    assert not any(fb.any(gradients[p] != 0) for p in model.parameters())


def test_a_name_of_an_earlier_version_builds_the_same_model() -> None:
    fb.random.seed(0)
    one = fb.models.build("transformer", 8, dim=8)
    fb.random.seed(0)
    other = fb.models.build("transformer-classifier", 8, dim=8)
    assert fb.models.canonical("transformer") == "transformer-classifier"
    there = other.state_dict()
    assert all(np.array_equal(t.numpy(), there[n].numpy()) for n, t in one.state_dict().items())


def test_lenet_has_the_61706_parameters_of_lenet_5() -> None:
    assert sum(p.size for p in fb.models.lenet(image=28).parameters()) == 61706
    assert sum(p.size for p in fb.models.lenet(image=32).parameters()) > 61706  # the last map is 6 x 6 there


def test_images_of_16_pixels_are_pooled_twice_and_smaller_ones_once() -> None:
    sides = {n: int((fb.models.cnn(image=n, width=4).linear1.weight.shape[1] // 8) ** 0.5) for n in (4, 15, 16, 28)}
    assert sides == {4: 2, 15: 7, 16: 4, 28: 7}


@pytest.mark.parametrize("name", fb.models.names())
def test_a_model_is_built_in_the_dtype_and_on_the_device_that_is_asked_for(name: str) -> None:
    sizes: dict[str, dict[str, Any]] = {
        "classification": {"image_size": 32, "channels": 3},
        "forecasting": {"series": 2, "window": 32, "horizon": 4},
        "language": {"vocabulary": 9, "length": 8},
    }
    (size,) = (sizes[task] for task in sizes if name in fb.models.names(task))
    model = fb.models.build(name, **size, dtype=fb.float64, device="numpy:1")
    assert {(p.dtype, str(p.device)) for _, p in model.named_parameters()} == {(fb.float64, "numpy:1")}
