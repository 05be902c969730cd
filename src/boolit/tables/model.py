"""Save and load a model for tables: a scikit-learn pipeline in a skops file. Loading it runs no code from the file."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
import skops.io
from sklearn.pipeline import Pipeline
from torch import nn

from boolit.errors import UserError
from boolit.sklearn import LogicalMLPClassifier, LogicalMLPRegressor
from boolit.tables.preparation import TablePreparation
from boolit.tables.read import check_columns, read_table

TRUSTED = [LogicalMLPClassifier, LogicalMLPRegressor, TablePreparation, "numpy.dtype"]
MAX_BYTES = 2**28  # of a file's content after decompression
ROWS_AT_ONCE = 2**16


def save(model: Pipeline, path: str | os.PathLike[str]) -> None:
    """Write a pipeline of `TablePreparation` and a `boolit.sklearn` estimator to a skops file, atomically."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(skops.io.dumps(model, compression=zipfile.ZIP_DEFLATED))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | os.PathLike[str]) -> Pipeline:
    """Load a model that ``boolit compare`` saved (``model.skops``).

    The file is not a pickle: loading it runs no code from it, and types other than scikit-learn's and boolit's are refused.

    Args:
        path: the file.

    Returns:
        A fitted scikit-learn pipeline. ``predict`` and ``predict_proba`` take a DataFrame with the columns of the training
        table; ``about_`` says how the model was chosen and what score to expect.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path} is not a file; give the model.skops of boolit compare")
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MAX_BYTES:
            raise ValueError(f"its content has {size:,} bytes, more than {MAX_BYTES:,}")
        model = skops.io.load(path, trusted=TRUSTED)
        _check(model)
    except zipfile.BadZipFile:
        raise UserError(f"{path} is not a skops file; give the model.skops of boolit compare") from None
    except Exception as error:  # damaged and forged files raise many kinds of errors
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise UserError(f"{path} is damaged or not a model of boolit compare ({reason})") from None
    return model


def _check(model: object) -> None:
    if not isinstance(model, Pipeline) or [name for name, _ in model.steps] != ["preparation", "network"]:
        raise ValueError("it is not a pipeline of preparation and network")
    preparation, network = (step for _, step in model.steps)
    if not isinstance(preparation, TablePreparation) or not isinstance(getattr(network, "module_", None), nn.Module):
        raise ValueError("it is not a pipeline of preparation and network")
    if len(preparation.get_feature_names_out()) != network.n_features_in_:
        raise ValueError("the network does not fit the preparation")
    for text in (*preparation.feature_names_in_, *getattr(network, "classes_", ()), target_name(model)):
        str(text).encode()  # raises UnicodeEncodeError for a lone surrogate


def target_name(model: Pipeline) -> str:
    """Return the name of the column that a model predicts."""
    return str(getattr(model, "about_", {}).get("target", "prediction"))


def write_predictions(model: Pipeline, table: Path, out: TextIO) -> list[str]:
    """Write a CSV with the predictions for the rows of a table. Return notes on categories that the model does not know."""
    frame = read_table(table)
    preparation = model.named_steps["preparation"]
    check_columns(preparation.feature_names_in_, frame.columns, str(table))
    for first in range(0, max(1, len(frame)), ROWS_AT_ONCE):
        rows = predictions(model, frame.iloc[first : first + ROWS_AT_ONCE])
        rows.to_csv(out, index=False, header=first == 0, lineterminator="\n")
    return [
        f"column {name!r}: {count:,} rows with categories that the model does not know: {', '.join(map(repr, texts))}"
        for name, (count, texts) in preparation.unknown_categories(frame).items()
    ]


def predictions(model: Pipeline, frame: pd.DataFrame) -> pd.DataFrame:
    """Return predictions and, for classes, probabilities as the columns of a DataFrame.

    Texts that a spreadsheet would take for a formula begin with an apostrophe.
    """
    if not len(frame):
        raise UserError("the table has no rows")
    name, classes = _cell(target_name(model)), getattr(model[-1], "classes_", None)
    if classes is None:
        return pd.DataFrame({name: model.predict(frame)})
    chances = model.predict_proba(frame)
    columns = {f"P({label})": chances[:, place] for place, label in enumerate(classes)}
    return pd.DataFrame({name: [_cell(classes[place]) for place in chances.argmax(1)]} | columns)


def _cell(value: Any) -> Any:
    text = str(value)
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text
    return value
