"""Bad input to every family of functions: the standard's exception, in the words of the function that the user called.

A table holds one row a mistake. What goes wrong in the same way everywhere (a list or an array for a tensor, an axis that is
not there, settings of the wrong type) is derived from the sample arguments of all public functions.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import sample_arguments

import firebrick as fb
from firebrick import ConfigError, DTypeError, FirebrickError, LinAlgError, OperandError, OutOfRangeError, ShapeError

L, F = fb.linalg, fb.fft


CALLS = sample_arguments.calls()


def operands(device: str) -> SimpleNamespace:
    """What the rows call functions with."""
    m = fb.asarray(np.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32), device=device)
    return SimpleNamespace(
        m=m, mask=m > 2.0, v=m[0], i=fb.asarray([0, 1], device=device), none=m[:0], scalar=m[0, 0],
        z=fb.astype(m, fb.complex64), square=fb.asarray([[2.0, 1.0], [1.0, 3.0]], device=device),
        seven=fb.ones(7, device=device),
        image=fb.ones((2, 4, 6, 6), device=device), kernel=fb.ones((4, 4, 3, 3), device=device), array=np.ones((2, 3)),
    )  # fmt: skip


class Row(NamedTuple):
    """A bad call, the exception it raises, the function that its first line names, and what its text tells."""

    call: Callable[[SimpleNamespace], Any]
    error: type[FirebrickError]
    name: str
    tells: tuple[str, ...]


def row(name: str, error: type[FirebrickError], call: Callable[[SimpleNamespace], Any], *tells: str) -> Row:
    return Row(call, error, name, tells)


def _set(o: SimpleNamespace, key: Any, value: Any) -> None:
    x = fb.asarray(o.m, copy=True)
    x[key] = value


ROWS: dict[str, list[Row]] = {
    "elementwise": [
        row("multiply", OperandError, lambda o: o.m * [1.0], "x2", "list"),
        row("add", OperandError, lambda o: fb.add(1.0, 2.0), "x1", "tensor"),
        row("add", OperandError, lambda o: o.m + o.array, "x2", "NumPy array"),
        row("add", ShapeError, lambda o: o.m + o.seven, "x1", "float32[7]"),
        row("add", DTypeError, lambda o: o.i + o.m[:, 0], "x1", "int64"),
        row("add", DTypeError, lambda o: o.i + 0.5, "0.5", "int64"),
        row("add", DTypeError, lambda o: fb.astype(o.i, fb.int8) + 300, "x2=300", "[-128, 127]"),
        row("add", DTypeError, lambda o: fb.add(o.m, o.m, out=o.i), "out", "int64"),
        row("add", ShapeError, lambda o: fb.add(o.m, o.m, out=o.v), "out", "float32[3]"),
        row("square", OperandError, lambda o: fb.square(o.m, out=3), "out", "int 3"),
        row("rsqrt", OperandError, lambda o: fb.rsqrt(None), "x", "None"),
        row("sqrt", DTypeError, lambda o: fb.sqrt(o.i), "x", "int64"),
        row("less", DTypeError, lambda o: fb.less(o.z, o.z), "x1", "complex64"),
        row("exp2", DTypeError, lambda o: fb.exp2(o.i), "x", "int64"),
        row("signbit", DTypeError, lambda o: fb.signbit(o.i), "x", "int64"),
        row("angle", DTypeError, lambda o: fb.angle(o.mask), "x", "bool"),
        row("where", DTypeError, lambda o: fb.where(o.m, o.m, o.m), "condition", "float32"),
        row("where", OperandError, lambda o: fb.where([True], o.m, o.m), "condition", "list"),
        row("clip", OperandError, lambda o: fb.clip(o.m, "low"), "min", "'low'"),
        row("clip", DTypeError, lambda o: fb.clip(o.i, 0.5), "0.5", "int64"),
        row("clip", DTypeError, lambda o: fb.clip(o.i == 0), "real-valued numeric dtype", "x: bool"),
        row("astype", DTypeError, lambda o: fb.astype(o.m, "float99"), "dtype", "float99"),
        row("astype", DTypeError, lambda o: fb.astype(o.z, fb.float32), "complex", "float32"),
        row("logsumexp", ShapeError, lambda o: fb.logsumexp(o.none), "x", "float32[0,3]"),
        row("logsumexp", OutOfRangeError, lambda o: fb.logsumexp(o.m, axis=5), "axis", "5"),
    ],
    "activation": [
        row("silu", DTypeError, lambda o: fb.silu(o.i), "x", "int64"),
        row("relu6", OperandError, lambda o: fb.relu6(o.array), "x", "NumPy array"),
        row("gelu", ConfigError, lambda o: fb.gelu(o.m, approximate="erf"), "approximate", "'erf'"),
        row("softplus", ConfigError, lambda o: fb.softplus(o.m, beta=0), "beta", "0"),
        row("elu", ConfigError, lambda o: fb.elu(o.m, alpha="a"), "alpha", "'a'"),
        row("hardtanh", ConfigError, lambda o: fb.hardtanh(o.m, min_val=2.0), "min_val", "2.0"),
        row("softshrink", ConfigError, lambda o: fb.softshrink(o.m, lambd=-1), "lambd", "-1"),
        row("glu", ShapeError, lambda o: fb.glu(o.m), "axis", "float32[2,3]"),
        row("prelu", ShapeError, lambda o: fb.prelu(o.m, o.seven), "weight", "float32[7]"),
    ],
    "bitwise": [
        row("bitwise_invert", DTypeError, lambda o: fb.bitwise_invert(o.m), "x", "float32"),
        row("bitwise_and", DTypeError, lambda o: o.i & 0.5, "0.5", "int64"),
        row("bitwise_left_shift", DTypeError, lambda o: fb.bitwise_left_shift(o.m, o.i), "x1", "float32"),
        row("logical_not", DTypeError, lambda o: fb.logical_not(fb.astype(o.m, fb.float8_e5m2)), "x", "float8_e5m2"),
    ],
    "reductions": [
        row("sum", OutOfRangeError, lambda o: o.m.sum(axis=9), "axis", "9"),
        row("sum", ShapeError, lambda o: fb.sum(o.m, axis=(0, 0)), "axes", "(0, 0)"),
        row("sum", ShapeError, lambda o: fb.sum(o.m, axis="rows"), "axis", "'rows'"),
        row("sum", DTypeError, lambda o: fb.sum(o.m, dtype="float99"), "dtype", "float99"),
        row("sum", DTypeError, lambda o: fb.sum(o.z, dtype=fb.float32), "dtype", "complex64"),
        row("prod", DTypeError, lambda o: fb.prod(o.m, dtype=fb.bool), "dtype", "bool"),
        row("nansum", OutOfRangeError, lambda o: fb.nansum(o.m, axis=-3), "axis", "-3"),
        row("mean", DTypeError, lambda o: fb.mean(o.i), "x", "int64"),
        row("var", DTypeError, lambda o: fb.var(o.z), "x", "complex64"),
        row("var", OutOfRangeError, lambda o: fb.var(o.m, axis=2), "axis", "2"),
        row("std", ShapeError, lambda o: fb.std(o.m, axis="x"), "axis", "'x'"),
        row("std", ConfigError, lambda o: fb.std(o.m, correction=None), "correction", "None"),
        row("nanvar", ConfigError, lambda o: fb.nanvar(o.m, correction="1"), "correction", "'1'"),
        row("max", ShapeError, lambda o: fb.max(o.none), "shape (0, 3)"),
        row("max", DTypeError, lambda o: fb.max(o.z), "x", "complex64"),
        row("ptp", ShapeError, lambda o: fb.ptp(o.none), "x", "float32[0,3]"),
        row("nanmax", ShapeError, lambda o: fb.nanmax(o.none), "x", "float32[0,3]"),
        row("argmax", ShapeError, lambda o: fb.argmax(o.none), "elements"),
        row("argmin", ShapeError, lambda o: fb.argmin(o.none, axis=0), "elements"),
        row("argmax", ShapeError, lambda o: fb.argmax(o.m, axis=(0, 1)), "axis", "(0, 1)"),
        row("nanargmax", ShapeError, lambda o: fb.nanargmax(o.none), "x", "float32[0]"),
        row("count_nonzero", OutOfRangeError, lambda o: fb.count_nonzero(o.m, axis=7), "axis", "7"),
        row("all", OperandError, lambda o: fb.all([True]), "x", "list"),
    ],
    "scans": [
        row("cumulative_sum", ShapeError, lambda o: fb.cumulative_sum(o.m), "axis", "float32[2,3]"),
        row("cumulative_prod", ShapeError, lambda o: fb.cumulative_prod(o.scalar), "axis", "float32[]"),
        row("cumulative_logsumexp", DTypeError, lambda o: fb.cumulative_logsumexp(o.i), "x", "int64"),
        row("cummax", DTypeError, lambda o: fb.cummax(o.z, axis=0), "x", "complex64"),
        row("diff", ConfigError, lambda o: fb.diff(o.v, n=-1), "n=-1"),
        row("diff", ShapeError, lambda o: fb.diff(o.m, prepend=o.v), "prepend", "float32[3]"),
        row("diff", DTypeError, lambda o: fb.diff(o.v, append=o.i), "append", "int64"),
    ],
    "statistics": [
        row("median", ShapeError, lambda o: fb.median(o.none), "x", "float32[0,3]"),
        row("median", DTypeError, lambda o: fb.median(o.i), "x", "int64"),
        row("quantile", ConfigError, lambda o: fb.quantile(o.m, 1.5), "q", "1.5"),
        row("quantile", ConfigError, lambda o: fb.quantile(o.m, fb.nan), "q", "nan"),
        row("quantile", OperandError, lambda o: fb.quantile(o.m, [[0.5]]), "q", "[[0.5]]"),
        row("quantile", ConfigError, lambda o: fb.quantile(o.m, 0.5, method="spline"), "method", "'spline'"),
        row("percentile", ConfigError, lambda o: fb.percentile(o.m, -1), "q", "-1"),
        row("cov", ConfigError, lambda o: fb.cov(o.m, correction=3), "correction", "3"),
        row("average", ShapeError, lambda o: fb.average(o.m, weights=o.seven), "weights", "float32[7]"),
        row("trapezoid", ShapeError, lambda o: fb.trapezoid(o.m, o.seven), "x", "float32[7]"),
    ],
    "sorting": [
        row("sort", OutOfRangeError, lambda o: fb.sort(o.scalar), "axis"),
        row("argsort", DTypeError, lambda o: fb.argsort(o.z), "x", "complex64"),
        row("top_k", OutOfRangeError, lambda o: fb.top_k(o.m, 4), "k", "4"),
        row("top_k", OutOfRangeError, lambda o: fb.top_k(o.m, -1), "k", "-1"),
        row("top_k", OutOfRangeError, lambda o: fb.top_k(o.m, 1.5), "k", "1.5"),
    ],
    "searching": [
        row("nonzero", ShapeError, lambda o: fb.nonzero(o.scalar), "x", "float32[]"),
        row("nonzero", ConfigError, lambda o: fb.nonzero(o.m, size=-1), "size", "-1"),
        row("argwhere", ConfigError, lambda o: fb.argwhere(o.m, size=3, fill_value="x"), "fill_value", "'x'"),
        row("searchsorted", ConfigError, lambda o: fb.searchsorted(o.v, o.v, side="up"), "side", "'up'"),
        row("searchsorted", ShapeError, lambda o: fb.searchsorted(o.m, o.v), "x1", "float32[2,3]"),
        row("searchsorted", DTypeError, lambda o: fb.searchsorted(o.v, o.i), "x2", "int64"),
        row("searchsorted", OutOfRangeError, lambda o: fb.searchsorted(o.i, o.i, sorter=o.i + 5), "sorter", "5"),
    ],
    "sets": [
        row("unique_values", DTypeError, lambda o: fb.unique_values(fb.astype(o.m, fb.float8_e5m2)), "x", "float8_e5m2"),
        row("unique_all", ConfigError, lambda o: fb.unique_all(o.m, size=1.5), "size", "1.5"),
        row("unique_values", ConfigError, lambda o: fb.unique_values(o.m, size=9, fill_value="x"), "fill_value", "'x'"),
        row("isin", DTypeError, lambda o: fb.isin(o.m, o.i), "x1", "int64"),
    ],
    "histograms": [
        row("bincount", OutOfRangeError, lambda o: fb.bincount(o.i - 1), "-1", "x"),
        row("bincount", ConfigError, lambda o: fb.bincount(o.i, minlength=1.5), "minlength", "1.5"),
        row("bincount", ShapeError, lambda o: fb.bincount(o.i, o.v), "weights", "float32[3]"),
        row("histogram", ConfigError, lambda o: fb.histogram(o.m, 0), "bins", "0"),
        row("histogram", ConfigError, lambda o: fb.histogram(o.m, ["a", "b"]), "bins[0]", "'a'"),
        row("histogram", ConfigError, lambda o: fb.histogram(o.m, [3.0, 1.0]), "bins", "order"),
        row("histogram", ConfigError, lambda o: fb.histogram(o.m, 3, range=(2, 1)), "range", "(2.0, 1.0)"),
        row("histogram", ConfigError, lambda o: fb.histogram(o.m, 3, range=5), "range", "5"),
        row("digitize", ShapeError, lambda o: fb.digitize(o.v, o.m), "bins", "float32[2,3]"),
    ],
    "movement": [
        row("reshape", ShapeError, lambda o: o.m.reshape(5), "6", "(5,)"),
        row("reshape", ShapeError, lambda o: fb.reshape(o.m, None), "shape", "None"),
        row("permute_dims", ShapeError, lambda o: fb.permute_dims(o.m, (0, 0)), "axes", "(0, 0)"),
        row("permute_dims", ShapeError, lambda o: fb.permute_dims(o.m, 1), "axes", "1"),
        row("moveaxis", OutOfRangeError, lambda o: fb.moveaxis(o.m, 9, 0), "axis", "9"),
        row("squeeze", ShapeError, lambda o: fb.squeeze(o.m, 0), "axis 0", "(2, 3)"),
        row("expand_dims", OutOfRangeError, lambda o: fb.expand_dims(o.m, 9), "axis", "9"),
        row("broadcast_to", ShapeError, lambda o: fb.broadcast_to(o.m, (4, 4)), "(2, 3)", "(4, 4)"),
        row("broadcast_arrays", ShapeError, lambda o: fb.broadcast_arrays(o.m, o.seven), "(7,)"),
        row("concat", OperandError, lambda o: fb.concat([]), "list"),
        row("concat", OperandError, lambda o: fb.concat([o.m, o.array]), "arrays[1]", "NumPy array"),
        row("concat", ShapeError, lambda o: fb.concat([o.m, o.v]), "arrays[1]", "float32[3]"),
        row("hstack", ShapeError, lambda o: fb.hstack([o.m, o.m[:1]]), "arrays[1]", "float32[1,3]"),
        row("vstack", ShapeError, lambda o: fb.vstack([o.m, o.seven]), "arrays[1]", "float32[1,7]"),
        row("stack", DTypeError, lambda o: fb.stack([o.v, fb.astype(o.v, fb.int8)]), "arrays[1]", "int8"),
        row("split", ShapeError, lambda o: fb.split(o.m, (1, 5)), "(1, 5)"),
        row("chunk", ShapeError, lambda o: fb.chunk(o.m, 0), "chunks", "0"),
        row("array_split", ConfigError, lambda o: fb.array_split(o.m, ["a"]), "sections[0]", "'a'"),
        row("rot90", ConfigError, lambda o: fb.rot90(o.m, "left"), "k", "'left'"),
        row("rot90", ShapeError, lambda o: fb.rot90(o.m, axes=1), "axes", "1"),
        row("roll", ShapeError, lambda o: fb.roll(o.m, (1, 2)), "shift", "(1, 2)"),
        row("repeat", ShapeError, lambda o: fb.repeat(o.v, [1, 2]), "repeats", "2"),
        row("tile", ShapeError, lambda o: fb.tile(o.v, -1), "-1"),
        row("diagonal", ConfigError, lambda o: fb.diagonal(o.m, offset=0.5), "offset", "0.5"),
        row("unfold", ShapeError, lambda o: fb.unfold(o.m, axis=1, size=9), "9"),
    ],
    "pad": [
        row("pad", ShapeError, lambda o: fb.pad(o.m, -1), "widths", "-1"),
        row("pad", ConfigError, lambda o: fb.pad(o.m, 1, mode="mirror"), "mode", "'mirror'"),
        row("pad", ConfigError, lambda o: fb.pad(o.m, 1, mode=["edge"]), "mode", "['edge']"),
        row("pad", ShapeError, lambda o: fb.pad(o.m, 9, mode="reflect"), "axis", "9"),
        row("pad", DTypeError, lambda o: fb.pad(o.i, 1, value=0.5), "0.5", "int64"),
    ],
    "indexing": [
        row("x[key]", OutOfRangeError, lambda o: o.m[9], "axis 0", "9"),
        row("x[key]", OutOfRangeError, lambda o: o.m[0, 0, 0], "2 axes", "3"),
        row("x[key]", OutOfRangeError, lambda o: o.m[o.i + 5], "indices", "5"),
        row("x[key]", OutOfRangeError, lambda o: o.m[:, o.i + 5], "indices", "5"),
        row("x[key]", OperandError, lambda o: o.m["first"], "index", "'first'"),
        row("x[key]", OperandError, lambda o: o.m[o.m], "index", "float32"),
        row("x[key]", OperandError, lambda o: o.m[::0], "step", "slice"),
        row("x[key] = value", OperandError, lambda o: _set(o, 0, [1.0]), "value", "list"),
        row("x[key] = value", ShapeError, lambda o: _set(o, 0, o.seven), "value", "float32[7]"),
        row("x[key] = value", ShapeError, lambda o: _set(o, o.i, o.seven), "value", "float32[7]"),
        row("x[key] = value", DTypeError, lambda o: _set(o, 0, 1j), "1j", "float32"),
        row("take", OutOfRangeError, lambda o: fb.take(o.v, o.i + 5), "indices", "5"),
        row("take", ShapeError, lambda o: fb.take(o.m, o.i), "axis", "float32[2,3]"),
        row("take", OperandError, lambda o: fb.take(o.v, [0]), "indices", "list"),
        row("take_along_axis", OutOfRangeError, lambda o: fb.take_along_axis(o.v, o.i + 5), "indices", "5"),
        row("put_along_axis", ShapeError, lambda o: fb.put_along_axis(o.v, o.i, o.seven), "values", "float32[7]"),
        row("put_along_axis", OutOfRangeError, lambda o: fb.put_along_axis(o.v, o.i + 5, 0.0), "indices", "5"),
        row("scatter", ConfigError, lambda o: fb.scatter(o.v, o.i, 1.0, reduce="mean"), "reduce", "'mean'"),
        row("scatter", OutOfRangeError, lambda o: fb.scatter(o.v, o.i + 5, 1.0, reduce="max"), "indices", "5"),
        row("scatter_add", ShapeError, lambda o: fb.scatter_add(o.v, o.i, o.seven), "updates", "float32[7]"),
        row("index_add", ShapeError, lambda o: fb.index_add(o.m, o.i, o.v), "updates", "float32[3]"),
        row("index_copy", OutOfRangeError, lambda o: fb.index_copy(o.m, o.i + 5, o.m), "indices", "5"),
        row("masked_fill", DTypeError, lambda o: fb.masked_fill(o.m, o.m, 0.0), "mask", "float32"),
        row("masked_select", ShapeError, lambda o: fb.masked_select(o.m, o.seven > 0.0), "(7,)"),
    ],
    "embedding": [
        row("embedding", OutOfRangeError, lambda o: fb.embedding(o.i + 5, o.m), "indices", "5"),
        row("embedding", ShapeError, lambda o: fb.embedding(o.i, o.v), "weight", "float32[3]"),
        row("embedding", DTypeError, lambda o: fb.embedding(o.m, o.m), "indices", "float32"),
        row("embedding", OutOfRangeError, lambda o: fb.embedding(o.i, o.m, padding_index=9), "padding_index", "9"),
        row("one_hot", OutOfRangeError, lambda o: fb.one_hot(o.i, 1), "x", "0 to 1"),
        row("one_hot", DTypeError, lambda o: fb.one_hot(o.m, 3), "x", "float32"),
        row("one_hot", OperandError, lambda o: fb.one_hot([0, 1], 3), "x", "list"),
        row("one_hot", ConfigError, lambda o: fb.one_hot(o.i, 2.5), "num_classes", "2.5"),
    ],
    "creation": [
        row("zeros", ShapeError, lambda o: fb.zeros(-1), "shape", "-1"),
        row("ones", ShapeError, lambda o: fb.ones((2, "x")), "shape", "'x'"),
        row("empty", DTypeError, lambda o: fb.empty(2, dtype="float99"), "dtype", "float99"),
        row("full", OperandError, lambda o: fb.full(2, [1, 2]), "fill_value", "[1, 2]"),
        row("full", DTypeError, lambda o: fb.full(2, 300, dtype=fb.int8), "[-128, 127]", "300"),
        row("full_like", OperandError, lambda o: fb.full_like(o.m, "a"), "fill_value", "'a'"),
        row("zeros_like", OperandError, lambda o: fb.zeros_like([1.0]), "x", "list"),
        row("arange", ShapeError, lambda o: fb.arange(0, 5, 0), "step", "0"),
        row("arange", ConfigError, lambda o: fb.arange(0, fb.inf), "stop", "inf"),
        row("arange", OperandError, lambda o: fb.arange("a"), "stop", "'a'"),
        row("linspace", ShapeError, lambda o: fb.linspace(0, 1, -1), "num", "-1"),
        row("eye", ShapeError, lambda o: fb.eye(-1), "-1"),
        row("eye", ConfigError, lambda o: fb.eye(2, k="a"), "k", "'a'"),
        row("tril", ConfigError, lambda o: fb.tril(o.m, k=None), "k", "None"),
        row("triu", ShapeError, lambda o: fb.triu(o.v), "x", "float32[3]"),
        row("meshgrid", ShapeError, lambda o: fb.meshgrid(o.m), "arrays[0]", "float32[2,3]"),
        row("asarray", OperandError, lambda o: fb.asarray([[1], [2, 3]]), "rectangular"),
        row("asarray", OperandError, lambda o: fb.asarray("text"), "'text'"),
        row("asarray", DTypeError, lambda o: fb.asarray([300], dtype=fb.int8), "[-128, 127]", "300"),
        row("asarray", ConfigError, lambda o: fb.asarray([1], copy=False), "copy=False"),
    ],
    "einsum": [
        row("einsum", ShapeError, lambda o: fb.einsum("ij", o.m, o.m), "2 operands"),
        row("einsum", ShapeError, lambda o: fb.einsum("ij,jk", o.m, o.m), "j", "(2, 3)"),
        row("einsum", OperandError, lambda o: fb.einsum(5, o.m), "subscripts", "5"),
        row("einsum", OperandError, lambda o: fb.einsum("ij", o.array), "operands[0]", "NumPy array"),
        row("einsum", DTypeError, lambda o: fb.einsum("i,i", o.i, o.m[:, 0]), "operands[1]", "float32"),
        row("outer", DTypeError, lambda o: fb.outer(o.v, o.i), "x2", "int64"),
    ],
    "linalg": [
        row("matmul", ShapeError, lambda o: o.m @ o.m, "x2", "float32[2,3]"),
        row("matmul", ShapeError, lambda o: fb.matmul(o.m, o.scalar), "x2"),
        row("vecdot", ShapeError, lambda o: fb.vecdot(o.v, o.seven), "axis", "float32[7]"),
        row("vecdot", OutOfRangeError, lambda o: fb.vecdot(o.v, o.v, axis=0), "axis", "0"),
        row("tensordot", ShapeError, lambda o: fb.tensordot(o.m, o.m, axes=5), "axes", "5"),
        row("tensordot", ShapeError, lambda o: fb.tensordot(o.m, o.m, axes="ab"), "axes", "'ab'"),
        row("tensordot", ShapeError, lambda o: fb.tensordot(o.m, o.m, axes=((0, 0), (0, 0))), "axes", "(0, 0)"),
        row("cholesky", ShapeError, lambda o: L.cholesky(o.m), "x", "float32[2,3]"),
        row("cholesky", LinAlgError, lambda o: L.cholesky(-o.square), "positive definite"),
        row("inv", LinAlgError, lambda o: L.inv(o.square * 0.0), "invertible"),
        row("inv", DTypeError, lambda o: L.inv(fb.astype(o.square, fb.int64)), "x", "int64"),
        row("solve", ShapeError, lambda o: L.solve(o.square, o.v), "x2", "float32[3]"),
        row("matrix_power", ConfigError, lambda o: L.matrix_power(o.square, 1.5), "n", "1.5"),
        row("matrix_norm", ConfigError, lambda o: L.matrix_norm(o.square, ord="max"), "ord", "'max'"),
        row("cond", ConfigError, lambda o: L.cond(o.square, p="max"), "p", "'max'"),
        row("pinv", ConfigError, lambda o: L.pinv(o.square, rtol="tiny"), "rtol", "'tiny'"),
        row("trace", ShapeError, lambda o: L.trace(o.v), "x", "float32[3]"),
        row("trace", ConfigError, lambda o: L.trace(o.m, offset="a"), "offset", "'a'"),
        row("qr", ConfigError, lambda o: L.qr(o.square, mode="full"), "mode", "'full'"),
        row("multi_dot", ShapeError, lambda o: L.multi_dot(None), "list", "NoneType"),
        row("cross", ShapeError, lambda o: L.cross(o.square, o.square), "x1", "axis"),
    ],
    "fft": [
        row("fft", OutOfRangeError, lambda o: F.fft(o.m, axis=9), "axis", "9"),
        row("fft", ShapeError, lambda o: F.fft(o.m, n=0), "n", "0"),
        row("fft", ConfigError, lambda o: F.fft(o.m, norm="unit"), "norm", "'unit'"),
        row("rfft", DTypeError, lambda o: F.rfft(o.z), "x", "complex64"),
        row("fftn", ShapeError, lambda o: F.fftn(o.m, axes=(0, 0)), "axes", "(0, 0)"),
        row("fftn", ShapeError, lambda o: F.fftn(o.m, s=(1, 2, 3)), "s", "(1, 2, 3)"),
        row("fftfreq", ConfigError, lambda o: F.fftfreq(4, d=0), "d=0"),
        row("fftshift", OperandError, lambda o: F.fftshift(o.array), "x", "NumPy array"),
    ],
    "convolution": [
        row("conv2d", ShapeError, lambda o: fb.conv2d(o.image, o.kernel[:, :3]), "weight", "channels"),
        row("conv2d", ShapeError, lambda o: fb.conv2d(o.image, o.kernel, groups=3), "groups", "3"),
        row("conv2d", ShapeError, lambda o: fb.conv2d(o.image, fb.ones((4, 4, 9, 9), device=o.m.device)), "9"),
        row("conv2d", ShapeError, lambda o: fb.conv2d(o.image, o.kernel, stride=0), "stride", "0"),
        row("conv2d", ShapeError, lambda o: fb.conv2d(o.image, o.kernel, padding=-1), "padding", "-1"),
        row("conv2d", ShapeError, lambda o: fb.conv2d(o.image, o.kernel, o.v), "bias", "float32[3]"),
        row("conv2d", OperandError, lambda o: fb.conv2d(o.image, None), "weight", "None"),
        row("conv_transpose2d", ShapeError, lambda o: fb.conv_transpose2d(o.image, o.kernel, dilation=0), "dilation", "0"),
    ],
    "pooling": [
        row("max_pool2d", ShapeError, lambda o: fb.max_pool2d(o.image, 9), "9"),
        row("max_pool2d", ShapeError, lambda o: fb.max_pool2d(o.image, 0), "kernel", "0"),
        row("max_pool2d", ShapeError, lambda o: fb.max_pool2d(o.image, 2, padding=-1), "padding", "-1"),
        row("avg_pool2d", ShapeError, lambda o: fb.avg_pool2d(o.m, 2), "x", "float32[2,3]"),
        row("adaptive_avg_pool2d", ShapeError, lambda o: fb.adaptive_avg_pool2d(o.image, 0), "size", "0"),
        row("max_unpool", OutOfRangeError,
            lambda o: fb.max_unpool(o.image, fb.full((2, 4, 6, 6), 99, device=o.m.device), 6), "indices", "99"),
    ],
    "interpolation": [
        row("interpolate", ConfigError, lambda o: fb.interpolate(o.image, 3, mode="cubic"), "mode", "'cubic'"),
        row("interpolate", ConfigError, lambda o: fb.interpolate(o.image, 3, mode=["nearest"]), "mode", "['nearest']"),
        row("interpolate", ShapeError, lambda o: fb.interpolate(o.image, 0), "size", "0"),
        row("pixel_shuffle", ShapeError, lambda o: fb.pixel_shuffle(o.image, 3), "4"),
    ],
    "normalisation": [
        row("group_norm", ShapeError, lambda o: fb.group_norm(o.image, 3), "groups", "3"),
        row("layer_norm", ShapeError, lambda o: fb.layer_norm(o.m, weight=o.seven), "weight", "float32[7]"),
        row("layer_norm", ConfigError, lambda o: fb.layer_norm(o.m, eps="tiny"), "eps", "'tiny'"),
        row("batch_norm", ShapeError, lambda o: fb.batch_norm(o.m[:1]), "x", "float32[1,3]"),
        row("batch_norm", ConfigError, lambda o: fb.batch_norm(o.m, eps=None), "eps", "None"),
        row("rms_norm", DTypeError, lambda o: fb.rms_norm(o.i), "x", "int64"),
        row("softmax", OutOfRangeError, lambda o: fb.softmax(o.m, axis=9), "axis", "9"),
        row("softmax", DTypeError, lambda o: fb.softmax(o.i), "x", "int64"),
    ],
    "attention": [
        row("scaled_dot_product_attention", ShapeError,
            lambda o: fb.scaled_dot_product_attention(o.m, o.square, o.m), "key", "float32[2,2]"),
        row("scaled_dot_product_attention", DTypeError,
            lambda o: fb.scaled_dot_product_attention(o.m, o.m, o.m, mask=o.square), "mask", "float32"),
        row("scaled_dot_product_attention", ConfigError,
            lambda o: fb.scaled_dot_product_attention(o.m, o.m, o.m, dropout=1.5), "dropout", "1.5"),
        row("scaled_dot_product_attention", ConfigError,
            lambda o: fb.scaled_dot_product_attention(o.m, o.m, o.m, dropout=0.5, generator=3), "generator", "3"),
    ],
    "losses": [
        row("cross_entropy", OutOfRangeError, lambda o: fb.cross_entropy(o.m, o.i + 5), "labels", "5"),
        row("cross_entropy", ConfigError, lambda o: fb.cross_entropy(o.m, o.i, reduction="max"), "reduction", "'max'"),
        row("cross_entropy", ConfigError, lambda o: fb.cross_entropy(o.m, o.i, label_smoothing=2.0), "label_smoothing", "2.0"),
        row("cross_entropy", ConfigError, lambda o: fb.cross_entropy(o.m, o.i, label_smoothing="s"), "label_smoothing", "'s'"),
        row("nll_loss", OutOfRangeError, lambda o: fb.nll_loss(o.m, o.i - 5), "labels", "-5"),
        row("mse_loss", ShapeError, lambda o: fb.mse_loss(o.m, o.v), "target", "float32[3]"),
        row("mse_loss", DTypeError, lambda o: fb.mse_loss(o.i, o.i), "prediction", "int64"),
        row("huber_loss", ConfigError, lambda o: fb.huber_loss(o.m, o.m, delta=-1), "delta", "-1"),
        row("binary_cross_entropy", OutOfRangeError, lambda o: fb.binary_cross_entropy(o.m, o.m), "probability", "[0, 1]"),
        row("gaussian_nll_loss", OutOfRangeError, lambda o: fb.gaussian_nll_loss(o.m, o.m, -o.m), "variance", "float32[2,3]"),
        row("cosine_similarity", ShapeError, lambda o: fb.cosine_similarity(o.m, o.seven), "(7,)"),
        row("cosine_embedding_loss", OutOfRangeError, lambda o: fb.cosine_embedding_loss(o.m, o.m, o.i), "sign"),
        row("triplet_margin_loss", ConfigError, lambda o: fb.triplet_margin_loss(o.m, o.m, o.m, p="inf"), "p", "'inf'"),
    ],
}  # fmt: skip


def check_text(error: FirebrickError, name: str) -> None:
    """The first line names the function, and no other; then come what was received and a remedy."""
    lines = str(error).splitlines()
    assert lines[0].startswith(name), lines
    assert not re.match(r"[\w.]", lines[0][len(name) :]), lines
    assert lines[1].startswith("Received: "), lines
    assert any(line.startswith("Remedy: ") for line in lines), lines


def cases() -> list[Any]:
    return [pytest.param(r, id=f"{family}-{r.name}-{k}") for family, rows in ROWS.items() for k, r in enumerate(rows)]


@pytest.mark.parametrize("bad", cases())
def test_a_bad_call_says_what_was_expected_what_came_and_what_to_do(bad: Row, device: str) -> None:
    o = operands(device)
    with pytest.raises(FirebrickError) as caught:
        bad.call(o)
    assert type(caught.value) is bad.error, caught.value
    check_text(caught.value, bad.name)
    missing = [t for t in bad.tells if t not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


def test_every_exception_is_one_that_a_user_of_numpy_would_catch() -> None:
    for error, builtin in (
        (ShapeError, ValueError), (ConfigError, ValueError), (LinAlgError, ValueError), (DTypeError, TypeError),
        (OperandError, TypeError), (OutOfRangeError, IndexError),
    ):  # fmt: skip
        assert issubclass(error, builtin)


# derived from the sample arguments of all public functions


LISTS = {("repeat", "repeats"), ("quantile", "q"), ("nanquantile", "q"), ("percentile", "q"), ("histogram", "bins"),
         ("ctc_loss", "input_lengths"), ("ctc_loss", "target_lengths")}  # fmt: skip
"""Arguments that take a list, or something like it, as well as a tensor."""


@pytest.mark.parametrize("call", CALLS, ids=lambda c: c.name)
def test_what_is_no_tensor_is_named_by_function_and_argument(call: Any, device: str) -> None:
    given = call.on(device)
    for key in call.tensors:
        if (call.name, key) in LISTS:
            continue
        for wrong in ("text", [[object()]], np.asarray(["text"]), np.ones((2, 3, 5))):
            with pytest.raises(FirebrickError) as caught:
                call({**given, key: wrong})
            assert isinstance(caught.value, TypeError), caught.value
            check_text(caught.value, call.name)
            assert key in str(caught.value), caught.value


def axes_of(call: Any) -> list[str]:
    parameters = inspect.signature(call.function).parameters
    return [n for n in ("axis", "axis1", "axis2", "start_axis", "end_axis") if n in parameters]


@pytest.mark.parametrize("call", [c for c in CALLS if axes_of(c)], ids=lambda c: c.name)
def test_an_axis_that_is_not_there_is_refused(call: Any, device: str) -> None:
    given = call.on(device)
    for name in axes_of(call):
        for wrong, error in (
            (99, IndexError),
            (-99, IndexError),
            ("rows", ValueError),
            (1.5, ValueError),
            ((0, 99), ValueError),
        ):
            several = isinstance(wrong, tuple)
            with pytest.raises(FirebrickError) as caught:
                call({**given, name: wrong}) if name in given else call(given, **{name: wrong})
            expected = (ValueError, IndexError) if several else error
            assert isinstance(caught.value, expected), f"{name}={wrong!r}: {caught.value}"
            check_text(caught.value, call.name)
            assert re.search(r"\baxis|\baxes", str(caught.value)), caught.value


OWN = {("tensordot", "axes")}
"""Settings that the sample call gives already; they have rows in the table."""
TAKEN = {"x", "x1", "x2", "out", "dtype", "device", "fill_value", "like"}


def settings_of(call: Any) -> list[str]:
    parameters = inspect.signature(call.function).parameters.values()
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    settings = [p for p in parameters if p.kind in kinds and p.name not in TAKEN and p.name not in call.arrays]
    return [p.name for p in settings if (call.name, p.name) not in OWN and p.annotation != "bool"]


@pytest.mark.parametrize("call", [c for c in CALLS if settings_of(c)], ids=lambda c: c.name)
def test_a_setting_of_the_wrong_type_never_ends_in_another_librarys_exception(call: Any, device: str) -> None:
    given = call.on(device)
    for name in settings_of(call):
        for wrong in ("text", [[]], {}, (1, 2, 3, 4, 5, 6, 7), object()):
            try:
                call(given, **{name: wrong})
            except FirebrickError as e:
                check_text(e, call.name)


@pytest.mark.parametrize("call", CALLS, ids=lambda c: c.name)
def test_a_tensor_of_any_dtype_or_shape_is_taken_or_refused_in_our_words(call: Any, device: str) -> None:
    given = call.on(device)
    for key in call.tensors:
        x = given[key]
        wrong = [fb.zeros(shape, dtype=x.dtype, device=device) for shape in ((), (0,), (0, 0, 0, 0), (7, 5, 3, 2, 2, 2))]
        wrong += [fb.astype(x, d) for d in (fb.bool, fb.int32, fb.complex64)]
        wrong += [fb.astype(fb.astype(x, fb.float32), fb.float8_e4m3fn)]
        if x.dtype.is_integer:
            wrong += [fb.full(x.shape, n, dtype=x.dtype, device=device) for n in (99, -99)]
        for value in wrong:
            try:
                call({**given, key: value})
            except FirebrickError as e:
                check_text(e, call.name)


def test_each_family_has_rows_and_each_row_names_a_function() -> None:
    places = (fb, L, F)
    for family, rows in ROWS.items():
        assert len(rows) >= 4, family
        for r in rows:
            assert r.name.startswith("x[key]") or any(hasattr(p, r.name) for p in places), r.name


@pytest.mark.parametrize(
    "apply",
    [
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
        operator.matmul, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_operators_name_the_operand_that_is_no_tensor_by_its_side(apply: Callable[[Any, Any], Any]) -> None:
    i = fb.asarray([0, 1])
    with pytest.raises(OperandError, match=r"x1: list \[1\]"):
        apply([1], i)
    with pytest.raises(OperandError, match=r"x2: list \[1\]"):
        apply(i, [1])


def test_a_tensor_of_pytorch_that_requires_a_gradient_is_refused_not_cut_off() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(OperandError, match=r"no gradient of another library.*\nReceived: a Tensor .*\n.*x\.detach"):
        fb.from_dlpack(x)
    assert fb.from_dlpack(x.detach()).tolist() == [1.0, 1.0]
