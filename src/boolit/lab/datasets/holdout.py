"""What a search may see of a dataset: rows to train on and rows to choose by, and none of its test rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from boolit.errors import UserError
from boolit.lab.common.random import generator, keys, stratified_order
from boolit.lab.datasets import AnySource, describe, load
from boolit.lab.datasets.base import Dataset, Description, Source, Split

SHARE = 0.2


class Holdout(Source):
    """The splits ``train`` and ``valid`` ``of`` another dataset. With ``share`` the latter is that share of the training rows,
    the same of every class, drawn with ``seed``; without, it is the dataset's own.

    Rows are encoded as those of the whole dataset are: a standardisation, for one, knows the held-out rows' inputs. Where
    training draws its samples anew in every step, the held-out ones are drawn once. Metrics of a dataset's own, which know its
    splits by name (``extra_metrics``), know nothing of held-out rows: such a dataset needs a ``valid`` of its own.
    """

    name: Literal["holdout"] = "holdout"
    of: AnySource
    share: float | None = Field(SHARE, gt=0, lt=1)
    seed: int = 0

    def prepare(self) -> None:
        self.of.prepare()

    def describe(self) -> Description:
        whole = describe(self.of)
        rows, valid = whole.samples["train"], whole.samples.get("valid", 0)
        if self.share is not None:
            valid = round(self.share * rows)
            rows -= valid
        return replace(whole, samples={"train": rows, "valid": valid})

    def load(self) -> Dataset:
        whole = load(self.of)
        if self.share is not None:
            return replace(whole, splits=self._cut(whole, self.share))
        if "valid" not in whole.splits:
            raise UserError(f"{self.of.name} has no split valid; give the share of its training rows to hold out")
        return replace(whole, splits={name: whole.splits[name] for name in ("train", "valid")})

    def _cut(self, whole: Dataset, share: float) -> Mapping[str, Split]:
        rows = whole.splits["train"]
        held = round(share * len(rows))
        if not 0 < held < len(rows):
            raise UserError(
                f"{share:g} of {len(rows)} training rows of {self.of.name} cannot be held out to choose by; give it more rows"
            )
        if whole.extra_metrics is not None:
            raise UserError(
                f"{self.of.name} has metrics of its own for the splits {', '.join(whole.splits)}, and none for rows held out; "
                "give it a split valid to choose by"
            )
        order = self._order(whole, rows.y)
        parts = (part.sort().values for part in (order[:held], order[held:]))
        valid, train = (Split(rows.x[part], rows.y[part]) for part in parts)
        if whole.draw is not None:
            x, y = whole.draw(valid.x.unsqueeze(0), valid.y.unsqueeze(0), keys([self.seed], "holdout", "draw"), 0)
            valid = Split(x.squeeze(0), y.squeeze(0))
        return {"train": train, "valid": valid}

    def _order(self, whole: Dataset, y: Tensor) -> Tensor:
        """The row numbers in an order whose first part is held out."""
        words = ("holdout", self.of.name)
        if whole.task == "regression" or y.numel() != len(y):
            return torch.randperm(len(y), generator=generator(self.seed, *words, "order"))
        return stratified_order(y.flatten().long(), self.seed, *words)


def for_choosing(data: Source) -> Holdout:
    """What a search sees of some data: its own split ``valid``, or rows held out of ``train`` where it has none."""
    return Holdout(of=data, share=None if "valid" in describe(data).samples else SHARE)
