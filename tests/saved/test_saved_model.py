"""A saved model: written, read, used, exported; and files that are none."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load, load_file, save_file
from torch import nn

from boolit.saved import SavedModelError
from boolit.saved import load as load_model
from boolit.saved.columns import Column
from boolit.saved.file import Label, ModelDescription, TableTask, build_network, checksum
from boolit.saved.model import SavedModel

COLUMNS = (Column("a", "number", 1e9, missing=True), Column("b", "category", levels=("x", "y", "z")))
ROWS = {"a": [1e9 + 1, None, 1e9 - 2, 1e9], "b": ["x", "z", "unheard of", None]}


def model(
    task: TableTask = "classify",
    classes: tuple[Label, ...] = ("no", "yes"),
    spec: str = "or_and_xnor_nail_d",
    widths: tuple[int, ...] = (6, 4),
) -> SavedModel:
    description = ModelDescription(COLUMNS, "c", task, classes, spec, widths, {"seed": 3})
    module = build_network(5, widths, description.outputs, spec, in_unit=task == "regress")
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 2)
    module[0].mean[0] = 1e9
    return SavedModel(module.eval(), description)


MODELS = {
    "two classes": model(),
    "three classes": model(classes=(1, 2, 7)),
    "a quantity": model("regress", ()),
    "learnt activation": model(classes=(False, True), spec="prelu"),
}


@pytest.mark.parametrize("saved", MODELS.values(), ids=MODELS)
def test_what_is_loaded_is_what_was_saved(saved: SavedModel, tmp_path: Path) -> None:
    saved.save(tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    assert loaded.description == saved.description
    assert (loaded.columns, loaded.classes, loaded.about) == (["a", "b"], saved.classes, {"seed": 3})
    np.testing.assert_array_equal(loaded.predict(ROWS), saved.predict(ROWS))
    assert not loaded.module.training
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize("name", ["two classes", "three classes"])
def test_the_prediction_is_the_most_probable_class(name: str) -> None:
    chances = MODELS[name].predict_proba(ROWS)
    np.testing.assert_allclose(chances.sum(1), 1)
    labels = np.array(MODELS[name].classes)
    np.testing.assert_array_equal(MODELS[name].predict(ROWS), labels[chances.argmax(1)])


def test_small_differences_of_large_numbers_are_seen() -> None:
    near = {"a": [1e9, 1e9 + 1], "b": ["x", "x"]}
    first, second = MODELS["a quantity"].predict(near)
    assert first != second


def test_a_quantity_has_no_probabilities() -> None:
    with pytest.raises(SavedModelError, match="'c' is a quantity"):
        MODELS["a quantity"].predict_proba(ROWS)


def test_no_rows_no_answers() -> None:
    assert len(MODELS["three classes"].predict({"a": [], "b": []})) == 0


# torch's exporter copies a structure of its own that torch has deprecated
@pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning")
@pytest.mark.parametrize(("task", "classes"), [("classify", (3, 4)), ("regress", ())])
def test_onnx_agrees_with_onnxruntime(task: TableTask, classes: tuple[Label, ...], tmp_path: Path) -> None:
    saved = model(task, classes, "xnor_ail", (4,))
    saved.to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    [answers] = session.run(None, {"features": saved.features(ROWS)})
    expected = saved.predict_proba(ROWS) if saved.classes else saved.predict(ROWS)[:, None]
    np.testing.assert_allclose(answers, expected, rtol=1e-5, atol=1e-6)
    assert session.get_outputs()[0].name == ("probabilities" if saved.classes else "prediction")


def rewritten(path: Path, **changes: Any) -> None:
    """The file with other entries in its description."""
    description = json.loads(_metadata(path)) | changes
    keep(path, load_file(path), json.dumps(description))


def keep(path: Path, tensors: dict[str, torch.Tensor], text: str) -> None:
    save_file(tensors, path, {"boolit": text, "sha256": checksum(tensors, text)})


def _metadata(path: Path) -> str:
    length = int.from_bytes(path.read_bytes()[:8], "little")
    text: str = json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]["boolit"]
    return text


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"format": 99}, "format is 99"),
        ({"columns": None}, "columns"),
        ({"columns": [7]}, "column"),
        ({"columns": [{"name": "a", "kind": "secret", "levels": []}]}, "'secret'"),
        ({"columns": []}, "no columns"),
        ({"task": "think"}, "'think'"),
        ({"classes": []}, "0 classes"),
        ({"classes": [[1], [2]]}, "classes"),
        ({"activation": "nope"}, "unknown activation 'nope'"),
        ({"activation": 3}, "activation is no text"),
        ({"widths": [10**12, 10**12]}, "."),
        ({"widths": [2**63]}, "larger than what it holds"),
        ({"widths": [4] * 10**5}, "hidden layers"),
        ({"widths": [-4]}, "widths"),
        ({"widths": [6, 5]}, "multiple of 2"),
        ({"widths": [6]}, "."),
        ({"about": []}, "no table"),
    ],
)
def test_a_false_description_is_refused_in_one_line(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model().save(path)
    rewritten(path, **changes)
    with pytest.raises(SavedModelError, match=named) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    assert "model.safetensors" in str(caught.value)


def test_files_that_are_no_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with pytest.raises(SavedModelError, match="there is no saved model"):
        load_model(path)
    path.write_bytes(b"not a model at all")
    with pytest.raises(SavedModelError, match="no readable safetensors"):
        load_model(path)
    save_file({"w": torch.zeros(2)}, path)
    with pytest.raises(SavedModelError, match="not one of boolit's"):
        load_model(path)
    save_file({"w": torch.zeros(2)}, path, {"boolit": "[" * 10**5})
    with pytest.raises(SavedModelError, match="damaged"):
        load_model(path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model().save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), len(whole) // 23):
        path.write_bytes(whole[:length])
        with pytest.raises(SavedModelError):
            load_model(path)


@pytest.mark.parametrize("value", [torch.tensor([torch.nan]), torch.tensor([1], dtype=torch.int32)])
def test_weights_that_are_no_numbers_are_refused(value: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model().save(path)
    text = _metadata(path)
    tensors = load(path.read_bytes())
    tensors["1.bias"] = value.expand(tensors["1.bias"].shape).contiguous()
    keep(path, tensors, text)
    with pytest.raises(SavedModelError, match=r"1\.bias"):
        load_model(path)


def test_the_module_is_plain() -> None:
    kinds = {type(layer).__name__ for layer in MODELS["a quantity"].module}
    assert kinds == {"Standardise", "Linear", "BatchNorm1d", "Ensemble", "Unstandardise"}
    assert isinstance(MODELS["a quantity"].module, nn.Sequential)


def test_loading_needs_no_lab(tmp_path: Path) -> None:
    model().save(tmp_path / "model.safetensors")
    blocked = ("matplotlib", "pyarrow", "pydantic", "rich", "scipy", "typer")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked}))\n"
        "import boolit.saved\n"
        "assert 'boolit.saved.model' not in sys.modules and 'safetensors' not in sys.modules\n"
        f"print(boolit.saved.load({str(tmp_path / 'model.safetensors')!r}).predict({ROWS!r}).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(model_answers(tmp_path))


def model_answers(folder: Path) -> list[Any]:
    answers: list[Any] = load_model(folder / "model.safetensors").predict(ROWS).tolist()
    return answers


def test_one_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    model(widths=(2,)).save(path)
    whole = path.read_bytes()
    expected = load_model(path)
    for place in range(0, len(whole), 11):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        with suppress(SavedModelError):  # a bit in the padding of the header changes nothing
            loaded = load_model(path)
            assert loaded.description == expected.description
            np.testing.assert_array_equal(loaded.predict_proba(ROWS), expected.predict_proba(ROWS))
            assert place < 8 + int.from_bytes(whole[:8], "little")
