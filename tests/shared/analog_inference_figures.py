"""Measured figures of inference beside inference tiles: see ``analog_figures`` for the folder and the rule of comparison."""

import re

import numpy as np
from analog_figures import TABLE, Deviation, exact, mean_and_std, settings_of

import firebrick as fb
from firebrick import analog

DIFFERENT = {
    "modifier_rpucuda_mult_normal": "the noise of a weight is in proportion to that weight alone, as in the other simulator",
    "modifier_torch_discretize": "its step is twice that of the formula",
    "modifier_torch_discretize_sto": "its step is twice that of the formula",
}
"""Cases in which the reference differs from the formulas, and from its other simulator."""
PERFECT = analog.IOParameters(is_perfect=True)
N = 20000


def normal_of(shape, seed, engine):
    """Draws normal numbers of a shape."""
    generator = fb.random.Generator(seed)
    return lambda: generator.normal(shape, device=engine)


def noise_model_of(case):
    """The noise model of a case."""
    kind = getattr(analog, case["class"])
    given = dict(case["parameters"])
    low, high = (float(re.search(rf"{n}=([\d.]+)", given["g_converter"])[1]) for n in ("g_min", "g_max"))
    settings = settings_of(kind, {k: v for k, v in given.items() if k != "g_converter"})
    return kind(**settings, g_converter=analog.SinglePairConductanceConverter(high, low))


def noise_deviations(name, case, seed, engine="cpu"):
    """Deviations of conductances after programming, of drift exponents, and of reads at times after programming."""
    model, n, found = noise_model_of(case), case["n"], []
    targets = np.array([g["g_target"] for g in case["g"]], np.float32)
    target = fb.asarray(np.tile(targets, (N, 1)), device=engine)
    normal = normal_of(target.shape, seed, engine)

    def compared(what, ours, theirs):
        mean, std = np.array(theirs).T
        return mean_and_std(f"{name}, {what}, seed {seed}", ours.numpy().astype(np.float64), mean, std, n, np.inf)

    programmed = model.apply_programming_noise_to_conductance(target, normal)
    found += compared("programmed", programmed, [g["prog"] for g in case["g"]])
    coefficients = model.generate_drift_coefficients(target, target, normal)
    if "nu" in case["g"][0]:
        found += compared("nu", coefficients, [g["nu"] for g in case["g"]])
    for key in case["g"][0]["at_t"]:
        for start, g in (("from_programmed", programmed), ("from_exact_target", target)):
            coefficients = model.generate_drift_coefficients(target, target, normal)
            ours = model.apply_drift_noise_to_conductance(g, coefficients, float(key), normal)
            found += compared(f"{start} at {key} s", ours, [c["at_t"][key][start] for c in case["g"]])
    return found


COMPENSATIONS = {
    "global": analog.GlobalDriftCompensation(), "exact_reference": analog.GlobalDriftCompensationWithExactReference(),
    "per_column": analog.PerColumnDriftCompensation(), "none": None,
}  # fmt: skip


def _converted_again(tile):
    """Convert programmed weights to conductances once more, as the reference does before they drift: each weight is one device
    then, and the largest has the largest conductance. Here the conductances that were programmed drift, of both devices of a
    pair, so that factors differ by 0.3 % after an hour."""
    with fb.no_grad():
        g, conversion = tile.config.noise_model.converter.convert_to_conductances(tile.shown.detach())
        tile.conductances._rebind(g)
        tile.conversion._rebind(conversion)


def compensation_deviations(name, case, inputs, seed, engine="cpu", n=60):
    """Deviations of the factors of drift compensation and of the errors of compensated products."""
    config = analog.InferenceRPUConfig(
        forward=PERFECT, drift_compensation=COMPENSATIONS[name.removeprefix("drift_compensation_")]
    )
    w, x = np.array(inputs["w"], np.float32), np.array(inputs["x"], np.float32)
    wanted = x @ w.T
    tile = analog.InferenceTile(*w.shape, config, seed=seed, device=engine).eval()
    tile.set_weights(w)
    factors = {t: [] for t in case["alpha_mean"]}
    errors = {t: [] for t in case["alpha_mean"]}
    for _ in range(n):
        tile.program_weights(again=True)
        _converted_again(tile)
        for t in factors:
            tile.drift_weights(float(t))
            y = tile(fb.asarray(x, device=engine)).numpy()
            alpha = tile.compensation.numpy().astype(np.float64)
            factors[t].append(alpha if len(case["alpha_mean"][t]) > 1 else alpha[:1])
            errors[t].append(np.sqrt(((y - wanted) ** 2).mean() / (wanted**2).mean()))
    found = []
    for t, figure in case["alpha_mean"].items():
        what = f"{name} at {t} s, seed {seed}"
        found += mean_and_std(f"{what}, factor", np.stack(factors[t]), figure, case["alpha_std"][t], case["n"], np.inf)
        mean, std = case["relative_rms_error_mean"][t], case["relative_rms_error_std"][t]
        ours = np.array(errors[t])[:, None].astype(np.float64)
        found += mean_and_std(f"{what}, error", ours, [mean], [std], case["n"], np.inf)
    return found


def _typed(kind, enum, given):
    known = set(kind.__dataclass_fields__)
    changes = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items() if k in known}
    return kind(**changes | {"type": enum[given["type"]]})


def _trained(config, w, engine):
    """A tile after the end of an update."""
    tile = analog.InferenceTile(*w.shape, config, seed=0, device=engine)
    tile.set_weights(w)
    tile.end_mini_batch()
    return tile


CONVERTERS = ("single_pair", "dual_pair", "n_pair", "single_device", "custom_pair")


def map_deviations(maps, key, engine="cpu"):
    """Deviations of a deterministic map of weights."""
    case, w = maps[key], np.array(maps["w"], np.float32)
    if key.startswith("converter"):
        kind = getattr(analog, case["class"])
        given = {k: tuple(map(tuple, v)) if k == "g_lst" else v for k, v in case["parameters"].items()}
        model = kind(**settings_of(kind, given))
        g, conversion = model.convert_to_conductances(fb.asarray(w, device=engine))
        theirs = np.array(case["g"])
        back = model.convert_back_to_weights(g, conversion).numpy()
        return exact(key, g.numpy().reshape(theirs.shape), theirs) + exact(f"{key}, back", back, case["back"])
    if key.startswith("clip"):
        clip = _typed(analog.WeightClipParameter, analog.WeightClipType, case["parameters"] | (
            {"fixed_value": 1.0} if case["parameters"]["fixed_value"] < 0 else {}
        ))  # fmt: skip
        tile = _trained(analog.InferenceRPUConfig(clip=clip), w, engine)
        return exact(key, tile.weight.numpy(), case["w"])
    if key.startswith("remap"):
        remap = _typed(analog.WeightRemapParameter, analog.WeightRemapType, case["parameters"])
        tile = _trained(analog.InferenceRPUConfig(remap=remap), w, engine)
        return exact(key, tile.weight.numpy(), case["w"]) + exact(f"{key}, scales", tile.scale.numpy(), case["scales"])
    mapping = analog.MappingParameter(**settings_of(analog.MappingParameter, case["parameters"]))
    array = analog.TileArray(*w.shape, analog.InferenceRPUConfig(mapping=mapping), fb.random.Generator(0), engine)
    array.set_weights(w)
    tile = array.tiles[0][0]
    scales = np.broadcast_to(np.array(case["scales"]), (len(w),))
    found = exact(key, tile.weight.numpy(), case["tile_w"]) + exact(f"{key}, scales", tile.scale.numpy(), scales)
    return found + exact(f"{key}, back", array.get_weights().numpy(), case["read_back"])


def modifier_deviations(name, case, maps, seed, engine="cpu"):
    """Deviations of the weights that a training pass has."""
    modifier = _typed(analog.WeightModifierParameter, analog.WeightModifierType, case["parameters"])
    w, draws = np.array(maps["w"], np.float32), 5000
    tile = analog.InferenceTile(
        *w.shape, analog.InferenceRPUConfig(forward=PERFECT, modifier=modifier), seed=seed, device=engine
    )
    tile.set_weights(w)
    identity = fb.asarray(np.eye(w.shape[1], dtype=np.float32), device=engine)
    seen = fb.jit(lambda: fb.stack([tile(identity).mT for _ in range(50)]))
    ours = np.concatenate([seen().numpy() for _ in range(draws // 50)]).astype(np.float64)
    assert np.array_equal(tile.weight.numpy(), w)
    what = f"{name}, seed {seed}"
    if np.all(np.array(case["std"]) == 0.0):
        return exact(what, ours[0], case["mean"]) + exact(what, ours[-1], case["mean"])
    zero, theirs = (ours == 0.0).mean(0), np.array(case["p_zero"])
    share = 0.5 * (zero + theirs)
    of_zero = np.sqrt(share * (1.0 - share) * (1.0 / draws + 1.0 / case["n"]) + 1.0 / draws**2)
    if case["parameters"].get("sto_round"):
        return [*_two_levels(what, ours, case, draws), Deviation(f"{what}, zeros", (zero - theirs) / of_zero)]
    moments = mean_and_std(what, ours, case["mean"], case["std"], case["n"], 10)
    return [*moments, Deviation(f"{what}, zeros", (zero - theirs) / of_zero)]


def _two_levels(what, ours, case, draws):
    """Means and deviations of stochastic rounding, whose rare level is counted: its deviation is no normal number."""
    mean, std = np.array(case["mean"]), np.array(case["std"])
    step = float(np.ptp(ours, axis=0).max())
    p = np.clip(0.5 * (std**2 + ours.var(0)) / step**2, 1.0 / draws, 0.25)  # p (1 - p) of the rarer level
    per = 1.0 / draws + 1.0 / case["n"] + 1.0 / (TABLE * 10)
    error = step * np.sqrt(p * per)
    of_variance = step**2 * np.sqrt(p * per)
    return [
        Deviation(f"{what}: mean", (ours.mean(0) - mean) / error),
        Deviation(f"{what}: variance", (ours.var(0) - std**2) / of_variance),
    ]


def input_range_deviations(case, maps, engine="cpu"):
    """Deviations of the course of an input range and of its gradients."""
    w, rate = np.array(maps["w"], np.float32), case["sgd_lr"]
    ranges = analog.InputRangeParameter(
        enable=True, init_from_data=case["init_from_data"], init_std_alpha=case["init_std_alpha"]
    )
    config = analog.InferenceRPUConfig(forward=PERFECT, input_range=ranges)
    tile = analog.InferenceTile(*w.shape, config, seed=0, device=engine)
    tile.set_weights(w)
    bounds, slopes = [], []
    for batch in case["batches"]:
        x = fb.asarray(np.array(batch, np.float32), device=engine)
        _, gradients = fb.value_and_grad(lambda t, x=x: fb.sum(t(x) ** 2))(tile)
        slope = gradients[tile.input_range]
        slopes.append(slope.item())
        tile.input_range = tile.input_range.detach() - slope * rate
        bounds.append(tile.input_range.item() + tile.range_of_data.item())
    found = exact("input range", np.array(bounds), case["range_after_step"])
    return found + exact("gradient of the input range", np.array(slopes), case["gradient"])
