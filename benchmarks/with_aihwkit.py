"""The cases of ``benchmarks.analog`` in aihwkit (MIT licence), in a process of its own: ``python benchmarks/with_aihwkit.py``.

It needs torch and aihwkit, and nothing of this project, so that the interpreter may be another one. Each line of the input is a
case and a kind as JSON, with a number of calls; each line of the output has the seconds of these calls, or why there are none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from aihwkit.nn.conversion import convert_to_analog
from aihwkit.optim import AnalogSGD
from aihwkit.simulator import configs
from aihwkit.simulator.configs import devices as single
from aihwkit.simulator.presets import devices as preset_devices
from aihwkit.simulator.tiles import AnalogTile
from torch import nn

SIZE, BATCH, RATE = (256, 784), 64, 0.01
DEVICES = {
    "constant_default": "ConstantStepDevice", "linear_default": "LinearStepDevice", "softbounds_default": "SoftBoundsDevice",
    "sbref_default": "SoftBoundsReferenceDevice", "pmax_default": "SoftBoundsPmaxDevice", "exp_default": "ExpStepDevice",
    "pow_default": "PowStepDevice", "powref_default": "PowStepReferenceDevice",
}  # fmt: skip
CELLS = {
    "vector_all": "VectorUnitCell", "reference": "ReferenceUnitCell", "ttv1": "TransferCompound",
    "ttv2": "BufferedTransferCompound", "chopped": "ChoppedTransferCompound", "dynamic": "DynamicTransferCompound",
    "mixed_precision": "MixedPrecisionCompound",
}  # fmt: skip


def _configuration(name: str) -> Any:
    """The configuration of a tile."""
    if name in DEVICES:
        return configs.SingleRPUConfig(device=getattr(single, DEVICES[name])())
    if name.startswith("preset_"):
        device = getattr(preset_devices, f"{name.removeprefix('preset_')}PresetDevice")
        return configs.SingleRPUConfig(device=device())
    cell = name.removeprefix("compound ")
    kind = getattr(configs, CELLS[cell])
    soft = single.SoftBoundsDevice
    if cell == "mixed_precision":
        return configs.DigitalRankUpdateRPUConfig(device=kind(device=soft()))
    settings = {"fast_lr": RATE} if cell in ("chopped", "dynamic") else {}
    return configs.UnitCellRPUConfig(device=kind(unit_cell_devices=[soft(), soft()], **settings))


def update(name: str, kind: str) -> Callable[[], Any]:
    """An update of a tile."""
    torch.manual_seed(0)
    tile = AnalogTile(*SIZE, _configuration(name))
    tile.set_learning_rate(RATE)
    x, d = torch.randn(BATCH, SIZE[1]), torch.randn(BATCH, SIZE[0])
    errors = d * 0.01 if "small" in kind else d
    return lambda: tile.update(x, errors)


def product(name: str) -> Callable[[], Any]:
    """A forward or backward product of a tile."""
    torch.manual_seed(1)
    kind, _, periphery = name.partition(" ")
    io = configs.IOParameters()
    if periphery == "perfect":
        io.is_perfect = True
    elif periphery == "no bound management":
        io.bound_management = configs.BoundManagementType.NONE
    elif periphery == "ir_drop":
        io.ir_drop = 1.0
    elif periphery == "pcm_read noise":
        io.w_noise, io.w_noise_type = 0.02, configs.WeightNoiseType.PCM_READ
    device = single.SoftBoundsDevice(w_max_dtod=0.0, w_min_dtod=0.0)
    tile = AnalogTile(*SIZE, configs.SingleRPUConfig(device=device, forward=io, backward=io))
    tile.set_weights((0.1 * torch.randn(*SIZE)).clamp(-0.5, 0.5))
    given = torch.randn(BATCH, SIZE[1] if kind == "forward" else SIZE[0])
    run = tile.forward if kind == "forward" else tile.backward
    return lambda: run(given)


def training_step(name: str) -> Callable[[], Any]:
    """A training step of a LeNet at batch 64."""
    torch.manual_seed(2)
    soft = single.SoftBoundsDevice
    kind = name.partition("batch 64, ")[2]
    if kind == "ConstantStep":
        configuration = configs.SingleRPUConfig(device=single.ConstantStepDevice())
    elif kind == "SoftBounds":
        configuration = configs.SingleRPUConfig(device=soft())
    else:
        configuration = configs.UnitCellRPUConfig(device=configs.BufferedTransferCompound(unit_cell_devices=[soft(), soft()]))
    digital = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(512, 128), nn.Tanh(), nn.Linear(128, 10),
    )  # fmt: skip
    model = convert_to_analog(digital, configuration)
    optimizer = AnalogSGD(model.parameters(), lr=RATE)
    optimizer.regroup_param_groups(model)
    x, y = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))

    def step() -> float:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(model(x), y)
        value.backward()
        optimizer.step()
        return value.item()

    return step


def _run(name: str, kind: str) -> Callable[[], Any]:
    if kind:
        return update(name, kind)
    return training_step(name) if name.startswith("LeNet") else product(name)


def main() -> None:
    """Answer each line."""
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    runs: dict[tuple[str, str], Callable[[], Any]] = {}
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            key = asked["name"], asked["kind"]
            if key not in runs:
                runs.clear()
                runs[key] = _run(*key)
                runs[key]()
            took = []
            for _ in range(asked["calls"]):
                start = perf_counter()
                runs[key]()
                took.append(perf_counter() - start)
            print(json.dumps({"seconds": took}), flush=True)
        except Exception as e:  # noqa: BLE001 - the case is named, and the others go on
            print(json.dumps({"error": f"{type(e).__name__}: {e}"}), flush=True)


if __name__ == "__main__":
    main()
