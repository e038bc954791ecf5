"""Names that PyTorch, NumPy, JAX and Keras give to what has another name here, and the errors that answer their use.

A name that Firebrick has not is an ``AttributeError`` of Python. Where it is one of another library, or nearly one of
Firebrick, the error says what to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches

Names = Mapping[str, str]
"""What to write here, by the name elsewhere."""

FUNCTIONS: Names = {
    # PyTorch
    "tensor": "fb.asarray(values)",
    "as_tensor": "fb.asarray(values)",
    "from_numpy": "fb.asarray(array)",
    "FloatTensor": "fb.asarray(values, dtype=fb.float32)",
    "LongTensor": "fb.asarray(values, dtype=fb.int64)",
    "cat": "fb.concat(tensors, axis=0)",
    "bmm": "fb.matmul(x, y)",
    "mm": "fb.matmul(x, y)",
    "mv": "fb.matmul(x, v)",
    "addmm": "fb.matmul(x, y) + z",
    "baddbmm": "fb.matmul(x, y) + z",
    "clamp": "fb.clip(x, low, high)",
    "permute": "fb.permute_dims(x, axes)",
    "transpose": "fb.permute_dims(x, axes), fb.swapaxes(x, 0, 1) or x.T",
    "unsqueeze": "fb.expand_dims(x, axis=0)",
    "view": "fb.reshape(x, shape)",
    "cumsum": "fb.cumulative_sum(x, axis=0)",
    "cumprod": "fb.cumulative_prod(x, axis=0)",
    "logcumsumexp": "fb.cumulative_logsumexp(x, axis=0)",
    "topk": "fb.top_k(x, k)",
    "gather": "fb.take_along_axis(x, indices, axis=1)",
    "index_select": "fb.take(x, indices, axis=0)",
    "index_fill": "fb.where(condition, value, x)",
    "unbind": "fb.unstack(x, axis=0)",
    "repeat_interleave": "fb.repeat(x, n, axis=0)",
    "expand": "fb.broadcast_to(x, shape)",
    "dot": "fb.vecdot(x, y), or fb.matmul(x, y)",
    "ger": "fb.outer(x, y)",
    "neg": "fb.negative(x)",
    "mul": "fb.multiply(x, y)",
    "sub": "fb.subtract(x, y)",
    "div": "fb.divide(x, y)",
    "true_divide": "fb.divide(x, y)",
    "eq": "fb.equal(x, y)",
    "ne": "fb.not_equal(x, y)",
    "gt": "fb.greater(x, y)",
    "ge": "fb.greater_equal(x, y)",
    "lt": "fb.less(x, y)",
    "le": "fb.less_equal(x, y)",
    "rand": "fb.random.uniform(shape)",
    "randn": "fb.random.normal(shape)",
    "randint": "fb.random.integers(shape, low=0, high=10)",
    "randperm": "fb.random.permutation(n)",
    "bernoulli": "fb.random.bernoulli(shape, p=0.5)",
    "manual_seed": "fb.random.seed(seed)",
    "save": "fb.train.save_checkpoint(path, model=model.state_dict()), or safetensors.numpy.save_file of NumPy arrays",
    "load": "fb.train.load_checkpoint(path)",
    "compile": "fb.jit(function)",
    "func": "fb.grad, fb.vjp, fb.jvp",
    "autograd": "fb.value_and_grad(function), fb.backward(loss)",
    "inference_mode": "fb.no_grad()",
    "enable_grad": "a tensor with require_grad(), or fb.value_and_grad",
    "set_grad_enabled": "fb.no_grad()",
    "is_tensor": "isinstance(x, fb.Tensor)",
    "numel": "x.size",
    "relu_": "fb.relu(x)",
    "cuda": 'fb.devices(), and x.to("torch:cuda")',
    "utils": "fb.data.DataLoader, fb.train",
    "norm": "fb.linalg.norm(x)",
    "inverse": "fb.linalg.inv(x)",
    "det": "fb.linalg.det(x)",
    "svd": "fb.linalg.svd(x)",
    "cholesky": "fb.linalg.cholesky(x)",
    "trace": "fb.linalg.trace(x)",
    "kron": "fb.linalg.kron(x, y)",
    "cross": "fb.linalg.cross(x, y)",
    "float": "fb.astype(x, fb.float32), or the dtype fb.float32",
    "double": "fb.float64",
    "half": "fb.float16",
    "long": "fb.int64",
    "int": "fb.int64 or fb.int32",
    # NumPy
    "array": "fb.asarray(values)",
    "asanyarray": "fb.asarray(values)",
    "ascontiguousarray": "fb.asarray(values)",
    "concatenate": "fb.concat(tensors, axis=0)",
    "column_stack": "fb.stack(tensors, axis=1), or fb.concat(tensors, axis=1)",
    "dstack": "fb.concat(tensors, axis=2)",
    "absolute": "fb.abs(x)",
    "fabs": "fb.abs(x)",
    "amax": "fb.max(x, axis=0)",
    "amin": "fb.min(x, axis=0)",
    "arccos": "fb.acos(x)",
    "arccosh": "fb.acosh(x)",
    "arcsin": "fb.asin(x)",
    "arcsinh": "fb.asinh(x)",
    "arctan": "fb.atan(x)",
    "arctan2": "fb.atan2(y, x)",
    "arctanh": "fb.atanh(x)",
    "conjugate": "fb.conj(x)",
    "power": "fb.pow(x, y)",
    "mod": "fb.remainder(x, y)",
    "fmod": "x - y * fb.trunc(x / y)",
    "invert": "fb.bitwise_invert(x)",
    "left_shift": "fb.bitwise_left_shift(x, n)",
    "right_shift": "fb.bitwise_right_shift(x, n)",
    "product": "fb.prod(x)",
    "fliplr": "fb.flip(x, axis=1)",
    "flipud": "fb.flip(x, axis=0)",
    "identity": "fb.eye(n)",
    "inner": "fb.vecdot(x, y)",
    "rint": "fb.round(x)",
    "float_": "fb.float64",
    "copy": "fb.asarray(x, copy=True)",
    "size": "x.size",
    "shape": "x.shape",
    "ndim": "x.ndim",
    "multinomial": "fb.random.categorical(fb.log(p), n)",
    "polyfit": "fb.linalg.lstsq(matrix, y)",
    # JAX
    "numpy": "the functions of fb itself: fb.sum(x)",
    "lax": "fb.scan, fb.cond, fb.while_loop",
    "device_put": "x.to(device)",
    "block_until_ready": "nothing: reading a tensor waits; fb.profile() measures",
    "tree_util": "fb.tree_map(function, tree)",
    "stop_gradient": "x.detach()",
    "pmap": "fb.train.DataParallel(devices)",
    "remat": "fb.checkpoint(function)",
    "jacrev": "fb.jacobian(function)",
    "jacfwd": "fb.jacobian(function, mode='forward')",
    # Keras
    "Sequential": "fb.nn.Sequential(…)",
    "Model": "fb.nn.Module",
    "layers": "fb.nn",
    "keras": "fb.nn, fb.train.Learner",
    "losses": "fb.nn.CrossEntropyLoss() and the others, or fb.cross_entropy",
    "optimizers": "fb.optim",
    "callbacks": "fb.train.Callback",
    "metrics": "fb.train.Metric",
    "Module": "fb.nn.Module",
    "Parameter": "fb.nn.Parameter",
    "Learner": "fb.train.Learner",
    "DataLoader": "fb.data.DataLoader",
    "Adam": "fb.optim.Adam(model, lr=1e-3)",
    "SGD": "fb.optim.SGD(model, lr=0.1)",
}

LAYERS: Names = {
    "ModuleList": "a list of modules as an attribute",
    "ModuleDict": "a dict of modules as an attribute",
    "ParameterList": "a list of nn.Parameter as an attribute",
    "ParameterDict": "a dict of nn.Parameter as an attribute",
    "functional": "the functions of fb itself: fb.relu(x)",
    "init": "nn.initial",
    "utils": "optim.clip_norm(gradients, 1.0), nn.weight_norm",
    "Dense": "nn.Linear(inputs, outputs)",
    "LazyLinear": "nn.Linear(inputs, outputs)",
    "Conv2D": "nn.Conv2d(channels, outputs, kernel_size)",
    "Conv1D": "nn.Conv1d(channels, outputs, kernel_size)",
    "MaxPooling2D": "nn.MaxPool2d(kernel_size)",
    "AveragePooling2D": "nn.AvgPool2d(kernel_size)",
    "GlobalAveragePooling2D": "nn.AdaptiveAvgPool2d(1)",
    "BatchNormalization": "nn.BatchNorm1d, nn.BatchNorm2d or nn.BatchNorm3d",
    "LayerNormalization": "nn.LayerNorm(shape)",
    "Activation": "nn.ReLU() and the others",
    "Swish": "nn.SiLU()",
    "SyncBatchNorm": 'train.Distributed(batch_norm="synchronised")',
    "DataParallel": "train.DataParallel(devices)",
    "MSE": "nn.MSELoss()",
    "Softmax2d": "nn.Softmax(axis=1)",
    "MultiHeadAttention": "nn.MultiheadAttention(embed, heads)",
    "Transformer": "nn.TransformerEncoder and nn.TransformerDecoder",
    "AdaptiveLogSoftmaxWithLoss": "nn.CrossEntropyLoss()",
}

OPTIMIZERS: Names = {
    "lr_scheduler": "a schedule as lr: optim.Adam(model, lr=optim.cosine(1e-3, steps=1000))",
    "CosineAnnealingLR": "optim.cosine(lr, steps)",
    "StepLR": "optim.step(lr, …)",
    "ReduceLROnPlateau": "optim.reduce_on_plateau(lr)",
    "OneCycleLR": "optim.one_cycle(lr, steps)",
    "LambdaLR": "a function of the step as lr",
    "apply_updates": "optimizer.update(model, gradients)",
    "chain": "optim.clip_norm(gradients, 1.0) before optimizer.update",
    "swa_utils": "optim.EMA(model, decay)",
}

RANDOM: Names = {
    "rand": "fb.random.uniform(shape)",
    "randn": "fb.random.normal(shape)",
    "randint": "fb.random.integers(shape, low=0, high=10)",
    "random": "fb.random.uniform(shape)",
    "standard_normal": "fb.random.normal(shape)",
    "shuffle": "fb.take(x, fb.random.permutation(n), axis=0)",
    "manual_seed": "fb.random.seed(seed)",
    "default_rng": "fb.random.Generator(seed)",
    "PRNGKey": "fb.random.Generator(seed)",
    "key": "fb.random.Generator(seed)",
    "split": "fb.random.Generator(seed), which draws other numbers at each call",
    "get_state": "fb.random.state()",
}

METHODS: Names = {
    "view": "x.reshape(shape)",
    "permute": "fb.permute_dims(x, axes)",
    "transpose": "fb.permute_dims(x, axes), fb.swapaxes(x, 0, 1) or x.T",
    "unsqueeze": "fb.expand_dims(x, axis=0)",
    "squeeze": "fb.squeeze(x, axis=0)",
    "flatten": "fb.flatten(x), or x.reshape(-1)",
    "ravel": "fb.ravel(x)",
    "expand": "fb.broadcast_to(x, shape)",
    "repeat": "fb.repeat(x, n, axis=0) of elements, fb.tile(x, n) of the whole",
    "contiguous": "nothing: x as it is",
    "clone": "fb.asarray(x, copy=True), or x as it is: no operation changes it",
    "copy": "fb.asarray(x, copy=True), or x as it is: no operation changes it",
    "cuda": 'x.to("torch:cuda")',
    "cpu": 'x.to("cpu"), or x.numpy()',
    "mps": 'x.to("torch:mps")',
    "float": "x.astype(fb.float32)",
    "double": "x.astype(fb.float64)",
    "half": "x.astype(fb.float16)",
    "bfloat16": "x.astype(fb.bfloat16)",
    "long": "x.astype(fb.int64)",
    "int": "x.astype(fb.int32)",
    "bool": "x.astype(fb.bool)",
    "type": "x.astype(dtype)",
    "dim": "x.ndim",
    "numel": "x.size",
    "backward": "loss, gradients = fb.value_and_grad(function)(model, …)",
    "grad": "the gradients that fb.value_and_grad(function)(model, …) returns",
    "requires_grad": "x.require_grad()",
    "requires_grad_": "x.require_grad()",
    "retain_grad": "fb.value_and_grad of a function of it",
    "detach_": "x.detach()",
    "prod": "fb.prod(x, axis=0)",
    "std": "fb.std(x, axis=0)",
    "var": "fb.var(x, axis=0)",
    "norm": "fb.linalg.norm(x)",
    "abs": "fb.abs(x)",
    "exp": "fb.exp(x)",
    "log": "fb.log(x)",
    "sqrt": "fb.sqrt(x)",
    "pow": "x**2",
    "clamp": "fb.clip(x, low, high)",
    "clip": "fb.clip(x, low, high)",
    "round": "fb.round(x)",
    "sigmoid": "fb.sigmoid(x)",
    "tanh": "fb.tanh(x)",
    "relu": "fb.relu(x)",
    "softmax": "fb.softmax(x, axis=-1)",
    "log_softmax": "fb.log_softmax(x, axis=-1)",
    "argsort": "fb.argsort(x)",
    "sort": "fb.sort(x)",
    "topk": "fb.top_k(x, k)",
    "cumsum": "fb.cumulative_sum(x, axis=0)",
    "gather": "fb.take_along_axis(x, indices, axis=1)",
    "scatter": "fb.scatter(x, indices, updates, axis=1)",
    "scatter_": "fb.scatter(x, indices, updates, axis=1)",
    "scatter_add": "fb.scatter_add(x, indices, updates, axis=1)",
    "scatter_add_": "fb.scatter_add(x, indices, updates, axis=1)",
    "index_select": "fb.take(x, indices, axis=0)",
    "masked_fill": "fb.masked_fill(x, mask, value)",
    "masked_fill_": "fb.masked_fill(x, mask, value)",
    "fill_": "fb.full_like(x, value)",
    "zero_": "fb.zeros_like(x)",
    "copy_": "x[...] = y",
    "add": "x + y",
    "add_": "x += y",
    "sub": "x - y",
    "sub_": "x -= y",
    "mul": "x * y",
    "mul_": "x *= y",
    "div": "x / y",
    "div_": "x /= y",
    "matmul": "x @ y",
    "mm": "x @ y",
    "bmm": "x @ y",
    "dot": "x @ y",
    "t": "x.T",
    "split": "fb.split(x, sizes, axis=0)",
    "chunk": "fb.chunk(x, n, axis=0)",
    "any": "fb.any(x, axis=0)",
    "all": "fb.all(x, axis=0)",
    "eq": "x == y",
    "ne": "x != y",
    "gt": "x > y",
    "lt": "x < y",
    "logsumexp": "fb.logsumexp(x, axis=-1)",
    "median": "fb.median(x, axis=0)",
    "cumprod": "fb.cumulative_prod(x, axis=0)",
    "logcumsumexp": "fb.cumulative_logsumexp(x, axis=0)",
    "nonzero": "fb.nonzero(x)",
    "at": "fb.scatter(x, indices, updates), or x[i] = value",
    "block_until_ready": "nothing: reading a tensor waits; fb.profile() measures",
    "is_cuda": "x.device",
    "names": "x.label",
    "conj": "fb.conj(x)",
    "diagonal": "fb.diagonal(x)",
    "trace": "fb.linalg.trace(x)",
    "take": "fb.take(x, indices, axis=0)",
    "swapaxes": "fb.swapaxes(x, 0, 1)",
    "unfold": "fb.unfold(x, axis=axis, size=size, step=step)",
    "data": "x.detach()",
}

OF_DTYPES: Names = {
    "byteorder": (  # which safetensors.numpy asks for first
        "model.state_dict().numpy(), or x.numpy() of each tensor, to pass NumPy arrays to safetensors.numpy.save_file"
    ),
    "char": "x.dtype.np.char",
    "num": "x.dtype.np.num",
    "str": "x.dtype.np.str",
    "type": "x.dtype.np.type",
}

OF_MODULES: Names = {
    "cuda": 'model.to("torch:cuda")',
    "cpu": 'model.to("cpu")',
    "float": "model.astype(fb.float32)",
    "double": "model.astype(fb.float64)",
    "half": 'model.astype(fb.float16), or train.Learner(…, precision="float16")',
    "children": "model.modules()",
    "add_module": "an attribute: self.layer = module",
    "register_module": "an attribute: self.layer = module",
    "register_buffer": "an attribute: self.name = nn.Buffer(value)",
    "register_parameter": "an attribute: self.name = nn.Parameter(value)",
    "register_forward_pre_hook": "a module whose forward changes x and calls this one, or model.register_forward_hook(fn)",
    "register_full_backward_hook": "fb.register_hook(x, fn) of a tensor",
    "register_backward_hook": "fb.register_hook(x, fn) of a tensor",
    "zero_grad": "nothing: gradients are returned, by fb.value_and_grad(function)(model, …)",
    "requires_grad_": "model.freeze() and model.unfreeze()",
    "trainable": "model.freeze() and model.unfreeze()",
    "get_weights": "model.state_dict()",
    "set_weights": "model.load_state_dict(state)",
    "trainable_weights": "model.trainable_parameters()",
    "fit": "train.Learner(model, optimizer).fit(loader, epochs=10)",
    "compile": "fb.jit(function), or train.Learner(model, optimizer)",
    "init": "nothing: a module has parameters when it is made",
}

OF_OPTIMIZERS: Names = {
    "zero_grad": "nothing: gradients are returned, by fb.value_and_grad(function)(model, …)",
    "param_groups": "optimizer.groups",
    "add_param_group": "groups= when the optimizer is made",
    "minimize": "optimizer.update(model, gradients)",
    "apply_gradients": "optimizer.update(model, gradients)",
    "lr": "optimizer.learning_rate",
    "init": "nothing: an optimizer is made for its model",
}

OF_SCHEDULES: Names = {
    "step": "nothing: optimizer.update counts its updates, and reduce_on_plateau takes each metric by observe(metric)",
    "get_last_lr": "optimizer.learning_rate",
    "get_lr": "optimizer.learning_rate",
    "state_dict": "optimizer.state_dict(), which holds its schedule",
    "load_state_dict": "optimizer.load_state_dict(state), which takes the schedule too",
}


class UnknownNameError(AttributeError):
    """Something has no attribute of a name; the text says what to write instead, if that is known.

    It is made at once and written when it is read: programs ask objects for attributes that they may lack.

    Args:
        what: What has no such attribute, as "module 'firebrick'".
        attribute: The name.
        names: What to write, by names elsewhere.
        known: The names that there are, or a function that lists them, which is called only when it is read.
        shown: How one of them is written, as "fb.{}".
    """

    def __init__(
        self, what: str, attribute: str, names: Names, known: Iterable[str] | Callable[[], Iterable[str]], shown: str
    ) -> None:
        super().__init__(what, attribute)
        self._parts = what, attribute, names, known, shown

    def __str__(self) -> str:
        what, name, names, known, shown = self._parts
        text = f"{what} has no attribute {name!r}"
        if name.startswith("_"):  # asked for by protocols
            return text
        if name in names:
            written = names[name]
            return f"{text}: none is needed{written[7:]}" if written.startswith("nothing") else f"{text}: write {written}"
        listed = known() if callable(known) else known
        public = [n for n in listed if not n.startswith("_")]
        near = [n for n in public if n.lower() == name.lower()] or get_close_matches(name, public, 1, 0.75)
        return f"{text}: did you mean {shown.format(near[0])}?" if near else text

    def __reduce__(self) -> tuple[type[AttributeError], tuple[str]]:
        return AttributeError, (str(self),)
