"""What finished networks that choose pairs are worth on seen and unseen ones, at every bias (a:czsl)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from safetensors.torch import load_file

from boolit.lab.composition import Curve, curves
from boolit.lab.data.compositional import Compositional
from boolit.lab.errors import UserError
from boolit.lab.models import restore
from boolit.lab.results.store import Store
from boolit.lab.runs import Record
from boolit.lab.training.evaluation import answers
from boolit.lab.training.job import Job


@dataclass(frozen=True)
class RunCurve:
    """The curve of one run on the test split."""

    activation: str
    curve: Curve


def seen_unseen(record: Record, store: Store) -> RunCurve:
    """The curve for one guess of a run whose weights were kept."""
    config: Mapping[str, Any] = record.config
    job = Job.of([config])
    if not isinstance(job.dataset, Compositional):
        raise UserError(
            f"run {record.key} has the data {config['data']['name']!r}, which has no pairs; give a run of a set that has"
        )
    test, network = job.dataset.splits["test"], restore(config, load_file(store.weights(record.key)))
    scores = torch.cat([piece for _, piece in answers(job, network, test.x)], 1)
    (of_depths,) = curves(scores, test.y, job.dataset.pairs, "test", depths=(1,))
    return RunCurve(str(config["activation"]), of_depths[0])
