"""Measured figures of a reference simulator of analog hardware, and the comparison of tiles with them.

The figures lie in a folder that the environment variable ANALOG_FIGURES names; its README states how they were measured
and the rule of comparison: a deviation is counted in its own standard error, sqrt(SE² + SE²) of both sides, and deterministic
values may differ by 1e-5 of their range.
"""

import json
import os
from dataclasses import dataclass, fields, replace
from math import erfc
from pathlib import Path
from zlib import crc32

import numpy as np
from scipy.special import stdtrit

import firebrick as fb
from firebrick import analog

FOLDER = os.environ.get("ANALOG_FIGURES")
SEEDS = (101, 202, 303)
"""Of our side, chosen before anything was compared."""
TABLE = 32768
"""Normal numbers of a tile of the reference, from which all of its noise is taken."""


def figures(name):
    """All cases of a file of figures."""
    return json.loads((Path(FOLDER) / f"{name}.json").read_text())["cases"]


MODELS = {
    name: getattr(analog, name)
    for name in analog.__all__
    if isinstance(getattr(analog, name), type) and issubclass(getattr(analog, name), analog.PulsedDevice)
}


class StepDownTwice(analog.ExpStepDevice):
    """A device whose mean step is that of a pulse down, as the reference counts it: a fifth of the mean of both, for the preset
    of phase-change memory."""

    @property
    def granularity(self):
        return self.dw_min * (1.0 - self.A_down * np.exp(-self.gamma_down * self.b))


def settings_of(kind, given):
    """Those of the given settings that a class has, as it takes them."""
    known = {f.name for f in fields(kind) if f.init}
    found = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items() if k in known and v is not None}
    if "drift" in found:
        known = {f.name for f in fields(analog.DriftParameter)}
        found["drift"] = analog.DriftParameter(**{k: v for k, v in found["drift"].items() if k in known})
    return found


def device_of(given, **changes):
    """The device or cell of a case, with changed settings."""
    if given["type"] == "PCMPresetUnitCell":
        cell = analog.preset("PCMPresetUnitCell")
        return replace(cell, unit_cell_devices=tuple(StepDownTwice(**vars(d)) for d in cell.unit_cell_devices))
    if "unit_cell_devices" in given or "device" in given:
        return cell_of(given)
    kind = type(analog.preset(given["type"])) if "Preset" in given["type"] else MODELS[given["type"]]
    return kind(**(settings_of(kind, given) | settings_of(kind, changes)))


def cell_of(given):
    """The unit cell of a case."""
    kind = getattr(analog, given["type"])
    changes = settings_of(kind, given)
    changes["unit_cell_devices"] = tuple(map(device_of, given.get("unit_cell_devices") or [given["device"]]))
    if "update_policy" in changes:
        changes["update_policy"] = analog.VectorUnitCellUpdatePolicy[changes["update_policy"]]
    for name in ("transfer_forward", "refresh_forward"):
        if name in changes:
            changes[name] = io_of(changes[name])
    for name in ("transfer_update", "refresh_update"):
        if name in changes:
            known = {f.name for f in fields(analog.UpdateParameters)}
            changes[name] = update_of({k: v for k, v in changes[name].items() if k in known})
    return kind(**changes)


WITHOUT_SPREAD = dict.fromkeys(
    (
        "dw_min_dtod", "w_max_dtod", "w_min_dtod", "up_down_dtod", "gamma_up_dtod", "gamma_down_dtod", "pow_gamma_dtod",
        "pow_up_down_dtod", "slope_up_dtod", "slope_down_dtod", "reference_std", "corrupt_devices_prob", "lifetime_dtod",
        "diffusion_dtod", "reset_dtod",
    ),
    0.0,
)  # fmt: skip
WITHOUT_NOISE = dict.fromkeys(("dw_min_std", "write_noise_std", "dw_min_std_add", "dw_min_std_slope"), 0.0)


@dataclass(frozen=True)
class Deviation:
    """How far one value is from its figure.

    Attributes:
        what: The case and the place in it.
        z: In standard errors; for deterministic values in units of a fifth of what is allowed, so that 5 is the bound of both.
        random: Whether the value is a mean or deviation of random numbers.
        counted: Of which values the standard error is that of the sampling, bool, so that the mean of z² is 1; None where it
            has an allowance besides, and is an upper bound.
    """

    what: str
    z: np.ndarray
    random: bool = True
    counted: np.ndarray | None = None


def seed_of(seed, case):
    """A seed of each case: one for all would give devices of equal spread equal draws."""
    return seed * 1_000_000 + crc32(case.encode()) % 1_000_000


FAMILY_WISE = 1e-3
"""Probability of a false alarm of all values of a family together, and of the mean of their squares."""


def family_deviations(cases):
    """What is wrong with a family of cases, as text; nothing if the largest deviation and the mean square are as expected.

    The largest of N deviations has the probability of Bonferroni. Values of one case, and of one figure with three seeds of
    ours, depend on each other; those of different cases do not. So the interval of the mean of z² is that of Student for the
    means of the cases.

    Args:
        cases: For each case, its deviations with all seeds.
    """
    z = np.concatenate([d.z.ravel() for found in cases for d in found if d.random])
    found, largest = [], float(np.abs(z).max())
    if len(z) * erfc(largest / 2**0.5) < FAMILY_WISE:
        found.append(f"the largest of {len(z)} deviations is {largest:.2f} standard errors")
    counted = [np.concatenate([d.z[d.counted] for d in one if d.counted is not None] or [[]]) for one in cases]
    squares = np.array([np.mean(v**2) for v in counted if len(v)])
    if len(squares) > 2:
        half = stdtrit(len(squares) - 1, 1.0 - FAMILY_WISE / 2.0) * squares.std(ddof=1) / len(squares) ** 0.5
        if not abs(squares.mean() - 1.0) <= half:
            found.append(f"the mean of z² over {len(squares)} cases is {squares.mean():.3f}, which is not 1 ± {half:.3f}")
    bounds = [
        np.mean(np.concatenate([d.z.ravel() for d in one if d.random]) ** 2) for one in cases if any(d.random for d in one)
    ]
    half = stdtrit(len(bounds) - 1, 1.0 - FAMILY_WISE) * np.std(bounds, ddof=1) / len(bounds) ** 0.5
    if np.mean(bounds) - half > 1.0:
        found.append(f"the mean of all z² is {np.mean(bounds):.3f}, above 1 by more than {half:.3f}")
    return found


def mean_and_std(what, ours, theirs_mean, theirs_std, n, tiles, floor=0.0, se_mean=0.0, pulses=0):
    """Deviations of means and standard deviations over the first axis.

    Where nearly all devices are at a bound, the deviation is that of a few of them: what one device of n adds at the largest
    deviation of the curve is a standard error of it.

    Args:
        what: Name of the case.
        ours: Samples [n, …], all independent.
        theirs_mean: Figures […].
        theirs_std: Figures […].
        n: Samples behind the figures.
        tiles: Their tiles, each with one table of normal numbers.
        floor: What a deterministic part may differ by.
        se_mean: Standard error of the mean as they saw it.
        pulses: Pulses […] that their devices got. All devices of a tile take their noise from one table, whose mean is not 0,
            so that the variance between tiles grows with the square of the pulses: it is pulses / TABLE of that within them.
    """
    theirs_mean, theirs_std = np.asarray(theirs_mean), np.asarray(theirs_std)
    mean, std = ours.mean(0), ours.std(0, ddof=1)
    spread = np.maximum(std, theirs_std)
    fourth = ((ours - mean) ** 4).mean(0)
    of_std = np.sqrt(np.maximum(fourth - std**4, 0.0)) / np.maximum(2.0 * std, 1e-30)
    per = 1.0 / len(ours) + 1.0 / n + 1.0 / (TABLE * tiles)
    error = np.maximum(spread * np.sqrt(per), np.hypot(std / np.sqrt(len(ours)), se_mean))
    error_of_std = np.maximum(of_std, spread * np.sqrt(0.5)) * np.sqrt(per)
    error_of_std += np.hypot(spread, theirs_std.max() / np.sqrt(min(n, len(ours)))) - spread  # of one device more
    error_of_std += theirs_std * (np.asarray(pulses) / TABLE / 2 / 5)
    scale = np.abs(theirs_mean).max() + theirs_std.max()
    least = floor + 1e-5 * scale / 5 + 1e-30  # figures have six digits
    return [
        Deviation(f"{what}: mean", (mean - theirs_mean) / (error + least), counted=error > 20.0 * least),
        Deviation(f"{what}: deviation", (std - theirs_std) / (error_of_std + least)),
    ]


def exact(what, ours, theirs, allowed=1e-5):
    """Deviation of deterministic values: ``allowed`` is a share of their range."""
    theirs = np.asarray(theirs)
    scale = max(np.ptp(theirs), np.abs(theirs).max(), 1e-30)
    return [Deviation(what, (np.asarray(ours) - theirs) / (allowed * scale / 5), False)]


ONE_PULSE = analog.UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)


def response_of(device, pulses, size, seed, engine):
    """Weights [devices, points] of a tile under single pulses up, then down."""
    tile = analog.Tile(*size, analog.RPUConfig(device, update=ONE_PULSE), seed=seed, device=engine)
    if device.write_noise_std and device.apply_write_noise_on_set:
        tile.place(np.zeros(size))
    seen = [tile.weight.numpy().ravel()]
    for sign in (-1.0, 1.0):
        before = 0
        for count in pulses:
            n = count - before
            before = count
            tile.update(fb.ones((n, size[1]), device=engine), fb.full((n, size[0]), sign, device=engine), 1.0)
            seen.append(tile.weight.numpy().ravel())
    return np.stack(seen, 1).astype(np.float64)


VARIANTS = {
    "full": {}, "no_dtod": WITHOUT_SPREAD, "no_cycle_noise": WITHOUT_NOISE, "neither": WITHOUT_SPREAD | WITHOUT_NOISE,
}  # fmt: skip


def response_deviations(name, case, seed, engine="cpu", variants=tuple(VARIANTS)):
    """Deviations of the response curves of a device."""
    found = []
    for variant in variants:
        device, figure = device_of(case["device"], **VARIANTS[variant]), case[variant]
        what = f"{name}, {variant}, seed {seed}"
        if variant == "neither":
            ours = response_of(device, case["pulses"], (1, 1), seed, engine)[0]
            found += exact(what, ours, figure["w"], 6e-5)
        else:
            ours = response_of(device, case["pulses"], (100, 100), seed, engine)
            pulses = np.concatenate([[0], case["pulses"], case["pulses"][-1] + np.array(case["pulses"])])
            found += mean_and_std(
                what, ours, figure["mean"], figure["std"], case["n_devices"], 16, 0.0, figure["se_mean"],
                0 if variant == "no_cycle_noise" else pulses,
            )  # fmt: skip
    return found


def drawn_parameters(device, seed, size=(160, 160)):
    """The parameters of the devices of a tile, by name."""
    tile = analog.Tile(*size, analog.RPUConfig(device), seed=seed, device="numpy")
    return {n: b.numpy().ravel().astype(np.float64) for n, b in tile.parameters_of_devices.items()}


HEAVY = ("slope_up", "slope_down", "reset_bias", "reference")
"""Quotients by a number that may be near 0: their mean and deviation say little."""


def population_deviations(name, case, seed):
    """Deviations of the distribution of the parameters of devices."""
    ours = drawn_parameters(device_of(case["device"]), seed)
    found, n = [], case["n_devices"]
    heavy = HEAVY if "reference" in case["parameters"] or "slope_up" in case["parameters"] else ()
    for key, figure in case["parameters"].items():
        v, what = ours[key], f"{name}, {key}, seed {seed}"
        if "constant" in figure:
            found += exact(what, v, np.full_like(v, figure["constant"]))
            continue
        if key not in heavy:
            found += mean_and_std(what, v[:, None], [figure["mean"]], [figure["std"]], n, np.inf)
        at = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
        width = 0.3 * np.minimum(at, 1.0 - at)
        slope = (np.quantile(v, at + width) - np.quantile(v, at - width)) / (2.0 * width)
        error = slope * np.sqrt(at * (1.0 - at) * (1.0 / len(v) + 1.0 / n)) + 1e-6 * np.abs(v).max()
        z = (np.quantile(v, at) - figure["q01_05_25_50_75_95_99"]) / error
        found.append(Deviation(f"{what}: quantiles", z, counted=np.full(z.shape, np.ptp(v) > 0.0)))
    names = [k for k in case["correlation"]["names"] if k not in heavy]
    if len(names) > 1:
        place = [case["correlation"]["names"].index(k) for k in names]
        theirs = np.array(case["correlation"]["matrix"])[np.ix_(place, place)]
        mine = np.corrcoef([ours[k] for k in names])
        error = (1.0 - theirs**2) * np.sqrt(1.0 / len(v) + 1.0 / n) * 1.5 + 1e-4  # 1.5: not all are normal
        found.append(Deviation(f"{name}, correlation, seed {seed}", (mine - theirs) / error))
    return found


def update_of(given):
    """``UpdateParameters`` of a case."""
    changes = dict(given)
    if "pulse_type" in changes:
        changes["pulse_type"] = analog.PulseType[changes["pulse_type"]]
    return analog.UpdateParameters(**changes)


PLAIN = dict.fromkeys(("w_max_dtod", "w_min_dtod", "dw_min_dtod", "up_down_dtod", "dw_min_std"), 0.0) | {
    "dw_min": 0.001, "w_max": 10.0, "w_min": -10.0,
}  # fmt: skip
BLOCKS, UPDATES = 50, 400


def changes_of(case, mode, seed, engine="cpu", updates=UPDATES):
    """ΔW [repetitions, rows, columns] of one vector update: blocks of lines are repetitions with trains of their own."""
    device = analog.ConstantStepDevice(**(PLAIN | mode["device_changes"]))
    x, d = np.float32(case["x"]), np.float32(case["d"])
    rows, columns = len(d), len(x)
    tile = analog.Tile(
        rows * BLOCKS, columns * BLOCKS, analog.RPUConfig(device, update=update_of(mode["update"])), seed=seed, device=engine
    )
    given = fb.asarray(np.tile(x, BLOCKS)[None], device=engine), fb.asarray(np.tile(d, BLOCKS)[None], device=engine)
    found = []
    for _ in range(updates):
        tile.weight = fb.zeros_like(tile.weight)
        tile.update(*given, case["lr"])
        w = tile.weight.numpy().reshape(BLOCKS, rows, BLOCKS, columns)
        found.append(w[np.arange(BLOCKS), :, np.arange(BLOCKS), :])
    return np.concatenate(found).astype(np.float64)


DETERMINISTIC = ("NONE", "NONE_WITH_DEVICE", "MEAN_COUNT", "DETERMINISTIC_IMPLICIT")


def pulse_deviations(name, case, key, seed, engine="cpu"):
    """Deviations of the moments of one vector update."""
    mode, n = case["modes"][key], case["n"]
    what = f"{name}, {key}, seed {seed}"
    given = mode["update"].get("pulse_type", "STOCHASTIC_COMPRESSED")
    if given in DETERMINISTIC and not mode["device_changes"]:
        return exact(what, changes_of(case, mode, seed, engine, 1)[0], mode["mean"])
    w = changes_of(case, mode, seed, engine)
    theirs_mean, theirs_var, theirs_zero = (np.array(mode[k]) for k in ("mean", "var", "p_zero"))
    mean, var, zero = w.mean(0), w.var(0, ddof=1), (w == 0.0).mean(0)
    per, g = 1.0 / len(w) + 1.0 / n, mode["device_changes"].get("dw_min", 0.001)
    fourth = ((w - mean) ** 4).mean(0)
    rare = g * g / min(n, len(w))  # the variance of a mean with one pulse in all repetitions
    error = np.sqrt(np.maximum(var, theirs_var) * per + rare / n) + 1e-6 * np.abs(theirs_mean)
    of_var = np.sqrt(np.maximum(fourth - var**2, 0.0) * per) + 0.03 * theirs_var  # 15 % at 5 standard errors
    of_var += g * np.sqrt(theirs_var / n) + g * g / n  # of rare pulses, which are counted
    share = 0.5 * (zero + theirs_zero)
    of_zero = np.sqrt(share * (1.0 - share) * per + 1.0 / n**2)
    found = [
        Deviation(f"{what}: mean", (mean - theirs_mean) / error), Deviation(f"{what}: variance", (var - theirs_var) / of_var),
        Deviation(f"{what}: zeros", (zero - theirs_zero) / of_zero),
    ]  # fmt: skip
    i, j = mode["cov_largest"]["at"]
    centred = w - mean
    for line, others in (("same_d_line", centred[:, i, :]), ("same_x_line", centred[:, :, j])):
        theirs = np.array(mode["cov_largest"][line])
        products = centred[:, i, j, None] * others
        spread = products.std(0) * np.sqrt(per) + 0.03 * np.sqrt(var[i, j] * others.var(0)) + g * g / n
        found.append(Deviation(f"{what}: covariance, {line}", (products.mean(0) - theirs) / spread))
    return found


def state_deviations(name, case, seed, engine="cpu"):
    """Deviations of the moments of weights after decay, diffusion, resets and drift."""
    device = device_of(case["device"])
    tile = analog.Tile(8 * 128, 64, analog.RPUConfig(device), seed=seed, device=engine)
    start = np.repeat(np.array(case["w0"], np.float32), 128)[:, None] * np.ones((1, 64), np.float32)
    tile.set_weights(start)
    names = {"decay_weights": "decay", "diffuse_weights": "diffuse", "reset_columns": "reset", "drift_weights": "drift"}
    arguments = () if case["operation"] in ("decay_weights", None) else case["arguments"]
    found, done = [], 0
    for k, figure in case["after"].items():
        while done < int(k):
            if case["operation"]:
                getattr(tile, names[case["operation"]])(*arguments)
            done += 1
        w = tile.weight.numpy().reshape(8, -1).T.astype(np.float64)
        what = f"{name}, after {k}, seed {seed}"
        found += mean_and_std(what, w, figure["mean"], figure["std"], case["n_per_value"], 16)
    return found


ENUMS = {
    "mv_type": analog.AnalogMVType, "noise_management": analog.NoiseManagementType,
    "bound_management": analog.BoundManagementType, "w_noise_type": analog.WeightNoiseType,
}  # fmt: skip


def io_of(given):
    """``IOParameters`` of a case."""
    changes = {k: ENUMS[k][v] if k in ENUMS else v for k, v in given.items() if k != "type"}
    for name, exact_value in (("inp_res", 1 / 14), ("out_res", 1 / 62)):  # figures have six digits
        if name in changes and abs(changes[name] - exact_value) < 1e-6:
            changes[name] = exact_value
    if "Preset" in given["type"] or "Standard" in given["type"]:
        return replace(analog.preset(given["type"]), **changes)
    return analog.IOParameters(**changes)


def forward_deviations(name, case, inputs, seed, engine="cpu"):
    """Deviations of products through the periphery."""
    weights = np.array(inputs["w"], np.float32)
    backward, io = name.startswith("backward"), io_of(case["io"])
    config = analog.RPUConfig(analog.FloatingPointDevice(), **({"backward": io} if backward else {"forward": io}))

    def tile_of(seed):
        tile = analog.Tile(*weights.shape, config, seed=seed, device=engine)
        tile.set_weights(weights)
        return tile if "sequence" in case else tile.eval()

    def product(tile, x):
        return (tile.backward if backward else tile)(fb.asarray(np.atleast_2d(np.float32(x)), device=engine)).numpy()

    if "sequence" in case:
        tile = tile_of(seed)
        return exact(f"{name}, seed {seed}", np.concatenate([product(tile, x) for x in case["sequence"]]), case["y"])
    found = []
    for key, figure in case["x"].items():
        x, what = (case["d"] if backward else inputs["x"])[key], f"{name}, {key}, seed {seed}"
        if "y" in figure:
            found += exact(what, product(tile_of(seed), x)[0], figure["y"])
        elif "n_tiles" in case:
            found += _tiles(what, [product(_offset(tile_of(seed * 1000 + k)), [x] * 100) for k in range(400)], figure, case)
        else:
            ours = product(tile_of(seed), np.tile(x, (50000, 1))).astype(np.float64)
            found += mean_and_std(what, ours, figure["mean"], figure["std"], case["n"], 20)
    return found


def _offset(tile):
    """A tile whose offsets are drawn as the reference draws them: 0 for half of the outputs, else of both signs."""
    if "v_offset" in tile.drawn_forward:
        rng = np.random.default_rng(tile.generator.mark()[0] % 2**32)
        drawn = rng.normal(size=tile.rows) * (rng.normal(size=tile.rows) > 0.0) * tile.config.forward.v_offset_std
        tile.drawn_forward["v_offset"] = fb.nn.Buffer(fb.asarray(drawn.astype(np.float32), device=tile.weight.device))
    return tile


def _tiles(what, ours, figure, case):
    """Deviations of the moments over tiles of the mean and the deviation of each."""
    ours = np.stack(ours).astype(np.float64)
    means, stds = ours.mean(1), ours.std(1)
    found = mean_and_std(what, means, figure["mean"], figure["std_of_tile_means"], case["n_tiles"], np.inf, 1e-6)
    within = mean_and_std(
        f"{what}, within", stds, figure["mean_of_tile_stds"], figure["std_of_tile_stds"], case["n_tiles"], np.inf, 1e-6
    )
    # all outputs of a tile of theirs have their noise of one table, so that the deviations within it scatter more
    return found + [Deviation(d.what, d.z / np.sqrt(2.0)) for d in within]


def _shifted(x, d, later):
    """The vectors of a mini-batch but the last of those before, and the last ones."""
    if later is None:
        return x[:0], d[:0], (x, d)
    return fb.concat([later[0], x[:1]]), fb.concat([later[1], d[:1]]), (x[1:], d[1:])


def course_deviations(name, case, task, seed, engine="cpu"):
    """Deviations of a noise-free course of training, met at every update that is listed."""
    update, device = update_of(case["update"]), device_of(case["device"])
    perfect = analog.IOParameters(is_perfect=True)
    tile = analog.Tile(8, 6, analog.RPUConfig(device, perfect, perfect, update), seed=seed, device=engine)
    x, target = np.array(task["x"], np.float32), np.array(task["w_target"], np.float32)
    size, found, later = task["batch"], [], None
    for k in range(max(map(int, case["w_after_update"]))):
        rows = x[[(k * size + i) % len(x) for i in range(size)]]
        given = fb.asarray(rows, device=engine)
        d = (tile(given) - fb.asarray(rows @ target.T, device=engine)) / size
        if case["device"]["type"] == "MixedPrecisionCompound":  # where theirs transfers after the first vector of the next one
            given, d, later = _shifted(given, d, later)
        if given.shape[0]:
            tile.update(given, d, case["lr"])
        tile.end_mini_batch()
        if str(k + 1) in case["w_after_update"]:
            want = np.array(case["w_after_update"][str(k + 1)])
            found.append(Deviation(f"{name}, update {k + 1}", (tile.weight.numpy() - want) / (2e-6 / 5), False))
    return found


PERFECT = analog.IOParameters(is_perfect=True)
CONSTRUCTIONS, EACH = 64, 10
"""Tiles of a course of training, and updates from one figure to the next."""


def training_deviations(name, case, task, seed):
    """Deviations of courses of training: the mean square of the error every 10 updates, over tiles with their own devices."""
    config = analog.RPUConfig(device_of(case["device"]), PERFECT, PERFECT, update_of(case["update"]))
    x, target = np.array(task["x"], np.float32), np.array(task["w_target"], np.float32)
    wanted, size, count = x @ target.T, task["batch"], len(case["mse_mean"])
    late = case["device"]["type"] == "MixedPrecisionCompound"  # where theirs transfers after the first vector of the next one

    @fb.jit
    def step(tile, rows, y, later):
        given, errors = rows, (tile(rows) - y) / size
        if late:
            given, errors, later = _shifted(given, errors, later)
        if given.shape[0]:
            tile.update(given, errors, case["lr"])
        tile.end_mini_batch()
        return later

    batches = []
    for k in range((count - 1) * EACH):
        at = [(k * size + i) % len(x) for i in range(size)]
        batches.append((fb.asarray(x[at]), fb.asarray(wanted[at])))
    found = []
    for construction in range(CONSTRUCTIONS):
        tile = analog.Tile(*target.shape, config, seed=seed * CONSTRUCTIONS + construction)
        tile.place(tile.weight.numpy())  # with write noise
        later, course = None, []
        for k in range(count):
            course.append(((x @ tile.weight.numpy().T - wanted) ** 2).mean())
            for rows, y in batches[k * EACH : (k + 1) * EACH]:
                later = step(tile, rows, y, later)
        found.append(course)
    ours = np.array(found, np.float64)
    return mean_and_std(f"{name}, seed {seed}", ours, case["mse_mean"], case["mse_std"], case["n"], np.inf, 1e-6)
