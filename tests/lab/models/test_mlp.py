"""The stacked MLP is as many MLPs of torch, with the parameters the planner counts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import boolit
from boolit.lab.models import MODELS, family, restore
from boolit.lab.runs import RunConfig
from boolit.nn.width import count_parameters

SPECS = ("relu", "prelu", "or_ail", "max_min_d", "or_and_xnor_nail_d", "or_xnor_ail_p")


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(SPECS),
    st.lists(st.sampled_from([4, 8, 12]), min_size=1, max_size=3),
    st.sampled_from(["none", "batch", "layer"]),
)
def test_the_count_of_parameters_is_right(spec: str, widths: list[int], normalisation: str) -> None:
    mlp = family({"name": "mlp", "normalisation": normalisation})
    built = mlp.build(3, (5, 2), 7, widths, spec)
    assert 3 * mlp.parameters((5, 2), 7, widths, boolit.activation(spec)) == count_parameters(built)


@pytest.mark.parametrize("spec", ["relu", "xnor_ail", "or_and_xnor_nail_d"])
def test_each_run_is_an_mlp_of_torch(spec: str) -> None:
    stacked = family({"name": "mlp", "normalisation": "batch"}).build(4, (6,), 3, [8, 4], spec)
    stacked.initialise([1, 2, 3, 4])
    x = torch.randn(4, 16, 6)
    together = stacked(x)
    state = stacked.state_dict()
    for run in range(4):
        layers: list[nn.Module] = []
        for i, width in enumerate((8, 4)):
            linear = nn.Linear(state[f"linear.{i}.weight"].shape[2], width)
            linear.load_state_dict({name: state[f"linear.{i}.{name}"][run] for name in ("weight", "bias")})
            layers += [linear, nn.BatchNorm1d(width), boolit.activation(spec)]
        last = nn.Linear(state["linear.2.weight"].shape[2], 3)
        last.load_state_dict({name: state[f"linear.2.{name}"][run] for name in ("weight", "bias")})
        torch.testing.assert_close(together[run], nn.Sequential(*layers, last)(x[run]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("spec", "width"), [("relu", 250), ("or_ail", 280), ("max_min_d", 250), ("or_and_xnor_ail_d", 228)])
def test_a_budget_gives_the_widths_of_the_mnist_table(spec: str, width: int) -> None:
    mlp = family({"name": "mlp", "normalisation": "batch"})
    assert mlp.widths_for_budget(2**18, 2, (784,), 10, boolit.activation(spec)) == [width, width]


def test_a_kept_network_is_restored() -> None:
    table = {"name": "mlp", "normalisation": "batch", "dropout": 0.2}
    stacked = family(table).build(3, (4,), 2, [6], "or_ail")
    stacked.initialise([1, 2, 3])
    stacked(torch.randn(3, 50, 4))
    config = {"model": table, "inputs": [4], "outputs": 2, "width": [6], "activation": "or_ail"}
    network = restore(RunConfig.from_dict(config), {name: values[1] for name, values in stacked.state_dict().items()})
    x = torch.randn(1, 9, 4)
    torch.testing.assert_close(network(x)[0], stacked.eval()(x.expand(3, 9, 4))[1])


def test_an_unknown_model_lists_the_known() -> None:
    assert "mlp" in MODELS.names()
    with pytest.raises(ValueError, match="unknown model 'perceptron'"):
        family({"name": "perceptron"})
