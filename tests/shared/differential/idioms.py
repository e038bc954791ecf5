"""What people write by hand, as steps of a drawing: normalisations, attention, distances, losses, each with any axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from differential.rules import reduction

if TYPE_CHECKING:
    from differential.drawing import Drawing


def _matrix(p: Drawing, least: int = 2) -> int:
    """A float value with axes, or a new input."""
    found = [v for v in p.of_kind("f") if len(p.shapes[v]) >= least]
    return p.d.choice(found) if found and p.d.random() < 0.7 else p.input(p.shape(least, max(least, 3)))


def _pair(p: Drawing) -> tuple[int, int]:
    """A matrix and another of its shape."""
    x = _matrix(p)
    return x, p.input(p.shapes[x], dtype=p.dtypes[x])


def _along(p: Drawing, x: int) -> int:
    return p.d.randrange(len(p.shapes[x]))


def row_normalisation(p: Drawing) -> None:
    """x / Σ x, the sum kept, put back by hand, or by chance aligned with another axis."""
    x = _matrix(p)
    k, n = _along(p, x), len(p.shapes[x])
    kept = p.d.random() < 0.4
    total = p.emit(p.d.choice(["sum", "norm1", "norm", "sum_of_squares"]), x, **reduction(n, k, kept))
    if total is not None:
        p.emit("divide", x, total if kept else p.aligned(total, p.shapes[x]))


def softmax_by_hand(p: Drawing) -> None:
    """exp(x - max x) / Σ."""
    x = _matrix(p)
    n, k = len(p.shapes[x]), _along(p, x)
    e = p.emit("exp", p.emit("subtract", x, p.emit("max", x, **reduction(n, k, True))))
    p.emit("divide", e, p.emit("sum", e, **reduction(n, k, True)) if e is not None else None)


def layer_norm_by_hand(p: Drawing) -> None:
    """(x - mean) / √(var + eps), over one axis or several: a batch norm by hand too."""
    x = _matrix(p)
    n = len(p.shapes[x])
    kept = p.d.randrange(n)
    axis = tuple(k for k in range(n) if k != kept) if n > 1 and p.d.random() < 0.4 else kept
    centred = p.emit("subtract", x, p.emit("mean", x, **reduction(n, axis, True)))
    if p.d.random() < 0.5:
        scale = p.emit("rsqrt", p.emit("var", x, **reduction(n, axis, True)))
    else:
        variance = p.emit("mean", p.emit("square", centred), **reduction(n, axis, True))
        scale = p.emit("rsqrt", variance)
    y = p.emit("multiply", centred, scale)
    if y is not None and p.d.random() < 0.5:
        weight = p.input((p.shapes[x][p.d.randrange(n)],), dtype=p.dtypes[x])
        p.emit("multiply", y, p.aligned(weight, p.shapes[y]))


def kernel_centring(p: Drawing) -> None:
    """K - row means - column means + mean, of K = x xᵀ."""
    x = _matrix(p)
    k = p.emit("matmul_right", x, x)
    if k is None or len(p.shapes[k]) != 2:
        return
    rows, columns = p.emit("mean", k, **reduction(2, 1)), p.emit("mean", k, **reduction(2, 0))
    whole = p.emit("mean", k, **reduction(2, None))
    first = p.emit("subtract", k, columns)
    second = p.emit("subtract", first, p.emit("index", rows, index=":, None"))
    p.emit("add", second, whole)


def sinkhorn(p: Drawing) -> None:
    """Rows and columns of exp(x) normalised in turn."""
    y = p.emit("exp", _matrix(p))
    for axis in (1, 0, 1)[: p.d.randint(1, 3)]:
        if y is None or len(p.shapes[y]) != 2:
            return
        total = p.emit("sum", y, **reduction(2, axis))
        y = p.emit("divide", y, p.emit("index", total, index=":, None" if axis else "None"))


def pairwise_distances(p: Drawing) -> None:
    """|x|² + |y|² - 2 x yᵀ."""
    x, y = _pair(p)
    if len(p.shapes[x]) != 2:
        return
    same = p.d.random() < 0.5
    a = p.emit("sum_of_squares", x, **reduction(2, 1))
    b = a if same else p.emit("sum_of_squares", y, **reduction(2, 1))
    product = p.emit("times", p.emit("matmul_right", x, x if same else y), c=2.0)
    squares = p.emit("add", p.emit("index", a, index=":, None"), p.emit("index", b, index="None"))
    p.emit("subtract", squares, product)


def attention_by_hand(p: Drawing) -> None:
    """softmax(q kᵀ) v, with a mask or without."""
    x, y = _pair(p)
    scores = p.emit("times", p.emit("matmul_right", x, y), c=0.25)
    if scores is None:
        return
    if p.d.random() < 0.5:
        scores = p.emit("tril", scores, k=0)
    p.emit("matmul", p.emit("softmax", scores, axis=-1), y)


def cross_entropy_by_hand(p: Drawing) -> None:
    """mean(logsumexp(x) - x[rows, labels])."""
    x = _matrix(p)
    if len(p.shapes[x]) != 2:
        return
    n, classes = p.shapes[x]
    labels = p.input((n,), "whole", "int64")
    chosen = p.emit("rows_and_columns", x, labels, n=classes, k=n)
    p.emit("mean", p.emit("subtract", p.emit("logsumexp", x, **reduction(2, 1)), chosen), **reduction(1, None))


def squared_error_by_hand(p: Drawing) -> None:
    """mean((sigmoid(x wᵀ + b) · x - y)²): a layer, an activation and a loss."""
    x = _matrix(p)
    if len(p.shapes[x]) != 2:
        return
    width = p.d.choice(p.sizes)
    h = p.emit("matmul_right", x, p.input((width, p.shapes[x][1]), dtype=p.dtypes[x]))
    h = p.emit("add", h, p.input((width,), dtype=p.dtypes[x]))
    if h is None:
        return
    h = p.emit(p.d.choice(["sigmoid", "tanh", "relu", "silu"]), h)
    if p.d.random() < 0.5:
        h = p.emit("multiply", h, p.input((width,), dtype=p.dtypes[x]))
    if h is not None:
        p.emit("mean", p.emit("squared_difference", h, p.input(p.shapes[h], dtype=p.dtypes[h])), **reduction(2, None))


ALL = (
    row_normalisation, softmax_by_hand, layer_norm_by_hand, kernel_centring, sinkhorn, pairwise_distances, attention_by_hand,
    cross_entropy_by_hand, squared_error_by_hand,
)  # fmt: skip
