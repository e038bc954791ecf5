"""``python -m benchmarks.compiling``: how long the first result of a program takes, by the size of the program, beside JAX.

Two programs: the training step of a transformer of so many layers, and Adam's update of so many parameter tensors of ten
shapes. Each is traced, compiled and run once in a process of its own, with an empty cache of compiled code and then with the
one that this left; what is read is the time from the call to its result, imports and building the model are not in it. Sizes
are small, so that computing takes no time. Contenders alternate; figures are medians of the rounds. With ``--processor`` they
are the time that the calling thread had on a processor, for machines that do other work meanwhile: that of Firebrick, which
then gets one thread and does all of it there, but not of JAX.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from benchmarks.processes import CACHES

LAYERS, TENSORS = (2, 8, 24, 48), (500, 1000, 2000, 10000)
WIDTH, HEADS, WORDS, BATCH, TOKENS = 64, 4, 100, 4, 32
SHAPES = [(4 + i, 8) for i in range(10)]
"""Of the parameters whose update is compiled, in turns."""


def firebrick(what: str, count: int) -> Callable[[], Any]:
    """A call of one of the programs."""
    import firebrick as fb
    from firebrick import nn, optim

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.attention = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, HEADS)
            self.between, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: fb.Tensor) -> fb.Tensor:
            x = x + self.attention(self.before(x))
            return x + self.down(fb.gelu(self.up(self.between(x))))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
            self.blocks = nn.Sequential(*(Block() for _ in range(count)))

        def forward(self, tokens: fb.Tensor) -> fb.Tensor:
            return self.out(self.blocks(self.embed(tokens)))

    class Tensors(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i in range(count):
                setattr(self, f"p{i}", nn.Parameter(fb.ones(SHAPES[i % len(SHAPES)])))

    fb.random.seed(0)
    if what == "layers":
        model: nn.Module = Transformer()
        tokens = fb.asarray(np.random.default_rng(0).integers(0, WORDS, (BATCH, TOKENS)))

        def loss(model: nn.Module) -> fb.Tensor:
            return fb.cross_entropy(fb.reshape(model(tokens), (-1, WORDS)), fb.reshape(tokens, (-1,)))

        @fb.jit
        def step(model: nn.Module, optimizer: optim.Adam) -> fb.Tensor:
            value, grads = fb.value_and_grad(loss)(model)
            optimizer.update(model, grads)
            return value

        optimizer = optim.Adam(model)
        return lambda: float(step(model, optimizer))
    model = Tensors()
    optimizer = optim.Adam(model)
    grads = fb.grad(lambda m: sum((fb.sum(p) for p in m.parameters()), fb.zeros(())))(model)

    @fb.jit
    def update(model: nn.Module, optimizer: optim.Adam, grads: Any) -> fb.Tensor:
        optimizer.update(model, grads)
        return fb.zeros(())

    return lambda: float(update(model, optimizer, grads))


def jax(what: str, count: int) -> Callable[[], Any]:
    """The same in JAX."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return jnp.asarray(rng.normal(size=shape) * 0.05, jnp.float32)

    def adam(params: Any, moments: Any, grads: Any, number: Any) -> tuple[Any, Any]:
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], grads)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], grads)
        rate = 1e-3 / (1 - 0.9**number)
        scale = 1 - 0.999**number
        params = jax.tree.map(lambda p, m, v: p - rate * m / (jnp.sqrt(v / scale) + 1e-8), params, first, second)
        return params, (first, second)

    def norm(p: Any, x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p["weight"] + p["bias"]

    def block(p: Any, x: Any) -> Any:
        qkv = norm(p["before"], x) @ p["qkv"]
        q, k, v = (t.reshape(BATCH, TOKENS, HEADS, -1).swapaxes(1, 2) for t in jnp.split(qkv, 3, -1))
        weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / (WIDTH // HEADS) ** 0.5)
        x = x + (weights @ v).swapaxes(1, 2).reshape(BATCH, TOKENS, WIDTH) @ p["out"]
        return x + jax.nn.gelu(norm(p["between"], x) @ p["up"] + p["one"]) @ p["down"] + p["two"]

    if what == "layers":
        scales = lambda: {"weight": jnp.ones(WIDTH), "bias": jnp.zeros(WIDTH)}  # noqa: E731
        blocks = [
            {
                "before": scales(), "between": scales(), "qkv": drawn(WIDTH, 3 * WIDTH), "out": drawn(WIDTH, WIDTH),
                "up": drawn(WIDTH, 4 * WIDTH), "one": drawn(4 * WIDTH), "down": drawn(4 * WIDTH, WIDTH), "two": drawn(WIDTH),
            }
            for _ in range(count)
        ]  # fmt: skip
        params: Any = {"embed": drawn(WORDS, WIDTH), "head": drawn(WIDTH, WORDS), "blocks": blocks}
        tokens = jnp.asarray(rng.integers(0, WORDS, (BATCH, TOKENS)))

        def loss(params: Any) -> Any:
            x = params["embed"][tokens]
            for p in params["blocks"]:
                x = block(p, x)
            scores = jax.nn.log_softmax(x @ params["head"])
            return -jnp.take_along_axis(scores, tokens[..., None], -1).mean()

        @jax.jit
        def step(params: Any, moments: Any, number: Any) -> Any:
            value, grads = jax.value_and_grad(loss)(params)
            return value, adam(params, moments, grads, number)
    else:
        params = [jnp.ones(SHAPES[i % len(SHAPES)], jnp.float32) for i in range(count)]

        @jax.jit
        def step(params: Any, moments: Any, number: Any) -> Any:
            return jnp.zeros(()), adam(params, moments, params, number)

    zeros = jax.tree.map(jnp.zeros_like, params)
    jax.block_until_ready(zeros)
    return lambda: jax.block_until_ready(step(params, (zeros, zeros), jnp.float32(1.0)))


CONTENDERS: dict[str, tuple[Callable[[str, int], Callable[[], Any]], str]] = {
    "firebrick": (firebrick, "firebrick"), "jax.jit": (jax, "jax.jit"),
}  # fmt: skip


def seconds(name: str, what: str, count: int, folder: str, processor: bool = False) -> float:
    """Of the first result in a process of its own, with this folder as the cache of compiled code."""
    variable, more = CACHES[name]
    one = {"FIREBRICK_NUM_THREADS": "1"} if processor else {}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compiling", "--one", name, what, str(count), *["--processor"] * processor],
        env={**os.environ, variable: folder, **more, **one}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(
            f"{name}, {count} {what}: {done.stderr.strip().splitlines()[-1] if done.stderr else done.returncode}"
        )
    return float(done.stdout.split()[-1])


def table(found: dict[tuple[str, int, str, str], list[float]], names: list[str]) -> list[str]:
    """Lines of Markdown: for each program and contender seconds cold and from the cache."""
    cells = [f"{name}{how}" for name in names for how in ("", ", cached")]
    lines = [f"| program | {' | '.join(cells)} |", f"|{' --- |' * (len(cells) + 1)}"]
    for what, count in dict.fromkeys((w, c) for w, c, _, _ in found):
        row = [found.get((what, count, name, how), []) for name in names for how in ("cold", "cached")]
        lines.append(f"| {count:,} {what} | {' | '.join(f'{statistics.median(t):.2f} s' if t else '-' for t in row)} |")
    return lines


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="*", default=LAYERS, help="of the transformer")
    parser.add_argument("--tensors", type=int, nargs="*", default=TENSORS, help="parameters of the update")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=[*CONTENDERS], default=[*CONTENDERS], help="contenders")
    parser.add_argument("--processor", action="store_true", help="time of the calling thread on a processor")
    parser.add_argument("--one", nargs=3, metavar=("CONTENDER", "PROGRAM", "COUNT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        name, what, count = args.one
        run = CONTENDERS[name][0](what, int(count))
        clock = thread_time if args.processor else perf_counter
        begun = clock()
        run()
        print(clock() - begun)
        return
    found: dict[tuple[str, int, str, str], list[float]] = {}
    for what, counts in (("layers", args.layers), ("tensors", args.tensors)):
        for count in counts:
            for _ in range(args.rounds):
                for name in args.only:
                    with tempfile.TemporaryDirectory() as folder:
                        for how in ("cold", "cached"):
                            taken = seconds(name, what, count, folder, args.processor)
                            found.setdefault((what, count, name, how), []).append(taken)
            print(*table({k: v for k, v in found.items() if k[:2] == (what, count)}, args.only)[2:], sep="\n", flush=True)
    print("", *table(found, args.only), sep="\n")


if __name__ == "__main__":
    main()
