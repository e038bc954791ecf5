"""Classes of positions of a strided convolution's image, compared with all pairs of a tap and a position of the result."""

from __future__ import annotations

from itertools import product

from firebrick.compiler.spec.convolution import residues


def test_each_class_names_its_positions_and_all_taps_that_read_them() -> None:
    for size, kernel, stride, pad, dilation in product((1, 2, 5, 6), (1, 2, 3, 4), (1, 2, 3), (0, 1, 3), (1, 2, 3)):
        case = size, kernel, stride, pad, dilation
        read = {(at, tap): (at + pad - tap * dilation) // stride for at in range(size) for tap in range(kernel)
                if (at + pad - tap * dilation) % stride == 0}  # fmt: skip
        found, seen = {}, []
        for r in residues(*case):
            positions = range(r.first, r.first + r.count * stride, stride)
            assert r.count > 0, case
            assert len({(p + pad) % stride for p in positions}) == 1, case
            seen += positions
            for place, position in enumerate(positions):
                for k in range(r.taps):
                    found[position, r.tap + k * r.step] = r.at + place - k * r.back
        assert sorted(seen) == list(range(size)), case
        assert found == read, case
