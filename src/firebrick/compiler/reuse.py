"""Results of the compiler on disk, in addition to objects: the compiled form of a graph, found by the graph.

An entry holds the encoded graph, not only a hash of it, and is used only if that is equal byte for byte. The form of a program
holds the settings that change code as well. The key also depends on the versions of the tools and a hash of this package's
sources. The files are written, verified, bounded and removed like those of objects (``cache``). Their content is JSON: data,
no code.
"""

from __future__ import annotations

import hashlib
import json
import platform
import struct
import sys
from typing import Any

import numpy as np

from firebrick.compiler import cache
from firebrick.core.config import config
from firebrick.core.sources import fingerprint

MIN_NODES = 64
"""Minimum number of nodes of a graph that is looked up; smaller graphs are compiled as fast."""
_LENGTH = struct.Struct("<Q")


def wanted(nodes: int) -> bool:
    """Whether the results for a graph of this number of nodes are stored; never while graphs are verified."""
    if nodes < MIN_NODES or not config.cache_plans or config.verify_graphs:
        return False
    return cache.folder() is not None and fingerprint() is not None


def load(kind: str, form: bytes) -> Any:
    """The stored result for a graph, as JSON; None if there is no valid entry.

    Args:
        kind: Kind of the result; several kinds may be stored for one graph.
        form: Encoding of the graph, and of everything else that the result depends on.
    """
    image = cache.store.load(_key(kind, form))
    if image is None or len(image) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(image)
    end = _LENGTH.size + length
    if image[_LENGTH.size : end] != form:
        return None
    try:
        return json.loads(image[end:])
    except (ValueError, RecursionError):
        return None


def save(kind: str, form: bytes, content: Any) -> None:
    """Store the result for a graph, unless ``json`` cannot write it."""
    try:
        text = json.dumps(content, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):  # the entry only saves time, so a failure is no error
        return
    image = _LENGTH.pack(len(form)) + form + text.encode()
    llvm, llvmlite = cache.versions()[::-1]
    facts = {"functions": [f"({kind})"], "target": platform.machine(), "llvm": f"{llvm} (llvmlite {llvmlite})"}
    cache.store.save(_key(kind, form), image, facts)


def _key(kind: str, form: bytes) -> bytes:
    digest = hashlib.sha256()
    tools = (*cache.versions(), np.__version__, sys.version)
    for part in (kind, cache.FORMAT, *tools, fingerprint()):
        encoded = repr(part).encode()
        digest.update(_LENGTH.pack(len(encoded)))
        digest.update(encoded)
    digest.update(form)
    return digest.digest()
