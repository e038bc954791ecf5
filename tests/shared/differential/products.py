"""Rules of contractions: matrix products, einsum, attention and convolutions."""

from __future__ import annotations

from random import Random

from differential.rule import Params, Shape, rule


def _product(name: str, fb: str, numpy: str = "", torch: str = "", kinds: str = "ff", **more: object) -> None:
    rule("product", name, kinds, "f", fb, numpy, torch, **more)


def _multiply(a: Shape, b: Shape) -> Params | None:
    """No parameters, if ``a @ b`` has a meaning."""
    if not a or not b or a[-1] != (b[-2] if len(b) > 1 else b[0]):
        return None
    return {} if all(1 in (p, q) or p == q for p, q in zip(a[-3::-1], b[-3::-1], strict=False)) else None


def _turned(s: Shape) -> Shape:
    return (*s[:-2], s[-1], s[-2])


def _subscripts(d: Random, shapes: list[Shape]) -> Params | None:
    """Letters by size, so that axes meet any axis of their size; no letter twice in an operand."""
    if any(len(s) > 3 for s in shapes) or not any(shapes):
        return None
    known: list[tuple[str, int]] = []
    words = []
    for s in shapes:
        word = ""
        for n in s:
            fits = [c for c, size in known if size == n and c not in word]
            if fits and d.random() < 0.75:
                word += d.choice(fits)
            else:
                known.append(("ijklmn"[len(known)], n))
                word += known[-1][0]
        words.append(word)
    letters = [c for c, _ in known]
    d.shuffle(letters)
    kept = [c for c in letters if d.random() < 0.5][:4]
    return {"subscripts": f"{','.join(words)}->{''.join(kept)}"}


_product(
    "matmul",
    "{0} @ {1}",
    ranks=(1, 2, 3, 4),
    draw=lambda d, s: _multiply(*s),
    others=lambda d, s, sizes: [(s[-1], d.choice(sizes))],
    weight=3.0,
)
_product(
    "matmul_right",
    "{0} @ fb.matrix_transpose({1})",
    "{0} @ np.matrix_transpose({1})",
    "{0} @ {1}.mT",
    ranks=(1, 2, 3, 4),
    draw=lambda d, s: _multiply(s[0], _turned(s[1])) if len(s[1]) > 1 else None,
    others=lambda d, s, sizes: [(d.choice(sizes), s[-1])],
    weight=2.0,
)
_product(
    "matmul_left",
    "{0}.T @ {1}",
    ranks=(2,),
    draw=lambda d, s: _multiply(_turned(s[0]), s[1]),
    others=lambda d, s, sizes: [(s[0], d.choice(sizes))],
)
_product("einsum", "fb.einsum({subscripts!r}, {0}, {1})", draw=_subscripts, weight=2.0)
_product("einsum_one", "fb.einsum({subscripts!r}, {0})", kinds="f", draw=_subscripts)
_product(
    "vecdot",
    "fb.vecdot({0}, {1}, axis=-1)",
    "np.sum({0} * {1}, axis=-1)",
    joined="equal",
    ranks=(1, 2, 3, 4),
    draw=lambda d, s: {} if s[0] == s[1] else None,
)
_product(
    "outer",
    "fb.outer({0}, {1})",
    ranks=(1,),
    draw=lambda d, s: {} if len(s[1]) == 1 else None,
    others=lambda d, s, sizes: [(d.choice(sizes),)],
)
_SCORES = "np.tanh({0}) @ np.matrix_transpose(np.tanh({1})) / np.sqrt({0}.shape[-1])"
_LOWER = "torch.ones({0}.shape[-2], {1}.shape[-2]).tril() == 0"
_product(
    "attention",
    "fb.scaled_dot_product_attention(fb.tanh({0}), fb.tanh({1}), {2}, causal={causal})",
    "(lambda e: (e / np.sum(e, axis=-1, keepdims=True)) @ {2})"
    f"(np.exp({_SCORES}) * (np.tri({{0}}.shape[-2], {{1}}.shape[-2]) if {{causal}} else 1.0))",
    "torch.softmax((torch.tanh({0}) @ torch.tanh({1}).mT / {0}.shape[-1] ** 0.5)"
    f".masked_fill(({_LOWER}) & {{causal}}, -torch.inf), dim=-1) @ {{2}}",
    kinds="fff",
    joined="equal",
    ranks=(2, 3, 4),
    draw=lambda d, s: {"causal": d.random() < 0.4} if len(set(s)) == 1 else None,
    slack="d({0}) + d({1}) + e(np.mean(np.abs({2}), axis=-2, keepdims=True) + 0.0 * {0})",  # tanh is rounded
)


def _convolution(d: Random, shapes: list[Shape]) -> Params | None:
    """Sizes of the kernel and of the result, where the kernel fits."""
    x, w = shapes
    if len(x) != len(w) or x[1] != w[1] or any(a < b for a, b in zip(x[2:], w[2:], strict=True)):
        return None
    return {"k": w[2:], "s": tuple(a - b + 1 for a, b in zip(x[2:], w[2:], strict=True))}


def _kernel(d: Random, s: Shape, sizes: list[int]) -> list[Shape]:
    """Of as many channels, for as many results as there are channels or samples."""
    return [(d.choice(s[:2]), s[1], *(d.randint(1, min(3, n)) for n in s[2:]))]


_product(
    "conv1d",
    "fb.conv1d({0}, {1})",
    "sum(np.einsum('bcl,oc->bol', {0}[:, :, p : p + {s[0]}], {1}[:, :, p]) for p in range({k[0]}))",
    "torch.nn.functional.conv1d({0}, {1})",
    ranks=(3,),
    draw=_convolution,
    others=_kernel,
    weight=1.5,
)
_product(
    "conv2d",
    "fb.conv2d({0}, {1})",
    "sum(np.einsum('bchw,oc->bohw', {0}[:, :, p : p + {s[0]}, q : q + {s[1]}], {1}[:, :, p, q]) "
    "for p in range({k[0]}) for q in range({k[1]}))",
    "torch.nn.functional.conv2d({0}, {1})",
    ranks=(4,),
    draw=_convolution,
    others=_kernel,
    weight=1.5,
)
