"""``Generator``: random numbers that are a function of (seed, number of the draw, place in the tensor).

The bits come from the counter-based Philox ops, so a generator's state is four words on the host, a draw is the same on every
engine, and element i of a draw can be had without the elements before it: the share of a batch draws what the whole would
have drawn there (``row_offset``). Everything after the bits uses operations with one rounding each, in an order stated
here, so integers, uniforms, bernoullis and permutations agree to the bit; normals, through ``log`` and ``cos``, within 4 ulp.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

import numpy as np

from firebrick.autodiff.tape import region
from firebrick.backends.contract import check_storable
from firebrick.backends.registry import find_device
from firebrick.core.commit import Row, apply_rows, setter
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, float32, float64, iinfo, int64
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import ConfigError, DTypeError, OperandError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.locks import forkable
from firebrick.core.operands import describe
from firebrick.core.scopes import scope
from firebrick.core.settings import number, whole
from firebrick.core.shapes import normalize_shape
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.functions.conversion import is_differentiated
from firebrick.functions.elementwise import astype, bitwise_and, bitwise_right_shift, cos, floor_divide, less, log, sqrt
from firebrick.functions.indexing import take
from firebrick.functions.movement import reshape
from firebrick.functions.sorting import argsort
from firebrick.ops.bits import philox, random_bits, random_uniform
from firebrick.random.draws import draw, levels_here, of_levels
from firebrick.random.draws import rows as whole_rows

_LOW = 0xFFFFFFFF
_FORKED = 1 << 31  # in the high counter word: the counters of forks, which draws never reach
_TWO_32 = 1 << 32

State = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")


@scope
def row_offset(rows: int) -> Iterator[None]:
    """Draw, inside a ``with`` block, what the whole batch would have drawn from row ``rows`` on.

    Strategies that split a batch set this, so that every draw whose first axis is the batch is the same for any split.

    Args:
        rows: Number of rows of the whole batch that come before this share.

    Example:
        >>> import firebrick as fb
        >>> whole = fb.random.Generator(0).uniform((4, 3))
        >>> with fb.random.row_offset(2):
        ...     part = fb.random.Generator(0).uniform((2, 3))
        >>> part.tolist() == whole[2:].tolist()
        True
    """
    if rows < 0:
        raise ConfigError("a row offset is an int ≥ 0", repr(rows), "pass the number of rows before this share")
    token = whole_rows.set(rows)
    try:
        yield
    finally:
        whole_rows.reset(token)


def check_seed(seed: Any) -> int:
    """A seed as a Python int.

    Raises:
        ConfigError: It is no int in [0, 2^64).
    """
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed < 1 << 64:
        raise ConfigError("a seed is an int in [0, 2^64)", repr(seed), "pass e.g. 0")
    return int(seed)


# what other libraries call an argument
_SPELLED = {
    "size": "shape", "minval": "low", "min": "low", "a": "low", "maxval": "high", "max": "high", "b": "high", "loc": "mean",
    "mu": "mean", "scale": "std", "stddev": "std", "sigma": "std", "prob": "p", "probs": "p", "probability": "p",
}  # fmt: skip


def _finite(draw: str, name: str, value: Any) -> float:
    """A finite number among the settings of a draw; a 0-d tensor that is not differentiated is read."""
    if isinstance(value, Tensor):
        if value.ndim or is_differentiated(value):
            raise OperandError(
                f"{draw}: {name} is a number",
                describe(name, value),
                f"draw without {name}, and compute with the tensor",
                op=draw,
            )
        value = value.item()
    if isinstance(value, Weak):
        raise value.unknown(f"{draw}: {name}")
    found = number(draw, name, value)
    if not -math.inf < found < math.inf or abs(found) > sys.float_info.max:
        raise ConfigError(f"{draw}: {name} is a finite number", f"{name}={value!r:.60}", "pass a finite one", op=draw)
    return float(found)


def _int(draw: str, name: str, value: Any) -> int:
    """An int among the settings of a draw; a 0-d tensor is read."""
    return whole(draw, name, value.item() if isinstance(value, Tensor) and not value.ndim else value)


def shape_first(draw: Callable[P, T]) -> Callable[P, T]:
    """A draw that takes the whole shape as its first argument, and all others by name.

    PyTorch's ``randn(2, 3)`` has a shape of two axes, NumPy's ``normal(2, 3)`` a mean and a standard deviation: neither is
    guessed.
    """
    parameters = [p for p in inspect.signature(draw).parameters.values() if p.name != "self"]
    known = {p.name for p in parameters}
    needed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    method = len(parameters) < len(inspect.signature(draw).parameters)
    most = method + sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    names = ", ".join(f"{p.name}=" for p in parameters if p.kind is p.KEYWORD_ONLY)
    name = draw.__name__

    @wraps(draw)
    def drawn(*args: P.args, **named: P.kwargs) -> T:
        if len(args) > most:
            raise OperandError(
                f"{name} takes one positional argument, the shape",
                f"{name}({', '.join(f'{a!r:.40}' for a in args[most - 1 :])})",
                f"write a shape of several axes as one tuple, {name}((2, 3)), and name the rest: {names}",
                op=name,
            )
        if not named.keys() <= known:
            wrong = next(k for k in named if k not in known)
            meant = _SPELLED.get(wrong, "")
            remedy = f"write {meant}=" if meant in known else f"name one of these: {names}"
            if meant == "shape":
                remedy = f"pass the shape first: {name}((2, 3))"
            raise OperandError(f"{name} takes a shape, and by name {names}", f"{wrong}={named[wrong]!r:.40}", remedy, op=name)
        missing = [k for k in needed if k not in named]
        if missing or (len(args) < most and "shape" not in named):
            lacks = ", ".join(([] if len(args) == most or "shape" in named else ["shape"]) + missing)
            example = f"{name}((2, 3){''.join(f', {k}={i * 10}' for i, k in enumerate(needed))})"
            raise OperandError(f"{name} needs {lacks}", "a call without", f"write e.g. {example}", op=name)
        return draw(*args, **named)

    return drawn


class Generator:
    """A stream of random numbers. Each draw uses one key (``normal``: two) and leaves the next ones unchanged.

    Args:
        seed: Int in [0, 2^64).

    Raises:
        ConfigError: The seed is no such int.

    Example:
        >>> import firebrick as fb
        >>> a, b = fb.random.Generator(7), fb.random.Generator(7)
        >>> bool(fb.all(a.uniform((2, 3)) == b.uniform((2, 3))))
        True
    """

    __slots__ = ("__weakref__", "_counter", "_lock", "_seed")
    __jit_leaf__ = True  # read anew at each run of a compiled function

    def __init__(self, seed: int) -> None:
        self._seed = check_seed(seed)
        self._counter = 0
        self._lock = forkable(Lock())
        trace = hooks.trace()
        if trace is not None:
            trace.begin(self)

    # state

    def state(self) -> State:
        """Where the stream stands, as a plain tree: ``seed`` and ``counter``, each uint32 [2] (low word first).

        Raises:
            UnsupportedError: Read, or copied with the generator, under jit: a graph would keep what it is now.
        """
        if not self._of_trace():
            refuse_in_trace("Generator.state, which a copy of a generator reads,")
        with self._lock:
            return {"seed": _words(self._seed), "counter": _words(self._counter)}

    def set_state(self, state: State) -> None:
        """Go to where ``state()`` was taken.

        Args:
            state: What ``state()`` returned, of this generator or another.

        Raises:
            ConfigError: ``state`` is no state of a generator.
        """
        try:
            seed, counter = (_whole(state[k]) for k in ("seed", "counter"))
        except (LookupError, OverflowError, TypeError, ValueError):
            raise ConfigError(
                'a generator\'s state is {"seed": uint32 [2], "counter": uint32 [2]}',
                f"{state!r:.120}",
                "pass what Generator.state() returned",
            ) from None
        if not self._of_trace():
            refuse_in_trace("Generator.set_state")
        self._go((seed, counter))

    def mark(self) -> tuple[int, int]:
        """``state()`` as two numbers, for ``return_to``."""
        with self._lock:
            return self._seed, self._counter

    def return_to(self, mark: tuple[int, int]) -> None:
        """Go to where ``mark()`` was taken, of this generator or another.

        Args:
            mark: What ``mark()`` returned.
        """
        if not self._of_trace():
            refuse_in_trace("Generator.return_to")
        self._go(mark)

    def _go(self, mark: tuple[int, int]) -> None:
        with self._lock:
            self._note(mark)
            self._seed, self._counter = mark

    def _note(self, after: tuple[int, int]) -> None:
        if hooks.journals:  # before it moves: an interrupt in between loses nothing
            hooks.note_draw(self, (self._seed, self._counter), after)

    def untake(self, before: tuple[int, int], after: tuple[int, int]) -> None:
        """Go back from one mark to another. A generator that moved meanwhile stays where it is, so that nobody draws the same
        numbers again.

        Args:
            before: Mark to go back to.
            after: Mark at which the generator must be.
        """
        with self._lock:
            if (self._seed, self._counter) == after:
                self._note(before)
                self._seed, self._counter = before

    def rows_to(self, mark: tuple[int, int]) -> list[Row]:
        """``return_to`` as rows of a commit.

        Args:
            mark: What ``mark()`` returned.
        """
        return [(_seed_of, self, mark[0]), (_counter_of, self, mark[1])]

    def fork(self, stream: int | None = None) -> Generator:
        """Another generator, independent of this one.

        Args:
            stream: Its number in [0, 2^63): the same number always gives the same stream, and takes nothing from this
                generator. None takes the next key of this generator.

        Raises:
            ConfigError: ``stream`` lies outside [0, 2^63).
        """
        if stream is None:
            return Generator(_whole(philox(self._next(), 0, 2)))
        if not self._of_trace():
            refuse_in_trace("Generator.fork")
        if not 0 <= stream < 1 << 63:
            raise ConfigError("a stream's number is an int in [0, 2^63)", repr(stream), "pass e.g. 0")
        return Generator(_whole(philox(_key(self._seed, stream | _FORKED << 32), 0, 2)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Generator:
        twin = Generator(0)
        twin.set_state(self.state())
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.state(),)

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, draws={self._counter})"

    # draws

    def _next(self) -> np.ndarray[Any, Any]:
        """The next key, on the host."""
        if hooks.trace() is not None and not self._of_trace():
            raise UnsupportedError(
                "under jit, random numbers are drawn on the device",
                "Generator.fork, whose seed is drawn on the host",
                "fork before the call",
            )
        key: np.ndarray[Any, Any] = self._take(1)[0]
        return key

    def _take(self, count: int, drawn: list[Any] | None = None) -> np.ndarray[Any, Any]:
        """The next ``count`` keys, uint32 [count, 4]; ``drawn`` takes what ``untake`` needs, in one step with the draw."""
        inside = region.get()
        if inside is not None:  # fb.checkpoint repeats the draws of its region
            inside.note_generator(self)
        with self._lock:
            counter = self._counter
            self._note((self._seed, counter + count))
            if drawn is None:
                self._counter = counter + count
            else:
                entry = self, (self._seed, counter), (self._seed, counter + count)
                apply_rows([(list.append, drawn, entry), (_counter_of, self, counter + count)])
        return np.array([_words_of_key(self._seed, c) for c in range(counter, counter + count)], np.uint32)

    def _next_on(self, device: Device) -> Tensor:
        """The next key on a device; inside a trace, one that each run takes anew."""
        return self._keys_on(device, None)

    def _keys_on(self, device: Device, count: int | None) -> Tensor:
        """The next ``count`` keys on a device, uint32 [count, 4]; one of shape [4] for None."""
        trace = hooks.trace()
        find = None if trace is None else hooks.methods["find_generator"](self)
        if trace is None or (find is None and self._of_trace()):
            return _sent(self._take(1)[0] if count is None else self._take(count), device)
        inside = region.get()
        if inside is not None:
            inside.note_generator(self)
        keys: Tensor = trace.keys(self, find, device, count)
        return keys

    def _of_trace(self) -> bool:
        """Whether it was made in the running trace, so that it begins anew with each call."""
        trace = hooks.trace()
        return trace is not None and trace.owns(self) and hooks.methods["find_generator"](self) is None

    def place(self) -> int:
        """How many keys have been taken; inside a trace, how many of them by the trace."""
        trace = hooks.trace()
        return self._counter if trace is None or self._of_trace() else trace.drawn(self)

    def go_back(self, place: int) -> None:
        """Draw again from a place on.

        Args:
            place: Position in the stream.
        """
        trace = hooks.trace()
        if trace is not None and not self._of_trace():
            trace.draw_again(self, place)
            return
        self._go((self._seed, place))

    def key(self, *, device: Any = None) -> Tensor:
        """The next key, uint32 [4] (seed low, seed high, counter low, counter high), for ``random_bits`` and its like.

        Args:
            device: Device of the key; the default device by default.
        """
        goal, levels = find_device(device), levels_here()
        if not levels:
            return self._next_on(goal)
        sizes = tuple(level.size for level in levels)
        return of_levels(levels, reshape(self._keys_on(goal, math.prod(sizes)), (*sizes, 4)))

    def _uniform(self, shape: tuple[int, ...], dt: DType, device: Device) -> Tensor:
        return draw(random_uniform, lambda: self._next_on(device), shape, dtype=dt)

    @shape_first
    def uniform(
        self, shape: Any, *, low: float = 0.0, high: float = 1.0, dtype: Any = None, device: Any = None
    ) -> Tensor:  # fmt: skip
        """Uniform numbers: u · (high - low) + low with u in [0, 1) of 24 bits (float64: 53 bits).

        Args:
            shape: Sizes of the axes, as one argument: an int or a tuple of ints.
            low: Least value, finite.
            high: Upper bound, at least ``low``; reached only where rounding does it.
            dtype: Floating dtype; the device's default float by default. Narrower than float32: drawn in float32, rounded.
            device: Device of the result.

        Raises:
            ConfigError: low or high is no finite number, or low > high.
            DTypeError: The dtype is not floating, or the device cannot store it.
        """
        goal, sizes, dt, drawn = _target("uniform", shape, dtype, device)
        low, high = _finite("uniform", "low", low), _finite("uniform", "high", high)
        if not 0.0 <= high - low < math.inf:
            want = "uniform numbers lie in [low, high), with low ≤ high and a finite difference"
            raise ConfigError(want, f"[{low}, {high})", "swap or narrow them", op="uniform")
        u = self._uniform(sizes, drawn, goal)
        if (low, high) != (0.0, 1.0):
            u = u * (high - low) + low
        return u if drawn is dt else astype(u, dt)

    @shape_first
    def normal(
        self, shape: Any, *, mean: float = 0.0, std: float = 1.0, dtype: Any = None, device: Any = None
    ) -> Tensor:  # fmt: skip
        """Normal numbers: √(-2 ln(1 - u)) · cos(2π v) · std + mean, with u and v uniform (two keys).

        Args:
            shape: Sizes of the axes, as one argument: an int or a tuple of ints.
            mean: Mean, finite.
            std: Standard deviation, finite and ≥ 0.
            dtype: Floating dtype; the device's default float by default. Narrower than float32: drawn in float32, rounded.
            device: Device of the result.

        Raises:
            ConfigError: mean or std is no finite number, or std < 0.
            DTypeError: The dtype is not floating, or the device cannot store it.

        Source: Box, Muller, "A note on the generation of random normal deviates", 1958.
        """
        goal, sizes, dt, drawn = _target("normal", shape, dtype, device)
        mean, std = _finite("normal", "mean", mean), _finite("normal", "std", std)
        if std < 0.0:
            raise ConfigError("normal: std is a number ≥ 0", f"std={std}", "pass its absolute value", op="normal")
        u, v = self._uniform(sizes, drawn, goal), self._uniform(sizes, drawn, goal)
        z = sqrt(log(1.0 - u) * -2.0) * cos(v * (2.0 * math.pi))
        if std != 1.0:
            z = z * std
        if mean != 0.0:
            z = z + mean
        return z if drawn is dt else astype(z, dt)

    @shape_first
    def bernoulli(self, shape: Any, *, p: float = 0.5, device: Any = None) -> Tensor:
        """True with probability p (to 2^-24): u < p, with u the float32 uniforms.

        Args:
            shape: Sizes of the axes, as one argument: an int or a tuple of ints.
            p: Probability in [0, 1].
            device: Device of the result.

        Returns:
            Bool tensor.

        Raises:
            ConfigError: p lies outside [0, 1].
        """
        given, p = p, _finite("bernoulli", "p", p)
        if not 0.0 <= p <= 1.0:
            raise ConfigError("a probability lies in [0, 1]", f"p = {given!r}", "pass e.g. 0.5")
        goal = find_device(device)
        return less(self._uniform(normalize_shape(shape, "bernoulli"), float32, goal), p)

    @shape_first
    def integers(self, shape: Any, *, low: int, high: int, dtype: Any = None, device: Any = None) -> Tensor:
        """Integers in [low, high): low + ⌊w · (high - low) / 2^64⌋, with w a 64-bit word.

        No draw is rejected, so element i depends on nothing but its own word; a value's probability is off by less than
        2^-64. Ranges r up to 2^31 are computed in int64 and without overflow, as ⌊(h · r + ⌊l · r / 2^32⌋) / 2^32⌋ for
        w = h · 2^32 + l; wider ones as the high half of the product of two 64-bit numbers, modulo 2^64.

        Args:
            shape: Sizes of the axes, as one argument: an int or a tuple of ints.
            low: Least value.
            high: One more than the greatest value.
            dtype: Integer dtype; the device's default by default.
            device: Device of the result.

        Raises:
            ConfigError: low or high is no int, or the range is empty.
            DTypeError: The dtype is no integer dtype, or does not hold the range.
        """
        goal, sizes = find_device(device), normalize_shape(shape, "integers")
        dt = as_dtype(goal.backend.default_int(goal) if dtype is None else dtype)
        if not dt.is_integer:
            raise DTypeError("integers are drawn in an integer dtype", dt.name, "draw them and cast with fb.astype")
        low, high = _int("integers", "low", low), _int("integers", "high", high)
        span = high - low
        if span < 1:
            raise ConfigError("integers are drawn from [low, high), with low < high", f"[{low}, {high})", "swap or widen them")
        info = iinfo(dt)
        if low < info.min or high - 1 > info.max:
            raise DTypeError(f"the range must fit {dt.name}", f"[{low}, {high})", "choose a wider dtype")
        words = astype(draw(random_bits, lambda: self._next_on(goal), (*sizes, 2), split=bool(sizes)), int64)
        if span <= 1 << 31 and high <= 1 << 63:
            r = words[..., 0] * span + floor_divide(words[..., 1] * span, _TWO_32)
            return astype(floor_divide(r, _TWO_32) + low, dt, copy=False)
        first = low - (1 << 64 if low >= 1 << 63 else 0)
        return astype(_high_half(words[..., 0], words[..., 1], span) + first, dt, copy=False)

    def permutation(self, n: int, *, device: Any = None) -> Tensor:
        """The numbers 0 … n - 1 in random order, as int64 [n]: the stable order of n 64-bit words.

        Args:
            n: How many numbers, ≥ 0.
            device: Device of the result; the default device by default.

        Raises:
            ConfigError: n is no int ≥ 0.
        """
        given: Any = n
        if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 0:
            raise ConfigError("a permutation has a length ≥ 0", repr(n), "pass the number of samples, an int")
        goal = find_device(device)
        words = draw(random_bits, lambda: self._next_on(goal), (int(n), 2), split=False)
        minor = argsort(words[:, 1])  # sorting by the high words then keeps this order among equal ones
        return take(minor, argsort(take(words[:, 0], minor)))


def _high_half(h: Tensor, l: Tensor, span: int) -> Tensor:  # noqa: E741 - the low word
    """⌊(h · 2^32 + l) · span / 2^64⌋ for h and l below 2^32 and span up to 2^64: int64, read as modulo 2^64."""

    def upper(x: Tensor) -> Tensor:
        return bitwise_and(bitwise_right_shift(x, 32), _LOW)

    high, low = divmod(span, _TWO_32)
    lh, hl = l * high, h * low
    carry = upper(l * low) + bitwise_and(lh, _LOW) + bitwise_and(hl, _LOW)
    return h * high + upper(lh) + upper(hl) + upper(carry)


def refuse_in_trace(what: str) -> None:
    """Raise inside a trace: a graph would not repeat it.

    Raises:
        UnsupportedError: A trace runs.
    """
    if hooks.trace() is not None:
        raise UnsupportedError(f"{what} acts on the host, which a graph does not repeat", "a call under jit", "call it before")


def _words(value: int) -> np.ndarray[Any, Any]:
    return np.array([value & _LOW, value >> 32], np.uint32)


def _whole(words: Any) -> int:
    found = np.asarray(words).reshape(-1)
    low, high = (int(w) for w in found)
    if found.dtype.kind not in "iu" or not (0 <= low <= _LOW and 0 <= high <= _LOW):
        raise ValueError("words of a generator are two of 32 bits")
    return low | high << 32


def _words_of_key(seed: int, counter: int) -> tuple[int, int, int, int]:
    """The 32-bit words of a key."""
    return seed & _LOW, seed >> 32, counter & _LOW, counter >> 32


def _key(seed: int, counter: int) -> np.ndarray[Any, Any]:
    return np.array(_words_of_key(seed, counter), np.uint32)


def _restored(state: State) -> Generator:
    made = Generator(0)
    made.set_state(state)
    return made


def _sent(host: np.ndarray[Any, Any], device: Device) -> Tensor:
    sent: Tensor = hooks.from_host(host, device)
    return sent


_seed_of, _counter_of = setter(Generator, "_seed"), setter(Generator, "_counter")


def _target(name: str, shape: Any, dtype: Any, device: Any) -> tuple[Device, tuple[int, ...], DType, DType]:
    """Device, sizes, dtype and the dtype to draw in."""
    goal = find_device(device)
    dt = as_dtype(goal.backend.default_float(goal) if dtype is None else dtype)
    if dt.kind != "float":
        raise DTypeError(f"{name} numbers have a floating dtype", dt.name, "use float32, or Generator.integers")
    check_storable(dt, goal)
    return goal, normalize_shape(shape, name), dt, float64 if dt is float64 else float32
