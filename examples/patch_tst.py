"""PatchTST by hand: patches of a time series are the tokens of a transformer, which forecasts the hours that follow.

python examples/patch_tst.py --out patch_tst.png

Source: Nie et al., "A Time Series is Worth 64 Words", arXiv:2211.14730.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import DataLoader, WindowDataset
from firebrick.train import EarlyStopping, Learner, MeanSquaredError


class PatchTST(nn.Module):
    """Forecasts [batch, horizon, channels] of windows [batch, look_back, channels]; all channels share the weights.

    Args:
        look_back: Hours of a window.
        horizon: Hours to forecast.
        patch: Hours of a patch; each begins half a patch after the one before.
        embed: Features of a token.
        layers: Encoder layers.
    """

    def __init__(self, look_back: int, horizon: int, patch: int, embed: int, layers: int) -> None:
        self.patch = patch
        count = (look_back - patch) // (patch // 2) + 1
        self.embedding = nn.Linear(patch, embed)
        self.positions = nn.Parameter(0.02 * fb.random.normal((count, embed)))
        self.encoder = nn.TransformerEncoder(embed, heads=4, layers=layers, dropout=0.1)
        self.head = nn.Linear(count * embed, horizon)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        mean = fb.mean(x, axis=1, keepdims=True)  # reversible instance normalisation
        scale = fb.std(x, axis=1, keepdims=True) + 1e-3
        series = ((x - mean) / scale).mT.reshape(-1, x.shape[1])  # [batch · channels, look_back]
        patches = fb.unfold(series, axis=1, size=self.patch, step=self.patch // 2)
        tokens = self.encoder(self.embedding(patches) + self.positions)
        forecast = self.head(tokens.reshape(tokens.shape[0], -1))
        return forecast.reshape(x.shape[0], x.shape[2], -1).mT * scale + mean


def load_of_three_cities(hours: int) -> np.ndarray:
    """Synthetic load [hours, 3]: days with two peaks, low weekends, a slow drift and autocorrelated noise."""
    rng = np.random.default_rng(0)
    hour, day = np.arange(hours) % 24, np.arange(hours) // 24
    series = []
    for city in range(3):
        peaks = np.exp(-((hour - 8 - city) ** 2) / 8) + 1.4 * np.exp(-((hour - 18 + city) ** 2) / 14)
        weekend = np.where(day % 7 >= 5, 0.45, 1.0)
        drift = 0.5 * np.sin(2 * np.pi * np.arange(hours) / (24 * (30 + 9 * city)))
        noise = np.convolve(rng.normal(size=hours) * 0.06, 0.9 ** np.arange(48))[:hours]
        series.append(weekend * peaks + drift + noise)
    return np.stack(series, axis=1).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("patch_tst.png"), help="picture to write (patch_tst.png)")
    parser.add_argument("--short", action="store_true", help="a small model for a few epochs")
    args = parser.parse_args()
    look_back, horizon = 336, 96
    hours, embed, layers, epochs = (2400, 16, 1, 4) if args.short else (6000, 64, 2, 5)

    series = load_of_three_cities(hours)
    first, last = int(0.7 * hours), int(0.8 * hours)

    def loader(start: int, stop: int, name: str) -> DataLoader:
        windows = WindowDataset(series[max(0, start - look_back) : stop], look_back, horizon)
        return DataLoader(windows, batch_size=64, shuffle=name == "train", drop_last=name == "train", name=name)

    train, valid, test = loader(0, first, "train"), loader(first, last, "valid"), loader(last, hours, "test")
    fb.random.seed(0)
    model = PatchTST(look_back, horizon, 16, embed, layers)
    optimizer = optim.AdamW(model, lr=optim.one_cycle(2e-3, epochs * len(train)))
    stopping = EarlyStopping("valid_loss", patience=2)  # gives the model the values of its best epoch
    learner = Learner(model, optimizer, nn.MSELoss(), clip_norm=1.0, callbacks=[stopping])
    learner.fit(train, valid, epochs=epochs)

    def week_before(x: fb.Tensor) -> fb.Tensor:
        return x[:, -168 : -168 + horizon]

    naive = MeanSquaredError()
    for x, y in test:
        naive.update(week_before(x), y)
    print(f"test error of the week before, repeated: {naive.compute():.4f}")
    print(f"test error of PatchTST: {learner.evaluate(test).loss:.4f}")

    x, y = test.first()
    with fb.no_grad():
        forecast = model.eval()(x)
    draw(x[0].numpy(), y[0].numpy(), {"PatchTST": forecast[0].numpy(), "week before": week_before(x)[0].numpy()}, args.out)


def draw(before: np.ndarray, after: np.ndarray, forecasts: dict[str, np.ndarray], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(before.shape[1], 1, figsize=(12, 7), sharex=True, layout="constrained", squeeze=False)
    axes = rows[:, 0]
    past, future = np.arange(-168, 0) / 24, np.arange(len(after)) / 24
    for city, axis in enumerate(axes):
        axis.plot(past, before[-168:, city], color="0.4")
        axis.plot(future, after[:, city], color="0.1", label="observed")
        for name, values in forecasts.items():
            axis.plot(future, values[:, city], label=name, linewidth=2 if name == "PatchTST" else 1)
        axis.axvspan(0, len(after) / 24, color="0.95")
        axis.set(ylabel=f"city {city + 1}", xlim=(-7, len(after) / 24))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    axes[-1].set_xlabel("days")
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
