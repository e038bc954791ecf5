"""Powers of two that are known to divide an index: words of random numbers at such indices share a block."""

from __future__ import annotations

from random import Random

import pytest

from firebrick.compiler.targets.llvm.lane_random import power, with_blocks
from firebrick.scalar.expr import Expr, binary, cast, const, local, node, philox, unary, walk

N, M = local("n", "int64"), local("m", "int64")
POWERS = {"n": 3, "m": 0}
CASES: dict[str, tuple[Expr, int]] = {
    "an odd number": (const(7, "int64"), 0), "an even number": (const(40, "int64"), 3),
    "a negative number": (const(-40, "int64"), 3),
    "zero": (const(0, "int64"), 64), "a local": (N, 3), "another local": (local("k", "int64"), 0),
    "a sum": (N + 4, 2), "a sum of more": (N + 32, 3), "a difference": (N - M, 0), "a negated number": (unary("neg", N), 3),
    "a product": (N * N, 6), "a product with a number": (M * 12, 2),
    "a shift": (node("shl", "int64", (N, const(2, "int64"))), 5),
    "a shift by a local": (node("shl", "int64", (N, M)), 0),
    "a shift by all bits": (node("shl", "int64", (N, const(64, "int64"))), 0),
    "a shift by a negative number": (node("shl", "int64", (N, const(-1, "int64"))), 0),
    "a shift of all but a bit": (node("shl", "int64", (N, const(63, "int64"))), 64),
    "a quotient": (binary("div", N, const(2, "int64")), 0), "another dtype": (cast(N, "int32"), 0),
    "a float": (const(4.0, "float32"), 0),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_the_power_of_two_of_an_expression_is_known(what: str) -> None:
    e, known = CASES[what]
    assert power(e, POWERS) == known


def test_words_within_a_block_are_of_one_block_of_arithmetic() -> None:
    key = [const(k, "uint32") for k in (1, 2, 3, 4)]

    def blocks(start: Expr, powers: dict[str, int]) -> int:
        """How many blocks four words after each other need, in products of 32 bits."""
        words = with_blocks([philox(key, start + k if k else start) for k in range(4)], powers)
        products = {e for e in walk(words) if e.op == "mul"}
        one = {e for e in walk(with_blocks([philox(key, start)], powers)) if e.op == "mul"}
        return round(len(products) / len(one))

    assert blocks(N, {"n": 2}) == blocks(N, {"n": 3}) == 1
    assert blocks(N, {"n": 1}) == 2
    assert blocks(N, {"n": 0}) == 4


def test_what_is_known_divides_all_values() -> None:
    rng = Random(0)

    def drawn(depth: int) -> tuple[Expr, int]:
        """An expression, and its value for a random multiple of 8 and a random number."""
        draw = rng.random()
        if depth == 0 or draw < 0.2:
            number = rng.choice([0, 1, -3, 4, 6, -8, 2**40, 96])
            return rng.choice([(N, values["n"]), (M, values["m"]), (const(number, "int64"), number)])
        (a, x), (b, y) = drawn(depth - 1), drawn(depth - 1)
        return rng.choice([(a + b, x + y), (a - b, x - y), (a * b, x * y), (unary("neg", a), -x)])

    known = 0
    for _ in range(500):
        values = {"n": 8 * rng.randrange(-(2**20), 2**20), "m": rng.randrange(-(2**20), 2**20)}
        e, value = drawn(3)
        n = power(e, POWERS)
        assert value % (1 << n) == 0 if n < 64 else value % 2**64 == 0
        known += n > 0
    assert known > 50
