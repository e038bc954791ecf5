"""Random nested containers that change between calls of a compiled function, each change made several times so that what is new
may lie where something freed lay; the function itself is the truth."""

import random
from collections import deque

import numpy as np
import pytest

import firebrick as fb


class Holder:
    def __init__(self, v):
        self.v = v


class Slotted:
    __slots__ = ("v",)

    def __init__(self, v):
        self.v = v


def total(held):
    """A number that depends on each number in ``held`` and on where it is."""
    if isinstance(held, (int, float)):
        return float(held)
    if isinstance(held, (Holder, Slotted)):
        return total(held.v)
    if isinstance(held, dict):
        return sum(total(v) * 1.5 for v in held.values())
    if isinstance(held, np.ndarray):
        return sum(total(v) for v in held.flat)
    if callable(held):
        return total(held())
    return sum(total(v) * (i + 1) for i, v in enumerate(held))


def closure(value):
    return lambda: value


def objects(r):
    made = np.empty((2, 2), dtype=object, order=r.choice("CF"))
    for at in np.ndindex(2, 2):
        made[at] = r.random()
    return made


def some(r, depth):
    return [made(r, depth + 1) for _ in range(r.randint(1, 3))]


KINDS = {
    "float": lambda r, depth: r.random(),
    "int": lambda r, depth: r.randrange(300, 5000),
    "list": some,
    "tuple": lambda r, depth: tuple(some(r, depth)),
    "deque": lambda r, depth: deque(some(r, depth)),
    "dict": lambda r, depth: dict(enumerate(some(r, depth))),
    "set": lambda r, depth: {r.random(), r.random()},
    "holder": lambda r, depth: Holder(made(r, depth + 1)),
    "slotted": lambda r, depth: Slotted(made(r, depth + 1)),
    "closure": lambda r, depth: closure(made(r, depth + 1)),
    "objects": lambda r, depth: objects(r),
}


def made(r, depth=0):
    return KINDS[r.choice(list(KINDS) if depth < 4 else ["float", "int"])](r, depth)


def changeable(held):
    """All that can be changed in ``held``, itself included."""
    found = [held] if isinstance(held, (list, deque, set, dict, np.ndarray, Holder, Slotted)) else []
    inner = held.values() if isinstance(held, dict) else held if isinstance(held, (list, tuple, deque)) else ()
    if isinstance(held, (Holder, Slotted)):
        inner = [held.v]
    return found + [v for item in inner for v in changeable(item)]


def change(r, held):
    """Replace a part of ``held``; what was there is freed before the new value is made."""
    target = r.choice(changeable(held))
    for _ in range(r.choice([1, 1, 2, 3])):
        if isinstance(target, (list, deque)) and r.random() < 0.5:
            target.clear()
            target.append(made(r, 3))
        elif isinstance(target, set):
            target.clear()
            target.update({r.random(), r.random()})
        elif isinstance(target, np.ndarray):
            target[r.randrange(2), r.randrange(2)] = r.random()
        elif isinstance(target, (Holder, Slotted)):
            target.v = None
            target.v = made(r, 3)
        else:
            at = r.choice(list(target) if isinstance(target, dict) else range(len(target)))
            target[at] = None
            target[at] = made(r, 3)


def check(seed):
    r = random.Random(seed)
    held, x = [made(r), made(r)], fb.ones(1)
    argument = Holder(held)
    captures = fb.jit(lambda x, _: x * total(held))
    compiled = r.choice([captures, fb.jit(lambda x, argument: x * total(argument.v))])
    for step in range(4):
        assert compiled(x, argument).item() == pytest.approx(total(held), rel=1e-5, abs=1e-6), f"seed {seed}, call {step}"
        change(r, held)


def test_a_change_of_random_containers_is_seen_at_the_next_call():
    for seed in range(100):
        check(seed)


@pytest.mark.soak
def test_a_change_of_many_random_containers_is_seen_at_the_next_call():
    for seed in range(10_000, 20_000):
        check(seed)
