"""Checkpoints that someone changed and hashed again: what the hashes cannot find is an error of the project all the same."""

import copy
import dataclasses
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.errors import FirebrickError
from firebrick.data import ArrayDataset, DataLoader
from firebrick.nn import StateError
from firebrick.train import CheckpointError, DamagedCheckpointError, Epoch, Learner, TrainingError, load_checkpoint
from firebrick.train.records import Records
from firebrick.train.standing import resumed

LEFT_OUT = object()


def learner() -> Learner:
    fb.random.seed(0)
    model = fb.nn.Sequential(fb.nn.Linear(3, 4), fb.nn.Dropout(0.5), fb.nn.Linear(4, 2))
    return Learner(model, fb.optim.Adam(model, 0.1), fb.cross_entropy, ema=0.9, log=None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return learner().save(tmp_path / "checkpoint")


def hash_again(folder: Path, change: Callable[[dict[str, Any]], Any] = lambda manifest: None) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    for name, facts in manifest["files"].items():
        content = (folder / name).read_bytes()
        facts |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    change(manifest)
    text = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    (folder / "manifest.sha256").write_text(f"{hashlib.sha256(text).hexdigest()}  manifest.json\n")


def test_a_hash_file_of_more_than_1024_bytes_is_damage(folder: Path) -> None:
    file = folder / "manifest.sha256"
    file.write_bytes(file.read_bytes().ljust(1024))
    load_checkpoint(folder)
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(DamagedCheckpointError, match=r"manifest\.sha256: 1025 bytes instead of 1024"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"optimizer": {"$tensor": "absent"}}',
        b'{"optimizer": {"$array": {"dtype": "float32", "shape": [2], "values": [1]}}}',
        b'{"optimizer": {"$array": 5}}',
        b'{"optimizer": {"$tuple": 5}}',
        b"{}",
        b'{"optimizer": ' + b"[" * 900 + b"]" * 900 + b"}",
        b"[" * 100_000,
        b'{"optimizer": {}, "optimizer": {}}',
        b"\xff",
    ],
)
def test_a_state_that_no_one_wrote_is_damage(folder: Path, content: bytes) -> None:
    (folder / "state.json").write_bytes(content)
    hash_again(folder)
    with pytest.raises(DamagedCheckpointError, match=r"state\.json: (no JSON|JSON that|no state)"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [0, 2**63 - 1, 2**20], "data_offsets": [0, 0]}},
        {"a": 5},
    ],
)
def test_tensors_that_no_array_holds_are_damage(folder: Path, header: dict[str, Any]) -> None:
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    hash_again(folder)
    with pytest.raises(DamagedCheckpointError, match=r"model\.safetensors: no tensors that can be read"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(firebrick=5),
        lambda m: m["files"].update(more={}),
        lambda m: m["files"]["state.json"].update(bytes="5"),
        lambda m: m["aliases"].update(a=5),
        lambda m: m.update(progress=[]),
    ],
)
def test_a_manifest_of_other_types_is_damage(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    hash_again(folder, change)
    with pytest.raises(DamagedCheckpointError, match=r"manifest\.json"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("epoch",), "1"),
        (("step",), -1),
        (("step",), None),
        (("history",), [{"epoch": 1}]),
        (("best",), [1]),
        (("cursor",), {"epoch": 1.5}),
        (("cursor",), {"epoch": 1, "position": 0, "order": "shuffled"}),
        (("loader",), [1]),
        (("settings",), 5),
        (("metrics",), 5),
        (("random",), []),
        (("random", "devices"), 5),
        (("generators",), 5),
        (("optimizer", "groups"), 5),
        (("optimizer", "step"), "x"),
        (("optimizer", "ema", "averages"), [1]),
        (("optimizer", "precision"), {"scale": "x"}),
        (("strategy",), {"shares": [-1.0]}),
    ],
)
def test_a_learner_that_refuses_a_checkpoint_is_as_it_was(folder: Path, way: tuple[str, ...], value: Any) -> None:
    change(folder, way, value)
    refuses(folder)


def change(folder: Path, way: tuple[Any, ...], value: Any) -> None:
    """Give what lies at the end of a way another value, or leave it out, and hash the checkpoint again."""
    state = json.loads((folder / "state.json").read_bytes())
    owner = state
    for name in way[:-1]:
        owner = owner[name]
    if value is LEFT_OUT:
        del owner[way[-1]]
    else:
        owner[way[-1]] = value
    (folder / "state.json").write_text(json.dumps(state))
    hash_again(folder)


def refuses(folder: Path) -> None:
    """A learner that shall resume raises, and is as it was before."""
    ours = learner()
    for p in ours.model.parameters():
        p._rebind((p.detach() + 1.0).detach())
    fb.random.seed(7)

    def stands() -> Any:
        assert isinstance(ours.optimizer, fb.optim.Optimizer)
        assert ours.ema is not None
        values = {n: t.numpy().tobytes() for n, t in ours.model.state_dict().items()}
        return values, str(fb.random.state()), str(ours.model.generator_states()), ours.optimizer.step, str(ours.ema.averages)

    before = stands()
    with pytest.raises((CheckpointError, fb.nn.StateError)):
        ours.resume(folder)
    assert stands() == before
    assert (ours.epoch, ours.step, ours.cursor) == (0, 0, None)


@pytest.fixture(scope="module")
def within_an_epoch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint after the second of four steps, with a cursor, metrics and moments."""
    out, ours = tmp_path_factory.mktemp("run") / "run", learner()
    rows = ArrayDataset(np.arange(24, dtype=np.float32).reshape(8, 3) / 24, np.arange(8) % 2)
    loader = DataLoader(rows, 2, shuffle=True, seed=0)
    batches = iter(loader)
    for _ in range(2):
        x, y = next(batches)
        loss, grads = fb.value_and_grad(lambda m, x=x, y=y: fb.cross_entropy(m(x), y))(ours.model)
        ours.optimizer.update(ours.model, grads)
        ours._readings.measures.update(loss, ours.model(x), y, 2)
    return ours.save(out / "checkpoint", loader.cursor())


SETTINGS = ("optimizer", "groups", 0, "settings")


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("optimizer", "moments", "first", "layers.0.bias"), LEFT_OUT),
        (("optimizer", "moments", "second"), {}),
        (("optimizer", "moments", "first", "layers.0.bias"), {"$tensor": "moments/first/layers.2.bias"}),
        ((*SETTINGS, "betas"), "x"),
        ((*SETTINGS, "betas"), -1),
        ((*SETTINGS, "amsgrad"), float("nan")),
        ((*SETTINGS, "weight_decay"), "x"),
        ((*SETTINGS, "eps"), None),
        (("optimizer", "groups", 0, "lr_scale"), "x"),
        (("optimizer", "step"), -1),
        (("optimizer", "ema", "step"), 0.5),
        (("optimizer", "ema", "warmup"), "x"),
        (("generators",), []),
        (("generators",), {}),
        (("generators", "layers.1.generator"), LEFT_OUT),
        (("generators", "layers.1.generator", "seed", "$array", "values", 0), 0.5),
        (("generators", "layers.9.generator"), {}),
        (("cursor",), {}),
        (("cursor",), None),
        (("cursor", "position"), -1),
        (("cursor", "position"), LEFT_OUT),
        (("cursor", "order", "digest"), LEFT_OUT),
        (("cursor", "data", "digest"), LEFT_OUT),
        (("loader",), {}),
        (("metrics",), None),
        (("metrics",), {}),
        (("metrics", "loss"), 0.5),
        (("metrics", "loss", "total"), "x"),
        (("metrics", "loss", "samples"), 0.5),
        (("metrics", "accuracy"), float("nan")),
        (("metrics", "other"), {}),
        (("history",), {}),
        (("epoch",), 7),
    ],
)
def test_what_would_silently_train_other_weights_is_refused(
    within_an_epoch: Path, tmp_path: Path, way: tuple[Any, ...], value: Any
) -> None:
    folder = Path(shutil.copytree(within_an_epoch, tmp_path / "checkpoint"))
    learner().resume(folder)  # as it was written
    change(folder, way, value)
    refuses(folder)


ROW = dataclasses.asdict(Epoch(1, 4, 0.5, None, None, None, 0.1, 10.0, 1.0))


@pytest.mark.parametrize(
    ("way", "value", "why"),
    [
        (("epoch",), True, "True instead of a whole number"),
        (("epoch",), 1, "0 rows of history after 1 epochs"),
        (("step",), -1, "-1 instead of a count"),
        (("history",), {}, "{} instead of a list"),
        (("history",), [{**ROW, "train_loss": "x", "seconds": []}], "no number of train_loss, seconds"),
        (("best",), {**ROW, "more": 1}, "more"),
        (("cursor", "epoch"), 0.5, "0.5 instead of a whole number"),
        (("cursor", "position"), -1, "-1 instead of a count"),
        (("cursor", "samples"), 0.5, "0.5 instead of a whole number"),
        (("cursor", "seed"), "x", "'x' instead of a whole number"),
        (("cursor", "batch_size"), None, "None instead of a whole number"),
        (("cursor", "order"), 5, "5 instead of facts by name"),
        (("cursor", "data"), [1], "[1] instead of facts by name"),
        (("cursor", "order", "kind"), LEFT_OUT, "no kind of the order"),
        (("cursor", "data", "type"), LEFT_OUT, "no type of the data"),
        (("cursor", "data", "length"), LEFT_OUT, "no length of the data"),
        (("loader",), {"epoch": 0}, "position"),
        (("metrics",), None, "within an epoch there are a cursor and metrics"),
        (("settings",), [1], "[1] instead of facts by name"),
        (("parts",), [1], "[1] instead of facts by name"),
        (("parts", "model"), 5, "5 instead of facts by name"),
        (("strategy",), {"shares": [1.0, float("inf")]}, "inf instead of a finite number from 0"),
        (("strategy",), {"shares": [-0.5]}, "-0.5 instead of a finite number from 0"),
        (("strategy",), {"shares": ["x"]}, "'x' instead of a finite number from 0"),
        (("optimizer", "precision"), {"scale": float("nan"), "good": 0}, "nan instead of a finite number from 0"),
        (("optimizer", "precision"), {"scale": 1.0, "good": -1}, "-1 instead of a count"),
    ],
)
def test_what_no_learner_writes_is_named(within_an_epoch: Path, way: tuple[str, ...], value: Any, why: str) -> None:
    found = load_checkpoint(within_an_epoch)
    parts: Any = {**copy.deepcopy(dict(found.state)), "optimizer": dict(found.optimizer)}
    owner = parts
    for name in way[:-1]:
        owner = owner[name]
    if value is LEFT_OUT:
        del owner[way[-1]]
    else:
        owner[way[-1]] = value
    changed = dataclasses.replace(found, optimizer=parts.pop("optimizer"), state=parts)
    with pytest.raises(CheckpointError) as caught:
        resumed(changed, {})
    assert why in caught.value.received
    assert str(within_an_epoch) in caught.value.expected


def test_what_earlier_versions_did_not_write_may_be_absent(within_an_epoch: Path) -> None:
    found = load_checkpoint(within_an_epoch)
    whole = resumed(found, {})
    assert (whole.epoch, whole.step, whole.history, whole.best, whole.precision) == (0, 0, [], None, {})
    assert whole.cursor == found.state["cursor"]
    assert whole.metrics == found.state["metrics"]
    later = ("loader", "strategy", "settings", "parts")
    early = {k: v for k, v in found.state.items() if k not in later}
    cursor = {k: early["cursor"][k] for k in ("epoch", "position")}
    without = resumed(dataclasses.replace(found, state={**early, "cursor": cursor}), {})
    assert (without.loader, without.strategy, without.cursor) == (None, {}, cursor)
    shares = {"devices": ["cpu:0"], "shares": [0.0, 1.0]}
    history = [ROW, {**ROW, "epoch": 2}]
    ended = {
        **early,
        "epoch": 2,
        "step": 8,
        "history": history,
        "best": ROW,
        "strategy": shares,
        "cursor": None,
        "metrics": None,
    }
    optimizer = {**found.optimizer, "precision": {"dtype": "float16", "scale": 0.5, "good": 3}}
    own = resumed(dataclasses.replace(found, state={**ended, "settings": None}, optimizer=optimizer), {})
    assert (own.epoch, own.step, own.strategy, own.precision) == (2, 8, shares, optimizer["precision"])
    assert (own.best, own.history) == (Epoch(**ROW), [Epoch(**r) for r in history])
    assert (own.cursor, own.metrics) == (None, None)


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sha256", "model.safetensors", "state.json"])
@pytest.mark.parametrize(
    "place", [os.mkfifo, Path.mkdir, lambda p: p.symlink_to("/dev/zero")], ids=["FIFO", "folder", "device"]
)
def test_what_is_no_regular_file_in_a_checkpoint_is_damage(folder: Path, name: str, place: Callable[[Path], None]) -> None:
    (folder / name).unlink()
    place(folder / name)
    with pytest.raises(DamagedCheckpointError, match=f"{name}: .* instead of a regular file"):
        load_checkpoint(folder)


def test_tensors_come_back_read_only(folder: Path) -> None:
    assert {a.flags.writeable for a in load_checkpoint(folder).model.values()} == {False}


@pytest.mark.parametrize("place", [os.mkfifo, Path.mkdir, lambda p: p.symlink_to("absent")], ids=["FIFO", "folder", "dangling"])
def test_steps_that_are_no_regular_file_are_refused(tmp_path: Path, place: Callable[[Path], None]) -> None:
    place(tmp_path / "steps.jsonl")
    with pytest.raises(TrainingError, match=r"steps\.jsonl"), Records(tmp_path, None, 1).writing(5):
        pass


@pytest.mark.parametrize("row", ['{"step": 1e999}', "[" * 100_000, '{"step": "2"}', "5", '{"step": 2, "step": 1}'])
def test_a_row_that_no_run_wrote_ends_the_steps_before(tmp_path: Path, row: str) -> None:
    (tmp_path / "steps.jsonl").write_text('{"step": 1}\n' + row + '\n{"step": 3}\n')
    with Records(tmp_path, None, 1).writing(5):
        assert (tmp_path / "steps.jsonl").read_text() == '{"step": 1}\n'


# text for the terminal

ESCAPES = "\x1b[2J\x1b]0;owned\x07" + "A" * 20_000


@pytest.mark.parametrize(
    "way",
    [
        ("settings", "loss"),
        ("parts", "model", "1.p"),
        ("optimizer", "schedule", "kind"),
        ("optimizer", "optimizer"),
        ("optimizer", "precision", "dtype"),
        ("optimizer", "ema", "decay"),
        ("history", 0),
        ("step",),
    ],
)
def test_text_of_a_checkpoint_reaches_a_message_short_and_without_escapes(folder: Path, way: tuple[Any, ...]) -> None:
    state = json.loads((folder / "state.json").read_bytes())
    state["history"] = [{}]
    state["optimizer"]["precision"] = {}
    (folder / "state.json").write_text(json.dumps(state))
    change(folder, way, {ESCAPES: 1} if way == ("history", 0) else ESCAPES)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            learner().resume(folder)
        except FirebrickError as e:
            caught.append(e)  # type: ignore[arg-type]
    texts = [str(getattr(w, "message", w)) for w in caught]
    assert texts
    assert all("\x1b" not in t and "A" * 1000 not in t for t in texts)


def test_a_newer_versions_name_and_a_config_are_shown_without_escapes(folder: Path) -> None:
    hash_again(folder, lambda m: m.update(config={"title": ESCAPES}))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder).load_into(fb.nn.Linear(3, 4))
    assert "\x1b" not in str(caught.value)
    assert "A" * 100 not in str(caught.value)
    hash_again(folder, lambda m: m.update(format_version=9, firebrick=ESCAPES))
    with pytest.raises(CheckpointError, match=r"written by Firebrick '\\x1b\[2J") as caught:
        load_checkpoint(folder)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("step", [-1, 2**63, 10**30, 10**4000])
def test_a_step_that_no_run_reaches_is_damage(folder: Path, step: int) -> None:
    hash_again(folder, lambda m: m["progress"].update(step=step))
    with pytest.raises(DamagedCheckpointError, match=r"manifest\.json: step .*, which no run reaches") as caught:
        load_checkpoint(folder)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["epoch", "step"])
def test_a_state_beyond_every_count_is_refused(folder: Path, name: str) -> None:
    change(folder, (name,), 10**30)
    refuses(folder)


def test_a_state_of_another_optimizer_says_what_to_make() -> None:
    model = fb.nn.Linear(2, 2)
    for theirs, ours in ((fb.optim.AdamW, fb.optim.SGD), (fb.optim.SGD, fb.optim.LBFGS)):
        with pytest.raises(StateError) as caught:
            ours(model, 0.1).load_state_dict(theirs(model, 0.1).state_dict())
        assert caught.value.expected.startswith(f"{ours.__name__}.load_state_dict takes the state of {ours.__name__}")
        assert caught.value.received == f"the state of {theirs.__name__}"
        assert "make the optimizer that the state is of" in caught.value.remedy
