"""A saved model: from a table to answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from boolit.saved import SavedModelError, file
from boolit.saved.columns import Floats, encode_features, raw_columns
from boolit.saved.file import Label, ModelDescription

NUMBERS_AT_ONCE = 2**22  # of features; bounds the memory of a prediction


class Probabilities(nn.Module):
    """Logits as one probability per class; a single logit is that of the second of two classes.

    Shape: ``(rows, outputs)`` to ``(rows, classes)``.

    Example:
        >>> Probabilities()(torch.zeros(1, 1))
        tensor([[0.5000, 0.5000]])
    """

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.sigmoid(-x), torch.sigmoid(x)], 1) if x.shape[1] == 1 else torch.softmax(x, 1)


@dataclass(frozen=True)
class SavedModel:
    """A trained network with the preparation of its table; `boolit.load` makes one from a file.

    A ``table`` is a dict of columns, a pyarrow or pandas table, or a 2-D array with the columns in their order; missing values
    and categories that were not seen in training are fine.

    Args:
        module: a plain `torch.nn.Module` from `features` to logits or, for a quantity, to its values.
        description: the columns, the target and the network, as the file has them.

    Shape: a table of ``(rows, columns)`` to predictions ``(rows,)`` and probabilities ``(rows, classes)``.

    Example:
        >>> import tempfile
        >>> from boolit.saved.columns import Column
        >>> from boolit.saved.file import build_network
        >>> columns = (Column("size", "number", 2.0, missing=True), Column("colour", "category", levels=("red", "green")))
        >>> description = ModelDescription(columns, "kind", "classify", ("ant", "bee"), "or_ail", (8,), {"seed": 1})
        >>> model = SavedModel(build_network(4, (8,), 1, "or_ail", in_unit=False).eval(), description)
        >>> model.columns, model.classes, model.about["seed"]
        (['size', 'colour'], ['ant', 'bee'], 1)
        >>> table = {"size": [1.5, None], "colour": ["green", "blue"]}
        >>> model.features(table).tolist()
        [[1.5, 0.0, 0.0, 1.0], [2.0, 1.0, 0.0, 0.0]]
        >>> model.predict(table).shape, model.predict_proba(table).sum(1)
        ((2,), array([1., 1.]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(f"{folder}/kinds.safetensors")
        ...     SavedModel.load(f"{folder}/kinds.safetensors").description == description
        True
    """

    module: nn.Sequential
    description: ModelDescription

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SavedModel:
        """The model in a file that `save` or ``boolit compare`` wrote; `boolit.load` is the same."""
        return cls(*file.read(Path(path)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as a safetensors file that `boolit.load` reads."""
        file.write(Path(path), self.module, self.description)

    @property
    def columns(self) -> list[str]:
        """The columns it reads, in the order of a plain array."""
        return [column.name for column in self.description.columns]

    @property
    def classes(self) -> list[Label]:
        """The classes it tells apart; none for a quantity."""
        return list(self.description.classes)

    @property
    def about(self) -> Mapping[str, Any]:
        """Where it comes from, such as how it was chosen, the score to expect, activation, seed and versions."""
        return self.description.about

    def features(self, table: Any) -> Floats:
        """What the module reads of a table: numbers in their own units, nothing missing.

        Shape: ``(rows, features)``.
        """
        return encode_features(self.description.columns, raw_columns(self.description.columns, table))

    def predict(self, table: Any) -> npt.NDArray[Any]:
        """The class, or the value in the target's own unit, of every row.

        Shape: ``(rows,)``.
        """
        answers = self._answers(table)
        if self.description.task == "regress":
            return answers[:, 0].astype(np.float64)
        chosen = answers[:, 0] > 0 if answers.shape[1] == 1 else answers.argmax(1)
        return np.array(self.classes)[chosen.astype(np.int64)]

    def predict_proba(self, table: Any) -> Floats:
        """The probability of every class, in the order of `classes`; a quantity has none, and is refused.

        Shape: ``(rows, classes)``.
        """
        if self.description.task == "regress":
            raise SavedModelError(f"{self.description.target!r} is a quantity and has no classes; use predict")
        logits = torch.from_numpy(self._answers(table)).double()
        return np.asarray(Probabilities()(logits))

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Writes the network for ONNX runtimes; needs the packages onnx and onnxscript.

        Its input ``features`` is what `features` returns, float64, any number of rows: standardisation is inside. Its output
        is ``probabilities`` ``(rows, classes)``, or ``prediction`` ``(rows, 1)`` in the target's unit.

        Example:
            >>> model.to_onnx("wine.onnx")  # doctest: +SKIP
            >>> onnxruntime.InferenceSession("wine.onnx").run(None, {"features": model.features(table)})  # doctest: +SKIP
        """
        classify = self.description.task == "classify"
        module = nn.Sequential(*self.module, *([Probabilities()] if classify else [])).eval()
        example = torch.zeros(3, len(self.description.features), dtype=torch.float64)
        program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("rows", min=1)},))
        outputs = ["probabilities" if classify else "prediction"]
        torch.onnx.export(
            program,
            (),
            Path(path),
            input_names=["features"],
            output_names=outputs,
            dynamo=True,
            verbose=False,
            external_data=False,
        )

    def _answers(self, table: Any) -> npt.NDArray[Any]:
        features = self.features(table)
        size = max(1, NUMBERS_AT_ONCE // max(1, features.shape[1]))
        with torch.no_grad():
            pieces = [self.module(torch.from_numpy(features[i : i + size])) for i in range(0, max(1, len(features)), size)]
        return np.asarray(torch.cat(pieces))
