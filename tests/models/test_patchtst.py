"""PatchTST: its parts held against torch in float64, and a short training alike on every engine."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.errors import ConfigError, ShapeError

TINY: dict[str, Any] = {
    "series": 3, "window": 24, "horizon": 6, "patch": 8, "stride": 4, "dim": 8, "heads": 2, "hidden": 16, "layers": 2,
}  # fmt: skip


def test_the_small_form_of_the_paper_has_42_patches_and_its_parameters() -> None:
    model = fb.models.patchtst()
    assert model.count == 42
    block = 3 * 16 * 17 + 16 * 17 + (16 * 128 + 128) + (128 * 16 + 16) + 4 * 16
    assert sum(p.size for p in model.parameters()) == (16 * 16 + 16) + 42 * 16 + 3 * block + (42 * 16 * 96 + 96)


def test_patches_overlap_and_the_last_value_is_repeated() -> None:
    model = fb.models.patchtst(1, window=10, horizon=1, patch=4, stride=3, dim=4, heads=1, layers=1)
    row = fb.reshape(fb.astype(fb.arange(10), fb.float32), (1, 10))
    assert model._patches(row)[0].tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9], [9, 9, 9, 9]]


def test_series_never_see_one_another_and_keep_their_level_and_scale() -> None:
    fb.random.seed(0)
    model = fb.models.patchtst(**TINY, dtype=fb.float64).eval()
    x = np.random.default_rng(0).normal(size=(2, 24, 3))
    y = model(fb.asarray(x)).numpy()
    other = x.copy()
    other[:, :, 1] = other[:, :, 1] * 50.0 + 700.0
    z = model(fb.asarray(other)).numpy()
    assert np.array_equal(z[:, :, [0, 2]], y[:, :, [0, 2]])
    np.testing.assert_allclose(z[:, :, 1], y[:, :, 1] * 50.0 + 700.0, rtol=1e-4)
    swapped = model(fb.asarray(x[:, :, ::-1].copy())).numpy()
    np.testing.assert_allclose(swapped, y[:, :, ::-1], rtol=1e-12)


def in_torch(model: Any, x: np.ndarray) -> np.ndarray:
    """The published architecture written again with torch, in evaluation mode, on the model's weights."""
    import torch
    from torch.nn import functional as f

    w = {n: torch.asarray(t.numpy().copy()) for n, t in model.state_dict().items()}
    x = torch.asarray(x)
    level, scale = x.mean(1, keepdim=True), torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5)
    z = f.pad(((x - level) / scale).transpose(1, 2), (0, model.stride), mode="replicate")
    z = z.unfold(-1, TINY["patch"], model.stride)
    batch, series, count, _ = z.shape
    z = f.linear(z, w["embed.weight"], w["embed.bias"]).reshape(batch * series, count, -1) + w["position"]
    scores = 0.0
    heads, size = TINY["heads"], TINY["dim"] // TINY["heads"]

    def norm(v: Any, name: str) -> Any:
        state = (w[f"{name}.running_mean"], w[f"{name}.running_var"], w[f"{name}.weight"], w[f"{name}.bias"])
        return f.batch_norm(v.transpose(1, 2), *state).transpose(1, 2)

    for i in range(TINY["layers"]):
        at = f"blocks.{i}."
        q, k, v = f.linear(z, w[at + "attention.qkv.weight"], w[at + "attention.qkv.bias"]).chunk(3, -1)
        q, k, v = (t.reshape(batch * series, count, heads, size).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-1, -2) * size**-0.5 + scores
        mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch * series, count, -1)
        z = norm(z + f.linear(mixed, w[at + "attention.out.weight"], w[at + "attention.out.bias"]), at + "norm1")
        hidden = f.gelu(f.linear(z, w[at + "linear1.weight"], w[at + "linear1.bias"]))
        z = norm(z + f.linear(hidden, w[at + "linear2.weight"], w[at + "linear2.bias"]), at + "norm2")
    y = f.linear(z.reshape(batch, series, -1), w["head.weight"], w["head.bias"])
    return (y.transpose(1, 2) * scale + level).numpy()


def test_the_output_equals_the_architecture_written_with_torch() -> None:
    pytest.importorskip("torch", reason="torch, to compare with")
    fb.random.seed(1)
    model = fb.models.patchtst(**TINY, dtype=fb.float64)
    rng = np.random.default_rng(1)
    for _ in range(3):
        model(fb.asarray(rng.normal(size=(5, 24, 3))))  # so that the running statistics are not 0 and 1
    x = rng.normal(size=(4, 24, 3)) * 3 + 1
    model.eval()
    np.testing.assert_allclose(model(fb.asarray(x)).numpy(), in_torch(model, x), rtol=1e-10, atol=1e-10)


@cache
def _losses(device: str, dropout: float = 0.3) -> np.ndarray:
    """The loss of each step of a short training in float64 on windows of a synthetic series."""
    fb.random.seed(0)
    t = np.arange(80)[:, None]
    values = np.sin(t / np.array([3.0, 5.0, 9.0])) + 0.1 * np.random.default_rng(0).normal(size=(80, 3))
    loader = fb.data.DataLoader(fb.data.WindowDataset(values, 24, 6), 16, shuffle=True, seed=2, device=device, dtype="float64")
    model = fb.models.patchtst(**TINY, dropout=dropout, dtype="float64").to(device)
    opt = fb.optim.Adam(model, lr=3e-3)
    step = fb.value_and_grad(lambda m, x, y: fb.mse_loss(m(x), y))
    losses = []
    for _ in range(5):
        for x, y in loader:
            loss, grads = step(model, x, y)
            opt.update(model, grads)
            losses.append(loss.item())
    return np.asarray(losses)


def test_a_short_training_is_alike_on_every_engine(device: str) -> None:
    here, reference = _losses(device), _losses("numpy")
    assert len(here) == 20
    np.testing.assert_allclose(here, reference, rtol=1e-10)
    assert reference[-4:].mean() < 0.7 * reference[:4].mean()


def test_agreement_would_show_another_dropout() -> None:
    assert np.max(np.abs(_losses("numpy", 0.31) / _losses("numpy") - 1)) > 1e-6


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: fb.models.patchtst(window=8), ConfigError, "a patch is no longer than the window"),
        (lambda: fb.models.patchtst(stride=0), ConfigError, "patchtst: stride is an int ≥ 1"),
        (lambda: fb.models.patchtst(dim=10), ConfigError, "heads divides dim"),
        (lambda: fb.models.patchtst(**TINY)(fb.zeros((2, 24, 4))), ShapeError, r"x is \[batch, 24, 3\]"),
        (lambda: fb.models.lstm_forecaster(2, 5, 3)(fb.zeros((2, 6, 2))), ShapeError, r"x is \[batch, 5, 2\]"),
        (lambda: fb.models.lstm_forecaster(hidden=0), ConfigError, "lstm_forecaster: hidden is an int ≥ 1"),
    ],
)
def test_errors_say_what_was_expected(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_the_lstm_forecaster_learns_a_sine_and_follows_the_level_of_its_window() -> None:
    fb.random.seed(0)
    model = fb.models.lstm_forecaster(1, 12, 3, hidden=16)
    t = np.arange(15)[None] + np.random.default_rng(0).uniform(0, 40, (64, 1))
    waves = fb.asarray(np.sin(t * 0.5)[:, :, None].astype(np.float32))
    opt = fb.optim.Adam(model, lr=2e-2)
    step = fb.value_and_grad(lambda m: fb.mse_loss(m(waves[:, :12]), waves[:, 12:]))
    losses = []
    for _ in range(60):
        loss, grads = step(model)
        opt.update(model, grads)
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
    shifted = model(waves[:, :12] + 8.0).numpy()
    np.testing.assert_allclose(shifted, model(waves[:, :12]).numpy() + 8.0, atol=1e-4)


@pytest.mark.parametrize("device", ["numpy", "cpu", "torch:cpu"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_part_of_a_batch_drops_what_the_whole_batch_drops_in_its_windows(device: str, compiled: bool) -> None:
    fb.random.seed(0)
    model = fb.models.patchtst(**TINY, dropout=0.3, dtype=fb.float64, device=device)
    for _, part in model.modules():
        if isinstance(part, fb.nn.BatchNorm1d):
            part.eval()  # whose statistics are of all windows
    x = fb.asarray(np.random.default_rng(0).normal(size=(5, 24, 3)), device=device)
    before = model.generators()
    marks = {name: g.mark() for name, g in before.items()}

    def run(start: int, stop: int) -> Any:
        for name, g in before.items():
            g.return_to(marks[name])
        with fb.random.row_offset(start):
            return (fb.jit(model) if compiled else model)(x[start:stop]).numpy()

    whole = run(0, 5)
    assert np.abs(np.concatenate([run(0, 2), run(2, 5)]) - whole).max() < 1e-12
    assert np.abs(model.eval()(x).numpy() - whole).max() > 1e-3  # something was dropped


@pytest.mark.parametrize("options", [{"accumulate": 2}, {"strategy": ["cpu:0", "cpu:1"]}])
def test_it_trains_with_dropout_in_parts_and_on_several_devices(options: dict[str, Any]) -> None:
    from firebrick.train import DataParallel, Learner

    fb.random.seed(0)
    model = fb.models.patchtst(**TINY, dropout=0.3)
    rng = np.random.default_rng(0)
    data = fb.data.ArrayDataset(rng.normal(size=(8, 24, 3)), rng.normal(size=(8, 6, 3)))
    options = {name: DataParallel(value) if name == "strategy" else value for name, value in options.items()}
    learner = Learner(model, fb.optim.SGD(model, lr=0.01), fb.mse_loss, log=None, jit=False, **options)
    assert len(learner.fit(fb.data.DataLoader(data, 8), epochs=1)) == 1
