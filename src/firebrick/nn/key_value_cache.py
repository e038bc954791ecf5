"""The cache of keys and values that lets attention decode one token at a time: one that grows, or one of a fixed length."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple
from weakref import ref

from firebrick.autodiff.tape import own_handle
from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError, StateChangedError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.levels import Level, innermost, level_of
from firebrick.core.operands import describe
from firebrick.core.settings import python_numbers
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor
from firebrick.functions.checks import staged
from firebrick.functions.creation import zeros, zeros_like
from firebrick.functions.elementwise import clip, less_equal
from firebrick.functions.indexing import index_copy, take
from firebrick.functions.movement import concat
from firebrick.functions.ranges import arange
from firebrick.graph.trace import new_state
from firebrick.nn.changes import changes
from firebrick.nn.checks import check_sizes
from firebrick.nn.module import Module


def _current_level() -> ref[Level] | None:
    level = innermost()
    return None if level is None else ref(level)


class CacheState(NamedTuple):
    """What a ``KeyValueCache`` of a fixed length holds, as a tree of tensors: what the carry of ``fb.scan`` takes.

    Attributes:
        keys: Tensor [batch, heads, length, d]; positions that are not filled hold 0.
        values: Tensor of the same shape but its last axis.
        filled: Integer tensor of shape (): how many positions are filled.

    Example:
        >>> import firebrick as fb
        >>> layer, cache = fb.nn.MultiheadAttention(8, 2), fb.nn.KeyValueCache(5)
        >>> y = layer(fb.ones((1, 3, 8)), causal=True, cache=cache)
        >>> state = cache.state()
        >>> state.keys.shape, state.filled.item()
        ((1, 2, 5, 4), 3)
    """

    keys: Tensor
    values: Tensor
    filled: Tensor


class KeyValueCache:
    """Keys and values of attention: in self-attention those of earlier calls, to which each call adds its own; in attention to
    a memory those of the memory, computed once.

    Without a length it grows by the tokens of each call. Under ``jit`` each of its lengths has a graph of its own, which later
    sequences use again.

    With a length, keys and values have that many positions from the first call on, and calls fill them one after the other; a
    call that adds more than are left raises. So a step under ``jit`` is one graph for all tokens, ``reset`` begins another
    sequence with the same graphs, and ``state`` and ``from_state`` take the cache through ``fb.scan``. It is for
    self-attention.

    It belongs to the layer that first adds to it, and refuses another one. A copy of the cache belongs to the layer that it is
    first used with, so it goes with a copy of the model. When the call of a module fails after a layer in it has added to its
    cache, the caches of other layers lack these places: that cache is refused from then on. Where layers are called one by one,
    outside of a module or each under a ``jit`` of its own, begin with new caches after an error: nothing can detect it there.

    What it holds was computed with the layer's weights. An eager call after these were replaced (by ``load_state_dict``, an
    assignment, an eager update, or a move to another device and back) refuses it until ``reset``. Calls under ``jit`` do not
    detect this, and no call detects weights that a step under ``jit`` changed: ``reset`` the caches after such a change.

    The cache of a memory is for eager calls.

    Args:
        length: Most positions; None for a cache that grows.

    Attributes:
        keys: Tensor [batch, heads, length, d], or None before the first call.
        values: Tensor of the same shape but its last axis, or None.
        capacity: Most positions, or None.
        filled: With a length: integer tensor of shape (), how many positions are filled; None before the first call.

    Raises:
        ConfigError: The length is no int ≥ 1.

    Example:
        >>> import firebrick as fb
        >>> layer, cache = fb.nn.MultiheadAttention(8, 2), fb.nn.KeyValueCache()
        >>> for _ in range(3):
        ...     y = layer(fb.ones((1, 1, 8)), causal=True, cache=cache)
        >>> y.shape, cache.length
        ((1, 1, 8), 3)
        >>> fixed, step = fb.nn.KeyValueCache(16), fb.jit(lambda x, cache: layer(x, causal=True, cache=cache))
        >>> y = layer(fb.ones((1, 2, 8)), causal=True, cache=fixed)
        >>> for _ in range(10):
        ...     y = step(fb.ones((1, 1, 8)), fixed)
        >>> fixed.length, step.traces
        (12, 1)
    """

    ties = frozenset({"_layer"})
    unwatched = frozenset(
        {"_memory", "_trace", "_level", "_weight"}
    )  # one tells a memory from another, the other lives as long as a trace

    def __init__(self, length: int | None = None) -> None:
        length = python_numbers(length)
        if length is not None:
            length = python_numbers(length)
            check_sizes("KeyValueCache", length=length)
        self.capacity = length
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.filled: Tensor | None = None
        # storages that the keys and values of a memory were computed from; () for whatever memory comes next
        self._memory: tuple[Any, ...] | None = None
        self._layer: ref[Any] | None = None  # that it belongs to
        self._weight: ref[Storage] | None = None  # of the layer's weights, when it was first added to
        self._failed = False  # whether a call failed after it had added something
        trace = hooks.trace()
        self._trace = None if trace is None else ref(trace)  # that it was made in: it ends with it
        self._level = _current_level()  # call of fb.vmap or fb.jvp that it was made in

    @property
    def length(self) -> int:
        """Number of positions in the cache; of a fixed length, those that are filled, which is read from the device."""
        if self.capacity is not None:
            return 0 if self.filled is None else int(self.filled.item())
        return 0 if self.keys is None else self.keys.shape[2]

    def append(self, keys: Tensor, values: Tensor, *, layer: Module | None = None) -> tuple[Tensor, Tensor]:
        """Add [batch, heads, n, d] at the end, and return all keys and values; with a length, positions that are not filled
        too.

        Args:
            keys: Keys of the new positions.
            values: Likewise.
            layer: The layer that they are of, which the cache belongs to from then on.

        Raises:
            ConfigError: The cache belongs to another layer, or a call failed after it had added to it.
            ShapeError: Keys and values are not of one batch, number of heads and number of positions, or the cache has rows of
                another batch.
            DTypeError: It has a length, and these have another dtype than those before.
            OutOfRangeError: It has a length, and fewer positions are left.
        """
        if keys.ndim != 4 or keys.shape[:3] != values.shape[:3] or values.ndim != 4:
            raise ShapeError(
                "a cache takes keys [batch, heads, n, d] and values [batch, heads, n, e]",
                f"{describe('keys', keys)} and {describe('values', values)}", "reshape them",
            )  # fmt: skip
        if self.capacity is None:
            keys, values = self._joined(keys, values, layer)
            self._keep(keys, values, None, layer)
        else:
            keys, values, filled = written(self._begun(keys, values, layer), keys, values)
            self._keep(keys, values, filled, layer)
        return keys, values

    def reset(self) -> None:
        """Begin another sequence: of a fixed length with the same tensors, so that graphs of earlier sequences serve it.

        Example:
            >>> import firebrick as fb
            >>> layer, cache = fb.nn.MultiheadAttention(8, 2), fb.nn.KeyValueCache(5)
            >>> y = layer(fb.ones((1, 4, 8)), causal=True, cache=cache)
            >>> cache.reset()
            >>> cache.length
            0
        """
        if self.keys is None or self.values is None:
            return
        if self.filled is None:
            if self._outlives_trace():
                raise UnsupportedError(
                    "under jit, a cache that grows is not reset: its length is part of the graph", repr(self),
                    "reset it outside jit, or use nn.KeyValueCache(length)",
                )  # fmt: skip
            self.keys, self.values, self._memory = None, None, None
        else:
            # zeros, since what is masked still has a weight of 0, and 0 · NaN of the sequence before would be NaN
            self._keep(zeros_like(self.keys), zeros_like(self.values), zeros_like(self.filled))
        self._weight, self._failed = None, False

    def state(self) -> CacheState:
        """What a cache of a fixed length holds, as a tree of tensors, for the carry of ``fb.scan``.

        Raises:
            ConfigError: The cache has no length, or is not used yet.

        Example:
            >>> import firebrick as fb
            >>> layer, cache = fb.nn.MultiheadAttention(8, 2), fb.nn.KeyValueCache(8)
            >>> x = layer(fb.ones((1, 2, 8)), causal=True, cache=cache)[:, 1:]
            >>> def step(carry, _):
            ...     x, state = carry
            ...     cache = fb.nn.KeyValueCache.from_state(state)
            ...     y = layer(x, causal=True, cache=cache)
            ...     return (y, cache.state()), y
            >>> (x, state), ys = fb.scan(step, (x, cache.state()), length=6)
            >>> state.filled.item(), ys.shape
            (8, (6, 1, 1, 8))
        """
        if self.keys is None or self.values is None or self.filled is None:
            raise ConfigError(
                "a cache of a fixed length has a state after its first call",
                "a cache that grows" if self.capacity is None else "a cache that is not used yet",
                "make it with nn.KeyValueCache(length), and call the layer with it once",
            )
        return CacheState(*map(own_handle, (self.keys, self.values, self.filled)))

    @classmethod
    def from_state(cls, state: CacheState) -> KeyValueCache:
        """A cache of a fixed length that goes on from a state; see ``state``.

        Args:
            state: What ``state`` returned.

        Raises:
            ConfigError: It is no such state.

        Example:
            >>> import firebrick as fb
            >>> layer, cache = fb.nn.MultiheadAttention(8, 2), fb.nn.KeyValueCache(8)
            >>> y = layer(fb.ones((1, 2, 8)), causal=True, cache=cache)
            >>> fb.nn.KeyValueCache.from_state(cache.state()).length
            2
        """
        given: Any = state
        if not isinstance(given, CacheState) or not all(isinstance(t, Tensor) for t in given) or given.keys.ndim != 4:
            raise ConfigError("from_state takes the state of a cache", type(given).__name__, "pass what state() returned")
        made = cls(state.keys.shape[2])
        made.keys, made.values, made.filled = map(own_handle, state)
        return made

    def _joined(self, keys: Tensor, values: Tensor, layer: Module | None) -> tuple[Tensor, Tensor]:
        """All keys and values of a cache that grows, which are not kept yet."""
        self._check_use(layer)
        self._check_level(keys, values)
        if self.keys is None and self._outlives_trace():  # a graph extends state that is there: of no places yet
            self.keys, self.values = (
                new_state(partial(zeros, (*t.shape[:2], 0, t.shape[3]), dtype=t.dtype, device=t.device)) for t in (keys, values)
            )
        if self.keys is None or self.values is None:
            return keys, values
        if self._memory is not None or keys.shape[0] != self.keys.shape[0]:
            raise ShapeError(
                "a cache belongs to one attention layer and one batch",
                f"{describe('keys', keys)} after {describe('cache.keys', self.keys)}",
                "use a new cache for another layer or batch, or cache.select(rows)",
            )
        return concat([self.keys, keys], axis=2), concat([self.values, values], axis=2)

    def _begun(self, keys: Tensor, values: Tensor, layer: Module | None) -> CacheState:
        """What a cache of a fixed length holds before these are added, which fit into it."""
        self._check_use(layer)
        self._check_level(keys, values)
        assert self.capacity is not None
        if self.keys is None or self.values is None or self.filled is None:
            shapes = [(*t.shape[:2], self.capacity, t.shape[3]) for t in (keys, values)]
            makes = [
                partial(zeros, shape, dtype=dtype, device=keys.device)
                for shape, dtype in zip(
                    [*shapes, ()], (keys.dtype, values.dtype, keys.device.backend.default_int(keys.device)), strict=True
                )
            ]
            outlives = self._outlives_trace()  # a graph reads and changes state that is there: of no filled positions yet
            state = CacheState(*(new_state(make) if outlives else make() for make in makes))
            if outlives:
                self.keys, self.values, self.filled = state
        else:
            state = CacheState(self.keys, self.values, self.filled)
        for new, old, name in ((keys, state.keys, "keys"), (values, state.values, "values")):
            if (*new.shape[:2], new.shape[3]) != (*old.shape[:2], old.shape[3]):
                raise ShapeError(
                    "a cache belongs to one attention layer and one batch",
                    f"{describe(name, new)} after {describe(f'cache.{name}', old)}",
                    "use a new cache for another layer or batch, or cache.select(rows)",
                )
            if new.dtype is not old.dtype:
                raise DTypeError(
                    "a cache of a fixed length keeps the dtype of its first call",
                    f"{describe(name, new)} after {describe(f'cache.{name}', old)}",
                    "use the layer in one dtype, with or without autocast, as long as it uses this cache",
                )
        return state._replace(filled=_with_room(state.filled, keys.shape[2], self.capacity))

    def _check_use(self, layer: Module | None) -> None:
        if self._failed:
            raise ConfigError(
                "the caches of a model's layers hold the same places",
                "a cache that was added to in a call that failed later: caches of other layers may lack these places",
                "begin the sequence again with new caches",
            )
        owner = None if self._layer is None else self._layer()
        if layer is not None and self._layer is not None and owner is not layer:
            raise ConfigError(
                "a cache belongs to one attention layer, the first that it was used with",
                f"a cache of {_named(owner)} given to {'another ' if _named(owner) == _named(layer) else ''}{_named(layer)}",
                "give each layer a cache of its own, as new_cache() does; a copy of the layer takes a copy of the cache",
            )
        now = None if layer is None or self._weight is None else _weight_of(layer)
        if now is not None and self._weight is not None and self._weight() is not now:
            raise ConfigError(
                "the keys and values of a cache are computed with one state of the layer's weights",
                f"{self!r}, filled before the weights of {_named(layer)} were replaced",
                "begin the sequence again: reset the caches, or make new ones",
            )

    def _check_level(self, keys: Tensor, values: Tensor) -> None:
        """Refuse keys and values that end with a call of fb.vmap or fb.jvp, in a cache that was made before it."""
        own = None if self._level is None else self._level()
        depth = -1 if own is None else own.depth
        for t in (keys, values):
            level = level_of(t)
            if level is not None and level.depth > depth:
                raise StateChangedError(
                    f"{level.name} changes a cache that existed before it, which fb.vmap and fb.jvp cannot do",
                    f"{self!r} made outside of {level.name}",
                    f"make the cache inside of {level.name}, or pass state() to it and use KeyValueCache.from_state",
                )

    def _keep(self, keys: Tensor, values: Tensor, filled: Tensor | None, layer: Module | None = None) -> None:
        changes.note(self)
        if layer is not None:
            self._belong(layer)
        if not self._outlives_trace():
            self.keys, self.values = own_handle(keys), own_handle(values)
            self.filled = None if filled is None else own_handle(filled)
            return
        for held, new in ((self.keys, keys), (self.values, values), (self.filled, filled)):
            if new is not None and new is not held:
                assert held is not None
                held._rebind(new)

    def _belong(self, layer: Module) -> None:
        """Note which layer, with which weights, has added to it; the first time alone."""
        if self._layer is None:
            self._layer = ref(layer)
        if self._weight is None and (weight := _weight_of(layer)) is not None:
            self._weight = ref(weight)

    def call_failed(self) -> None:
        """Refuse to be used from now on: a call failed that had changed it."""
        self._failed = True

    def _outlives_trace(self) -> bool:
        """Whether a trace runs that it was not made in: it is state then, which the graph changes."""
        trace = hooks.trace()
        return trace is not None and (self._trace is None or self._trace() is not trace)

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order (integers; repeats allowed): what beam search does between steps.

        A memory is then given with the same rows.

        Args:
            rows: Integers [n] in [0, batch).

        Raises:
            ShapeError: ``rows`` has another number of axes.
            OutOfRangeError: A row is not of the batch.
        """
        if getattr(rows, "ndim", 1) != 1:
            raise ShapeError("KeyValueCache.select takes rows [n]", describe("rows", rows), "reshape it: rows.reshape(-1)")
        if self.keys is not None and self.values is not None:
            self._keep(take(self.keys, rows, axis=0), take(self.values, rows, axis=0), self.filled)
            self._memory = None if self._memory is None else ()

    def __getstate__(self) -> dict[str, Any]:
        # a copy goes with a copy of the memory and of the layer, or with these themselves
        return {
            **self.__dict__,
            "_trace": None,
            "_level": None,
            "_layer": None,
            "_weight": None,
            "_memory": None if self._memory is None else (),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _level=_current_level())

    def __repr__(self) -> str:
        if self.capacity is not None:
            return f"KeyValueCache({self.capacity})"
        return f"KeyValueCache(length={self.length})"


def written(state: CacheState, keys: Tensor, values: Tensor) -> CacheState:
    """A state with these keys and values behind the filled positions."""
    at = arange(keys.shape[2], device=keys.device) + state.filled
    return CacheState(
        index_copy(state.keys, at, keys, axis=2), index_copy(state.values, at, values, axis=2), state.filled + keys.shape[2]
    )


def _with_room(filled: Tensor, n: int, capacity: int) -> Tensor:
    """How many positions are filled, where n are left to add; if fewer are, an error (inside a trace: in each run of it)."""

    def error(count: int | None = None) -> OutOfRangeError:
        full = "more than are left" if count is None else f"{count} filled, and {n} to add"
        return OutOfRangeError(
            f"a cache of a fixed length has {capacity} positions", full, f"use a longer nn.KeyValueCache than {capacity}"
        )

    if n > capacity:
        raise error(0)
    if filled.device.engine == "meta":
        return filled
    if staged(lambda: less_equal(filled, capacity - n), error):
        return clip(filled, max=capacity - n)  # so that this error is found, not that of an index behind the end
    count = int(filled.item())
    if count + n > capacity:
        raise error(count)
    return filled


def _weight_of(layer: Module) -> Storage | None:
    """The storage of a weight that keys are computed with, which another one takes the place of when it is replaced; None where
    handles show other storages for a while, or the layer has none of its own."""
    weight = getattr(layer, "_key_weight", None)
    return None if weight is None or hooks.trace() is not None or innermost() is not None else weight.storage


def _named(layer: Module | None) -> str:
    """A layer for a message."""
    if layer is None:
        return "a layer that is there no longer"
    return f"{type(layer).__name__} {layer._path!r}" if layer._path else type(layer).__name__
