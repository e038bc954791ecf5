"""Results of the compiler on disk beside the objects: what became of a graph, found by the graph and all that it depends on.

An entry holds the whole form of its graph, not only a hash of it, and is taken only where that is the same byte for byte. Its
key, too, has the versions of the tools, the settings that change code, and a hash of this package's sources. The
file is written, checked, bounded and removed as those of the objects are (``cache``). Its content is JSON: data, no code.
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

LEAST = 64
"""Nodes of a graph from which on it is looked up: below, to compile it takes no longer."""
_LENGTH = struct.Struct("<Q")


def wanted(nodes: int) -> bool:
    """Whether what becomes of a graph of so many nodes is kept; never while graphs are verified, anew in each process."""
    if nodes < LEAST or not config.cache_plans or config.verify_graphs:
        return False
    return cache.folder() is not None and fingerprint() is not None


def load(kind: str, form: bytes) -> Any:
    """What was kept for a graph, as JSON; None if nothing is, or nothing that can be trusted.

    Args:
        kind: What the entry is: another result of the same graph has another one.
        form: The form of the graph, and of what else decides on the result.
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
    """Keep the result for a graph, unless ``json`` cannot write it."""
    try:
        text = json.dumps(content, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):  # it is a gain, so its failure must stop nothing
        return
    image = _LENGTH.pack(len(form)) + form + text.encode()
    llvm, llvmlite = cache.versions()[::-1]
    facts = {"functions": [f"({kind})"], "target": platform.machine(), "llvm": f"{llvm} (llvmlite {llvmlite})"}
    cache.store.save(_key(kind, form), image, facts)


def _key(kind: str, form: bytes) -> bytes:
    digest = hashlib.sha256()
    settings = (config.winograd,)
    tools = (*cache.versions(), np.__version__, sys.version)
    for part in (kind, cache.FORMAT, *tools, *settings, fingerprint()):
        encoded = repr(part).encode()
        digest.update(_LENGTH.pack(len(encoded)))
        digest.update(encoded)
    digest.update(form)
    return digest.digest()
