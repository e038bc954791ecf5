"""Random programs of ``while_loop`` on ``cpu``, whose first carries share memory with each other, with arguments and with what
the loop reads: results of several calls and the state they change are those of plain loops on NumPy's engine, exactly."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn

Values = list[fb.Tensor]
Step = Callable[[Values], fb.Tensor]


def small(t: fb.Tensor) -> fb.Tensor:
    return fb.clip(t, -50, 50)  # integers, so that every order of operations gives the same bits


def line(r: random.Random, known: int) -> Step:
    """A value of earlier ones, all [size, 2]; the later ones are taken more often."""
    i, j = (known - 1 - min(r.randrange(known), r.randrange(known)) for _ in range(2))
    k = r.randrange(3)
    return r.choice([
        lambda e: small(e[i] + e[j]), lambda e: small(e[i] - e[j]), lambda e: fb.maximum(e[i], e[j]), lambda e: e[i] + 0,
        lambda e: small(e[i] + k), lambda e: fb.flip(e[i], axis=k % 2), lambda e: e[i], lambda e: small(e[i][:1] + e[j]),
        lambda e: fb.reshape(fb.reshape(e[i], (2, -1)).mT, e[i].shape), lambda e: e[i] * 0 + k,
        lambda e: fb.concat([small(e[i] + 1), e[j]], axis=0)[e[i].shape[0] :],
        lambda e: fb.concat([e[j], small(e[i] + 1)], axis=0)[1 : e[i].shape[0] + 1],
    ])  # fmt: skip


def loop(r: random.Random, known: int, depth: int) -> Callable[[Values, bool], Values]:
    """The known values with the results of a loop of their last ones, some of them twice; ``compiled`` or as a plain loop."""
    first = [known - 1 - min(r.randrange(known), r.randrange(known)) for _ in range(r.randint(1, 3))]
    first += r.choices(first, k=r.randrange(2))
    inner = known + len(first)
    steps = [line(r, inner + k) for k in range(r.randint(1, 4))]
    nested = loop(r, inner + len(steps), depth - 1) if depth and r.random() < 0.4 else None
    end = inner + len(steps)
    after = [r.choice([r.randrange(known, end), r.randrange(known, inner), end - 1]) for _ in first]
    rounds = r.choice([0, 1, 2, 3, 6])

    def run(e: Values, compiled: bool) -> Values:
        def body(c: tuple[fb.Tensor, ...]) -> tuple[fb.Tensor, ...]:
            now = [*e, *c[1:]]
            for step in steps:
                now.append(step(now))
            found = now if nested is None else nested(now, compiled)
            return c[0] + 1, *(small(found[k] + found[-1]) if k == end - 1 else found[k] for k in after)

        carry = (fb.asarray(0, dtype=fb.int32, device=e[0].device), *(e[k] for k in first))
        if compiled:
            carry = fb.while_loop(lambda c: c[0] < rounds, body, carry)
        else:
            for _ in range(rounds):
                carry = body(carry)
        return [*e, *carry[1:]]

    run.many = inner  # type: ignore[attr-defined]
    return run


def check(seed: int) -> None:
    r = random.Random(seed)
    size, dtype = r.choice([1, 2, 3, 16, 33, 4000]), r.choice([fb.float32, fb.float32, fb.int32, fb.int64])
    parts: list[Callable[[Values, bool], Values]] = []
    known = 4
    for _ in range(r.randint(1, 3)):
        for _ in range(r.randint(0, 3)):
            step = line(r, known)
            parts.append(lambda e, _, step=step: [*e, step(e)])  # type: ignore[misc]
            known += 1
        parts.append(loop(r, known, 1))
        known = parts[-1].many  # type: ignore[attr-defined]
    given, stored = [r.randrange(known) for _ in range(3)], known - 1 - r.randrange(3)

    def program(state: nn.Buffer, *xs: fb.Tensor, compiled: bool = True) -> Values:
        e = [*xs, state.detach()]
        for part in parts:
            e = part(e, compiled)
        state[...] = e[stored]
        return [e[-1], *(e[k] for k in given)]

    rng = np.random.default_rng(seed)
    arrays = [rng.integers(-9, 10, (size, 2)) for _ in range(4)]
    states = [nn.Buffer(fb.asarray(arrays[3], dtype=dtype, device=d)) for d in ("cpu", "numpy")]
    fast, kept = fb.jit(program), []
    for _ in range(3):
        xs, plain = ([fb.asarray(a, dtype=dtype, device=d) for a in arrays[:3]] for d in ("cpu", "numpy"))
        want = [t.numpy().copy() for t in [*program(states[1], *plain, compiled=False), states[1], *plain]]
        kept.append(([*fast(states[0], *xs), states[0].detach(), *xs], want))
        for found, one in kept:
            for got, expected in zip(found, one, strict=True):
                np.testing.assert_array_equal(got.numpy(), expected, err_msg=str(seed))
        arrays[0], arrays[1] = arrays[1] - 1, arrays[0]


@pytest.mark.parametrize("block", range(4))
def test_random_carries_of_loops(block: int) -> None:
    for seed in range(7 * block, 7 * block + 7):
        check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(40))
def test_many_random_carries_of_loops(block: int) -> None:
    for seed in range(28 + 25 * block, 53 + 25 * block):
        check(seed)
