"""Process-wide settings: from ``FIREBRICK_*`` variables, then from assignment; an unknown name or value is an error."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.core.lines import warn


def _count(text: Any) -> int:
    n = int(text)
    if n < 1:
        raise ValueError
    return n


def _threads(text: Any) -> int:
    n = int(text)
    if not 0 <= n <= 1024:
        raise ValueError
    return n


def _calls(text: Any) -> int:
    n = int(text)
    if n < 0:
        raise ValueError
    return n


def _seconds(text: Any) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e9:
        raise ValueError
    return seconds


def _bytes(text: Any) -> int:
    """A number of bytes: ``1000000``, ``"64M"``, ``"2 GiB"``."""
    found = re.fullmatch(r"\s*(\d+)\s*([kmg]?)(i?b)?\s*", str(text), re.IGNORECASE)
    if found is None:
        raise ValueError
    return int(found[1]) << 10 * " kmg".index(found[2].lower() or " ")


def _names(text: Any) -> tuple[str, ...]:
    parts = text.split(",") if isinstance(text, str) else text
    return tuple(p.strip() for p in parts if p.strip())


def _switch(value: Any) -> bool:
    """On or off, as a bool or as the text of a variable."""
    return {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}[str(value).strip().lower()]


_ACCEPTS: dict[Callable[[Any], Any], str] = {
    _count: "an int ≥ 1", _calls: "an int ≥ 0", _threads: "an int in [0, 1024]", _seconds: "a number of seconds in (0, 1e9)",
    _bytes: "a number of bytes, such as 1000000, 64M or 2 GiB", _names: "names, comma separated",
    _switch: "1, true, on, 0, false or off", str: "a text", int: "an int",
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        default: Its value where nothing sets it.
        parse: Reads a value.
        meaning: What it means.
        choices: The values it takes; any if empty.
        compiled: Whether engines read it while they compile. What they keep is found by ``Config.compiled_with``.
    """

    default: Any
    parse: Callable[[Any], Any]
    meaning: str
    choices: tuple[Any, ...] = ()
    compiled: bool = False

    @property
    def accepts(self) -> str:
        """What values it takes, in words."""
        if self.choices:
            return f"one of {', '.join(repr(c) if c == '' else str(c) for c in self.choices)}"
        return _ACCEPTS[self.parse]


SETTINGS = {
    "cache_dir": Setting("", str, "where compiled code is kept on disk (empty: the system's folder for caches; off: nowhere)"),
    "cache_plans": Setting(
        True, _switch, "whether plans of programs are kept beside compiled code, so that no other process makes them again"
    ),
    "cache_size": Setting(512 * 2**20, _bytes, "most bytes of compiled code kept on disk (a number, or one with K, M or G)"),
    "cpu_compile": Setting(True, _switch, "whether the cpu engine compiles graphs to machine code", compiled=True),
    "cpu_vector_bits": Setting(
        0, int, "bits of the vectors of compiled CPU code (0: the widest of the machine)", (0, 128, 256, 512), True
    ),
    "deterministic": Setting(
        True, _switch, "whether only kernels are used whose results equal the default kernels' in every bit", compiled=True
    ),
    "device": Setting("cpu", str, "default device of new tensors (a device string, or auto)"),
    "distributed_backend": Setting(
        "", str, "the library through which ranks of a process group communicate (empty: gloo)", ("", "gloo", "nccl", "mpi")
    ),
    "distributed_timeout": Setting(300.0, _seconds, "seconds a collective operation waits for its ranks"),
    "fallback": Setting("warn", str, "what to do when an op must run on the host", ("warn", "error", "silent"), True),
    "jit": Setting(True, _switch, "whether functions under jit are traced and compiled"),
    "kept_results": Setting(
        256 * 2**20, _bytes, "most bytes of dropped results whose memory the cpu engine keeps for new ones (0: none)"
    ),
    "kernel_loop_limit": Setting(
        1 << 32, _count, "rounds that a loop of a kernel has at most; more are an error", compiled=True
    ),
    "logical_devices": Setting(4, _count, "logical devices each host engine offers"),
    "num_threads": Setting(0, _threads, "threads of compiled CPU code (0: one for each core this process may use)"),
    "require_engines": Setting((), _names, "engines that must be usable, comma separated"),
    "torch_compile": Setting(
        False, _switch, "whether the torch engine passes compiled programs to torch.compile", compiled=True
    ),
    "tune": Setting(
        "cached",
        str,
        "kernels: the defaults; the fastest that were measured; or those, measuring what is new",
        ("off", "cached", "on"),
        True,
    ),
    "verify_every": Setting(
        0, _calls, "compare every n-th call of a program with tuned kernels with the default kernels (0: never)", compiled=True
    ),
    "verify_graphs": Setting(False, _switch, "check every graph after each pass that changes it"),
}


class Config:
    """The settings, as attributes: ``fb.config.fallback = "error"``.

    Example:
        >>> import firebrick as fb
        >>> with fb.config.scope(fallback="error"):
        ...     fb.config.fallback
        'error'

    Attributes:
        compiled_with: The values of all settings that engines read while they compile: a part of the key of whatever is kept
            of compiled programs. The same object as long as no setting changes.
    """

    compiled_with: tuple[Any, ...]

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})
        object.__setattr__(self, "_sources", {})
        object.__setattr__(self, "_more", {})
        object.__setattr__(self, "_defaults", {name: setting.default for name, setting in SETTINGS.items()})
        object.__setattr__(self, "_compiled", tuple(name for name, setting in SETTINGS.items() if setting.compiled))
        self._show()
        self.load_environment()

    def load_environment(self) -> None:
        """Read ``FIREBRICK_*`` again; a variable that names no setting is reported."""
        for key, text in os.environ.items():
            if not key.startswith("FIREBRICK_") or key.startswith("FIREBRICK_TEST_"):
                continue  # FIREBRICK_TEST_* belong to the project's own tests
            name = key.removeprefix("FIREBRICK_").lower()
            if name not in SETTINGS:
                known = ", ".join(f"FIREBRICK_{n.upper()}" for n in SETTINGS)
                warn(f"{key} names no setting of Firebrick; there are {known}", UserWarning)
                continue
            self._set(name, text, f"environment ({key})")

    def _set(self, name: str, value: Any, source: str) -> None:
        if name not in SETTINGS:
            raise ConfigError(f"a setting is one of {', '.join(SETTINGS)}", name, "check the spelling")
        setting = SETTINGS[name]
        try:
            parsed = setting.parse(value)
            if setting.choices and parsed not in setting.choices:
                raise ValueError
        except (TypeError, ValueError, KeyError):
            where = f"FIREBRICK_{name.upper()}" if source.startswith("environment") else name
            raise ConfigError(
                f"{where} is {setting.accepts} ({setting.meaning})",
                f"{where}={value!r}",
                f"use such a value, or leave it out for the default, {setting.default!r}",
            ) from None
        self._values[name] = parsed
        self._sources[name] = source
        self._show()

    def source(self, name: str) -> str:
        """The source of a setting's value: ``"default"``, ``"program"`` or ``"environment (FIREBRICK_…)"``.

        Args:
            name: Of the setting.
        """
        return str(self._sources.get(name, "default"))

    def _show(self) -> None:
        """Set every setting as an instance attribute, which Python finds without calling ``__getattr__``."""
        shown = {**self._defaults, **self._values}
        self.__dict__.update(shown)
        self.__dict__["compiled_with"] = (*[shown[name] for name in self._compiled], *self._more.values())

    def compile_by(self, name: str, reads: bool = True) -> None:
        """Have engines read a setting while they compile, from now on, which they do not by default.

        Args:
            name: Of the setting.
            reads: Whether they read it.
        """
        if (name in self._compiled) is not reads:
            compiled = {*self._compiled, name} if reads else {*self._compiled} - {name}
            object.__setattr__(self, "_compiled", tuple(n for n in SETTINGS if n in compiled))
            self._show()

    def compile_with(self, name: str, value: Any) -> None:
        """Set something that is no setting, and that engines read while they compile, such as the choices of the autotuner.

        Args:
            name: Of what it is.
            value: Hashable; None for what there is by default.
        """
        if self._more.get(name) == value:
            return
        self._more.pop(name, None)
        if value is not None:
            self._more[name] = value
        self._show()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"firebrick.config has no setting {name!r}; there are {', '.join(SETTINGS)}")

    def __setattr__(self, name: str, value: Any) -> None:
        self._set(name, value, "program")

    @contextmanager
    def scope(self, **settings: Any) -> Iterator[None]:
        """Change settings for a ``with`` block (process-wide while it lasts).

        Args:
            **settings: Values by the names of settings.
        """
        values, sources = dict(self._values), dict(self._sources)
        try:
            for name, value in settings.items():
                self._set(name, value, "program")
            yield
        finally:
            self._values.clear()
            self._values.update(values)
            self._show()
            self._sources.clear()
            self._sources.update(sources)

    def show(self) -> str:
        """The effective settings, each with where it came from, as text (and printed)."""
        rows = [
            f"{name:<16} {getattr(self, name)!s:<12} {self._sources.get(name, 'default'):<34} {s.meaning}"
            for name, s in SETTINGS.items()
        ]
        text = "\n".join(rows)
        print(text)
        return text


config = Config()
