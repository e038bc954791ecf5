"""What a checkpoint may take the place of: another checkpoint, in a directory that holds nothing else.

Replacing removes a directory with all that is in it, so nothing is removed whose name a checkpoint's manifest, or this format,
does not have. A damaged manifest counts as a checkpoint's if its hash file or its first bytes are those of one, and tensors or
a state lie beside it.
"""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import Any

from firebrick.core.untrusted import content_of, json_of
from firebrick.train.errors import CheckpointError

MANIFEST, HASH = "manifest.json", "manifest.sha256"
FILES = ("model.safetensors", "optimizer.safetensors", "state.json")
HASH_BYTES = 1024  # of its file, at most
_BEGINNING = b'{\n "format_version": '  # of each manifest that was ever written
_SHOWN = 4  # names in a message


def check_replaceable(place: Path, *, partial: bool = False) -> None:
    """Refuse to replace what is more than a checkpoint.

    Args:
        place: What would be removed; a symbolic link counts as what it is, a file.
        partial: Whether a crash may have left a part of a checkpoint here, without its manifest.

    Raises:
        CheckpointError: It is a file, no checkpoint, or a checkpoint with other files beside its own.
    """
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise _refusal(f"{place}, which is a {'link' if place.is_symlink() else 'file'}", "name another directory, or move it")
    if not place.exists():
        return
    manifest = _manifest(place)
    listed = (MANIFEST, HASH, *FILES, *(manifest or ()))
    others = (e.name for e in place.iterdir() if e.name not in listed or not e.is_file())
    if foreign := list(islice(others, _SHOWN + 1)):
        names = ", ".join(map(repr, sorted(foreign[:_SHOWN]))) + (", …" if len(foreign) > _SHOWN else "")
        raise _refusal(
            f"{place}, a directory with other files: {names}", "move these files elsewhere, or name another directory"
        )
    if manifest is None and not partial and any(place.iterdir()) and not _is_marked(place):
        received = f"{place}, a directory of files that nothing identifies as a checkpoint's"
        raise _refusal(received, "name another directory, or remove this one if nothing in it is needed")


def is_replaceable(place: Path) -> bool:
    """Whether ``check_replaceable`` lets go what is, or may be a part of, a checkpoint."""
    try:
        check_replaceable(place, partial=True)
    except CheckpointError:
        return False
    return True


def is_of_checkpoint(place: Path) -> bool:
    """Whether a directory has a checkpoint's manifest, damaged or not."""
    return _manifest(place) is not None or _is_marked(place)


def _refusal(received: str, remedy: str) -> CheckpointError:
    return CheckpointError("a checkpoint replaces a checkpoint, and nothing else", received, remedy)


def _manifest(place: Path) -> dict[str, Any] | None:
    """The files that a checkpoint's manifest lists, of any format; None if there is no such manifest."""
    try:
        found = json_of(content_of(place / MANIFEST))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or type(found.get("format_version")) is not int:
        return None
    files = found.get("files")
    return files if isinstance(found.get("firebrick"), str) and isinstance(files, dict) else None


def _is_marked(place: Path) -> bool:
    """Whether other files of a checkpoint lie beside a damaged manifest whose hash file or beginning is a checkpoint's."""
    if not any((place / name).is_file() for name in FILES):
        return False
    for name, form in ((HASH, rb"[0-9a-f]{64}  manifest\.json\n"), (MANIFEST, re.escape(_BEGINNING) + rb"(?s:.*)")):
        try:
            if re.fullmatch(form, content_of(place / name)):
                return True
        except OSError:
            pass
    return False
