"""``StateDict``: the values of a module by path, and loading them: all of them or none.

A shared parameter is stored once; ``aliases`` maps its other paths to the one it is stored under, so a state that went
through a file gives a tied model its ties' value once and an untied one its value everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from firebrick.core.commit import Commit
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, FirebrickError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.core.untrusted import shown
from firebrick.functions.conversion import from_dlpack
from firebrick.random import Generator


class StateError(FirebrickError, ValueError):
    """A state does not fit the module or optimizer that was to load it."""


class Loaded(NamedTuple):
    """The differences that a load with ``strict=False`` left out.

    Attributes:
        missing: Paths of the module that the state did not have.
        unexpected: Paths of the state that the module does not have.

    Example:
        >>> import firebrick as fb
        >>> layer = fb.nn.Linear(2, 1)
        >>> layer.load_state_dict({"weight": fb.ones((1, 2)), "scale": fb.ones(1)}, strict=False)
        Loaded(missing=['bias'], unexpected=['scale'])
    """

    missing: list[str]
    unexpected: list[str]


class StateDict(dict[str, Tensor]):
    """Values by path, as a dict; ``aliases`` maps further paths of shared tensors to the ones they are stored under.

    Args:
        values: Tensor by path.
        aliases: Path by path.

    Example:
        >>> import firebrick as fb
        >>> list(fb.nn.Linear(2, 1).state_dict())
        ['weight', 'bias']
    """

    def __init__(self, values: Mapping[str, Tensor], aliases: Mapping[str, str] | None = None) -> None:
        super().__init__(values)
        self.aliases = dict(aliases or {})

    def numpy(self) -> dict[str, np.ndarray[Any, Any]]:
        """The same values as contiguous NumPy arrays, which ``safetensors.numpy.save_file`` and ``np.savez`` take.

        Example:
            >>> import firebrick as fb
            >>> {name: a.shape for name, a in fb.nn.Linear(2, 1).state_dict().numpy().items()}
            {'weight': (1, 2), 'bias': (1,)}
        """
        return {name: np.ascontiguousarray(t.numpy()).reshape(t.shape) for name, t in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return StateDict, (dict(self), self.aliases)


def load(owner: str, own: list[tuple[str, Any]], ties: dict[str, str], state: Any, strict: bool) -> Loaded:
    """Rebind the tensors ``own`` to the values of ``state``, after checking every one of them."""
    if not isinstance(state, Mapping):
        raise StateError(f"{owner}: a state is a mapping from paths to values", type(state).__name__, "pass a state_dict()")
    aliases: dict[str, str] = getattr(state, "aliases", {})
    pairs: list[tuple[Any, Any]] = []
    missing, wrong = [], []
    for name, t in own:
        value = state.get(name, state.get(aliases.get(name, "")))
        if value is None:  # stored under another of its paths
            value = next((state[other] for other, home in ties.items() if home == name and other in state), None)
        if value is None:
            missing.append(name)
            continue
        if not isinstance(getattr(value, "dtype", None), np.dtype | DType):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            try:
                value = _of_another_library(value)
            except (FirebrickError, BufferError, RuntimeError, TypeError, ValueError) as e:
                wrong.append(f"{name}: {kind} cannot be read ({shown(e, 120)})")
                continue
            if value is None:
                wrong.append(f"{name}: {kind} is neither a Firebrick tensor nor a NumPy array, and has no DLPack")
                continue
        if isinstance(value, np.ma.MaskedArray):
            wrong.append(f"{name}: a NumPy masked array, to be filled first: x.filled(value)")
            continue
        if isinstance(value, np.ndarray) and not value.dtype.isnative:
            value = value.astype(value.dtype.newbyteorder("="))
        shape, dt = tuple(value.shape), as_dtype(value.dtype)
        if shape != t.shape or dt is not t.dtype:
            wrong.append(f"{name}: {dt.name}{list(shape)} for {t.dtype.name}{list(t.shape)}")
        else:
            pairs.append((t, value))
    known = {n for n, _ in own}
    unexpected = [n for n in state if n not in known and n not in ties]
    wrong += [
        f"{other}: differs from {home}, which it is tied to here"
        for other, home in ties.items()
        if other in state and home in state and not _same(state[other], state[home])
    ]
    if wrong or (strict and (missing or unexpected)):
        parts = (("missing", missing), ("unexpected", unexpected), ("different", wrong))
        raise StateError(
            f"{owner}: a state has the paths, shapes and dtypes of the module that loads it",
            "; ".join(f"{what}: {_first(names)}" for what, names in parts if names),
            "build the model with the same settings; strict=False ignores missing and unexpected paths. Nothing was loaded",
        )
    values = [v.detach().to(t.device) if isinstance(v, Tensor) else hooks.from_host(np.asarray(v), t.device) for t, v in pairs]
    commit = Commit()
    for (t, _), v in zip(pairs, values, strict=True):
        commit.rebind(t, v)
    commit.apply()
    return Loaded(missing, unexpected)


def _first(names: list[str], most: int = 10) -> str:
    """The first of some names; with how many they are if that is not all."""
    text = ", ".join(shown(n, 300) for n in names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most} more ({len(names)} in all)"


def _of_another_library(value: Any) -> Tensor | None:
    """A copy of an array of another library, such as a tensor of PyTorch; None for what has no DLPack."""
    if not hasattr(value, "__dlpack__"):
        return None
    detach = getattr(value, "detach", None)  # PyTorch exports no tensor that requires a gradient
    return from_dlpack(detach() if callable(detach) else value, copy=True)


def _same(a: Any, b: Any) -> bool:
    x, y = (_host(v) for v in (a, b))
    return x is y or (x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes())


def _host(value: Any) -> np.ndarray[Any, Any]:
    if not isinstance(getattr(value, "dtype", None), np.dtype | DType):
        value = _of_another_library(value)
    return value.numpy() if isinstance(value, Tensor) else np.asarray(value)


def load_generators(owner: str, own: Mapping[str, Generator], states: Any) -> None:
    """Bring the generators ``own`` to where ``states`` were taken, after checking every one of them."""
    if not isinstance(states, Mapping):
        raise StateError(
            f"{owner}: states of generators by path",
            f"{states!r:.80}",
            "pass what generator_states() returned. Nothing was loaded",
        )
    wrong = [f"{n}: not there" for n in own if n not in states]
    wrong += [f"{n}: there is no such generator" for n in states if n not in own]
    marks = {}
    for name in own:
        checked = Generator(0)
        try:
            if name in states:
                checked.set_state(states[name])
        except ConfigError as e:
            wrong.append(f"{name}: {e.received}")
        marks[name] = checked.mark()
    if wrong:
        raise StateError(
            f"{owner}: a state has the random generators of the module that loads it",
            "; ".join(wrong[:8]) + (f"; and {len(wrong) - 8} more" if len(wrong) > 8 else ""),
            "build the model with the same settings. Nothing was loaded",
        )
    for name, generator in own.items():
        generator.return_to(marks[name])
