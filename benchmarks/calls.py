"""``python -m benchmarks.calls``: host time of a warm call of a compiled function, by the number of tensors that it reads or
changes.

GPTs of several depths and a tiny width: the forward pass, which reads the parameters, and a training step with Adam, which
changes them, their moments and a counter. Host time is processor time of calls in which the native code of kernels is left out,
so what remains is the key, the check that nothing captured has changed, addresses of buffers, and the commit of new state.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time
from typing import Any

import numpy as np

from benchmarks.__main__ import confine

LAYERS = (4, 12, 24, 48)
VOCABULARY, LENGTH = 16, 4


def calls_of(layers: int) -> tuple[int, Callable[[], Any], Callable[[], Any]]:
    """The number of parameters of a GPT, a call of its forward pass, and a training step; both have run."""
    import firebrick as fb

    fb.random.seed(0)
    model = fb.models.GPT(VOCABULARY, length=LENGTH, dim=8, heads=1, layers=layers)
    optimizer = fb.optim.Adam(model, lr=1e-3)
    tokens, targets = fb.asarray(np.arange(LENGTH)[None]), fb.asarray(np.arange(LENGTH))
    gradient = fb.value_and_grad(lambda m, x, y: fb.cross_entropy(fb.reshape(m(x), (-1, VOCABULARY)), y))

    @fb.jit
    def step(x: Any, y: Any) -> Any:
        loss, gradients = gradient(model, x, y)
        optimizer.update(model, gradients)
        return loss

    forward = fb.jit(model)
    for _ in range(2):
        forward(tokens), step(tokens, targets)
    return len(model.parameters()), lambda: forward(tokens), lambda: step(tokens, targets)


@contextmanager
def without_kernels() -> Iterator[None]:
    """Leave the native code of segments out: results are whatever their memory held."""
    from firebrick.backends.cpu.runtime.segment import Segment

    kept = Segment.__call__
    Segment.__call__ = lambda self, bufs, pool=None: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Segment.__call__ = kept  # type: ignore[method-assign]


def taken(calls: dict[Any, Callable[[], Any]], rounds: int, seconds: float) -> dict[Any, float]:
    """Microseconds of processor time of each call: the least of some rounds, in turn, of ``seconds`` each."""
    counts: dict[Any, int] = {}
    for name, call in calls.items():
        begun = process_time()
        for _ in range(5):
            call()
        counts[name] = max(5, int(seconds * 5 / max(process_time() - begun, 1e-6)))
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            begun = process_time()
            for _ in range(counts[name]):
                call()
            least[name] = min(least[name], (process_time() - begun) / counts[name] * 1e6)
    return least


def main() -> None:
    """Measure and print a table, and what each tensor adds."""
    parser = argparse.ArgumentParser("python -m benchmarks.calls", description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--layers", type=int, nargs="+", default=list(LAYERS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.03, help="of each call in a round (0.03)")
    args = parser.parse_args()
    confine(1)
    counts: dict[int, int] = {}
    calls: dict[Any, Callable[[], Any]] = {}
    for layers in args.layers:
        counts[layers], calls[layers, "forward"], calls[layers, "step"] = calls_of(layers)
    whole = taken(calls, args.rounds, args.seconds)
    with without_kernels():
        host = taken(calls, args.rounds, args.seconds)
    print("| layers | tensors read | forward, host | with kernels | tensors changed | training step, host | with kernels |")
    print("|---|---|---|---|---|---|---|")
    for layers, count in counts.items():
        cells = [f"{t[layers, what]:.1f} µs" for what in ("forward", "step") for t in (host, whole)]
        print(f"| {layers} | {count} | {cells[0]} | {cells[1]} | {3 * count + 1} | {cells[2]} | {cells[3]} |")
    if len(counts) > 1:
        few, many = min(counts), max(counts)
        more = counts[many] - counts[few]
        each = {what: (host[many, what] - host[few, what]) / more for what in ("forward", "step")}
        print(f"\neach tensor more that a call reads {each['forward']:.3f} µs, that it changes {each['step'] / 3:.3f} µs")


if __name__ == "__main__":
    main()
