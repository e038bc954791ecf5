"""What is saved comes back as it was, or is refused by name before anything is replaced."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.train import CheckpointError, load_checkpoint, save_checkpoint


def save(path: Path, **parts: Any) -> Path:
    return save_checkpoint(path, **{"model": {"w": fb.ones(2)}, "optimizer": {}, "state": {}, "config": {}, **parts})


def refused(path: Path, **parts: Any) -> CheckpointError:
    """The error of a save, which leaves the checkpoint before and nothing else."""
    save(path / "c", state={"epoch": 1})
    with pytest.raises(CheckpointError) as caught:
        save(path / "c", **parts)
    assert load_checkpoint(path / "c").state == {"epoch": 1}
    assert [p.name for p in path.iterdir()] == ["c"]
    return caught.value


# arrays


@pytest.mark.parametrize(
    "array",
    [
        np.array(["cat", "dog"]),
        np.array([None, 1], object),
        np.array([(1, 2.0)], [("a", int), ("b", float)]),
        np.array([1], np.longdouble),
        np.array([1j], np.complex64),
        np.array(["2020-01-01"], "M8[D]"),
        np.ma.masked_array([1.0, 2.0], [True, False]),
    ],
    ids=lambda a: str(a.dtype),
)
@pytest.mark.parametrize("part", ["state", "optimizer"])
def test_an_array_that_cannot_be_loaded_is_refused_by_its_key(tmp_path: Path, array: Any, part: str) -> None:
    error = refused(tmp_path, **{part: {"classes": [array]}})
    assert error.received.startswith(f"{part}.classes[0]: ")


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.uint64, np.int8, np.float16, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
)
def test_an_array_of_each_other_dtype_comes_back_bit_for_bit(tmp_path: Path, dtype: Any) -> None:
    array = np.array([[0, 1, 3]], dtype)
    found = load_checkpoint(save(tmp_path / "c", state={"x": array})).state["x"]
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


# keys


@pytest.mark.parametrize("key", [1, (1, 2), None, 1.5, True, fb.float32, float("nan")], ids=repr)
@pytest.mark.parametrize("part", ["state", "config", "optimizer"])
def test_a_key_that_is_no_text_is_refused(tmp_path: Path, part: str, key: Any) -> None:
    error = refused(tmp_path, **{part: {"best": {"1": "text", key: "other"}}})
    assert error.received == f"{part}.best: the key {key!r}, which is no text"


@pytest.mark.parametrize("value", [{"$tuple": [1]}, {"$array": 3}, {"$tensor": "w"}, {"$more": 1}])
@pytest.mark.parametrize("part", ["state", "optimizer"])
def test_a_dict_that_reads_as_a_mark_of_the_format_is_refused(tmp_path: Path, part: str, value: dict[str, Any]) -> None:
    assert f"{part}.a[1]: the key {next(iter(value))!r}, alone" in refused(tmp_path, **{part: {"a": [0, value]}}).received


def test_dollars_that_are_no_mark_come_back(tmp_path: Path) -> None:
    state, config = {"a": {"$tuple": 1, "b": 2}, "c": "$tuple"}, {"a": {"$tuple": [1]}}
    found = load_checkpoint(save(tmp_path / "c", state=state, config=config))
    assert (found.state, found.config) == (state, config)


def test_a_states_own_optimizer_is_not_overwritten(tmp_path: Path) -> None:
    assert "state['optimizer']" in refused(tmp_path, state={"optimizer": "Adam"}).received


def trees() -> list[Any]:
    one, two = fb.asarray([1.0]), fb.asarray([2.0])
    return [
        {"a": {"b": one}, "a/b": two},
        {"l": [one], "l/0": two},
        {"": {"x": one}, "x": two},
        {"": one, "value": two},
        {"a~1b": one, "a/b": two, "a": {"b": one}},
        [{"~": one}, {"~0": two}],
        one,
        {"": one},
    ]


@pytest.mark.parametrize("number", range(len(trees())))
def test_each_tensor_of_an_optimizers_tree_comes_back_in_its_place(tmp_path: Path, number: int) -> None:
    tree = trees()[number]
    found = load_checkpoint(save(tmp_path / "c", optimizer=tree)).optimizer
    assert fb.tree_map(lambda a: a.tolist(), found) == fb.tree_map(lambda t: t.tolist(), tree)


def test_tensors_keep_the_names_that_earlier_versions_gave_them(tmp_path: Path) -> None:
    tree = {"moments": {"first": {"dense.weight": fb.ones(2)}}, "history": [fb.ones(1), (fb.ones(1),)]}
    names = load_checkpoint(save(tmp_path / "c", optimizer=tree)).manifest["optimizer"]
    assert sorted(names) == ["history/0", "history/1/0", "moments/first/dense.weight"]


# values


@pytest.mark.parametrize(
    "scalar",
    [np.float32(0.1), np.float64(0.1), np.int64(2**62), np.uint8(3), np.bool_(True), ml_dtypes.bfloat16(0.5), np.str_("a")],
)
def test_a_numpy_scalar_is_the_number_that_it_is(tmp_path: Path, scalar: Any) -> None:
    found = load_checkpoint(save(tmp_path / "c", state={"x": [scalar], "step": np.int32(4)}, config={"x": scalar}))
    assert found.state["x"] == [scalar]
    assert type(found.state["x"][0]) in (float, int, bool, str)
    assert found.config["x"] == scalar
    assert found.manifest["progress"] == {"step": 4}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"config": {"lr": {"x": fb.ones(2)}}}, "config.lr.x: float32 tensor [2]"),
        ({"config": {"x": np.ones(2)}}, "config.x: float64 array [2]"),
        ({"state": {"lr": {"x y": {1, 2}}}}, "state.lr['x y']: set"),
        ({"state": {"a": [1, 1j]}}, "state.a[1]: complex"),
        ({"state": {"a": b"x"}}, "state.a: bytes"),
        ({"state": {"a": np.longdouble("0.1")}}, "state.a: the numpy.longdouble"),
        ({"optimizer": nn.Linear(1, 1)}, "optimizer: firebrick.nn.linear.Linear"),
        ({"state": {"model": nn.Linear(1, 1)}}, "state.model: firebrick.nn.linear.Linear"),
        ({"model": nn.Linear(1, 1)}, "model=Linear"),
        ({"model": {"w": np.ones(2)}}, "model['w']: ndarray"),
        ({"model": {3: fb.ones(2)}}, "model[3]: Tensor"),
        ({"model": {"__metadata__": fb.ones(2)}}, "'__metadata__'"),
        ({"model": {"\ud800": fb.ones(2)}}, r"'\ud800'"),
        ({"config": [1]}, "config=[1]"),
    ],
)
def test_what_cannot_be_kept_is_named_with_what_to_pass(tmp_path: Path, parts: Mapping[str, Any], text: str) -> None:
    error = refused(tmp_path, **parts)
    assert error.received.startswith(text)
    assert error.remedy


@pytest.mark.parametrize("part", ["state", "config", "optimizer"])
def test_a_tree_that_holds_itself_or_is_too_deep_is_refused(tmp_path: Path, part: str) -> None:
    ring: dict[str, Any] = {"a": []}
    ring["a"].append(ring)
    deep: Any = 0
    for _ in range(5000):
        deep = [deep]
    for tree in (ring, {"deep": deep}):
        error = refused(tmp_path, **{part: tree})
        assert "more than 100 levels" in error.received
        assert len(error.received) < 200


def test_the_deepest_tree_comes_back(tmp_path: Path) -> None:
    deep: Any = 0
    for _ in range(99):
        deep = (deep,)
    assert load_checkpoint(save(tmp_path / "c", state={"deep": deep}, optimizer={"deep": deep})).state["deep"] == deep


# paths


@pytest.mark.parametrize("path", ["", ".", "..", "a/..", "/", None, 3, b"c", "a\0b"])
def test_a_path_that_names_no_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="name"):
        save(path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(CheckpointError, match="name"):
        load_checkpoint(path)


def test_a_checkpoint_is_loaded_from_within_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(save(tmp_path / "c", state={"epoch": 1}))
    assert load_checkpoint(".").state == {"epoch": 1}


def test_saving_through_a_link_replaces_what_it_links_to(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link, real = tmp_path / "link", tmp_path / "elsewhere" / "real"
    link.symlink_to("elsewhere/real")
    for epoch in (1, 2, 3):  # the first one finds no target
        assert save(link, state={"epoch": epoch}) == link
        assert link.is_symlink()
        assert load_checkpoint(link).state == load_checkpoint(real).state == {"epoch": epoch}
    assert sorted(p.name for p in tmp_path.rglob("*") if "real" not in p.parent.name) == ["elsewhere", "link", "real"]
    real.rename(real.with_name("real.old"))  # as a crash leaves it
    assert load_checkpoint(link).state == {"epoch": 3}
    save(link, state={"epoch": 4})
    assert load_checkpoint(link).state == {"epoch": 4}


def test_a_link_that_leads_nowhere_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(CheckpointError, match="which is a link"):
        save(tmp_path / "a")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_a_link_to_a_folder_of_the_users_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "manifest.json").write_text(json.dumps({"name": "app"}))
    (tmp_path / "link").symlink_to("mine")
    with pytest.raises(CheckpointError, match=r"other files|nothing identifies"):
        save(tmp_path / "link")
    assert (tmp_path / "mine" / "manifest.json").exists()
