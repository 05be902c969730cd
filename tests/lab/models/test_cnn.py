"""The stacked CNN is as many CNNs of torch, with the paper's widths and the parameters the planner counts."""

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.datasets import Dataset, Split
from boolit.lab.models import family, restore
from boolit.lab.models.cnn import nominal_widths, size_for_budget
from boolit.lab.runs import RunConfig
from boolit.lab.training import Job, Recipe, StackedTraining
from boolit.lab.training.cohort import Outcome, outcomes
from boolit.nn.width import count_parameters

pytestmark = pytest.mark.usefixtures("one_thread")

SPECS = ("relu", "prelu", "or_ail", "xnor_il", "max_min_d", "or_and_xnor_nail_d", "or_xnor_ail_p", "or_and_xnor_ail_p")
WIDTHS = [12, 12, 12, 12, 12, 12, 24, 12]
PICTURE = (11, 9)


def plain(spec: str, channels: int = 1, cells: int = 1) -> nn.Sequential:
    """The same network written the usual way; the pixels of a picture of 11 × 9 are pooled to one."""

    def activation() -> boolit.nn.Activation:
        return boolit.activation(spec, dim=1)

    layers: list[nn.Module] = []
    for i, width in enumerate(WIDTHS[:6]):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), activation()]
        layers += [nn.MaxPool2d(2, 2)] if i in (1, 3, 5) else []
        channels = activation().out_features(width)
    layers.append(nn.Flatten())
    channels *= cells
    for width in WIDTHS[6:]:
        layers += [nn.Linear(channels, width), activation()]
        channels = activation().out_features(width)
    return nn.Sequential(*layers, nn.Linear(channels, 5))


def copy_run(stacked: nn.Module, run: int, single: nn.Sequential) -> dict[str, str]:
    """Gives torch's network the values of one run; returns the stacked name of each of its parameters."""
    kinds = {nn.Conv2d: "convolution", nn.BatchNorm2d: "norm", nn.Linear: "linear"}
    counts = dict.fromkeys([*kinds.values(), "activation"], 0)
    names = {}
    for place, layer in single.named_children():
        kind = kinds.get(type(layer), "activation")
        if isinstance(layer, (nn.MaxPool2d, nn.Flatten)):
            continue
        for name, value in layer.state_dict().items():
            value.copy_(stacked.state_dict()[f"{kind}.{counts[kind]}.{name}"][run])
            names[f"{place}.{name}"] = f"{kind}.{counts[kind]}.{name}"
        counts[kind] += 1
    return names


def random_networks(runs: int, spec: str, inputs: tuple[int, ...] = PICTURE) -> nn.Module:
    stacked = family({"name": "cnn"}).build(runs, inputs, 5, WIDTHS, spec)
    stacked.initialise(range(runs))
    with torch.no_grad():
        for name, values in stacked.named_parameters():
            if name.startswith(("norm", "activation")):
                values.add_(0.3 * torch.randn_like(values))
    return stacked


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("channels", "dtype", "tolerance"), [(None, torch.float32, 1e-5), (3, torch.float64, 1e-12)])
def test_each_run_is_a_cnn_of_torch(spec: str, channels: int | None, dtype: torch.dtype, tolerance: float) -> None:
    torch.manual_seed(0)
    inputs = (channels, *PICTURE) if channels else PICTURE
    stacked, x = random_networks(3, spec, inputs).to(dtype), torch.randn(3, 16, *inputs, dtype=dtype)
    singles = [plain(spec, channels or 1).to(dtype) for _ in range(3)]
    names = [copy_run(stacked, run, single) for run, single in enumerate(singles)]
    outputs = stacked(x)
    weights = torch.randn_like(outputs) / 16
    parameters = dict(stacked.named_parameters())
    gradients = dict(zip(parameters, torch.autograd.grad((outputs * weights).sum(), list(parameters.values())), strict=True))
    for run, single in enumerate(singles):
        theirs = single(x[run] if channels else x[run].unsqueeze(1))
        torch.testing.assert_close(outputs[run], theirs, rtol=tolerance, atol=tolerance)
        (theirs * weights[run]).sum().backward()
        for name, parameter in single.named_parameters():
            torch.testing.assert_close(gradients[names[run][name]][run], parameter.grad, rtol=tolerance, atol=tolerance)
    stacked.eval()
    for run, single in enumerate(singles):
        theirs = single.eval()(x[run] if channels else x[run].unsqueeze(1))
        torch.testing.assert_close(stacked(x)[run], theirs, rtol=tolerance, atol=tolerance)


def everything(networks: nn.Module, x: Tensor) -> list[Tensor]:
    """Outputs, gradients, and the statistics they leave."""
    outputs = networks(x)
    return [
        outputs.detach(),
        *torch.autograd.grad(outputs.square().mean((1, 2)).sum(), list(networks.parameters())),
        *networks.buffers(),
    ]


@pytest.mark.parametrize("spec", ["relu", "or_ail", "prelu", "or_il"])
def test_a_run_is_bitwise_the_same_whoever_shares_its_cohort(spec: str) -> None:
    x = torch.randn(5, 32, 28, 28)
    others = torch.randn(5, 32, 28, 28)
    others[3] = x[3]
    cnn = family({"name": "cnn"})
    cohort, again = (cnn.build(5, (28, 28), 10, WIDTHS, spec) for _ in range(2))
    cohort.initialise(range(5)), again.initialise([9, 8, 7, 3, 6])
    for values, theirs in zip(everything(cohort, x), everything(again, others), strict=True):
        assert torch.equal(values[3], theirs[3])


@pytest.mark.parametrize("spec", ["relu", "or_ail", "prelu", "or_il"])
def test_alone_or_with_more_threads_it_differs_by_rounding_only(spec: str) -> None:
    """In float64: sums of at most 32 · 28 · 28 terms through ten layers part by 3e-11 of their largest terms."""
    x = torch.randn(5, 32, 28, 28, dtype=torch.float64)
    cnn = family({"name": "cnn"})
    cohort, again, alone, shared = (cnn.build(runs, (28, 28), 10, WIDTHS, spec).double() for runs in (5, 5, 1, 1))
    cohort.initialise(range(5)), again.initialise(range(5)), alone.initialise([3]), shared.initialise([3])
    of_cohort, of_one = everything(cohort, x), everything(alone, x[3:4])
    torch.set_num_threads(2)
    with_two_threads, of_one_with_two = everything(again, x), everything(shared, x[3:4])
    for found in zip(of_cohort, of_one, with_two_threads, of_one_with_two, strict=True):
        values, one, threads, one_with_two = found
        torch.testing.assert_close(threads, values, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(one[0], values[3], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(one_with_two, one, rtol=1e-9, atol=1e-9)


def job(seeds: Sequence[int]) -> Job:
    torch.manual_seed(0)
    split = Split(torch.randn(96, 28, 28), torch.randint(10, (96,)))
    recipe = Recipe.model_validate({"epochs": 2, "batch": 32, "learning_rate": 0.001})
    return Job(
        dataset=Dataset({"train": split, "test": Split(split.x[:50], split.y[:50])}, "classes", 10),
        family=family({"name": "cnn"}),
        activation="or_ail",
        widths=tuple(WIDTHS),
        recipes=(recipe,) * len(seeds),
        seeds=tuple(seeds),
    )


def trained(work: Job) -> list[Outcome]:
    training = StackedTraining(work)
    while not training.done:
        training.step()
    return outcomes(training)


def test_a_trained_run_differs_by_rounding_only_alone_and_in_a_cohort(
    in_double: Callable[[Job], Job], agree: Callable[[Job, Outcome, Outcome], None]
) -> None:
    work = in_double(job([2]))
    (alone,) = trained(work)
    torch.set_num_threads(2)
    agree(work, trained(in_double(job([0, 1, 2])))[2], alone)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(SPECS),
    st.lists(st.sampled_from([12, 24]), min_size=8, max_size=8),
    st.sampled_from([(8, 8), (3, 9, 17), (1, 28, 28)]),
)
def test_the_count_of_parameters_is_right(spec: str, widths: list[int], inputs: tuple[int, ...]) -> None:
    cnn = family({"name": "cnn"})
    built = cnn.build(2, inputs, 7, widths, spec)
    assert 2 * cnn.parameters(inputs, 7, widths, boolit.activation(spec)) == count_parameters(built)
    assert built.eval()(torch.zeros(2, 3, *inputs)).shape == (2, 3, 7)


@settings(max_examples=30, deadline=None)
@given(st.integers(12, 21), st.floats(0.7, 1.4), st.sampled_from(SPECS), st.sampled_from(["auto", "small", "large"]))
def test_a_budget_is_met_but_for_the_cut_to_multiples(power: int, share: float, spec: str, structure: str) -> None:
    activation, budget = boolit.activation(spec), int(share * 2**power)
    cnn = family({"name": "cnn", "structure": structure})
    widths = cnn.widths_for_budget(budget, 1, (28, 28), 10, activation)
    assert all(width >= activation.divisor and width % activation.divisor == 0 for width in widths)
    if budget > 2**17:
        assert 0.8 * budget < cnn.parameters((28, 28), 10, widths, activation) < 1.05 * budget


def test_the_structure_is_small_below_the_papers_million() -> None:
    def second_to_first(budget: int, **options: int) -> float:
        widths = family({"name": "cnn", **options}).widths_for_budget(budget, 1, (28, 28), 10, boolit.activation("relu"))
        return widths[1] / widths[0]

    assert second_to_first(999_999) == 1
    assert second_to_first(1_000_000) > 1.9
    assert second_to_first(2**18, small_below=100_000) == 2


def test_a_search_ends_even_where_no_size_meets_the_budget() -> None:
    size = size_for_budget(lambda widths: 0.0 if widths[0] < 9 else 1e6, 1000, "small")
    assert nominal_widths("small", size)[0] == pytest.approx(9, rel=1e-3)


@pytest.mark.parametrize("spec", ["relu", "silu", "or_ail", "or_il", "max", "or_and_xnor_nail_d"])
def test_what_a_sample_leaves_for_the_backward_pass_is_estimated_within_a_factor_of_2(
    numbers_kept: Callable[[nn.Module, Tensor], float], spec: str
) -> None:
    cnn, batch = family({"name": "cnn"}), 16
    stacked = cnn.build(1, (28, 28), 10, WIDTHS, spec)
    stacked.initialise([0])
    numbers = numbers_kept(stacked, torch.randn(1, batch, 28, 28)) / batch
    assert 0.5 < cnn.saved_numel((28, 28), 10, WIDTHS, boolit.activation(spec)) / numbers < 2


def test_first_weights_are_as_torchs_and_of_the_runs_seed_only() -> None:
    wide = [64, 64, 64, 64, 64, 64, 256, 128]
    cnn = family({"name": "cnn"})
    many, one = cnn.build(3, (28, 28), 10, wide, "relu"), cnn.build(1, (28, 28), 10, wide, "relu")
    many.initialise([7, 8, 9]), one.initialise([8])
    assert all(torch.equal(values[1], one.state_dict()[name][0]) for name, values in many.state_dict().items())
    theirs: dict[str, nn.Conv2d | nn.Linear] = {"convolution.3": nn.Conv2d(64, 64, 3), "linear.1": nn.Linear(256, 128)}
    for name, layer in theirs.items():
        drawn = many.get_parameter(f"{name}.weight").detach()
        assert not torch.equal(drawn[0], drawn[1])
        assert float(drawn[0].std()) == pytest.approx(float(layer.weight.detach().std()), rel=0.05)
        assert float(drawn.abs().max()) == pytest.approx(float(layer.weight.detach().abs().max()), rel=0.01)


def test_small_initialisation_is_for_linear_layers_only() -> None:
    stacked = family({"name": "cnn", "initialisation": "small"}).build(2, (28, 28), 10, WIDTHS, "relu")
    stacked.initialise([1, 2])
    for name, values in stacked.named_parameters():
        largest = float(values.detach().abs().max())
        if name.startswith("linear"):
            assert largest == 0 if name.endswith("bias") else 0.004 < largest <= 0.005
        elif name.startswith("convolution"):
            assert largest > 0.05


def test_building_draws_nothing_from_torchs_common_generator() -> None:
    before = torch.random.get_rng_state()
    family({"name": "cnn"}).build(2, (28, 28), 10, WIDTHS, "relu").initialise([1, 2])
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_kept_network_is_restored() -> None:
    stacked = random_networks(3, "or_ail")
    stacked(torch.randn(3, 50, *PICTURE))
    config = {"model": {"name": "cnn"}, "inputs": list(PICTURE), "outputs": 5, "width": WIDTHS, "activation": "or_ail"}
    network = restore(RunConfig.from_dict(config), {name: values[1] for name, values in stacked.state_dict().items()})
    x = torch.randn(1, 9, *PICTURE)
    torch.testing.assert_close(network(x)[0], stacked.eval()(x.expand(3, 9, *PICTURE))[1])


def test_a_size_gives_the_widths_of_its_structure() -> None:
    small, large = (family({"name": "cnn", "structure": structure}) for structure in ("small", "large"))
    assert small.widths(4, 1) == [4, 4, 4, 4, 6, 6, 8, 6]
    assert large.widths(4, 1) == [4, 8, 16, 16, 32, 32, 128, 64]


def test_what_cannot_be_is_refused_with_the_way_out() -> None:
    cnn, relu = family({"name": "cnn"}), boolit.activation("relu")
    with pytest.raises(UserError, match=r"structure 'auto'.*use \"small\" or \"large\""):
        cnn.widths(8, 1)
    with pytest.raises(UserError, match=r"depth of 3.*leave sweep.depth out"):
        cnn.widths_for_budget(2**14, 3, (28, 28), 10, relu)
    with pytest.raises(UserError, match=r"2 widths \(\[8, 8\]\).*give 8"):
        cnn.parameters((28, 28), 10, [8, 8], relu)
    for shape in ((784,), (28, 7), (2, 3, 28, 28)):
        with pytest.raises(UserError, match=r"samples of shape .*at least 8 pixels"):
            cnn.parameters(shape, 10, WIDTHS, relu)
