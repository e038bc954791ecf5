"""Results of external tools and of LLVM's code generators, kept on disk between runs beside the compiled kernels.

A result is found by a hash of all that it depends on: the input's text, the arguments, and the tool with its version. An entry
is verified when it is read, as ``firebrick.compiler.cache`` does, and made again if it is damaged. What fails is not kept.
"""

from __future__ import annotations

import hashlib
import inspect
import subprocess
import zlib
from collections.abc import Callable, Iterable
from functools import cache

from firebrick.compiler.cache import store, versions
from firebrick.compiler.targets.llvm import host, loaded
from firebrick.compiler.targets.llvm.target import Target


def kept(depends: Iterable[object], make: Callable[[], bytes]) -> bytes:
    """What ``make`` returns: from disk, if it was made from the same before.

    Args:
        depends: All that the result depends on; each part has a text of its own.
        make: Makes the result, or raises.
    """
    digest = hashlib.sha256(b"kept result")
    for part in depends:
        encoded = repr(part).encode()  # a target's ``str`` leaves out its features
        digest.update(len(encoded).to_bytes(8, "little"))  # so that different lists of parts are different texts
        digest.update(encoded)
    found = store.load(digest.digest())
    if found is None:
        found = zlib.compress(make(), 1)
        store.save(digest.digest(), found)
    return zlib.decompress(found)


@cache
def code_generator() -> tuple[str, ...]:
    """What an object or assembly depends on beside text and target: LLVM's version, and the sources that call it."""
    return (*versions(), inspect.getsource(host), inspect.getsource(loaded))


@cache
def version_of(tool: str) -> str:
    """What a tool says of itself; wherever it is installed, the same version makes the same."""
    return subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout


def kept_object(text: str, target: Target) -> bytes:
    """The object of a module of LLVM IR, as ``emit_object`` makes it."""
    return kept(("object", text, target, *code_generator()), lambda: host.emit_object(text, target))


def kept_assembly(text: str, target: Target) -> str:
    """The assembly of a module of LLVM IR, as ``emit_assembly`` makes it."""
    return kept(("assembly", text, target, *code_generator()), lambda: host.emit_assembly(text, target).encode()).decode()
