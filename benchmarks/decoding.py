"""``python -m benchmarks.decoding``: tokens that a language model generates in a second, beside PyTorch and JAX.

One GPT with the same weights everywhere (rotary positions, RMSNorm, SwiGLU, a cache of keys and values), for one sequence and
for 16, always the most probable token. Ours is ``fb.models.generate``; PyTorch is a loop over tokens with a cache, eager and
with a compiled step; JAX is one compiled ``scan``. All have one core, take turns, and must give the same tokens.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.__main__ import confine

PROMPT = 16
Tokens = np.ndarray[Any, Any]
Contender = Callable[[Tokens, int], Tokens]


def model_of(dim: int, layers: int, heads: int, vocabulary: int, length: int) -> Any:
    """The model, with weights that are large enough for tokens to differ."""
    import firebrick as fb

    fb.random.seed(0)
    model = fb.models.GPT(vocabulary, length=length, dim=dim, heads=heads, layers=layers).eval()
    for p in model.parameters():
        if p.ndim > 1:
            p[...] = p.detach() * 2.0
    return model


def firebrick(model: Any) -> Contender:
    """Ours: prompts and all tokens as one graph."""
    import firebrick as fb

    return lambda prompts, count: np.asarray(fb.models.generate(model, prompts.tolist(), max_tokens=count, temperature=0.0))


def _rotations(model: Any) -> tuple[Tokens, Tokens]:
    half = model.dim // model.heads // 2
    angles = np.outer(np.arange(model.length), model.base ** (-np.arange(half) / half))
    return np.sin(angles).astype(np.float32), np.cos(angles).astype(np.float32)


def torch(model: Any, compiled: bool) -> Contender:
    """PyTorch: a step a token with a cache, whose filled part is read in eager mode and masked in the compiled step."""
    import torch as t

    f, heads, dim, length = t.nn.functional, model.heads, model.dim, model.length
    weights = {n: t.tensor(v.numpy()) for n, v in model.state_dict().items()}
    blocks = [
        {n.removeprefix(f"blocks.{i}."): w for n, w in weights.items() if n.startswith(f"blocks.{i}.")}
        for i in range(len(model.blocks))
    ]
    for b in blocks:  # one product for queries, keys and values
        b["qkv"] = t.cat([b[f"{n}.weight"] for n in ("query", "key", "value")])
    sines, cosines = map(t.tensor, _rotations(model))

    def norm(x: Any, weight: Any) -> Any:
        return f.rms_norm(x, (dim,), weight, 1e-5)

    def turned(x: Any, s: Any, c: Any) -> Any:
        a, b = x.chunk(2, -1)
        return t.cat([a * c - b * s, a * s + b * c], -1)

    def step(tokens: Any, cache: list[tuple[Any, Any]], at: Any, seen: Any, filled: int | None) -> Any:
        x = weights["embed.weight"][tokens]
        batch, n, _ = x.shape
        s, c = sines[at], cosines[at]
        for b, (keys, values) in zip(blocks, cache, strict=True):
            q, k, v = (
                p.view(batch, n, heads, -1).transpose(1, 2) for p in (norm(x, b["norm1.weight"]) @ b["qkv"].T).chunk(3, -1)
            )
            keys[:, :, at], values[:, :, at] = turned(k, s, c), v
            y = f.scaled_dot_product_attention(turned(q, s, c), keys[:, :, :filled], values[:, :, :filled], attn_mask=seen)
            x = x + y.transpose(1, 2).reshape(batch, n, dim) @ b["out.weight"].T
            gate, up = (norm(x, b["norm2.weight"]) @ b["feed.linear1.weight"].T).chunk(2, -1)
            x = x + (f.silu(gate) * up) @ b["feed.linear2.weight"].T
        return (norm(x[:, -1], weights["norm.weight"]) @ weights["embed.weight"].T).argmax(-1)

    one = t.compile(step, dynamic=False) if compiled else step

    def run(prompts: Tokens, count: int) -> Tokens:
        batch, n = prompts.shape
        slots = n + count
        with t.inference_mode():
            cache = [tuple(t.zeros(batch, heads, slots, dim // heads) for _ in range(2)) for _ in blocks]
            order = t.arange(slots)
            token = step(t.tensor(prompts), cache, order[:n], t.ones(n, n, dtype=t.bool).tril(), n)  # type: ignore[arg-type]
            found = [token]
            for i in range(n, slots - 1):
                if compiled:  # one shape for all tokens
                    token = one(token[:, None], cache, order[i : i + 1].clone(), (order <= i)[None], None)
                else:
                    token = one(token[:, None], cache, order[i : i + 1], None, i + 1)
                found.append(token)
            return np.asarray(t.stack(found, 1))

    assert length >= PROMPT
    return run


def jax(model: Any) -> Contender:
    """JAX: the prompts, and a scan over tokens with a cache of a fixed length, in one compiled function."""
    from functools import partial

    import jax as j
    import jax.numpy as jnp

    heads, dim = model.heads, model.dim
    weights = {n: jnp.asarray(v.numpy()) for n, v in model.state_dict().items()}
    count_of_blocks = len(model.blocks)
    sines, cosines = map(jnp.asarray, _rotations(model))

    def norm(x: Any, weight: Any) -> Any:
        return x * j.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight

    def turned(x: Any, s: Any, c: Any) -> Any:
        a, b = jnp.split(x, 2, -1)
        return jnp.concatenate([a * c - b * s, a * s + b * c], -1)

    def step(w: Any, tokens: Any, cache: Any, start: Any) -> Any:
        x = w["embed.weight"][tokens]
        batch, n, _ = x.shape
        at = start + jnp.arange(n)
        s, c = sines[at], cosines[at]
        seen = jnp.arange(cache[0][0].shape[2]) <= at[:, None]
        new = []
        for i in range(count_of_blocks):
            b = {k.removeprefix(f"blocks.{i}."): v for k, v in w.items() if k.startswith(f"blocks.{i}.")}
            y = norm(x, b["norm1.weight"])
            q, k, v = (
                (y @ b[f"{p}.weight"].T).reshape(batch, n, heads, -1).transpose(0, 2, 1, 3) for p in ("query", "key", "value")
            )
            q, k = turned(q, s, c), turned(k, s, c)
            keys, values = (
                j.lax.dynamic_update_slice(old, u, (0, 0, start, 0)) for old, u in zip(cache[i], (k, v), strict=True)
            )
            new.append((keys, values))
            scores = jnp.where(seen, q @ keys.transpose(0, 1, 3, 2) / np.sqrt(dim // heads), -jnp.inf)
            y = (j.nn.softmax(scores) @ values).transpose(0, 2, 1, 3).reshape(batch, n, dim)
            x = x + y @ b["out.weight"].T
            gate, up = jnp.split(norm(x, b["norm2.weight"]) @ b["feed.linear1.weight"].T, 2, -1)
            x = x + (j.nn.silu(gate) * up) @ b["feed.linear2.weight"].T
        logits = norm(x[:, -1], w["norm.weight"]) @ w["embed.weight"].T
        return logits.argmax(-1), new

    @partial(j.jit, static_argnums=2)
    def run(w: Any, prompts: Any, count: int) -> Any:
        batch, n = prompts.shape
        empty = jnp.zeros((batch, heads, n + count, dim // heads))
        first, cache = step(w, prompts, [(empty, empty)] * count_of_blocks, 0)

        def one(carry: Any, at: Any) -> Any:
            token, cache = carry
            token, cache = step(w, token[:, None], cache, at)
            return (token, cache), token

        _, others = j.lax.scan(one, (first, cache), jnp.arange(n, n + count - 1))
        return jnp.concatenate([first[:, None], others.T], 1)

    return lambda prompts, count: np.asarray(run(weights, jnp.asarray(prompts), count))


def contenders(model: Any, compiled_peers: bool) -> dict[str, Contender]:
    """All that are installed, by name."""
    found = {"firebrick": firebrick(model)}
    if find_spec("torch"):
        found["torch"] = torch(model, False)
        if compiled_peers:
            found["torch.compile"] = torch(model, True)
    if find_spec("jax"):
        found["jax.jit"] = jax(model)
    return found


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser("python -m benchmarks.decoding", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 16])
    for name, value in (("dim", 256), ("layers", 4), ("heads", 8), ("vocabulary", 1024)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--no-compile-peers", action="store_true", help="leave torch.compile out")
    parser.add_argument("--processor-time", action="store_true", help="measure that, on a machine that others use too")
    args = parser.parse_args()
    confine(1)
    clock = process_time if args.processor_time else perf_counter
    model = model_of(args.dim, args.layers, args.heads, args.vocabulary, PROMPT + args.tokens)
    if find_spec("torch"):
        import torch as t

        t.set_num_threads(1)
    size = sum(p.size for p in model.parameters())
    print(f"{size:,} parameters ({size * 4 / 2**20:.1f} MiB), prompts of {PROMPT} tokens, {args.tokens} new tokens, one core\n")
    print("| sequences | contender | tokens/s | ms a token of each | times the best peer |\n|---|---|---|---|---|")
    for batch in args.sequences:
        prompts = np.random.default_rng(batch).integers(0, args.vocabulary, (batch, PROMPT))
        fns = contenders(model, not args.no_compile_peers)
        want = fns["firebrick"](prompts, args.tokens)
        for name, fn in list(fns.items()):
            try:
                got = fn(prompts, args.tokens)
            except Exception as e:  # noqa: BLE001  a peer that cannot run here is left out by name
                print(f"| {batch} | {name} | left out: {type(e).__name__}: {str(e).splitlines()[0]:.80} | | |")
                del fns[name]
                continue
            if (got != want).any():
                raise SystemExit(f"{name} gives other tokens: {(got != want).mean():.2%} of them")
        taken: dict[str, list[float]] = {n: [] for n in fns}
        for _ in range(args.rounds):
            for name, fn in fns.items():
                begun = clock()
                fn(prompts, args.tokens)
                taken[name].append(clock() - begun)
        seconds = {n: median(t) for n, t in taken.items()}
        peers = [s for n, s in seconds.items() if n != "firebrick"]
        for name, s in seconds.items():
            against = f"{min(peers) / s:.2f}" if peers else ""
            print(f"| {batch} | {name} | {batch * args.tokens / s:,.0f} | {1e3 * s / args.tokens:.3f} | {against} |")


if __name__ == "__main__":
    main()
