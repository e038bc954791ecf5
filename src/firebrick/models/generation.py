"""Text that a language model generates: a prompt and every token after it, as one compiled graph.

The cache of keys and values has the length of the longest prompt and all new tokens from the start, so the step of a token is
the same for every position. Prompts of unlike length are filled up on the left, with positions that no query looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from firebrick.autodiff.tape import no_grad
from firebrick.core.dtypes import int64
from firebrick.core.errors import ConfigError, OutOfRangeError
from firebrick.core.hooks import hooks
from firebrick.core.settings import number, whole
from firebrick.core.tensor import Tensor
from firebrick.functions.arrangement import repeat
from firebrick.functions.creation import full, full_like, zeros
from firebrick.functions.elementwise import (
    astype,
    equal,
    exp,
    floor_divide,
    greater_equal,
    isfinite,
    isnan,
    less,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    remainder,
    where,
)
from firebrick.functions.indexing import index_copy, take, take_along_axis
from firebrick.functions.movement import concat, expand_dims, matrix_transpose, reshape
from firebrick.functions.normalisation import log_softmax, softmax
from firebrick.functions.ranges import arange
from firebrick.functions.searching import argmax
from firebrick.functions.sorting import argsort, top_k
from firebrick.functions.statistical import cumulative_sum
from firebrick.functions.statistical import max as max_
from firebrick.functions.utility import all as all_
from firebrick.graph import jit, scan, while_loop
from firebrick.models.gpt import GPT, GPTCache
from firebrick.random import Generator, default_generator
from firebrick.random.discrete import _wide, at_share

_NEVER = -float("inf")
_UNKNOWN = -2
"""Instead of a token, where the logits have none that is the most probable one: they hold NaN or infinity."""
_SHORTEST = 8
"""Least length that prompts are filled up to."""
_graphs: WeakKeyDictionary[GPT, dict[Any, Any]] = WeakKeyDictionary()


@dataclass(frozen=True)
class _Sampling:
    """How tokens are chosen: what a graph is compiled for."""

    steps: int
    greedy: bool
    top_k: int | None
    top_p: float | None
    stop: tuple[int, ...]
    beams: int


def _compiled(model: GPT, how: _Sampling, make: Callable[[_Sampling], Any]) -> Any:
    """What ``make`` compiles, once for a model and settings."""
    own = _graphs.setdefault(model, {})
    if (make, how) not in own:
        own[make, how] = make(how)
    return own[make, how]


def generate(
    model: GPT,
    prompts: Sequence[int] | Sequence[Sequence[int]],
    *,
    max_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | Sequence[int] | None = None,
    beams: int = 1,
    generator: Generator | None = None,
    on_token: Callable[[list[int]], Any] | None = None,
) -> list[Any]:
    """Tokens that a model adds to prompts.

    The prompts and all new tokens are one compiled graph for each shape (the longest prompt, the number of prompts and of
    tokens); with ``on_token`` they are two, one for the prompts and one for a token. The model runs in evaluation.

    Args:
        model: Language model.
        prompts: Tokens of one prompt, or of several, of any lengths ≥ 1.
        max_tokens: How many tokens to add, at most.
        temperature: Divides the logits; 0 takes the most probable token.
        top_k: Draw from this many most probable tokens only.
        top_p: Draw from the fewest most probable tokens only whose probabilities add up to this much.
        stop: Token or tokens after which a sequence ends; they are part of it.
        beams: With more than 1, the most probable of this many sequences that are searched at once; nothing is drawn.
        generator: Source of the draws; the device's default generator by default.
        on_token: Called with the new tokens of all prompts, one for each, after each step; -1 for a sequence that has
            ended. If it returns True, no further tokens are added.

    Returns:
        A list of new tokens, or one for each prompt.

    Raises:
        ConfigError: A setting does not fit, prompts and new tokens are more than the model's length, or logits are
            NaN or infinite.
        OutOfRangeError: A token of a prompt or of ``stop`` is not of the model's vocabulary.

    Source: Holtzman et al., "The Curious Case of Neural Text Degeneration", arXiv:1904.09751 (``top_p``).

    Example:
        >>> import firebrick as fb
        >>> model = fb.models.GPT(10, length=16, dim=8, heads=2, layers=1)
        >>> len(fb.models.generate(model, [1, 2, 3], max_tokens=4))
        4
        >>> found = fb.models.generate(model, [[1], [2, 3, 4]], max_tokens=5, temperature=0.0)
        >>> [len(tokens) for tokens in found]
        [5, 5]
    """
    if not isinstance(model, GPT):
        raise ConfigError("generate takes a language model", type(model).__name__, "pass a models.GPT")
    rows, alone = _prompts(prompts, model.vocabulary)
    how = _settings(model, max_tokens, temperature, top_k, top_p, stop, beams, generator, on_token)
    longest = max(map(len, rows))
    if longest + how.steps > model.length:
        raise ConfigError(
            f"generate: prompts and new tokens have at most the {model.length} positions of the model",
            f"a prompt of {longest} tokens, and max_tokens={how.steps}", "shorten the prompt, or generate fewer tokens",
        )  # fmt: skip
    if not how.steps:
        return [] if alone else [[] for _ in rows]
    # lengths are rounded up, so that prompts of all lengths need few graphs
    longest = min(model.length - how.steps, max(_SHORTEST, 1 << (longest - 1).bit_length()))
    device = model.embed.weight.device
    tokens, pads = np.zeros((len(rows), longest), np.int64), np.zeros(len(rows), np.int64)
    for i, row in enumerate(rows):
        pads[i] = longest - len(row)
        tokens[i, pads[i] :] = row
    source = default_generator(device) if generator is None else generator
    drawn = not how.greedy and how.beams == 1
    shares = source.uniform((how.steps, len(rows)), device=device) if drawn else zeros((how.steps, 1), device=device)
    inputs = hooks.from_host(tokens, device), hooks.from_host(pads, device), shares
    modes = [(m, m.training) for _, m in model.modules()]  # those of parts may differ
    model.eval()
    try:
        with no_grad():
            heat = full((), 1.0 if how.greedy else _within(float(temperature)), device=device)
            if on_token is None:
                found = _compiled(model, how, _beam_graph if how.beams > 1 else _graph)(model, *inputs, heat).numpy()
            else:
                found = _streamed(how, model, *inputs, heat, on_token)
    finally:
        for module, training in modes:  # a part comes after the module that it belongs to
            if module.training is not training:
                module.train() if training else module.eval()
    kept = [_until_stop(row.tolist(), how.stop) for row in _known(found)]
    return kept[0] if alone else kept


def _prompts(prompts: Any, vocabulary: int) -> tuple[list[list[int]], bool]:
    """Prompts as lists, and whether there is one that stands alone."""
    given = prompts.tolist() if hasattr(prompts, "tolist") else prompts
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
        raise _no_prompts(prompts)
    given = list(given)
    alone = bool(given) and not isinstance(given[0], (Sized, Iterable))
    rows = [_row(r, prompts) for r in ([given] if alone else given)]
    if not rows or not all(rows):
        raise ConfigError("generate: a prompt has at least one token", f"{prompts!r:.60}", "begin with a token of your own")
    low, high = min(map(min, rows)), max(map(max, rows))
    if low < 0 or high >= vocabulary:
        raise OutOfRangeError(
            f"generate: tokens of prompts lie in [0, {vocabulary})", f"tokens from {low} to {high}",
            "check the tokeniser against the model",
        )  # fmt: skip
    return rows, alone


def _row(given: Any, prompts: Any) -> list[int]:
    row = given.tolist() if hasattr(given, "tolist") else given
    if not isinstance(row, Iterable) or isinstance(row, (str, bytes, Mapping)):
        raise _no_prompts(prompts)
    row = list(row)
    if not all(isinstance(t, (int, np.integer)) and not isinstance(t, bool) for t in row):
        raise _no_prompts(prompts)
    return list(map(int, row))


def _no_prompts(prompts: Any) -> ConfigError:
    return ConfigError(
        "generate: prompts are tokens, which are ints: a list of them, or one for each prompt", f"{prompts!r:.60}",
        "encode the text first",
    )  # fmt: skip


def _within(heat: float) -> float:
    """A temperature that float32 has: one below takes the most probable token too, one above draws evenly."""
    limits = np.finfo(np.float32)
    return min(max(heat, float(limits.tiny)), float(limits.max))


def _settings(
    model: GPT,
    max_tokens: Any,
    temperature: Any,
    top_k: Any,
    top_p: Any,
    stop: Any,
    beams: Any,
    generator: Any,
    on_token: Any,
) -> _Sampling:
    heat = number("generate", "temperature", temperature)
    if not 0.0 <= heat < float("inf"):
        raise ConfigError("generate: temperature is a finite number ≥ 0", f"temperature={temperature!r}", "pass e.g. 0.8")
    if top_p is not None and not 0.0 < number("generate", "top_p", top_p) <= 1.0:
        raise ConfigError("generate: top_p lies in (0, 1]", f"top_p={top_p!r}", "pass e.g. 0.9")
    kept = None if top_k is None else min(whole("generate", "top_k", top_k, 1), model.vocabulary)
    kept = None if kept == model.vocabulary else kept  # all tokens: the draws of no setting
    stop = () if stop is None else stop
    ends = tuple(stop) if isinstance(stop, (tuple, list, set, frozenset)) else (stop,)
    ends = tuple(sorted({whole("generate", "stop", t, 0) for t in ends}))
    if ends and ends[-1] >= model.vocabulary:
        raise OutOfRangeError(
            f"generate: tokens of stop lie in [0, {model.vocabulary})",
            f"stop={stop!r:.60}",
            "check the tokeniser against the model",
        )
    width = whole("generate", "beams", beams, 1)
    if width > 1 and on_token is not None:
        raise ConfigError("generate: beams are known at the end only", "on_token with beams", "leave one of them out")
    if width > 1 and (top_k is not None or top_p is not None or heat not in (0, 1)):
        settings = "top_k, top_p or a temperature with beams"
        raise ConfigError("generate: nothing is drawn with beams", settings, "leave one of them out")
    if generator is not None and not isinstance(generator, Generator):
        raise ConfigError("generate: generator is a Generator", f"{generator!r:.60}", "pass fb.random.Generator(0)")
    if on_token is not None and not callable(on_token):
        raise ConfigError("generate: on_token is a function", f"{on_token!r:.60}", "pass one that takes a list of tokens")
    if width > model.vocabulary:
        raise ConfigError("generate: there are at most as many beams as tokens", f"beams={width}", "use fewer")
    share = None if top_p is None else float(top_p)
    return _Sampling(whole("generate", "max_tokens", max_tokens, 0), heat == 0.0, kept, share, ends, width)


def _known(tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Tokens that the model gave probabilities for."""
    if (tokens == _UNKNOWN).any():
        row = int(np.argwhere(tokens == _UNKNOWN)[0][0])
        raise ConfigError(
            "generate: logits of the next token are finite", f"NaN or infinity for prompt {row}",
            "check the model's parameters; fb.detect_anomaly() names the operation that makes the first NaN",
        )  # fmt: skip
    return tokens


def _until_stop(tokens: list[int], stop: tuple[int, ...]) -> list[int]:
    end = next((i for i, t in enumerate(tokens) if t in stop or t < 0), None)
    if end is None:
        return tokens
    return tokens[: end + 1] if tokens[end] >= 0 else tokens[:end]


# choosing a token


def _chosen(how: _Sampling, logits: Tensor, share: Tensor, heat: Tensor) -> Tensor:
    """A token for each row, from its logits and a uniform number; ``_UNKNOWN`` where the largest is not finite."""
    return where(isfinite(max_(logits, axis=-1)), _picked(how, logits, share, heat), _UNKNOWN)


def _picked(how: _Sampling, logits: Tensor, share: Tensor, heat: Tensor) -> Tensor:
    if how.greedy:
        return argmax(logits, axis=-1)
    rows = _wide(logits)
    rows = (rows - max_(rows, axis=-1, keepdims=True)) / astype(heat, rows.dtype)  # ≤ 0: small temperatures cannot overflow
    order: Tensor | None = None
    if how.top_k is not None:  # by rank, so that equal logits at the end of the list do not lengthen it
        rows, order = top_k(rows, how.top_k, axis=-1)
    if how.top_p is not None and how.top_p < 1.0:
        if order is None:
            order = argsort(rows, axis=-1, descending=True)
            rows = take_along_axis(rows, order, axis=-1)
        chances = softmax(rows, axis=-1)
        before = cumulative_sum(chances, axis=-1) - chances
        rows = where(greater_equal(before, how.top_p), _NEVER, rows)
    at = at_share(exp(rows - max_(rows, axis=-1, keepdims=True)), astype(share, rows.dtype))
    return at if order is None else take_along_axis(order, expand_dims(at, axis=-1), axis=-1)[:, 0]


def _ended(how: _Sampling, token: Tensor) -> Tensor:
    done = full_like(token, False, dtype="bool")
    for end in how.stop:
        done = logical_or(done, equal(token, end))
    return done


def _fed(token: Tensor) -> Tensor:
    """Tokens [batch, 1] for the model; instead of none, some token, whose logits nothing looks at."""
    return expand_dims(maximum(token, 0), axis=-1)


# graphs


def _start(how: _Sampling, model: GPT, tokens: Tensor, pads: Tensor) -> tuple[Tensor, GPTCache]:
    batch, n = tokens.shape
    return model.extend(tokens, model.new_cache(batch, n + how.steps), 0, pads)


def _graph(how: _Sampling) -> Any:
    """Prompts and all tokens, as one graph: tokens [batch, steps], -1 after the end of a sequence."""

    def run(model: GPT, tokens: Tensor, pads: Tensor, shares: Tensor, heat: Tensor) -> Tensor:
        n = tokens.shape[1]
        logits, cache = _start(how, model, tokens, pads)
        first = _chosen(how, logits, shares[0], heat)

        def step(token: Tensor, cache: GPTCache, at: Tensor, share: Tensor) -> tuple[Tensor, GPTCache]:
            logits, cache = model.extend(_fed(token), cache, at, pads)
            return _chosen(how, logits, share, heat), cache

        places = arange(n, n + how.steps - 1, device=tokens.device)
        if not how.stop:

            def one(carry: tuple[Tensor, GPTCache], x: tuple[Tensor, Tensor]) -> tuple[tuple[Tensor, GPTCache], Tensor]:
                token, cache = step(*carry, *x)
                return (token, cache), token

            if how.steps == 1:
                return expand_dims(first, axis=-1)
            _, others = scan(one, (first, cache), (places, shares[1:]))
            return matrix_transpose(concat([expand_dims(first, axis=0), others], axis=0))

        def more(carry: Any) -> Tensor:
            count, done, *_ = carry
            return logical_and(less(count, how.steps), logical_not(all_(done)))

        def body(carry: Any) -> Any:
            count, done, token, cache, out = carry
            share = take(shares, reshape(count, (1,)), axis=0)[0]
            token, cache = step(token, cache, count + (n - 1), share)
            token = where(done, -1, token)
            out = index_copy(out, reshape(count, (1,)), expand_dims(token, axis=0), axis=0)
            return count + 1, logical_or(done, _ended(how, token)), token, cache, out

        out = full((how.steps, tokens.shape[0]), -1, dtype=int64, device=tokens.device)
        out = index_copy(out, zeros(1, dtype=int64, device=tokens.device), expand_dims(first, axis=0), axis=0)
        one_more = full((), 1, dtype=int64, device=tokens.device)
        found = while_loop(more, body, (one_more, _ended(how, first), first, cache, out))
        return matrix_transpose(found[4])

    return jit(run)


def _two_graphs(how: _Sampling) -> tuple[Any, Any]:
    """The prompts, and one token."""

    def begin(model: GPT, tokens: Tensor, pads: Tensor, share: Tensor, heat: Tensor) -> tuple[Tensor, GPTCache]:
        logits, cache = _start(how, model, tokens, pads)
        return _chosen(how, logits, share, heat), cache

    def step(
        model: GPT, token: Tensor, cache: GPTCache, at: Tensor, pads: Tensor, share: Tensor, heat: Tensor
    ) -> tuple[Tensor, GPTCache]:  # fmt: skip
        logits, cache = model.extend(_fed(token), cache, at, pads)
        return _chosen(how, logits, share, heat), cache

    return jit(begin), jit(step)


def _streamed(
    how: _Sampling, model: GPT, tokens: Tensor, pads: Tensor, shares: Tensor, heat: Tensor, on_token: Callable[[list[int]], Any]
) -> np.ndarray[Any, Any]:  # fmt: skip
    begin, step = _compiled(model, how, _two_graphs)
    token, cache = begin(model, tokens, pads, shares[0], heat)
    done = np.zeros(tokens.shape[0], bool)
    out = []
    for i in range(how.steps):
        found = _known(np.where(done, -1, token.numpy()))
        out.append(found)
        enough = on_token(found.tolist()) is True  # and nothing else: callbacks such as `queue.put` return what they like
        done |= np.isin(found, how.stop)
        if enough or done.all() or i + 1 == how.steps:
            break
        at: Tensor = hooks.from_host(np.asarray(tokens.shape[1] + i), tokens.device)
        token, cache = step(model, token, cache, at, pads, shares[i + 1], heat)
    return np.stack(out, axis=1)


def _beam_graph(how: _Sampling) -> Any:
    """The most probable of several sequences for each prompt: tokens [batch, steps], -1 after the end."""

    def run(model: GPT, tokens: Tensor, pads: Tensor, shares: Tensor, heat: Tensor) -> Tensor:
        (batch, n), width, device = tokens.shape, how.beams, tokens.device
        logits, cache = _start(how, model, tokens, pads)
        size = logits.shape[-1]
        first = top_k(log_softmax(logits, axis=-1), width, axis=-1)
        scores, token = first.values, first.indices
        cache = GPTCache(*(tuple(repeat(t, width, axis=0) for t in part) for part in cache))
        wide_pads = repeat(pads, width, axis=0)
        out = full((batch, width, how.steps), -1, dtype=int64, device=device)
        out = _put(out, token, zeros((), dtype=int64, device=device))
        rows = expand_dims(arange(batch, device=device) * width, axis=-1)
        # an ended sequence goes on with nothing but one token of probability 1
        only = where(equal(arange(size, device=device), 0), 0.0, _NEVER)

        def step(carry: Any, at: Tensor) -> tuple[Any, None]:
            scores, token, done, cache, out = carry
            fed = reshape(where(done, 0, token), (batch * width, 1))
            logits, cache = model.extend(fed, cache, at, wide_pads)
            steps = reshape(log_softmax(logits, axis=-1), (batch, width, size))
            steps = where(expand_dims(done, axis=-1), astype(only, steps.dtype), steps)
            best = top_k(reshape(expand_dims(scores, axis=-1) + steps, (batch, width * size)), width, axis=-1)
            beam, token = floor_divide(best.indices, size), remainder(best.indices, size)
            done = take_along_axis(done, beam, axis=-1)
            token = where(done, -1, token)
            order = reshape(rows + beam, (batch * width,))
            cache = GPTCache(*(tuple(take(t, order, axis=0) for t in part) for part in cache))
            out = take(reshape(out, (batch * width, how.steps)), order, axis=0)
            out = _put(reshape(out, (batch, width, how.steps)), token, at - (n - 1))
            return (best.values, token, logical_or(done, _ended(how, token)), cache, out), None

        start = scores, token, _ended(how, token), cache, out
        if how.steps > 1:
            start, _ = scan(step, start, arange(n, n + how.steps - 1, device=device))
        return where(isnan(start[0][:, :1]), _UNKNOWN, start[4][:, 0])

    return jit(run)


def _put(out: Tensor, token: Tensor, at: Tensor) -> Tensor:
    return index_copy(out, reshape(at, (1,)), expand_dims(token, axis=-1), axis=2)


__all__ = ["generate"]
