"""``python -m benchmarks.transformations``: ``vmap``, Jacobians, Hessians and forward mode under ``jit``, beside JAX.

Gradients of each example of two networks, a Hessian in both modes, solving one system for each example, and a ``jvp``, whose
time is also given as a multiple of the function's. Both libraries have one core, take turns, and must agree.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.__main__ import confine

EXAMPLES = 64
Works = dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]


def _arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray[Any, Any]:
        return (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)

    return {
        "mlp": [drawn(784, 256), drawn(256), drawn(256, 10), drawn(10)], "rows": drawn(EXAMPLES, 784),
        "along": drawn(EXAMPLES, 784),
        "cnn": [drawn(8, 1, 3, 3), drawn(16, 8, 3, 3), drawn(16 * 49, 10)], "images": drawn(EXAMPLES, 1, 28, 28),
        "labels": rng.integers(0, 10, EXAMPLES), "small": [drawn(32, 16), drawn(32), drawn(32, 32), drawn(32), drawn(1, 32)],
        "point": drawn(16), "matrices": drawn(128, 64, 64) + 20.0 * np.eye(64, dtype=np.float32), "sides": drawn(128, 64),
    }  # fmt: skip


def firebrick() -> Works:
    """Our side."""
    import firebrick as fb

    a = fb.tree_map(fb.asarray, _arrays())

    def mlp(p: Any, x: Any) -> Any:
        return fb.relu(x @ p[0] + p[1]) @ p[2] + p[3]

    def mlp_loss(p: Any, x: Any, y: Any) -> Any:
        return fb.cross_entropy(mlp(p, x)[None], y[None])

    def cnn_loss(p: Any, x: Any, y: Any) -> Any:
        h = fb.max_pool2d(fb.relu(fb.conv2d(x[None], p[0], padding=1)), 2)
        h = fb.max_pool2d(fb.relu(fb.conv2d(h, p[1], padding=1)), 2)
        return fb.cross_entropy(fb.reshape(h, (1, -1)) @ p[2], y[None])

    def energy(x: Any, p: Any) -> Any:
        return fb.sum((p[4] @ fb.tanh(p[2] @ fb.tanh(p[0] @ x + p[1]) + p[3])) ** 2.0)

    each = (None, 0, 0)
    return {
        "gradients of 64 examples, MLP": (fb.jit(fb.vmap(fb.grad(mlp_loss), each)), (a["mlp"], a["rows"], a["labels"])),
        "gradients of 64 examples, CNN": (fb.jit(fb.vmap(fb.grad(cnn_loss), each)), (a["cnn"], a["images"], a["labels"])),
        "Hessian [16, 16]": (fb.jit(fb.hessian(energy)), (a["point"], a["small"])),
        "Jacobian [10, 784] by rows": (fb.jit(fb.jacobian(lambda x, p: mlp(p, x))), (a["rows"][0], a["mlp"])),
        "128 systems of 64": (fb.jit(fb.vmap(fb.linalg.solve)), (a["matrices"], a["sides"])),
        "MLP": (fb.jit(mlp), (a["mlp"], a["rows"])),
        "jvp of the MLP": (fb.jit(lambda p, x, t: fb.jvp(lambda x: mlp(p, x), (x,), (t,))), (a["mlp"], a["rows"], a["along"])),
    }  # fmt: skip


def jax() -> Works:
    """JAX's side."""
    import jax
    import jax.numpy as jnp

    a = jax.tree.map(jnp.asarray, _arrays())

    def mlp(p: Any, x: Any) -> Any:
        return jax.nn.relu(x @ p[0] + p[1]) @ p[2] + p[3]

    def mlp_loss(p: Any, x: Any, y: Any) -> Any:
        return -jax.nn.log_softmax(mlp(p, x))[y]

    def pooled(h: Any) -> Any:
        return jax.lax.reduce_window(jax.nn.relu(h), -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def cnn_loss(p: Any, x: Any, y: Any) -> Any:
        h = pooled(jax.lax.conv_general_dilated(x[None], p[0], (1, 1), ((1, 1), (1, 1))))
        h = pooled(jax.lax.conv_general_dilated(h, p[1], (1, 1), ((1, 1), (1, 1))))
        return -jax.nn.log_softmax((h.reshape(1, -1) @ p[2])[0])[y]

    def energy(x: Any, p: Any) -> Any:
        return jnp.sum((p[4] @ jnp.tanh(p[2] @ jnp.tanh(p[0] @ x + p[1]) + p[3])) ** 2.0)

    each = (None, 0, 0)
    return {
        "gradients of 64 examples, MLP": (jax.jit(jax.vmap(jax.grad(mlp_loss), each)), (a["mlp"], a["rows"], a["labels"])),
        "gradients of 64 examples, CNN": (jax.jit(jax.vmap(jax.grad(cnn_loss), each)), (a["cnn"], a["images"], a["labels"])),
        "Hessian [16, 16]": (jax.jit(jax.hessian(energy)), (a["point"], a["small"])),
        "Jacobian [10, 784] by rows": (jax.jit(jax.jacrev(lambda x, p: mlp(p, x))), (a["rows"][0], a["mlp"])),
        "128 systems of 64": (jax.jit(jax.vmap(jnp.linalg.solve)), (a["matrices"], a["sides"])),
        "MLP": (jax.jit(mlp), (a["mlp"], a["rows"])),
        "jvp of the MLP": (jax.jit(lambda p, x, t: jax.jvp(lambda x: mlp(p, x), (x,), (t,))),
                           (a["mlp"], a["rows"], a["along"])),
    }  # fmt: skip


def _read(result: Any) -> list[np.ndarray[Any, Any]]:
    """Arrays of a result; the call is over when they are there."""
    if isinstance(result, list | tuple):
        return [a for part in result for a in _read(part)]
    return [np.asarray(result)]


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names, or their beginnings")
    parser.add_argument("--processor", action="store_true", help="processor time, on a machine that others use too")
    args = parser.parse_args()
    confine(1)
    clock = process_time if args.processor else perf_counter
    ours, theirs = firebrick(), jax()
    print("| work | firebrick ms | JAX ms | ratio |\n|---|---|---|---|")
    times: dict[str, float] = {}
    for name, (fn, given) in ours.items():
        if args.only and not name.startswith(tuple(args.only)):
            continue
        peer, other = theirs[name]
        for a, b in zip(_read(fn(*given)), _read(peer(*other)), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)
        taken: list[list[float]] = [[], []]
        for _ in range(args.rounds):
            for k, (f, x) in enumerate(((fn, given), (peer, other))):
                begun = clock()
                _read(f(*x))
                taken[k].append(clock() - begun)
        first, second = (1e3 * median(t) for t in taken)
        ratio = median(a / b for a, b in zip(*taken, strict=True))
        times[name] = first
        print(f"| {name} | {first:.3f} | {second:.3f} | {ratio:.2f} |")
    if {"MLP", "jvp of the MLP"} <= times.keys():
        print(f"\nThe jvp of the MLP takes {times['jvp of the MLP'] / times['MLP']:.2f} × the MLP.")


if __name__ == "__main__":
    main()
