"""Launches of groups on disk: equal to those that are made anew, found by all they depend on, never believed blindly."""

from __future__ import annotations

import copy
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels_on_gpu import gpu

import firebrick as fb
from firebrick.backends.webgpu import lowering, stored
from firebrick.backends.webgpu.lowering import LoweredGroup
from firebrick.backends.webgpu.web_plan import PAGE
from firebrick.compiler import cache, reuse
from firebrick.compiler.cache import ObjectStore, pack, unpack
from firebrick.core.aval import Aval
from firebrick.core.constants import forget_constants
from firebrick.core.errors import DTypeError, UnsupportedError
from firebrick.core.views import row_major
from firebrick.ir import Graph, Node
from firebrick.ops import OPS
from firebrick.testing.cases import samples_of


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for entries."""
    monkeypatch.setattr(cache, "store", ObjectStore())
    with fb.config.scope(cache_dir=str(tmp_path), cache_plans=True):
        yield tmp_path / "objects"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each group or view whose launches are made anew."""
    seen: list[str] = []
    for name in ("lowered_body", "lowered_view"):
        real = getattr(lowering, name)
        monkeypatch.setattr(stored, name, lambda *args, name=name, real=real: seen.append(name) or real(*args))
    return seen


def body_of(op: str, *operands: Any, line: str | None = None, label: str | None = None, **params: Any) -> Graph:
    """A group of one operation."""
    avals = [Aval(x.shape, fb.dtype(x.dtype)) for x in map(np.asarray, operands)]
    inferred = OPS[op].infer(*avals, **params)
    results = (inferred,) if type(inferred) is Aval else tuple(inferred)
    node = Node(OPS[op], tuple(range(len(avals))), params, len(avals), results, label, line)
    return Graph(avals, [node], tuple(node.results))


X = np.ones((3, 5), np.float32)
AT = np.array([0, 2], np.int64)


def exp() -> Graph:
    return body_of("exp", X)


def take(line: str | None = None) -> Graph:
    return body_of("take", X, AT, line=line, axis=0)


def test_stored_launches_of_every_op_are_those_that_are_made(made: list[str]) -> None:
    found = dict[str, LoweredGroup]()
    for k, (name, op) in enumerate(OPS.items()):
        dtypes = [d for d in ("float32", "int8", "float16", "complex64") if d in op.dtypes]
        samples = samples_of(op, dtypes[k % len(dtypes)], 0) if dtypes else []
        driver = (gpu().measured, PAGE)[k % 2]
        for sample in samples:
            body = body_of(name, *sample.inputs, **sample.params)
            kind = lowering.kind_of(body.nodes[0], tuple(body.inputs))
            if kind not in ("map", "rows", "columns", "contract", "alone"):
                continue
            made.clear()
            try:
                want = stored.stored_body(body, driver)
            except (UnsupportedError, DTypeError):
                continue
            assert stored.stored_body(body, driver) == want
            assert made == ["lowered_body"]
            found[name] = want
            break
    assert len(found) > 90, len(found)
    groups = found.values()
    assert any(g.sites for g in groups)
    assert any(g.temporaries for g in groups)
    assert any(len(g.launches) > 1 for g in groups)


def test_a_stored_copy_of_a_view_is_the_one_that_is_made(made: list[str]) -> None:
    source = Aval((3, 5), fb.float32)
    views = [row_major((3, 5)).permuted((1, 0)), replace(row_major((3, 4)), offset=1), row_major((3, 5))]
    for view in views:
        result = Aval(view.shape, fb.float32)
        want = lowering.lowered_view(view, source, result, PAGE)
        for count in (1, 0):
            made.clear()
            assert stored.stored_view(view, source, result, PAGE) == want
            assert len(made) == count
    made.clear()
    stored.stored_view(views[0], source, Aval((5, 3), fb.int16), PAGE)
    assert made


def test_a_device_that_is_opened_again_lowers_nothing_again(
    home: Path, made: list[str], anew: fb.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> list[bytes]:
        forget_constants()
        monkeypatch.setattr(anew.backend, "_opened", {})
        monkeypatch.setattr(anew.backend, "_eager", type(anew.backend._eager)())
        x, at = fb.asarray(X + np.arange(5, dtype=np.float32), device=anew), fb.asarray(AT, device=anew)
        f = fb.jit(lambda x, at: fb.softmax(fb.take(x, at, axis=0) * 2.0, axis=1))
        return [t.numpy().tobytes() for t in (fb.exp(x), fb.permute_dims(x, (1, 0)) + 1.0, f(x, at))]

    with fb.config.scope(cache_dir=str(home.parent)):
        want = run()
        assert {"lowered_body", "lowered_view"} <= set(made)
        made.clear()
        assert run() == want
        assert not made
        shown = {name for e in cache.store.entries() for name in e.facts["functions"]}  # of firebrick cache list
        assert f"({stored.KIND})" in shown
    with fb.config.scope(cache_plans=False):
        assert run() == want
        assert made


def test_an_index_out_of_range_is_reported_with_the_line_of_this_program(made: list[str]) -> None:
    for line in ("first.py:1", "second.py:2"):
        (site,) = stored.stored_body(take(line), PAGE).sites
        with pytest.raises(fb.OutOfRangeError, match=f"{line}"):
            raise site.error(7, bits=32)
    assert made == ["lowered_body"]


def test_lines_and_labels_do_not_matter(made: list[str]) -> None:
    for label, line in ((None, None), ("y", "a.py:3"), ("layer.weight", None)):
        stored.stored_body(body_of("exp", X, label=label, line=line), PAGE)
    assert made == ["lowered_body"]


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], Any]] = {
    "sources": lambda m: m.setattr(reuse, "fingerprint", lambda: b"of other sources"),
    "NumPy": lambda m: m.setattr(np, "__version__", "0.0.1"),
    "a setting": lambda m: m.setattr(fb.config, "deterministic", False),
}


@pytest.mark.parametrize("name", CHANGES)
def test_other_conditions_have_launches_of_their_own(name: str, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stored.stored_body(exp(), PAGE)
    CHANGES[name](monkeypatch)
    stored.stored_body(exp(), PAGE)
    assert made == ["lowered_body"] * 2


def test_another_driver_has_launches_of_its_own(made: list[str]) -> None:
    drivers = [
        PAGE, replace(PAGE, contracts=False), replace(PAGE, quads=True), replace(PAGE, processor=True),
        replace(PAGE, float64=PAGE.capabilities), replace(PAGE, capabilities=replace(PAGE.capabilities, denormals=True)),
    ]  # fmt: skip
    for driver in drivers:
        stored.stored_body(exp(), driver)
    assert len(made) == len(drivers)


def test_other_groups_have_launches_of_their_own(made: list[str]) -> None:
    bodies = [
        exp(), body_of("log", X), body_of("exp", X[:2]), body_of("exp", X.astype(np.float16)), take(),
        body_of("take", X, AT, axis=1), body_of("take", X, AT.astype(np.int32), axis=0),
    ]  # fmt: skip
    for body in bodies:
        stored.stored_body(body, PAGE)
    assert len(made) == len(bodies)


def scaled(factor: float) -> Graph:
    """A group of a kernel that uses a number from outside."""

    @fb.kernel
    def kernel(x: fb.kernel.In[fb.float32, "n"], out: fb.kernel.Out["x", "n"]):  # type: ignore[no-untyped-def] # noqa: F821, UP037
        i = fb.kernel.index()
        out[i] = x[i] * factor

    return fb.jit(kernel).graph(fb.ones(4))


def test_kernels_are_told_apart_by_their_code(made: list[str]) -> None:
    for factor, count in ((2.0, 1), (3.0, 2), (2.0, 2)):
        (launch,) = stored.stored_body(scaled(factor), PAGE).launches
        assert launch == lowering.lowered_body(scaled(factor), PAGE).launches[0]
        assert len(made) == count


@pytest.mark.parametrize("change", [{"cache_plans": False}, {"cache_dir": "off"}])
def test_nothing_is_stored_where_that_is_off(home: Path, made: list[str], change: dict[str, Any]) -> None:
    with fb.config.scope(**change):
        for _ in range(2):
            stored.stored_body(exp(), PAGE)
    assert made == ["lowered_body"] * 2
    assert not home.exists()


def test_nothing_is_stored_of_sources_that_changed_since_they_were_imported(
    home: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(reuse, "fingerprint", lambda: None)
    for _ in range(2):
        stored.stored_body(exp(), PAGE)
    assert made == ["lowered_body"] * 2
    assert not home.exists()


def test_a_group_that_is_refused_is_refused_each_time(home: Path, made: list[str]) -> None:
    for _ in range(2):
        with pytest.raises((UnsupportedError, DTypeError)):
            stored.stored_body(body_of("exp", X.astype(np.float64)), PAGE)
    assert made == ["lowered_body"] * 2
    assert not home.exists()


def test_an_op_of_another_package_is_not_stored(home: Path, made: list[str]) -> None:
    body = exp()
    node = body.nodes[0]
    body.nodes[0] = replace(node, op=copy.copy(node.op))
    for _ in range(2):
        stored.stored_body(body, PAGE)
    assert made == ["lowered_body"] * 2
    assert not home.exists()


def _content(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    """An entry whose container is whole, and whose content is another."""

    def changed(entry: bytes) -> bytes:
        key = entry[12:44]
        image, facts = unpack(entry, key)
        (length,) = reuse._LENGTH.unpack_from(image)
        end = reuse._LENGTH.size + length
        content = json.loads(zlib.decompress(image[end:]))
        new = change(content)
        return pack(key, image[:end] + zlib.compress(json.dumps(content if new is None else new).encode()), facts)

    return changed


def _launch(position: int, value: Any) -> Callable[[bytes], bytes]:
    return _content(lambda c: c[2][0].__setitem__(position, value))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda e: e[:-7],
    "a changed byte": lambda e: e[:-9] + bytes([e[-9] ^ 4]) + e[-8:],
    "a changed byte of the key": lambda e: e[:20] + bytes([e[20] ^ 1]) + e[21:],
    "empty": lambda e: b"",
    "noise": lambda e: bytes(len(e)),
    "no list": _content(lambda c: {}),
    "nothing": _content(lambda c: []),
    "text": _content(lambda c: "launches"),
    "a check more": _content(lambda c: c.__setitem__(0, c[0] + 1)),
    "no check": _content(lambda c: c.__setitem__(0, None)),
    "launches that are no list": _content(lambda c: c.__setitem__(2, 5)),
    "a launch with less": _content(lambda c: c[2][0].pop()),
    "a temporary of no dtype": _content(lambda c: c[1].append(["float33", 4])),
    "a temporary of no size": _content(lambda c: c[1].append(["float32", "4"])),
    **{f"text at {k}": _launch(k, "text") for k in range(1, 13)},
    "a text that is a number": _launch(0, 3),
    "a grid of floats": _launch(12, [1.5]),
    "a truth in place of a number": _launch(3, True),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.filterwarnings("ignore::firebrick.compiler.cache.CacheWarning")
def test_a_damaged_entry_is_not_used_and_replaced(home: Path, made: list[str], name: str) -> None:
    body = take("a.py:1")
    want = stored.stored_body(body, PAGE)
    (path,) = home.iterdir()
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[name](whole))
    assert path.read_bytes() != whole
    assert stored.stored_body(body, PAGE) == want
    assert made == ["lowered_body"] * 2
    assert path.read_bytes() == whole
    assert stored.stored_body(body, PAGE) == want
    assert made == ["lowered_body"] * 2


@pytest.mark.filterwarnings("ignore::firebrick.compiler.cache.CacheWarning")
def test_the_entry_of_another_group_is_not_used(home: Path, made: list[str]) -> None:
    stored.stored_body(exp(), PAGE)
    (path,) = home.iterdir()
    other = path.read_bytes()
    path.unlink()
    stored.stored_body(body_of("log", X), PAGE)
    (path,) = home.iterdir()
    for content in (other, pack(path.read_bytes()[12:44], unpack(other, other[12:44])[0], {"functions": []})):
        path.write_bytes(content)
        made.clear()
        assert stored.stored_body(body_of("log", X), PAGE) == lowering.lowered_body(body_of("log", X), PAGE)
        assert made


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files of other users are told apart on POSIX systems")
def test_an_entry_that_others_can_write_is_not_used(home: Path, made: list[str]) -> None:
    stored.stored_body(exp(), PAGE)
    (path,) = home.iterdir()
    path.chmod(0o666)
    with pytest.warns(cache.CacheWarning, match="another user may write"):
        stored.stored_body(exp(), PAGE)
    assert made == ["lowered_body"] * 2
    stored.stored_body(exp(), PAGE)
    assert len(made) == 2
