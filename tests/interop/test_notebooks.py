"""What objects show of themselves as text and, in notebooks, as HTML."""

from __future__ import annotations

import copy
import pickle
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn


class Reader(HTMLParser):
    """Tags that are open and text; a tag that is closed in the wrong order is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def read(shown: str) -> Reader:
    reader = Reader()
    reader.feed(shown)
    reader.close()
    assert not reader.open
    assert reader.tags <= {"div", "b", "pre", "table", "tr", "td", "th"}
    return reader


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


def test_gradients_are_named_as_their_parameters_in_their_order() -> None:
    gradients = fb.grad(lambda m: fb.sum(m(fb.ones((4, 2)))))(model())
    assert repr(gradients) == (
        "Gradients({layers.0.weight: float32[3,2] on cpu:0, layers.0.bias: float32[3] on cpu:0, "
        "layers.1.weight: float32[3] on cpu:0, layers.1.bias: float32[3] on cpu:0})"
    )
    assert read(gradients._repr_html_()).cells[5:9] == ["layers.0.weight", "float32", "[3, 2]", "cpu:0"]


def test_gradients_keep_the_names_when_the_parameters_have_been_updated() -> None:
    m = nn.Linear(1, 1)
    step = fb.grad(lambda m: fb.sum(m(fb.ones((4, 1)))))
    first = step(m)
    fb.optim.SGD(m, lr=0.1).update(m, first)
    step(m)
    assert repr(first) == "Gradients({weight: float32[1,1] on cpu:0, bias: float32[1] on cpu:0})"


def test_gradients_of_tensors_without_a_label_and_of_many() -> None:
    x, y = fb.ones(2).require_grad(), fb.ones(3).require_grad()
    y.label = "y"
    gradients = fb.backward(fb.sum(x) * fb.sum(y))
    assert repr(gradients) == f"Gradients({{leaf {x.leaf}: float32[2] on cpu:0, y: float32[3] on cpu:0}})"
    many = [fb.ones(()).require_grad() for _ in range(30)]
    assert repr(fb.backward(sum(many[1:], many[0]))).endswith(", … 10 more})")


def test_parameters_and_buffers_say_what_they_are() -> None:
    layer = nn.BatchNorm1d(1)
    layer.named_parameters()
    assert repr(layer.weight) == "Parameter([1.], dtype=float32, device=cpu:0, label='weight')"
    assert repr(layer.running_mean) == "Buffer([0.], dtype=float32, device=cpu:0, label='running_mean')"
    layer.freeze()
    assert repr(layer.weight) == "Parameter([1.], dtype=float32, device=cpu:0, label='weight', frozen)"
    assert repr(nn.Parameter(fb.zeros(1)).detach()) == "tensor([0.], dtype=float32, device=cpu:0)"
    assert repr(layer.weight + 1.0) == "tensor([2.], dtype=float32, device=cpu:0)"


def test_metrics_show_settings_and_totals_without_reading_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = fb.train.TopKAccuracy(2)
    assert repr(metric) == "TopKAccuracy(k=2, hits=0, samples=0)"
    metric.update(fb.ones((4, 5)), fb.zeros(4, dtype=fb.int64))
    assert repr(metric) == "TopKAccuracy(k=2, hits=0, samples=0, 1 batch not read yet)"
    metric.compute()
    assert repr(metric) == "TopKAccuracy(k=2, hits=4, samples=4)"
    assert repr(fb.train.ConfusionMatrix(20)) == "ConfusionMatrix(classes=20, ignore_index=None, counts=int64[20, 20])"


def test_a_learner_shows_its_parts_and_where_it_is() -> None:
    m = model()
    learner = fb.train.Learner(m, fb.optim.SGD(m, lr=0.1), nn.MSELoss(), log=None)
    assert repr(learner) == "Learner(Sequential, SGD, MSELoss, devices=[cpu:0], epoch=0, step=0)"
    learner = fb.train.Learner(m, fb.optim.SGD(m, lr=0.1), fb.mse_loss, log=None)
    assert repr(learner) == "Learner(Sequential, SGD, mse_loss, devices=[cpu:0], epoch=0, step=0)"


@pytest.mark.parametrize(
    ("make", "title", "values"),
    [
        (lambda: fb.asarray([1.5, 2.0]), "tensor float32[2] on cpu:0", "[1.5, 2. ]"),
        (lambda: fb.asarray(3), "tensor int64[] on cpu:0", "3"),
        (lambda: fb.zeros((0, 3)), "tensor float32[0, 3] on cpu:0", "[]"),
        (lambda: fb.ones(1).require_grad(), "tensor float32[1] on cpu:0, tracked", "[1.]"),
        (lambda: nn.Parameter(fb.ones(1), label="w"), "Parameter float32[1] on cpu:0, w", "[1.]"),
    ],
)
def test_a_tensor_shows_what_it_is_and_its_values(make: Any, title: str, values: str) -> None:
    assert read(make()._repr_html_()).cells == [title, values]


def test_a_tensor_without_values_or_of_many_is_short() -> None:
    assert "no values" in read(fb.ones(2, device="meta")._repr_html_()).cells[1]
    assert len(fb.zeros((1000, 1000))._repr_html_()) < 1000


def test_a_tensor_of_a_trace_says_that_it_has_no_value_yet(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(x: fb.Tensor) -> fb.Tensor:
        print(x._repr_html_())
        return x + 1

    fb.jit(shown)(fb.ones(2))
    assert "&lt;value 0 of " in capsys.readouterr().out


def test_names_of_users_are_escaped() -> None:
    name = "<script>alert('&')</script>"
    x = fb.ones(1)
    x.label = name
    assert read(x._repr_html_()).cells[0] == f"tensor float32[1] on cpu:0, {name}"

    class Custom(nn.Module):
        def __init__(self) -> None:
            self.parts = {name: nn.Linear(1, 1)}

    assert f"parts.{name} (Linear)" in read(Custom()._repr_html_()).cells
    gradients = fb.backward(fb.sum(x.require_grad()))
    assert name in read(gradients._repr_html_()).cells


def test_a_module_and_its_summary_are_tables() -> None:
    cells = read(model()._repr_html_()).cells
    assert cells[:4] == ["Sequential", "layer", "parameters", "bytes"]
    assert cells[-3:] == ["Sequential", "15", "60"]
    summary = model().summary((4, 2))
    assert isinstance(summary, str)
    assert read(summary._repr_html_()).cells[5:9] == ["layers.0 (Linear)", "[4, 3]", "9", "36"]
    assert str(pickle.loads(pickle.dumps(summary))) == str(copy.copy(summary)) == str(summary)


def test_a_deep_module_is_a_short_table() -> None:
    deep = nn.Sequential(*(nn.Linear(1, 1) for _ in range(500)))
    cells = read(deep._repr_html_()).cells
    assert "… 450 more …" in cells
    assert cells[-3:] == ["Sequential", "1,000", "4,000"]
    assert len(deep._repr_html_()) < 12_000


def test_a_history_is_a_list_and_a_table_of_the_columns_that_it_has() -> None:
    m = nn.Linear(2, 2)
    learner = fb.train.Learner(m, fb.optim.SGD(m, lr=0.1), nn.CrossEntropyLoss(), log=None)
    assert read(learner.history._repr_html_()).cells == ["no epoch yet"]
    loader = fb.data.DataLoader(fb.data.ArrayDataset(np.eye(2, dtype=np.float32), np.arange(2)), 2)
    rows = learner.fit(loader, epochs=2)
    assert isinstance(rows, list)
    assert rows is learner.history
    cells = read(rows._repr_html_()).cells
    assert cells[0] == "2 epochs"
    assert "train_loss" in cells
    assert "valid_loss" not in cells
    assert f"{rows[1].train_loss:.4g}" in cells
