"""A learner's steps are graphs: few, the same bits as without, and what cannot be one says so once and trains all the same."""

import gc
import re
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import ref

import numpy as np
import pytest

import firebrick as fb
from firebrick import analog, nn, optim
from firebrick.data import ArrayDataset, DataLoader
from firebrick.train import Callback, EagerTrainingWarning, Learner, SingleDevice, evaluate, load_checkpoint
from firebrick.train.compiled import Compiled

Make = Callable[..., Learner]
Loaders = tuple[DataLoader, DataLoader]
ENGINES = ["cpu", "numpy", "torch:cpu"]


def rows(learner: Learner) -> list[tuple[Any, ...]]:
    """The history without what a clock measured."""
    return [(r.epoch, r.step, r.train_loss, r.train_accuracy, r.valid_loss, r.valid_accuracy) for r in learner.history]


def files(run: Path) -> dict[str, bytes]:
    """The tensors of a run's checkpoints."""
    return {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*.safetensors")}


# how many graphs


def test_a_whole_run_is_one_graph_a_size_of_batch(make: Make, loaders: Loaders) -> None:
    learner = make(clip_norm=0.5, ema=0.9)
    learner.fit(*loaders, epochs=4)  # 7 batches, of which the last is smaller, and 2, likewise
    steps, evaluation = learner.compiled["training step"], learner.compiled["evaluation"]
    assert (steps.traces, evaluation.traces) == (2, 2)
    assert steps.recompiles[0].reason == "first call"
    assert "float32[8,2] on cpu:0 → float32[2,2] on cpu:0" in steps.recompiles[1].reason
    assert 0.0 < steps.seconds < 60.0
    assert steps.reason is None


@pytest.mark.parametrize("device", ENGINES)
def test_batches_of_one_size_are_one_graph_on_every_engine(make: Make, loaders: Loaders, device: str) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch")
    learner = make(strategy=SingleDevice(device), clip_norm=0.5, ema=0.9)
    learner.fit(loaders[0].slice(0, 40), loaders[1].slice(0, 16), epochs=3)  # more steps than gradients are watched
    assert learner.step == 15
    assert [c.traces for c in learner.compiled.values()] == [1, 1]


def test_fitting_again_and_predicting_find_their_graphs(make: Make, loaders: Loaders) -> None:
    learner = make()
    for epochs in (1, 2, 3):
        learner.fit(*loaders, epochs=epochs)
        learner.predict(fb.ones((3, 2)))
    assert [(n, c.traces) for n, c in learner.compiled.items()] == [("training step", 2), ("evaluation", 2), ("prediction", 1)]


def test_of_many_graphs_three_reasons_are_given() -> None:
    compiled: Any = Compiled("the step", print, None)
    for n in range(1, 7):
        compiled.recompiles = [SimpleNamespace(reason=f"argument batch[0]: {k}", seconds=0.5) for k in range(n)]
        compiled._sizes = [8 - k for k in range(n)]
        why = ["a batch of 7", "a batch of 6", "a batch of 5", "…"][: n - 1]
        assert str(compiled) == f"the step {n} graph{'s' * (n > 1)} in {n / 2:.2g} s" + (f" ({'; '.join(why)})" if why else "")


def test_the_summary_says_what_was_compiled_and_why_again(make: Make, loaders: Loaders) -> None:
    lines: list[str] = []
    learner = make(log=lines.append)
    learner.fit(*loaders, epochs=2)
    assert len(lines) == 3
    assert re.fullmatch(r"compiled in [\d.e-]+ s", lines[-1])  # one graph for full batches and one for the last are usual
    learner.fit(*loaders, epochs=3)
    assert len(lines) == 4  # nothing new was compiled
    learner.model.dense1.freeze()
    learner.fit(*loaders, epochs=4)
    assert "float32[16,2] on cpu:0, frozen" in lines[-1]


def test_another_loss_is_another_step(make: Make, loaders: Loaders) -> None:
    learner = make()
    learner.fit(loaders[0], epochs=1)
    before = learner.history[-1].train_loss
    learner.loss = lambda output, target: fb.cross_entropy(output, target) * 100.0
    learner.fit(loaders[0], epochs=2)
    assert learner.history[-1].train_loss > 10.0 * before


# the same bits


@pytest.mark.usefixtures("numpy_kernels")
@pytest.mark.parametrize("device", ENGINES)
def test_graphs_write_the_checkpoints_that_plain_steps_write(make: Make, loaders: Loaders, tmp_path: Path, device: str) -> None:
    if device.startswith("torch"):
        pytest.importorskip("torch")
    runs = {}
    for jit in (True, False):
        learner = make(out=tmp_path / f"{jit}", strategy=SingleDevice(device), clip_norm=0.5, ema=0.9, jit=jit)
        learner.fit(*loaders, epochs=3, draw=False)
        runs[jit] = files(tmp_path / f"{jit}"), rows(learner)
    assert runs[True] == runs[False]
    assert any("checkpoint" in name for name in runs[True][0])


@pytest.mark.usefixtures("numpy_kernels")
def test_a_run_goes_on_without_graphs_where_it_was_left_with_them(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    whole = make()
    whole.fit(*loaders, epochs=4)
    make(out=tmp_path / "run").fit(*loaders, epochs=2, draw=False)
    resumed = make(out=tmp_path / "run", jit=False)
    resumed.resume()
    resumed.fit(*loaders, epochs=4, draw=False)
    assert rows(resumed) == rows(whole)
    for p, q in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert p.numpy().tobytes() == q.numpy().tobytes()


@pytest.mark.usefixtures("numpy_kernels")
def test_evaluation_and_prediction_give_the_same_bits(make: Make, loaders: Loaders) -> None:
    learner, x = make(), fb.asarray(np.random.default_rng(0).normal(size=(7, 2)), dtype=fb.float32)
    plain, compiled = (evaluate(learner.model, loaders[1], jit=jit) for jit in (False, True))
    assert (
        (plain.loss, plain.accuracy)
        == (compiled.loss, compiled.accuracy)
        == (learner.evaluate(loaders[1]).loss, plain.accuracy)
    )
    assert plain.confusion is not None
    np.testing.assert_array_equal(plain.confusion, compiled.confusion)
    predicted = learner.predict(x).numpy()
    with fb.disable_jit():
        np.testing.assert_array_equal(learner.predict(x).numpy(), predicted)


def test_what_was_read_of_a_parameter_stays_while_steps_write_over_it(make: Make, loaders: Loaders) -> None:
    learner = make()
    learner.fit(loaders[0], epochs=1)
    weight = learner.model.dense1.weight
    seen, held, before = weight.numpy(), weight.detach(), weight.numpy().copy()
    learner.fit(loaders[0], epochs=2)
    np.testing.assert_array_equal(seen, before)
    np.testing.assert_array_equal(held.numpy(), before)
    assert not np.array_equal(weight.numpy(), before)


# without graphs


@pytest.mark.parametrize("how", ["argument", "config", "context"])
def test_nothing_is_compiled_where_that_was_asked_for(make: Make, loaders: Loaders, how: str) -> None:
    lines: list[str] = []
    learner = make(jit=how != "argument", log=lines.append)
    asked = {"argument": nullcontext(), "config": fb.config.scope(jit=False), "context": fb.disable_jit()}
    with asked[how]:
        learner.fit(*loaders, epochs=1)
    assert [c.traces for c in learner.compiled.values()] == [0, 0]
    assert len(lines) == 1
    assert learner.compiled["training step"].reason == ("by request" if how == "argument" else None)


class Clipped:
    """A loss that asks Python whether it is large."""

    def __call__(self, output: Any, target: Any) -> Any:
        loss = fb.cross_entropy(output, target)
        return loss if loss < 1.0 else loss * 0.5


def test_a_loss_that_needs_values_says_so_once_and_trains_to_the_same_bits(
    make: Make, loaders: Loaders, tmp_path: Path
) -> None:
    runs = {}
    for jit in (True, False):
        lines: list[str] = []
        learner = make(loss=Clipped(), out=tmp_path / f"{jit}", jit=jit, log=lines.append)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            learner.fit(*loaders, epochs=2, draw=False)
        runs[jit] = files(tmp_path / f"{jit}"), rows(learner)
        said = [str(w.message) for w in caught if w.category is EagerTrainingWarning]
        assert len(said) == 2 * jit
        if jit:
            assert said[0].startswith("training step is not compiled, which makes it slower: DataDependentError: if")
            assert "test_compiled.py" in said[0]
            assert said[1].startswith("evaluation is not compiled")
            assert lines[-1].startswith("training step not compiled, DataDependentError: if")
            assert learner.compiled["training step"].reason in lines[-1]
    assert runs[True] == runs[False]


def test_a_model_that_counts_its_calls_in_python_says_which_attribute(make: Make, loaders: Loaders, net: Any) -> None:
    class Counting(net):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return super().forward(x)

    model = Counting()
    with pytest.warns(EagerTrainingWarning, match=r"StateChangedError(.|\n)*calls: int 0 → int 1"):
        make(model=model).fit(loaders[0], epochs=1)
    assert model.calls == 7  # one a step: those of the trial batch, and of the trace that failed, were taken back


def test_an_error_of_the_step_itself_is_no_matter_of_graphs(make: Make, loaders: Loaders) -> None:
    model = make().model

    def fails(output: Any, target: Any) -> Any:
        if model.training:
            raise ValueError("a fault of the user's")
        return fb.cross_entropy(output, target)

    def mixes(output: Any, target: Any) -> Any:
        return fb.cross_entropy(output, target.to("cpu:1") if model.training else target)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="a fault of the user's"):
            make(model=model, loss=fails).fit(loaders[0], epochs=1)
        with pytest.raises(fb.DeviceMismatchError, match="cross_entropy"):  # as it is written, not what a graph would say
            make(model=model, loss=mixes).fit(loaders[0], epochs=1)


def test_a_failed_check_of_labels_changes_nothing_and_names_its_batch(make: Make) -> None:
    labels = np.zeros(24, int)
    labels[17] = 9
    learner = make()
    data = DataLoader(ArrayDataset(np.random.default_rng(0).normal(size=(24, 2)), labels), 8)
    with pytest.raises(fb.OutOfRangeError, match='of batch 2 of loader "train"') as raised:
        learner.fit(data, epochs=1)
    assert "batch 0" not in str(raised.value)  # with which the graph was made
    assert learner.optimizer.step == learner.step == 2


@pytest.mark.parametrize(("jit", "kind"), [(True, fb.ExecutionError), (False, fb.OutOfRangeError)], ids=["jit", "eager"])
def test_inputs_of_an_analog_update_that_are_not_finite_name_their_batch(jit: bool, kind: type[Exception]) -> None:
    inputs = np.random.default_rng(0).normal(size=(24, 2)).astype(np.float32)
    inputs[17, 0] = np.nan
    model = analog.convert(
        nn.Sequential(nn.Linear(2, 3)), analog.RPUConfig(analog.SoftBoundsDevice(w_max=9.0, w_min=-9.0)), seed=0
    )
    learner = Learner(model, analog.SGD(model, lr=0.1), log=None, jit=jit)
    with pytest.raises(kind, match=r'inite(.|\n)*Received: .*, of batch 2 of loader "train"') as raised:
        learner.fit(DataLoader(ArrayDataset(inputs, np.zeros(24, int)), 8), epochs=1)
    assert ("of layers.0.tiles.tiles.0.0.weight, " in str(raised.value)) is not jit
    assert learner.optimizer.step == learner.step == 2


def test_an_optimizer_made_before_the_model_moved_is_brought_along(loaders: Loaders) -> None:
    fb.random.seed(0)
    model = nn.Linear(2, 3)
    learner = Learner(model, optim.Adam(model), ema=optim.EMA(model, 0.9), log=None)
    model.to("cpu:1")
    learner = Learner(model, learner.optimizer, ema=learner.ema, log=None)
    learner.fit(loaders[0].to("cpu:1"), epochs=1)
    assert learner.compiled["training step"].reason is None
    assert {a.device.name for a in learner.ema.averages.values()} == {"cpu:1"}


def test_a_learner_that_is_gone_leaves_no_graph_of_its_model_behind(make: Make, loaders: Loaders) -> None:
    learner = make()
    learner.fit(*loaders, epochs=1)
    learner.predict(fb.ones((1, 2)))
    model = ref(learner.model)
    del learner
    gc.collect()
    assert model() is None


@pytest.mark.usefixtures("numpy_kernels")
def test_a_checkpoint_within_an_epoch_is_of_a_whole_step(make: Make, loaders: Loaders, tmp_path: Path) -> None:
    steps = {}
    for jit in (True, False):
        written = Written()
        learner = make(out=tmp_path / f"{jit}", checkpoint_seconds=0.0, jit=jit, callbacks=[written])
        learner.fit(loaders[0], epochs=1, draw=False)
        steps[jit] = written.seen
    assert len(steps[True]) == 7
    assert steps[True] == steps[False]


class Written(Callback):
    """Reads each checkpoint when it is written."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_checkpoint(self, learner: Learner, path: Path) -> None:
        learner.wait()
        self.seen.append(state(path.parent))


def state(run: Path) -> tuple[int, bytes]:
    """A checkpoint's step and the bits of a parameter."""
    found = load_checkpoint(run)
    return found.state["step"], found.model["dense1.weight"].tobytes()
