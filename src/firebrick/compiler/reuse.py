"""Results of the compiler on disk, in addition to objects: the compiled form of a graph, or of a group, found by the graph.

An entry holds the encoded graph, not only a hash of it, and is used only if that is equal byte for byte. The form of a program
holds the settings that change code as well. The key also depends on the versions of the tools and a hash of this package's
sources. The files are written, verified, bounded and removed like those of objects (``cache``). Their content is compressed
JSON: data, no code.
"""

from __future__ import annotations

import hashlib
import json
import platform
import struct
import sys
import zlib
from typing import Any

import numpy as np

from firebrick.compiler import cache
from firebrick.core.config import config
from firebrick.core.sources import fingerprint

MIN_NODES = 64
"""Minimum number of nodes of a graph that is looked up; smaller graphs are compiled as fast."""
MOST_BYTES = 1 << 26
"""Maximum bytes of the JSON of a result, so that no file takes more memory."""
_LENGTH = struct.Struct("<Q")


def active() -> bool:
    """Whether results are stored."""
    return config.cache_plans and cache.folder() is not None and fingerprint() is not None


def wanted(nodes: int) -> bool:
    """Whether the results for a graph of this number of nodes are stored; never while graphs are verified."""
    return nodes >= MIN_NODES and not config.verify_graphs and active()


def load(kind: str, form: bytes, llvm: bool = True) -> Any:
    """The stored result for a graph, as JSON; None if there is no valid entry.

    Args:
        kind: Kind of the result; several kinds may be stored for one graph.
        form: Encoding of the graph, and of everything else that the result depends on.
        llvm: Whether it depends on LLVM, which is imported for its version.
    """
    image = cache.store.load(_key(kind, form, llvm))
    if image is None or len(image) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(image)
    end = _LENGTH.size + length
    if image[_LENGTH.size : end] != form:
        return None
    try:
        packed = zlib.decompressobj()
        text = packed.decompress(image[end:], MOST_BYTES)
        return json.loads(text) if packed.eof else None
    except (ValueError, RecursionError, zlib.error):
        return None


def save(kind: str, form: bytes, content: Any, llvm: bool = True) -> None:
    """Store the result for a graph, unless ``json`` cannot write it; arguments as of ``load``."""
    try:
        text = json.dumps(content, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):  # the entry only saves time, so a failure is no error
        return
    if len(text) > MOST_BYTES:
        return
    image = _LENGTH.pack(len(form)) + form + zlib.compress(text, 1)
    facts = {"functions": [f"({kind})"], "target": "WebGPU", "llvm": ""}
    if llvm:
        package, version = cache.versions()
        facts |= {"target": platform.machine(), "llvm": f"{version} (llvmlite {package})"}
    cache.store.save(_key(kind, form, llvm), image, facts)


def _key(kind: str, form: bytes, llvm: bool = True) -> bytes:
    digest = hashlib.sha256()
    tools = (*(cache.versions() if llvm else ()), np.__version__, sys.version)
    for part in (kind, cache.FORMAT, *tools, fingerprint()):
        encoded = repr(part).encode()
        digest.update(_LENGTH.pack(len(encoded)))
        digest.update(encoded)
    digest.update(form)
    return digest.digest()
