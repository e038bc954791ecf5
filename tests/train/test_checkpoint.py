"""A checkpoint holds everything exactly, says what is wrong with it, and survives a crash at any moment."""

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.train import CheckpointError, DamagedCheckpointError, checkpoint, load_checkpoint, save_checkpoint, writing

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


def test_a_model_alone_can_be_saved(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    found = load_checkpoint(save_checkpoint(tmp_path / "checkpoint", model=model.state_dict()))
    assert (found.optimizer, found.state, found.config) == (None, {}, {})
    again = nn.Linear(2, 2)
    found.load_into(again)
    assert fb.all(again.weight == model.weight)
    with pytest.raises(CheckpointError, match="state is a dict"):
        save_checkpoint(tmp_path / "checkpoint", model=model.state_dict(), state=[])


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


@pytest.mark.parametrize("part", ["model", "optimizer"])
def test_a_dtype_that_safetensors_has_not_is_refused_by_name(tmp_path: Path, part: str) -> None:
    own: dict[str, Any] = {"model": {}, "optimizer": {}, part: {"fine": fb.ones(2), "wide": fb.ones(2, dtype="complex128")}}
    with pytest.raises(CheckpointError, match="wide: complex128") as caught:
        save_checkpoint(tmp_path / "c", **own, state={}, config={})
    assert caught.value.expected == "a checkpoint stores the dtypes of safetensors"
    assert list(tmp_path.iterdir()) == []


def test_the_manifest_names_version_config_hashes_and_shapes(tmp_path: Path) -> None:
    manifest = json.loads((save(tmp_path / "checkpoint") / "manifest.json").read_text())
    assert manifest["format_version"] == 2
    assert manifest["firebrick"] == fb.__version__
    assert sorted(manifest["files"]) == FILES
    assert all(len(facts["sha256"]) == 64 for facts in manifest["files"].values())
    assert manifest["model"]["weight"] == {"dtype": "float32", "shape": [2, 3]}
    assert manifest["progress"] == {"epoch": 3}


def test_the_manifests_own_hash_lies_beside_it_as_sha256sum_reads_it(tmp_path: Path) -> None:
    path = save(tmp_path / "checkpoint")
    digest, name = (path / "manifest.sha256").read_text().split()
    assert name == "manifest.json"
    assert digest == hashlib.sha256((path / name).read_bytes()).hexdigest()


def first_format(path: Path) -> Path:
    """A checkpoint as version 1 of the format had it."""
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["progress"]
    (path / "manifest.json").write_text(json.dumps({**manifest, "format_version": 1}))
    (path / "manifest.sha256").unlink()
    return path


def test_a_checkpoint_of_the_first_format_still_loads(tmp_path: Path) -> None:
    found = load_checkpoint(first_format(save(tmp_path / "checkpoint")))
    assert found.model["weight"].tolist() == [[1.0] * 3] * 2
    assert (found.manifest["format_version"], found.manifest["progress"]) == (1, {"epoch": 3})
    save(tmp_path / "checkpoint", 2.0)
    assert load_checkpoint(tmp_path / "checkpoint").manifest["format_version"] == 2


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_of_the_first_format_is_found(tmp_path: Path, name: str) -> None:
    path = first_format(save(tmp_path / "checkpoint"))
    (path / name).write_bytes(b"")
    with pytest.raises(DamagedCheckpointError, match=f"{name}: 0 bytes"):
        load_checkpoint(path)


@pytest.mark.parametrize("version", [0, -3, 1.5, "1", None])
def test_a_format_that_never_was_is_damage(tmp_path: Path, version: object) -> None:
    path = first_format(save(tmp_path / "checkpoint"))
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format_version": version}))
    with pytest.raises(DamagedCheckpointError, match="no manifest that can be read"):
        load_checkpoint(path)


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


def rewrite(path: Path, **changes: Any) -> None:
    """Change a manifest and its hash, as another version would have written them."""
    manifest = json.dumps({**json.loads((path / "manifest.json").read_text()), **changes})
    (path / "manifest.json").write_text(manifest)
    (path / "manifest.sha256").write_text(f"{hashlib.sha256(manifest.encode()).hexdigest()}  manifest.json\n")


@pytest.mark.parametrize("place", range(0, 2000, 97))
def test_one_flipped_bit_of_the_manifest_is_found(tmp_path: Path, place: int) -> None:
    file = save(tmp_path / "checkpoint") / "manifest.json"
    content = bytearray(file.read_bytes())
    content[place % len(content)] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(DamagedCheckpointError, match=r"manifest\.json: other bytes") as caught:
        load_checkpoint(tmp_path / "checkpoint")
    assert caught.value.folder == tmp_path / "checkpoint"


def test_a_manifest_that_lost_its_hash_is_damaged(tmp_path: Path) -> None:
    (save(tmp_path / "checkpoint") / "manifest.sha256").unlink()
    with pytest.raises(DamagedCheckpointError, match=r"manifest\.sha256: no such file"):
        load_checkpoint(tmp_path / "checkpoint")


@pytest.mark.parametrize("content", [b"", b'{"format_version": 1}', b'{"format_version": "x"}', b"[]"])
def test_a_manifest_that_is_none_is_said_to_be_damaged(tmp_path: Path, content: bytes) -> None:
    path = save(tmp_path / "checkpoint")
    (path / "manifest.json").write_bytes(content)
    (path / "manifest.sha256").write_text(hashlib.sha256(content).hexdigest())
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        load_checkpoint(tmp_path / "checkpoint")


def test_a_newer_format_asks_for_an_upgrade(tmp_path: Path) -> None:
    rewrite(save(tmp_path / "checkpoint"), format_version=3, firebrick="9.0")
    with pytest.raises(CheckpointError, match=r"format 3, written by Firebrick 9\.0") as caught:
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


def boundaries(tmp_path: Path) -> list[str]:
    """The steps of replacing a checkpoint, by the names they are performed under."""
    with pytest.MonkeyPatch.context() as patch:
        seen: list[str] = []
        real = writing.perform
        patch.setattr(writing, "perform", lambda step, path, *args: seen.append(step) or real(step, path, *args))  # type: ignore[func-returns-value]
        save(tmp_path / "c", 1.0)
        del seen[:]
        save(tmp_path / "c", 2.0)
    return seen


def crash_at(monkeypatch: pytest.MonkeyPatch, number: int, after: bool) -> None:
    """Die right before or right after a step, the n-th."""
    real, calls = writing.perform, iter(range(1000))

    def perform(step: str, path: Path, *args: Any) -> None:
        deadly = next(calls) == number
        if not deadly or after:
            real(step, path, *args)
        if deadly:
            raise Crash

    monkeypatch.setattr(writing, "perform", perform)
    monkeypatch.setattr("firebrick.train.writing.shutil.rmtree", lambda *a, **k: None)  # the dead clean up nothing


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_step_leaves_a_checkpoint_that_loads(tmp_path: Path, after: bool) -> None:
    values = []
    names = boundaries(tmp_path)
    assert len(names) == 3 + 2 * 5 + 1 + 6
    for number in range(len(names)):
        path = tmp_path / f"{number}" / "checkpoint"
        save(path, 1.0)
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, number, after)
            with pytest.raises(Crash):
                save(path, 2.0)
        values.append(float(load_checkpoint(path).model["weight"][0, 0]))
        assert load_checkpoint(path.parent).model["weight"][0, 0] == values[-1]
        save(path, 3.0)
        assert load_checkpoint(path).model["weight"][0, 0] == 3.0
        assert [p.name for p in path.parent.iterdir()] == ["checkpoint"]
    there = names.index("rename new") + (0 if after else 1)
    assert values == [1.0] * there + [2.0] * (len(names) - there)


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
    (tmp_path / "c.old" / "manifest.sha256").unlink()
    save(path, 2.0)
    assert sorted(e.name for e in tmp_path.iterdir()) == ["c"]


@pytest.mark.parametrize("facts", [3, {}, {"bytes": 1}, None])
def test_a_manifest_without_a_files_hash_is_said_to_be_damaged(tmp_path: Path, facts: Any) -> None:
    path = save(tmp_path / "c")
    manifest = json.loads((path / "manifest.json").read_text())
    rewrite(path, files={**manifest["files"], "state.json": facts})
    with pytest.raises(CheckpointError, match="no size and sha256"):
        load_checkpoint(path)


# reading while a run writes


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "checkpoint", 1.0)
    read, left = checkpoint._read, iter([2.0, 3.0])

    def late(folder: Path, name: str, *most: int) -> bytes:
        content = read(folder, name, *most)
        if name == "manifest.json" and (value := next(left, None)) is not None:
            save(path, value)
        return content

    monkeypatch.setattr(checkpoint, "_read", late)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = load_checkpoint(tmp_path)
    assert found.model["weight"].tolist() == [[3.0] * 3] * 2
    assert not found.refused


def test_a_checkpoint_that_moves_right_after_it_was_listed_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "checkpoint", 1.0)
    identity, left = checkpoint._identity, [path.rename]

    def late(folder: Path) -> Any:
        if left:
            left.pop()(tmp_path / "away")
        return identity(folder)

    def back(run: Path, name: str = "checkpoint") -> Any:
        if not left and (tmp_path / "away").exists():
            (tmp_path / "away").rename(path)
        return there(run, name)

    there = checkpoint.checkpoints_of
    monkeypatch.setattr(checkpoint, "_identity", late)
    monkeypatch.setattr(checkpoint, "checkpoints_of", back)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = load_checkpoint(tmp_path)
    assert found.path == path
    assert not found.refused


def test_a_checkpoint_that_vanishes_each_time_ends_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "checkpoint", 1.0)
    read, tries = checkpoint._read, []

    def late(folder: Path, name: str, *most: int) -> bytes:
        content = read(folder, name, *most)
        if name == "manifest.json":
            tries.append(folder)
            save(path, 1.0 + len(tries))
        return content

    monkeypatch.setattr(checkpoint, "_read", late)
    with pytest.raises(DamagedCheckpointError):
        load_checkpoint(path)
    assert len(tries) == 8


def test_damage_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "checkpoint", 1.0)
    (path / "state.json").write_bytes(b"{}")
    load, loads = checkpoint._load, []
    monkeypatch.setattr(checkpoint, "_load", lambda folder: loads.append(folder) or load(folder))
    with pytest.raises(DamagedCheckpointError, match=r"state\.json"):
        load_checkpoint(tmp_path)
    assert loads == [path]


# what is replaced


def with_manifest(folder: Path, text: str, *others: str) -> Path:
    """A directory with somebody's manifest.json, and other files."""
    folder.mkdir()
    (folder / "manifest.json").write_text(text)
    for name in others:
        (folder / name).write_text("three years")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.mark.parametrize("others", [["thesis.txt"], [], ["manifest.sha256"], ["model.safetensors", "state.json"]])
@pytest.mark.parametrize("text", ['{"name": "my web app", "icons": []}', "{ // a comment", '{"format_version": 2}', "[]"])
def test_a_folder_with_a_manifest_of_another_program_is_never_replaced(tmp_path: Path, text: str, others: list[str]) -> None:
    before = contents(with_manifest(tmp_path / "mine", text, *others))
    with pytest.raises(CheckpointError, match="nothing else"):
        save(tmp_path / "mine")
    assert contents(tmp_path) == {f"mine/{name}": content for name, content in before.items()}


def test_weights_in_a_folder_of_their_own_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "model.safetensors").write_text("downloaded")
    with pytest.raises(CheckpointError, match="nothing identifies as a checkpoint's"):
        save(tmp_path / "bert")
    assert contents(tmp_path) == {"bert/model.safetensors": b"downloaded"}


@pytest.mark.parametrize("place", ["c", "c.old", ".c.new"])
@pytest.mark.parametrize("name", ["tokenizer.json", "plots/loss.png"])
def test_a_users_file_in_a_checkpoint_is_named_and_kept(tmp_path: Path, place: str, name: str) -> None:
    path = save(tmp_path / "c", 1.0)
    if place != "c":
        shutil.copytree(path, tmp_path / place)
    (tmp_path / place / name).parent.mkdir(exist_ok=True)
    (tmp_path / place / name).write_text("{}")
    with pytest.raises(CheckpointError, match=f"other files: '{name.split('/')[0]}'") as caught:
        save(path, 2.0)
    assert "move these files" in caught.value.remedy
    assert (tmp_path / place / name).read_text() == "{}"
    assert load_checkpoint(path).model["weight"][0, 0] == 1.0
    shutil.move(tmp_path / place / name.split("/")[0], tmp_path / "kept")
    save(path, 2.0)
    assert load_checkpoint(path).model["weight"][0, 0] == 2.0


def test_a_users_file_that_comes_while_a_checkpoint_is_written_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "c", 1.0)
    real = writing.perform

    def perform(step: str, place: Path, *args: Any) -> None:
        if step == "rename old":
            (path / "notes.txt").write_text("mine")
        real(step, place, *args)

    monkeypatch.setattr(writing, "perform", perform)
    save(path, 2.0)
    assert load_checkpoint(path).model["weight"][0, 0] == 2.0
    assert (tmp_path / "c.old" / "notes.txt").read_text() == "mine"
    with pytest.raises(CheckpointError, match=r"c\.old, a directory with other files: 'notes\.txt'"):
        save(path, 3.0)


@pytest.mark.parametrize("damage", ["half", "empty", "missing", "no hash"])
def test_a_damaged_checkpoint_is_replaced_if_it_holds_nothing_else(tmp_path: Path, damage: str) -> None:
    path = save(tmp_path / "c", 1.0)
    manifest = path / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(b"" if damage == "empty" else content[: len(content) // 2])
    {"missing": manifest, "no hash": path / "manifest.sha256"}.get(damage, tmp_path / "none").unlink(missing_ok=True)
    (path / "mine.txt").write_text("three years")
    with pytest.raises(CheckpointError, match=r"other files: 'mine\.txt'"):
        save(path, 2.0)
    (path / "mine.txt").unlink()
    save(path, 2.0)
    assert load_checkpoint(path).model["weight"][0, 0] == 2.0


def test_a_newer_formats_own_files_are_not_called_foreign(tmp_path: Path) -> None:
    path = save(tmp_path / "c")
    files = json.loads((path / "manifest.json").read_text())["files"]
    rewrite(path, format_version=9, files={**files, "data.bin": {"bytes": 1, "sha256": "0" * 64}})
    (path / "data.bin").write_bytes(b"0")
    save(path, 2.0)
    assert load_checkpoint(path).model["weight"][0, 0] == 2.0


# two writers


def saved_with_another(path: Path, number: int) -> list[CheckpointError]:
    """Save 2.0, and right before the n-th step of that begin to save 3.0 in the same place; what was said of that."""
    real, steps, said = writing.perform, iter(range(1000)), []

    def perform(step: str, place: Path, *args: Any) -> None:
        if next(steps) == number:
            try:
                save(path, 3.0)
            except CheckpointError as e:
                said.append(e)
        real(step, place, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "perform", perform)
        save(path, 2.0)
    return said


@pytest.mark.parametrize("first", [True, False])
def test_a_second_writer_at_any_step_leaves_no_mixture_of_both(tmp_path: Path, first: bool) -> None:
    names = [
        n for n in boundaries(tmp_path) if not (first and n in ("rename old", "sync history", "clear place", "remove old"))
    ]
    for number, name in enumerate(names):
        path = tmp_path / f"{number}" / "checkpoint"
        if not first:
            save(path, 1.0)
        said = saved_with_another(path, number)
        assert load_checkpoint(path).model["weight"].tolist() == [[2.0] * 3] * 2
        assert [p.name for p in path.parent.iterdir()] == ["checkpoint"]
        begun = not first or name not in ("make parent", "clear leftovers", "make directory")
        assert bool(said) == begun  # else the other one is done before this one has a directory
        for e in said:
            assert "another process writes there now, in the step 'lock directory'" in e.received
            assert "another process seems to write there too" in e.remedy


def test_a_directory_that_vanishes_while_it_is_written_is_laid_to_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "c", 1.0)
    real = writing.perform

    def perform(step: str, place: Path, *args: Any) -> None:
        if step == "sync file":
            shutil.rmtree(place.parent)
        real(step, place, *args)

    monkeypatch.setattr(writing, "perform", perform)
    with pytest.raises(CheckpointError) as caught:
        save(path, 2.0)
    assert "another process seems to write there too" in caught.value.remedy
    assert load_checkpoint(path).model["weight"][0, 0] == 1.0


def test_a_lock_ends_with_the_save_though_a_forked_worker_lives_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, copies = save(tmp_path / "c", 1.0), []
    lock = writing.lock
    monkeypatch.setattr(writing, "lock", lambda folder: (handle := lock(folder), copies.append(os.dup(handle)))[0])
    try:
        save(path, 2.0)
        save(path, 3.0)
    finally:
        for handle in copies:
            os.close(handle)
    assert load_checkpoint(path).model["weight"][0, 0] == 3.0
    assert copies
