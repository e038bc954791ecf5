"""The WGSL of arrays in several bindings, as text: what an access out of range does is another thing on each driver."""

import pytest

from firebrick.compiler.targets.wgsl.bindings import OFFSETS, BoundArray, window_bytes, windows_of

PLAIN = BoundArray("a", "vec4<f32>", 3, 16)
ATOMIC = BoundArray("a", "atomic<u32>", 2, 64)


def test_an_array_in_one_binding_has_no_functions() -> None:
    one = BoundArray("a", "atomic<u32>")
    texts = [one.load("i"), one.store("i", "v"), one.atomic("Add", "i", "v")]
    assert texts == ["atomicLoad(&a[i])", "atomicStore(&a[i], v);", "atomicAdd(&a[i], v)"]
    assert one.functions(" ".join(texts)) == []
    assert BoundArray("a", "f32").store("i", "v") == "a[i] = v;"


def test_a_function_accesses_one_window_and_returns() -> None:
    assert PLAIN.declarations(4, "read_write")[1:] == [
        "@group(0) @binding(5) var<storage, read_write> a_window1: array<vec4<f32>>;",
        "@group(0) @binding(6) var<storage, read_write> a_window2: array<vec4<f32>>;",
    ]
    assert PLAIN.functions(PLAIN.load("i") + PLAIN.store("i", "v")) == [
        "fn load_a(at: u32) -> vec4<f32> {",
        "    if (at < 16u) { return a[at]; }",
        "    if (at < 32u) { return a_window1[at - 16u]; }",
        "    return a_window2[at - 32u];",
        "}",
        "fn store_a(at: u32, value: vec4<f32>) {",
        "    if (at < 16u) { a[at] = value; return; }",
        "    if (at < 32u) { a_window1[at - 16u] = value; return; }",
        "    a_window2[at - 32u] = value;",
        "}",
    ]


def test_atomic_operations_are_functions_too() -> None:
    assert ATOMIC.functions(ATOMIC.atomic("Add", "i", "v")) == [
        "fn atomicAdd_a(at: u32, value: u32) -> u32 {",
        "    if (at < 64u) { return atomicAdd(&a[at], value); }",
        "    return atomicAdd(&a_window1[at - 64u], value);",
        "}",
    ]
    tried = "let tried = atomicCompareExchangeWeak(&{}, expected, value); return Tried_a(tried.old_value, tried.exchanged);"
    assert ATOMIC.functions(ATOMIC.atomic("CompareExchangeWeak", "i", "e", "v")) == [
        "struct Tried_a { old_value: u32, exchanged: bool }",
        "fn atomicCompareExchangeWeak_a(at: u32, expected: u32, value: u32) -> Tried_a {",
        f"    if (at < 64u) {{ {tried.format('a[at]')} }}",
        f"    {tried.format('a_window1[at - 64u]')}",
        "}",
    ]


@pytest.mark.parametrize(
    ("nbytes", "limit", "count"),
    [(0, 512, 1), (512, 512, 1), (513, 512, 2), (1024, 512, 2), (513, 767, 2), (512, 767, 1), (1 << 40, None, 1)],
)
def test_windows_begin_where_every_adapter_lets_a_binding_begin(nbytes: int, limit: int | None, count: int) -> None:
    assert windows_of(nbytes, limit) == count
    assert limit is None or window_bytes(limit) == 2 * OFFSETS
