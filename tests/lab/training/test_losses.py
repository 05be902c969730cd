"""Losses and metrics of stacked runs are torch's and scikit-like definitions, run by run."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from boolit.lab.training.metrics import finite, losses, mean_of_run, metric_of_scores, scores

RUNS, BATCH = 3, 17


def test_cross_entropy() -> None:
    outputs, targets = torch.randn(RUNS, BATCH, 5), torch.randint(5, (RUNS, BATCH))
    ours = mean_of_run(losses("cross-entropy", outputs, targets))
    theirs = torch.stack([nn.CrossEntropyLoss()(o, t) for o, t in zip(outputs, targets, strict=True)])
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("loss", "function"), [("bce", F.binary_cross_entropy_with_logits), ("mse", F.mse_loss)])
def test_elementwise_losses(loss: str, function: object) -> None:
    outputs, targets = torch.randn(RUNS, BATCH, 2), torch.rand(RUNS, BATCH, 2).round()
    ours = mean_of_run(losses(loss, outputs, targets))  # type: ignore[arg-type]
    theirs = torch.stack([function(o, t) for o, t in zip(outputs, targets, strict=True)])  # type: ignore[operator]
    torch.testing.assert_close(ours, theirs)


def test_accuracy_of_classes_is_that_of_the_largest_output() -> None:
    outputs, targets = torch.randn(RUNS, BATCH, 5), torch.randint(5, (RUNS, BATCH))
    ours = metric_of_scores("classes", mean_of_run(scores("classes", outputs, targets)))
    torch.testing.assert_close(ours, (outputs.argmax(2) == targets).float().mean(1))


def test_equal_outputs_are_no_right_answer_but_for_the_first_class() -> None:
    targets = torch.arange(4).unsqueeze(0)
    assert float(mean_of_run(scores("classes", torch.zeros(1, 4, 4), targets))) == 0.25


def test_binary_accuracy_takes_the_sign() -> None:
    outputs, targets = torch.tensor([[[2.0], [-1.0], [0.5]]]), torch.tensor([[[1.0], [1.0], [1.0]]])
    assert float(mean_of_run(scores("binary", outputs, targets))) == pytest.approx(2 / 3)


def test_rmse_is_the_root_of_the_mean_squared_error() -> None:
    outputs, targets = torch.randn(RUNS, BATCH, 1), torch.randn(RUNS, BATCH, 1)
    ours = metric_of_scores("regression", mean_of_run(scores("regression", outputs, targets)))
    torch.testing.assert_close(ours, (outputs - targets).square().mean((1, 2)).sqrt())


def test_one_number_that_is_none_marks_its_run_only() -> None:
    values = torch.ones(3, 4)
    values[1, 2] = torch.nan
    other = torch.zeros(3, 2, 2)
    other[2, 0, 0] = torch.inf
    assert finite(values, other).tolist() == [True, False, False]
