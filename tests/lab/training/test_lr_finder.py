"""The learning-rate finder."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from boolit.errors import UserError
from boolit.lab.training import Job, train
from boolit.lab.training.lr_finder import find_learning_rate

MakeJob = Callable[..., Job]


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_it_finds_a_rate_that_learns(make_job: MakeJob, precision: str) -> None:
    job = make_job({"name": "xor"}, widths=(8,), activation="or_and_ail_d", learning_rate="find", precision=precision)
    rate = find_learning_rate(job)
    assert 1e-3 < rate < 1
    result = train(job)
    assert result is not None
    assert result[0].metrics["learning_rate"] == rate


def test_a_prelude_and_patience_do_not_matter(make_job: MakeJob) -> None:
    plain = make_job(learning_rate="find")
    assert find_learning_rate(plain) == find_learning_rate(make_job(learning_rate="find", prelude=1, patience=1, valid=True))


def test_it_raises_if_every_rate_diverges(make_job: MakeJob) -> None:
    job = make_job(learning_rate="find")
    train_split = replace(job.dataset.splits["train"], x=torch.full((256, 4), torch.inf))
    job = replace(job, dataset=replace(job.dataset, splits={"train": train_split}))
    with pytest.raises(UserError, match="every learning rate"):
        find_learning_rate(job)
