"""The process in which the autotuner tries kernels of the cpu engine: a kernel that is wrong, crashes or hangs ends here.

Every buffer of a trial lies between two pages that no one may read or write: against the page behind it, against the page
before it, and at an address that is a multiple of its elements' size alone, with a pattern in the rest of its own pages.
Operands are copies that must not change. The parent process is that of ``trial``.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from firebrick.backends.cpu.runtime.segment import Segment
from firebrick.compiler.targets.llvm.host import compile_many
from firebrick.compiler.targets.llvm.library_product import library
from firebrick.compiler.targets.llvm.lowered import Lowered
from firebrick.compiler.tune.child_process import answer_requests
from firebrick.compiler.tune.trial_values import DRAWS, differences, drawn
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import FirebrickError

Array = np.ndarray[Any, Any]
PAGE = mmap.PAGESIZE
CANARY = 0xA5
SAMPLE_US = 200.0
"""Minimum time of a sample; a short kernel runs several times."""


END, START, ODD = "end", "start", "odd"
PLACES = (END, START, ODD)
"""Where a buffer lies: it ends at the page behind it, it starts after the page before it, or its address is an odd multiple of
its elements' size."""


class Guarded:
    """Memory between two pages that cannot be accessed.

    Args:
        nbytes: Bytes of the buffer.
        place: Of ``PLACES``.
        align: Its address is a multiple of this, also if that leaves a gap before the page behind it. An odd address is a
            multiple of this alone.
    """

    def __init__(self, nbytes: int, place: str, align: int) -> None:
        odd = align if place == ODD else 0
        inner = -(-max(nbytes + odd, 1) // PAGE) * PAGE
        self._map = mmap.mmap(-1, inner + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._bytes = np.frombuffer(self._map, np.uint8)
        self._first = (base + PAGE + inner - nbytes) // align * align - base if place == END else PAGE + odd
        self._last = self._first + nbytes
        self.address = base + self._first
        self._inner = slice(PAGE, PAGE + inner)
        self._bytes[self._inner] = CANARY
        _protect(base, PAGE)
        _protect(base + PAGE + inner, PAGE)

    def array(self, shape: Sequence[int], dtype: Any) -> Array:
        """The buffer as an array."""
        found: Array = self._bytes[self._first : self._last].view(dtype).reshape(shape)
        return found

    def intact(self) -> bool:
        """Whether nothing was written beside the buffer."""
        own = self._bytes[self._inner]
        start, stop = self._first - PAGE, self._last - PAGE
        return bool((own[:start] == CANARY).all() and (own[stop:] == CANARY).all())


def _protect(address: int, nbytes: int) -> None:
    if os.name != "posix":  # elsewhere the pattern alone tells of writes outside
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), 0):
        raise OSError(ctypes.get_errno(), "a guard page could not be protected")


class Trial:
    """One problem: its operands and what its kernels must compute.

    Args:
        inputs: Shape and dtype of each operand.
        outputs: Of each result.
        reference: Kernels of the naive form; None if they would take too long.
        default: Kernels of the default variant.
    """

    def __init__(
        self, inputs: Sequence[tuple[tuple[int, ...], str]], outputs: Sequence[tuple[tuple[int, ...], str]],
        reference: Lowered | None, default: Lowered,
    ) -> None:  # fmt: skip
        self.inputs = [(shape, as_dtype(name).np) for shape, name in inputs]
        self.outputs = [(shape, as_dtype(name).np) for shape, name in outputs]
        rng = np.random.default_rng(0)
        self.data = {how: [drawn(rng, how, shape, dtype) for shape, dtype in self.inputs] for how in DRAWS}
        self.segments: dict[str, Segment] = {}
        self.wanted: dict[str, list[Array] | str] = {}
        self.reference, self.default = reference, default

    def prepare(self) -> str:
        """Compute what is expected; says what is wrong with the default."""
        for how, data in self.data.items():
            found = self._run("default", self.default, data)
            if isinstance(found, _Strayed):
                return found.text
            self.wanted[how] = found
        if self.reference is not None:
            found = self._run("reference", self.reference, self.data["exact"])
            if isinstance(found, _Strayed):
                return f"the reference: {found.text}"
            wrong = differences(self.wanted["exact"], found, same=False, exact=False)
            if wrong:
                return f"it differs from its reference: {wrong}"
            self.wanted["reference"] = found
        return ""

    def check(self, name: str, lowered: Lowered, same: bool, exact: bool) -> str:
        """What is wrong with a variant; empty if its results are those that are expected.

        Args:
            name: Its name.
            lowered: Its kernels.
            same: Whether its results must equal the default's in every bit.
            exact: Whether results of small integers must.
        """
        for how, data in self.data.items():
            for place in PLACES:
                found = self._run(name, lowered, data, place)
                if isinstance(found, _Strayed):
                    return found.text
                wrong = differences(self.wanted[how], found, same, exact and how == "exact")
                if wrong:
                    return f"{wrong} ({how} operands)"
        for result, over in enumerate(lowered.over):
            for operand in sorted(over):
                found = self._run(name, lowered, self.data["normal"], END, (result, operand))
                if isinstance(found, _Strayed):
                    return found.text
                wrong = differences(self.wanted["normal"], found, same, False)
                if wrong:
                    return f"{wrong} (with the result in the memory of operand {operand})"
        return ""

    def _segment(self, name: str, lowered: Lowered) -> Segment:
        if name not in self.segments:
            count = len(self.inputs) + len(self.outputs) + len(lowered.temporary)
            module = compile_many(list(lowered.texts))
            self.segments[name] = Segment(lowered.launches(range(count)), [module], name)
        return self.segments[name]

    def _run(
        self, name: str, lowered: Lowered, data: list[Array], place: str = END, shared: tuple[int, int] | None = None
    ) -> list[Array] | str | _Strayed:
        segment = self._segment(name, lowered)
        operands = [Guarded(x.nbytes, place, x.itemsize) for x in data]
        for buffer, x in zip(operands, data, strict=True):
            buffer.array(x.shape, x.dtype)[...] = x
        results = [
            operands[shared[1]] if shared is not None and shared[0] == k
            else Guarded(int(np.prod(shape)) * dtype.itemsize, place, dtype.itemsize)
            for k, (shape, dtype) in enumerate(self.outputs)
        ]  # fmt: skip
        spaces = [Guarded(-(-n // 64) * 64, START if place == ODD else place, 64) for n in lowered.temporary]
        table = np.array([b.address for b in (*operands, *results, *spaces)] or [0], np.uint64)
        try:
            segment(int(table.ctypes.data))
        except FirebrickError as e:  # an index out of range is a result of the kernel like others
            return str(e)
        for number, (buffer, x) in enumerate(zip(operands, data, strict=True)):
            written = shared is not None and shared[1] == number
            if not written and buffer.array(x.shape, x.dtype).tobytes() != x.tobytes():
                return _Strayed(f"it changed operand {number}")
        if not all(b.intact() for b in (*operands, *results, *spaces)):
            return _Strayed("it wrote outside of its results")
        return [b.array(shape, dtype).copy() for b, (shape, dtype) in zip(results, self.outputs, strict=True)]

    def times(self, variants: Sequence[tuple[str, Lowered]], rounds: int) -> dict[str, list[float]]:
        """Microseconds of each round by name; in a round every variant is timed once."""
        data = self.data["normal"]
        outs = [np.empty(shape, dtype) for shape, dtype in self.outputs]
        calls = []
        for name, lowered in variants:
            segment = self._segment(name, lowered)
            spaces = [np.zeros(n + 64, np.uint8) for n in lowered.temporary]
            addresses = [x.ctypes.data for x in (*data, *outs)] + [-(-s.ctypes.data // 64) * 64 for s in spaces]
            table = np.array(addresses or [0], np.uint64)
            repeat = 1
            while (took := _time(segment, table, repeat)) * repeat < SAMPLE_US and repeat < 1 << 12:
                repeat = max(repeat + 1, min(1 << 12, int(1.2 * SAMPLE_US / max(took, 0.05))))
            calls.append((name, segment, table, repeat, spaces))
        found: dict[str, list[float]] = {name: [] for name, *_ in calls}
        for _ in range(rounds):
            for name, segment, table, repeat, _ in calls:
                found[name].append(_time(segment, table, repeat))
        return found


class _Strayed:
    """A run that wrote where it must not."""

    def __init__(self, text: str) -> None:
        self.text = text


def _time(segment: Segment, table: Array, repeat: int) -> float:
    """Microseconds of a call."""
    address = int(table.ctypes.data)
    start = perf_counter()
    try:
        for _ in range(repeat):
            segment(address)
    except FirebrickError:
        pass
    return (perf_counter() - start) * 1e6 / repeat


def peaks(threads: int) -> dict[str, float]:
    """Measured rates of this machine: flops of float32 products, and bytes of memory, in a microsecond.

    Args:
        threads: How many may work.
    """
    from threadpoolctl import threadpool_limits

    # the best of many short runs on one thread: other work on the machine cannot make a peak too low
    a, x = np.ones((256, 256), np.float32), np.ones(1 << 22, np.float32)
    y = np.empty_like(x)
    with threadpool_limits(1):
        flops = max(2 * 256**3 / _took(lambda: a @ a) for _ in range(40))
    moved = max(2 * x.nbytes / _took(lambda: np.copyto(y, x)) for _ in range(10))
    return {"flops": flops * threads, "bytes": moved * threads}


def _took(function: Callable[[], object]) -> float:
    start = perf_counter()
    function()
    return (perf_counter() - start) * 1e6


def limit_memory(more: int) -> None:
    """Let this process take so many bytes more than it has, where the system can limit it."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * PAGE
        resource.setrlimit(resource.RLIMIT_AS, (now + more, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        return


def main() -> None:
    """Answer the parent's requests until it closes the pipe."""
    library()  # whose functions a kernel may call
    trial: Trial | None = None

    def answer(request: dict[str, Any]) -> Any:
        nonlocal trial
        match request["step"]:
            case "prepare":
                limit_memory(int(request["memory"]))
                trial = Trial(request["inputs"], request["outputs"], request["reference"], request["default"])
                return trial.prepare()
            case "peaks":
                return peaks(int(request["threads"]))
        assert trial is not None
        if request["step"] == "check":
            return trial.check(request["name"], request["kernels"], request["same"], request["exact"])
        return trial.times(request["variants"], request["rounds"])

    answer_requests(answer)
