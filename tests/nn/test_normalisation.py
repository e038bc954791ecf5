"""Normalisation layers: they train as torch's do in float64, keep the same statistics, and refuse what has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.core.errors import ConfigError, DTypeError, ShapeError

F64 = {"dtype": fb.float64}


def _torch() -> Any:
    return pytest.importorskip("torch", reason="torch, to compare layers with")


def _drawn(theirs: Any) -> Any:
    """torch's layer with parameters that are not all alike."""
    torch = _torch()
    for p in theirs.parameters():
        torch.nn.init.normal_(p)
    return theirs


BATCH = [
    ("BatchNorm1d", (6, 4), {}),
    ("BatchNorm1d", (3, 4, 5), {"momentum": 0.3, "eps": 1e-3}),
    ("BatchNorm2d", (3, 4, 5, 2), {}),
    ("BatchNorm2d", (3, 4, 2, 3), {"momentum": None}),
    ("BatchNorm2d", (3, 4, 2, 3), {"affine": False}),
    ("BatchNorm2d", (3, 4, 2, 3), {"track_running_stats": False}),
    ("BatchNorm3d", (2, 4, 3, 2, 2), {}),
    ("InstanceNorm1d", (3, 4, 5), {}),
    ("InstanceNorm2d", (3, 4, 5, 2), {"affine": True}),
    ("InstanceNorm2d", (3, 4, 5, 2), {"affine": True, "track_running_stats": True}),
    ("InstanceNorm3d", (3, 4, 2, 3, 2), {"affine": True, "momentum": 0.3, "track_running_stats": True}),
]


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize(("name", "shape", "settings"), BATCH, ids=str)
def test_batch_and_instance_norm_train_as_torchs(
    name: str, shape: tuple[int, ...], settings: dict[str, Any], mode: str, train_alike: Callable[..., None]
) -> None:
    torch = _torch()
    theirs = _drawn(getattr(torch.nn, name)(4, dtype=torch.float64, **settings))
    for b in theirs.buffers():
        if b.dtype == torch.float64:
            b.uniform_(0.5, 2.0)
    ours = getattr(nn, name)(4, **settings, **F64)
    if not list(theirs.parameters()):  # the comparison follows parameters: give it one to follow

        def inputs(rng: np.random.Generator) -> list[np.ndarray]:
            return [rng.normal(1.0, 2.0, shape)]

        getattr(theirs, mode)(), getattr(ours, mode)()
        rng = np.random.default_rng(0)
        for b, other in zip((b for _, b in ours.named_buffers()), theirs.buffers(), strict=True):
            b[...] = fb.asarray(other.numpy().copy())
        for _ in range(20):
            (a,) = inputs(rng)
            np.testing.assert_allclose(ours(fb.asarray(a)).numpy(), theirs(torch.asarray(a)).numpy(), rtol=1e-10, atol=1e-12)
        for b, other in zip((b for _, b in ours.named_buffers()), theirs.buffers(), strict=True):
            np.testing.assert_allclose(b.numpy(), other.numpy(), rtol=1e-12)
        return
    getattr(theirs, mode)(), getattr(ours, mode)()

    def call(module: Any, x: Any) -> Any:
        if name.startswith("Instance") and mode == "train" and module.num_batches_tracked is not None:
            module.num_batches_tracked.add_(1)  # torch's instance norm has the counter but leaves it at 0
        return module(x)

    train_alike(ours, theirs, lambda rng: [rng.normal(1.0, 2.0, shape)], theirs_call=call)


OTHERS = [
    ("GroupNorm", (2, 6), (3, 6, 4), {}),
    ("GroupNorm", (3, 6), (3, 6), {}),
    ("GroupNorm", (1, 6), (2, 6, 3, 2), {"eps": 1e-3}),
    ("GroupNorm", (6, 6), (2, 6, 3, 2), {}),
    ("LayerNorm", (6,), (2, 3, 6), {}),
    ("LayerNorm", ((3, 6),), (2, 3, 6), {}),
    ("LayerNorm", ((2, 3, 6),), (2, 3, 6), {"eps": 1e-3}),
    ("LayerNorm", ((3, 6),), (2, 3, 6), {"bias": False}),
    ("RMSNorm", (6,), (2, 3, 6), {}),
    ("RMSNorm", ((3, 6),), (2, 3, 6), {"eps": 1e-3}),
]


@pytest.mark.parametrize(("name", "args", "shape", "settings"), OTHERS, ids=str)
def test_other_norms_train_as_torchs(
    name: str, args: Any, shape: tuple[int, ...], settings: dict[str, Any], train_alike: Callable[..., None]
) -> None:
    torch = _torch()
    theirs = _drawn(getattr(torch.nn, name)(*args, dtype=torch.float64, **settings))
    train_alike(getattr(nn, name)(*args, **settings, **F64), theirs, lambda rng: [rng.normal(1.0, 2.0, shape)])


@pytest.mark.parametrize("name", ["GroupNorm", "LayerNorm", "RMSNorm"])
def test_norms_without_parameters_equal_torchs(name: str) -> None:
    torch = _torch()
    args = (2, 6) if name == "GroupNorm" else ((3, 6),)
    flag = {"affine": False}
    theirs = getattr(torch.nn, name)(*args, **(flag if name == "GroupNorm" else {"elementwise_affine": False}))
    x = np.random.default_rng(0).normal(size=(2, 6, 4) if name == "GroupNorm" else (2, 3, 6))
    ours = getattr(nn, name)(*args, **flag)
    assert ours.parameters() == []
    np.testing.assert_allclose(ours(fb.asarray(x)).numpy(), theirs(torch.asarray(x)).numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 5, 11])
def test_local_response_norm_equals_torchs(size: int, device: str) -> None:
    torch = _torch()
    x = np.random.default_rng(0).normal(size=(2, 6, 4, 3))
    leaf = torch.tensor(x, requires_grad=True)
    want = torch.nn.LocalResponseNorm(size, alpha=0.3, k=2.0)(leaf)
    want.sum().backward()
    ours = nn.LocalResponseNorm(size, alpha=0.3, k=2.0)
    y, pull = fb.vjp(ours, fb.asarray(x, device=device))
    np.testing.assert_allclose(y.numpy(), want.detach().numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(pull(fb.ones_like(y))[0].numpy(), leaf.grad.numpy(), rtol=1e-10, atol=1e-12)


LAYERS: list[tuple[Callable[..., nn.Module], tuple[int, ...]]] = [
    (lambda **k: nn.BatchNorm1d(4, **k), (5, 4)),
    (lambda **k: nn.BatchNorm2d(4, **k), (5, 4, 3, 3)),
    (lambda **k: nn.InstanceNorm2d(4, affine=True, **k), (5, 4, 3, 3)),
    (lambda **k: nn.GroupNorm(2, 4, **k), (5, 4, 3)),
    (lambda **k: nn.LayerNorm((4, 3), **k), (5, 4, 3)),
    (lambda **k: nn.RMSNorm(3, **k), (5, 4, 3)),
]


@pytest.mark.parametrize(("build", "shape"), LAYERS, ids=lambda v: str(v) if isinstance(v, tuple) else "")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_norms_agree_on_every_engine_in_narrow_dtypes(
    build: Callable[..., nn.Module], shape: tuple[int, ...], dtype: str, device: str
) -> None:
    x = np.random.default_rng(0).normal(3.0, 2.0, shape)
    wide = build(device="numpy", **F64)(fb.asarray(x, device="numpy")).numpy()
    layer = build(device=device, dtype=dtype)
    y = layer(fb.asarray(x, dtype=dtype, device=device))
    assert y.dtype.name == dtype
    np.testing.assert_allclose(y.numpy().astype(np.float64), wide, atol=300 * fb.finfo(y.dtype).eps, rtol=0)


@pytest.mark.parametrize(
    "norm",
    [fb.layer_norm, fb.rms_norm, fb.batch_norm, lambda x: fb.group_norm(x, 2), fb.instance_norm,
     lambda x: fb.local_response_norm(x, 3),
     lambda x: fb.layer_norm(
         x, weight=fb.ones(16, dtype=x.dtype, device=x.device), bias=fb.zeros(16, dtype=x.dtype, device=x.device))],
    ids=["layer", "rms", "batch", "group", "instance", "local response", "affine layer"],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("centre", "spread"), [(0.0, 1000.0), (200.0, 1.0)], ids=["squares overflow", "means round"])
def test_half_precision_is_rounded_once(
    norm: Callable[..., fb.Tensor], dtype: str, centre: float, spread: float, device: str
) -> None:
    rng = np.random.default_rng(0)
    x, g = (fb.astype(fb.asarray(a, device=device), getattr(fb, dtype)) for a in (
        rng.normal(centre, spread, size=(4, 6, 16)), rng.normal(size=(4, 6, 16))))  # fmt: skip
    y, pull = fb.vjp(norm, x)
    y64, pull64 = fb.vjp(norm, fb.astype(x, fb.float64))
    for narrow, exact in ((y, y64), (pull(g)[0], pull64(fb.astype(g, fb.float64))[0])):
        assert narrow.dtype is x.dtype
        error = np.abs(fb.astype(narrow, fb.float64).numpy() - exact.numpy()).max()
        assert error <= 2 * x.dtype.eps * np.abs(exact.numpy()).max()


def test_batch_norm_differentiates_to_second_order_through_its_statistics() -> None:
    rng = np.random.default_rng(0)
    x, w, b = (fb.asarray(rng.normal(size=s), device="numpy") for s in ((4, 2, 3), (1, 2, 1), (1, 2, 1)))

    def both(x: fb.Tensor, w: fb.Tensor, b: fb.Tensor) -> fb.Tensor:
        y, mean, var = fb.ops.OPS["standardize"](x, w, b, axes=(0, 2), eps=1e-5)
        return fb.sum(y * y * y) + fb.sum(mean * mean) + fb.sum(var * mean)

    fb.gradcheck(both, [x, w, b], order=2)


def test_statistics_do_not_move_in_evaluation_nor_carry_gradients() -> None:
    layer = nn.BatchNorm1d(2, **F64)
    x = fb.asarray(np.random.default_rng(0).normal(size=(8, 2)))
    before = layer.running_mean.tolist()
    layer.eval()(x)
    assert layer.running_mean.tolist() == before
    layer.train()
    fb.value_and_grad(lambda m: fb.sum(m(x) ** 2.0))(layer)
    assert not layer.running_mean.tracked
    assert layer.running_mean.tolist() != before
    assert layer.num_batches_tracked.item() == 1


def test_a_checkpointed_layer_counts_a_batch_once() -> None:
    x = fb.asarray(np.random.default_rng(0).normal(size=(8, 2)))
    plain, again = nn.BatchNorm1d(2, **F64), nn.BatchNorm1d(2, **F64)
    fb.value_and_grad(lambda m: fb.sum(m(x) ** 3.0))(plain)
    fb.value_and_grad(lambda m: fb.sum(fb.checkpoint(m)(x) ** 3.0))(again)
    assert again.num_batches_tracked.item() == 1
    assert again.running_mean.tolist() == plain.running_mean.tolist()
    assert again.running_var.tolist() == plain.running_var.tolist()


def test_a_layer_shows_its_features_and_the_settings_that_are_not_the_usual_ones() -> None:
    assert repr(nn.BatchNorm1d(3)) == "BatchNorm1d(3)"
    assert repr(nn.BatchNorm1d(3, momentum=None, affine=False)) == "BatchNorm1d(3, momentum=None, affine=False)"
    assert repr(nn.BatchNorm1d(3, eps=0.5, track_running_stats=False)) == "BatchNorm1d(3, eps=0.5, track_running_stats=False)"


def test_statistics_are_state_and_move_with_the_module() -> None:
    layer = nn.BatchNorm2d(2)
    layer(fb.asarray(np.random.default_rng(0).normal(size=(3, 2, 4, 4)), dtype=fb.float32))
    other = nn.BatchNorm2d(2, device="numpy")
    other.load_state_dict({k: v.numpy() for k, v in layer.state_dict().items()})
    assert set(layer.state_dict()) == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
    assert other.running_var.tolist() == layer.running_var.tolist()
    assert other.to("cpu:1").running_var.device.name == "cpu:1"


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: nn.BatchNorm1d(4)(fb.ones((1, 4))), ShapeError, r"BatchNorm1d: training needs more than one value a channel"),
        (lambda: nn.BatchNorm2d(4)(fb.ones((0, 4, 2, 2))), ShapeError, "training needs more than one value a channel"),
        (lambda: fb.batch_norm(fb.ones((1, 4))), ShapeError, "batch_norm: training needs more than one value a channel"),
        (lambda: nn.BatchNorm2d(4)(fb.ones((3, 4))), ShapeError, r"BatchNorm2d: x is \[batch, 4, height, width\]"),
        (lambda: nn.BatchNorm1d(4)(fb.ones((3, 5))), ShapeError, r"BatchNorm1d: x is \[batch, 4\] or \[batch, 4, length\]"),
        (lambda: nn.BatchNorm1d(4, momentum=2.0), ConfigError, r"momentum lies in \[0, 1\]"),
        (lambda: nn.BatchNorm1d(-1), ConfigError, "features is an int ≥ 0"),
        (lambda: nn.BatchNorm1d(4, eps=-1e-5), ConfigError, "BatchNorm1d: eps is a number ≥ 0"),
        (lambda: nn.InstanceNorm2d(4, eps=float("nan")), ConfigError, "InstanceNorm2d: eps is a number ≥ 0"),
        (lambda: nn.GroupNorm(2, 4, eps=-1), ConfigError, "GroupNorm: eps is a number ≥ 0"),
        (lambda: nn.LayerNorm(4, eps=-1), ConfigError, "LayerNorm: eps is a number ≥ 0"),
        (lambda: nn.RMSNorm(4, eps="small"), ConfigError, "RMSNorm: eps is a number ≥ 0"),
        (lambda: fb.batch_norm(fb.ones((2, 4)), eps=-1), ConfigError, "batch_norm: eps is a number ≥ 0"),
        (lambda: fb.instance_norm(fb.ones((2, 4, 3)), eps=-1), ConfigError, "instance_norm: eps is a number ≥ 0"),
        (lambda: fb.group_norm(fb.ones((2, 4)), 2, eps=-1), ConfigError, "group_norm: eps is a number ≥ 0"),
        (lambda: fb.layer_norm(fb.ones((2, 4)), eps=-1), ConfigError, "layer_norm: eps is a number ≥ 0"),
        (lambda: fb.rms_norm(fb.ones((2, 4)), eps=-1), ConfigError, "rms_norm: eps is a number ≥ 0"),
        (lambda: nn.InstanceNorm1d(4)(fb.ones((3, 4, 1))), ShapeError, "InstanceNorm1d: x is .* with more than one value"),
        (lambda: fb.instance_norm(fb.ones((3, 4))), ShapeError, "instance_norm: x is"),
        (lambda: nn.GroupNorm(3, 4), ConfigError, "GroupNorm: groups divides features"),
        (lambda: nn.GroupNorm(2, 4)(fb.ones((2, 6))), ShapeError, r"GroupNorm: x is \[batch, 4, ...\]"),
        (lambda: nn.GroupNorm(2, 4)(fb.ones(4)), ShapeError, r"GroupNorm: x is \[batch, 4, ...\]"),
        (lambda: fb.group_norm(fb.ones((2, 6)), 4), ShapeError, "group_norm: groups is an int ≥ 1 that divides the 6 channels"),
        (lambda: fb.group_norm(fb.ones((2, 6)), 0), ShapeError, "groups is an int ≥ 1"),
        (lambda: fb.batch_norm(fb.ones((2, 6)), weight=fb.ones(5)), ShapeError, r"batch_norm: weight is \[6\]"),
        (lambda: fb.batch_norm(fb.ones((2, 6)), mean=fb.ones(6)), ShapeError, "mean and variance are given together"),
        (lambda: fb.batch_norm(fb.ones(6)), ShapeError, r"batch_norm: x is \[batch, channels, ...\]"),
        (lambda: fb.batch_norm(fb.asarray([[1], [2]])), DTypeError, "batch_norm: x needs a floating dtype"),
        (lambda: nn.LayerNorm((3, 4))(fb.ones((4, 3))), ShapeError, r"LayerNorm: x is \[..., 3, 4\]"),
        (lambda: nn.LayerNorm(()), ConfigError, "LayerNorm: features names at least one axis"),
        (lambda: fb.layer_norm(fb.ones((2, 3)), weight=fb.ones(2), bias=fb.ones(3)), ShapeError, "layer_norm: the last axes"),
        (lambda: fb.layer_norm(fb.ones(3), shape=(2, 3)), ShapeError, "layer_norm: the last axes of x"),
        (lambda: fb.layer_norm(fb.ones(())), ShapeError, "layer_norm: the last axes of x"),
        (lambda: fb.layer_norm(fb.ones((2, 0))), ShapeError, "layer_norm: there must be values to take the mean of"),
        (lambda: fb.rms_norm(fb.ones((2, 0)), weight=fb.ones(0)), ShapeError, "rms_norm: there must be values"),
        (lambda: fb.group_norm(fb.ones((2, 4, 0)), 2), ShapeError, "group_norm: there must be values"),
        (lambda: fb.local_response_norm(fb.ones((2, 3)), 2), ShapeError, "local_response_norm: x is"),
        (lambda: fb.local_response_norm(fb.ones((2, 3, 4)), 0), ShapeError, "local_response_norm: size is an int ≥ 1"),
        (lambda: nn.RMSNorm(3)(fb.ones((3, 4))), ShapeError, r"RMSNorm: x is \[..., 3\]"),
        (lambda: fb.rms_norm(fb.ones((3, 4)), weight=fb.ones(3)), ShapeError, "rms_norm: the last axes of x"),
    ],
)
def test_bad_input_is_refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()
