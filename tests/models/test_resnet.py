"""ResNet-18 for small images: torchvision's blocks, held against them as torch modules in float64."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.models.resnet import ResidualBlock


def test_the_cifar_form_has_its_published_number_of_parameters() -> None:
    model = fb.models.resnet18(device="meta")
    assert sum(p.size for p in model.parameters()) == 11_173_962
    assert sum(p.size for p in fb.models.resnet18(1, 7, device="meta").parameters()) == 11_173_962 - 2 * 9 * 64 - 3 * 513


def test_stages_halve_the_image_and_double_the_channels() -> None:
    model = fb.models.resnet18(3, width=4)
    x = fb.relu(model.norm(model.conv(fb.zeros((1, 3, 32, 32)))))
    shapes = [x.shape]
    for stage in model.stages:
        x = stage(x)
        shapes.append(x.shape)
    assert shapes == [(1, 4, 32, 32), (1, 4, 32, 32), (1, 8, 16, 16), (1, 16, 8, 8), (1, 32, 4, 4)]


def test_a_block_with_zero_init_starts_as_the_identity_of_what_is_positive() -> None:
    fb.random.seed(0)
    model = fb.models.resnet18(1, width=4, zero_init=True)
    block = model.stages[0].layers[0]
    x = fb.abs(fb.random.Generator(0).normal((2, 4, 5, 5)))
    assert np.array_equal(block(x).numpy(), x.numpy())
    assert not np.array_equal(fb.models.resnet18(1, width=4).stages[0].layers[0](x).numpy(), x.numpy())


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(3, 3, 1), (3, 6, 2)])
def test_a_block_trains_as_torchs(train_alike: Callable[..., None], inputs: int, outputs: int, stride: int) -> None:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(outputs)
            same = stride == 1 and inputs == outputs
            self.shortcut = (
                nn.Identity()
                if same
                else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            )

        def forward(self, x: Any) -> Any:
            y = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x)))))
            return torch.relu(y + self.shortcut(x))

    torch.manual_seed(0)
    theirs = Block().double()
    ours = ResidualBlock(inputs, outputs, stride, False, generator=None, dtype="float64", device=None)
    names = {n: n.replace("shortcut.layers.", "shortcut.") for n in ours.state_dict()}
    train_alike(ours, theirs, lambda rng: [rng.normal(size=(4, inputs, 6, 6))], names=names)


@cache
def _losses(device: str) -> np.ndarray:
    fb.random.seed(0)
    model = fb.models.resnet18(1, width=2, dtype="float64", device=device)
    rng = np.random.default_rng(0)
    x = fb.asarray(rng.normal(size=(8, 1, 8, 8)), device=device)
    y = fb.asarray(rng.integers(0, 10, 8), device=device)
    opt = fb.optim.SGD(model, lr=0.05, momentum=0.9)
    step = fb.value_and_grad(lambda m: fb.cross_entropy(m(x), y))
    losses = []
    for _ in range(12):
        loss, grads = step(model)
        opt.update(model, grads)
        losses.append(loss.item())
    return np.asarray(losses)


def test_a_short_training_is_alike_on_every_engine(device: str) -> None:
    reference = _losses("numpy")
    np.testing.assert_allclose(_losses(device), reference, rtol=1e-9)
    assert reference[-1] < 0.7 * reference[0]
