"""Perceptrons: stacked networks against plain ones, and the widths of the paper and of the authors' sweeps."""

import pytest
import torch

import boolit
from boolit.errors import UserError
from boolit.lab.models import family, restore

SPECS = ("relu", "prelu", "or_ail", "xnor_il", "max_min_d", "or_and_xnor_nail_d", "or_xnor_ail_p")
SEEDS = [3, 8, 1]


@pytest.mark.parametrize("normalization", ["none", "batch", "layer"])
@pytest.mark.parametrize("spec", SPECS)
def test_stacked_networks_equal_plain_networks(spec: str, normalization: str) -> None:
    torch.manual_seed(0)
    mlp = family({"name": "mlp", "normalization": normalization})
    shape = ((2, 3), 4, (12, 24), spec)
    stacked = mlp.stacked(len(SEEDS), *shape)
    stacked.initialize(SEEDS)
    stacked.double()
    x, weights = torch.randn(3, 10, 2, 3, dtype=torch.float64), torch.randn(3, 10, 4, dtype=torch.float64)
    (stacked(x) * weights).sum().backward()
    outputs = stacked.eval()(x)
    gradients = {name.replace(".single.", "."): value.grad for name, value in stacked.named_parameters()}
    for run, seed in enumerate(SEEDS):
        network = mlp.network(*shape)
        mlp.initialize(network, seed)
        network.double()
        (network(x[run]) * weights[run]).sum().backward()
        torch.testing.assert_close(network.eval()(x[run]), outputs[run])
        for name, value in network.named_parameters():
            torch.testing.assert_close(gradients[name][run], value.grad)
        restored = restore(mlp, *shape, {name: v.float() for name, v in stacked.weights(run).items()})
        torch.testing.assert_close(restored(x[run].float()), outputs[run].float(), rtol=1e-4, atol=1e-4)


def test_dropout_depends_on_seed_and_step_only() -> None:
    mlp = family({"name": "mlp", "dropout": 0.5})

    def outputs(seeds: list[int], step: int) -> torch.Tensor:
        stacked = mlp.stacked(len(seeds), [3], 2, [64], "relu")
        stacked.initialize(seeds)
        for layer in stacked.dropout:
            layer.step = step
        return stacked(torch.ones(len(seeds), 4, 3))

    torch.testing.assert_close(outputs([1, 2], 5)[1], outputs([2], 5)[0])
    assert not torch.allclose(outputs([2], 5), outputs([2], 6))


def test_small_initialization_is_the_authors() -> None:
    mlp = family({"name": "mlp", "initialization": "small"})
    network = mlp.network([50], 3, [40], "relu")
    mlp.initialize(network, 0)
    for layer in network.linear:
        assert 0.004 < float(layer.weight.detach().abs().max()) <= 0.005
        assert not layer.bias.any()


# facts: widths and parameters of the sweeps behind tab:mlp-mnist, for 2^14, 2^16, 2^18 and 2^22 parameters.
SWEEPS = {
    "relu": [(20, 16, 16278), (76, 61, 65251), (261, 209, 262683), (1846, 1477, None)],
    "or_ail": [(20, 16, 16038), (78, 62, 64310), (288, 230, 261626), (2398, 1918, None)],
    "max_min_d": [(20, 16, 16278), (76, 60, 65162), (260, 208, 261414)],
    "or_and_xnor_ail_d": [(18, 14, 14806), (72, 58, 63982), (240, 192, 261466)],
    "or_and_xnor_ail_pu": [(20, 16, 16038), (78, 62, 64310), (288, 230, 261626)],
}


@pytest.mark.parametrize("spec", SWEEPS)
def test_widths_of_the_sweeps(spec: str) -> None:
    mlp, gate = family({"name": "mlp", "normalization": "batch", "budget_widths": "sweeps"}), boolit.activation(spec)
    for exponent, (first, second, count) in zip((14, 16, 18, 22), SWEEPS[spec], strict=False):
        widths = mlp.widths_for_budget(2**exponent, 2, [28, 28], 10, gate)
        assert widths == [first, second]
        assert count in (None, mlp.parameters([28, 28], 10, widths, gate))


def test_widths_of_the_sweeps_need_two_layers() -> None:
    with pytest.raises(UserError, match=r"sweep\.depth = 2"):
        family({"name": "mlp", "budget_widths": "sweeps"}).widths_for_budget(1000, 3, [4], 1, boolit.activation("relu"))


# facts: nearest equal widths for 2^14, 2^16 and 2^18 parameters, as the paper's text says.
@pytest.mark.parametrize(
    ("spec", "expected"), [("relu", (20, 75, 250)), ("or_ail", (20, 78, 280)), ("or_and_xnor_ail_d", (20, 72, 228))]
)
def test_equal_widths(spec: str, expected: tuple[int, ...]) -> None:
    mlp = family({"name": "mlp", "normalization": "batch"})
    for exponent, width in zip((14, 16, 18), expected, strict=True):
        assert mlp.widths_for_budget(2**exponent, 2, [784], 10, boolit.activation(spec)) == [width, width]


def test_a_linear_head_has_no_budget() -> None:
    with pytest.raises(UserError, match=r"sweep\.width"):
        family({"name": "head"}).widths_for_budget(1000, 2, [8], 3, boolit.activation("identity"))
