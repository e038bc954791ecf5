"""Batches as a learner sees them: their tensors, rows, names, groups, and what of them a model and a loss get."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.data import ArrayDataset, DataLoader, Portion
from firebrick.train import BatchGroup, TrainingError, batches


@dataclass
class Sample:
    x: Any
    label: Any


def labelled(label: str | None, rows: int = 2) -> fb.Tensor:
    x = fb.ones((rows, 1))
    x.label = label
    return x


A, B = labelled("x of batch 3 of loader a"), labelled("y of batch 3 of loader a", 4)
NEXT = labelled("y of batch 4 of loader a")
PLAIN = labelled(None)


@pytest.mark.parametrize(
    ("batch", "name"),
    [
        (A, "batch 3 of loader a"), ((PLAIN, B), "batch 3 of loader a"), ((B, PLAIN), ""), (PLAIN, ""),
        ({"x": A, "n": 3}, "batch 3 of loader a"), (Sample(PLAIN, (A, "text")), "batch 3 of loader a"),
        ([None, (A, B)], "batch 3 of loader a"), ([], ""), (Portion(8, (A, B)), "batch 3 of loader a"), (Portion(8, None), ""),
        (labelled("a name"), "a name"), (BatchGroup((A,)), "batch 3 of loader a"),
        (BatchGroup(((A, B), (A, NEXT), PLAIN)), "batch 3 of loader a and 2 more"), (BatchGroup((PLAIN, A)), ""),
    ],
    ids=str,
)  # fmt: skip
def test_a_batch_is_named_by_the_label_of_its_last_tensor(batch: Any, name: str) -> None:
    assert batches.name_of(batch) == name


def test_a_group_is_a_sequence_of_its_batches() -> None:
    group = BatchGroup((A, B, NEXT))
    assert len(group) == 3
    assert (group[0], group[-1]) == (A, NEXT)
    assert group[1:] == (B, NEXT)
    assert list(group) == [A, B, NEXT]
    assert batches.batches_of(group) == (A, B, NEXT)
    assert batches.batches_of(A) == (A,)


@pytest.mark.parametrize(
    ("batch", "pieces"),
    [
        (A, [A]), ((A, B), [(A, B)]), ([A, None, B], [A, B]), ([None], []), (Portion(4, A), [A]), (Portion(4, None), []),
        (BatchGroup(([A, None], [B, NEXT])), [A, B, NEXT]), (BatchGroup((Portion(4, A), Portion(4, None))), [A]),
    ],
    ids=str,
)  # fmt: skip
def test_a_batch_comes_in_pieces(batch: Any, pieces: list[Any]) -> None:
    assert batches.pieces_of(batch) == pieces


def test_rows_of_a_batch_keep_its_structure_labels_and_what_is_no_tensor() -> None:
    assert batches.rows_in((A, {"y": B, "n": 7})) == 4
    found = batches.rows_of({"x": A, "n": 7, "y": (B, "text")}, 1, 3)
    assert (found["n"], found["y"][1]) == (7, "text")
    assert (found["x"].shape, found["y"][0].shape) == ((1, 1), (2, 1))
    assert (found["x"].label, found["y"][0].label) == (A.label, B.label)
    moved = batches.moved((A, "text"), fb.device("cpu:1"))
    assert (moved[0].device, moved[1]) == (fb.device("cpu:1"), "text")
    assert batches.tensors_of({"x": A, "n": 7, "y": (B, "text")}) == [A, B]


@pytest.mark.parametrize(
    ("batch", "target", "call"),
    [
        ((A, B, NEXT), None, ((A, B), {}, NEXT)), ([A, B], None, ((A,), {}, B)),
        (A, None, ((A,), {}, A)), ((A,), None, ((A,), {}, A)),
        ({"x": A, "y": B}, None, (({"x": A, "y": B},), {}, {"x": A, "y": B})), ({"x": A, "y": B}, "y", ((A,), {}, B)),
        ({"x": A, "y": B, "z": NEXT}, "y", ((), {"x": A, "z": NEXT}, B)), (Sample(A, B), "x", ((B,), {}, A)),
    ],
    ids=str,
)  # fmt: skip
def test_a_model_and_a_loss_get_their_parts(batch: Any, target: str | None, call: Any) -> None:
    assert tuple(batches.call_of(batch, target)) == call


@pytest.mark.parametrize(
    ("batch", "received"),
    [
        ((A, B), "a tuple"),
        (A, "a Tensor"),
        ({"x": A}, "a dict with 'x'"),
        ({"y": A}, "a dict with 'y'"),
        (Sample(A, B), "a Sample with 'x', 'label'"),
    ],
)
def test_a_target_that_a_batch_has_not_or_has_alone_is_refused(batch: Any, received: str) -> None:
    with pytest.raises(TrainingError) as caught:
        batches.call_of(batch, "y")
    assert caught.value.received == received
    assert caught.value.expected == "target='y' is a key or field of batches that have others too"


def test_predictions_take_the_entries_but_the_target() -> None:
    whole = {"x": A, "y": B, "z": NEXT}
    assert batches.inputs_of((whole,), "y") == ((), {"x": A, "z": NEXT})
    assert batches.inputs_of(({"x": A, "y": B},), "y") == ((A,), {})
    for given, target in (((whole,), None), ((A, B), "y"), ((A,), "y"), ((whole, whole), "y")):
        assert batches.inputs_of(given, target) == (given, {})


def test_what_comes_from_no_loader_or_has_no_rows_is_refused() -> None:
    loader = DataLoader(ArrayDataset(np.zeros((4, 1)), np.zeros(4)), 2, name="valid")
    assert batches.check_loader(loader) is loader
    with pytest.raises(TrainingError, match="batches come from a DataLoader\nReceived: list"):
        batches.check_loader([(A, B)])
    batches.check_batch((A, B), loader)
    for batch, received in (((), "0 tensors"), ({"n": 3}, "0 tensors"), ((A, fb.asarray(1.0)), "2 tensors, one without axes")):
        with pytest.raises(TrainingError) as caught:
            batches.check_batch(batch, loader)
        assert caught.value.received == received
        assert caught.value.expected == 'loader "valid" gives batches of tensors whose first axis is the batch'
    with pytest.raises(TrainingError, match="target='z'"):
        batches.check_batch({"x": A, "y": B}, loader, "z")


@pytest.mark.parametrize(("size", "sizes"), [(1, None), (2, [2, 2, 1]), (3, [3, 2]), (5, [5]), (9, [5])])
def test_batches_are_grouped_and_the_last_group_may_be_smaller(size: int, sizes: list[int] | None) -> None:
    found = list(batches.grouped(iter(range(5)), size))
    if sizes is None:
        assert found == [0, 1, 2, 3, 4]
    else:
        assert [len(g) for g in found] == sizes
        assert [n for g in found for n in g] == [0, 1, 2, 3, 4]
        assert all(isinstance(g, BatchGroup) for g in found)


class Two(nn.Module):
    """Takes two entries."""

    def forward(self, x: Any, scale: Any) -> Any:
        return x * scale


def test_entries_that_forward_does_not_take_are_named() -> None:
    model: Any = Two()
    batches.check_call(model, (A, B), {}, None)
    batches.check_call(model, (A,), {"scale": B}, "y")
    for inputs, named, target, received in (
        ((A,), {}, None, "1 input (missing a required argument: 'scale')"),
        ((A, B, A), {}, None, "3 inputs (too many positional arguments)"),
        ((), {"x": A, "size": B}, "y", "the entries 'x', 'size' beside the target 'y' (missing a required argument: 'scale')"),
    ):
        with pytest.raises(TrainingError) as caught:
            batches.check_call(model, inputs, named, target)
        assert caught.value.received == received
        assert "Two.forward has the parameters (x: 'Any', scale: 'Any')" in caught.value.expected
        assert caught.value.remedy.startswith("give the entries" if named else "let batches hold one entry")
    batches.check_call(SimpleNamespace(forward=dict), (A,), {}, None)  # type: ignore[arg-type] # it has no signature


def test_the_remedy_says_how_a_batch_comes_to_model_and_loss() -> None:
    assert batches.hint_of((A, B), None) == ""
    assert batches.hint_of(A, "y") == ""
    assert batches.hint_of(A, None).startswith("a batch of one tensor is input and target of the loss")
    assert batches.hint_of({"x": A}, None).startswith("a dict or dataclass is given whole")
