"""One seed, every engine: the same weights, the same batches and the same dropout masks, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import firebrick as fb
from firebrick.train import Learner

IMAGE, WINDOW = {"image_size": 12}, {"series": 2, "window": 24, "horizon": 4}
SIZES = {
    "mlp": IMAGE,
    "cnn": IMAGE,
    "lenet": IMAGE,
    "resnet18": {**IMAGE, "width": 2},
    "transformer-classifier": IMAGE,
    "lstm-forecaster": WINDOW,
    "patchtst": WINDOW,
    "gpt": {"vocabulary": 11, "length": 8, "dim": 8, "layers": 1},
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


class Noisy(fb.nn.Module):
    """Adds noise of the default generator, which a learner's seed restarts; a dropout layer has a generator of its own."""

    def __init__(self) -> None:
        self.dense = fb.nn.Linear(4, 3)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.dense(x + fb.random.normal(x.shape))


def learned(seed: int | None, before: int, jit: bool = True) -> tuple[bytes, str]:
    """Weights of a learner with a seed, made after the process's generators were seeded otherwise; and where they stand."""
    fb.random.seed(1)
    model = Noisy()
    fb.random.seed(before)
    rng = np.random.default_rng(0)
    loader = fb.data.DataLoader(fb.data.ArrayDataset(rng.normal(size=(24, 4)), np.arange(24) % 3), 8)
    learner = Learner(model, fb.optim.SGD(model, lr=0.1), seed=seed, log=None, jit=jit)
    learner.fit(loader, epochs=1)
    fb.random.uniform((3,))  # a program that draws between two calls
    learner.fit(loader, epochs=2)
    return b"".join(p.numpy().tobytes() for p in model.parameters()), str(fb.random.state())


@pytest.mark.parametrize("jit", [False, True])
def test_a_learners_seed_decides_what_it_draws_whatever_was_drawn_before(jit: bool) -> None:
    assert learned(7, before=1, jit=jit) == learned(7, before=2, jit=jit)
    assert learned(7, before=1, jit=jit)[0] != learned(8, before=1, jit=jit)[0]
    assert learned(0, before=5, jit=jit)[0] != learned(None, before=5, jit=jit)[0]  # 0 is a seed
    assert learned(None, before=7, jit=jit)[0] != learned(None, before=8, jit=jit)[0]
    assert learned(None, before=7, jit=jit) == learned(7, before=3, jit=jit)


def test_a_learners_seed_restarts_the_generators_once() -> None:
    """A second fit, and a resumed one, go on: the same masks would come again."""
    fb.random.seed(4)
    model = fb.nn.Linear(4, 3)
    loader = fb.data.DataLoader(fb.data.ArrayDataset(np.ones((8, 4)), np.arange(8) % 3), 8)
    learner = Learner(model, fb.optim.SGD(model, lr=0.1), seed=9, log=None)
    learner.fit(loader, epochs=1)
    first = fb.random.uniform((4,)).tolist()
    learner.fit(loader, epochs=2)
    assert fb.random.uniform((4,)).tolist() != first
