"""What cannot work is refused before the first step: the validation's batches, the optimizer, the config, processes alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Learner, SingleDevice, TrainingError, evaluate


def loader(*arrays: Any, **options: Any) -> DataLoader:
    arrays = arrays or (np.random.default_rng(0).normal(size=(16, 4)), np.arange(16) % 3)
    return DataLoader(ArrayDataset(*arrays), 4, **options)


def made(optimizer: Any = None, **options: Any) -> Learner:
    fb.random.seed(0)
    model = nn.Linear(4, 3)
    return Learner(model, optim.Adam(model, lr=1e-2) if optimizer is None else optimizer(model), log=None, **options)


# the validation


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        (
            (np.ones((8, 5)), np.arange(8) % 3),
            r'loader "validation" \(float32\[4, 5\] on cpu:0.*[\s\S]*batch 0 of loader "valid',
        ),
        ((np.ones((8, 4)),), r'loader "validation" \([\s\S]*a batch of one tensor is input and target of the loss'),
        ((np.ones((8, 4)), np.arange(8)), r'loader "validation".*[\s\S]*labels must lie in \[0, 3\)'),
        ((np.ones((8, 4)), np.ones(8)), r'loader "validation".*[\s\S]*integer dtype'),
    ],
)
def test_a_validation_that_cannot_be_evaluated_is_refused_before_the_first_step(
    arrays: Any, said: str, jit: bool, tmp_path: Path
) -> None:
    learner = made(jit=jit, out=tmp_path / "run")
    with pytest.raises(TrainingError, match=said):
        learner.fit(loader(), loader(*arrays), epochs=2)
    assert learner.step == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("model", "target"), [(nn.Linear(4, 1), np.linspace(0.0, 1.0, 16)[:, None]), (nn.Linear(4, 2), np.full((16, 2), 0.5))]
)
def test_floating_targets_need_a_loss_that_is_named(model: nn.Module, target: Any) -> None:
    before = model.state_dict().numpy()
    learner = Learner(model, optim.SGD(model, lr=0.1), log=None)
    data = loader(np.ones((16, 4)), target)
    with pytest.raises(TrainingError, match=r"without loss=[\s\S]*target: float32\[4,.\][\s\S]*nn.MSELoss\(\) for numbers"):
        learner.fit(data, epochs=1)
    for find in (learner.evaluate, lambda data: evaluate(model, data)):
        with pytest.raises(fb.FirebrickError, match="without loss="):
            find(data)
    assert all(np.array_equal(before[k], v) for k, v in model.state_dict().numpy().items())
    if model(fb.ones((1, 4))).shape[1] == 2:  # cross entropy of probabilities, when it is asked for
        assert Learner(model, optim.SGD(model, lr=0.1), fb.cross_entropy, log=None).fit(data, epochs=1)[0].train_loss > 0.0


def test_a_loader_keeps_the_name_that_it_was_given() -> None:
    valid = loader(np.ones((8, 5)), np.arange(8) % 3, name="held out")
    with pytest.raises(TrainingError, match='loader "held out"'):
        made().fit(loader(), valid, epochs=1)
    unnamed = loader()
    made().fit(loader(), unnamed, epochs=1)
    assert unnamed.name == "train"


def test_the_trial_of_the_validation_changes_nothing() -> None:
    class Drawing(nn.Linear):  # in evaluation too
        def forward(self, x: Any) -> Any:
            if not self.training:
                self.evaluated = getattr(self, "evaluated", 0) + 1
            return super().forward(x + fb.random.normal(x.shape))

    runs = []
    for valid in (loader(), None):
        fb.random.seed(0)
        model = Drawing(4, 3)
        learner = Learner(model, optim.Adam(model, lr=1e-2), log=None, jit=False)
        learner.fit(loader(), valid, epochs=1)
        runs.append((model.weight.tolist(), getattr(model, "evaluated", 0)))
    assert [count for _, count in runs] == [4, 0]
    assert runs[0][0] == runs[1][0]


# what a learner is made of


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        (lambda model: optim.LBFGS(model), r"LBFGS, which computes the loss.*[\s\S]*optimizer\.step\(model, loss_fn\)"),
        (lambda model: [optim.Adam(model, lr=1e-3)], r"one optimizer, made for the model\nReceived: \[Adam"),
        (lambda model: optim.Adam, r"one optimizer, made for the model\nReceived: the class Adam"),
        (lambda model: "adam", r"one optimizer, made for the model\nReceived: 'adam'"),
    ],
)
def test_what_is_no_optimizer_of_a_learner_is_refused_by_name(optimizer: Any, said: str) -> None:
    with pytest.raises(TrainingError, match=said):
        made(optimizer)
    model = nn.Linear(4, 3)
    with pytest.raises(TrainingError, match="Received: None"):
        Learner(model, None, log=None)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"data": Path("x")}, r"config\['data'\]: PosixPath\('x'\)|config\['data'\]: WindowsPath"),
        ({"mean": np.ones(2)}, r"config\['mean'\].*a value of ndarray"),
        ({"layers": [{"dtype": fb.float32}]}, r"config\['layers'\]\[0\]\['dtype'\].*a value of DType"),
        ({"sizes": {(1, 2): 3}}, r"a key of config\['sizes'\]: \(1, 2\)"),
    ],
)
def test_a_config_that_no_checkpoint_holds_is_refused_by_key(config: dict[str, Any], said: str) -> None:
    with pytest.raises(TrainingError, match=f"(?s){said}.*str\\(path\\)"):
        made(config=config)


def test_a_config_of_plain_values_comes_back(tmp_path: Path) -> None:
    config = {"a": [1, 2.5, None, True], "b": {"c": "text", "d": np.float32(0.5)}}
    made(config=config).save(tmp_path / "checkpoint")
    found = fb.train.load_checkpoint(tmp_path / "checkpoint").config
    assert {k: found[k] for k in config} == config


# losses of logarithms of probabilities


@pytest.mark.parametrize("last", [nn.Identity, nn.Softmax, nn.Sigmoid])
@pytest.mark.parametrize(
    "loss", [nn.NLLLoss(), fb.nll_loss, nn.KLDivLoss("batchmean"), partial(fb.kl_div, reduction="batchmean")]
)
def test_probabilities_are_no_logarithms_of_them(loss: Any, last: Any) -> None:
    x, labels = np.random.default_rng(0).normal(size=(16, 4)), np.arange(16) % 3
    of_labels = loss is fb.nll_loss or isinstance(loss, nn.NLLLoss)
    data = loader(x, labels if of_labels else np.eye(3, dtype=np.float32)[labels])
    for ends, refused in ((last, True), (nn.LogSoftmax, False)):
        model = nn.Sequential(nn.Linear(4, 3), ends())
        learner = Learner(model, optim.SGD(model, lr=0.1), loss, log=None)
        if not refused:
            assert learner.fit(data, epochs=1)[0].train_loss > 0.0
            continue
        with pytest.raises(TrainingError, match=r"logarithms of probabilities, which are at most 0[\s\S]*nn.LogSoftmax\(\)"):
            learner.fit(data, epochs=1)
        assert learner.step == 0


# evaluations and predictions


@pytest.mark.parametrize("jit", [True, False])
def test_an_evaluation_without_targets_and_a_prediction_without_inputs_are_refused(jit: bool) -> None:
    learner, inputs = made(jit=jit), loader(np.ones((8, 4)), name="inputs")
    for attempt in (learner.evaluate, partial(evaluate, learner.model, jit=jit)):
        with pytest.raises(fb.DTypeError, match=r'target: .*loader "inputs"') as caught:
            attempt(inputs)
        assert "a batch of one tensor is input and target of the loss" in caught.value.__notes__[0]
    with pytest.raises(TrainingError, match=r"predict takes a batch of each of the model's inputs"):
        learner.predict()


# several processes


def test_processes_of_a_launcher_do_not_train_by_themselves_unless_they_are_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    learner = made()
    with pytest.raises(TrainingError, match=r"firebrick launch started 2 processes[\s\S]*strategy=Distributed\(\)"):
        learner.fit(loader(), epochs=1)
    assert learner.step == 0
    alone = made(strategy=SingleDevice())
    alone.fit(loader(), epochs=1)
    assert alone.step == 4
    learner.evaluate(loader())  # a rank may evaluate by itself
