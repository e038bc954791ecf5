"""The examples: short runs in processes of their own, which must reach what the full ones show."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import forked
import numpy as np
import pytest
from PIL import Image

FOLDER = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(FOLDER.glob("*.py"))
NUMBER = r"(-?\d+\.?\d*(?:e-?\d+)?)"


def run(program: Path, folder: Path, *options: str, needs: tuple[str, ...] = (), device: str = "cpu") -> str:
    """What a short run prints."""
    for package in needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} cannot be used here")
    modules = tuple({"matplotlib": "matplotlib.pyplot"}.get(package, package) for package in needs)
    done = forked.run(program, "--short", *options, cwd=folder, variables={"FIREBRICK_DEVICE": device}, needs=modules)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr
    return done.stdout


def drawn(name: str, folder: Path, device: str = "cpu") -> str:
    """What a short run prints that draws a picture."""
    printed = run(FOLDER / f"{name}.py", folder, "--out", "picture.png", needs=("matplotlib",), device=device)
    with Image.open(folder / "picture.png") as image:
        pixels = np.asarray(image.convert("RGB")) / 255
    assert min(pixels.shape[:2]) > 300
    assert pixels.std() > 0.01, "the picture is of one colour"
    return printed


def numbers(printed: str, text: str) -> list[float]:
    """The numbers that stand in place of each # of a line."""
    found = re.search(re.escape(text).replace(r"\#", NUMBER), printed)
    assert found, f"no line {text!r} in:\n{printed}"
    return [float(a) for a in found.groups()]


def test_no_program_is_longer_than_150_lines() -> None:
    assert len(PROGRAMS) >= 8
    assert [p.name for p in PROGRAMS if len(p.read_text("utf-8").splitlines()) > 150] == []


def test_the_list_of_programs_has_each_with_the_command_of_its_docstring() -> None:
    listed = (FOLDER / "README.md").read_text("utf-8")
    for program in [*PROGRAMS, *(FOLDER / "kernels").glob("*.py")]:
        if program.stem != "pictures":
            name = program.relative_to(FOLDER).as_posix()
            assert f"python examples/{name}" in program.read_text("utf-8")
            assert f"python examples/{name}" in listed


@pytest.mark.slow
def test_a_gpt_that_resumes_within_an_epoch_has_the_bits_of_one_that_never_stopped(tmp_path: Path) -> None:
    printed = run(FOLDER / "char_gpt.py", tmp_path)
    done, epoch = numbers(printed, "resumed after # of # steps of an epoch")
    assert 0 < done < epoch < 60
    same, parameters, losses = numbers(printed, "# of # parameters and # of 60 losses are equal")
    assert same == parameters > 20
    assert losses == 60
    first, last = numbers(printed, "loss: # at first, # at last")
    assert last < first - 1
    assert printed.splitlines()[-1].startswith("The ")


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", [
    "loader.load_cursor",
    *(pytest.param(f, marks=pytest.mark.soak) for f in ("optimizer.load_state_dict", "model.set_generator_states")),
])  # fmt: skip
def test_a_gpt_that_forgets_a_part_of_its_state_has_other_bits(forgotten: str, tmp_path: Path) -> None:
    program = (FOLDER / "char_gpt.py").read_text("utf-8")
    assert program.count(f"self.{forgotten}(") == 1
    (tmp_path / "forgetful.py").write_text(program.replace(f"self.{forgotten}(", "str("), "utf-8")
    printed = run(tmp_path / "forgetful.py", tmp_path)
    assert numbers(printed, "# of # parameters and # of 60 losses are equal")[0] == 0


@pytest.mark.slow
def test_a_vae_reconstructs_unseen_digits(tmp_path: Path) -> None:
    printed = drawn("vae", tmp_path)
    (constant,) = numbers(printed, "test loss of the mean image: #")
    (last,) = numbers(printed, "test loss at last: #")
    assert last < constant - 1, "points of the latent space make no difference"


@pytest.mark.slow
def test_samples_of_a_gan_come_nearer_to_the_digits(tmp_path: Path) -> None:
    printed = drawn("gan", tmp_path)
    (same,) = numbers(printed, "energy distance between two sets of digits: #")
    (first,) = numbers(printed, "energy distance of the samples at first: #")
    (last,) = numbers(printed, "energy distance of the samples at last: #")
    assert abs(same) < 0.05
    assert last < 0.3 * first


@pytest.mark.slow
def test_a_resnet_predicts_what_pytorch_predicts_and_learns_other_digits(tmp_path: Path) -> None:
    printed = run(FOLDER / "resnet_from_torch.py", tmp_path, needs=("torch",))
    assert numbers(printed, "logits differ by # at most")[0] < 1e-4
    assert numbers(printed, "predictions that are equal: #%") == [100]
    assert numbers(printed, "predictions that are right: #%")[0] > 70
    (head,) = numbers(printed, "accuracy of the new head on digits 5 to 9: #%")
    (whole,) = numbers(printed, "accuracy after training the whole network: #%")
    assert 40 < head < whole
    assert whole > 80


@pytest.mark.slow
def test_patch_tst_forecasts_better_than_the_week_before(tmp_path: Path) -> None:
    printed = drawn("patch_tst", tmp_path)
    (naive,) = numbers(printed, "test error of the week before, repeated: #")
    (error,) = numbers(printed, "test error of PatchTST: #")
    assert error < 0.8 * naive


@pytest.mark.slow
@pytest.mark.parametrize(
    "device", ["cpu", *(pytest.param(d, marks=pytest.mark.soak) for d in ("numpy", "torch:cpu"))], indirect=True
)
def test_a_speed_is_found_from_recorded_waves_on_every_engine(device: str, tmp_path: Path) -> None:
    printed = drawn("wave_equation", tmp_path, device)
    assert numbers(printed, "relative difference of the gradient from finite differences: #")[0] < 1e-7
    first, last, _ = numbers(printed, "misfit of the recordings: # at first, # after # rounds")
    assert last < 0.2 * first
    first, last = numbers(printed, "error of the speed: # at first, # at last")
    assert last < 0.75 * first


@pytest.mark.slow
def test_points_flow_along_the_gradient_of_the_sinkhorn_divergence(tmp_path: Path) -> None:
    printed = drawn("sinkhorn", tmp_path)
    assert numbers(printed, "gradient equals finite differences; relative error of the marginals: #")[0] < 1e-12
    first, last, _ = numbers(printed, "divergence: # at first, # after # steps")
    assert last < 0.1 * first


@pytest.mark.slow
def test_three_engines_agree_on_a_batch_and_train_one_model(tmp_path: Path) -> None:
    printed = run(FOLDER / "three_engines.py", tmp_path, needs=("torch",))
    losses = re.findall(rf"(\S+) +loss {NUMBER}", printed)
    assert [device for device, _ in losses] == ["cpu:0", "numpy:0", "torch:cpu"]
    assert np.ptp([float(loss) for _, loss in losses]) < 1e-5
    assert numbers(printed, "gradients differ by # of their size at most")[0] < 1e-5
    alone, shared = numbers(printed, "accuracy after 1 epoch: #% on one device, #% over three engines")
    assert min(alone, shared) > 60
    assert numbers(printed, "weights differ by # at most")[0] < 1e-4


@pytest.mark.soak
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.stem)
def test_every_program_runs_on_every_engine(program: Path, device: str, tmp_path: Path) -> None:
    run(program, tmp_path, needs=("matplotlib", "torch"), device=device)


@pytest.mark.slow
def test_a_lenet_on_resistive_devices_learns_by_every_algorithm(tmp_path: Path) -> None:
    printed = run(FOLDER / "analog_training.py", tmp_path)
    for algorithm, least in (("digital", 0.4), ("SGD", 0.2), ("TTv2", 0.2)):
        assert numbers(printed, f"{algorithm}: accuracy # after one epoch, # in the last three")[1] > least
    assert numbers(printed, "AGAD: accuracy # after one epoch, # in the last three")
