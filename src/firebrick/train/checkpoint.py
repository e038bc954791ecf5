"""Checkpoints: one directory that holds everything a run needs to go on, and that always loads.

    manifest.json           format version, Firebrick's version, the run's config, epoch and step, sha256 and size of each
                            file, dtype and shape of each tensor
    manifest.sha256         the manifest's own hash, as ``sha256sum`` writes and checks it
    model.safetensors       the model's state
    optimizer.safetensors   the tensors of the optimizer's state
    state.json              everything else: epoch, step, generators, loader cursor, metrics, the optimizer's numbers

A checkpoint is written to a directory beside, synced, and renamed into place (see ``writing``); the one before is kept as
``<name>.old`` until then, and ``load_checkpoint`` falls back on it. So a crash at any moment leaves one that loads.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from firebrick.backends.dispatch import read
from firebrick.core import trees
from firebrick.core.lines import warn
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.core.untrusted import content_of, json_of, shown
from firebrick.core.version import __version__
from firebrick.nn import Module
from firebrick.nn.saved import StateError
from firebrick.train.errors import CheckpointError, DamagedCheckpointError, DamagedCheckpointWarning
from firebrick.train.packing import (
    MALFORMED,
    Array,
    check_storable,
    facts_of,
    inlined,
    packed,
    plain,
    tensor_file,
    tensors_of,
    text_of,
    unpacked,
)
from firebrick.train.replacing import FILES, HASH, HASH_BYTES, MANIFEST
from firebrick.train.writing import fresh_of, old_of, put

FORMAT = 2
NAME = "checkpoint"  # the newest of a run directory
EARLIER = "earlier"  # those before it, as step-00000123
BEST = "best"  # that of the epoch that did best
_TRIES = 8  # of reading while a run writes
_PARTS = ("config", "progress", "files", "model", "aliases", "optimizer")


class ModelArrays(dict[str, Array]):
    """A model's state by path; ``aliases`` maps further paths of shared tensors to the ones they are stored under."""

    def __init__(self, values: Mapping[str, Array], aliases: Mapping[str, str]) -> None:
        super().__init__(values)
        self.aliases = dict(aliases)


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """What a checkpoint holds, verified; arrays are NumPy's.

    Attributes:
        path: The directory it was read from.
        config: What the run was started with, as given to ``save_checkpoint``.
        model: The model's state by name.
        optimizer: The optimizer's state tree.
        state: The rest: plain values and trees with arrays.
        manifest: The manifest, as of the newest format.
        refused: Newer checkpoints of the run directory that were found damaged and passed over.

    Example:
        >>> import tempfile, firebrick as fb
        >>> from firebrick.train import load_checkpoint, save_checkpoint
        >>> path = tempfile.mkdtemp() + "/checkpoint"
        >>> path = save_checkpoint(path, model={"w": fb.ones(2)}, optimizer={}, state={"step": 1}, config={})
        >>> load_checkpoint(path).model["w"].tolist()
        [1.0, 1.0]
    """

    path: Path
    config: dict[str, Any]
    model: ModelArrays
    optimizer: Any
    state: dict[str, Any]
    manifest: dict[str, Any]
    refused: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        arrays = [v for v in (*self.model.values(), *trees.flatten(self.optimizer)[0]) if hasattr(v, "nbytes")]
        at = ", ".join(f"{k} {self.state[k]}" for k in ("epoch", "step") if k in self.state)
        size = f"{len(arrays)} tensors of {sum(a.nbytes for a in arrays)} bytes"
        return f"Checkpoint({', '.join(part for part in (repr(str(self.path)), at, size) if part)})"

    def load_into(self, model: Module) -> None:
        """Give a model the state stored here.

        Args:
            model: A module with the same names and shapes.

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
    return (
        ", ".join(f"{shown(k)} {shown(v)}" for k, v in config.items() if isinstance(v, (str, int, float)))
        or "its config is empty"
    )


# writing


@dataclass(frozen=True)
class Snapshot:
    """A moment of a run on the host, which no later step changes; any thread may write it, as often as it likes.

    The arrays may show memory of the tensors they were read from. Reading exports it, and exported memory is never written
    again (see ``Storage.unique``), by a program that donates its inputs neither: it takes a copy.
    """

    model: dict[str, Array]
    aliases: dict[str, str]
    optimizer: dict[str, Array]
    state: bytes
    config: dict[str, Any]
    progress: dict[str, Any]

    @property
    def step(self) -> int | None:
        """Finished steps; None if the state says nothing of them."""
        return self.progress.get("step")

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Name and content of each file, made one at a time."""
        made: tuple[Callable[[], bytes], ...] = (
            lambda: tensor_file(self.model),
            lambda: tensor_file(self.optimizer),
            lambda: self.state,
        )
        files: dict[str, Any] = {}
        for name, make in zip(FILES, made, strict=True):
            content = make()
            files[name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
            yield name, content
        manifest = text_of({
            "format_version": FORMAT,
            "firebrick": __version__,
            "config": self.config,
            "progress": self.progress,
            "files": files,
            "model": facts_of(self.model),
            "aliases": self.aliases,
            "optimizer": facts_of(self.optimizer),
        })  # fmt: skip
        yield MANIFEST, manifest
        yield HASH, f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n".encode()


def take_snapshot(
    *, model: Mapping[str, Tensor], optimizer: Any, state: Mapping[str, Any], config: Mapping[str, Any]
) -> Snapshot:  # fmt: skip
    """Read all that a checkpoint holds; the arguments are those of ``save_checkpoint``.

    Raises:
        CheckpointError: Something in it cannot be stored.
    """
    _check_tensors(model)
    for name, part in (("state", state), ("config", config)):
        if not isinstance(part, Mapping):
            raise CheckpointError(f"{name} is a dict", f"{name}={part!r:.80}", f"pass {name}={{…}}, or {name}={{}} for none")
    if "optimizer" in state:
        raise CheckpointError(
            "state has other keys than 'optimizer'", "state['optimizer']", "pass it as optimizer=, or rename it"
        )
    tensors: dict[str, Tensor] = {}
    tree = packed(optimizer, "optimizer", tensors)
    kept = {**inlined(state, "state"), "optimizer": tree}
    names = list(model)
    arrays = read([model[n] for n in names] + list(tensors.values()))
    of_model = dict(zip(names, arrays[: len(names)], strict=True))
    of_optimizer = dict(zip(tensors, arrays[len(names) :], strict=True))
    check_storable({**of_model, **of_optimizer})
    return Snapshot(
        of_model,
        dict(getattr(model, "aliases", {})),
        of_optimizer,
        text_of(kept),
        json.loads(text_of(plain(config, "config"))),
        {k: kept[k] for k in ("epoch", "step") if k in kept},
    )


def _check_tensors(model: Any) -> None:
    """Refuse what is no dict of tensors by name."""
    if not isinstance(model, Mapping):
        raise CheckpointError(
            "model is the state of a model: tensors by name",
            f"model={type(model).__name__}",
            "pass model=model.state_dict()",
        )
    if wrong := [(k, v) for k, v in model.items() if not (isinstance(k, str) and isinstance(v, Tensor))]:
        name, value = wrong[0]
        raise CheckpointError(
            "model is the state of a model: tensors by name",
            f"model[{name!r:.80}]: {type(value).__name__}",
            "pass model=model.state_dict(); make tensors of arrays with fb.asarray, and put other values into state",
        )


@answers_arguments
def save_checkpoint(
    path: str | os.PathLike[str],
    *,
    model: Mapping[str, Tensor],
    optimizer: Any = None,
    state: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Write a checkpoint; if it fails, the checkpoint before it still loads.

    Args:
        path: The directory; replaced if it is a checkpoint, and holds nothing else.
        model: Tensors by name, as of ``model.state_dict()``.
        optimizer: A tree of tensors and plain values, as of ``optimizer.state_dict()``; None for none.
        state: Plain values, and trees with small tensors, by name; none by default.
        config: Plain values by name that describe how to build the model again; none by default.

    Returns:
        The directory.

    Raises:
        CheckpointError: Something in it cannot be stored, the path is no checkpoint or one with other
            files, the disk is full or not writable.

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
    state, config = ({} if d is None else d for d in (state, config))
    return write(take_snapshot(model=model, optimizer=optimizer, state=state, config=config), path)


def write(snapshot: Snapshot, path: str | os.PathLike[str], *, aside: Path | None = None, gone: Sequence[Path] = ()) -> Path:
    """Write a snapshot in the place of the checkpoint at ``path``, or at what it links to; ``aside`` and ``gone`` are those of
    ``put``."""
    given = _path_of(path)
    goal = _place_of(given)
    if goal.name in ("", ".."):
        expected = "a checkpoint is a directory that is replaced as a whole, so its path ends with its name"
        raise CheckpointError(expected, repr(os.fspath(path)), f"name a directory in it, such as {str(given / NAME)!r}")
    put(goal, snapshot.files(), aside=aside, gone=gone)
    return given


def _path_of(path: Any) -> Path:
    try:
        found = Path(path)
    except TypeError:
        found = None
    if found is None or "\0" in str(found):
        raise CheckpointError("the path of a checkpoint is text or a Path", f"path={path!r:.80}", "name its directory")
    return found


def _place_of(path: Path) -> Path:
    """Where a path leads: what a symbolic link stands for is replaced, and the link stays."""
    try:
        return path.resolve() if path.is_symlink() else path
    except (OSError, RuntimeError):  # links in a circle
        return path


# reading


def load_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint and verify every byte of it.

    Args:
        path: The checkpoint's directory, or the run directory around it. Of a run directory, the newest is read that is
            whole; a warning names the damaged ones that are passed over.

    Raises:
        CheckpointError: There is none, all are damaged (``DamagedCheckpointError``), or it is of a newer format than this
            version reads.

    Example:
        >>> import tempfile, firebrick as fb
        >>> from firebrick.train import load_checkpoint, save_checkpoint
        >>> layer = fb.nn.Linear(2, 1)
        >>> path = tempfile.mkdtemp() + "/checkpoint"
        >>> path = save_checkpoint(path, model=layer.state_dict(), optimizer={}, state={"epoch": 3}, config={})
        >>> found = load_checkpoint(path)
        >>> found.load_into(layer)
        >>> found.state["epoch"]
        3
    """
    goal = _path_of(path)
    for _ in range(_TRIES):
        place = _place_of(goal)
        candidates = [goal] if is_checkpoint(goal) else checkpoints_of(goal)
        if not candidates and place.name:
            candidates = checkpoints_of(place.parent, place.name)
        before = [_identity(f) for f in candidates]
        refused: list[DamagedCheckpointError] = []
        found = None
        for folder in candidates:
            try:
                found = replace(_load(folder), refused=tuple(e.folder for e in refused))
                break
            except DamagedCheckpointError as e:
                refused.append(e)
        moved = None in before or [_identity(f) for f in candidates] != before
        if (found is not None and not refused) or (candidates and not moved):
            break  # else a run has put another in its place meanwhile, which is no damage
    if found is not None:
        for damage in refused:
            warn(
                f"the checkpoint {damage.folder} is damaged ({damage.received}): going on from {folder}, the one before it",
                DamagedCheckpointWarning,
            )
        if found.path != goal and (lacking := _newest_lost(found.path)):
            warn(f"{lacking}: going on from {found.path}, the one before it", DamagedCheckpointWarning)
        return found
    if refused:
        raise refused[0]
    if goal.is_dir():
        there = ", ".join(sorted(e.name for e in goal.iterdir())[:8]) or "nothing"
        received = f"{goal}, which holds {there}"
    else:
        received = f"{goal}, which " + ("is a file" if goal.exists() else "does not exist")
    raise CheckpointError(
        "a checkpoint is a directory with manifest.json, or a run directory around one",
        received,
        "name the directory that the training run printed",
    )


def _newest_lost(found: Path) -> str:
    """What became of the newest checkpoint of a run directory, where an earlier one was found and no crash explains it: one
    leaves the directory that was to take its place."""
    newest = found.parent.parent / NAME
    if found.parent.name != EARLIER or is_checkpoint(newest) or fresh_of(newest).exists():
        return ""
    if newest.is_dir():
        return f"the newest checkpoint {newest} holds none of a checkpoint's files"
    return f"the newest checkpoint {newest} " + ("is a file: move it away" if newest.exists() else "is missing")


def _identity(folder: Path) -> tuple[int, int] | None:
    """What tells a directory from another one that has taken its place."""
    try:
        facts = folder.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns


def is_checkpoint(folder: Path) -> bool:
    """Whether a directory is one, or what is left of one."""
    return any((folder / name).is_file() for name in (MANIFEST, *FILES))


def checkpoints_of(run: Path, name: str = NAME) -> list[Path]:
    """The checkpoints in a run directory, newest first; those under another name, if one is given."""
    newest = run / name
    found = [f for f in (newest, old_of(newest)) if is_checkpoint(f)]
    return found + (earlier_of(run) if name == NAME else [])


def earlier_of(run: Path) -> list[Path]:
    """Those that a run directory keeps beside its newest one, by falling step."""
    there = [f for f in (run / EARLIER).glob("step-*") if is_checkpoint(f) and step_of(f) is not None]
    return sorted(there, key=lambda f: step_of(f) or 0, reverse=True)


def step_of(earlier: Path) -> int | None:
    """The step that an earlier checkpoint is called after."""
    found = re.fullmatch(r"step-(\d+)", earlier.name)
    return int(found[1]) if found else None


def _load(folder: Path) -> Checkpoint:
    manifest = manifest_of(folder)
    model, optimizer = (_tensors(folder, which, manifest) for which in ("model", "optimizer"))
    written = _object(folder, "state.json", _verified(folder, "state.json", manifest))
    try:
        state = unpacked(written, optimizer)
        tree = state.pop("optimizer")
    except MALFORMED as e:
        raise _damaged(folder, "state.json", f"no state as a checkpoint holds it ({type(e).__name__}: {shown(e, 500)})") from e
    return Checkpoint(folder, manifest["config"], ModelArrays(model, manifest["aliases"]), tree, state, manifest)


def _tensors(folder: Path, which: str, manifest: dict[str, Any]) -> dict[str, Array]:
    """The arrays of one of the two tensor files."""
    name = f"{which}.safetensors"
    try:
        arrays = tensors_of(_verified(folder, name, manifest))
    except CheckpointError:
        raise
    except ValueError as e:
        raise _damaged(folder, name, f"no tensors that can be read ({shown(e, 500)})") from e
    if facts_of(arrays) != manifest[which]:
        raise _damaged(folder, name, "other names, dtypes or shapes than the manifest lists")
    return arrays


def _object(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """The object of a JSON file."""
    try:
        found = json_of(content)
    except ValueError as e:
        raise _damaged(folder, name, f"no JSON that can be read ({shown(e, 500)})") from e
    if not isinstance(found, dict):
        raise _damaged(folder, name, "JSON that is no object")
    return found


def _second(folder: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Format 1 kept epoch and step in state.json alone, and no hash of the manifest."""
    state = _object(folder, "state.json", _verified(folder, "state.json", manifest))
    return {**manifest, "progress": {k: state[k] for k in ("epoch", "step") if k in state}}


_UPGRADES: dict[int, Callable[[Path, dict[str, Any]], dict[str, Any]]] = {1: _second}  # each from one format to the next


def manifest_of(folder: Path) -> dict[str, Any]:
    """The verified manifest of a checkpoint, as of the newest format; ``format_version`` is that of the files.

    Raises:
        CheckpointError: It is damaged, or of a newer format than this version reads.
    """
    content = _read(folder, MANIFEST)
    hashed = (folder / HASH).exists()
    if hashed and _read(folder, HASH, HASH_BYTES).split()[:1] != [hashlib.sha256(content).hexdigest().encode()]:
        raise _damaged(folder, MANIFEST, f"other bytes than were written ({HASH} differs)")
    manifest = _object(folder, MANIFEST, content)
    version = manifest.get("format_version")
    if type(version) is not int or version < 1:
        raise _damaged(folder, MANIFEST, "no manifest that can be read")
    if version > FORMAT:
        raise CheckpointError(
            f"this version of Firebrick reads checkpoints up to format {FORMAT}",
            f"{folder}, format {version}, written by Firebrick {shown(manifest.get('firebrick', '?'))}",
            "upgrade: pip install --upgrade firebrick",
        )
    if version >= 2 and not hashed:
        raise _damaged(folder, HASH, "no such file")
    if not isinstance(manifest.get("files"), dict):
        raise _damaged(folder, MANIFEST, "a manifest without its parts")
    for older in range(version, FORMAT):
        manifest = _UPGRADES[older](folder, manifest) if older in _UPGRADES else {}
    if not all(isinstance(manifest.get(k), dict) for k in _PARTS):
        raise _damaged(folder, MANIFEST, "a manifest without its parts")
    texts = (manifest.get("firebrick"), *manifest["aliases"].values())
    if not all(isinstance(t, str) for t in texts):
        raise _damaged(folder, MANIFEST, "a version or an alias that is no text")
    if type(step := manifest["progress"].get("step")) is int and not 0 <= step < 2**63:
        raise _damaged(folder, MANIFEST, f"step {shown(step)}, which no run reaches")
    for name in manifest["files"]:
        _facts(folder, name, manifest)
    return manifest


def _verified(folder: Path, name: str, manifest: dict[str, Any]) -> bytes:
    size, digest = _facts(folder, name, manifest)
    content = _read(folder, name, size)
    if len(content) != size:
        raise _damaged(folder, name, f"{len(content)} bytes instead of {size}")
    if hashlib.sha256(content).hexdigest() != digest:
        raise _damaged(folder, name, "other bytes than were written (its sha256 differs)")
    return content


def _facts(folder: Path, name: str, manifest: dict[str, Any]) -> tuple[int, str]:
    """Size and sha256 of a file, as a manifest states them."""
    facts = manifest["files"].get(name)
    if isinstance(facts, dict) and type(size := facts.get("bytes")) is int and type(digest := facts.get("sha256")) is str:
        return size, digest
    raise _damaged(folder, MANIFEST, f"no size and sha256 of {shown(name)}")


def _read(folder: Path, name: str, most: int | None = None) -> bytes:
    try:
        return content_of(folder / name, most)
    except FileNotFoundError:
        raise _damaged(folder, name, "no such file") from None
    except PermissionError:
        raise
    except OSError as e:  # a failing disk
        raise _damaged(folder, name, e.strerror or str(e)) from e


def _damaged(folder: Path, name: str, received: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(
        f"every file of the checkpoint {folder} is as it was written",
        f"{name}: {received}",
        "the file was cut or changed afterwards: copy the checkpoint again, or load best/ or an earlier one",
        folder=folder,
    )
