"""Kernels of ``Sort``: radix sorts of keys, digit by digit from the lowest, each pass stable.

Short lines are sorted by one thread each, in its own memory. The k first elements of a line are chosen before they are sorted,
by a histogram of the highest digits. A long line is first distributed over buckets by its highest digit, by all threads:
blocks count their digits, and move their elements to the places that follow from the counts of all blocks. Then the buckets
are sorted, each by one thread. There is one right order, so the bits do not depend on blocks, buckets or threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firebrick.compiler.spec.sort import Sort
from firebrick.compiler.targets.llvm import naive_form
from firebrick.compiler.targets.llvm.cpu_policy import RANKED
from firebrick.compiler.targets.llvm.emit import Code
from firebrick.compiler.targets.llvm.lowered import Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.native import NAME, Loop, NativeKernel, buffer_pointers, finish, module_text, named
from firebrick.compiler.targets.llvm.scratch import Scratch
from firebrick.compiler.targets.llvm.sort_elements import Room, SortElements, at, chosen
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval

LONG = 1 << 15
"""Minimum length of a line that is distributed over buckets."""
BLOCK = 1 << 15
"""Elements of a block of a long line."""
BUCKET = 1 << 10
"""Elements that a bucket has if all digits are equally frequent."""
HIGHEST = 11
"""Most bits of the digit by which a long line is distributed, and of the one by which the k first elements are chosen."""
NS_PER_PASS, NS_PER_ELEMENT = 1.5, 5.0
"""Assumed nanoseconds of a pass for each element, and of what else is done for it."""


def lowered(spec: Sort, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target) -> Lowered:
    """The kernels of a specification; arguments as for ``loop_kernels.lowered``."""
    results = len(outputs)
    if spec.size <= RANKED:
        return naive_form.lowered(spec, inputs, outputs, target)
    if spec.size >= LONG:
        parts, temporary = _LongLines(spec, target, 1 + results).parts()
    else:
        parts, temporary = [_short_lines(spec, target, 1 + results)], ()
    parts = [LoweredKernel(named(p.kernel, "sort"), p.buffers, p.cost_us) for p in parts]
    text = module_text({p.kernel.name: p.kernel for p in parts}.values())
    return Lowered(tuple(parts), temporary, text, (frozenset(),) * results).of(spec.sources, len(inputs))


def _cost_us(elements: int, passes: int) -> float:
    return elements * (NS_PER_ELEMENT + passes * NS_PER_PASS) / 1000


def _digit_bits(size: int) -> int:
    """Bits of the digits of a line: a pass takes time for each number that a digit can be."""
    return 8 if size >= 512 else 6 if size >= 96 else 4


# parts of kernels


def _when(code: Code, condition: str, body: Callable[[], None]) -> None:
    """Write ``body``, executed if a condition (i1) is true."""
    yes, after = code.fresh("yes"), code.fresh("after")
    code.do(f"br i1 {condition}, label %{yes}, label %{after}")
    code.label(yes)
    body()
    code.do(f"br label %{after}")
    code.label(after)


def _cleared(code: Code, counters: str, count: int) -> None:
    """Set counters (i32) to 0."""
    size = ("i64", str(4 * count))
    code.call("void", "llvm.memset.p0.i64", ("ptr align 4", counters), ("i8", "0"), size, ("i1", "false"))


def _counted(code: Code, counters: str, digit: str) -> str:
    """Add one to a counter; returns what it was (i64)."""
    slot = at(code, "i32", counters, digit)
    before = code.put(f"load i32, ptr {slot}")
    code.do(f"store i32 {code.put(f'add i32 {before}, 1')}, ptr {slot}")
    return code.put(f"zext i32 {before} to i64")


def _summed(code: Code, counters: str, count: int) -> None:
    """Replace counters by the sums of those before them."""
    loop = Loop(code, "0", str(count), 1, [("i32", "0")])
    slot = at(code, "i32", counters, loop.index)
    here = code.put(f"load i32, ptr {slot}")
    code.do(f"store i32 {loop.values[0]}, ptr {slot}")
    loop.close([code.put(f"add i32 {loop.values[0]}, {here}")])


def _sorted(
    code: Code, elements: SortElements, rooms: tuple[Room, Room], count: str, counters: str, passes: str, bits: int
) -> Room:
    """Sort the elements of the first of two rooms by their lowest digits; returns the room that they are in then.

    Args:
        code: Function to append to.
        elements: How they are kept.
        rooms: Where they are, and where there is room for as many.
        count: Their number (i64), at least 1.
        counters: Memory for a counter (i32) for each digit.
        passes: Number of digits (i64).
        bits: Bits of a digit.
    """
    width = len(rooms[0])
    carried = [("ptr", p) for room in rooms for p in room]
    each = Loop(code, "0", passes, 1, carried)
    source, goal = tuple(each.values[:width]), tuple(each.values[width:])
    shift = code.put(f"mul i64 {each.index}, {bits}")
    _cleared(code, counters, 1 << bits)
    loop = Loop(code, "0", count, 1)
    _counted(code, counters, elements.digit(code, elements.load(code, source, loop.index), shift, bits))
    loop.close()
    first = at(code, "i32", counters, elements.digit(code, elements.load(code, source, "0"), shift, bits))
    alike = code.put(f"zext i32 {code.put(f'load i32, ptr {first}')} to i64")
    differ = code.put(f"icmp ne i64 {alike}, {count}")

    def move() -> None:
        _summed(code, counters, 1 << bits)
        loop = Loop(code, "0", count, 1)
        element = elements.load(code, source, loop.index)
        elements.store(code, goal, _counted(code, counters, elements.digit(code, element, shift, bits)), element)
        loop.close()

    _when(code, differ, move)
    each.close([*chosen(code, differ, goal, source), *chosen(code, differ, source, goal)])
    return tuple(each.values[:width])


@dataclass(frozen=True, slots=True)
class _SortedLine:
    """The line of a work item.

    Attributes:
        source: Pointer to the operand's first element.
        results: Pointers to the first elements of the results.
    """

    source: str
    results: tuple[str, ...]


def _line(code: Code, spec: Sort, buffers: Sequence[str], number: str) -> _SortedLine:
    outer, inner = (code.put(f"{op} i64 {number}, {spec.inner}") for op in ("udiv", "urem"))

    def first(size: int) -> str:
        return code.put(f"add i64 {code.put(f'mul i64 {outer}, {size * spec.inner}')}, {inner}")

    elements = SortElements(spec.dtype, spec.descending)
    types = (f"i{elements.bits}", _index_type(spec))
    here = first(spec.kept)
    results = tuple(at(code, t, p, here) for t, p in zip(types, buffers[1:], strict=False))
    return _SortedLine(at(code, types[0], buffers[0], first(spec.size)), results)


def _index_type(spec: Sort) -> str:
    return "i32" if spec.index == "int32" else "i64"


def _element(code: Code, spec: Sort, elements: SortElements, line: _SortedLine, index: str) -> str:
    """The address of an element of a line."""
    return at(code, f"i{elements.bits}", line.source, code.put(f"mul i64 {index}, {spec.inner}"))


def _put(
    code: Code, spec: Sort, elements: SortElements, line: _SortedLine, room: Room, first: str, count: str
) -> None:  # fmt: skip
    """Write the ``count`` elements of a room as the results from index ``first``."""
    bits = elements.bits
    loop = Loop(code, "0", count, 1)
    index = elements.index(code, elements.load(code, room, loop.index))
    value = code.put(f"load i{bits}, ptr {_element(code, spec, elements, line, index)}, align {bits // 8}")
    goal = code.put(f"mul i64 {code.put(f'add i64 {first}, {loop.index}')}, {spec.inner}")
    code.do(f"store i{bits} {value}, ptr {at(code, f'i{bits}', line.results[0], goal)}, align {bits // 8}")
    if len(line.results) > 1:
        t = _index_type(spec)
        index = index if t == "i64" else code.put(f"trunc i64 {index} to {t}")
        code.do(f"store {t} {index}, ptr {at(code, t, line.results[1], goal)}")
    loop.close()


# short lines


def _short_lines(spec: Sort, target: Target, count: int) -> LoweredKernel:
    """The kernel whose items are lines."""
    code, elements = Code(target), SortElements(spec.dtype, spec.descending)
    buffers, scratch = buffer_pointers(code, count), Scratch(code)

    def room() -> Room:
        return tuple(scratch.array({"i64": "int64", "i32": "int32"}[t], spec.size).pointer for t in elements.arrays)

    rooms = room(), room()
    bits = _digit_bits(spec.size)
    highest = min(HIGHEST, elements.bits)
    chooses = 0 < spec.kept <= spec.size // 4 and spec.size >= 128
    counters = scratch.array("int32", 1 << max(bits, highest if chooses else 0)).pointer
    items = Loop(code, "%begin", "%end", 1)
    line = _line(code, spec, buffers, items.index)
    if chooses:
        _cleared(code, counters, 1 << highest)
    loop = Loop(code, "0", str(spec.size), 1)
    key = elements.key(code, _element(code, spec, elements, line, loop.index))
    elements.store(code, rooms[0], loop.index, elements.made(code, key, loop.index))
    if chooses:
        _counted(code, counters, code.put(f"lshr i64 {key}, {elements.bits - highest}"))
    loop.close()
    number = str(spec.size)
    if chooses:
        number = _chosen(code, spec, elements, rooms, counters, highest)
        rooms = rooms[::-1]
    passes = -(-elements.bits // bits)
    _put(code, spec, elements, line, _sorted(code, elements, rooms, number, counters, str(passes), bits), "0", str(spec.kept))
    items.close()
    lines = spec.outer * spec.inner
    kernel = finish(NAME, code, count, lines, scratch.bytes)
    return LoweredKernel(kernel, tuple(range(count)), _cost_us(lines * spec.size, 1 if chooses else passes))


def _chosen(
    code: Code, spec: Sort, elements: SortElements, rooms: tuple[Room, Room], counters: str, highest: int
) -> str:  # fmt: skip
    """Copy the elements whose highest digit may be one of the k first from a room to another; returns their number (i64).

    ``counters`` are those of the digits. Elements up to the digit at which there are k are copied.
    """
    head, more, last = (code.fresh(stem) for stem in ("search", "more", "found"))
    before = code.block
    code.do(f"br label %{head}")
    code.label(head)
    digit, total = f"%{code.fresh('digit')}", f"%{code.fresh('total')}"
    following, summed = f"%{code.fresh('digit')}", f"%{code.fresh('total')}"
    code.do(f"{digit} = phi i64 [ 0, %{before} ], [ {following}, %{more} ]")
    code.do(f"{total} = phi i32 [ 0, %{before} ], [ {summed}, %{more} ]")
    here = code.put(f"load i32, ptr {at(code, 'i32', counters, digit)}")
    code.do(f"{summed} = add i32 {total}, {here}")
    code.do(f"br i1 {code.put(f'icmp ult i32 {summed}, {spec.kept}')}, label %{more}, label %{last}")
    code.label(more)
    code.do(f"{following} = add i64 {digit}, 1")
    code.do(f"br label %{head}")
    code.label(last)
    loop = Loop(code, "0", str(spec.size), 1, [("i64", "0")])
    element = elements.load(code, rooms[0], loop.index)
    elements.store(code, rooms[1], loop.values[0], element)
    own = elements.digit(code, element, str(elements.bits - highest), highest)
    taken = code.put(f"icmp ule i64 {own}, {digit}")
    loop.close([code.put(f"add i64 {loop.values[0]}, {code.put(f'zext i1 {taken} to i64')}")])
    return loop.values[0]


# long lines


class _LongLines:
    """The kernels of long lines.

    Their temporary buffers are the smallest and the largest key of each block; for each digit of a line and each block how
    many elements the block has, then where they go; where each bucket begins; and two rooms for all elements.
    """

    def __init__(self, spec: Sort, target: Target, buffers: int) -> None:
        self.spec, self.target, self.buffers = spec, target, buffers
        self.elements = SortElements(spec.dtype, spec.descending)
        self.lines = spec.outer * spec.inner
        self.blocks = -(-spec.size // BLOCK)
        self.bits = min(HIGHEST, self.elements.bits, (spec.size // BUCKET).bit_length())
        self.buckets = 1 << self.bits

    def parts(self) -> tuple[list[LoweredKernel], tuple[int, ...]]:
        """The kernels, and the bytes of their temporary buffers."""
        n, lines, width = self.lines * self.spec.size, self.lines, len(self.elements.arrays)
        passes = -(-(self.elements.bits - self.bits) // 8)
        temporary = (
            16 * lines * self.blocks, 4 * lines * self.buckets * self.blocks, 4 * lines * (self.buckets + 1),
            *(size * n for size in self.elements.nbytes * 2),
        )  # fmt: skip
        numbers = tuple(range(self.buffers, self.buffers + len(temporary)))
        ranges, counts, starts = numbers[:3]
        first, second = numbers[3 : 3 + width], numbers[3 + width :]
        results = tuple(range(1, self.buffers))
        return [
            LoweredKernel(self._ranges(), (0, ranges), _cost_us(n, 0)),
            LoweredKernel(self._counts(), (0, ranges, counts), _cost_us(n, 0)),
            LoweredKernel(self._starts(), (counts, starts), lines * self.buckets * self.blocks / 1000),
            LoweredKernel(self._distribution(), (0, ranges, counts, *first), _cost_us(n, 1)),
            LoweredKernel(self._buckets(), (0, *results, ranges, starts, *first, *second), _cost_us(n, passes)),
        ], temporary

    def _block(self, code: Code, buffers: Sequence[str], number: str) -> tuple[_SortedLine, str, str, str, str]:
        """The line of a block, the line's number, the block's number in it, and its first and last index."""
        own, of = (code.put(f"{op} i64 {number}, {self.blocks}") for op in ("urem", "udiv"))
        begin = code.put(f"mul i64 {own}, {BLOCK}")
        far = code.put(f"add i64 {begin}, {BLOCK}")
        end = code.call("i64", "llvm.umin.i64", ("i64", far), ("i64", str(self.spec.size)))
        return _line(code, self.spec, buffers[:1], of), of, own, begin, end

    def _key(self, code: Code, line: _SortedLine, index: str) -> str:
        return self.elements.key(code, _element(code, self.spec, self.elements, line, index))

    def _bounds(self, code: Code, ranges: str, line: str) -> tuple[str, str]:
        """The smallest key of a line, and the number of lower bits below the highest digit of the keys less it."""
        first = code.put(f"mul i64 {line}, {self.blocks}")
        loop = Loop(code, "0", str(self.blocks), 1, [("i64", "-1"), ("i64", "0")])
        slot = code.put(f"mul i64 {code.put(f'add i64 {first}, {loop.index}')}, 2")
        low, high = (
            code.put(f"load i64, ptr {at(code, 'i64', ranges, where)}") for where in (slot, code.put(f"add i64 {slot}, 1"))
        )
        low = code.call("i64", "llvm.umin.i64", ("i64", low), ("i64", loop.values[0]))
        high = code.call("i64", "llvm.umax.i64", ("i64", high), ("i64", loop.values[1]))
        loop.close([low, high])
        low, high = loop.values
        zeros = code.call("i64", "llvm.ctlz.i64", ("i64", code.put(f"sub i64 {high}, {low}")), ("i1", "false"))
        below = code.put(f"sub i64 {64 - self.bits}, {zeros}")
        return low, code.call("i64", "llvm.smax.i64", ("i64", below), ("i64", "0"))

    def _ranges(self) -> NativeKernel:
        """The smallest and the largest key of each block."""
        code = Code(self.target)
        buffers = buffer_pointers(code, 2)
        items = Loop(code, "%begin", "%end", 1)
        line, _, _, begin, end = self._block(code, buffers, items.index)
        loop = Loop(code, begin, end, 1, [("i64", "-1"), ("i64", "0")])
        key = self._key(code, line, loop.index)
        low = code.call("i64", "llvm.umin.i64", ("i64", key), ("i64", loop.values[0]))
        high = code.call("i64", "llvm.umax.i64", ("i64", key), ("i64", loop.values[1]))
        loop.close([low, high])
        slot = code.put(f"mul i64 {items.index}, 2")
        for where, value in zip((slot, code.put(f"add i64 {slot}, 1")), loop.values, strict=True):
            code.do(f"store i64 {value}, ptr {at(code, 'i64', buffers[1], where)}")
        items.close()
        return finish(NAME, code, 2, self.lines * self.blocks)

    def _column(self, code: Code, counters: str, counts: str, line: str, own: str, copy: Callable[[str, str], None]) -> None:
        """Copy between a block's counters and its numbers among those of all blocks: ``copy(counter, number)``, addresses."""
        first = code.put(f"add i64 {code.put(f'mul i64 {line}, {self.buckets * self.blocks}')}, {own}")
        loop = Loop(code, "0", str(self.buckets), 1)
        where = code.put(f"add i64 {first}, {code.put(f'mul i64 {loop.index}, {self.blocks}')}")
        copy(at(code, "i32", counters, loop.index), at(code, "i32", counts, where))
        loop.close()

    def _counts(self) -> NativeKernel:
        """How many elements of each bucket a block has."""
        code = Code(self.target)
        buffers, scratch = buffer_pointers(code, 3), Scratch(code)
        counters = scratch.array("int32", self.buckets).pointer
        items = Loop(code, "%begin", "%end", 1)
        line, of, own, begin, end = self._block(code, buffers, items.index)
        low, shift = self._bounds(code, buffers[1], of)
        _cleared(code, counters, self.buckets)
        loop = Loop(code, begin, end, 1)
        above = code.put(f"sub i64 {self._key(code, line, loop.index)}, {low}")
        _counted(code, counters, code.put(f"lshr i64 {above}, {shift}"))
        loop.close()
        self._column(
            code, counters, buffers[2], of, own,
            lambda counter, number: code.do(f"store i32 {code.put(f'load i32, ptr {counter}')}, ptr {number}"),
        )  # fmt: skip
        items.close()
        return finish(NAME, code, 3, self.lines * self.blocks, scratch.bytes)

    def _starts(self) -> NativeKernel:
        """Where in its line each bucket begins, and in the bucket the elements of each block."""
        code = Code(self.target)
        counts, starts = buffer_pointers(code, 2)
        items = Loop(code, "%begin", "%end", 1)
        counters = at(code, "i32", counts, code.put(f"mul i64 {items.index}, {self.buckets * self.blocks}"))
        _summed(code, counters, self.buckets * self.blocks)
        own = at(code, "i32", starts, code.put(f"mul i64 {items.index}, {self.buckets + 1}"))
        loop = Loop(code, "0", str(self.buckets), 1)
        where = at(code, "i32", counters, code.put(f"mul i64 {loop.index}, {self.blocks}"))
        code.do(f"store i32 {code.put(f'load i32, ptr {where}')}, ptr {at(code, 'i32', own, loop.index)}")
        loop.close()
        code.do(f"store i32 {self.spec.size}, ptr {at(code, 'i32', own, str(self.buckets))}")
        items.close()
        return finish(NAME, code, 2, self.lines)

    def _distribution(self) -> NativeKernel:
        """Move the elements of each block to their buckets. Their keys are then those less the smallest of the line."""
        code, width = Code(self.target), len(self.elements.arrays)
        buffers, scratch = buffer_pointers(code, 3 + width), Scratch(code)
        counters = scratch.array("int32", self.buckets).pointer
        items = Loop(code, "%begin", "%end", 1)
        line, of, own, begin, end = self._block(code, buffers, items.index)
        low, shift = self._bounds(code, buffers[1], of)
        self._column(
            code, counters, buffers[2], of, own,
            lambda counter, number: code.do(f"store i32 {code.put(f'load i32, ptr {number}')}, ptr {counter}"),
        )  # fmt: skip
        room = self.elements.part(code, tuple(buffers[3:]), code.put(f"mul i64 {of}, {self.spec.size}"))
        loop = Loop(code, begin, end, 1)
        above = code.put(f"sub i64 {self._key(code, line, loop.index)}, {low}")
        goal = _counted(code, counters, code.put(f"lshr i64 {above}, {shift}"))
        self.elements.store(code, room, goal, self.elements.made(code, above, loop.index))
        loop.close()
        items.close()
        return finish(NAME, code, 3 + width, self.lines * self.blocks, scratch.bytes)

    def _buckets(self) -> NativeKernel:
        """Sort each bucket that has results, and write these."""
        spec, elements, width = self.spec, self.elements, len(self.elements.arrays)
        code, count = Code(self.target), self.buffers + 2 + 2 * width
        buffers, scratch = buffer_pointers(code, count), Scratch(code)
        counters = scratch.array("int32", 1 << 8).pointer
        ranges, starts = buffers[self.buffers : self.buffers + 2]
        first, second = buffers[self.buffers + 2 : self.buffers + 2 + width], buffers[self.buffers + 2 + width :]
        items = Loop(code, "%begin", "%end", 1)
        of, number = (code.put(f"{op} i64 {items.index}, {self.buckets}") for op in ("udiv", "urem"))
        # neighbours are as full as each other, and no thread gets many of them
        apart = 1 << (self.bits // 2)
        near, far = (code.put(f"{op} i64 {number}, {self.buckets // apart}") for op in ("urem", "udiv"))
        number = code.put(f"add i64 {code.put(f'mul i64 {near}, {apart}')}, {far}")
        line = _line(code, spec, buffers[: self.buffers], of)
        slot = code.put(f"add i64 {code.put(f'mul i64 {of}, {self.buckets + 1}')}, {number}")
        borders = (at(code, "i32", starts, where) for where in (slot, code.put(f"add i64 {slot}, 1")))
        begin, end = (code.put(f"zext i32 {code.put(f'load i32, ptr {where}')} to i64") for where in borders)
        size = code.put(f"sub i64 {end}, {begin}")
        kept = code.call("i64", "llvm.umin.i64", ("i64", end), ("i64", str(spec.kept)))
        wanted = code.put(f"icmp ult i64 {begin}, {kept}")

        def bucket() -> None:
            _, shift = self._bounds(code, ranges, of)
            passes = code.put(f"lshr i64 {code.put(f'add i64 {shift}, 7')}, 3")
            passes = code.put(f"select i1 {code.put(f'icmp ugt i64 {size}, 1')}, i64 {passes}, i64 0")
            place = code.put(f"add i64 {code.put(f'mul i64 {of}, {spec.size}')}, {begin}")
            rooms = elements.part(code, tuple(first), place), elements.part(code, tuple(second), place)
            room = _sorted(code, elements, rooms, size, counters, passes, 8)
            _put(code, spec, elements, line, room, begin, code.put(f"sub i64 {kept}, {begin}"))

        _when(code, wanted, bucket)
        items.close()
        return finish(NAME, code, count, self.lines * self.buckets, scratch.bytes)
