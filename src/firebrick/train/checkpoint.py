"""Checkpoints: one directory that holds everything a run needs to go on, and that always loads.

    manifest.json           format version, Firebrick's version, the run's config, sha256 and size of each file,
                            dtype and shape of each tensor
    model.safetensors       the model's state
    optimizer.safetensors   the tensors of the optimizer's state
    state.json              everything else: epoch, step, generators, loader cursor, metrics, the optimizer's numbers

A checkpoint is written to a directory beside, synced, and renamed into place; the one before is kept as ``<name>.old``
until then, and ``load_checkpoint`` falls back on it. So a crash at any moment leaves one that loads.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from firebrick.backends.dispatch import read
from firebrick.core import dtypes
from firebrick.core.tensor import Tensor
from firebrick.nn import Module
from firebrick.nn.saved import StateError
from firebrick.train.errors import CheckpointError

FORMAT = 1
NAME = "checkpoint"
_FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
_DTYPES: dict[str, Any] = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "U32": np.uint32, "I32": np.int32,
    "U64": np.uint64, "I64": np.int64, "F16": np.float16, "BF16": dtypes.bfloat16.np, "F32": np.float32, "F64": np.float64,
    "C64": np.complex64, "F8_E4M3": dtypes.float8_e4m3fn.np, "F8_E5M2": dtypes.float8_e5m2.np,
}  # fmt: skip

Array = np.ndarray[Any, Any]


class ModelArrays(dict[str, Array]):
    """A model's state by path; ``aliases`` maps further paths of shared tensors to the ones they are stored under."""

    def __init__(self, values: Mapping[str, Array], aliases: Mapping[str, str]) -> None:
        super().__init__(values)
        self.aliases = dict(aliases)


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds, verified; arrays are NumPy's.

    Attributes:
        path: The directory it was read from.
        config: What the run was started with, as given to ``save_checkpoint``.
        model: The model's state by name.
        optimizer: The optimizer's state tree.
        state: The rest: plain values and trees with arrays.
    """

    path: Path
    config: dict[str, Any]
    model: ModelArrays
    optimizer: Any
    state: dict[str, Any]

    def load_into(self, model: Module) -> None:
        """Give a model the state stored here.

        Raises:
            CheckpointError: It has other parameters; all differences are listed, and nothing was changed.
        """
        try:
            model.load_state_dict(self.model)
        except StateError as e:
            raise CheckpointError(
                f"the checkpoint {self.path} must be of the model it is loaded into\n{e.expected}",
                e.received,
                f"build the model it was saved from ({summary(self.config)}), or name another checkpoint",
            ) from e


def summary(config: Mapping[str, Any]) -> str:
    """The plain values of a run's config in one line."""
    return ", ".join(f"{k} {v}" for k, v in config.items() if isinstance(v, (str, int, float))) or "its config is empty"


def save_checkpoint(
    path: str | os.PathLike[str],
    *,
    model: Mapping[str, Tensor],
    optimizer: Any,
    state: Mapping[str, Any],
    config: Mapping[str, Any],
) -> Path:
    """Write a checkpoint; whatever goes wrong, the one that was there still loads.

    Args:
        path: The directory, replaced if it is a checkpoint.
        model: Tensors by name, as of ``model.state_dict()``.
        optimizer: A tree of tensors and plain values.
        state: Plain values, and trees with small tensors.
        config: Plain values that say how to build the model again.

    Returns:
        The directory.

    Raises:
        CheckpointError: Something in it cannot be stored, or what is there is no checkpoint.
        OSError: The disk is full or not writable.

    Example:
        >>> import tempfile, firebrick as fb
        >>> from firebrick.train import load_checkpoint, save_checkpoint
        >>> path = save_checkpoint(
        ...     tempfile.mkdtemp() + "/checkpoint",
        ...     model={"weight": fb.ones(2)},
        ...     optimizer={"step": 3},
        ...     state={"epoch": 1},
        ...     config={"model": "tiny"},
        ... )
        >>> found = load_checkpoint(path)
        >>> found.model["weight"].tolist(), found.optimizer, found.state["epoch"]
        ([1.0, 1.0], {'step': 3}, 1)
    """
    from firebrick import __version__

    goal = Path(path)
    for place in (goal, _old(goal)):
        _check_replaceable(place)
    tensors: dict[str, Tensor] = {}
    tree = _packed(optimizer, "", tensors)
    names = list(model)
    arrays = read([model[n] for n in names] + list(tensors.values()))
    model_arrays = dict(zip(names, arrays[: len(names)], strict=True))
    optimizer_arrays = dict(zip(tensors, arrays[len(names) :], strict=True))
    text = _json({**state, "optimizer": tree}, inline=True)
    contents = {
        "model.safetensors": _tensor_file(model_arrays),
        "optimizer.safetensors": _tensor_file(optimizer_arrays),
        "state.json": text,
    }
    manifest = {
        "format_version": FORMAT,
        "firebrick": __version__,
        "config": dict(config),
        "files": {n: {"sha256": hashlib.sha256(c).hexdigest(), "bytes": len(c)} for n, c in contents.items()},
        "model": _facts(model_arrays),
        "aliases": getattr(model, "aliases", {}),
        "optimizer": _facts(optimizer_arrays),
    }
    goal.parent.mkdir(parents=True, exist_ok=True)
    for stale in goal.parent.glob(f".{goal.name}.new-*"):
        shutil.rmtree(stale, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{goal.name}.new-", dir=goal.parent))
    try:
        for name, content in {**contents, "manifest.json": _json(manifest)}.items():
            _write(fresh / name, content)
        fresh.chmod(0o755)
        _sync(fresh)
        _swap(fresh, goal)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # gone already if it was renamed
    return goal


def _old(goal: Path) -> Path:
    return goal.with_name(goal.name + ".old")


def _check_replaceable(place: Path) -> None:
    """Nothing but a checkpoint, or what a crash left of one, is ever taken away."""
    if not place.exists() or (place / "manifest.json").is_file():
        return
    if place.is_dir() and all(e.name in _FILES for e in place.iterdir()):
        return
    raise CheckpointError(
        "a checkpoint replaces a checkpoint, and nothing else",
        f"{place}, which is " + ("a directory with other files" if place.is_dir() else "a file"),
        "name another directory, or move what is there",
    )


def _swap(fresh: Path, goal: Path) -> None:
    """Put ``fresh`` in the place of ``goal``; at every moment one of ``goal`` and ``goal.old`` is complete."""
    old = _old(goal)
    if goal.exists():
        shutil.rmtree(old, ignore_errors=True)
        goal.rename(old)
    fresh.rename(goal)
    _sync(goal.parent)
    shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _sync(folder: Path) -> None:
    with suppress(OSError):  # some systems cannot open a directory; they order renames themselves
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _tensor_file(arrays: Mapping[str, Array]) -> bytes:
    for name, a in arrays.items():
        if a.dtype not in _DTYPES.values():
            raise CheckpointError(
                "a checkpoint stores the dtypes of safetensors",
                f"{name}: {a.dtype}",
                "keep it as another dtype, or as two parts",
            )
    return safetensors.numpy.save({n: np.ascontiguousarray(a).reshape(a.shape) for n, a in arrays.items()})


def _facts(arrays: Mapping[str, Array]) -> dict[str, Any]:
    return {n: {"dtype": a.dtype.name, "shape": list(a.shape)} for n, a in arrays.items()}


# trees as JSON: tensors become {"$tensor": key} with the values elsewhere, or {"$array": …} in place


def _packed(tree: Any, where: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        tensors[where or "value"] = tree
        return {"$tensor": where or "value"}
    if isinstance(tree, Mapping):
        return {str(k): _packed(v, f"{where}/{k}" if where else str(k), tensors) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        rows = [_packed(v, f"{where}/{i}" if where else str(i), tensors) for i, v in enumerate(tree)]
        return {"$tuple": rows} if isinstance(tree, tuple) else rows
    return tree


def _inlined(tree: Any) -> Any:
    if isinstance(tree, (Tensor, np.ndarray)):
        host = np.asarray(tree)
        return {"$array": {"dtype": host.dtype.name, "shape": list(host.shape), "values": host.reshape(-1).tolist()}}
    if isinstance(tree, Mapping):
        return {str(k): _inlined(v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        rows = [_inlined(v) for v in tree]
        return {"$tuple": rows} if isinstance(tree, tuple) else rows
    return tree


def _unpacked(tree: Any, tensors: Mapping[str, Array]) -> Any:
    if isinstance(tree, list):
        return [_unpacked(v, tensors) for v in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.keys() == {"$tensor"}:
        return tensors[tree["$tensor"]]
    if tree.keys() == {"$tuple"}:
        return tuple(_unpacked(v, tensors) for v in tree["$tuple"])
    if tree.keys() == {"$array"}:
        a = tree["$array"]
        return np.array(a["values"], dtype=dtypes.dtype(a["dtype"]).np).reshape(a["shape"])
    return {k: _unpacked(v, tensors) for k, v in tree.items()}


def _json(tree: Any, *, inline: bool = False) -> bytes:
    try:
        return json.dumps(_inlined(tree) if inline else tree, indent=1).encode()
    except (TypeError, ValueError) as e:
        raise CheckpointError("a checkpoint holds tensors and plain values", str(e), "turn it into numbers or text") from None


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint and verify every byte of it.

    Args:
        path: The checkpoint's directory, or the run directory around it.

    Raises:
        CheckpointError: It is missing, damaged, or of a newer format than this version reads.
    """
    folder = _find(Path(path))
    manifest = _manifest(folder)
    contents = {name: _verified(folder, name, manifest) for name in _FILES}
    model = _tensors(contents["model.safetensors"])
    optimizer = _tensors(contents["optimizer.safetensors"])
    for which, arrays in (("model", model), ("optimizer", optimizer)):
        if _facts(arrays) != manifest[which]:
            raise _damaged(folder, f"{which}.safetensors", "other names, dtypes or shapes than the manifest lists")
    state = _unpacked(json.loads(contents["state.json"]), optimizer)
    tree = state.pop("optimizer")
    return Checkpoint(folder, manifest["config"], ModelArrays(model, manifest["aliases"]), tree, state)


def _find(path: Path) -> Path:
    for folder in (path, path / NAME):
        for candidate in (folder, folder.with_name(folder.name + ".old")):
            if (candidate / "manifest.json").is_file():
                return candidate
    if path.is_dir():
        there = ", ".join(sorted(e.name for e in path.iterdir())[:8]) or "nothing"
        received = f"{path}, which holds {there}"
    else:
        received = f"{path}, which " + ("is a file" if path.exists() else "does not exist")
    raise CheckpointError(
        "a checkpoint is a directory with manifest.json, or a run directory around one",
        received,
        "name the directory that the training run printed",
    )


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        version = manifest["format_version"]
        newer = version > FORMAT
    except (ValueError, KeyError, TypeError):
        raise _damaged(folder, "manifest.json", "no manifest that can be read") from None
    if newer:
        raise CheckpointError(
            f"this version of Firebrick reads checkpoints up to format {FORMAT}",
            f"{folder}, format {version}, written by Firebrick {manifest.get('firebrick', '?')}",
            "upgrade: pip install --upgrade firebrick",
        )
    if not all(isinstance(manifest.get(k), dict) for k in ("config", "files", "model", "aliases", "optimizer")):
        raise _damaged(folder, "manifest.json", "a manifest without its parts")
    return manifest  # type: ignore[no-any-return]


def _verified(folder: Path, name: str, manifest: dict[str, Any]) -> bytes:
    facts = manifest["files"].get(name)
    if not isinstance(facts, dict) or not {"bytes", "sha256"} <= facts.keys():
        raise _damaged(folder, "manifest.json", f"no size and sha256 of {name}")
    try:
        content = (folder / name).read_bytes()
    except FileNotFoundError:
        raise _damaged(folder, name, "no such file") from None
    if len(content) != facts["bytes"]:
        raise _damaged(folder, name, f"{len(content)} bytes instead of {facts['bytes']}")
    if hashlib.sha256(content).hexdigest() != facts["sha256"]:
        raise _damaged(folder, name, "other bytes than were written (its sha256 differs)")
    return content


def _damaged(folder: Path, name: str, received: str) -> CheckpointError:
    return CheckpointError(
        f"every file of the checkpoint {folder} is as it was written",
        f"{name}: {received}",
        "the file was cut or changed afterwards: copy the checkpoint again, or load best/ or an earlier one",
    )


def _tensors(content: bytes) -> dict[str, Array]:
    return {
        name: np.frombuffer(bytes(view["data"]), _DTYPES[view["dtype"]]).reshape(view["shape"])
        for name, view in safetensors.deserialize(content)  # type: ignore[no-untyped-call]
    }
