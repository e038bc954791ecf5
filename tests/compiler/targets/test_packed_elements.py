"""WGSL of elements that are packed in words: each text is computed here, on words that NumPy packed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from firebrick.compiler.targets.wgsl.packed_elements import FOUR, NARROW, ElementMemory, QuadMemory

COUNT = 16


class Word:
    """A word of 32 bits, ``u32`` or ``i32``."""

    def __init__(self, value: int, signed: bool = False) -> None:
        self.bits, self.signed = int(value) & 0xFFFFFFFF, signed

    @property
    def value(self) -> int:
        return self.bits - (1 << 32) if self.signed and self.bits >> 31 else self.bits

    def _with(self, operation: Callable[[int, int], int], other: Any) -> Word:
        assert isinstance(other, Word), "a number is written with its type"
        return Word(operation(self.value, other.value), self.signed)

    def __and__(self, other: Any) -> Word:
        assert self.signed == other.signed
        return self._with(operator.and_, other)

    def __or__(self, other: Any) -> Word:
        assert self.signed == other.signed
        return self._with(operator.or_, other)

    def __lshift__(self, other: Any) -> Word:
        assert not other.signed
        assert other.value < 32
        return self._with(operator.lshift, other)

    def __rshift__(self, other: Any) -> Word:
        assert not other.signed
        assert other.value < 32
        return self._with(operator.rshift, other)

    def __truediv__(self, other: Any) -> Word:
        return self._with(operator.floordiv, other)

    def __mod__(self, other: Any) -> Word:
        return self._with(operator.mod, other)

    def __mul__(self, other: Any) -> Word:
        return self._with(operator.mul, other)

    def __invert__(self) -> Word:
        return Word(~self.bits, self.signed)

    def __ne__(self, other: object) -> bool:
        assert isinstance(other, Word)
        return self.bits != other.bits

    __hash__ = None  # type: ignore[assignment]


class Words:
    """An array of words."""

    def __init__(self, words: list[int]) -> None:
        self.words = words

    def __getitem__(self, at: Word) -> Word:
        return Word(self.words[at.value])


def _changed(change: Callable[[int, int], int]) -> Callable[[Words, Word, Word], None]:
    def atomic(array: Words, at: Word, value: Word) -> None:
        assert not value.signed, "words are u32"
        array.words[at.value] = change(array.words[at.value], value.bits)

    return atomic


def run(text: str, **names: Any) -> Any:
    """What WGSL computes: an expression, or a statement without its semicolon."""
    text = re.sub(r"&(\w+)\[(.*?)\](?=[,)])", r"\1, \2", text)
    text = re.sub(r"\b(0x[0-9a-f]+|\d+)u\b", r"Word(\1)", text)
    text = re.sub(r"bitcast<([ui])32>", r"bits_\1", text)
    text = re.sub(r"vec2<u32>", "pair", text)
    space = {
        "Word": Word, "bits_u": lambda w: Word(w.bits), "bits_i": lambda w: Word(w.bits, True),
        "u32": lambda w: Word(int(w) if isinstance(w, bool) else w.bits), "pair": lambda x, y: (x.bits, y.bits),
        "atomicLoad": lambda array, at: array[at], "atomicAnd": _changed(operator.and_), "atomicOr": _changed(operator.or_),
        "atomicStore": _changed(lambda old, new: new),
    }  # fmt: skip
    return eval(text, space, names)


def elements(dtype: str, count: int = COUNT) -> np.ndarray[Any, Any]:
    found = np.random.default_rng(3).integers(0, 256, 2 * count, np.uint8)
    if dtype == "bool":
        return found[:count] < 128
    return found.view(dtype)[:count]


def plain(x: Any) -> Any:
    return x.value if isinstance(x, Word) else x


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("dtype", NARROW)
def test_elements_that_are_packed_are_read_as_the_host_packs_them(dtype: str, atomic: bool) -> None:
    memory = ElementMemory("x", dtype, atomic=atomic)
    assert memory.bits == NARROW[dtype]
    assert memory.type == ("atomic<u32>" if atomic else "u32")
    wanted = elements(dtype)
    words = Words(wanted.view(np.uint32).tolist())
    text = memory.read("i")
    assert ("atomicLoad(&x[" in text) == atomic
    assert [plain(run(text, x=words, i=Word(k))) for k in range(COUNT)] == wanted.tolist()


@pytest.mark.parametrize("dtype", NARROW)
def test_an_element_is_stored_in_its_own_bits_of_a_word(dtype: str) -> None:
    memory = ElementMemory("x", dtype, atomic=True)
    old, new = elements(dtype), elements(dtype)[::-1].copy()
    words = Words(old.view(np.uint32).tolist())
    signed = dtype.startswith("int")
    for k in (0, 1, 2, 3, 6, COUNT - 1):
        value = bool(new[k]) if dtype == "bool" else Word(int(new[k]), signed)
        for statement in memory.write("i", "v"):
            run(statement.removesuffix(";"), x=words, i=Word(k), v=value)
        old[k] = new[k]
        assert np.array(words.words, np.uint32).view(old.dtype).tolist() == old.tolist()


@pytest.mark.parametrize("dtype", NARROW)
def test_quads_are_four_elements_as_the_host_packs_them(dtype: str) -> None:
    memory, wanted = QuadMemory("x", dtype), elements(dtype, FOUR)
    words = wanted.view(np.uint32).tolist()
    narrow = NARROW[dtype] == 8
    assert memory.type == ("u32" if narrow else "vec2<u32>")
    assert memory.held == "u32"
    quad = Word(words[0]) if narrow else SimpleNamespace(x=Word(words[0]), y=Word(words[1]))
    assert [plain(run(memory.read("q", k), q=quad)) for k in range(FOUR)] == wanted.tolist()
    values = [bool(v) if dtype == "bool" else Word(int(v), dtype.startswith("int")) for v in wanted]
    held = {f"s{k}": run(memory.part("v"), v=v) for k, v in enumerate(values)}
    made = run(memory.quad(list(held)), **held)
    assert ([made.bits] if narrow else list(made)) == words


WIDE = {"float32": "f32", "int32": "i32", "uint32": "u32"}


@pytest.mark.parametrize("dtype", WIDE)
def test_quads_of_32_bits_are_vectors(dtype: str) -> None:
    memory = QuadMemory("x", dtype)
    assert (memory.type, memory.held, memory.part("v")) == (f"vec4<{WIDE[dtype]}>", WIDE[dtype], "v")
    assert [memory.read("q", k) for k in range(FOUR)] == ["q.x", "q.y", "q.z", "q.w"]
    assert memory.quad(["a", "b", "c", "d"]) == f"vec4<{WIDE[dtype]}>(a, b, c, d)"


WHOLE = {  # dtype, whether it is of a group, whether it is atomic: type, a read, a store
    ("float32", False, False): ("f32", "x[i]", "x[i] = v;"),
    ("float32", False, True): ("atomic<u32>", "bitcast<f32>(atomicLoad(&x[i]))", "atomicStore(&x[i], bitcast<u32>(v));"),
    ("float32", True, False): ("f32", "x[i]", "x[i] = v;"),
    ("int32", False, True): ("atomic<i32>", "atomicLoad(&x[i])", "atomicStore(&x[i], v);"),
    ("uint32", False, False): ("u32", "x[i]", "x[i] = v;"),
    ("bool", True, False): ("u32", "(x[i] != 0u)", "x[i] = u32(v);"),
    ("bool", True, True): ("atomic<u32>", "(atomicLoad(&x[i]) != 0u)", "atomicStore(&x[i], u32(v));"),
    ("int8", True, False): ("i32", "x[i]", "x[i] = v;"),
    ("int16", True, True): ("atomic<i32>", "atomicLoad(&x[i])", "atomicStore(&x[i], v);"),
    ("uint8", True, False): ("u32", "x[i]", "x[i] = v;"),
    ("uint16", True, False): ("u32", "x[i]", "x[i] = v;"),
}


@pytest.mark.parametrize("memory", WHOLE)
def test_an_element_that_is_not_packed_has_a_word(memory: tuple[str, bool, bool]) -> None:
    dtype, shared, atomic = memory
    found = ElementMemory("x", dtype, shared, atomic)
    assert found.bits == 0
    assert (found.type, found.read("i"), *found.write("i", "v")) == WHOLE[memory]
