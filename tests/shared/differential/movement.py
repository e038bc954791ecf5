"""Rules that move elements: transposes, reshapes, broadcasts, indices, joins and parts, gathers."""

from __future__ import annotations

from random import Random

from differential.rule import Params, Shape, one_axis, rule, same_but_one, two_axes


def _move(name: str, fb: str, numpy: str = "", torch: str = "", kinds: str = "a", **more: object) -> None:
    rule("movement", name, kinds, "=" if len(kinds) == 1 else "f", fb, numpy, torch, **more)


def _permutation(d: Random, shapes: list[Shape]) -> Params | None:
    axes = list(range(len(shapes[0])))
    d.shuffle(axes)
    return {"axes": tuple(axes)} if len(axes) > 1 else None


def _reshape(d: Random, shapes: list[Shape]) -> Params | None:
    """Two axes merged, one split, ones put in or taken out."""
    s = list(shapes[0])
    for _ in range(d.randint(1, 2)):
        way = d.randrange(4)
        if way == 0 and len(s) > 1:
            k = d.randrange(len(s) - 1)
            s[k : k + 2] = [s[k] * s[k + 1]]
        elif way == 1 and s:
            k = d.randrange(len(s))
            parts = [p for p in (2, 3, 4, 5, 7, 8, 11, 16, 32) if s[k] % p == 0 and s[k] > p]
            if parts:
                p = d.choice(parts)
                s[k : k + 1] = d.choice([[p, s[k] // p], [s[k] // p, p]])
        elif way == 2:
            s.insert(d.randint(0, len(s)), 1)
        elif 1 in s:
            s.remove(1)
    return {"shape": tuple(s)} if tuple(s) != shapes[0] and len(s) <= 5 else None


def _broadcast(d: Random, shapes: list[Shape]) -> Params | None:
    """Ones become another axis' size, or an axis comes in front."""
    s = list(shapes[0])
    sizes = [n for n in s if n > 1] or [d.choice([1, 2, 5])]
    for k, n in enumerate(s):
        if n == 1 and d.random() < 0.7:
            s[k] = d.choice(sizes)
    if len(s) < 4 and d.random() < 0.5:
        s.insert(0, d.choice([*sizes, 1]))
    return {"shape": tuple(s)}


def _index(d: Random, shapes: list[Shape]) -> Params | None:
    """A basic index: ints, slices with steps of either sign, new axes and an ellipsis."""
    if not shapes[0]:
        return {"index": d.choice(["None", "..., None"])}
    parts = []
    for n in shapes[0][: d.randint(1, len(shapes[0]))]:
        ways = [":", ":", "::-1", "::2", "::-2", f"{d.randrange(-n, n)}"]
        parts.append(d.choice(ways + (["1:", ":-1"] if n > 1 else [":", ":"])))
    if d.random() < 0.3:
        parts.insert(d.randint(0, len(parts)), "None")
    if d.random() < 0.2:
        parts.append("...")
    return {"index": ", ".join(parts)}


def _pad(d: Random, shapes: list[Shape]) -> Params | None:
    widths = tuple((d.randint(0, 1), d.randint(0, 2)) for _ in shapes[0])
    return {"widths": widths, "reversed": tuple(w for pair in reversed(widths) for w in pair)} if widths else None


def _one(d: Random, shapes: list[Shape]) -> Params | None:
    """An axis of size 1."""
    ones = [k for k, n in enumerate(shapes[0]) if n == 1]
    return {"axis": d.choice(ones)} if ones else None


def _part(d: Random, shapes: list[Shape]) -> Params | None:
    """One of the parts that an axis is cut into."""
    found = one_axis(d, shapes)
    if found is None:
        return None
    sections = d.randint(1, min(3, shapes[0][found["axis"]]))
    return {**found, "sections": sections, "part": d.randrange(sections)}


def _slice(d: Random, shapes: list[Shape]) -> Params | None:
    """One position of an axis."""
    found = one_axis(d, shapes)
    return found and {**found, "part": d.randrange(shapes[0][found["axis"]])}


def _new_axis(d: Random, shapes: list[Shape]) -> Params | None:
    n = len(shapes[0])
    return {"axis": d.randint(0, n)} if n < 4 and len(set(shapes)) == 1 else None


_move(
    "permute",
    "fb.permute_dims({0}, {axes})",
    "np.transpose({0}, {axes})",
    "torch.permute({0}, {axes})",
    draw=_permutation,
    weight=2.0,
)
_move("swapaxes", "fb.swapaxes({0}, {p}, {q})", draw=two_axes)
_move("transpose", "{0}.T", ranks=(2,), weight=2.0)
_move("reshape", "fb.reshape({0}, {shape})", draw=_reshape, weight=2.0)
_move("broadcast_to", "fb.broadcast_to({0}, {shape})", draw=_broadcast, weight=1.5)
_move("expand_dims", "fb.expand_dims({0}, axis={axis})", "", "torch.unsqueeze({0}, {axis})", draw=_new_axis)
_move("squeeze", "fb.squeeze({0}, axis={axis})", "", "torch.squeeze({0}, {axis})", draw=_one)
_move("flip", "fb.flip({0}, axis={axis})", "", "torch.flip({0}, ({axis},))", draw=one_axis)
_move(
    "index",
    "{0}[{index}]",
    "{0}[{index}]",
    # torch has no steps below 0: NumPy says which elements are taken
    "{0}.reshape(-1)[torch.asarray(np.array(np.arange({0}.numel()).reshape({0}.shape)[{index}]))]",
    draw=_index,
    weight=3.0,
)
_move("pad", "fb.pad({0}, {widths})", "", "torch.nn.functional.pad({0}, {reversed})", kinds="f", draw=_pad, weight=0.7)
_move("roll", "fb.roll({0}, 1, axis={axis})", "", "torch.roll({0}, 1, {axis})", draw=one_axis, weight=0.7)
_move(
    "tile",
    "fb.tile({0}, {repetitions})",
    draw=lambda d, s: {"repetitions": tuple(d.randint(1, 2) for _ in s[0])} if s[0] else None,
    weight=0.5,
)
_move(
    "repeat",
    "fb.repeat({0}, 2, axis={axis})",
    "",
    "torch.repeat_interleave({0}, 2, dim={axis})",
    draw=one_axis,
    weight=0.5,
)
_move(
    "concat",
    "fb.concat([{0}, {1}], axis={axis})",
    "np.concatenate([{0}, {1}], axis={axis})",
    "torch.cat([{0}, {1}], dim={axis})",
    kinds="ff",
    joined="equal",
    draw=same_but_one,
)
_move(
    "stack",
    "fb.stack([{0}, {1}], axis={axis})",
    "",
    "torch.stack([{0}, {1}], dim={axis})",
    kinds="ff",
    joined="equal",
    draw=_new_axis,
)
_move(
    "split",
    "fb.array_split({0}, {sections}, axis={axis})[{part}]",
    "",
    "torch.tensor_split({0}, {sections}, dim={axis})[{part}]",
    draw=_part,
)
_move(
    "unstack",
    "fb.unstack({0}, axis={axis})[{part}]",
    "np.take({0}, {part}, axis={axis})",
    "torch.unbind({0}, dim={axis})[{part}]",
    draw=_slice,
    weight=0.7,
)
for name in ("tril", "triu"):
    text = f"fb.{name}({{0}}, k={{k}})", "", f"torch.{name}({{0}}, diagonal={{k}})"
    _move(name, *text, kinds="f", ranks=(2, 3, 4), draw=lambda d, s: {"k": d.randint(-1, 1)}, weight=0.5)
_move(
    "diagonal",
    "fb.diagonal({0}, axis1={p}, axis2={q})",
    "",
    "torch.diagonal({0}, dim1={p}, dim2={q})",
    kinds="f",
    draw=two_axes,
    weight=0.7,
)


# gathers


def _gather(name: str, kinds: str, fb: str, numpy: str = "", torch: str = "", **more: object) -> None:
    rule("gather", name, kinds, "=", fb, numpy, torch, **more)


def _taken(d: Random, shapes: list[Shape]) -> Params | None:
    """An axis to take from, by a vector of indices."""
    found = one_axis(d, shapes)
    return found and {**found, "n": shapes[0][found["axis"]]} if len(shapes[1]) == 1 else None


_gather(
    "take",
    "fi",
    "fb.take({0}, {1} % {n}, axis={axis})",
    "",
    "torch.index_select({0}, {axis}, {1} % {n})",
    ranks=(1, 2, 3, 4),
    draw=_taken,
    others=lambda d, s, sizes: [s[:1]],
)
_gather(
    "take_rows",
    "fi",
    "{0}[{1} % {n}]",
    ranks=(1, 2, 3, 4),
    draw=lambda d, s: {"n": s[0][0]} if len(s[1]) < 3 else None,
    others=lambda d, s, sizes: [s[:1]],
)
_gather(
    "take_along_axis",
    "ff",
    "fb.take_along_axis({0}, fb.argsort({1}, axis={axis}), axis={axis})",
    "",
    "torch.take_along_dim({0}, torch.argsort({1}, dim={axis}, stable=True), dim={axis})",
    joined="equal",
    draw=same_but_one,
)
_gather(
    "rows_and_columns",
    "fi",
    "{0}[fb.arange({k}), {1} % {n}]",
    ranks=(2, 3, 4),
    draw=lambda d, s: {"n": s[0][1], "k": s[1][0]} if len(s[1]) == 1 and s[1][0] <= s[0][0] else None,
    others=lambda d, s, sizes: [s[:1]],
)
_gather(
    "index_add",
    "fif",
    "fb.index_add({0}, {1} % {n}, {2}, axis=0)",
    "(lambda y: (np.add.at(y, {1} % {n}, {2}), y)[1])(np.array({0}))",
    "torch.index_add({0}, 0, {1} % {n}, {2})",
    ranks=(1, 2, 3, 4),
    draw=lambda d, s: {"n": s[0][0]} if len(s[1]) == 1 and s[2] == (*s[1], *s[0][1:]) else None,
    others=lambda d, s, sizes: [(n := d.choice(sizes),), (n, *s[1:])],
)
rule(
    "gather",
    "one_hot",
    "i",
    "float32",
    "fb.one_hot({0} % {n}, {n})",
    "np.eye({n})[{0} % {n}]",
    ranks=(0, 1, 2),
    draw=lambda d, s: {"n": max([1, *s[0]])},
)
