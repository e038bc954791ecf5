"""``cond`` and ``while_loop`` in native calls: results as step by step, for any kind of carry, and errors as before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from optree import tree_leaves as leaves
from poisoned_memory import poisoned_memory

import firebrick as fb
from firebrick.backends.cpu import branches, native
from firebrick.core.aval import Aval
from firebrick.core.errors import OutOfRangeError


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Arenas full of NaN: what is read before it is written shows."""
    with poisoned_memory():
        yield


def test_parts_of_the_temporary_buffer_begin_at_cache_lines_one_after_another() -> None:
    launches = branches._Launches(3, [Aval((2,), fb.float32), Aval((), fb.int64)])
    assert (launches.result(0), launches.result(1), launches.block) == (3, 4, 5)
    assert [launches.room(n) for n in (4, 64, 0, 65, 1)] == [5, (5, 64), (5, 128), (5, 192), (5, 320)]
    assert launches.size == 384


def draw(*shape: int, seed: int = 0) -> fb.Tensor:
    return fb.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def agree(f: Callable[..., Any], *xs: fb.Tensor, outside: str | None = "") -> None:
    """Whether a function has its results under ``jit``, with no control flow on the host; again, since carries may be kept."""
    want = [t.numpy() for t in leaves(f(*xs))]
    fast = fb.jit(f)
    for _ in range(2):
        for got, one in zip(leaves(fast(*xs)), want, strict=True):
            np.testing.assert_allclose(got.numpy(), one, rtol=2e-6, atol=1e-6)
    if outside is not None:
        assert outside in (text := fast.explain(*xs))
        assert "while_loop" not in text.partition("outside of them: ")[2].splitlines()[0]
        assert "cond" not in text.partition("outside of them: ")[2].splitlines()[0]


def repeated(count: int, step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A loop of ``count`` rounds of a function of the round's number and the carry."""

    def run(*xs: fb.Tensor) -> Any:
        def following(carry: Any) -> Any:
            return carry[0] + 1, step(carry[0], carry[1])

        return fb.while_loop(lambda carry: carry[0] < count, following, (fb.asarray(0), xs))[1]

    return run


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "a map": lambda i, c: (c[0] * 0.5 + 1.0, c[1]),
    "carries change places": lambda i, c: (c[1], c[0]),
    "a delay": lambda i, c: (fb.tanh(c[0]) + c[1], c[0]),
    "one value twice": lambda i, c: (z := fb.tanh(c[0] + c[1]), z),
    "transposed": lambda i, c: (fb.permute_dims(c[0], (1, 0)), c[1] + c[0]),
    "turned": lambda i, c: (c[0][::-1], fb.concat([c[1][1:], c[0][:1]], axis=0)),
    "a product": lambda i, c: (fb.tanh(c[0] @ c[1]), c[1]),
    "a number": lambda i, c: (fb.zeros((6, 6)), c[0] + c[1]),
    "the round": lambda i, c: (c[0] + fb.astype(i, fb.float32), c[1] * c[0]),
    "sorted": lambda i, c: (fb.sort(c[0], axis=0) * -1.0, fb.top_k(c[1], 6).values),
    "a branch": lambda i, c: fb.cond(i % 2 == 0, lambda a, b: (a * 2.0, b), lambda a, b: (b, a - 1.0), *c),
    "a loop": lambda i, c: (fb.while_loop(lambda a: fb.sum(fb.abs(a)) < 50.0, lambda a: a * 1.5, c[0]) * 0.5, c[1]),
    "a scan": lambda i, c: (fb.scan(lambda s, row: (s + row, s), c[0][0], c[1])[1], c[1]),
}  # fmt: skip


@pytest.mark.parametrize("rounds", [0, 1, 5])
@pytest.mark.parametrize("name", STEPS)
def test_loops_are_what_their_rounds_are_one_by_one(name: str, rounds: int) -> None:
    agree(repeated(rounds, STEPS[name]), draw(6, 6), draw(6, 6, seed=1), outside=None if name == "a scan" else "")


def _halved(carry: fb.Tensor, *rest: fb.Tensor) -> Any:
    """A loop that halves its carries until the first one is small."""
    return fb.while_loop(lambda c: fb.sum(fb.abs(c[0])) > 4.0, lambda c: tuple(t * 0.5 for t in c), (carry, *rest))


# from x and y, of which the carries of a loop are made: memory that nothing else reads may be that of the loop's results
FIRST: dict[str, Callable[..., Any]] = {
    "read by nothing else": lambda x, y: _halved(fb.tanh(x) + y, fb.exp(y) - x),
    "read behind the loop": lambda x, y: (z := fb.tanh(x) + y, _halved(z)),
    "read in the loop": lambda x, y: (z := fb.tanh(x) + y) is None or fb.while_loop(
        lambda c: fb.sum(c) < 300.0, lambda c: c + fb.abs(z) + 1.0, z
    ),
    "a view read in the loop": lambda x, y: (z := fb.tanh(x) + y) is None or fb.while_loop(
        lambda c: fb.sum(c) < 300.0, lambda c: c + fb.abs(fb.permute_dims(z, (1, 0))) + 1.0, z
    ),
    "two carries": lambda x, y: (z := fb.tanh(x) + y) is None or fb.while_loop(
        lambda c: fb.sum(c[0]) < 300.0, lambda c: (c[0] + fb.abs(c[1]) + 1.0, c[1] * 0.5), (z, z)
    ),
    "a view": lambda x, y: _halved(fb.permute_dims(fb.tanh(x) + y, (1, 0))),
    "a part": lambda x, y: _halved((fb.tanh(x) + y)[1:4]),
    "an argument": lambda x, y: (_halved(x), x + y),
    "a number": lambda x, y: _halved(fb.ones((6, 6)), x @ y),
    "two loops": lambda x, y: _halved(_halved(fb.tanh(x) + y)[0] * 3.0),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST)
def test_the_first_carries_of_a_loop_keep_their_values_where_others_read_them(name: str) -> None:
    agree(FIRST[name], draw(6, 6) * 3.0, draw(6, 6, seed=1))


def test_a_loop_copies_a_first_carry_unless_its_result_has_the_same_memory() -> None:
    x = draw(6, 6)
    graph = fb.jit(lambda x: _halved(fb.tanh(x))).graph(x)
    (node,) = (n for n in graph.nodes if n.op.name == "while_loop")
    kernel = branches.control_kernel(x.device.backend, node, x.device, native.Proofs())
    assert kernel is not None
    found = native.lowered_of(kernel)
    assert found is not None
    carry = len(node.inputs) - 1
    assert found.over == (frozenset([carry]),)
    at = list(range(len(node.inputs) + 2))
    apart = [launch.grid > 0 for launch in found.launches(at)]
    at[len(node.inputs)] = carry
    together = [launch.grid > 0 for launch in found.launches(at)]
    assert apart.count(False) == 0
    assert together.count(False) == 1
    assert not together[1]


BRANCHES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "maps": (lambda x, y: x * 2.0 + y, lambda x, y: fb.sum(x) - y),
    "an operand": (lambda x, y: x, lambda x, y: y),
    "a view": (lambda x, y: x[::-1], lambda x, y: fb.permute_dims(y, (1, 0))),
    "numbers": (lambda x, y: (fb.zeros((6, 6)), x), lambda x, y: (fb.full((6, 6), 2.5), y)),
    "one value twice": (lambda x, y: (z := fb.exp(x), z), lambda x, y: (x, x)),
    "several results": (lambda x, y: (x @ y, fb.sum(x)), lambda x, y: (y, fb.max(y))),
    "a loop": (lambda x, y: repeated(3, STEPS["a delay"])(x, y)[0], lambda x, y: x),
}  # fmt: skip


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_is_what_its_function_is(name: str, sign: float) -> None:
    yes, no = BRANCHES[name]
    agree(lambda x, y, s: fb.cond(s > 0.0, yes, no, x, y), draw(6, 6), draw(6, 6, seed=1), fb.asarray(sign))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_gradient_of_a_branch_is_native_too(sign: float) -> None:
    def loss(x: fb.Tensor, s: fb.Tensor) -> fb.Tensor:
        return fb.sum(fb.cond(s > 0.0, lambda x: fb.exp(x) * x, lambda x: x * x * x, x))

    agree(lambda x, s: fb.grad(lambda x: loss(x, s))(x), draw(6, 6), fb.asarray(sign))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float64", "complex64"])
def test_carries_of_every_dtype(dtype: str) -> None:
    x = fb.asarray(np.random.default_rng(0).integers(0, 2, (5, 3)), dtype=dtype)
    agree(repeated(3, lambda i, c: (c[1][::-1], fb.where(c[0] == c[1], c[0], c[1]))), x, x[::-1])


def test_a_loop_with_an_operation_of_the_host_runs_there() -> None:
    step = repeated(3, lambda i, c: (fb.linalg.inv(c[0]) + c[1], c[1]))
    x, y = draw(4, 4), draw(4, 4, seed=1)
    agree(step, x, y, outside=None)
    assert "while_loop" in fb.jit(step).explain(x, y).partition("outside of them: ")[2].splitlines()[0]


def test_an_index_out_of_range_in_a_later_round_is_reported_and_nothing_is_changed() -> None:
    table = draw(8, 3)
    total = fb.zeros((3,))

    @fb.jit
    def step(count: fb.Tensor) -> None:
        total[:] = fb.while_loop(
            lambda c: c[0] < count, lambda c: (c[0] + 1, c[1] + fb.take(table, c[0], axis=0)), (fb.asarray(0), total)
        )[1]

    step(fb.asarray(8))
    kept = total.numpy().copy()
    np.testing.assert_allclose(kept, table.numpy().sum(0), rtol=1e-5)
    with pytest.raises(OutOfRangeError, match=r"Received: 8, at .*test_cpu_branches"):
        step(fb.asarray(100))
    np.testing.assert_array_equal(total.numpy(), kept)


def test_a_loop_has_the_same_bits_for_any_number_of_threads() -> None:
    x, found = draw(700, 300), []
    f = fb.jit(repeated(4, lambda i, c: (fb.tanh(c[0] @ c[1]), c[1] + fb.sum(c[0], axis=0))))
    for threads in (1, 2, 4):
        with fb.config.scope(num_threads=threads):
            found.append([t.numpy().tobytes() for t in f(x[:300], x[300:600])])
    assert found[0] == found[1] == found[2]


def test_programs_with_loops_are_restored_from_the_cache(tmp_path: Any) -> None:
    def many(x: fb.Tensor) -> Any:
        for i in range(40):  # programs of fewer nodes are not stored
            x = fb.tanh(x * (1.0 + i)) - x
        return repeated(5, STEPS["a branch"])(x, x + 1.0)

    x = draw(6, 6)
    with fb.config.scope(cache_dir=str(tmp_path)):
        want = [t.numpy().tobytes() for t in fb.jit(many)(x)]
        again = fb.jit(lambda x: many(x))
        assert [t.numpy().tobytes() for t in again(x)] == want
        assert "outside of them: nothing" in again.explain(x)
