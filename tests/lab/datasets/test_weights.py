"""Weights are tensors and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from boolit.errors import UserError
from boolit.lab.datasets.features.weights import BACKBONE, Weights, resnet18_path, resnet18_shapes, resnet18_weights
from boolit.lab.datasets.status import dataset_statuses


def tensors(**others: torch.Tensor) -> dict[str, torch.Tensor]:
    return {name: torch.zeros(()).expand(shape).half() for name, shape in resnet18_shapes().items()} | others


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "some.pth"


def test_the_network_has_as_many_parameters_as_in_the_tables() -> None:
    sizes = {name: torch.Size(shape).numel() for name, shape in resnet18_shapes().items() if "running" not in name}
    assert sum(sizes.values()) == 11_176_512  # the encoder of three channels in the paper's other network of that kind


@pytest.mark.parametrize("legacy", [True, False])
def test_the_last_layer_and_counters_are_left_out(file: Path, legacy: bool) -> None:
    held = tensors(**{"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)})
    held |= {"bn1.num_batches_tracked": torch.tensor(3), "bn1.bias": torch.arange(64)}
    torch.save(held, file, _use_new_zipfile_serialization=not legacy)
    found = resnet18_weights(file)
    assert {name: tuple(value.shape) for name, value in found.items()} == resnet18_shapes()
    assert {value.dtype for value in found.values()} == {torch.float32}
    assert found["bn1.bias"].tolist() == list(range(64))


class Hostile:
    def __init__(self, function: Any, argument: str) -> None:
        self.call = function, (argument,)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("way", ["zip", "legacy", "pickle"])
def test_a_hostile_checkpoint_is_refused_without_running_its_code(file: Path, way: str) -> None:
    mark = file.with_name("mark")
    touch = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    for call in (Hostile(os.system, f"touch {mark}"), Hostile(eval, touch)):
        held = {"conv1.weight": torch.zeros(2), "bn1.weight": call}
        if way == "pickle":
            file.write_bytes(pickle.dumps({"bn1.weight": call}))
        else:
            torch.save(held, file, _use_new_zipfile_serialization=way == "zip")
        with pytest.raises(UserError) as error:
            resnet18_weights(file)
        assert str(error.value) == f"{file} holds more than weights, and is not read: it could run code; give a file of tensors"
        assert not mark.exists()


@pytest.mark.parametrize(
    ("held", "fault"),
    [
        ([1], "holds a list, not weights by name"),
        ({}, r"holds no ResNet-18: conv1.weight has the shape None, not \(64, 3, 7, 7\)"),
        (tensors(**{"layer3.0.downsample.0.weight": torch.zeros(2)}), r"layer3.0.downsample.0.weight has the shape \(2,\)"),
        (tensors(**{"bn1.bias": "text"}), "bn1.bias has the shape None"),  # type: ignore[dict-item]
    ],
)
def test_a_file_of_something_else_is_told(file: Path, held: object, fault: str) -> None:
    torch.save(held, file)
    with pytest.raises(UserError, match=fault):
        resnet18_weights(file)


def test_a_damaged_or_missing_file_is_told(file: Path) -> None:
    with pytest.raises(UserError, match="there is no weights file"):
        resnet18_weights(file)
    torch.save(tensors(), file)
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(UserError, match=r"is no whole weights file|holds more than weights"):
        resnet18_weights(file)


def test_the_published_file_comes_before_ones_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (published,) = Weights.files
    published.path.parent.mkdir(parents=True)
    assert not dataset_statuses(["weights"])[0].here
    backbone = published.path.with_name(BACKBONE)
    torch.save(tensors(), backbone)
    assert resnet18_path() == backbone == folder / "weights" / "resnet18-backbone.pth"
    assert dataset_statuses(["weights"])[0].here
    assert len(resnet18_weights()) == 100
    content = backbone.read_bytes()
    published.path.write_bytes(content)
    with pytest.raises(UserError, match="is cut off after"):
        resnet18_path()
    known = dataclasses.replace(published, sha256=hashlib.sha256(content).hexdigest(), size=len(content))
    monkeypatch.setattr(Weights, "files", (known,))
    assert resnet18_path() == published.path


def test_a_file_far_larger_than_the_network_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    with path.open("wb") as file:
        file.truncate(2**29 + 1)  # takes no room on the disk
    with pytest.raises(UserError, match="has more than 536,870,912 bytes"):
        resnet18_weights(path)
