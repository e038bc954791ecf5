"""``firebrick checkpoint`` says what is in a checkpoint and whether it is whole; a damaged one is passed over by name."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from firebrick.train import load_checkpoint

Run = Callable[..., Result]


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"?")


def test_show_tells_version_progress_config_hashes_and_tensors(run: Run, trained: Path) -> None:
    result = run("checkpoint", "show", trained)
    assert result.exit_code == 0, result.output
    manifest = json.loads((trained / "checkpoint" / "manifest.json").read_text())
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert f"checkpoint {trained / 'checkpoint'}" in lines
    assert f"written by Firebrick {manifest['firebrick']}, format 2" in lines
    assert "epoch 4" in lines
    assert f"step {load_checkpoint(trained).state['step']}" in lines
    assert "config model: mlp" in lines
    assert any(line.endswith(f"sha256 {manifest['files']['state.json']['sha256']}") for line in lines)
    assert "layers.1.weight float32 [256, 64] 64.0 KiB" in lines
    assert "moments/first/layers.5.bias float32 [10] 40 B" in lines
    assert "6 tensors of the model, 198.5 KiB" in lines
    assert [lines[n - 1] for n, line in enumerate(lines) if line.endswith("tensor dtype shape size")] == ["", ""]


def test_verify_reads_all_checkpoints_of_a_run(run: Run, trained: Path) -> None:
    result = run("checkpoint", "verify", trained)
    assert result.exit_code == 0, result.output
    (earlier,) = (trained / "earlier").iterdir()
    for place in (trained / "checkpoint", earlier, trained / "best"):
        assert any(line.startswith("whole") and str(place) in line for line in result.output.splitlines())


@pytest.mark.parametrize(
    "name", ["manifest.json", "manifest.sha256", "model.safetensors", "optimizer.safetensors", "state.json"]
)
def test_verify_fails_and_names_the_damaged_file(run: Run, trained: Path, name: str) -> None:
    file = trained / "best" / name
    file.write_bytes(b"?" + file.read_bytes()[1:])
    for place in (trained, trained / "best"):
        result = run("checkpoint", "verify", place)
        assert result.exit_code == 1
        (line,) = [line for line in result.output.splitlines() if line.startswith("damaged")]
        assert f"{trained / 'best'}  {name.replace('.sha256', '.json')}: other bytes" in line
    assert run("checkpoint", "verify", trained / "checkpoint").exit_code == 0


@pytest.mark.parametrize(
    ("place", "text"),
    [(lambda p: None, "does not exist"), (Path.touch, "a file in its place"), (Path.mkdir, "holds no checkpoint")],
)
def test_verify_fails_where_the_newest_checkpoint_is_gone(
    run: Run, trained: Path, place: Callable[[Path], None], text: str
) -> None:
    shutil.move(trained / "checkpoint", trained.parent / "elsewhere")
    place(trained / "checkpoint")
    result = run("checkpoint", "verify", trained)
    assert result.exit_code == 1, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("missing")]
    assert f"{trained / 'checkpoint'}  {text}" in line


@pytest.mark.parametrize("command", ["show", "verify"])
def test_where_there_is_none_both_say_what_is_there(run: Run, command: str) -> None:
    Path("bare").mkdir()
    for place, text in (("nowhere", "does not exist"), ("bare", "holds nothing")):
        result = run("checkpoint", command, place)
        assert result.exit_code == 1
        assert text in result.output


def test_commands_pass_over_a_damaged_checkpoint_and_say_so(run: Run, trained: Path) -> None:
    damage(trained / "checkpoint" / "model.safetensors")
    (earlier,) = (trained / "earlier").iterdir()
    for command in (("evaluate", trained), ("train", "digits", "--model", "mlp", "--resume", "--out", trained)):
        result = run(*command)
        assert result.exit_code == 0, result.output
        assert f"{trained / 'checkpoint'} is damaged (model.safetensors: other bytes" in result.output
        assert result.output.count(f"going on from {earlier}") == 1
    assert "after epoch 3" in result.output
    assert run("checkpoint", "verify", trained).exit_code == 0  # it gave way to that of the epoch that was run again
