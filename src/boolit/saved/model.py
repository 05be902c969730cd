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
    """A trained network with the preparation of its table.

    ``module`` is a plain ``nn.Module`` from ``features`` to logits or, for a quantity, to its values; it needs no lab.
    """

    module: nn.Sequential
    description: ModelDescription

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SavedModel:
        """The model in a file."""
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
        """Where it comes from: activation, seed, figures, versions."""
        return self.description.about

    def features(self, table: Any) -> Floats:
        """What the module reads of a table: numbers in their own units, nothing missing.

        Shape: ``(rows, features)``.
        """
        return encode_features(self.description.columns, raw_columns(self.description.columns, table))

    def predict(self, table: Any) -> npt.NDArray[Any]:
        """The class, or the value in the target's own unit, of every row.

        ``table`` is a dict of columns, a pyarrow or pandas table, or a 2-D array with the columns in their order.

        Shape: ``(rows,)``.
        """
        answers = self._answers(table)
        if self.description.task == "regress":
            return answers[:, 0].astype(np.float64)
        chosen = answers[:, 0] > 0 if answers.shape[1] == 1 else answers.argmax(1)
        return np.array(self.classes)[chosen.astype(np.int64)]

    def predict_proba(self, table: Any) -> Floats:
        """The probability of every class.

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
