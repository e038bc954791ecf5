"""An index out of range raises under jit as it does eagerly, also where nobody uses what was found there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import firebrick as fb
from firebrick.graph import tell
from firebrick.graph.passes import eliminate_dead_code


@pytest.fixture(params=["numpy", "cpu", "torch:cpu"], autouse=True)
def home(request: pytest.FixtureRequest) -> Iterator[str]:
    with fb.use_device(request.param):
        yield request.param


def x() -> fb.Tensor:
    return fb.ones(2)


def i(value: int = 5) -> fb.Tensor:
    return fb.asarray([value])


def _changed(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
    y = x.detach()
    y[i] = 1.0
    return x * 2.0


Body = Callable[[fb.Tensor, fb.Tensor], Any]
PROGRAMS: dict[str, Body] = {
    "x[i]": lambda x, i: (x[i], x * 2.0)[1],
    "x[j, i]": lambda x, i: (x[None][i * 0, i], x * 2.0)[1],
    "take": lambda x, i: (fb.take(x, i, axis=0), x * 2.0)[1],
    "gather": lambda x, i: (fb.take_along_axis(x, i, axis=0), x * 2.0)[1],
    "x[i] = 1": _changed,
    "one_hot": lambda x, i: (fb.one_hot(i, 2), x)[1],
    "labels": lambda x, i: (fb.cross_entropy(x[None], i), x)[1],
    "rows of a table": lambda x, i: (fb.take(x[:, None], i[None], axis=0), x)[1],
    "part of a take": lambda x, i: (x[fb.concat([i * 0, i])] * 2.0)[:1],
    "no elements": lambda x, i: fb.take(x[:, None][:, :0], i, axis=0),
    "no elements, updated": lambda x, i: fb.sum(fb.take(x[:, None][:, :0], i, axis=0) + 1.0),
    "the shape only": lambda x, i: fb.ones(x[i].shape),
    "where": lambda x, i: fb.where(fb.asarray(False), x[i], x),
    "constant indices": lambda x, i: (x[fb.asarray([5])], x)[1],
    "gradient": lambda x, i: fb.grad(lambda x: fb.sum(x[i]))(x),
    "dead in a gradient": lambda x, i: fb.grad(lambda x: (fb.sum(x[i]), fb.sum(x * 3.0))[1])(x),
    "vjp": lambda x, i: fb.vjp(lambda x: (x[i], fb.sin(x))[1], x)[0],
    "checkpoint": lambda x, i: fb.grad(lambda x: fb.sum(fb.checkpoint(lambda x: (x[i], fb.sin(x) * x)[1])(x)))(x),
    "branch": lambda x, i: fb.cond(fb.sum(x) > 0.0, lambda: (x[i], x)[1], lambda: x * 3.0),
    "dead branch": lambda x, i: (fb.cond(fb.sum(x) > 0.0, lambda: x[i], lambda: x[:1] * 3.0), x + 1.0)[1],
    "scan": lambda x, i: fb.scan(lambda c, t: (c + t, (x[i], c)[1]), fb.zeros(()), x)[0],
    "dead scan": lambda x, i: (fb.scan(lambda c, t: (c + t, x[i]), fb.zeros(()), x), x + 1.0)[1],
    "dead result of a scan": lambda x, i: fb.scan(lambda c, t: (c + t, x[i]), fb.zeros(()), x)[0],
    "carried index": lambda x, i: fb.scan(lambda c, t: ((c[0] + t, c[1] + i), x[c[1]]), (fb.zeros(()), i * 0), x)[0][0],
    "gradient of a scan": lambda x, i: fb.grad(lambda x: fb.scan(lambda c, t: (c + t, x[i]), fb.zeros(()), x)[0])(x),
    "loop": lambda x, i: fb.while_loop(lambda c: fb.sum(c) < 10.0, lambda c: (x[i], c * 2.0)[1], x),
    "dead part of a loop": lambda x, i: fb.while_loop(
        lambda c: fb.sum(c[0]) < 10.0, lambda c: (c[0] * 2.0, c[1] + x[i]), (x, fb.zeros(1))
    )[0],
    "branch in a scan": lambda x, i: fb.scan(
        lambda c, t: (fb.cond(c > -1.0, lambda: (x[i], c + t)[1], lambda: c), None), fb.zeros(()), x
    )[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_index_out_of_range_raises_under_jit_as_it_does_eagerly(name: str) -> None:
    fn = PROGRAMS[name]
    with pytest.raises(fb.OutOfRangeError):
        fn(x(), i())
    compiled = fb.jit(fn)
    with pytest.raises(fb.OutOfRangeError):
        compiled(x(), i())
    if name != "constant indices":
        want, got = fn(x(), i(1)), compiled(x(), i(1))
        assert want.tolist() == got.tolist()


def test_it_names_the_line_and_leaves_state_as_it_was() -> None:
    w, n = fb.ones(3), fb.zeros(())

    @fb.jit
    def step(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
        w.__iadd__(x[0])
        n.__iadd__(1.0)
        x[i]
        w.__imul__(2.0)
        return x * 2.0

    step(x(), i(1))
    with pytest.raises(fb.OutOfRangeError) as caught:
        step(x(), i())
    assert "test_dead_indices.py" in "".join(caught.value.__notes__)
    assert (w.tolist(), n.item()) == ([4.0, 4.0, 4.0], 1.0)
    with fb.verify(), pytest.raises(fb.OutOfRangeError):
        step(x(), i())
    assert "check_indices" in str(step.graph(x(), i()))


class Log:
    unwatched = frozenset({"sums"})

    def __init__(self) -> None:
        self.sums: list[float] = []

    def hear(self, total: fb.Tensor) -> None:
        self.sums.append(total.item())


def test_a_graph_that_tells_checks_too() -> None:
    log = Log()

    @fb.jit
    def f(x: fb.Tensor, i: fb.Tensor) -> fb.Tensor:
        tell(log.hear, fb.sum(x))
        x[i]
        return x * 3.0

    assert (f(x(), i(0)).tolist(), log.sums) == ([3.0, 3.0], [2.0])
    with pytest.raises(fb.OutOfRangeError):
        f(x(), i())


def test_a_check_that_another_node_makes_is_not_made_twice() -> None:
    def ops(f: Any) -> list[str]:
        graph = fb.jit(f).graph(x(), i(1))
        assert eliminate_dead_code(graph) is graph
        return [n.op.name for n in graph.nodes]

    assert ops(lambda x, i: (x[i] * 2.0, x[i])[1]).count("check_indices") == 0
    assert ops(lambda x, i: (x[i], (x + 1.0)[i], x)[2]) == ["check_indices"]
    assert ops(lambda x, i: (x[fb.asarray([0, 1])], x)[1]) == []
