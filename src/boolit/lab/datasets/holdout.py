"""The rows of a dataset that a search may use: rows to train on and rows to choose by, but no test rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field

from boolit.errors import UserError
from boolit.lab.common.random import generator, keys, stratified_order
from boolit.lab.datasets import AnySource, describe, load
from boolit.lab.datasets.base import Dataset, Description, Source, Split

SHARE = 0.2


class Holdout(Source):
    """The splits ``train`` and ``valid`` ``of`` another dataset.

    With ``share``, ``valid`` is that share of the training rows, stratified and drawn with ``seed``; without, it is the
    dataset's own. Rows are encoded as in the whole dataset. Where training draws its samples in every step, the held-out
    samples are drawn once. A dataset with extra metrics needs a split ``valid``.
    """

    name: Literal["holdout"] = "holdout"
    of: AnySource
    share: float | None = Field(SHARE, gt=0, lt=1)
    seed: int = 0

    def describe(self) -> Description:
        """Describe the data."""
        whole = describe(self.of)
        rows, valid = whole.samples["train"], whole.samples.get("valid", 0)
        if self.share is not None:
            valid = round(self.share * rows)
            rows -= valid
        return replace(whole, samples={"train": rows, "valid": valid})

    def load(self) -> Dataset:
        """Load the data."""
        whole = load(self.of)
        if self.share is not None:
            return replace(whole, splits=self._cut(whole, self.share))
        if "valid" not in whole.splits:
            raise UserError(f"{self.of.name} has no split valid; give the share of its training rows to hold out")
        return replace(whole, splits={name: whole.splits[name] for name in ("train", "valid")})

    def _cut(self, whole: Dataset, share: float) -> Mapping[str, Split]:
        rows = whole.splits["train"]
        held_out = round(share * len(rows))
        if not 0 < held_out < len(rows):
            raise UserError(f"{share:g} of {len(rows)} training rows of {self.of.name} cannot be held out; give it more rows")
        if whole.extra_metrics is not None:
            raise UserError(f"{self.of.name} has extra metrics but no split valid to choose by; give it one")
        words = ("holdout", self.of.name)
        if whole.task == "regression" or rows.y.numel() != len(rows):
            order = torch.randperm(len(rows), generator=generator(self.seed, *words, "order"))
        else:
            order = stratified_order(rows.y.flatten().long(), self.seed, *words)
        parts = (part.sort().values for part in (order[:held_out], order[held_out:]))
        valid, train = (Split(rows.x[part], rows.y[part]) for part in parts)
        if whole.draw is not None:
            x, y = whole.draw(valid.x.unsqueeze(0), valid.y.unsqueeze(0), keys([self.seed], "holdout", "draw"), 0)
            valid = Split(x.squeeze(0), y.squeeze(0))
        return {"train": train, "valid": valid}


def for_choosing(data: Source) -> Holdout:
    """Return the rows that a search may use: the dataset's ``valid``, or rows held out of ``train`` if it has none."""
    return Holdout(of=data, share=None if "valid" in describe(data).samples else SHARE)
