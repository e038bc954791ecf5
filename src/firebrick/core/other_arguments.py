"""Keyword arguments of PyTorch, NumPy, JAX and Keras that have another name here, and the error that answers their use.

Python raises its own ``TypeError`` for an unknown keyword before a function begins. So that Firebrick can answer, functions
that are called often take ``**_other`` and refuse it if it is not empty; where a function has a wrapper anyway, the wrapper
looks at the keywords once the call has failed. A right call does not pay for either.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from firebrick.core.errors import ArgumentError

P = ParamSpec("P")
T = TypeVar("T")

_ELSEWHERE: Mapping[str, str] = {
    # axes and shapes
    "axis": "dim dims axes dimension",
    "axes": "dim dims axis dimensions",
    "keepdims": "keepdim keep_dims",
    "start_axis": "start_dim",
    "end_axis": "end_dim",
    "axis1": "dim1 dim0",
    "axis2": "dim2",
    "shape": "size dims newshape target_shape normalized_shape",
    "sizes": "size split_size split_size_or_sections indices_or_sections num_or_size_splits unflattened_size shape sections",
    "size": "output_size shape",
    "sections": "indices_or_sections chunks",
    "chunks": "sections",
    # operands
    "x": "input inputs a self tensor array arrays tensors X",
    "x1": "input input1 a x tensor",
    "x2": "other b y input2 mat2 vec2",
    "arrays": "tensors inputs input seq xs",
    "obj": "data object values x a",
    "logits": "input inputs y_pred preds predictions output x",
    "prediction": "input inputs y_pred preds predictions output logits x",
    "probability": "input y_pred probs output",
    "log_probabilities": "input log_probs output",
    "log_prediction": "input",
    "labels": "target targets y_true y",
    "target": "targets labels y_true y",
    "targets": "target labels y_true",
    "sign": "target y",
    "weight": "weights class_weight w scale gamma",
    "weights": "weight sample_weight",
    "bias": "b beta use_bias with_bias",
    "mean": "running_mean loc",
    "variance": "var running_var",
    "indices": "index idx input ids",
    "updates": "src source values",
    "query": "q",
    "key": "k",
    "value": "v values constant_values fill data",
    "fill_value": "value",
    "mask": "attn_mask attention_mask",
    # settings of functions
    "n_rows": "n N rows",
    "n_cols": "m M cols",
    "k": "diagonal offset n",
    "offset": "diagonal k",
    "stop": "end limit",
    "num": "steps n",
    "correction": "ddof",
    "method": "interpolation",
    "shift": "shifts",
    "repetitions": "reps repeats",
    "min": "a_min minimum min_value low",
    "max": "a_max maximum max_value high",
    "min_val": "min_value min",
    "max_val": "max_value max",
    "num_classes": "depth classes n_classes",
    "classes": "num_classes n_classes num_labels",
    "image": "image_size",
    "columns": "nrow ncols",
    "widths": "pad pad_width paddings",
    "causal": "is_causal",
    "dropout": "dropout_p dropout_rate",
    "reduction": "reduce",
    "lambd": "lambda_",
    "negative_slope": "alpha slope",
    "approximate": "approx",
    "subscripts": "equation",
    "atol": "abs_tol",
    "rtol": "rel_tol rcond tol",
    "ord": "p",
    "groups": "num_groups",
    # functions of functions
    "fn": "f fun func function",
    "static_argnames": "static_argnums",
    "init": "carry init_val",
    "body_fn": "body_fun",
    "cond_fn": "cond_fun",
    "true_fn": "true_fun",
    "false_fn": "false_fun",
    "cotangent": "grad_tensors gradient grad_outputs",
    # layers
    "in_features": "input_dim in_dim inputs input_features in_channels",
    "out_features": "output_dim out_dim units outputs output_features out_channels",
    "in_channels": "input_channels in_dim in_features",
    "out_channels": "output_channels filters out_dim out_features",
    "kernel": "kernel_size pool_size window_shape",
    "stride": "strides",
    "dilation": "dilation_rate",
    "count": "num_embeddings input_dim vocab_size",
    "features": "embedding_dim output_dim num_features num_channels normalized_shape dim embed_dim dims",
    "padding_index": "padding_idx",
    "affine": "elementwise_affine",
    "eps": "epsilon variance_epsilon",
    "p": "rate prob drop_prob dropout dropout_rate norm_type",
    "embed": "embed_dim d_model dim dims",
    "heads": "num_heads nhead n_heads",
    "layers": "num_layers n_layers",
    "num_layers": "n_layers layers",
    "hidden": "dim_feedforward hidden_dim hidden_features hidden_size",
    "hidden_size": "units hidden hidden_dim",
    "input_size": "input_dim in_features",
    "key_features": "kdim",
    "value_features": "vdim",
    "channels": "num_parameters in_channels num_channels",
    "factor": "upscale_factor downscale_factor T_mult",
    "length": "max_len",
    # optimizers and schedules
    "every": "step_size",
    "lr": "learning_rate step_size init_value initial_learning_rate max_lr base_lr",
    "model": "params parameters",
    "betas": "beta_1 beta_2 beta1 beta2 b1 b2",
    "weight_decay": "wd l2 weight_decay_rate",
    "steps": "T_max decay_steps total_steps transition_steps num_steps epochs",
    "period": "T_0",
    "final": "eta_min end_value min_lr",
    "least": "min_lr",
    "gamma": "decay_rate",
    "warmup": "warmup_steps",
    "iterations": "max_iter",
    "history": "history_size",
    "line_search": "line_search_fn",
    "max_norm": "clip_norm",
    "limit": "clip_value max_value",
    # data and training
    "num_workers": "workers num_worker",
    "collate": "collate_fn",
    "keep_workers": "persistent_workers",
    "prefetch": "prefetch_factor",
    "seed": "random_state manual_seed",
    "generator": "rng key",
    "std": "scale stddev",
    "low": "minval",
    "high": "maxval",
    "samples": "num_samples",
    "loss": "criterion loss_fn loss_function",
    "epochs": "n_epochs num_epochs max_epochs",
    "train_loader": "train_dataloaders train_data dataloader loader",
    "valid_loader": "validation_data val_loader val_dataloaders test_loader",
    "clip_norm": "grad_clip clip_grad clip_grad_norm gradient_clip_val max_grad_norm clipnorm",
    "accumulate": "accumulate_grad_batches gradient_accumulation_steps accumulation_steps",
    "precision": "mixed_precision amp",
    "out": "save_dir output_dir",
}

_OF_ANOTHER_FORM = ("betas", "static_argnames", "groups", "lengths", "precision", "widths")
"""Arguments whose values are written in another form than elsewhere."""

ARGUMENTS: dict[str, tuple[str, ...]] = {}
"""Names of the arguments here, the likeliest first, by the name elsewhere."""

for _here, _names in _ELSEWHERE.items():
    for _name in _names.split():
        ARGUMENTS[_name] = (*ARGUMENTS.get(_name, ()), _here)

NOTES: Mapping[str, str] = {
    "inplace": "leave it out: no operation changes its operands, and a compiled one reuses their memory",
    "requires_grad": "call require_grad() of the result, or differentiate a function with fb.value_and_grad",
    "out": "assign the result instead",
    "initial": "combine the result with it: x + initial, fb.maximum(x, initial)",
    "where": "select the elements first: fb.where(condition, x, 0)",
    "unbiased": "write correction=1 for the unbiased estimate, correction=0 for the biased one",
    "size_average": 'write reduction="mean" or reduction="sum"',
    "from_logits": "fb.cross_entropy and fb.binary_cross_entropy_with_logits take logits, fb.nll_loss log-probabilities",
    "argnums": "the gradient is by the first argument: make that a tuple of tensors, or reorder by a lambda",
    "scheduler": "pass a schedule as lr of the optimizer: optim.cosine(1e-3, steps=1000)",
    "lr_scheduler": "pass a schedule as lr of the optimizer: optim.cosine(1e-3, steps=1000)",
    "padding_mode": 'pad x before it: fb.pad(x, widths, mode="reflect"), with padding=0',
    "lr": "the optimizer has the learning rate: optim.Adam(model, lr=1e-3)",
    "decimals": "scale before and after: fb.round(x * 100) / 100",
    "epochs": "pass it to fit: learner.fit(loader, epochs=10)",
    "batch_size": "pass it to the loader: fb.data.DataLoader(dataset, batch_size)",
    "activation": "apply a layer or function of its own after it: fb.nn.ReLU(), fb.relu(x)",
    "input_shape": "leave it out, and pass the number of input features",
    "training": "call model.train() or model.eval()",
    "device_ids": "use train.DataParallel(devices)",
    "dtype": "cast the result: fb.astype(result, fb.float32)",
    "replacement": "a WeightedSampler draws with replacement, a RandomSampler without",
    **dict.fromkeys(
        (
            "memory_format", "layout", "order", "subok", "like", "casting", "pin_memory", "non_blocking", "stable", "sorted",
            "foreach", "fused", "capturable", "differentiable", "maximize", "donate_argnums", "fullgraph", "dynamic", "backend",
            "enable_gqa", "antialias", "sparse", "max_norm", "scale_grad_by_freq", "worker_init_fn", "set_to_none",
            "multiprocessing_context", "timeout", "align_corners", "average_attn_weights", "need_weights", "name",
        ),
        "leave it out: there is no such choice here",
    ),
}  # fmt: skip
"""What to do about arguments that have no counterpart here."""


def unknown_argument(fn: Callable[..., Any], given: Mapping[str, Any], name: str = "") -> ArgumentError:
    """The error for keyword arguments that a function has not, with the name that each has here.

    Args:
        fn: The function, for its parameters.
        given: The unknown arguments.
        name: The user's name of the function, where it is not the function's own.
    """
    known = [p for p in inspect.signature(fn).parameters.values() if not p.name.startswith("_") and p.name != "self"]
    known = [p for p in known if p.kind is not p.VAR_KEYWORD]
    name = name or fn.__qualname__.rpartition("<locals>.")[2].removesuffix(".__init__")
    remedies = dict.fromkeys(_remedy(name, key, value, known) for key, value in given.items())
    keys = " or ".join(given)
    return ArgumentError(
        f"{name} takes no argument {keys}",
        ", ".join(f"{k}={_shown(v)}" for k, v in given.items()),
        "; ".join(remedies),
        op=name,
    )


def several_sizes(where: str, shape: Any, more: tuple[Any, ...], first: str = "") -> ArgumentError:
    """The error for sizes (or axes) that were passed one by one, or for a dtype after the shape.

    Args:
        where: The function.
        shape: What was passed as the shape.
        more: What was passed after it.
        first: The argument before the shape, with a comma.
    """
    remedy = "name what comes after the shape: dtype=, device="
    if all(type(n) is int for n in (shape, *more)):
        remedy = f"write them as one tuple: {where}({first}{(shape, *more)!r:.40})"
    values = ", ".join(map(_shown, (shape, *more)))
    return ArgumentError(f"{where} takes the shape or axes as one argument", f"{where}({first}{values:.80})", remedy, op=where)


def answers_arguments(fn: Callable[P, T]) -> Callable[P, T]:
    """A function whose unknown keyword arguments are answered by ``unknown_argument``."""

    @wraps(fn)
    def called(*args: P.args, **named: P.kwargs) -> T:
        try:
            return fn(*args, **named)
        except TypeError:
            refuse_unknown(fn, args, named)
            raise

    return called


def _too_many(fn: Callable[..., Any], args: tuple[Any, ...], places: Sequence[str], by_name: Sequence[str]) -> ArgumentError:
    """The error for more arguments by position than a function takes.

    Args:
        fn: The function.
        args: What was passed by position.
        places: Names of the arguments that it takes by position.
        by_name: Names of those that it takes by name only and that were not given.
    """
    method = next(iter(inspect.signature(fn).parameters)) == "self"
    name = type(args[0]).__name__ if fn.__name__ == "__init__" else fn.__qualname__.rpartition("<locals>.")[2]
    given = args[method:]
    more = given[len(places) :]
    names = f"{by_name[0]}={_shown(more[0])}" if len(by_name) == len(more) == 1 else ", ".join(f"{n}=…" for n in by_name[:6])
    listed = f" ({', '.join(places)})" if places else ""
    return ArgumentError(
        f"{name} takes {len(places) or 'no'} {'argument' if len(places) == 1 else 'arguments'} by position{listed}",
        f"{len(given)}, the last ones {', '.join(map(_shown, more))}" if places else ", ".join(map(_shown, more)),
        f"pass the others by name: {names}" if by_name else "leave them out: there are no other arguments",
        op=name,
    )


def refuse_unknown(fn: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Raise ``unknown_argument`` if a call that has failed had a keyword argument which the function has not, and
    ``_too_many`` if it had more arguments by position than the function takes."""
    parameters = inspect.signature(fn).parameters
    places = [n for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = [n for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY and n not in named]
    if len(args) > len(places) and not any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        raise _too_many(fn, args, [n for n in places if n != "self"], by_name) from None
    if not named:
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    accepted = {n for n, p in parameters.items() if p.kind is not p.POSITIONAL_ONLY}
    unknown = {k: v for k, v in named.items() if k not in accepted}
    if unknown:
        raise unknown_argument(fn, unknown, type(args[0]).__name__ if fn.__name__ == "__init__" else "") from None


def _remedy(name: str, key: str, value: Any, known: list[inspect.Parameter]) -> str:
    """What to write for one unknown argument."""
    here = {p.name: p for p in known}
    for candidate in (key, *ARGUMENTS.get(key, ())):
        if candidate in here:
            return _written(name, here[candidate], value, known, exact=candidate not in _OF_ANOTHER_FORM)
    if name.startswith("x.") and key in ("out", "dtype"):  # np.sum(x) calls x.sum(axis=None, dtype=None, out=None)
        return f"write fb.{name[2:]}(x), also for np.{name[2:]}(x)"
    if key in NOTES:
        return NOTES[key]
    if near := get_close_matches(key, here, 1, 0.7):
        return f"write {near[0]}=, if that is meant"
    keywords = [p.name for p in known if p.kind not in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)]
    if len(keywords) == 1:
        return f"its only keyword argument is {keywords[0]}"
    return f"its keyword arguments are {', '.join(keywords)}" if keywords else "it takes no keyword arguments"


def _written(name: str, parameter: inspect.Parameter, value: Any, known: list[inspect.Parameter], exact: bool = True) -> str:
    if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
        places = [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)]
        rest = ", …" if len(known) > len(places) else ""
        return f"pass {parameter.name} by position: {name}({', '.join(places)}{rest})"
    shown = _shown(value)
    return f"write {parameter.name}={'…' if '…' in shown or not exact or len(shown) > 30 else shown}"


def _shown(value: Any) -> str:
    """A plain value as it is written, another one by its type."""
    if isinstance(value, tuple) and all(type(v) in (int, float, str) for v in value):
        return f"{value!r:.80}"
    return f"{value!r:.80}" if type(value) in (int, float, str, bool, type(None)) else f"… ({value.__class__.__name__})"
