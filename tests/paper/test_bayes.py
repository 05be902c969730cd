"""a:bayesrule: the posterior logit is the prior logit plus log-likelihood ratios, and a linear layer is such a sum."""

from __future__ import annotations

import runpy
from pathlib import Path

import matplotlib as mpl
import pytest
import torch
from sklearn.naive_bayes import BernoulliNB

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "plot_bayes.py"


@pytest.fixture(scope="module")
def example() -> dict[str, torch.Tensor]:
    mpl.use("agg")
    return runpy.run_path(str(EXAMPLE))


def test_the_layer_of_the_example_computes_the_posterior(example) -> None:
    seen = example["evidence"]
    present, absent = (
        torch.where(seen > 0, likelihood, 1 - likelihood) for likelihood in (example["present"], example["absent"])
    )
    expected = example["prior"].logit() + (present.log() - absent.log()).sum(1)
    torch.testing.assert_close(example["logits"], expected, atol=1e-5, rtol=1e-5)


def test_naive_bayes_is_a_layer_of_log_probabilities(example) -> None:
    estimator = BernoulliNB(class_prior=example["priors"].numpy(), fit_prior=False)
    estimator.fit(torch.eye(6).numpy()[:3], [0, 1, 2])  # sets the shapes; the probabilities are those of the example
    estimator.feature_log_prob_ = example["classes"].log().numpy()
    expected = torch.tensor(estimator.predict_proba(example["evidence"].numpy()), dtype=torch.float32)
    torch.testing.assert_close(example["posteriors"], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("bias", "operation"), [(-1.5, torch.Tensor.all), (-0.5, torch.Tensor.any)])
def test_separators_of_and_and_or(bias: float, operation) -> None:
    layer = torch.nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight[:], layer.bias[:] = 1.0, bias
        bits = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 2)
        assert (layer(bits)[:, 0] > 0).equal(operation(bits, 1))
