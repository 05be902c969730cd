"""Every stacked layer does for each run what torch's layer does for one."""

import pytest
import torch
from torch import Tensor, nn

import boolit
from boolit.lab.models.layers import (
    LearntActivation,
    StackedBatchNorm,
    StackedDropout,
    StackedLayerNorm,
    StackedLinear,
    stacked_activation,
)

RUNS, FEATURES, BATCH = 5, 6, 32


def of_run(stacked: nn.Module, single: nn.Module, run: int) -> nn.Module:
    """torch's layer with the parameters of one run."""
    single.load_state_dict({name: value[run] for name, value in stacked.state_dict().items()}, strict=False)
    return single


def random_like(layer: nn.Module) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()


def compare(stacked: nn.Module, single: nn.Module, x: Tensor) -> None:
    """Forward and all gradients of every run against torch's layer on that run alone."""
    x = x.requires_grad_()
    result = stacked(x)
    weights = torch.randn_like(result)
    wanted = torch.autograd.grad((result * weights).sum(), [x, *stacked.parameters()])
    for run in range(RUNS):
        alone = of_run(stacked, single, run)
        own = x.detach()[run].T.clone().requires_grad_()
        expected = alone(own)
        torch.testing.assert_close(result[run].T, expected, rtol=1e-5, atol=1e-5)
        gradients = torch.autograd.grad((expected * weights[run].T).sum(), [own, *alone.parameters()])
        for ours, theirs in zip(wanted, (gradients[0].T, *gradients[1:]), strict=True):
            torch.testing.assert_close(ours[run], theirs, rtol=1e-4, atol=1e-4)


def test_linear() -> None:
    stacked = StackedLinear(RUNS, FEATURES, 3)
    random_like(stacked)
    compare(stacked, nn.Linear(FEATURES, 3), torch.randn(RUNS, FEATURES, BATCH))


def test_layer_norm() -> None:
    stacked = StackedLayerNorm(RUNS, FEATURES)
    random_like(stacked)
    compare(stacked, nn.LayerNorm(FEATURES), torch.randn(RUNS, FEATURES, BATCH))


def test_batch_norm_while_training() -> None:
    stacked = StackedBatchNorm(RUNS, FEATURES)
    random_like(stacked)
    compare(stacked, nn.BatchNorm1d(FEATURES), 3 * torch.randn(RUNS, FEATURES, BATCH) + 1)


def test_batch_norm_keeps_the_running_statistics_of_each_run() -> None:
    stacked, x = StackedBatchNorm(RUNS, FEATURES), 3 * torch.randn(4, RUNS, FEATURES, BATCH) + 1
    singles = [nn.BatchNorm1d(FEATURES) for _ in range(RUNS)]
    for batch in x:
        stacked(batch)
        for run, single in enumerate(singles):
            single(batch[run].T)
    stacked.eval()
    for run, single in enumerate(singles):
        torch.testing.assert_close(stacked.running_mean[run], single.running_mean)
        torch.testing.assert_close(stacked.running_var[run], single.running_var)
        torch.testing.assert_close(stacked(x[0])[run].T, single.eval()(x[0, run].T))


def test_linear_starts_as_torchs_does() -> None:
    stacked = StackedLinear(2, 400, 300)
    stacked.initialise([1, 2], "linear.0")
    theirs = nn.Linear(400, 300)
    for ours, wanted in ((stacked.weight, theirs.weight), (stacked.bias, theirs.bias)):
        assert float(ours.detach().abs().max()) <= 1 / 20
        assert float(ours[0].detach().std()) == pytest.approx(float(wanted.detach().std()), rel=0.1)
    assert not torch.equal(stacked.weight[0], stacked.weight[1])


def test_a_runs_first_weights_depend_on_its_seed_only() -> None:
    many, one = StackedLinear(3, 4, 5), StackedLinear(1, 4, 5)
    many.initialise([7, 8, 9], "linear.0")
    one.initialise([8], "linear.0")
    assert torch.equal(many.weight[1], one.weight[0])
    assert torch.equal(many.bias[1], one.bias[0])


def test_small_initialisation_has_no_bias() -> None:
    linear = StackedLinear(2, 3, 4)
    linear.initialise([1, 2], "linear.0", bound=0.005)
    assert 0 < float(linear.weight.detach().abs().max()) <= 0.005
    assert not linear.bias.any()


def test_dropout_scales_what_it_keeps_and_is_off_in_evaluation() -> None:
    dropout, x = StackedDropout(3, 0.25), torch.ones(3, 40, 100)
    dropout.initialise([1, 2, 3], "dropout.0")
    dropped = dropout(x)
    assert dropped.unique().tolist() == pytest.approx([0.0, 4 / 3])
    for run in dropped:
        assert float((run == 0).float().mean()) == pytest.approx(0.25, abs=0.03)
    assert torch.equal(dropout.eval()(x), x)


def test_dropout_of_a_run_depends_on_its_seed_and_the_step_only() -> None:
    many, one, x = StackedDropout(3, 0.5), StackedDropout(1, 0.5), torch.ones(3, 8, 16)
    many.initialise([1, 2, 3], "dropout.0")
    one.initialise([2], "dropout.0")
    many.step = one.step = 5
    assert torch.equal(many(x)[1], one(x[1:2])[0])
    one.step = 6
    assert not torch.equal(many(x)[1], one(x[1:2])[0])


@pytest.mark.parametrize("spec", ["relu", "xnor_ail", "or_il", "glu", "or_and_xnor_nail_d", "or_xnor_ail_p", "max_min_d"])
def test_activations_act_along_the_features(spec: str) -> None:
    x = torch.randn(RUNS, 12, BATCH)
    result = stacked_activation(RUNS, spec)(x)
    for run in range(RUNS):
        torch.testing.assert_close(result[run].T, boolit.activation(spec)(x[run].T))


def test_prelu_learns_separately_in_every_run() -> None:
    stacked = stacked_activation(RUNS, "prelu")
    assert isinstance(stacked, LearntActivation)
    (slopes,) = stacked.parameters()
    assert slopes.shape[0] == RUNS
    with torch.no_grad():
        slopes.copy_(torch.linspace(0.1, 0.5, RUNS).view_as(slopes))
    x = torch.randn(RUNS, FEATURES, BATCH)
    result = stacked(x)
    (gradient,) = torch.autograd.grad(result.sum(), [slopes])
    for run in range(RUNS):
        torch.testing.assert_close(result[run], torch.where(x[run] > 0, x[run], slopes[run] * x[run]))
        torch.testing.assert_close(gradient[run], x[run].clamp(max=0).sum().view(1))
