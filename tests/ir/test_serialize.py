"""Graphs as JSON text: exact round trips for every op of the table, and clear errors for what cannot be read."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from graphs import execute, passing_op

import firebrick as fb
from firebrick.core.aval import Aval
from firebrick.core.errors import GraphError
from firebrick.core.op import Op
from firebrick.graph.control.detach import DETACH
from firebrick.ir import CONSTANT, Graph, Node, from_json, interpret, serialize, to_json
from firebrick.testing.cases import avals_of, samples_of

OPS = fb.ops.OPS


def assert_same(a: Any, b: Any) -> None:
    """Equal in type and bits."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for k in a:
            assert_same(a[k], b[k])
    elif isinstance(a, float):
        assert struct.pack("d", a) == struct.pack("d", b)
    elif isinstance(a, complex):
        assert_same((a.real, a.imag), (b.real, b.imag))
    elif isinstance(a, Graph):
        assert_same((a.inputs, a.names, a.outputs), (b.inputs, b.names, b.outputs))
        assert_same([n.params for n in a.nodes], [n.params for n in b.nodes])
        rows = [[(n.op, n.inputs, n.first, n.avals, n.label, n.line, n.region) for n in g.nodes] for g in (a, b)]
        assert rows[0] == rows[1]
    else:
        assert a == b


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_every_op_survives_and_the_loaded_graph_computes_the_same_bits(op: Op) -> None:
    for name in op.dtypes:
        for sample in samples_of(op, name, 0):
            if any(x.size > 300 for x in sample.inputs):
                continue
            ins, outs = avals_of(op, sample)
            g = Graph([ins[0]], names=["x"])
            numbers = [0, *(g.constant(x) for x in sample.inputs[1:])]
            g.nodes.append(Node(op, tuple(numbers), sample.params, g.size, outs, "y", "m.py:1 in f", 2))
            g.outputs = tuple(g.nodes[-1].results)
            loaded = from_json(to_json(g))
            assert_same(g, loaded)
            for a, b in zip(*(interpret(x, sample.inputs[:1], execute) for x in (g, loaded)), strict=True):
                assert_same(a, b)


PROBE = passing_op("probe")
NEGATIVE_NAN = struct.unpack("d", bytes.fromhex("34120000000ff8ff"[:16]))[0]


def probed(**params: Any) -> Graph:
    x = Aval((2,), fb.float32)
    return Graph([x], [Node(PROBE, (0,), params, 1, (x,))], (1,))


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 1 << 70, 1.0, 0.1, -0.0, 5e-324, math.inf, -math.inf, math.nan, NEGATIVE_NAN, "text é %", "",
        1 + 2j, complex(-0.0, math.inf), (), (1,), (1, (2.0, None), [True]), [1, (2,)], {"a": 1, 2: (3,)}, slice(None, 3, -1),
        fb.bfloat16, fb.float8_e5m2, Aval((2, 0), fb.int8),
        fb.device("numpy:1"), np.array(3, np.int8), np.zeros((0, 3), np.float16),
        np.arange(6, dtype=np.uint64).reshape(2, 3).T, np.array([np.nan, -0.0, np.inf]), np.array([1 + 2j], np.complex64),
        np.array([1.5, -2], ml_dtypes.bfloat16), np.array([1.5, -2], ml_dtypes.float8_e4m3fn), np.array([True, False]),
    ],
    ids=lambda v: f"{type(v).__name__} {v!r}"[:40],
)  # fmt: skip
def test_every_kind_of_parameter_survives(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(serialize.OPS, "probe", PROBE)
    for g in (probed(value=value), probed(value=(value, [value])), probed(value=probed(inside=value))):
        assert_same(from_json(to_json(g)), g)


def test_the_text_is_plain_json_with_a_version() -> None:
    g = Graph([Aval((2,), fb.float32)])
    g.outputs = (g.constant(np.array([np.nan, np.inf])), 0)

    def refuse(token: str) -> Any:
        raise AssertionError(f"{token} is no JSON")

    document = json.loads(to_json(g), parse_constant=refuse)
    assert (document["format"], document["version"]) == ("firebrick graph", 1)


def test_a_graph_that_detaches_values_survives() -> None:
    x = Aval((2,), fb.float32)
    g = Graph([x], [Node(DETACH, (0,), {}, 1, (x,))], (1,), names=["x"])
    assert_same(g, from_json(to_json(g)))


def test_a_loaded_constant_can_be_written_to_and_shares_no_memory_with_the_text() -> None:
    g = Graph([])
    g.outputs = (g.constant(np.arange(3.0)),)
    loaded = from_json(to_json(g))
    assert loaded.nodes[0].op is CONSTANT
    loaded.nodes[0].params["value"][0] = 7
    assert g.nodes[0].params["value"][0] == 0


def test_a_parameter_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(GraphError, match="a set of probe"):
        to_json(probed(value=(1, {2})))


def _text(change: Callable[[Any], Any]) -> str:
    g = Graph([Aval((2,), fb.float32)])
    c = g.constant(np.arange(2, dtype=np.float32))
    g.outputs = g.add(OPS["add"], 0, c)
    document = json.loads(to_json(g))
    return json.dumps(change(document) or document)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "read from JSON text"),
        ("[]", '"format"'),
        ('{"format": "other"}', '"format"'),
        (_text(lambda d: d.update(version=2)), "up to version 1\nReceived: version 2"),
        (_text(lambda d: d.update(version="1")), "up to version 1"),
        (_text(lambda d: d.pop("nodes") and None), "inputs: KeyError: 'nodes'"),
        (_text(lambda d: d["nodes"][1].update(op="ad")), "one of the op table\nReceived: 'ad'"),
        (_text(lambda d: d["nodes"][1].pop("inputs") and None), "node 1: KeyError"),
        (_text(lambda d: d["nodes"][1].update(inputs=[0, 5])), "defined before it"),
        (_text(lambda d: d["nodes"][1].update(results=[["float64", [2]]])), "add has the results"),
        (_text(lambda d: d["nodes"][1].update(params={"k": {"set": []}})), "node 1: KeyError: 'set'"),
        (_text(lambda d: d["nodes"][1].update(label=3)), "a label and a line are text"),
        (_text(lambda d: d["nodes"][0]["params"]["value"]["array"].update(data="AAA")), "node 0: Error"),
        (_text(lambda d: d["nodes"][0]["params"]["value"]["array"].update(data="AAAA")), "node 0: ValueError"),
        (_text(lambda d: d["nodes"][0]["params"]["value"]["array"].update(shape=[3])), "node 0: ValueError"),
        (_text(lambda d: d.update(inputs=[["float3", [2]]])), "inputs: DTypeError"),
        (_text(lambda d: d.update(outputs=[8])), "every output"),
    ],
)  # fmt: skip
def test_damaged_text_is_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        from_json(text)


def nested(inner: str) -> str:
    return f'{{"format": "firebrick graph", "version": 1, "inputs": [], "names": [], "nodes": [{inner}], "outputs": []}}'


@pytest.mark.parametrize(
    "text",
    [
        "[" * 900 + "]" * 900,
        "[" * 100_000 + "]" * 100_000,
        nested('{"op": "exp", "inputs": [], "results": [], "params": {"a": ' + "[" * 900 + "]" * 900 + "}}"),
        nested('{"op": "exp", "inputs": [], "results": [], "params": {"a": 1, "a": 2}}'),
        nested('{"op": "exp", "inputs": [], "results": [["float32", [NaN]]], "params": {}}'),
        nested('{"op": "exp", "inputs": [], "results": [], "params": {"a": {"array": {"dtype": "int8", "shape": [1e400]}}}}'),
        nested('{"op": "exp", "inputs": [], "results": [], "params": {"a": {"tuple": ' + "9" * 5000 + "}}}"),
        nested("").replace('"names": []', '"names": "ab"'),
        nested("").replace('"nodes": []', '"nodes": {}'),
    ],
    ids=range(9),
)
def test_text_that_python_itself_stumbles_over_is_a_graph_error(text: str) -> None:
    with pytest.raises(GraphError):
        from_json(text)


def test_an_error_about_text_is_of_a_length_that_one_reads() -> None:
    shape = json.dumps([1] * 50_000)
    with pytest.raises(GraphError) as caught:
        from_json(nested(f'{{"op": "exp", "inputs": [], "results": [["float32", {shape}]], "params": {{}}}}'))
    assert len(str(caught.value)) < 10_000


@pytest.mark.parametrize("text", [nested("").replace('"outputs": []', '"outputs": ["\\ud800"]'), '{"format": "\udcff"}'])
def test_an_error_about_text_can_be_printed(text: str) -> None:
    with pytest.raises(GraphError) as caught:
        from_json(text)
    assert r"\ud" in str(caught.value).encode().decode()
