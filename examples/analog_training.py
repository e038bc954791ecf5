"""Training on simulated resistive devices with soft bounds: plain SGD by pulses, Tiki-Taka and AGAD, beside digital training.

python examples/analog_training.py
python examples/analog_training.py --data fashion-mnist --root DIR

The weight of a device with soft bounds decays with each pulse, towards a point of its own. Plain SGD ends at a compromise
between gradients and this decay. Tiki-Taka gathers gradients on a fast array and moves what is significant to a slow one.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np

import firebrick as fb
from firebrick import analog, nn
from firebrick.data import ArrayDataset, DataLoader, datasets

BATCH, RATE = 20, 0.3
Data = tuple[np.ndarray, np.ndarray]


def lenet() -> nn.Module:
    """A small LeNet for images of 8 × 8 pixels."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 32), nn.Tanh(), nn.Linear(32, 10)
    )


def perceptron() -> nn.Module:
    """Two layers for images of 28 × 28 pixels."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.Tanh(), nn.Linear(64, 10))


def devices(algorithm: str) -> analog.PulsedDevice | analog.ArithmeticDevice | analog.UnitCell:
    """The cross-points of an algorithm, of devices with about 50 states whose bounds differ by 30 %."""
    device = analog.SoftBoundsDevice(dw_min=0.04, w_max=1.0, w_min=-1.0)
    if algorithm == "digital":
        return analog.FloatingPointDevice()
    if algorithm == "SGD":
        return device
    # transfer_every: five columns for each mini-batch
    if algorithm == "TTv2":
        return analog.BufferedTransferCompound(
            (device, device), transfer_lr=5.0, transfer_every=0.2, fast_lr=3.0, scale_fast_lr=True
        )
    return analog.DynamicTransferCompound(
        (device, device), transfer_lr=20.0, units_in_mbatch=True, transfer_every=0.2, fast_lr=3.0, scale_fast_lr=True
    )


def accuracy(model: nn.Module, images: np.ndarray, labels: np.ndarray) -> float:
    """Share of the images whose label has the largest output."""
    found = [np.argmax(model(fb.asarray(images[k : k + 500])).numpy(), axis=1) for k in range(0, len(images), 500)]
    return float(np.mean(np.concatenate(found) == labels))


def trained(algorithm: str, digital: nn.Module, train: Data, test: Data, epochs: int, seed: int) -> list[float]:
    """Accuracy on the unseen images after each epoch."""
    periphery = analog.IOParameters(is_perfect=algorithm == "digital")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of initial weights beyond the bounds of a device, which are clipped
        model = analog.convert(digital, analog.RPUConfig(devices(algorithm), periphery, periphery), seed=seed + 1)
    optimizer = analog.SGD(model, lr=RATE)

    def step(images: fb.Tensor, labels: fb.Tensor) -> None:
        _, gradients = fb.value_and_grad(lambda m: fb.cross_entropy(m(images), labels))(model)
        optimizer.update(model, gradients)

    run = fb.jit(step)
    loader = DataLoader(ArrayDataset(*train), batch_size=BATCH, shuffle=True, seed=seed, drop_last=True)
    found = []
    for _ in range(epochs):
        for images, labels in loader:
            run(images, labels)
        found.append(accuracy(model, *test))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["digits", "fashion-mnist"], default="digits", help="images (digits)")
    parser.add_argument("--root", type=Path, help="folder of fashion-mnist")
    parser.add_argument("--images", type=int, default=10**9, help="images of an epoch (all)")
    parser.add_argument("--epochs", type=int, default=8, help="epochs (8)")
    parser.add_argument("--seed", type=int, default=0, help="of initial weights, devices, noise and order (0)")
    parser.add_argument("--curve", action="store_true", help="print the accuracy after each epoch")
    parser.add_argument("--short", action="store_true", help="two epochs of 400 images")
    args = parser.parse_args()
    epochs, most = (2, 400) if args.short else (args.epochs, args.images)

    parts = []
    for part, size in (("train", most), ("test", 2000)):
        data = datasets.load(args.data, part, **({} if args.root is None else {"data_dir": args.root}))
        images = (data.images[:size] / data.pixel_max).astype(np.float32)
        parts.append((images.reshape(len(images), 1, *data.images.shape[1:3]), data.labels[:size].astype(np.int64)))
    fb.random.seed(args.seed)
    digital = lenet() if args.data == "digits" else perceptron()
    for algorithm in ("digital", "SGD", "TTv2", "AGAD"):
        found = trained(algorithm, digital, parts[0], parts[1], epochs, args.seed)
        last = np.mean(found[-3:])
        print(f"{algorithm}: accuracy {found[0]:.3f} after one epoch, {last:.3f} in the last three", flush=True)
        if args.curve:
            print("  " + " ".join(f"{a:.3f}" for a in found), flush=True)


if __name__ == "__main__":
    main()
