"""Weights from and for other libraries: safetensors, PyTorch, JAX and NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy

import firebrick as fb
from firebrick import nn
from firebrick.nn.saved import StateError


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_a_state_goes_through_a_file_of_safetensors_and_back(tmp_path: Path, dtype: str, device: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4, device=device), nn.BatchNorm1d(4, device=device)).astype(dtype)
    model.layers[0].weight = fb.nn.Parameter(model.layers[0].weight.T)  # not row-major in memory
    safetensors.numpy.save_file(model.state_dict().numpy(), tmp_path / "model.safetensors")
    before = model.state_dict()
    for p in model.parameters():
        p._rebind(fb.zeros_like(p))
    model.load_state_dict(safetensors.numpy.load_file(tmp_path / "model.safetensors"))
    for name, value in model.state_dict().items():
        assert value.device is fb.device(device)
        assert value.numpy().tobytes() == before[name].numpy().tobytes()


def test_safetensors_given_tensors_names_the_call_to_write(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match=r"write model\.state_dict\(\)\.numpy\(\)"):
        safetensors.numpy.save_file(nn.Linear(2, 3).state_dict(), tmp_path / "model.safetensors")


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_torchs_state_dict_loads_as_it_is_and_is_copied(dtype: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Linear(3, 4).to(getattr(torch, dtype))
    ours = nn.Linear(3, 4, device=device).astype(dtype)
    expected = theirs.weight.float().tolist()
    for state in (theirs.state_dict(), dict(theirs.named_parameters())):  # parameters require gradients
        ours.load_state_dict(state)
        assert ours.weight.device is fb.device(device)
        assert ours.weight.tolist() == expected
    theirs.weight.data.zero_()
    assert ours.weight.tolist() == expected


def test_torchs_shared_parameters_are_compared_by_their_values() -> None:
    torch = pytest.importorskip("torch")
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model.layers[1].weight = model.layers[0].weight
    names = ("layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias")
    state: dict[str, Any] = {n: torch.ones(2, 2) if n.endswith("weight") else torch.ones(2) for n in names}
    model.load_state_dict(state)
    state["layers.1.weight"] = torch.zeros(2, 2)
    with pytest.raises(StateError, match=r"layers\.1\.weight: differs from layers\.0\.weight"):
        model.load_state_dict(state)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda torch: torch.ones(4, 3, device="meta"), r"weight: torch\.Tensor cannot be read \(.*meta"),
        (lambda torch: torch.ones(4, 3).to_sparse(), r"weight: torch\.Tensor cannot be read \(.*layout"),
        (lambda torch: torch.ones(3, 4), r"weight: float32\[3, 4\] for float32\[4, 3\]"),
        (lambda torch: torch.ones(4, 3, dtype=torch.float64), r"weight: float64\[4, 3\] for float32\[4, 3\]"),
        (lambda torch: [[1.0] * 3] * 4, r"weight: builtins\.list is neither a Firebrick tensor nor a NumPy array"),
    ],
    ids=["meta", "sparse", "shape", "dtype", "list"],
)
def test_values_that_do_not_fit_change_nothing(make: Any, text: str) -> None:
    torch = pytest.importorskip("torch")
    model = nn.Linear(3, 4)
    before = model.state_dict()
    with pytest.raises(StateError, match=text):
        model.load_state_dict({"weight": make(torch), "bias": torch.zeros(4)})
    assert all(fb.all(v == before[n]) for n, v in model.state_dict().items())


def test_a_state_of_jax_loads() -> None:
    jnp = pytest.importorskip("jax.numpy")
    model = nn.Linear(3, 4).astype("bfloat16")
    model.load_state_dict({"weight": jnp.full((4, 3), 1.5, jnp.bfloat16), "bias": jnp.zeros(4, jnp.bfloat16)})
    assert model.weight.tolist() == [[1.5] * 3] * 4


# DLPack of the dtypes that NumPy's own lacks

NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
VALUES = [[1.5, -2.0, 0.0], [0.5, 4.0, -0.25]]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("way", ["as it is", "transposed", "flipped", "a row", "a scalar", "empty"])
def test_narrow_floats_go_to_torch_and_back(dtype: str, way: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    x = fb.asarray(VALUES, device=device).astype(dtype)
    shown = {
        "as it is": lambda x: x,
        "transposed": lambda x: fb.permute_dims(x, (1, 0)),
        "flipped": lambda x: fb.flip(x, axis=1),
        "a row": lambda x: x[1],
        "a scalar": lambda x: x[0, 0],
        "empty": lambda x: x[:0],
    }[way](x)
    theirs = torch.from_dlpack(shown)
    assert theirs.dtype is getattr(torch, dtype)
    assert theirs.float().tolist() == shown.astype(fb.float32).tolist()
    back = fb.from_dlpack(theirs, device=device)
    assert back.dtype is fb.dtype(dtype)
    assert back.shape == shown.shape
    assert back.astype(fb.float32).tolist() == shown.astype(fb.float32).tolist()
    assert fb.asarray(theirs).dtype is fb.dtype(dtype)


@pytest.mark.parametrize("dtype", NARROW)
def test_narrow_floats_go_to_jax_and_back(dtype: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = fb.asarray(VALUES).astype(dtype)
    theirs = jnp.from_dlpack(x)
    assert theirs.dtype.name == dtype
    assert theirs.astype("float32").tolist() == VALUES
    assert fb.from_dlpack(theirs).astype(fb.float32).tolist() == VALUES


def test_what_was_exported_outlives_its_tensor_and_is_never_written() -> None:
    torch = pytest.importorskip("torch")
    x = fb.asarray(VALUES).astype("bfloat16")
    theirs = torch.from_dlpack(x)
    x += x
    x[0, 0] = 7.0
    del x
    assert theirs.float().tolist() == VALUES


def test_borrowed_memory_of_torch_is_shared_without_a_copy_and_never_written() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.tensor(VALUES, dtype=torch.bfloat16)
    x = fb.from_dlpack(theirs)
    assert x.numpy().ctypes.data == theirs.data_ptr()
    x += x
    assert theirs.float().tolist() == VALUES
    copied = fb.from_dlpack(theirs, copy=True)
    assert copied.numpy().ctypes.data != theirs.data_ptr()


def test_a_producer_of_old_capsules_is_read() -> None:
    torch = pytest.importorskip("torch")

    class Old:
        """A producer of the time before ``max_version``."""

        def __init__(self) -> None:
            self.of = torch.tensor(VALUES, dtype=torch.bfloat16)

        def __dlpack__(self, stream: Any = None) -> Any:
            return torch.utils.dlpack.to_dlpack(self.of)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    x = fb.from_dlpack(Old())
    assert x.dtype is fb.bfloat16
    assert x.astype(fb.float32).tolist() == VALUES
