"""Convolution, pooling, resampling, dropout and weight norm layers: they train as torch's do in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import ConfigError, ShapeError

F64 = {"dtype": fb.float64}
SHAPES = {1: (2, 4, 9), 2: (2, 4, 7, 8), 3: (2, 4, 5, 4, 6)}


def _torch() -> Any:
    return pytest.importorskip("torch", reason="torch, to compare layers with")


CONVOLUTIONS = [
    ("Conv1d", {"kernel": 3}),
    ("Conv1d", {"kernel": 4, "stride": 3, "padding": 2, "dilation": 2, "bias": False}),
    ("Conv1d", {"kernel": 3, "padding": "same", "groups": 2}),
    ("Conv2d", {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 0)}),
    ("Conv2d", {"kernel": 3, "padding": (2, 1), "dilation": (2, 1), "groups": 4}),
    ("Conv3d", {"kernel": 2, "stride": (1, 2, 1), "padding": (0, 1, 1)}),
    ("Conv3d", {"kernel": (1, 3, 2), "groups": 2, "dilation": (1, 1, 2)}),
    ("ConvTranspose1d", {"kernel": 3}),
    ("ConvTranspose1d", {"kernel": 4, "stride": 3, "padding": 1, "output_padding": 2, "groups": 2}),
    ("ConvTranspose2d", {"kernel": (3, 2), "stride": (1, 2), "padding": (1, 0), "output_padding": (0, 1)}),
    ("ConvTranspose2d", {"kernel": 2, "stride": 2, "dilation": (1, 3), "bias": False, "groups": 4}),
    ("ConvTranspose3d", {"kernel": 2, "stride": (2, 1, 2), "padding": 1, "output_padding": (1, 0, 0)}),
]


@pytest.mark.parametrize(("name", "settings"), CONVOLUTIONS, ids=str)
def test_convolutions_train_as_torchs(name: str, settings: dict[str, Any], train_alike: Callable[..., None]) -> None:
    torch = _torch()
    other = {("kernel_size" if k == "kernel" else k): v for k, v in settings.items()}
    theirs = getattr(torch.nn, name)(4, 8, dtype=torch.float64, **other)
    train_alike(getattr(nn, name)(4, 8, **settings, **F64), theirs, lambda rng: [rng.normal(size=SHAPES[int(name[-2])])])


@pytest.mark.parametrize("axis", [0, 1, None])
def test_weight_norm_trains_as_torchs(axis: int | None, train_alike: Callable[..., None]) -> None:
    torch = _torch()
    theirs = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(4, 3, 2, dtype=torch.float64), dim=axis)
    names = {"layer.bias": "bias", "magnitude": "parametrizations.weight.original0",
             "direction": "parametrizations.weight.original1"}  # fmt: skip
    ours = nn.weight_norm(nn.Conv2d(4, 3, 2, **F64), axis=axis)
    if axis is None:
        ours.magnitude = nn.Parameter(ours.magnitude.reshape(()))  # torch's has no axes then
    train_alike(ours, theirs, lambda rng: [rng.normal(size=(2, 4, 5, 5))], names=names)


def test_weight_norm_starts_as_the_layer_and_leaves_no_graph_behind() -> None:
    layer, x = nn.Linear(3, 2, **F64), fb.asarray(np.random.default_rng(0).normal(size=(4, 3)))
    before, weight = layer(x).numpy(), layer.weight.numpy()
    normed = nn.WeightNorm(layer)
    np.testing.assert_allclose(normed(x).numpy(), before, rtol=1e-14)
    np.testing.assert_allclose(normed.normalized().numpy(), weight, rtol=1e-14)
    fb.value_and_grad(lambda m: fb.sum(m(x)))(normed)
    assert not normed.normalized().tracked
    assert not hasattr(normed.layer, "weight")
    assert set(normed.state_dict()) == {"layer.bias", "magnitude", "direction"}
    twin = normed.fork("cpu:1")
    assert twin(x.to("cpu:1")).device.name == "cpu:1"


POOLS = [
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}),
    ("MaxPool2d", ((3, 2), 2), {"dilation": (1, 2)}),
    ("MaxPool3d", (2,), {"ceil_mode": True}),
    ("AvgPool1d", (3,), {"stride": 2, "padding": 1, "count_include_pad": False}),
    ("AvgPool2d", ((3, 2), 2), {"ceil_mode": True}),
    ("AvgPool3d", (2,), {"padding": 1}),
    ("AdaptiveAvgPool1d", (4,), {}),
    ("AdaptiveAvgPool2d", ((None, 3),), {}),
    ("AdaptiveAvgPool3d", (1,), {}),
    ("AdaptiveMaxPool1d", (3,), {}),
    ("AdaptiveMaxPool2d", ((3, 5),), {}),
    ("AdaptiveMaxPool3d", (2,), {}),
]


@pytest.mark.parametrize(("name", "args", "settings"), POOLS, ids=str)
def test_pools_equal_torchs(name: str, args: Any, settings: dict[str, Any], device: str) -> None:
    torch = _torch()
    x = np.random.default_rng(0).normal(size=SHAPES[int(name[-2])])
    theirs = getattr(torch.nn, name)(*args, **settings)(torch.asarray(x)).numpy()
    ours = getattr(nn, name)(*args, **settings)
    np.testing.assert_allclose(ours(fb.asarray(x, device=device)).numpy(), theirs, rtol=1e-12)
    assert ours(fb.asarray(x, dtype=fb.float32, device=device)).dtype is fb.float32
    if "Max" in name:
        places = getattr(nn, name)(*args, **settings, return_indices=True)(fb.asarray(x, device=device))[1]
        expected = getattr(torch.nn, name)(*args, **settings, return_indices=True)(torch.asarray(x))[1]
        np.testing.assert_array_equal(places.numpy(), expected.numpy())


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (lambda: nn.Upsample(scale_factor=2), lambda t: t.nn.Upsample(scale_factor=2), SHAPES[3]),
        (lambda: nn.Upsample((5, 12), mode="bicubic"), lambda t: t.nn.Upsample((5, 12), mode="bicubic"), SHAPES[2]),
        (lambda: nn.PixelShuffle(2), lambda t: t.nn.PixelShuffle(2), (2, 12, 3, 5)),
        (lambda: nn.PixelUnshuffle(2), lambda t: t.nn.PixelUnshuffle(2), (2, 3, 4, 6)),
        (lambda: nn.Unfold((2, 3), padding=1, stride=2), lambda t: t.nn.Unfold((2, 3), padding=1, stride=2), SHAPES[2]),
        (lambda: nn.Fold((4, 5), (2, 2)), lambda t: t.nn.Fold((4, 5), (2, 2)), (2, 12, 12)),
    ],
)
def test_images_change_as_torchs(ours: Any, theirs: Any, shape: tuple[int, ...], device: str) -> None:
    torch = _torch()
    x = np.random.default_rng(0).normal(size=shape)
    got = ours()(fb.asarray(x, device=device)).numpy()
    np.testing.assert_allclose(got, theirs(torch)(torch.asarray(x)).numpy(), rtol=1e-10, atol=1e-12)


WITHOUT_PARAMETERS = [
    *(row for row in POOLS),
    ("Upsample", (), {"scale_factor": 2}),
    ("Upsample", ((5, 12),), {"mode": "bicubic"}),
    ("Upsample", ((9, 4),), {"mode": "bilinear", "align_corners": True}),
    ("PixelShuffle", (2,), {}),
    ("PixelUnshuffle", (2,), {}),
    ("Unfold", ((2, 3),), {"padding": 1, "stride": 2}),
    ("Fold", ((4, 5), (2, 2)), {}),
    ("LocalResponseNorm", (3,), {"alpha": 0.1, "k": 2.0}),
    ("Flatten", (), {}),
    ("Unflatten", (1, (2, 2)), {}),
]


@pytest.mark.parametrize(("name", "args", "settings"), WITHOUT_PARAMETERS, ids=str)
def test_layers_without_parameters_train_in_a_model_as_torchs(
    name: str, args: Any, settings: dict[str, Any], train_alike: Callable[..., None]
) -> None:
    torch = _torch()
    shapes = {"PixelUnshuffle": (2, 3, 4, 6), "Fold": (2, 12, 12)}
    shape = SHAPES[int(name[-2])] if name[-2].isdigit() else shapes.get(name, SHAPES[2])
    n = shape[-1]
    ours = nn.Sequential(nn.Linear(n, n, **F64), getattr(nn, name)(*args, **settings))
    theirs = torch.nn.Sequential(
        torch.nn.Linear(n, n, dtype=torch.float64), getattr(torch.nn, name)(*args, **settings)
    )  # fmt: skip
    names = {f"layers.0.{leaf}": f"0.{leaf}" for leaf in ("weight", "bias")}
    train_alike(ours, theirs, lambda rng: [rng.normal(size=shape)], names=names, lr=0.5)


# dropout


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Dropout1d, (40, 8, 3)), (nn.Dropout2d, (40, 8, 2, 3)), (nn.Dropout3d, (40, 8, 2, 1, 3))]
)
def test_channels_are_dropped_whole(layer: Any, shape: tuple[int, ...], device: str) -> None:
    x = fb.ones(shape, device=device)
    y = layer(0.25, seed=0)(x).numpy().reshape(320, -1)
    assert (y == y[:, :1]).all()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((y[:, 0] == 0).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 320)
    assert layer(0.25).eval()(x) is x


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    x = fb.random.Generator(0).normal((400, 400), dtype=fb.float64)
    y = nn.AlphaDropout(0.3, seed=1)(x).numpy()
    assert abs(y.mean()) < 4 / np.sqrt(y.size)  # four standard errors, as in the two below
    assert abs(y.std() - 1) < 4 * np.sqrt(((y**4).mean() - 1) / (4 * y.size))
    low = y.min()  # a dropped element, or a rare value below
    a = ((1 - 0.3) * (1 + 0.3 * 1.7580993408473766**2)) ** -0.5
    dropped = a * -1.7580993408473766 + a * 0.3 * 1.7580993408473766
    assert low <= dropped
    assert abs((np.isclose(y, dropped)).mean() - 0.3) < 4 * np.sqrt(0.3 * 0.7 / y.size)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.Conv1d(4, 6, 3, groups=4), ConfigError, "Conv1d: groups divides in_channels and out_channels"),
        (lambda: nn.Conv1d(4, 6, 3)(fb.ones((1, 4))), ShapeError, r"Conv1d: x is \[batch, 4, length\]"),
        (lambda: nn.Conv3d(4, 6, 3)(fb.ones((1, 4, 5, 5))), ShapeError, r"Conv3d: x is \[batch, 4, depth, height, width\]"),
        (lambda: nn.Conv2d(4, 6, 3, padding=-1), ShapeError, "Conv2d: padding is an int ≥ 0"),
        (lambda: nn.Conv2d(4, 6, 3, stride=2, padding="same"), ShapeError, 'Conv2d: padding "same"'),
        (lambda: nn.Conv2d(4, 6, 0), ShapeError, "Conv2d: kernel is an int ≥ 1"),
        (lambda: nn.ConvTranspose2d(4, 6, 3, output_padding=-1), ShapeError, "ConvTranspose2d: output_padding is an int ≥ 0"),
        (lambda: nn.ConvTranspose2d(4, 6, 3)(fb.ones((1, 3, 5, 5))), ShapeError, r"ConvTranspose2d: x is \[batch, 4"),
        (lambda: nn.MaxPool2d(2, padding="same"), ShapeError, "MaxPool2d: padding is ints or pairs"),
        (lambda: nn.MaxPool2d(2, 0), ShapeError, "MaxPool2d: stride is an int ≥ 1"),
        (lambda: nn.AvgPool1d(2, padding=-2), ShapeError, "AvgPool1d: padding is an int ≥ 0"),
        (lambda: nn.AdaptiveAvgPool2d((1, 2, 3)), ShapeError, "AdaptiveAvgPool2d: size is an int ≥ 1 or 2 of them"),
        (lambda: nn.Upsample(), ConfigError, "Upsample: either size or scale_factor"),
        (lambda: nn.PixelShuffle(0), ConfigError, "PixelShuffle: factor is an int ≥ 1"),
        (lambda: nn.Dropout2d(0.5)(fb.ones((2, 3))), ShapeError, r"Dropout2d: x is \[batch, channels, height, width\]"),
        (lambda: nn.Dropout3d(1.0), ConfigError, r"Dropout3d: p lies in \[0, 1\)"),
        (lambda: nn.WeightNorm(nn.Linear(2, 2), "gain"), ConfigError, "WeightNorm: Linear has a parameter gain"),
        (lambda: nn.WeightNorm(nn.Linear(2, 2), axis=2), IndexError, "WeightNorm: axis must lie in"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
