"""The documents: every snippet runs as printed, both columns of "coming from PyTorch" agree, generated pages are current."""

from __future__ import annotations

import codeop
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import numpy as np
import pytest

import firebrick as fb

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("**/*.md"))]
BLOCK = re.compile(r"```(python|pycon)\n(.*?)```", flags=re.S)
ROW = re.compile(r"^\| `([^`]*)` \| `([^`]*)` \|$", flags=re.M)
NEEDS_TORCH = ("fine-tuning.md",)
IMPORT_TORCH = ("devices.md", "ecosystem.md", "extending.md", "fine-tuning.md", "from-pytorch.md", "training.md")
EXAMPLES = dict(
    re.findall(r"## (Adding an? [\w ]+)\n.*?```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), flags=re.S)
)

# runs the blocks of a page in one namespace: `pycon` blocks as doctests, and a `text` block is what the one before it prints
RUNNER = """
import contextlib, doctest, io, linecache, re, sys, types
from pathlib import Path
sys.modules["page"] = page = types.ModuleType("page")  # classes of a page can be pickled
names, failed = vars(page), 0
text = Path(sys.argv[1]).read_text("utf-8")
blocks = re.findall(r"```(python|pycon)\\n(.*?)```(?:\\n```text\\n(.*?)```)?", text, flags=re.S)
for number, (kind, body, shown) in enumerate(blocks):
    if kind == "python":
        linecache.cache[f"block {number}"] = len(body), None, body.splitlines(True), f"block {number}"  # for inspect
        with contextlib.redirect_stdout(io.StringIO() if shown else sys.stdout) as printed:
            exec(compile(body, f"block {number}", "exec"), names)
        if shown and not doctest.OutputChecker().check_output(shown, printed.getvalue(), doctest.ELLIPSIS):
            print(f"block {number} should print\\n{shown}\\nand prints\\n{printed.getvalue()}")
            failed += 1
    else:
        test = doctest.DocTestParser().get_doctest(body, names, f"block {number}", sys.argv[1], 0)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        failed += runner.run(test, clear_globs=False).failed
        names.update(test.globs)
sys.exit(1 if failed else 0)
"""


def _run(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a page: the first one that people read in an interpreter that has imported nothing, others in forks."""
    if page.name == "README.md":
        return subprocess.run(
            [sys.executable, "-c", RUNNER, str(page)], capture_output=True, text=True, check=False, cwd=folder
        )
    return forked.run(RUNNER, str(page), cwd=folder, needs=("torch",) if page.name in IMPORT_TORCH else ())


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text("utf-8"))], ids=lambda p: p.name)
def test_the_snippets_of_a_page_run_as_they_are_printed(page: Path, tmp_path: Path) -> None:
    if page.name in NEEDS_TORCH:
        pytest.importorskip("torch", reason="torch, which the page is about")
    if page.name == "ecosystem.md":
        for library in ("torch", "einops", "sklearn"):
            pytest.importorskip(library, reason="a library that the page is about")
    done = _run(page, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr


def test_a_page_that_shows_other_output_than_it_prints_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n```text\n2\n```\n", "utf-8")
    assert _run(page, tmp_path).returncode == 0
    page.write_text("```python\nprint(1 + 1)\n```\n```text\n3\n```\n", "utf-8")
    done = _run(page, tmp_path)
    assert done.returncode == 1
    assert "should print\n3\n\nand prints\n2" in done.stdout


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "index.md"], ids=lambda p: p.name)
def test_a_quick_start_can_be_pasted_into_a_python_prompt(page: Path) -> None:
    blocks = [body for kind, body in BLOCK.findall(page.read_text("utf-8")) if kind == "python"]
    pasted = "\n".join(blocks) + "\n"
    assert pasted.count("\n") > 30
    assert _refused_by_a_prompt(pasted) is None


def test_a_prompt_refuses_a_statement_right_behind_a_block() -> None:
    assert _refused_by_a_prompt("for k in range(3):\n    print(k)\n\nprint(k)\n") is None
    assert _refused_by_a_prompt("for k in range(3):\n    print(k)\nprint(k)\n") == "print(k)"


def _refused_by_a_prompt(text: str) -> str | None:
    """The first line with which an interactive prompt reports a syntax error: it takes one statement after the other, and a
    block ends with an empty line."""
    statement: list[str] = []
    for line in text.split("\n"):
        if not statement and not line.strip():
            continue
        statement.append(line)
        try:
            done = codeop.compile_command("\n".join(statement), symbol="single") is not None
        except SyntaxError:
            return line
        if done:
            statement = []
    return "\n".join(statement) if any(statement) else None


def test_an_op_example_without_one_field_is_refused_by_its_name() -> None:
    broken = re.sub(r"    tolerance=.*\n", "", EXAMPLES["Adding an op"])
    done = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "cannot be registered: tolerance is missing" in done.stderr


def test_jit_compiles_the_naive_form_of_a_kind_that_was_added(tmp_path: Path) -> None:
    example = EXAMPLES["Adding a kind of kernel"]
    assert example.count("length.local + 1, 1))") == 1
    broken = example.replace("length.local + 1, 1))", "length.local + 2, 1))")
    (tmp_path / "broken.py").write_text(broken, "utf-8")
    done = subprocess.run([sys.executable, "broken.py"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "AssertionError" in done.stderr
    assert "fb.jit(streak)" in done.stderr


def test_a_target_that_prints_another_operation_is_found() -> None:
    example = EXAMPLES["Adding a target"]
    broken = example.replace('"gt": ">"', '"gt": "<"')
    done = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, check=False)
    assert broken != example
    assert "Arrays are not equal" in done.stderr


# coming from PyTorch

ROWS = ROW.findall((DOCS / "from-pytorch.md").read_text("utf-8"))


def _arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    b = rng.normal(size=(4, 4))
    return {
        "x": rng.normal(size=(3, 4)), "y": rng.normal(size=(3, 4)), "v": rng.normal(size=4), "a": b @ b.T + 4 * np.eye(4),
        "i": np.asarray([2, 0]), "mask": rng.normal(size=(3, 4)) > 0, "images": rng.normal(size=(2, 3, 8, 8)),
        "kernel": rng.normal(size=(4, 3, 3, 3)), "logits": rng.normal(size=(5, 3)), "labels": rng.integers(0, 3, 5),
        "q": rng.normal(size=(2, 4, 6, 8)),
    }  # fmt: skip


def _plain(value: Any) -> list[np.ndarray]:
    if isinstance(value, (tuple, list)):
        return [a for v in value for a in _plain(v)]
    return [np.asarray(value.detach() if hasattr(value, "detach") else value)]


def test_there_are_rows() -> None:
    assert len(ROWS) > 60


@pytest.mark.parametrize(("theirs", "ours"), ROWS, ids=[r[1] for r in ROWS])
def test_both_columns_give_the_same_values(theirs: str, ours: str) -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare with")
    given = {"torch": torch, "F": torch.nn.functional, **{k: torch.asarray(a.copy()) for k, a in _arrays().items()}}
    want = _plain(eval(theirs, given))
    got = _plain(eval(ours, {"fb": fb, **{k: fb.asarray(a) for k, a in _arrays().items()}}))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-10 if w.dtype != np.float32 else 1e-6, atol=1e-12)


# coming from other libraries

VALUED = re.compile(r"^\| `([^`]*)` \| `([^`]*)` \| `([^`]*)` \|$", flags=re.M)
COMPARED = ROW.findall((DOCS / "from-numpy.md").read_text("utf-8"))
EVALUATED = [
    (f"{page}: {ours}", ours)
    for page in ("from-keras.md", "from-mlx.md")
    for _, ours in ROW.findall((DOCS / page).read_text("utf-8"))
]
VALUES = [
    (f"{page}: {ours}", ours, value)
    for page in ("from-jax.md", "from-keras.md", "from-mlx.md")
    for _, ours, value in VALUED.findall((DOCS / page).read_text("utf-8"))
]


def _given() -> dict[str, Any]:
    fb.random.seed(0)
    model = fb.nn.Linear(4, 1)
    libraries = {"fb": fb, "nn": fb.nn, "optim": fb.optim, "train": fb.train}
    tensors = {k: fb.asarray(a) for k, a in _arrays().items()}
    return {**libraries, **tensors, "model": model, "optimizer": fb.optim.SGD(model, lr=0.1)}


def _check(ours: str, value: Any) -> None:
    got, want = _plain(eval(ours, _given())), _plain(value)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(g, w, rtol=1e-10 if w.dtype != np.float32 else 1e-6, atol=1e-12)


def test_each_page_has_rows() -> None:
    assert len(COMPARED) > 35
    assert len(EVALUATED) > 45
    assert len(VALUES) > 55


@pytest.mark.parametrize(("theirs", "ours"), COMPARED, ids=[r[1] for r in COMPARED])
def test_numpy_and_firebrick_give_the_same_values(theirs: str, ours: str) -> None:
    _check(ours, eval(theirs, {"np": np, **_arrays()}))


@pytest.mark.parametrize(("ours", "value"), [r[1:] for r in VALUES], ids=[r[0] for r in VALUES])
def test_what_replaces_a_function_has_the_stated_value(ours: str, value: str) -> None:
    _check(ours, eval(value, {"np": np, **_arrays()}))


@pytest.mark.parametrize("ours", [r[1] for r in EVALUATED], ids=[r[0] for r in EVALUATED])
def test_what_replaces_a_layer_or_a_call_can_be_evaluated(ours: str) -> None:
    eval(ours, _given())


# layers and their arguments

LAYER_ROW = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| `(.*?)` \| .*\|$", flags=re.M)
OF_ALL_LAYERS = ("generator", "dtype", "device", "seed")


def _arguments(layer: type) -> str:
    """Arguments of a layer as the table has them."""
    parts = []
    parameters = [p for p in inspect.signature(layer).parameters.values() if p.name not in OF_ALL_LAYERS]
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(stars + p.name if p.default is p.empty else f"{p.name}={p.default!r}".replace("'", '"'))
    return ", ".join(parts)


def test_the_table_of_layers_has_the_arguments_of_every_layer() -> None:
    rows = LAYER_ROW.findall((DOCS / "layers.md").read_text("utf-8"))
    shown = {name: arguments for names, arguments in rows for name in re.findall(r"`(\w+)`", names)}
    layers = {n: getattr(fb.nn, n) for n in fb.nn.__all__}
    layers = {n: c for n, c in layers.items() if isinstance(c, type) and issubclass(c, fb.nn.Module) and c is not fb.nn.Module}
    takes = {n: _arguments(c) for n, c in layers.items()}
    assert shown == {n: a for n, a in takes.items() if a not in ("", "*args, **kwargs")}


# generated pages


def test_the_page_of_ops_is_current() -> None:
    from firebrick.testing.engines import engines
    from firebrick.testing.optable import page

    if engines().missing:
        pytest.skip(f"the page shows engines that are missing here: {', '.join(engines().missing)}")
    assert (DOCS / "ops.md").read_text("utf-8") == page(), "write it again with: make docs"


def test_the_figures_of_accuracy_cover_every_op() -> None:
    text = (DOCS / "accuracy.md").read_text("utf-8")
    named = set(re.findall(r"^\| ([a-z_0-9]+) \| [\d.]+[^|]* \|", text, flags=re.M))
    assert named == set(fb.ops.OPS) - set(fb.testing.EXCLUDED), "write them again with: make soak"
    assert "**failed**" not in text


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The site, and the run of mkdocs that built it."""
    pytest.importorskip("mkdocs", reason="mkdocs, to build the documents")
    site = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    return site, done


def test_the_site_builds_without_warnings(built: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    site, done = built
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    assert (site / "from-pytorch" / "index.html").exists()


@pytest.mark.parametrize(
    ("words", "section"),
    [
        ("LayerNorm", "reference/nn-normalisation/#fb.nn.LayerNorm"),
        ("callback", "reference/learner/#fb.train.Callback"),
        ("early stopping", "reference/learner/#fb.train.EarlyStopping"),
        ("gradient clipping", "reference/clipping/"),
        ("weight decay", "reference/optimizers/#fb.optim.AdamW"),
        ("custom op", "reference/kernels/"),
        ("custom op", "guides/extending/#a-custom-op-from-numpy-code"),
        ("fine-tuning PyTorch weights", "guides/fine-tuning/"),
        ("vmap JAX", "from-jax/#what-is-different"),
    ],
)
def test_the_index_of_the_search_has_the_words_of_a_section(
    built: tuple[Path, subprocess.CompletedProcess[str]], words: str, section: str
) -> None:
    entries = json.loads((built[0] / "search" / "search_index.json").read_text("utf-8"))["docs"]
    (entry,) = (e for e in entries if e["location"] == section)
    # the search splits names at capital letters, and finds the beginnings of words
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", f"{entry['title']} {entry['text']}").lower()
    assert all(word in text for word in re.sub(r"(?<=[a-z])(?=[A-Z])", " ", words).lower().split())
