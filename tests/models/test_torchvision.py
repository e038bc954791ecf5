"""torchvision's weights of ResNet-18 load, and give its predictions; its model is written out, since it is no dependency."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.nn.saved import StateError

torch = pytest.importorskip("torch")


class BasicBlock(torch.nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(outputs)
        self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = torch.nn.Sequential(
                torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False), torch.nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class TheirResNet(torch.nn.Module):
    """``torchvision.models.resnet18`` with fewer channels."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(width)
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        for i in range(4):
            first = BasicBlock(sizes[i], sizes[i + 1], 1 if i == 0 else 2)
            layer = torch.nn.Sequential(first, BasicBlock(sizes[i + 1], sizes[i + 1], 1))
            setattr(self, f"layer{i + 1}", layer)
        self.fc = torch.nn.Linear(sizes[-1], classes)

    def forward(self, x: Any) -> Any:
        x = torch.nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))


@pytest.fixture
def theirs() -> Any:
    torch.manual_seed(0)
    made = TheirResNet(4, 7)
    made(torch.randn(8, 3, 64, 64))  # running statistics that are not those of the start
    return made.eval()


def test_torchvisions_weights_give_its_predictions(theirs: Any) -> None:
    ours = fb.models.resnet18(3, 7, width=4, large_images=True)
    assert ours.load_state_dict(fb.models.from_torchvision(theirs.state_dict())) == ([], [])
    x = torch.randn(2, 3, 64, 64)
    found = ours.eval()(fb.asarray(x))
    np.testing.assert_allclose(found.numpy(), theirs(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    theirs.conv1.weight.data.zero_()  # what was loaded is a copy
    assert fb.any(ours.conv.weight != 0)


def test_every_name_of_torchvision_has_one_here_and_every_name_here_is_given(theirs: Any) -> None:
    ours = fb.models.resnet18(3, 7, width=4, large_images=True)
    assert set(fb.models.from_torchvision(theirs.state_dict())) == set(ours.state_dict())


def test_the_large_form_has_torchvisions_number_of_parameters() -> None:
    model = fb.models.resnet18(3, 1000, large_images=True, device="meta")
    assert sum(p.size for p in model.parameters()) == 11_689_512
    assert model(fb.zeros((2, 3, 224, 224), device="meta")).shape == (2, 1000)


def test_a_state_with_torchvisions_own_names_lists_ten_and_counts_the_others(theirs: Any) -> None:
    ours = fb.models.resnet18(3, 7, width=4, large_images=True)
    with pytest.raises(StateError) as caught:
        ours.load_state_dict(theirs.state_dict())
    text = str(caught.value)
    count = len(theirs.state_dict())
    assert f" and {count - 10} more ({count} in all); unexpected: conv1.weight" in text
    assert len(text) < 1000


def test_the_small_form_names_the_stem_that_differs(theirs: Any) -> None:
    with pytest.raises(StateError, match=r"different: conv.weight: float32\[4, 3, 7, 7\] for float32\[4, 3, 3, 3\]\."):
        fb.models.resnet18(3, 7, width=4).load_state_dict(fb.models.from_torchvision(theirs.state_dict()))


def test_names_that_are_not_torchvisions_stay_and_are_reported() -> None:
    state = fb.models.from_torchvision(
        {"layer0.0.conv1.weight": 0, "layer1.0.conv3.weight": 0, "xfc.weight": 0, "conv.weight": 0}
    )
    assert list(state) == ["layer0.0.conv1.weight", "layer1.0.conv3.weight", "xfc.weight", "conv.weight"]


@pytest.mark.parametrize("state", [None, 3, {1: 2}])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(fb.ConfigError, match="from_torchvision takes a mapping from names to values"):
        fb.models.from_torchvision(state)
