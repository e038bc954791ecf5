"""A variational autoencoder with a two-dimensional latent space, trained on the digits that come with the package.

python examples/vae.py --out vae.png
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import NormalDist

import numpy as np

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader, datasets


class VAE(nn.Module):
    """Images [batch, 64] with values in [0, 1] to normal distributions over a plane, and points of the plane to logits."""

    def __init__(self, hidden: int) -> None:
        self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.moments = nn.Linear(hidden, 4)
        self.decoder = nn.Sequential(
            nn.Linear(2, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 64)
        )

    def encode(self, images: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        """Means and logarithms of variances [batch, 2]."""
        mean, log_variance = fb.chunk(self.moments(self.encoder(images)), 2, axis=1)
        return mean, log_variance

    def forward(self, images: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor, fb.Tensor]:
        mean, log_variance = self.encode(images)
        point = mean + fb.exp(0.5 * log_variance) * fb.random.normal(mean.shape)  # reparameterised
        return self.decoder(point), mean, log_variance


def loss(model: VAE, images: fb.Tensor) -> fb.Tensor:
    """Negative evidence lower bound in nats, mean over the images: reconstruction error and divergence from the prior."""
    logits, mean, log_variance = model(images)
    reconstruction = fb.binary_cross_entropy_with_logits(logits, images, reduction="sum")
    divergence = 0.5 * fb.sum(mean**2.0 + fb.exp(log_variance) - 1.0 - log_variance)
    return (reconstruction + divergence) / images.shape[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("vae.png"), help="picture to write (vae.png)")
    parser.add_argument("--short", action="store_true", help="a small model for a few epochs")
    args = parser.parse_args()
    hidden, epochs = (128, 30) if args.short else (256, 125)

    digits, unseen = datasets.load("digits", "train"), datasets.load("digits", "test")
    train, test = ((a.images.reshape(-1, 64) / a.pixel_max).astype(np.float32) for a in (digits, unseen))
    loader = DataLoader(ArrayDataset(train), batch_size=64, shuffle=True, seed=0)
    fb.random.seed(0)
    model = VAE(hidden)
    optimizer = optim.Adam(model, lr=optim.cosine(2e-3, epochs * len(loader)))
    loss_and_gradients = fb.value_and_grad(loss)

    @fb.jit
    def step(images: fb.Tensor) -> None:
        _, gradients = loss_and_gradients(model, images)
        optimizer.update(model, gradients)

    images = fb.asarray(test)
    mean = fb.broadcast_to(fb.mean(fb.asarray(train), axis=0), images.shape)
    constant = fb.binary_cross_entropy(mean, images, reduction="sum") / len(images)
    print(f"test loss of the mean image: {constant:.2f}")
    print(f"test loss at first: {loss(model, images):.2f}")
    for epoch in range(1, epochs + 1):
        for (batch,) in loader:
            step(batch)
        if epoch % 25 == 0:
            print(f"test loss after {epoch} epochs: {loss(model, images):.2f}")
    print(f"test loss at last: {loss(model, images):.2f}")

    reconstructed = fb.sigmoid(model.decoder(model.encode(images[:64])[0]))
    quantiles = fb.asarray([NormalDist().inv_cdf((k + 0.5) / 16) for k in range(16)])  # of equal probability
    plane = fb.stack(fb.meshgrid(quantiles, quantiles), axis=-1)
    samples = fb.sigmoid(model.decoder(plane.reshape(-1, 2)))
    draw(
        {"digits": test[:64], "reconstructed": reconstructed.numpy(), "decoded points of the plane": samples.numpy()},
        args.out,
    )


def grid(images: np.ndarray) -> np.ndarray:
    """Images [k², 64] as tiles of one image."""
    k = int(len(images) ** 0.5)
    tiles = np.pad(images.reshape(k, k, 8, 8), ((0, 0), (0, 0), (1, 0), (1, 0)))
    return tiles.transpose(0, 2, 1, 3).reshape(9 * k, 9 * k)


def draw(panels: dict[str, np.ndarray], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(5 * len(panels), 5.3), layout="constrained")
    for axis, (title, images) in zip(axes, panels.items(), strict=True):
        axis.imshow(grid(images), cmap="gray_r", vmin=0, vmax=1)
        axis.set_title(title)
        axis.set_axis_off()
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
