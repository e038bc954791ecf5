"""``firebrick export web``, and its pages in headless Chromium with the software adapter that comes with it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from chromium import Page, PageError, served
from click.testing import Result

import firebrick as fb
from firebrick.data.datasets import load
from firebrick.interop import web

Run = Callable[..., Result]
READY = 'document.body.dataset.ready === "true" || document.getElementById("problem").textContent'
PROBLEM = 'document.getElementById("problem").textContent'
ANSWERED = '/probability/.test(document.getElementById("answer").textContent)'
ANSWER = 'document.querySelector("#answer strong").textContent'
THREE = [(0.3, 0.25), (0.5, 0.15), (0.68, 0.28), (0.6, 0.42), (0.45, 0.48), (0.62, 0.55), (0.7, 0.7), (0.5, 0.85), (0.3, 0.75)]
ONE = [(0.5, 0.15), (0.5, 0.85)]


def classified(images: np.ndarray) -> str:
    """JavaScript that classifies pictures with the program of the page's folder, one after the other."""
    return f"""(async () => {{
        const {{ load, tensor }} = await import("./firebrick.js");
        const facts = await (await fetch("page.json")).json(), program = await load(".");
        const [input] = program.inputs, found = [];
        for (const pixels of {json.dumps(images.reshape(len(images), -1).tolist())}) {{
            const values = Float32Array.from(pixels, p => (p / facts.pixel_max - facts.mean) / facts.std);
            const logits = (await program.run({{ [input.name]: tensor("float32", input.shape, values) }})).output.data;
            found.push(logits.indexOf(Math.max(...logits)));
        }}
        return found;
    }})()"""


def test_the_command_writes_a_folder_that_says_what_it_holds(run: Run, trained: Path, tmp_path: Path) -> None:
    result = run("export", "web", trained, "--out", "page")
    assert result.exit_code == 0, result.output
    assert re.search(
        r"^page: digits, mlp, 3 launches of 3 kernels, weights .+ KiB, memory of the GPU .+ KiB$", result.output, re.M
    )
    files = {str(p.relative_to("page")) for p in Path("page").rglob("*") if p.is_file()}
    assert {"index.html", "firebrick.js", "digits.js", "program.json", "weights.safetensors", "kernels/000.wgsl"} <= files
    facts = json.loads(Path("page/page.json").read_text())
    assert [e["label"] for e in facts["examples"]] == [str(k) for k in range(10)]
    again = run("export", "web", trained, "--out", "page")
    assert (again.exit_code, "new or empty folder" in again.output) == (1, True)
    assert not list(tmp_path.glob(".page*"))


def test_a_program_for_several_samples_has_the_plain_page(run: Run, trained: Path) -> None:
    made = run("export", "web", trained, "--out", "page of three", "--batch", 3, "--best")
    assert made.exit_code == 0
    assert made.output.endswith("serve it: python -m http.server --directory 'page of three'\n")
    Path("page of three").rename("page")
    assert json.loads(Path("page/program.json").read_text())["inputs"][0]["shape"] == [3, 1, 8, 8]
    assert Path("page/plain.js").exists()


def test_the_program_of_a_language_model_takes_tokens(run: Run) -> None:
    Path("text.txt").write_text("the cat sat on the mat. " * 60, encoding="utf-8")
    tiny = ("--set", "dim=8", "--set", "heads=2", "--set", "layers=1", "--context", 16, "--epochs", 1, "--device", "numpy")
    assert run("train", "text", "text.txt", *tiny, "--no-jit", "--out", "run").exit_code == 0
    result = run("export", "web", "run", "--out", "page", "--batch", 2)
    assert result.exit_code == 0, result.output
    assert "page: text, gpt, " in result.output
    plan = json.loads(Path("page/program.json").read_text())
    assert [(x["name"], x["dtype"], x["shape"]) for x in plan["inputs"]] == [("tokens", "int64", [2, 16])]
    assert [x["shape"] for x in plan["outputs"]] == [[2, 16, 256]]


def test_what_is_no_run_is_an_error(run: Run) -> None:
    result = run("export", "web", "nowhere", "--out", "page")
    assert (result.exit_code, Path("page").exists()) == (1, False)


# in the browser


@pytest.fixture
def exported(run: Run, trained: Path) -> Path:
    assert run("export", "web", trained, "--out", "page").exit_code == 0
    return Path("page")


def draw(page: Page, points: list[tuple[float, float]], fingers: bool = False) -> str:
    """Draw a line on the board, by mouse or finger; the answer."""
    box = 'document.getElementById("board").getBoundingClientRect()'
    left, top, width = page.evaluate(f"[{box}.left, {box}.top, {box}.width]")
    path = [(a + (c - a) * k / 6, b + (d - b) * k / 6) for (a, b), (c, d) in itertools.pairwise(points) for k in range(6)]
    path = [(left + x * width, top + y * width) for x, y in [*path, points[-1]]]
    for k, at in enumerate(path):
        if fingers:
            page.touch("Move" if k else "Start", [at])
        else:
            page.mouse("Moved" if k else "Pressed", *at)
    if fingers:
        page.touch("End", [])
    else:
        page.mouse("Released", *path[-1])
    page.until(ANSWERED)
    return str(page.evaluate(ANSWER))


def test_the_page_classifies_the_test_set_as_the_engine_does(run: Run, trained: Path, exported: Path, page: Page) -> None:
    test = load("digits", "test")
    with served(exported) as address:
        page.open(f"{address}/index.html")
        page.until(READY)
        found = np.array(page.evaluate(classified(test.images)))
    accuracy = re.search(r"^test accuracy (\d\.\d{4})$", run("evaluate", trained).output, re.M)
    assert accuracy is not None
    assert f"{np.mean(found == test.labels):.4f}" == accuracy[1]
    assert page.messages == []


def test_visitors_draw_with_mouse_or_fingers_or_choose_an_example(exported: Path, page: Page) -> None:
    with served(exported) as address:
        page.open(f"{address}/index.html")
        page.until(READY)
        assert page.evaluate(PROBLEM) == ""
        assert page.evaluate('document.getElementById("answer").textContent') == "Draw a digit."
        assert draw(page, THREE) == "3"
        page.evaluate('document.getElementById("clear").click()')
        assert page.evaluate('document.getElementById("answer").textContent') == "Draw a digit."
        assert draw(page, ONE, fingers=True) == "1"
        page.evaluate('document.querySelector("button[aria-label=\\"Example of 6\\"]").click()')
        page.until(f'{ANSWERED} && {ANSWER} === "6"')
        shares = page.evaluate('[...document.querySelectorAll("meter")].map(m => m.value)')
        assert len(shares) == 10
        assert abs(sum(shares) - 1.0) < 1e-6
        unnamed = 'button, meter, canvas[role], [role="img"]'
        named = f"[...document.querySelectorAll('{unnamed}')].every(e => e.getAttribute('aria-label') || e.textContent.trim())"
        assert page.evaluate(named)
    assert page.messages == []


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("Object.defineProperty(Navigator.prototype, 'gpu', { value: undefined })", "Received: a browser without WebGPU."),
        ("GPU.prototype.requestAdapter = async () => null", "a browser that offers no GPU to pages"),
        (
            "Object.defineProperty(GPUSupportedLimits.prototype, 'maxBufferSize', { get: () => 1000 })",
            "this program needs maxBufferSize of",
        ),
        (  # a driver that executes no more than 5 iterations of a loop
            "const made = GPUDevice.prototype.createShaderModule; GPUDevice.prototype.createShaderModule = function (d) {"
            r" return made.call(this, { ...d, code: d.code.replace(/(for \(var v_\w+: i32 = [^;]+; )([^;]+);/g,"
            " (_, start, more) => `${start}(${more}) && ${/v_\\w+/.exec(start)[0]} < 5;`) }); }",
            "this GPU computes what Firebrick computed when the program was exported",
        ),
        (  # a driver that refuses kernels
            "const made = GPUDevice.prototype.createShaderModule; GPUDevice.prototype.createShaderModule = function (d) {"
            " return made.call(this, { ...d, code: d.code + 'nonsense' }); }",
            "the browser can compile the program's kernels",
        ),
        (  # no memory
            "const made = GPUDevice.prototype.createBuffer; GPUDevice.prototype.createBuffer = function (d) {"
            " return made.call(this, { ...d, size: 2 ** 40 }); }",
            "the browser can create the program's buffers",
        ),
    ],
    ids=["no WebGPU", "no adapter", "small limits", "a wrong driver", "refused kernels", "no memory"],
)
def test_a_page_says_why_it_cannot_work(before: str, message: str, exported: Path, page: Page) -> None:
    with served(exported) as address:
        page.open(f"{address}/index.html", before)
        page.until(READY)
        assert message in page.evaluate(PROBLEM)
        assert page.evaluate("document.body.dataset.ready") is None
    assert page.messages == []


@pytest.mark.parametrize(
    ("file", "message"),
    [("weights.safetensors", "another or damaged file"), ("kernels/001.wgsl", "another or damaged file"), ("", "status 404")],
)
def test_files_that_are_not_those_of_the_export_are_named(file: str, message: str, exported: Path, page: Page) -> None:
    if file:
        content = bytearray((exported / file).read_bytes())
        content[-20] ^= 1
        (exported / file).write_bytes(content)
    else:
        (exported / "selftest.safetensors").unlink()
    with served(exported) as address:
        page.open(f"{address}/index.html")
        page.until(READY)
        problem = page.evaluate(PROBLEM)
    assert message in problem
    assert (file or "selftest.safetensors") in problem


CALLS = """(async () => {
    const { load, tensor } = await import("./firebrick.js");
    const program = await load("."), found = [];
    const caught = async run => { try { return (await run()).output.data.length; } catch (e) { return e.message; } };
    const x = (...shape) => tensor("float32", shape, new Float32Array(shape.reduce((a, b) => a * b)));
    found.push(await caught(() => program.run({ input: x(1, 8, 8) })));
    found.push(await caught(() => program.run({ input: x(2, 1, 8, 8) })));
    found.push(await caught(() => program.run({})));
    found.push(await caught(() => program.run({ input: x(1, 1, 8, 8), y: x(1) })));
    found.push(await caught(() => program.run({ input: tensor("float32", [1, 1, 8, 8], new Float64Array(64)) })));
    found.push(await caught(() => program.run({ input: tensor("float32", [1, 1, 8, 8], new Float32Array(63)) })));
    found.push(await caught(() => program.run({ input: tensor("int32", [1, 1, 8, 8], new Int32Array(64)) })));
    const grey = k => program.run({ input: tensor("float32", [1, 1, 8, 8], Array(64).fill(k / 4)) });
    const many = await Promise.all([0, 1, 2, 3].map(grey)), alone = [];
    for (const k of [0, 1, 2, 3]) alone.push(await grey(k));
    found.push(many.every((m, k) => m.output.data.every((v, i) => v === alone[k].output.data[i])));
    found.push(new Set(many.map(m => m.output.data[0])).size);
    found.push(await program.run({}).catch(e => "rejected"));
    program.destroy();
    found.push(await caught(() => program.run({ input: x(1, 1, 8, 8) })));
    return found;
})()"""


def test_calls_of_a_program_are_checked_and_take_turns(exported: Path, page: Page) -> None:
    with served(exported) as address:
        page.open(f"{address}/index.html")
        page.until(READY)
        shape, batch, missing, unknown, kind, short, dtype, alike, different, rejected, lost = page.evaluate(CALLS)
    assert "takes input of float32[1,1,8,8]\nReceived: float32[1,8,8]." in shape
    assert "Received: float32[2,1,8,8]." in batch
    assert "Received: nothing." in missing
    assert "the inputs of digits, mlp are input\nReceived: y." in unknown
    assert "elements of float32 are in a Float32Array\nReceived: Float64Array." in kind
    assert "has 64 elements\nReceived: 63." in short
    assert "Received: int32[1,1,8,8]." in dtype
    assert (alike, different) == (True, 4)
    assert rejected == "rejected"
    assert "the device is lost" in lost


def test_any_program_has_a_page_that_runs_its_self_test(page: Page, tmp_path: Path) -> None:
    table = fb.asarray(np.arange(10.0, dtype=np.float32).reshape(5, 2), device="numpy")

    def chosen(at: fb.Tensor) -> dict[str, fb.Tensor]:
        rows, odd = fb.take(table, at, axis=0) * 2.0, fb.log(table - 1.0)  # NaN, -inf, 0 and more
        more = {"odd": odd, "brain": fb.astype(odd, fb.bfloat16), "large": fb.astype(at, fb.uint64) << 60, "yes": odd > 0}
        return {"rows": rows, "last": at[-1:], "half": fb.astype(table, fb.float16) / 4, **more}

    web.export(chosen, [fb.asarray([0, 4, 2], device="numpy")], tmp_path / "page", name="<b>rows & columns</b>")
    with served(tmp_path / "page") as address:
        page.open(f"{address}/index.html")
        page.until(f'!document.getElementById("run").disabled || {PROBLEM}')
        assert page.evaluate(PROBLEM) == ""
        assert page.evaluate("document.querySelector('h1').textContent") == "<b>rows & columns</b>"
        page.evaluate('document.getElementById("run").click()')
        page.until('!document.getElementById("results").hidden')
        shown = page.evaluate('document.getElementById("results").textContent')
        wrong = """(async () => {
            const { load, tensor } = await import("./firebrick.js"), program = await load(".");
            const found = [];
            for (const at of [[0n, 5n, 9n], [-6n, 0n, 0n]]) {
                await program.run({ at: tensor("int64", [3], BigInt64Array.from(at)) }).catch(e => found.push(e.message));
            }
            const right = await program.run({ at: tensor("int64", [3], BigInt64Array.of(0n, -5n, 4n)) });
            return [...found, [...right["output.rows"].data], [...right["output.half"].data.slice(0, 5)]];
        })()"""
        assert page.evaluate("document.querySelector('h1').children.length") == 0
        large, small, rows, half = page.evaluate(wrong)
        assert "output.odd = NaN, -Infinity, 0, " in shown
        assert "output.yes = 0, 0, 0, 1, 1, " in shown
        assert "output.large = 0, 4611686018427387904, 2305843009213693952\n" in shown
    assert shown.startswith("output.rows = 0, 2, 16, 18, 8, 10\noutput.last = 2\n")
    assert "take: indices must lie in [-5, 5)\nReceived: 5." in large
    assert "Received: -6." in small
    assert rows == [0, 2, 0, 2, 16, 18]  # the fault does not stay
    assert np.array(half, np.uint16).view(np.float16).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert page.messages == []


def test_an_error_in_the_page_is_an_error_of_the_test(page: Page, tmp_path: Path) -> None:
    """The tests above can fail: what the console says is seen, and exceptions are raised."""
    (tmp_path / "index.html").write_text("<p>x</p><script>console.error('seen'); throw new Error('thrown')</script>")
    with served(tmp_path) as address:
        page.open(f"{address}/index.html")
        with pytest.raises(PageError, match="nothing here"):
            page.evaluate("(() => { throw new Error('nothing here') })()")
    assert "seen" in page.messages
    assert any("thrown" in m for m in page.messages)
