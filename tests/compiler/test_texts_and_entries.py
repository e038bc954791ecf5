"""What the compiler prints of programs, and keeps of them on disk: forms, sizes, positions, entries of plans."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.compiler import cache, reuse
from firebrick.compiler.forms import FORMS, forms_text
from firebrick.compiler.fusion.affine import affine, unknown, value, variable
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.fusion.row_updates import PUT_ROWS
from firebrick.compiler.program.plan import size_text
from firebrick.compiler.spec.base import structure, with_binding
from firebrick.compiler.spec.custom import KernelSite
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.targets.llvm import lower
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.scalar import complex_numbers, evaluate
from firebrick.scalar.complex_numbers import Parts
from firebrick.scalar.expr import load

SIZES = {
    0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1024**2 - 1: "1024.0 KiB", 1024**2: "1.0 MiB",
    1024**3 - 1: "1024.0 MiB", 1024**3: "1.00 GiB", 5 * 1024**3 // 2: "2.50 GiB", 1024**4: "1024.00 GiB",
}  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_a_number_of_bytes_as_text(size: int) -> None:
    assert size_text(size) == SIZES[size]


def test_forms_are_in_the_order_of_compilation_and_what_is_not_fused_last() -> None:
    graph = fb.jit(lambda x: fb.sum(x * 2.0) + 1.0).graph(fb.ones(3))
    fused = fuse(graph, lower.kind_of, POLICY)
    text = forms_text(graph, fused, FORMS[::-1], "A language", lambda body: "  code\n", ["a: 1", "b: 2", "a: 1"], ["c", "c"])
    heads = [line for line in text.split("\n") if line.startswith("# ")]
    assert heads == [
        "# Graph", "# Groups", "# Specifications", "# Naive forms", "# A language", "# Operations that are no groups",
        "# Groups without a proof, which are not fused",
    ]  # fmt: skip
    assert text.endswith("# Operations that are no groups\na: 1\nb: 2\n\n# Groups without a proof, which are not fused\nc\nc")
    assert forms_text(graph, graph, ("code",), "A language", str, [], []) == "# A language\nno groups"
    assert forms_text(graph, graph, (), "A language", str, [], []) == ""
    assert forms_text(graph, graph, ("graph",), "A language", str, [], []) == f"# Graph\n{graph}"


def test_positions_as_text() -> None:
    i = affine(variable("i", 8))
    found = [
        str(x) for x in (affine(0), affine(3), i, i * 2 + 3, (i * 2 + 1) // 3, (i * 2 + 1) % 3, value("v", 4), unknown("u"))
    ]
    assert found == ["0", "3", "i", "2·i + 3", "(2·i + 1) // 3", "(2·i + 1) % 3", "v", "u"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    with fb.config.scope(cache_dir=str(tmp_path)):
        yield tmp_path


def test_what_was_kept_of_a_graph_is_found_again(home: Path) -> None:
    content: Any = {"a": [1, 2.5, None, "x"]}
    reuse.save("plan", b"form", content)
    assert reuse.load("plan", b"form") == content
    assert reuse.load("other", b"form") is None
    assert reuse.load("plan", b"another form") is None
    (entry,) = cache.store.entries()
    assert entry.facts["functions"] == ["(plan)"]


def test_what_cannot_be_written_is_not_kept(home: Path) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    own: list[Any] = []
    own.append(own)
    for content in (object(), {1j: 2}, own, deep):
        reuse.save("plan", b"form", content)
        assert list(cache.store.entries()) == []
    while deep:  # from the outside, or the destructors would nest as deeply
        deep = deep[0]


FOUR = reuse._LENGTH.pack(4)
DAMAGE = {
    "nothing": b"", "half a length": FOUR[:-1], "another form": FOUR + b"mrof" + zlib.compress(b"1"),
    "not compressed": FOUR + b"form1", "no JSON": FOUR + b"form" + zlib.compress(b"{"), "no content": FOUR + b"form",
    "a deep list": FOUR + b"form" + zlib.compress(b"[" * 100_000), "a form that is cut": FOUR + b"for",
    "a content that is cut": FOUR + b"form" + zlib.compress(b"[1, 2, 3]" + b" " * 100)[:-12],
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_entry_is_none(name: str, home: Path) -> None:
    cache.store.save(reuse._key("plan", b"form"), DAMAGE[name], {})
    assert reuse.load("plan", b"form") is None
    cache.store.save(reuse._key("plan", b"form"), FOUR + b"form" + zlib.compress(b"1"), {})
    assert reuse.load("plan", b"form") == 1


def test_content_that_is_too_long_is_neither_kept_nor_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse, "MOST_BYTES", 100)
    reuse.save("plan", b"form", [1] * 60)
    assert list(cache.store.entries()) == []
    reuse.save("plan", b"form", [1] * 40)
    assert reuse.load("plan", b"form") == [1] * 40
    for spaces, found in ((99, 1), (100, None), (1 << 20, None)):
        content = FOUR + b"form" + zlib.compress(b"1" + b" " * spaces)
        cache.store.save(reuse._key("plan", b"form"), content, {})
        assert reuse.load("plan", b"form") == found


def test_a_structure_takes_as_many_sizes_as_it_has() -> None:
    spec = spec_of(fb.jit(lambda x: fb.exp(x) * 2.0).graph(fb.ones((3, 5))))
    sizes = structure(spec)[1]
    assert with_binding(spec, sizes) == spec
    for wrong in (sizes[:-1], (*sizes, 1)):
        with pytest.raises(ValueError, match=rf"a structure takes {len(sizes)} sizes\. Received: {len(wrong)}$"):
            with_binding(spec, wrong)


CASTS = {"bool": [False, True, True, True], "int32": [0, 2, 0, 0], "float64": [0.0, 2.5, 0.0, 0.0]}


@pytest.mark.parametrize("to", CASTS)
def test_a_complex_number_as_a_real_one_is_its_real_part_and_true_if_it_is_not_zero(to: str) -> None:
    x = [np.array(v, np.float32) for v in ([0, 2.5, 0, -0.0], [0, 1, 1, np.nan])]
    made = complex_numbers.to_dtype(Parts(load(0, "float32"), load(1, "float32")), dtype=fb.dtype(to))
    assert evaluate([made], x)[0].tolist() == CASTS[to]  # type: ignore[list-item]


def test_rows_are_put_into_a_copy() -> None:
    x = np.arange(6.0).reshape(3, 2)
    y = PUT_ROWS.reference(x, np.array([2, 0]), np.array([[9.0, 8.0], [7.0, 6.0]]))
    assert y.tolist() == [[7.0, 6.0], [2.0, 3.0], [9.0, 8.0]]
    assert x[0, 0] == 0.0
    assert y.flags.c_contiguous


def test_a_check_of_a_kernel_is_an_index_or_an_assertion() -> None:
    site = KernelSite("picked", "", 0, 0, "it is small", "model.py:12")
    assert str(site.error(7)).split("\n") == [
        "picked: it is small", "Received: an item for which this does not hold, at model.py:12.",
        "Remedy: correct the arguments.",
    ]  # fmt: skip
