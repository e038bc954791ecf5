"""A checkpoint holds everything exactly, says what is wrong with it, and survives a crash at any moment."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.train import CheckpointError, load_checkpoint, save_checkpoint

FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]


def save(path: Path, value: float = 1.0, **config: Any) -> Path:
    return save_checkpoint(
        path,
        model={"weight": fb.full((2, 3), value), "bias": fb.zeros(2)},
        optimizer={"step": fb.asarray(4), "moments": {"first": {"weight": fb.ones((2, 3))}}, "betas": (0.9, 0.999), "n": None},
        state={"epoch": 3, "generators": {"a": {"seed": np.array([1, 2**32 - 1], np.uint32)}}, "loss": 0.1 + 0.2},
        config={"model": "tiny", **config},
    )


def test_what_is_saved_comes_back_bit_for_bit(tmp_path: Path) -> None:
    found = load_checkpoint(save(tmp_path / "checkpoint"))
    assert found.model["weight"].tolist() == [[1.0] * 3] * 2
    assert found.optimizer["betas"] == (0.9, 0.999)
    assert found.optimizer["n"] is None
    assert int(found.optimizer["step"]) == 4
    assert found.optimizer["moments"]["first"]["weight"].dtype == np.float32
    seed = found.state["generators"]["a"]["seed"]
    assert (seed.dtype, seed.tolist()) == (np.uint32, [1, 2**32 - 1])
    assert found.state["loss"] == 0.1 + 0.2
    assert found.config == {"model": "tiny"}


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "uint8",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "float8_e4m3fn",
        "float8_e5m2",
    ],
)
def test_every_dtype_that_safetensors_has_is_kept(tmp_path: Path, dtype: str) -> None:
    value = fb.astype(fb.asarray([0.0, 1.0, 3.0]), dtype)
    path = save_checkpoint(tmp_path / "c", model={"x": value, "empty": fb.zeros((0, 2)), "scalar": value[1]}, optimizer={},
                           state={}, config={})  # fmt: skip
    found = load_checkpoint(path).model
    assert found["x"].dtype == value.dtype.np
    assert found["x"].tobytes() == value.numpy().tobytes()
    assert (found["empty"].shape, found["scalar"].shape) == ((0, 2), ())


def test_the_manifest_names_version_config_hashes_and_shapes(tmp_path: Path) -> None:
    manifest = json.loads((save(tmp_path / "checkpoint") / "manifest.json").read_text())
    assert manifest["format_version"] == 1
    assert manifest["firebrick"] == fb.__version__
    assert sorted(manifest["files"]) == FILES
    assert all(len(facts["sha256"]) == 64 for facts in manifest["files"].values())
    assert manifest["model"]["weight"] == {"dtype": "float32", "shape": [2, 3]}


def test_a_run_directory_is_as_good_as_its_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "run" / "checkpoint")
    assert load_checkpoint(tmp_path / "run").state["epoch"] == 3


# what is wrong with it


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_in_half_is_named_with_its_sizes(tmp_path: Path, name: str) -> None:
    file = save(tmp_path / "checkpoint") / name
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=f"{name}: {len(content) // 2} bytes instead of {len(content)}"):
        load_checkpoint(tmp_path / "checkpoint")


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_bit_is_found_by_the_hash(tmp_path: Path, name: str) -> None:
    file = save(tmp_path / "checkpoint") / name
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match=f"{name}: other bytes"):
        load_checkpoint(tmp_path / "checkpoint")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (save(tmp_path / "checkpoint") / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"state\.json: no such file"):
        load_checkpoint(tmp_path / "checkpoint")


@pytest.mark.parametrize("content", [b"", b'{"format_version": 1}', b'{"format_version": "x"}', b"[]"])
def test_a_manifest_that_is_none_is_said_to_be_damaged(tmp_path: Path, content: bytes) -> None:
    (save(tmp_path / "checkpoint") / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        load_checkpoint(tmp_path / "checkpoint")


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path) -> None:
    file = save(tmp_path / "checkpoint") / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format_version": 2, "firebrick": "9.0"}))
    with pytest.raises(CheckpointError, match=r"format 2, written by Firebrick 9\.0") as caught:
        load_checkpoint(tmp_path / "checkpoint")
    assert "upgrade" in caught.value.remedy


@pytest.mark.parametrize("where", ["nothing", "file", "folder"])
def test_where_there_is_none_the_error_says_what_is_there(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    text = {"nothing": "does not exist", "file": "is a file", "folder": "holds inside"}[where]
    with pytest.raises(CheckpointError, match=text):
        load_checkpoint(tmp_path / where)


def test_a_checkpoint_of_another_model_lists_where_they_part(tmp_path: Path) -> None:
    found = load_checkpoint(save(tmp_path / "checkpoint"))
    model = nn.Linear(4, 2)
    before = model.weight.numpy().copy()
    with pytest.raises(CheckpointError) as caught:
        found.load_into(model)
    assert "weight" in str(caught.value)
    assert "[2, 3]" in str(caught.value)
    assert "model tiny" in caught.value.remedy
    assert (model.weight.numpy() == before).all()


def test_what_json_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match="plain values"):
        save(tmp_path / "checkpoint", thing=object())
    assert load_checkpoint(tmp_path / "checkpoint").config == {"model": "tiny"}


# a crash at any moment


class Crash(BaseException):
    """What kills the process."""


def _crash_at(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, call: int) -> None:
    real, calls = getattr(target, name), iter(range(1, 1000))

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            raise Crash
        return real(*args, **kwargs)

    monkeypatch.setattr(target, name, wrapped)


@pytest.mark.parametrize(
    ("target", "name", "call"),
    [(os, "fsync", n) for n in range(1, 7)] + [(Path, "rename", 1), (Path, "rename", 2), (shutil, "rmtree", 1)],
)
def test_a_crash_while_saving_leaves_a_checkpoint_that_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Any, name: str, call: int
) -> None:
    path = tmp_path / "checkpoint"
    save(path, 1.0)
    with monkeypatch.context() as patch:
        patch.setattr("firebrick.train.checkpoint.shutil.rmtree", lambda *a, **k: None)  # the dead clean up nothing
        _crash_at(patch, target, name, call)
        with pytest.raises(Crash):
            save(path, 2.0)
    assert load_checkpoint(path).model["weight"][0, 0] in (1.0, 2.0)
    save(path, 3.0)
    assert load_checkpoint(path).model["weight"][0, 0] == 3.0
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]


def test_a_crash_between_the_renames_falls_back_on_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "checkpoint"
    save(path, 1.0)
    with monkeypatch.context() as patch:
        _crash_at(patch, Path, "rename", 2)
        with pytest.raises(Crash):
            save(path, 2.0)
    assert not path.exists()
    assert load_checkpoint(path).model["weight"][0, 0] == 1.0
    assert load_checkpoint(tmp_path).model["weight"][0, 0] == 1.0


@pytest.mark.parametrize("name", ["mine", "mine.old"])
def test_what_is_no_checkpoint_is_never_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.txt").write_text("three years")
    with pytest.raises(CheckpointError, match="nothing else"):
        save(tmp_path / "mine")
    assert (tmp_path / name / "thesis.txt").read_text() == "three years"


def test_half_an_old_checkpoint_that_a_crash_left_is_in_nobodys_way(tmp_path: Path) -> None:
    path = save(tmp_path / "c", 1.0)
    shutil.copytree(path, tmp_path / "c.old")
    (tmp_path / "c.old" / "manifest.json").unlink()
    save(path, 2.0)
    assert sorted(e.name for e in tmp_path.iterdir()) == ["c"]


@pytest.mark.parametrize("facts", [3, {}, {"bytes": 1}, None])
def test_a_manifest_without_a_files_hash_is_said_to_be_damaged(tmp_path: Path, facts: Any) -> None:
    path = save(tmp_path / "c")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"]["state.json"] = facts
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="no size and sha256"):
        load_checkpoint(path)
