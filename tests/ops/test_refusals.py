"""What entries of the op table infer from shapes and dtypes, and what they refuse, also where a function checked it before."""

from __future__ import annotations

from typing import Any

import pytest

import firebrick as fb
from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.ops import OPS

NONE = ((0, 0), (0, 0))
CONV = {"stride": (1, 1), "padding": NONE, "dilation": (1, 1), "groups": 1}
POOL = {"kernel": (2, 2), "stride": (2, 2), "padding": NONE}
MAX = {**POOL, "dilation": (1, 1)}
HALF, KEY = ((2, 2), "float16"), ((4,), "uint32")
S = (2, 3, 3)

# an op; its parameters; operands that it takes, with the shape of its first result; operands that it refuses
ROWS: list[tuple[str, dict[str, Any], list[tuple[list[Any], Any]], list[list[Any]]]] = [
    ("cholesky", {}, [([S], S), ([(0, 0)], (0, 0))], [[(2, 3)], [(3,)], [()], [HALF]]),
    ("eigh", {}, [([S], (2, 3))], [[(2, 3)], [(3,)], [HALF]]),
    ("slogdet", {}, [([S], (2,))], [[(2, 3)], [(3,)], [HALF]]),
    ("det", {}, [([S], (2,)), ([(0, 0)], ())], [[(2, 3)], [(3,)], [HALF]]),
    ("expm", {}, [([S], S)], [[(2, 3)], [(3,)], [HALF]]),
    ("svd", {}, [([(2, 3, 4)], (2, 3, 3))], [[(3,)], [HALF]]),
    ("qr", {"complete": False}, [([(2, 4, 3)], (2, 4, 3))], [[(3,)], [HALF]]),
    ("qr", {"complete": True}, [([(2, 4, 3)], (2, 4, 4))], [[(3,)]]),
    ("pinv", {}, [([(2, 3, 4), ()], (2, 4, 3)), ([(2, 3, 4), (2,)], (2, 4, 3))],
     [[(3,), ()], [HALF, ()], [(2, 2), HALF], [(2, 3, 4), (3,)], [(3, 4), (2,)], [(1, 3, 4), (2,)]]),
    ("solve", {}, [([S, (3, 2)], (2, 3, 2)), ([(3, 3), (2, 3, 1)], (2, 3, 1))],
     [[(2, 3), (3, 1)], [S, (3,)], [S, (2, 1)], [(3,), (3, 1)], [HALF, HALF], [S, (4, 3, 1)]]),
    ("solve_triangular", {"upper": True}, [([S, (3, 2)], (2, 3, 2))], [[(2, 3), (3, 1)], [S, (3,)], [S, (2, 1)], [HALF, HALF]]),
    ("matmul", {}, [([(2, 3), (3, 4)], (2, 4)), ([(5, 2, 3), (3, 4)], (5, 2, 4))],
     [[(3,), (3, 4)], [(2, 3), (3,)], [(2, 3), (2, 3)], [(2, 2, 3), (3, 3, 4)]]),
    ("conv", CONV, [([(1, 2, 3, 3), (4, 2, 3, 3)], (1, 4, 1, 1))],
     [[(1, 2, 3), (4, 2, 3, 3)], [(1, 2, 3, 3), (4, 2, 3)], [(1, 3, 3, 3), (4, 2, 3, 3)], [(1, 2, 2, 3), (4, 2, 3, 3)],
      [(1, 2, 3, 3), (4, 2, 0, 3)]]),
    ("conv", {**CONV, "groups": 2}, [([(1, 4, 3, 3), (4, 2, 3, 3)], (1, 4, 1, 1))],
     [[(1, 2, 3, 3), (4, 2, 3, 3)], [(1, 4, 3, 3), (3, 2, 3, 3)]]),
    ("conv_input", {**CONV, "size": (3, 3)}, [([(1, 4, 1, 1), (4, 2, 3, 3)], (1, 2, 3, 3))],
     [[(1, 4, 1, 2), (4, 2, 3, 3)], [(1, 3, 1, 1), (4, 2, 3, 3)]]),
    ("conv_weight", {**CONV, "kernel": (3, 3)}, [([(1, 2, 3, 3), (1, 4, 1, 1)], (4, 2, 3, 3))],
     [[(1, 2, 3, 3), (1, 4, 1, 2)], [(1, 2, 3, 3), (2, 4, 1, 1)]]),
    ("max_pool", MAX, [([(1, 2, 4, 4)], (1, 2, 2, 2))], [[(2, 4, 4)], [(1, 2, 1, 4)]]),
    ("max_pool", {**MAX, "padding": ((1, 0), (0, 1))}, [([(1, 2, 4, 4)], (1, 2, 2, 2))], []),
    ("max_pool", {**MAX, "padding": ((2, 0), (0, 0))}, [], [[(1, 2, 4, 4)]]),
    ("max_pool", {**MAX, "padding": ((0, 2), (0, 0))}, [], [[(1, 2, 4, 4)]]),
    ("max_pool_gradient", {**MAX, "size": (4, 4)}, [([(1, 2, 2, 2), ((1, 2, 2, 2), "int64")], (1, 2, 4, 4))],
     [[(1, 2, 2, 1), ((1, 2, 2, 1), "int64")], [(1, 2, 2, 2), ((1, 2, 2, 1), "int64")]]),
    ("avg_pool", POOL, [([(1, 2, 4, 4)], (1, 2, 2, 2))], [[(2, 4, 4)], [(1, 2, 1, 4)]]),
    ("avg_pool_input", {**POOL, "size": (4, 4)}, [([(1, 2, 2, 2)], (1, 2, 4, 4))], [[(1, 2, 2, 1)]]),
    ("reshape", {"shape": (2, 3)}, [([(6,)], (2, 3))], [[(5,)], [()]]),
    ("permute", {"axes": (1, 0)}, [([(2, 3)], (3, 2))], [[(2,)], [(2, 3, 4)]]),
    ("permute", {"axes": (0, 0)}, [], [[(2, 3)]]),
    ("broadcast_to", {"shape": (2, 3)}, [([(3,)], (2, 3)), ([(2, 1)], (2, 3))], [[(2,)], [(1, 2, 3)], [(2, 2)]]),
    ("pad", {"widths": ((1, 0), (0, 2)), "value": 0}, [([(2, 3)], (3, 5))], [[(2,)], [(2, 3, 4)]]),
    ("pad", {"widths": ((-1, 0),), "value": 0}, [], [[(2,)]]),
    ("pad", {"widths": ((0, -1),), "value": 0}, [], [[(2,)]]),
    ("concat", {"axis": 1}, [([(2, 3), (2, 1)], (2, 4))], [[(2, 3), (1, 3)], [(2, 3), (2,)], [(2, 3), (2, 3, 1)]]),
    ("split", {"sizes": (1, 2), "axis": 1}, [([(2, 3)], (2, 1))], [[(2, 4)], [(2, 2)]]),
    ("take", {"axis": 1}, [([(2, 3, 4), ((5, 6), "int64")], (2, 5, 6, 4))], []),
    ("gather", {"axis": 1}, [([(2, 3), ((2, 9), "int64")], (2, 9))], [[(2, 3), ((1, 3), "int64")], [(2, 3), ((3,), "int64")]]),
    ("index_add", {"axis": 0}, [([(2, 3), ((5,), "int64"), (5, 3)], (2, 3))],
     [[(2, 3), ((5,), "int64"), (4, 3)], [(2, 3), ((5,), "int64"), (3,)]]),
    *((op, {"axis": 1, **more}, [([(2, 3), ((2, 9), "int64"), (2, 9)], (2, 3))],
       [[(2, 3), ((1, 9), "int64"), (1, 9)], [(2, 3), ((9,), "int64"), (9,)], [(2, 3), ((2, 9), "int64"), (2, 8)]])
      for op, more in (("scatter", {}), ("scatter_add", {}), ("scatter_reduce", {"mode": "mul"}))),
    ("scatter_reduce", {"axis": 0, "mode": "mean"}, [], [[(2,), ((2,), "int64"), (2,)]]),
    ("slice", {"starts": (0, 1), "stops": (2, 3), "steps": (1, 1)}, [([(2, 3)], (2, 2))], [[(2,)], [(2, 3, 4)]]),
    ("slice", {"starts": (0,), "stops": (2, 3), "steps": (1,)}, [], [[(2,)]]),
    ("slice", {"starts": (0,), "stops": (2,), "steps": (1, 1)}, [], [[(2,)]]),
    ("slice", {"starts": (0,), "stops": (2,), "steps": (1,), "shape": (1, 2)}, [([(3,)], (1, 2))], []),
    ("slice", {"starts": (0,), "stops": (2,), "steps": (1,), "shape": (3,)}, [], [[(3,)]]),
    ("slice_update", {"starts": (1,), "stops": (5,), "steps": (2,)}, [([(6,), (2,)], (6,))], [[(6,), (3,)], [(6,), (1,)]]),
    ("softmax", {"axis": 0}, [([(2,)], (2,))], [[()]]),
    ("log_softmax", {"axis": 0}, [([(2,)], (2,))], [[()]]),
    ("layer_norm", {"eps": 0.1}, [([(2, 3), (3,), (3,)], (2, 3))], [[(2, 3), (2,), (2,)], [(2, 3), (3,), (2,)], [(), (), ()]]),
    ("rms_norm", {"eps": 0.1}, [([(2, 3), (3,)], (2, 3)), ([(2, 3), ()], (2, 3))],
     [[(2, 3), (2,)], [(), ()], [(2, 3), (2, 3)]]),
    ("standardize", {"axes": (0,), "eps": 0.1}, [([(2, 3), (1, 3), (1, 3)], (2, 3)), ([(2, 3), (), ()], (2, 3))],
     [[(2, 3), (2,), (2,)], [(2, 3), (3,), ()], [(0, 3), (3,), (3,)], [(2, 3), (1, 2, 3), (1, 2, 3)],
      [(1, 3), (2, 3), (2, 3)]]),
    ("standardize", {"axes": (), "eps": 0.1}, [], [[(2, 3), (3,), (3,)]]),
    ("standardize_gradient", {"axes": (0,), "eps": 0.1}, [([(2, 3), (2, 3), (3,), (1, 3), (1, 3)], (2, 3))],
     [[(1, 3), (2, 3), (3,), (1, 3), (1, 3)], [(2, 3), (2, 3), (3,), (3,), (3,)], [(2, 3), (2, 3), (3,), (1, 3), (2, 3)],
      [(2, 3), (2, 3), (2,), (1, 3), (1, 3)]]),
    ("max", {"axes": (0,), "keepdims": False}, [([(2, 0)], (0,))], [[(0, 2)]]),
    ("min", {"axes": (0, 1), "keepdims": True}, [([(2, 1)], (1, 1))], [[(0, 2)], [(2, 0)]]),
    ("argmax", {"axis": 0, "keepdims": False}, [([(2, 3)], (3,))], [[(0, 2)]]),
    ("top_k", {"k": 2, "axis": 0, "largest": True}, [([(2, 3)], (2, 3))], [[(1, 3)]]),
    ("top_k", {"k": -1, "axis": 0, "largest": True}, [], [[(1, 3)]]),
    ("searchsorted", {"right": True}, [([(3,), (2, 2)], (2, 2))], [[(3, 3), (2,)], [(), (2,)]]),
    ("attention", {"scale": 1.0, "causal": False}, [([(2, 3, 4), (2, 5, 4), (2, 5, 6), ((3, 5), "bool")], (2, 3, 6))],
     [[(4,), (4,), (4,), ((), "bool")], [(2, 3, 4), (1, 5, 4), (1, 5, 6), ((), "bool")],
      [(2, 3, 4), (2, 5, 4), (2, 4, 6), ((), "bool")], [(2, 3, 4), (2, 5, 3), (2, 5, 6), ((), "bool")],
      [(2, 3, 4), (2, 5, 4), (2, 5, 6), ((3, 4), "bool")], [(2, 3, 4), (2, 5, 4), (2, 5, 6), ((1, 2, 3, 5), "bool")],
      [HALF, HALF, HALF, ((), "bool")]]),
    ("attention_gradient", {"scale": 1.0, "causal": False},
     [([(3, 6), (3, 4), (5, 4), (5, 6), ((), "bool")], (3, 4))], [[(3, 5), (3, 4), (5, 4), (5, 6), ((), "bool")]]),
    ("fft", {"axes": (0,), "norm": "ortho", "inverse": False}, [([((1, 0), "complex64")], (1, 0))], [[((0, 1), "complex64")]]),
    ("rfft", {"axis": 0, "norm": "ortho"}, [([(4,)], (3,))], [[(0,)], [((4,), "float16")]]),
    ("irfft", {"n": 4, "axis": 0, "norm": "ortho"}, [([((3,), "complex64")], (4,))],
     [[((2,), "complex64")], [((4,), "complex64")]]),
    ("irfft", {"n": 0, "axis": 0, "norm": "ortho"}, [], [[((1,), "complex64")]]),
    ("random_bits", {"shape": (3,), "offset": 0}, [([KEY], (3,))],
     [[((4,), "int32")], [((3,), "uint32")], [((1, 4), "uint32")]]),
    ("random_uniform", {"shape": (3,), "offset": 0, "dtype": fb.float64}, [([KEY], (3,))],
     [[((4,), "int32")], [((5,), "uint32")]]),
    ("random_uniform", {"shape": (3,), "offset": 0, "dtype": fb.float16}, [], [[KEY]]),
]  # fmt: skip


def avals(operands: list[Any]) -> list[Aval]:
    pairs = [o if len(o) == 2 and isinstance(o[1], str) else (o, "float32") for o in operands]
    return [Aval(shape, fb.dtype(name)) for shape, name in pairs]


@pytest.mark.parametrize(("name", "params", "taken", "refused"), ROWS, ids=[f"{r[0]}-{i}" for i, r in enumerate(ROWS)])
def test_an_entry_takes_operands_that_fit_and_refuses_others(name: str, params: Any, taken: Any, refused: Any) -> None:
    for operands, shape in taken:
        found = OPS[name].infer(*avals(operands), **params)
        assert (found if isinstance(found, Aval) else found[0]).shape == shape
    for operands in refused:
        with pytest.raises(fb.FirebrickError):
            OPS[name].infer(*avals(operands), **params)


@pytest.mark.parametrize(("name", "params", "shape"), [
    ("reshape", {"shape": (2, 3)}, (5,)), ("pad", {"widths": ((-1, 0),), "value": 0}, (2,)),
    ("permute", {"axes": (0, 0)}, (2, 3)),
])  # fmt: skip
def test_an_error_of_a_shape_rule_begins_with_the_name_of_the_operation_once(
    name: str, params: dict[str, Any], shape: tuple[int, ...]
) -> None:
    with pytest.raises(fb.ShapeError) as caught:
        bind(OPS[name], (fb.ones(shape),), params)
    assert str(caught.value).startswith(f"{name}: ")
    assert str(caught.value).count(f"{name}: ") == 1
