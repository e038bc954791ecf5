"""The pages of the reference: which names stand on which.

A name is placed by the module that defines it, so that new functions of a module come onto its page; a name or a namespace in
the table counts before the module. A name for which the table has no entry is an error of the build.
"""

from __future__ import annotations

from dataclasses import dataclass

from api_reference.names import Name

F = "firebrick.functions."


class UnplacedNameError(LookupError):
    """A public name stands on no page."""


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes:
        file: Name of the file, without its ending.
        title: Heading.
        intro: First sentences.
        members: Modules whose names it has, public names and public namespaces ("fb.linalg.*"), in the order of the page.
    """

    file: str
    title: str
    intro: str
    members: tuple[str, ...]


ERRORS = "errors"
"""The page of all errors and warnings."""

_DTYPES = (
    "fb.bool", "fb.int8", "fb.int16", "fb.int32", "fb.int64", "fb.uint8", "fb.uint16", "fb.uint32", "fb.uint64", "fb.bfloat16",
    "fb.float16", "fb.float32", "fb.float64", "fb.complex64", "fb.complex128", "fb.float8_e4m3fn", "fb.float8_e5m2",
)  # fmt: skip

PAGES: dict[str, tuple[Page, ...]] = {
    "Tensors": (
        Page("tensor", "Tensor", (
            "The class of all tensors: its properties and methods. Its operators are functions: ``x + y`` is ``fb.add``, "
            "``x * y`` ``fb.multiply``, ``x @ y`` ``fb.matmul``, ``x == y`` ``fb.equal``, and so on. "
            "All other functions are those of ``fb``."
        ), (
            "firebrick.core.tensor",
        )),
        Page("dtypes", "Dtypes and constants", "Data types, their limits and their promotion; mathematical constants.", (
            *_DTYPES, "firebrick.core.dtypes", "fb.e", "fb.inf", "fb.nan", "fb.newaxis", "fb.pi", "fb.__array_api_version__",
            f"{F}inspection", "fb.explain_tuning", "fb.force_variant", "fb.__version__",
        )),
        Page("creation", "Creation and conversion", "Tensors from values, shapes and other arrays.", (
            f"{F}creation", f"{F}ranges", f"{F}triangles", f"{F}conversion", "fb.read",
        )),
        Page("elementwise", "Elementwise functions", "Functions of each element: arithmetic, comparison, rounding, logic.", (
            f"{F}elementwise", f"{F}special", f"{F}complex",
        )),
        Page("activation", "Activations", "Nonlinear functions of neural networks.", (
            "fb.relu", "fb.sigmoid", "fb.tanh", "fb.softmax", "fb.log_softmax", f"{F}activation",
        )),
        Page("reductions", "Reductions and statistics", "Sums, means, extremes, quantiles and counts over axes.", (
            f"{F}statistical", f"{F}descriptive", f"{F}nan_reductions", f"{F}quantiles", f"{F}histograms", f"{F}utility",
        )),
        Page("shapes", "Shapes and arrangement", "Reshape, join, split, repeat and reorder tensors; windows and padding.", (
            f"{F}movement", f"{F}arrangement", f"{F}diagonals", f"{F}windows", "firebrick.core.shapes",
        )),
        Page("indexing", "Indexing, sorting and searching", "Take, scatter, sort, search, and sets of values.", (
            f"{F}indexing", f"{F}sorting", f"{F}searching", f"{F}sets",
        )),
        Page("linalg", "Linear algebra", "Products of tensors, and ``fb.linalg``: decompositions, solvers and norms.", (
            f"{F}linear", f"{F}contraction", f"{F}distances", "fb.linalg.*",
        )),
        Page("fft", "Fourier transforms", "``fb.fft``: discrete Fourier transforms.", ("fb.fft.*",)),
        Page("random", "Random numbers", "``fb.random``: generators and distributions.", ("fb.random.*",)),
        Page("distributions", "Distributions", (
            "``fb.distributions``: samples, logarithms of probabilities, moments, entropies and divergences."
        ), (
            "fb.distributions.*",
        )),
        Page("networks", "Functions of neural networks", (
            "Convolution, pooling, normalisation, attention and interpolation as functions."
        ), (
            f"{F}convolution", f"{F}pooling", f"{F}normalisation", f"{F}attention", f"{F}interpolation",
            f"{F}grids", "fb.dropout",
        )),
        Page("losses", "Losses", "Loss functions and similarities.", (f"{F}losses", f"{F}similarity", f"{F}ctc")),
    ),
    "Gradients and compilation": (
        Page("autodiff", "Autodiff", "Gradients of functions and of modules, checkpointing, and checks of gradients.", (
            "firebrick.autodiff", "firebrick.core.trees",
        )),
        Page("jit", "Compiled functions and control flow", (
            "``fb.jit`` compiles functions; ``fb.scan``, ``fb.cond`` and ``fb.while_loop`` are loops and branches in them."
        ), (
            "firebrick.graph", f"{F}lengths",
        )),
        Page("kernels", "Kernels and custom ops", (
            "Custom operations: ``fb.kernel`` writes one as a loop, in the kernel language; ``fb.op`` declares one, a custom "
            "op with its own gradient."
        ), (
            "fb.kernel", "fb.op", "fb.kernel.*",
        )),
    ),
    "Layers (fb.nn)": (
        Page("nn-module", "Modules and parameters", (
            "The base class of layers and models, parameters, containers, initial values and state dicts."
        ), (
            "firebrick.nn.module", "firebrick.nn.forward_hooks", "firebrick.nn.parameter", "firebrick.nn.structure",
            "firebrick.nn.saved",
            "firebrick.nn.weight_norm", "firebrick.nn.spectral_norm", "fb.nn.initial", "fb.nn.initial.*",
        )),
        Page("nn-linear", "Linear layers and embeddings", "Layers that multiply by a weight or look rows up in it.", (
            "firebrick.nn.linear", "firebrick.nn.positions",
        )),
        Page("nn-convolution", "Convolution and pooling layers", "Layers for signals, images and volumes.", (
            "firebrick.nn.convolution", "firebrick.nn.pooling", "firebrick.nn.images", "firebrick.nn.padding",
        )),
        Page("nn-normalisation", "Normalisation and dropout layers", "Batch, layer, group and RMS norm; dropout.", (
            "firebrick.nn.normalisation", "firebrick.nn.dropout",
        )),
        Page("nn-activation", "Activation layers", "Activations as layers.", ("firebrick.nn.activation",)),
        Page("nn-sequences", "Recurrent layers, attention and transformers", "Layers for sequences.", (
            "firebrick.nn.recurrent", "firebrick.nn.attention", "firebrick.nn.key_value_cache", "firebrick.nn.transformer",
        )),
        Page("nn-losses", "Loss layers", "Losses as layers.", ("firebrick.nn.losses",)),
        Page("models", "Models", "``fb.models``: complete small models, and their registry.", ("fb.models.*",)),
        Page("nn-einops", "Layers of einops", (
            "``fb.interop.einops``: functions of einops as layers. They need einops; its functions take tensors as they are."
        ), ("fb.interop.einops.*",)),
        Page("web", "Web pages", (
            "``fb.interop.web``: programs that browsers run on WebGPU; see [GPUs through WebGPU](../webgpu.md#web-pages)."
        ), ("fb.interop.web.*",)),
    ),
    "Training": (
        Page("optimizers", "Optimizers", "``fb.optim``: optimizers, with weight decay.", (
            "firebrick.optim.optimizer", "fb.optim.SGD", "fb.optim.Adam", "fb.optim.AdamW", "fb.optim.*",
        )),
        Page("clipping", "Gradient clipping and averages", "Gradient clipping by norm and by value; averages of parameters.", (
            "firebrick.optim.clipping", "firebrick.optim.ema",
        )),
        Page("schedules", "Learning-rate schedules", "The learning rate as a function of the step.", (
            "fb.optim.Schedule", "firebrick.optim.rates", "firebrick.optim.schedule",
        )),
        Page("data", "Data", "``fb.data``: datasets, loaders, samplers and augmentation.", (
            "firebrick.data.dataset", "firebrick.data.loader", "fb.data.*",
        )),
        Page("learner", "Learner and callbacks", (
            "``fb.train.Learner`` trains a model; callbacks, such as early stopping, act during training."
        ), (
            "firebrick.train.learner", "firebrick.train.callbacks", "fb.train.*",
        )),
        Page("metrics", "Metrics", "Measures of a model on data.", ("firebrick.train.metrics",)),
        Page("strategies", "Strategies and clusters", "How a step runs on one device, on several, and on clusters.", (
            "firebrick.train.parallel", "firebrick.train.strategy", "firebrick.train.cluster",
        )),
        Page("distributed", "Distributed", "``fb.distributed``: ranks, groups and collective operations.", (
            "fb.distributed.*",
        )),
    ),
    "Analog hardware": (
        Page("analog", "Tiles and devices", (
            "``fb.analog``: tiles of resistive cross-points, their devices, cells and periphery, and layers."
        ), (
            "fb.analog.*",
        )),
    ),
    "Devices and diagnosis": (
        Page("devices", "Devices, configuration and memory", (
            "Devices and engines, settings of the process, mixed precision, memory and profiles."
        ), (
            "firebrick.core.device", "firebrick.backends.registry", "fb.config", "firebrick.core.autocast",
            "firebrick.backends",
        )),
        Page(ERRORS, "Errors and warnings", (
            "All classes of errors and warnings. Each error says what was expected, what was received, and a remedy."
        ), ()),
        Page("testing", "Testing", "``fb.testing``: conformance of engines, gradient checks, checks of layers.", (
            "fb.testing.*",
        )),
    ),
}  # fmt: skip
"""The pages by their group."""


def place(name: Name) -> tuple[str, int]:
    """The page of a name, and the position of the table's entry on it.

    Args:
        name: Public name.

    Raises:
        UnplacedNameError: No page has an entry for it.
    """
    if isinstance(name.value, type) and issubclass(name.value, BaseException):
        return ERRORS, 0
    namespace, _, _ = name.path.rpartition(".")
    own = name.same_as is None
    keys = [name.path]
    # a module below a namespace of several pages counts before the rest of the namespace
    modules = [name.module.rsplit(".", k)[0] for k in range(name.module.count("."))] if own else []
    spread = namespace in ("fb", "fb.nn", "fb.optim", "fb.data", "fb.train")
    keys += [*modules, f"{namespace}.*"] if spread else [f"{namespace}.*"]
    for key in keys:
        if key in _PLACES:
            return _PLACES[key]
    raise UnplacedNameError(f"{name.path}, of {name.module or 'no module'}, has no page: add an entry to PAGES")


_PLACES = {m: (p.file, k) for pages in PAGES.values() for p in pages for k, m in enumerate(p.members)}
