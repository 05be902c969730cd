"""The stacked pre-activation ResNets are as many networks of torch, with the paper's shape, widths and counts."""

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.datasets import Dataset, Split
from boolit.lab.models import family, restore
from boolit.lab.models.preact_resnet import BLOCKS, base_widths, hidden_widths
from boolit.lab.runs import RunConfig
from boolit.lab.training import Job, Recipe, StackedTraining
from boolit.nn.width import count_parameters

pytestmark = pytest.mark.usefixtures("one_thread")

SPECS = ("relu", "prelu", "or_ail", "xnor_il", "max_min_d", "or_and_xnor_nail_d", "or_xnor_ail_p", "or_and_xnor_ail_p")
WIDTHS = [12, 12, 24, 24]
PICTURE = (3, 9, 8)
DEPTHS = tuple(BLOCKS)


def straight(values: dict[str, Tensor], x: Tensor, spec: str, depth: int) -> Tensor:
    """The same network as one function of its parameters, in training mode, written straight down."""
    kernels = (3, 3) if depth < 50 else (1, 3, 1)

    def normal(x: Tensor, name: str) -> Tensor:
        return F.batch_norm(x, None, None, values[f"{name}.weight"], values[f"{name}.bias"], training=True)

    x = F.relu(normal(F.conv2d(x, values["stem.weight"], padding=1), "norm"))
    for block in range(sum(BLOCKS[depth])):
        first_of_stage = block in [sum(BLOCKS[depth][:stage]) for stage in (1, 2, 3)]
        identity = values.get(f"blocks.{block}.identity.weight")
        out = x
        for i, kernel in enumerate(kernels):
            name = f"blocks.{block}.steps.{i}"
            stride = 2 if first_of_stage and i == len(kernels) - 2 else 1
            slope = values.get(f"{name}.activation.function.weight")
            activation = boolit.activation(spec, dim=1)
            hidden = normal(out, f"{name}.norm")
            hidden = activation(hidden) if slope is None else F.prelu(hidden, slope)
            out = F.conv2d(hidden, values[f"{name}.convolution.weight"], stride=stride, padding=kernel // 2)
        x = out + (x if identity is None else F.conv2d(x, identity, stride=2 if first_of_stage else 1))
    return F.linear(x.mean((2, 3)), values["linear.weight"], values["linear.bias"])


@pytest.mark.parametrize(("spec", "depth"), [*((spec, 50) for spec in SPECS), ("relu", 18), ("or_ail", 34)])
def test_each_run_is_the_network_written_straight_down(spec: str, depth: int) -> None:
    torch.manual_seed(0)
    stacked = family({"name": "preact-resnet", "depth": depth, "base": 6}).build(2, PICTURE, 5, WIDTHS, spec).double()
    stacked.initialise([1, 2])
    with torch.no_grad():
        for name, values in stacked.named_parameters():
            if ".norm." in name or name.startswith("norm"):
                values.add_(0.3 * torch.randn_like(values))
    x = torch.randn(2, 4, *PICTURE, dtype=torch.float64)
    outputs = stacked(x)
    parameters = dict(stacked.named_parameters())
    weights = torch.randn_like(outputs)
    gradients = dict(zip(parameters, torch.autograd.grad((outputs * weights).sum(), list(parameters.values())), strict=True))
    for run in range(2):
        own = {name: values[run].detach().requires_grad_() for name, values in parameters.items()}
        theirs = straight(own, x[run], spec, depth)
        torch.testing.assert_close(outputs[run], theirs, rtol=1e-8, atol=1e-8)
        found = torch.autograd.grad((theirs * weights[run]).sum(), list(own.values()))
        for gradient, other in zip(gradients.values(), found, strict=True):
            torch.testing.assert_close(gradient[run], other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("spec", ["silu", "or_ail"])
def test_only_the_stem_is_always_relu(spec: str) -> None:
    network = family({"name": "preact-resnet", "base": 8}).network(PICTURE, 5, WIDTHS, spec)
    exchanged = [module for module in network.modules() if isinstance(module, boolit.nn.Activation)]
    assert len(exchanged) == 48
    assert {module.spec for module in exchanged} == {spec}
    entered: list[Tensor] = []
    network.blocks.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    with torch.no_grad():
        network(torch.randn(2, *PICTURE))
    assert float(entered[0].min()) == 0
    assert float((entered[0] == 0).float().mean()) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("depth", DEPTHS)
def test_it_has_as_many_layers_as_its_name_says(depth: int) -> None:
    with torch.device("meta"):
        network = family({"name": "preact-resnet", "depth": depth, "base": 8}).network(PICTURE, 5, WIDTHS, "relu")
    layers = [name for name, module in network.named_modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    projections = [name for name in layers if name.endswith("identity")]
    assert len(layers) - len(projections) == depth
    assert len(projections) == (3 if depth < 50 else 4)
    assert {module.bias for module in network.modules() if isinstance(module, nn.Conv2d)} == {None}
    assert network.linear.in_features == (64 if depth < 50 else 256)


@pytest.mark.parametrize(("depth", "published"), [(18, 11_173_962), (34, 21_282_122)])
def test_basic_networks_have_the_published_count_but_for_where_norms_are(depth: int, published: int) -> None:
    """Against ResNets for CIFAR-10 with norms after convolutions: they have one after each projection, and one on what leaves
    a block in place of ours on what enters it.
    """
    resnet = family({"name": "preact-resnet", "depth": depth})
    after_projections, last_less_first = 2 * (128 + 256 + 512), 2 * (512 - 64)
    count = resnet.parameters((3, 32, 32), 10, [64, 128, 256, 512], boolit.activation("relu"))
    assert count == published - after_projections - last_less_first


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(SPECS),
    st.lists(st.sampled_from([12, 24]), min_size=4, max_size=4),
    st.sampled_from(DEPTHS),
    st.integers(1, 13),
    st.sampled_from([(1, 1, 1), (3, 9, 8), (4, 5, 2)]),
)
def test_the_count_of_parameters_is_right(
    spec: str, widths: list[int], depth: int, base: int, inputs: tuple[int, int, int]
) -> None:
    resnet = family({"name": "preact-resnet", "depth": depth, "base": base})
    with torch.device("meta"):
        built = resnet.network(inputs, 7, widths, spec)
    assert resnet.parameters(inputs, 7, widths, boolit.activation(spec)) == count_parameters(built)


@settings(max_examples=15, deadline=None)
@given(st.floats(1.2, 40), st.sampled_from(SPECS), st.sampled_from([18, 50]), st.sampled_from([8, 16, 64]))
def test_any_budget_is_met_by_the_nearest_width(share: float, spec: str, depth: int, base: int) -> None:
    resnet, activation = family({"name": "preact-resnet", "depth": depth, "base": base}), boolit.activation(spec)

    def count(widths: list[int]) -> int:
        return resnet.parameters((3, 32, 32), 10, widths, activation)

    budget = int(share * count(hidden_widths(base_widths(base, activation.divisor), Fraction(1, 4), activation.divisor)))
    widths = resnet.widths_for_budget(budget, 1, (3, 32, 32), 10, activation)
    first = base_widths(base, activation.divisor)
    neighbours = [
        hidden_widths(first, Fraction(widths[0] + step, first[0]), activation.divisor)
        for step in (-activation.divisor, activation.divisor)
        if widths[0] + step > 0
    ]
    assert all(width % activation.divisor == 0 for width in widths)
    assert all(abs(count(widths) - budget) <= abs(count(other) - budget) for other in neighbours)


def test_a_budget_stands_for_a_factor_of_the_paper() -> None:
    resnet = family({"name": "preact-resnet", "sizes": "paper"})
    found = {
        spec: [
            resnet.widths_for_budget(budget * 10**6, 1, (3, 32, 32), 10, boolit.activation(spec))
            for budget in (6, 10, 23, 67, 225)
        ]
        for spec in ("relu", "or_xnor_ail_p", "or_and_xnor_ail_p", "or_and_xnor_ail_d")
    }
    assert found["relu"] == [[n, 2 * n, 4 * n, 8 * n] for n in (16, 32, 64, 128, 256)]
    assert found["or_xnor_ail_p"] == [[n, 2 * n, 4 * n, 8 * n] for n in (24, 48, 96, 192, 384)]
    assert found["or_and_xnor_ail_p"][2] == [90, 192, 378, 768]
    assert found["or_and_xnor_ail_d"][:3] == [[12, 26, 52, 102], [26, 52, 102, 204], [48, 96, 192, 384]]


@pytest.mark.parametrize("spec", ["relu", "silu", "or_ail", "or_il", "max", "or_and_xnor_nail_d"])
@pytest.mark.parametrize("depth", [18, 50])
def test_what_a_sample_leaves_for_the_backward_pass_is_estimated_within_a_factor_of_2(
    numbers_kept: Callable[[nn.Module, Tensor], float], spec: str, depth: int
) -> None:
    resnet, batch, inputs = family({"name": "preact-resnet", "depth": depth, "base": 12}), 4, (3, 32, 32)
    network = resnet.network(inputs, 10, WIDTHS, spec)
    numbers = numbers_kept(network, torch.randn(batch, *inputs)) / batch
    assert 0.5 < resnet.saved_numel(inputs, 10, WIDTHS, boolit.activation(spec)) / numbers < 2


def test_first_weights_are_of_the_runs_seed_only_and_small_ones_are_for_the_linear_layer() -> None:
    resnet = family({"name": "preact-resnet", "depth": 18, "base": 12, "initialisation": "small"})
    many, alone = (resnet.build(runs, PICTURE, 5, WIDTHS, "or_ail") for runs in (3, 1))
    before = torch.random.get_rng_state()
    many.initialise([7, 8, 9]), alone.initialise([8])
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(values[1], alone.state_dict()[name][0]) for name, values in many.state_dict().items())
    assert not torch.equal(many.get_parameter("stem.weight")[0], many.get_parameter("stem.weight")[1])
    assert 0.004 < float(many.get_parameter("linear.weight").detach().abs().max()) <= 0.005
    assert float(many.get_parameter("linear.bias").detach().abs().max()) == 0
    theirs = nn.Conv2d(3, 12, 3).weight.detach()
    assert float(many.get_parameter("stem.weight").detach().abs().max()) == pytest.approx(float(theirs.abs().max()), rel=0.02)


def test_pictures_stay_with_their_channels_last() -> None:
    network = family({"name": "preact-resnet", "base": 12}).network((1, 8, 8), 5, WIDTHS, "or_ail")
    layouts: list[bool] = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(
                lambda _, __, out: layouts.append(out.is_contiguous(memory_format=torch.channels_last))
            )
    network(torch.randn(2, 1, 8, 8))
    assert len(layouts) == 53
    assert all(layouts)


def test_it_learns_and_is_restored() -> None:
    torch.manual_seed(0)
    y = torch.arange(64) % 2
    split = Split(torch.randn(64, 3, 8, 8) + 2 * y.view(-1, 1, 1, 1), y)
    recipe = Recipe.model_validate({"epochs": 4, "batch": 16, "learning_rate": 0.005})
    resnet = {"name": "preact-resnet", "depth": 18, "base": 4}
    job = Job(Dataset({"train": split, "test": split}, "classes", 2), family(resnet), "or_ail", (4, 4, 4, 4), (recipe,), (0,))
    training = StackedTraining(job)
    while not training.done:
        training.step()
    losses = [float(loss) for loss in training.history["train_loss"]]
    assert losses[-1] < 0.5 * losses[0]
    config = {"model": resnet, "inputs": [3, 8, 8], "outputs": 2, "width": [4, 4, 4, 4], "activation": "or_ail"}
    network = restore(RunConfig.from_dict(config), {name: values[0] for name, values in training.model.state_dict().items()})
    torch.testing.assert_close(network(split.x.unsqueeze(0)), training.model.eval()(split.x.unsqueeze(0)))


def test_what_cannot_be_is_refused_with_the_way_out() -> None:
    resnet, relu = family({"name": "preact-resnet", "sizes": "paper"}), boolit.activation("relu")
    with pytest.raises(UserError, match=r"a budget of 40,000,000: .*relu have 5,868,426, .*or use sizes = 'any'"):
        resnet.widths_for_budget(40_000_000, 1, (3, 32, 32), 10, relu)
    with pytest.raises(UserError, match=r"or_ail_k4 maps 4→1: the paper has .*2→3 only; use sizes = 'any'"):
        resnet.widths_for_budget(6_000_000, 1, (3, 32, 32), 10, boolit.activation("or_ail_k4"))
    with pytest.raises(UserError, match=r"sweep.depth of 3: .*leave sweep.depth out"):
        resnet.widths(16, 3)
    with pytest.raises(UserError, match=r"2 widths \(\[8, 8\]\).*give 4"):
        resnet.parameters((3, 32, 32), 10, [8, 8], relu)
    with pytest.raises(UserError, match=r"samples of shape \(28, 28\): a ResNet takes"):
        resnet.parameters((28, 28), 10, WIDTHS, relu)
    with pytest.raises(ValueError, match="depth"):
        family({"name": "preact-resnet", "depth": 20})
    assert resnet.widths(16, 1) == [16, 32, 64, 128]
