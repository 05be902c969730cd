"""Runs one by one, on several threads at a time, are what torch does for each."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from boolit.lab.models.unstacked import PIECE, UnstackedRuns

RUNS, BATCH = 5, 8


@pytest.fixture(autouse=True, params=[1, 2, 7])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.PReLU(), nn.Linear(6, 2))


def unstacked() -> UnstackedRuns:
    networks = UnstackedRuns(RUNS, network())
    networks.initialise(range(RUNS))
    return networks


def one(networks: UnstackedRuns, run: int, x: Tensor) -> Tensor:
    state = {name: values[run] for name, values in networks.state_dict(keep_vars=True).items()}
    result: Tensor = functional_call(network().train(networks.training), state, (x,))
    return result


def test_gradients_reach_parameters_and_inputs() -> None:
    networks, x = unstacked(), torch.randn(RUNS, BATCH, 4, requires_grad=True)
    wanted = [x, *networks.parameters()]
    ours = torch.autograd.grad(networks(x).sin().sum(), wanted)
    results = torch.stack([one(networks, run, x[run]) for run in range(RUNS)])
    theirs = torch.autograd.grad(results.sin().sum(), wanted)
    for gradient, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(gradient, expected)


def test_frozen_parameters_stay_out_of_it() -> None:
    networks, x = unstacked(), torch.randn(RUNS, BATCH, 4)
    frozen = networks.get_parameter("0.weight").requires_grad_(False)
    networks(x).sum().backward()
    assert frozen.grad is None
    assert all(parameter.grad is not None for parameter in networks.parameters() if parameter is not frozen)


def test_the_number_of_threads_is_as_before(threads: int) -> None:
    networks, x = unstacked(), torch.randn(RUNS, BATCH, 4)
    networks(x).sum().backward()
    assert torch.get_num_threads() == threads


def test_an_error_of_a_run_is_the_callers_and_leaves_the_threads_alone(threads: int) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        unstacked()(torch.randn(RUNS, BATCH, 3))
    assert torch.get_num_threads() == threads


def test_samples_are_independent_in_evaluation_but_not_in_training() -> None:
    networks, x = unstacked(), torch.randn(RUNS, 2 * PIECE + 3, 4)
    with torch.no_grad():
        together = networks(x)
        assert not torch.allclose(together[:, :3], networks(x[:, :3]))
        networks.eval()
        whole = torch.stack([one(networks, run, x[run]) for run in range(RUNS)])
        torch.testing.assert_close(networks(x), whole)


def test_statistics_belong_to_their_run() -> None:
    networks, x = unstacked(), torch.randn(RUNS, BATCH, 4)
    with torch.no_grad():
        networks(x)
    means = networks.get_buffer("1.running_mean")
    for run in range(RUNS):
        single = network()
        single.load_state_dict({name: values[run] for name, values in unstacked().state_dict().items()})
        single(x[run])
        torch.testing.assert_close(means[run], single.get_buffer("1.running_mean"))


def test_layers_without_a_bias_start_differently_in_every_run_too() -> None:
    networks = UnstackedRuns(2, nn.Sequential(nn.Linear(4, 6, bias=False), nn.Linear(6, 2)))
    networks.initialise([1, 2])
    for name in ("0.weight", "1.weight", "1.bias"):
        first, second = networks.get_parameter(name).detach()
        assert not torch.equal(first, second)
