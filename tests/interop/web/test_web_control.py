"""Exported programs with loops and branches compute what the engine ``numpy`` computes, on an adapter with WebGPU's default
limits and in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Page, served
from web_plans import ExportedProgram

import firebrick as fb
from firebrick.interop import web
from firebrick.testing import engines

HOST = "numpy"
rng = np.random.default_rng(0)
RUN = """(async folders => {
    const { load, selftest } = await import(`./${folders[0]}/firebrick.js`), found = {};
    for (const folder of folders) {
        try {
            const program = await load(folder), given = await selftest(folder, program);
            const one = await program.run(given), two = await program.run(given);
            const same = Object.keys(one).every(k => String(one[k].data) === String(two[k].data));
            found[folder] = same ? "" : "another result of the second run";
            program.destroy();
        } catch (e) { found[folder] = e.message; }
    }
    return found;
})"""


@pytest.fixture
def adapter() -> None:
    reason = engines().missing.get("webgpu")
    if reason:
        pytest.skip(f"exported programs are run by wgpu, which cannot be used here: {reason}")


def host(x: object, dtype: str | None = None) -> fb.Tensor:
    return fb.asarray(np.asarray(x) if dtype is None else np.asarray(x).astype(dtype), device=HOST)


def normal(*shape: int) -> fb.Tensor:
    return host(rng.normal(size=shape), "float32")


def rotated(x: fb.Tensor) -> Any:
    """Carries that become each other, and a result that is a carry before its step."""

    def step(carry: Any, t: fb.Tensor) -> Any:
        a, b, c = carry
        return (b, c, a + t), [a, c * 2.0, b]

    return fb.scan(step, (x[0], x[1] * 2.0, x[2] - 1.0), x)


def narrow(flags: fb.Tensor, small: fb.Tensor, halves: fb.Tensor) -> Any:
    """Elements of sequences that are no whole words, forwards and backwards."""

    def step(carry: Any, xs: Any) -> Any:
        on, s, h = xs
        carry = fb.where(on, carry + fb.astype(s, fb.int32), carry * 2)
        return carry, (~on, s * 3, h + h, fb.astype(carry, fb.uint8))

    start = fb.asarray(1, dtype=fb.int32, device=HOST)
    return [fb.scan(step, start, (flags, small, halves), reverse=r) for r in (False, True)]


def collatz(n: fb.Tensor) -> Any:
    def step(carry: Any) -> Any:
        n, count = carry
        return fb.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return fb.while_loop(lambda c: c[0] > 1, step, (n, fb.zeros_like(n)))


def branches_in_loops(x: fb.Tensor, limit: fb.Tensor) -> Any:
    """A branch in each step of a scan, a while loop in one branch, and the scan in a while loop of its own."""

    def grown(c: fb.Tensor) -> fb.Tensor:
        return fb.while_loop(lambda c: fb.sum(fb.abs(c)) < limit, lambda c: c * 2.0 + 0.25, c)

    def step(c: fb.Tensor, row: fb.Tensor) -> Any:
        c = fb.cond(fb.sum(row) > 0.0, lambda c: grown(c) + row, lambda c: fb.tanh(c - row), c)
        return c, fb.sum(c)

    def rounds(carry: Any) -> Any:
        k, c, _ = carry
        c, sums = fb.scan(step, c * 0.125, x)
        return k + 1, c, sums

    zero = fb.asarray(0, dtype=fb.int32, device=HOST)
    return fb.while_loop(lambda c: c[0] < 3, rounds, (zero, x[0], x[:, 0]))


def steps_of_many_kinds(x: fb.Tensor) -> Any:
    """Carries without elements and without a use, sequences of one, of none, and results of no elements."""
    carry, ys = fb.scan(lambda c, v: ((c[0] + v, c[1], c[2]), (c[1], v[:0])), (x[0], x[1], x[:0, 0]), x)
    one = fb.scan(lambda c, v: (c * v, fb.sort(c + v)), x[2], x[:1])
    none = fb.scan(lambda c, v: (c * v, c), x[2] + 1.0, x[:0])
    counted = fb.scan(lambda c, _: (c * 0.5, c[::2]), x[1] + 0.0, length=4)
    return [carry[0] + carry[1], ys, one, none, counted]


def chosen(on: fb.Tensor, x: fb.Tensor, y: fb.Tensor) -> Any:
    """Branches that return operands, a constant, and the same value twice."""
    made = fb.cond(on, lambda: (x, y + 1.0, y + 1.0), lambda: (y, x, fb.ones_like(x)))
    return [made, fb.cond(~on, lambda: (x * made[0])[:2], lambda: made[1][1:])]


class Decoder(fb.nn.Module):
    """A step of a language model with a cache of a fixed length."""

    def __init__(self) -> None:
        self.model = fb.models.GPT(13, length=8, dim=8, heads=2, layers=2, generator=fb.random.Generator(3))

    def forward(self, token: fb.Tensor, at: fb.Tensor, *cache: fb.Tensor) -> Any:
        layers = len(cache) // 2
        pads = fb.zeros(token.shape[:1], dtype=fb.int64, device=token.device)
        logits, new = self.model.extend(token, fb.models.GPTCache(cache[:layers], cache[layers:]), at, pads)
        return {"logits": logits, "keys": new.keys, "values": new.values}


class Greedy(Decoder):
    """The tokens after a prompt, with a cache of a fixed length as the carry of a scan."""

    def forward(self, prompt: fb.Tensor) -> fb.Tensor:  # type: ignore[override]
        pads = fb.zeros(prompt.shape[:1], dtype=fb.int64, device=prompt.device)
        logits, cache = self.model.extend(prompt, self.model.new_cache(prompt.shape[0], 8), 0, pads)

        def step(carry: Any, at: fb.Tensor) -> Any:
            token, cache = carry
            logits, cache = self.model.extend(token[:, None], cache, at, pads)
            token = fb.argmax(logits, axis=-1)
            return (token, cache), token

        first = fb.argmax(logits, axis=-1)
        _, others = fb.scan(step, (first, cache), fb.arange(3, 7, device=prompt.device))
        return fb.concat([first[:, None], others.mT], axis=1)


def recurrent(kind: Callable[..., fb.nn.Module], **settings: Any) -> fb.nn.Module:
    return kind(4, 6, generator=fb.random.Generator(1), **settings).to(HOST).eval()


Programs = dict[str, tuple[Callable[..., object], list[fb.Tensor]]]
PROGRAMS: Programs = {
    "lstm": (recurrent(fb.nn.LSTM, num_layers=2), [normal(2, 5, 4)]),
    "gru both ways": (recurrent(fb.nn.GRU, bidirectional=True), [normal(2, 5, 4)]),
    "a decoding step": (
        Decoder().to(HOST).eval(),
        [host([[5], [1]]), host(3), *(normal(2, 2, 8, 4) for _ in range(4))],
    ),
    "greedy decoding": (Greedy().to(HOST).eval(), [host([[1, 2, 3]])]),
    "carries that become each other": (rotated, [normal(4, 3)]),
    "narrow elements": (
        narrow, [host(rng.random(5) > 0.5), host(rng.integers(-90, 90, 5), "int8"), host(rng.normal(size=(5, 3)), "float16")],
    ),
    "a while loop": (collatz, [host(27, "int32")]),
    "a while loop without a round": (collatz, [host(1, "int32")]),
    "branches in loops": (branches_in_loops, [normal(4, 3), host(5.0, "float32")]),
    "a loop that begins with a copy": (
        lambda c, x: [fb.scan(lambda c, v: (c * v, c), c, x), fb.scan(lambda c, v: (fb.sort(c + v), c), c, x, reverse=True)],
        [normal(8), normal(9, 8)],
    ),
    "steps of many kinds": (steps_of_many_kinds, [normal(3, 4)]),
    "a branch": (chosen, [host(True), normal(3), normal(3)]),
    "the other branch": (chosen, [host(False), normal(3), normal(3)]),
}  # fmt: skip


def check(folder: Path) -> None:
    """Compare what a program computes, twice, with its self-test."""
    program = ExportedProgram(folder)
    given, want = program.selftest()
    for _ in range(2):  # the second run finds the first one's values in its buffers
        got = program(given)
        assert list(got) == list(want)
        for key, x in want.items():
            assert (got[key].shape, got[key].dtype) == (x.shape, x.dtype), key
            if x.dtype.kind in "biu":
                np.testing.assert_array_equal(got[key], x, key)
            else:
                np.testing.assert_allclose(got[key].astype(float), x.astype(float), rtol=5e-5, atol=2e-5, err_msg=key)


@pytest.mark.slow
@pytest.mark.usefixtures("adapter")
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_and_branches_compute_what_they_were_exported_from(name: str, tmp_path: Path) -> None:
    fn, inputs = PROGRAMS[name]
    check(web.export(fn, inputs, tmp_path / "page").folder)


@pytest.mark.slow
def test_loops_and_branches_in_a_browser(page: Page, tmp_path: Path) -> None:
    names = {f"program{k}": name for k, name in enumerate(PROGRAMS)}
    for folder, name in names.items():
        web.export(*PROGRAMS[name], tmp_path / folder)
    spoilt = tmp_path / "spoilt"  # whose loop lacks a round: the self-test is able to fail
    web.export(*PROGRAMS["lstm"], spoilt)
    plan = json.loads((spoilt / "program.json").read_text())
    (loop, *_) = [s for s in plan["steps"] if "times" in s]
    loop["times"] -= 1
    (spoilt / "program.json").write_text(json.dumps(plan))
    (tmp_path / "index.html").write_text("<!doctype html><title>loops</title>")
    with served(tmp_path) as address:
        page.open(f"{address}/index.html")
        found = page.evaluate(f"{RUN}({json.dumps([*names, 'spoilt'])})")
    assert "this GPU computes what Firebrick computed" in found.pop("spoilt")
    assert {names[k]: v for k, v in found.items() if v} == {}


@pytest.mark.usefixtures("adapter")
def test_an_index_out_of_range_ends_a_while_loop(tmp_path: Path) -> None:
    """One that would not end otherwise: what is read instead of the element is positive."""
    table = host([2.0, 1.0, -1.0], "float32")

    def fn(start: fb.Tensor) -> Any:
        step = lambda c: (c[0] + 1, fb.take(table, c[0], axis=0))  # noqa: E731
        return fb.while_loop(lambda c: c[1] > 0.0, step, (start, fb.ones((), device=HOST)))

    program = ExportedProgram(web.export(fn, [host(0, "int32")], tmp_path / "page").folder)
    assert program({"start": np.int32(1) * np.ones((), np.int32)})["output.0"] == 3
    with pytest.raises(IndexError, match="take: 7"):
        program({"start": np.full((), 7, np.int32)})


def test_a_loop_is_in_the_plan_once(tmp_path: Path) -> None:
    fn = PROGRAMS["lstm"][0]
    made = [web.export(fn, [normal(1, n, 4)], tmp_path / str(n)) for n in (3, 300)]
    assert made[0].launches == made[1].launches < 40
    times = [[s["times"] for s in json.loads((m.folder / "program.json").read_text())["steps"] if "times" in s] for m in made]
    assert times == [[3, 3], [300, 300]]


def test_a_carry_is_computed_in_its_place_where_nothing_reads_it_later(tmp_path: Path) -> None:
    """And copied there where something does."""
    x = normal(5, 4)
    for fn, copies in (
        (lambda x: fb.scan(lambda c, v: (fb.sort(c + v), None), x[0], x)[0], 1),  # of the element
        (lambda x: fb.scan(lambda c, v: (c + v, None), x[0], x)[0], 2),
        (lambda x: fb.scan(lambda c, v: (fb.sort(c + v), c), x[0], x), 3),
    ):
        folder = web.export(fn, [x], tmp_path / str(copies)).folder
        (loop,) = [s for s in json.loads((folder / "program.json").read_text())["steps"] if "times" in s]
        assert sum("copy" in s for s in loop["steps"]) == copies


def test_no_step_of_a_loop_writes_what_it_reads_or_what_its_rounds_share(tmp_path: Path) -> None:
    for k, (fn, inputs) in enumerate(PROGRAMS.values()):
        plan = json.loads((web.export(fn, inputs, tmp_path / str(k)).folder / "program.json").read_text())
        kept = {t["buffer"] for t in [*plan["inputs"], *plan["weights"]["tensors"]]}

        def walk(steps: list[dict[str, Any]], plan: Any = plan, kept: set[int] = kept) -> None:
            for s in steps:
                if "copy" in s:
                    source, goal, size = s["copy"]
                    assert source != goal
                    assert goal not in kept
                    assert size % 4 == 0 <= min(plan["buffers"][source], plan["buffers"][goal]) - size
                    assert all(n % 4 == 0 for n in s["strides"])
                for launch in plan["launches"][slice(*s.get("launches", (0, 0)))]:
                    access = plan["kernels"][launch["kernel"]]["bindings"]
                    written = {b for (b, *_), a in zip(launch["bindings"], access, strict=True) if a == "read_write"}
                    read = {b for (b, *_), a in zip(launch["bindings"], access, strict=True) if a == "read"}
                    assert not written & (read | kept)
                for key in ("steps", "then", "else"):
                    walk(s.get(key, []))

        walk(plan["steps"])


def test_operations_without_a_kernel_in_a_loop_are_named(tmp_path: Path) -> None:
    step = lambda c, v: (fb.linalg.inv(c) + v, None)  # noqa: E731
    with pytest.raises(fb.UnsupportedError, match=r"(?s)a page has no host.*solve"):
        web.export(lambda x: fb.scan(step, x[0], x)[0], [normal(2, 3, 3)], tmp_path / "page")


# random programs


class Drawn:
    """A random program of nested loops and branches."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, x: fb.Tensor, k: fb.Tensor) -> Any:
        return self.block([x[0], x[1], fb.tanh(x[2])], x, k, 2)

    def pick(self, values: list[fb.Tensor]) -> fb.Tensor:
        return values[self.rng.integers(len(values))]

    def block(self, values: list[fb.Tensor], x: fb.Tensor, k: fb.Tensor, depth: int) -> list[fb.Tensor]:
        """Three values of shape [4], bounded, some of them values that were there before."""
        values = list(values)
        for _ in range(self.rng.integers(1, 4)):
            a, b = self.pick(values), self.pick(values)
            kinds = [
                lambda a, b: a * 0.5 - b, lambda a, b: fb.tanh(a) + fb.sum(b) * 0.125, lambda a, b: fb.flip(a, axis=0),
                lambda a, b: fb.sort(a), lambda a, b: fb.take(a, fb.argsort(b), axis=0), lambda a, b: fb.maximum(a, b),
            ]  # fmt: skip
            values.append(kinds[self.rng.integers(len(kinds))](a, b))
        if depth:
            values += self.control(values, x, k, depth)
        return [self.pick(values[-4:]), self.pick(values[-6:]), self.pick(values)]

    def control(self, values: list[fb.Tensor], x: fb.Tensor, k: fb.Tensor, depth: int) -> list[fb.Tensor]:
        carry = [self.pick(values) for _ in range(3)]
        kind, bound = self.rng.integers(3), int(self.rng.integers(0, 4))
        seeds = self.rng.integers(1 << 30, size=2)

        def again(seed: int, values: list[fb.Tensor]) -> list[fb.Tensor]:
            kept, self.rng = self.rng, np.random.default_rng(seed)  # branches and bodies are traced in any order
            try:
                return self.block(values, x, k, depth - 1)
            finally:
                self.rng = kept

        if kind == 0:
            pred = fb.sum(self.pick(values)) > 0.0
            return list(fb.cond(pred, lambda *c: again(seeds[0], [*c]), lambda *c: again(seeds[1], [*c]), *carry))
        if kind == 1:
            body = lambda c: (c[0] + 1, again(seeds[0], c[1]))  # noqa: E731
            return list(fb.while_loop(lambda c: c[0] < bound, body, (k, carry))[1])

        def step(c: list[fb.Tensor], row: fb.Tensor) -> Any:
            made = again(seeds[0], [*c, row])
            return made, [self.pick(c), made[0] > 0.0]

        last, (rows, flags) = fb.scan(step, carry, x, reverse=bool(bound % 2))
        return [*last, rows[-1], fb.sum(fb.astype(flags, fb.float32), axis=0)]


def compared(seeds: range, folder: Path) -> None:
    x = host(np.random.default_rng(9).integers(-8, 9, (3, 4)) / 8.0, "float32")
    for seed in seeds:
        check(web.export(lambda x, k, seed=seed: Drawn(seed)(x, k), [x, host(0, "int32")], folder / str(seed)).folder)


@pytest.mark.slow
@pytest.mark.usefixtures("adapter")
def test_random_loops_and_branches(tmp_path: Path) -> None:
    compared(range(3), tmp_path)


@pytest.mark.soak
@pytest.mark.usefixtures("adapter")
def test_many_random_loops_and_branches(tmp_path: Path) -> None:
    compared(range(3, 150), tmp_path)
