"""One seed, every engine: the same weights, the same batches and the same dropout masks, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import firebrick as fb

IMAGE, WINDOW = {"image_size": 12}, {"series": 2, "window": 24, "horizon": 4}
SIZES = {
    "mlp": IMAGE,
    "cnn": IMAGE,
    "lenet": IMAGE,
    "resnet18": {**IMAGE, "width": 2},
    "transformer-classifier": IMAGE,
    "lstm-forecaster": WINDOW,
    "patchtst": WINDOW,
}


def drawn(device: str, seed: int = 3) -> dict[str, bytes]:
    """Weights, batches and masks as one engine makes them."""
    fb.random.seed(seed)
    found = {}
    for name in fb.models.names():
        model = fb.models.build(name, **SIZES[name]).to(device)
        found |= {f"{name} {path}": t.numpy().tobytes() for path, t in model.state_dict().items()}
    data = fb.data.ArrayDataset(np.arange(70, dtype=np.float32).reshape(35, 2), np.arange(35))
    loader = fb.data.DataLoader(data, 8, shuffle=True, seed=seed, device=device)
    for i, batch in enumerate(loader):
        assert all(t.device is fb.device(device) for t in batch)
        found |= {f"batch {i}.{k}": t.numpy().tobytes() for k, t in enumerate(batch)}
    dropout = fb.nn.Dropout(0.4)
    dropout.train()
    ones = fb.ones((16, 9), device=device)
    found |= {f"mask {i}": (dropout(ones) != 0.0).numpy().tobytes() for i in range(3)}
    return found


def test_the_same_seed_gives_the_same_weights_batches_and_masks_on_every_engine(device: str) -> None:
    here, reference = drawn(device), drawn("numpy")
    assert here.keys() == reference.keys()
    assert [k for k in here if here[k] != reference[k]] == []


@pytest.mark.parametrize("part", ["cnn conv1.weight", "batch 0.1", "mask 0"])
def test_another_seed_gives_others(part: str) -> None:
    assert drawn("cpu", seed=3)[part] != drawn("cpu", seed=4)[part]
