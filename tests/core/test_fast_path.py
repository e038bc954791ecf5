"""The fast path of elementwise functions: the same bits as the general one, the same checks, the same errors."""

from __future__ import annotations

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.bind import bind
from firebrick.ops import OPS
from firebrick.ops.declare import values

PARAMETERS = ("cast", "polygamma")
UNARY = [n for n, op in OPS.items() if op.fusion == "map" and len(op.operands) == 1 and hasattr(fb, n) and n not in PARAMETERS]
BINARY = [n for n, op in OPS.items() if op.fusion == "map" and op.operand_names(2) == ["x1", "x2"] and len(op.operands) == 2]


def shows_nothing_behind(e: BaseException) -> bool:
    return e.__cause__ is None and (e.__context__ is None or e.__suppress_context__)


@pytest.mark.parametrize("name", UNARY + BINARY)
def test_both_paths_give_the_same_bits(name: str, device: str) -> None:
    op = OPS[name]
    rng = np.random.default_rng(0)
    for dtype in op.dtypes:
        operands = [fb.asarray(values(rng, dtype, (5, 7), 0.5, 2.0), device=device) for _ in op.operands]
        function = getattr(fb, name)
        want = bind(op, tuple(operands), {}).numpy()
        for _ in range(3):
            got = function(*operands)
            assert got.numpy().tobytes() == want.tobytes()
            assert (got.dtype, got.shape, got.device) == (fb.dtype(want.dtype), want.shape, fb.device(device))
            assert (got.node, got.leaf, got.label) == (None, 0, None)


def test_what_goes_the_fast_path_is_checked_as_well() -> None:
    x, y = fb.ones(3), fb.ones(3)
    x + y
    for other, kind in (
        (fb.ones(3, device="cpu:1"), fb.DeviceMismatchError),
        (fb.ones(3, dtype=fb.int32), fb.DTypeError),
        (fb.ones(4), fb.ShapeError),
        (np.ones(3), fb.OperandError),
        ("a", fb.OperandError),
        (None, fb.OperandError),
    ):
        with pytest.raises(kind) as caught:
            fb.add(x, other)
        assert shows_nothing_behind(caught.value), "an error of the fast path shows through"
        with pytest.raises(kind) as caught:
            fb.add(other, x)
        assert shows_nothing_behind(caught.value)


def test_an_operand_that_is_no_tensor_is_named_by_functions_of_one(device: str) -> None:
    fb.exp(fb.ones(3, device=device))
    for other in (np.ones(3), 1.0, None, [1.0]):
        with pytest.raises(fb.OperandError) as caught:
            fb.exp(other)
        assert shows_nothing_behind(caught.value)


def test_tracked_operands_never_take_the_fast_path() -> None:
    x, y = fb.ones(3), fb.ones(3)
    x + y
    assert (x.require_grad() + y).tracked
    assert (y + x).tracked
    assert fb.exp(x).tracked
    with fb.no_grad():
        assert not (x + y).tracked


def test_a_decorated_engine_lets_nothing_escape() -> None:
    x = fb.ones(3)
    x + x
    with fb.profile() as report:
        x + x
        x + x
    assert report.rows["cpu", "add"].calls == 2
    x + x
    with fb.verify(), fb.profile() as again:
        x + x
    assert again.rows["cpu", "add"].calls == 1


def test_the_fast_path_counts_the_memory_it_takes() -> None:
    memory = fb.device("cpu")._memory
    x = fb.ones(1000)
    x + x
    before = memory.live
    y = x + x
    assert memory.live == before + 4000
    del y
    assert memory.live == before


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_memory_that_is_not_there_is_reported_in_the_words_of_the_general_path(device: str) -> None:
    for _ in range(3):
        fb.abs(fb.zeros(3, device=device))
    huge = fb.broadcast_to(fb.zeros(1, device=device), (1 << 44,))
    with pytest.raises(
        fb.OutOfMemoryError, match=rf"abs on {device}:0 needs 67108864.0 MiB for its result\nReceived: .*\nRemedy: "
    ):
        fb.abs(huge)
