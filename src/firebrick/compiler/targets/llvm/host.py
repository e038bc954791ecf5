"""Compile LLVM IR text to functions in memory: verify, optimise, generate an object, link it.

Equal texts for equal targets give equal objects. A function's code stays in memory as long as its ``Module`` or a callable of
it is alive (``loaded``). One caller uses LLVM's library at a time. It emits the objects of several texts on several threads:
what LLVM requires for this is that each has a context and a target machine of its own. The library is imported when the first
function is compiled, not with Firebrick.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Thread
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from firebrick.compiler import cache
from firebrick.compiler.targets.llvm import loaded
from firebrick.compiler.targets.llvm.emit import REPORT, report_function
from firebrick.compiler.targets.llvm.loaded import Module as Module
from firebrick.compiler.targets.llvm.loaded import llvm_in_use
from firebrick.compiler.targets.llvm.target import Target as Target
from firebrick.core.config import config
from firebrick.core.errors import KernelCompileError
from firebrick.core.sharing import usable_cores

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_DECLARED = re.compile(r"declare\s+[^@]*@(?!llvm\.)([\w.$-]+)\(")
_DEFINED = re.compile(r'define\s+(?P<how>[^@]*)@(?:"(?P<quoted>[^"]+)"|(?P<plain>[\w.$-]+))\(')
AS_WRITTEN = "; as written\n"
"""First line of a text that is compiled without passes over the IR, which would take half of the time and gain nothing."""
_HIDDEN = {"internal", "private", "linkonce", "linkonce_odr", "available_externally"}


@dataclass(frozen=True, slots=True)
class Options:
    """Options of LLVM's optimiser and code generator.

    Generators write vectors and unrolled code themselves, so LLVM's own vectorisers and unroller are off; metadata
    (``llvm.loop.unroll.enable``, ``llvm.loop.vectorize.enable``) still asks for them loop by loop.

    Attributes:
        speed: Optimisation level of LLVM's code generator, 0 to 3.
        passes: Level of LLVM's passes over the IR, 0 to 3. Level 2 takes 1.5 times as long as 1, for no faster code here.
        vectorize: Whether LLVM vectorises scalar code.
        unroll: Whether LLVM unrolls loops by its own cost model.
    """

    speed: int = 2
    passes: int = 1
    vectorize: bool = False
    unroll: bool = False


_linked: WeakValueDictionary[tuple[Any, ...], Module] = WeakValueDictionary()
_allowed = False


def compile_ir(
    text: str,
    target: Target | None = None,
    *,
    exports: Sequence[str] | None = None,
    imports: Mapping[str, int] | None = None,
    keep: Sequence[Module] = (),
    options: Options | None = None,
) -> Module:
    """Compile a module of LLVM IR for this machine, or load its object from the cache, and link it.

    Args:
        text: The module. Data layout and triple are added.
        target: This machine, with vectors of any width that it has; ``Target.host()`` by default.
        exports: Functions whose addresses the module holds; by default all that are defined and visible.
        imports: Addresses of functions that the text declares and does not define. Others are looked up in the process:
            ``fmodf``, ``memcpy``, …
        keep: Modules to keep in memory as long as this one: those that define the imports.
        options: Options of the optimiser.

    Raises:
        KernelCompileError: The text is not valid, a function is missing, or the system forbids code in memory.
    """
    return compile_many([text], target, exports=exports, imports=imports, keep=keep, options=options)


def compile_many(
    texts: Sequence[str],
    target: Target | None = None,
    *,
    exports: Sequence[str] | None = None,
    imports: Mapping[str, int] | None = None,
    keep: Sequence[Module] = (),
    options: Options | None = None,
) -> Module:
    """Like ``compile_ir``, for several texts, each of which has an object in the cache, linked into one module.

    Linking takes about a millisecond, whatever the objects' size, so a plan links all its kernels at once. Texts may call each
    other's functions, and must not define the same function; equal texts are compiled once.

    Args:
        texts: The modules of LLVM IR.
        target: As for ``compile_ir``.
        exports: As for ``compile_ir``.
        imports: As for ``compile_ir``.
        keep: As for ``compile_ir``.
        options: As for ``compile_ir``.

    Raises:
        KernelCompileError: As for ``compile_ir``.
    """
    target = target or Target.host()
    options = options or Options()
    texts = _completed(texts, target)
    keys, found_names = identities(texts, target, options)
    names = tuple(exports) if exports is not None else found_names
    given = tuple(sorted((imports or {}).items()))
    identity = (keys, names, given)
    with llvm_in_use():
        found = _linked.get(identity)
        if found is None:
            images = _objects(keys, texts, target, options)
            try:
                found = _linked[identity] = link(images, names, dict(given), keep)
            except KernelCompileError as e:
                missing = _missing(texts, dict(given))
                if not missing:
                    raise
                raise KernelCompileError(
                    "a kernel calls functions of its own text, of its imports or of the process",
                    f"declared and not found: {', '.join(missing)}",
                    "give their addresses as imports",
                ) from e
        return found


def identities(
    texts: Sequence[str], target: Target | None = None, options: Options | None = None
) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    """The cache keys of the objects of a module's texts, and the visible functions that they define."""
    target, options = target or Target.host(), options or Options()
    texts = _completed(texts, target)
    return tuple(cache.key(text, target, options) for text in texts), tuple(n for text in texts for n in defined(text))


def _completed(texts: Sequence[str], target: Target) -> list[str]:
    """Texts without repetitions, and the function that reports faults, if one of them calls it."""
    found = dict.fromkeys(texts)
    if any(f"@{REPORT}(" in text for text in found):
        found[report_function(target)] = None
    return list(found)


def find_many(keys: Sequence[bytes], names: Sequence[str]) -> Module | None:
    """The module of texts that were compiled before: from memory, or linked from their objects in the cache.

    Args:
        keys: Keys of the objects, from ``identities``.
        names: Names of the functions, from ``identities``.

    Returns:
        The module; None if an object is no longer in the cache, or lacks a function.
    """
    identity = (tuple(keys), tuple(names), ())
    with llvm_in_use():
        found = _linked.get(identity)
        if found is None:
            images = [cache.store.load(key) for key in identity[0]]
            existing = [image for image in images if image is not None]
            if len(existing) < len(images):
                return None
            try:
                found = _linked[identity] = link(existing, identity[1])
            except KernelCompileError:
                return None
        return found


def _objects(keys: Sequence[bytes], texts: Sequence[str], target: Target, options: Options) -> list[bytes]:
    """The objects of texts, from the cache or else compiled."""
    found: dict[bytes, bytes] = {}
    missing: dict[bytes, str] = {}
    for key, text in zip(keys, texts, strict=True):
        image = cache.store.load(key)
        if image is None and text == report_function(target):
            image = _report_object(target, options)
            _save(key, image, text, target)
        if image is None:
            missing[key] = text
        else:
            found[key] = image
    for (key, text), image in zip(missing.items(), emit_objects(list(missing.values()), target, options), strict=True):
        found[key] = image
        _save(key, image, text, target)
    return [found[key] for key in keys]


def _save(key: bytes, image: bytes, text: str, target: Target) -> None:
    cache.store.save(key, image, {"functions": defined(text), "target": str(target), "llvm": llvm_version()})


@lru_cache(maxsize=8)
def _report_object(target: Target, options: Options) -> bytes:
    """The object of ``report_function``, which every program with checks links. Without a cache, too, it is compiled once."""
    return emit_object(report_function(target), target, options)


def link(
    images: Sequence[bytes], exports: Sequence[str], imports: Mapping[str, int] | None = None, keep: Sequence[Module] = ()
) -> Module:
    """Link objects into one module in memory.

    Args:
        images: Object files for this machine.
        exports: Functions whose addresses the module holds.
        imports: Addresses of functions that none of the objects defines.
        keep: Modules to keep in memory as long as this one.

    Raises:
        KernelCompileError: A function is missing, or the system forbids code in memory.
    """
    try:
        return loaded.link(images, exports, imports or {}, keep, _linker)
    except KernelCompileError:
        raise
    except RuntimeError as e:
        raise KernelCompileError(
            "objects define the exported functions, and the functions that they call exist",
            _first_line(e),
            "give the missing ones as imports",
        ) from e


def emit_object(text: str, target: Target, options: Options | None = None) -> bytes:
    """The object file of a module of LLVM IR, for any target."""
    return emit_objects([text], target, options)[0]


def emit_objects(texts: Sequence[str], target: Target, options: Options | None = None) -> list[bytes]:
    """The object files of modules of LLVM IR, emitted on as many threads as compiled code may use, the caller's among them."""
    options = options or Options()
    found: list[bytes] = [b""] * len(texts)
    waiting = deque(sorted(range(len(texts)), key=lambda k: -len(texts[k])))
    failed: list[BaseException] = []

    def work(machine: llvm.TargetMachine) -> None:
        try:
            while (k := _next(waiting)) is not None:
                with _Optimised(texts[k], target, options, machine) as optimised:
                    found[k] = _emitted(machine, optimised.module)
        except BaseException as e:  # noqa: BLE001 - which the calling thread raises, also an interrupt of its own
            waiting.clear()
            failed.append(e)

    with llvm_in_use():
        count = min(len(texts), config.num_threads or usable_cores())
        started: list[Thread] = []
        try:
            for _ in range(count - 1):
                thread = Thread(target=work, args=(_new_machine(target, options),), daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the interpreter ends, or the system has no more threads: the others do it
                    break
                started.append(thread)
            work(_machine(target, options))
        finally:
            waiting.clear()
            _join(started)
    if failed:
        try:
            raise failed[0]
        finally:
            failed.clear()  # its traceback has this frame
    return found


def _next(waiting: deque[int]) -> int | None:
    """The next number, taken away; None if nothing is waiting."""
    try:
        return waiting.popleft()
    except IndexError:  # another thread may have taken the last one
        return None


def _join(threads: Sequence[Thread]) -> None:
    """Wait for threads to end; an interrupt is raised when they have ended, since LLVM must not be in use at the end of a
    process."""
    interrupt: KeyboardInterrupt | None = None
    for thread in threads:
        while thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt as e:
                interrupt = e
    if interrupt is not None:
        raise interrupt


def _emitted(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    """The object file of a module. Other threads may emit theirs, which llvmlite's lock would not allow."""
    import llvmlite.binding as llvm

    lib = llvm.ffi.lib
    with llvm.ffi.OutputString() as error:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        return ctypes.string_at(lib.LLVMPY_GetBufferStart(buffer), lib.LLVMPY_GetBufferSize(buffer))
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(buffer)


@lru_cache(maxsize=1)
def _unlocked(name: str) -> Any:
    """A function of llvmlite's library, without the lock that llvmlite adds to each."""
    import llvmlite.binding as llvm

    locked = getattr(llvm.ffi.lib, name)
    function = getattr(ctypes.CDLL(llvm.ffi.lib._name), name)
    function.argtypes, function.restype = locked.argtypes, locked.restype
    return function


def emit_assembly(text: str, target: Target, options: Options | None = None) -> str:
    """The assembly of a module of LLVM IR, for any target, for inspection."""
    with llvm_in_use(), _Optimised(text, target, options or Options()) as optimised:
        return str(optimised.machine.emit_assembly(optimised.module))


def emit_ir(text: str, target: Target, options: Options | None = None) -> str:
    """A module of LLVM IR after optimisation, for inspection."""
    with llvm_in_use(), _Optimised(text, target, options or Options()) as optimised:
        return str(optimised.module)


def defined(text: str) -> tuple[str, ...]:
    """The visible functions that a module of LLVM IR defines."""
    found = filter(None, map(_DEFINED.match, _lines(text, "define")))
    return tuple(m["quoted"] or m["plain"] for m in found if not _HIDDEN & set(m["how"].split()))


def _lines(text: str, word: str) -> Iterator[str]:
    """The lines that begin with a word. A regular expression would try each of the many others."""
    for rest in f"\n{text}".split(f"\n{word}")[1:]:
        yield word + rest.partition("\n")[0]


def llvm_version() -> str:
    """The version of LLVM, and of llvmlite: ``22.1.0 (llvmlite 0.50.0)``."""
    binding, library = cache.versions()
    return f"{library} (llvmlite {binding})"


def _missing(texts: Sequence[str], given: Mapping[str, int]) -> list[str]:
    """Functions that are declared, and neither defined in a text, nor imported, nor in the process."""
    known = {*given, *(n for text in texts for n in defined(text))}
    declared = [m[1] for text in texts for m in filter(None, map(_DECLARED.match, _lines(text, "declare")))]
    missing = [n for n in dict.fromkeys(declared) if n not in known]
    if os.name == "posix":
        process = ctypes.CDLL(None)
        missing = [n for n in missing if not hasattr(process, n)]
    return missing


class _Optimised:
    """A module of LLVM IR, parsed in a context of its own, verified and optimised; freed at the end of the ``with`` block."""

    module: llvm.ModuleRef
    machine: llvm.TargetMachine

    def __init__(self, text: str, target: Target, options: Options, machine: llvm.TargetMachine | None = None) -> None:
        import llvmlite.binding as llvm

        self.machine = _machine(target, options) if machine is None else machine
        self._context = llvm.create_context()
        self._module: llvm.ModuleRef | None = None
        try:
            self.module = self._module = llvm.parse_assembly(text, self._context)
            self.module.triple = target.triple
            self.module.data_layout = str(self.machine.target_data)
            self.module.verify()
            if not text.startswith(AS_WRITTEN):
                _optimise(self.module, self.machine, options)
        except BaseException as e:
            self.close()
            if not isinstance(e, RuntimeError):
                raise
            raise KernelCompileError(
                f"a generated kernel is valid LLVM IR for {target}", _shown(e, text), "report it with the text: it is a bug"
            ) from e

    def close(self) -> None:
        """Free the module, and then its context: the garbage collector might free them in the other order."""
        if self._module is not None:
            self._module.close()
        self._context.close()

    def __enter__(self) -> _Optimised:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine, options: Options) -> None:
    """Run LLVM's passes over a module."""
    import llvmlite.binding as llvm

    tuning = llvm.create_pipeline_tuning_options(speed_level=options.passes)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_interleaving = options.vectorize
    tuning.loop_unrolling = options.unroll
    builder = llvm.create_pass_builder(machine, tuning)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    _dispose(passes)


def _dispose(passes: llvm.ModulePassManager) -> None:
    """Free the 30 KiB of a pass manager, which its ``close`` does not free in llvmlite up to 0.50.

    About 1.5 KiB of its builder (the callbacks) remain, which no function of llvmlite frees.
    """
    import llvmlite.binding as llvm

    if type(passes)._dispose is llvm.ffi.ObjectRef._dispose:
        llvm.ffi.lib.LLVMPY_DisposeNewModulePassManger(passes)
        passes.detach()
    passes.close()


@lru_cache(maxsize=1)
def _without_hash_recognition() -> None:
    """Switch off LLVM 22's recognition of CRC loops. It visits a shared node of a recurrence once for each use, which is
    exponential in a chain of such nodes. Other versions may lack the option, and LLVM ends the process on an unknown one."""
    import llvmlite.binding as llvm

    if llvm.llvm_version_info[0] == 22:
        llvm.set_option("firebrick", "-disable-loop-idiom-hashrecognize")


@lru_cache(maxsize=16)
def _machine(target: Target, options: Options) -> llvm.TargetMachine:
    return _new_machine(target, options)


def _new_machine(target: Target, options: Options) -> llvm.TargetMachine:
    import llvmlite.binding as llvm

    _without_hash_recognition()
    if target.triple == llvm.get_process_triple():
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    # "small": constants are near the code. "pic": external functions are called through a table, so they may be far away.
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=options.speed, reloc="pic", codemodel="small", jit=True
    )


def _linker() -> Any:
    """A new linker of LLVM's, if this system allows generated code."""
    global _allowed
    import llvmlite.binding as llvm

    if not _allowed:
        reason = _forbidden()
        if reason:
            raise KernelCompileError(
                "the compiled engine needs a system that allows a program to execute code that it generates",
                reason,
                "allow executable memory for this program (SELinux: execmem; systemd: MemoryDenyWriteExecute=no; macOS: the "
                "allow-jit entitlement), or use an engine without it: FIREBRICK_DEVICE=numpy",
            )
        _allowed = True
    return llvm.create_lljit_compiler(_machine(Target.host(), Options()), use_jit_link=True, suppress_errors=True)


def _forbidden() -> str:
    """The reason why the system does not allow written memory to be executed; empty if it does.

    The test uses ``mprotect`` directly, since LLVM would end the process on failure.
    """
    import llvmlite.binding as llvm

    if sys.platform == "win32":
        try:
            llvm.check_jit_execution()
        except OSError as e:
            return str(e.strerror)
        return ""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        first = ctypes.c_char.from_buffer(page)
        address = ctypes.c_void_p(ctypes.addressof(first))
        del first  # a buffer exported to ctypes would keep the page from being closed
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_EXEC):
            return f"the system refuses to make memory executable: {os.strerror(ctypes.get_errno())}"
    return ""


def _first_line(e: BaseException) -> str:
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return "; ".join(lines[:4]) or type(e).__name__


def _shown(e: BaseException, text: str) -> str:
    """The message of an error of LLVM's, and the line of the text that it reports."""
    message = _first_line(e)
    at = re.search(r"<string>:(\d+):", message)
    lines = text.splitlines()
    if at and 0 < int(at[1]) <= len(lines):
        return f"{message} (line {at[1]}: {lines[int(at[1]) - 1].strip()})"
    return message
