"""A generative adversarial network by hand: two models and two optimizers in one compiled step, which learn to draw digits.

python examples/gan.py --out gan.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader, datasets


def make_generator(noise: int, width: int) -> nn.Sequential:
    """From noise [batch, noise] to images [batch, 1, 8, 8] with values in (0, 1)."""
    return nn.Sequential(
        nn.Linear(noise, 4 * width), nn.BatchNorm1d(4 * width), nn.ReLU(), nn.Unflatten(1, (width, 2, 2)),
        nn.ConvTranspose2d(width, width, 4, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1), nn.Sigmoid(),
    )  # fmt: skip


def make_discriminator(width: int) -> nn.Sequential:
    """From images [batch, 1, 8, 8] to logits [batch, 1], which are high where an image looks real."""
    return nn.Sequential(
        nn.Conv2d(1, width, 4, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Dropout(0.3),
        nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.LeakyReLU(0.2), nn.Dropout(0.3),
        nn.Flatten(), nn.Linear(8 * width, 1),
    )  # fmt: skip


def generator_loss(generator: nn.Module, discriminator: nn.Module, noise: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
    """-log of the probability of the label "real" for generated images, and these images."""
    fake = generator(noise)
    return fb.mean(fb.softplus(-discriminator(fake))), fake


def discriminator_loss(discriminator: nn.Module, real: fb.Tensor, fake: fb.Tensor) -> fb.Tensor:
    return fb.mean(fb.softplus(-discriminator(real))) + fb.mean(fb.softplus(discriminator(fake)))


def energy_distance(x: fb.Tensor, y: fb.Tensor) -> fb.Tensor:
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| of two sets of images: about 0 where they are drawn from one distribution."""
    x, y = x.reshape(len(x), -1), y.reshape(len(y), -1)

    def between(a: fb.Tensor, b: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.sqrt(fb.sum((a[:, None] - b[None, :]) ** 2.0, axis=-1))) / (len(a) * (len(b) - (a is b)))

    return 2.0 * between(x, y) - between(x, x) - between(y, y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gan.png"), help="picture to write (gan.png)")
    parser.add_argument("--short", action="store_true", help="small models for a few epochs")
    args = parser.parse_args()
    size, width, epochs = (16, 24, 40) if args.short else (32, 64, 150)

    digits = datasets.load("digits", "train")
    images = np.random.default_rng(0).permutation(digits.images)[:, None]
    pixels = (images / digits.pixel_max).astype(np.float32)
    loader = DataLoader(ArrayDataset(pixels), batch_size=64, shuffle=True, seed=0)
    fb.random.seed(0)
    generator, discriminator = make_generator(size, width), make_discriminator(width)
    generator_optimizer = optim.Adam(generator, lr=1e-3, betas=(0.5, 0.999))
    discriminator_optimizer = optim.Adam(discriminator, lr=1e-3, betas=(0.5, 0.999))
    average = optim.EMA(generator, decay=0.99)  # of the weights, for samples

    @fb.jit
    def step(real: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        """Each model descends along the gradient of its own loss."""
        noise = fb.random.normal((real.shape[0], size))
        (g_loss, fake), gradients = fb.value_and_grad(generator_loss, has_aux=True)(generator, discriminator, noise)
        generator_optimizer.update(generator, gradients)
        average.update()
        d_loss, gradients = fb.value_and_grad(discriminator_loss)(discriminator, real, fake.detach())
        discriminator_optimizer.update(discriminator, gradients)
        return g_loss, d_loss

    noise = fb.random.Generator(1).normal((256, size))
    some, others = fb.asarray(pixels[:256]), fb.asarray(pixels[256:512])

    def sample() -> fb.Tensor:
        generator.eval()
        with fb.no_grad(), average.applied():
            images = generator(noise)
        generator.train()
        return images

    print(f"energy distance between two sets of digits: {energy_distance(some, others):.3f}")
    print(f"energy distance of the samples at first: {energy_distance(sample(), some):.3f}")
    for epoch in range(1, epochs + 1):
        for (real,) in loader:
            g_loss, d_loss = step(real)
        if epoch % 25 == 0:
            print(f"epoch {epoch}: loss of the generator {g_loss:.3f}, of the discriminator {d_loss:.3f}")
    print(f"energy distance of the samples at last: {energy_distance(sample(), some):.3f}")
    draw({"digits": some.numpy(), "generated": sample().numpy()}, args.out)


def draw(panels: dict[str, np.ndarray], path: Path) -> None:
    """Show 144 images of each set [n, 1, 8, 8]."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(5 * len(panels), 5.3), layout="constrained")
    for axis, (title, images) in zip(axes, panels.items(), strict=True):
        tiles = np.pad(images[:144, 0].reshape(12, 12, 8, 8), ((0, 0), (0, 0), (1, 0), (1, 0)))
        axis.imshow(tiles.transpose(0, 2, 1, 3).reshape(108, 108), cmap="gray_r", vmin=0, vmax=1)
        axis.set_title(title)
        axis.set_axis_off()
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
