"""The generators that are there without asking: one a device for draws, one for initial parameters, all from one seed.

The process's seed is 0 until ``seed(n)`` sets it, so a program draws the same numbers every time it runs. Every device
starts from the same seed, so a program draws the same numbers wherever it runs. Initial parameters have a stream of their
own, which draws elsewhere do not move: ``fb.random.seed(0); Model()`` gives the same weights on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any

from firebrick.backends.registry import find_device
from firebrick.core.device import Device
from firebrick.core.errors import ConfigError, OperandError
from firebrick.core.hooks import hooks
from firebrick.core.locks import forkable
from firebrick.core.tensor import Tensor
from firebrick.graph.signature import AMBIENT
from firebrick.random.draws import rows as whole_rows
from firebrick.random.generator import Generator, State, refuse_in_trace, shape_first

_INITIAL = 0  # stream number of initial parameters

_lock = forkable(RLock())
_generators: dict[Device, Generator] = {}
_root = Generator(0)
_initial = _root.fork(_INITIAL)


def seed(n: int) -> None:
    """Restart every default generator of the process from ``n``.

    Args:
        n: Int in [0, 2^64).

    Raises:
        ConfigError: ``n`` is no such int.

    Example:
        >>> import firebrick as fb
        >>> fb.random.seed(3)
        >>> a = fb.random.normal((2,)).tolist()
        >>> fb.random.seed(3)
        >>> a == fb.random.normal((2,)).tolist()
        True
    """
    global _root, _initial
    refuse_in_trace("fb.random.seed")
    hooks.version += 1
    with _lock:
        _root = Generator(n)
        _initial = _root.fork(_INITIAL)
        _generators.clear()
        for device in Device._made.values():
            if device.backend is not None:
                device.backend.seeds.pop(device, None)


def default_generator(device: Any = None) -> Generator:
    """The default generator of a device, from which draws without a generator come.

    It starts from the seed that ``Backend.seed(device, n)`` set last, if it was set after ``seed(n)``, else from the
    process's seed.

    Args:
        device: Device or device string; the default device by default.

    Example:
        >>> import firebrick as fb
        >>> fb.random.seed(0)
        >>> x = fb.random.uniform((2,))
        >>> fb.random.seed(0)
        >>> fb.all(fb.random.default_generator().uniform((2,)) == x).item()
        True
    """
    goal = find_device(device)
    with _lock:
        own = goal.backend.seeds.pop(goal, None)  # taken once, so that seeding with the same number restarts again
        if own is not None:
            _generators[goal] = Generator(own)
        elif goal not in _generators:
            _generators[goal] = Generator(_seed_of(_root))
        return _generators[goal]


def source_of(name: str, generator: Any, device: Any = None) -> Generator:
    """The generator that a draw was given, or the default generator of the device.

    Args:
        name: The draw, for messages.
        generator: A generator or None.
        device: The draw's device.

    Raises:
        OperandError: It is no generator.
    """
    if generator is None:
        return default_generator(device)
    if not isinstance(generator, Generator):
        raise OperandError(f"{name}: generator is a Generator", type(generator).__name__, "pass fb.random.Generator(seed)")
    return generator


def _find(generator: Generator) -> Callable[[], Generator] | None:
    """How a compiled function finds a default generator again: by its device, as ``seed`` makes a new one. None for others."""
    for device, known in _generators.items():
        if known is generator:
            return lambda: default_generator(device)
    return None


def initial_generator() -> Generator:
    """The generator that initial parameters are drawn from when a layer is given none.

    Example:
        >>> import firebrick as fb
        >>> fb.random.seed(0)
        >>> first = fb.nn.Linear(2, 1).weight
        >>> fb.random.seed(0)
        >>> second = fb.nn.Linear(2, 1, generator=fb.random.initial_generator()).weight
        >>> fb.all(first == second).item()
        True
    """
    return _initial


def _seed_of(generator: Generator) -> int:
    return generator.mark()[0]


def state() -> State:
    """The positions of all default generators, as a plain tree for a checkpoint.

    Example:
        >>> import firebrick as fb
        >>> saved = fb.random.state()
        >>> x = fb.random.uniform((2,))
        >>> fb.random.set_state(saved)
        >>> fb.all(fb.random.uniform((2,)) == x).item()
        True
    """
    with _lock:
        return {
            "process": _root.state(),
            "initial": _initial.state(),
            "devices": {d.name: default_generator(d).state() for d in list(_generators)},
        }


def set_state(saved: State) -> None:
    """Set the positions that ``state()`` returned; generators of other devices start from the saved process's seed.

    Args:
        saved: What ``state()`` returned.

    Raises:
        ConfigError: It is no such state.
        DeviceError: It names a device that is not there.

    Example:
        >>> import firebrick as fb
        >>> saved = fb.random.state()
        >>> x = fb.random.normal((3,))
        >>> fb.random.set_state(saved)
        >>> fb.all(fb.random.normal((3,)) == x).item()
        True
    """
    given: Any = saved
    if not isinstance(given, Mapping) or not {"devices", "process", "initial"} <= set(given):
        raise ConfigError(
            "random.set_state: a state has devices, process and initial", f"{given!r:.120}", "pass what random.state() returned"
        )
    devices = {find_device(name): s for name, s in saved["devices"].items()}
    made = {}
    for device, s in devices.items():
        made[device] = Generator(0)
        made[device].set_state(s)
    process, first = Generator(0), Generator(0)
    process.set_state(saved["process"])
    first.set_state(saved["initial"])
    with _lock:
        seed(_seed_of(process))
        _initial.set_state(first.state())
        _generators.update(made)


@shape_first
def uniform(shape: Any, *, low: float = 0.0, high: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """Uniform numbers in [low, high) from the device's default generator; see ``Generator.uniform``.

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        low: Least value, finite.
        high: Upper bound, at least ``low``; reached only where rounding does it.
        dtype: Floating dtype; the device's default float by default.
        device: Device or device string; the default device by default.

    Raises:
        ConfigError: low or high is no finite number, or low > high.
        DTypeError: The dtype is not floating, or the device cannot store it.

    Example:
        >>> import firebrick as fb
        >>> x = fb.random.uniform((100,), low=-1.0, high=1.0)
        >>> bool(fb.all(fb.abs(x) <= 1.0))
        True
    """
    return default_generator(device).uniform(shape, low=low, high=high, dtype=dtype, device=device)


@shape_first
def normal(shape: Any, *, mean: float = 0.0, std: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """Normal numbers from the device's default generator; see ``Generator.normal``.

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        mean: Mean, finite.
        std: Standard deviation, finite and ≥ 0.
        dtype: Floating dtype; the device's default float by default.
        device: Device or device string; the default device by default.

    Raises:
        ConfigError: mean or std is no finite number, or std < 0.
        DTypeError: The dtype is not floating, or the device cannot store it.

    Example:
        >>> import firebrick as fb
        >>> fb.random.normal((2, 3), dtype=fb.float64).dtype
        firebrick.float64
    """
    return default_generator(device).normal(shape, mean=mean, std=std, dtype=dtype, device=device)


@shape_first
def bernoulli(shape: Any, *, p: float = 0.5, device: Any = None) -> Tensor:
    """True with probability p, from the device's default generator; see ``Generator.bernoulli``.

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        p: Probability in [0, 1].
        device: Device or device string; the default device by default.

    Returns:
        Bool tensor.

    Raises:
        ConfigError: p lies outside [0, 1].

    Example:
        >>> import firebrick as fb
        >>> fb.random.bernoulli((3,), p=1.0).tolist()
        [True, True, True]
    """
    return default_generator(device).bernoulli(shape, p=p, device=device)


@shape_first
def integers(shape: Any, *, low: int, high: int, dtype: Any = None, device: Any = None) -> Tensor:
    """Integers in [low, high) from the device's default generator; see ``Generator.integers``.

    Args:
        shape: Sizes of the axes, as one argument: an int or a tuple of ints.
        low: Least value.
        high: One more than the greatest value.
        dtype: Integer dtype; the device's default by default.
        device: Device or device string; the default device by default.

    Raises:
        ConfigError: low or high is no int, or the range is empty.
        DTypeError: The dtype is no integer dtype, or does not hold the range.

    Example:
        >>> import firebrick as fb
        >>> fb.random.integers((3,), low=5, high=6).tolist()
        [5, 5, 5]
    """
    return default_generator(device).integers(shape, low=low, high=high, dtype=dtype, device=device)


def permutation(n: int, *, device: Any = None) -> Tensor:
    """0 … n - 1 in random order, from the device's default generator; see ``Generator.permutation``.

    Args:
        n: How many numbers, ≥ 0.
        device: Device or device string; the default device by default.

    Returns:
        Tensor int64 [n].

    Raises:
        ConfigError: n is negative.

    Example:
        >>> import firebrick as fb
        >>> sorted(fb.random.permutation(4).tolist())
        [0, 1, 2, 3]
    """
    return default_generator(device).permutation(n, device=device)


hooks.methods["find_generator"] = _find
AMBIENT.append(whole_rows.get)
