"""Pre-activation ResNets: the paper's counts and widths, and layers."""

import pytest
import torch
from torch import nn

import boolit
from boolit.lab.common.errors import UserError
from boolit.lab.models import family
from boolit.lab.models.preact_resnet import BLOCKS

CIFAR = (3, 32, 32)
# facts, section 4.1: totals on CIFAR-10 by kind of activation; budgets are the headers of the paper's tables.
HEADERS = (6_000_000, 10_000_000, 23_000_000, 67_000_000, 225_000_000)
TOTALS = {
    "relu": (5_868_426, 10_334_026, 23_509_194, 66_835_402, 221_391_306),
    "or_ail": (5_373_770, 9_521_546, 22_591_562, 67_829_450, 234_696_650),
    "or_xnor_ail_p": (5_373_770, 9_521_546, 22_591_562, 67_829_450, 234_696_650),
    "or_and_xnor_ail_p": (5_287_054, 9_417_886, 22_276_732, 66_616_804, 230_571_766),
    "or_and_xnor_ail_d": (6_319_108, 11_125_536, 22_907_018, 62_094_410, 197_762_762),
}


@pytest.mark.parametrize("spec", TOTALS)
def test_counts_of_the_paper(spec: str) -> None:
    resnet, gate = family({"name": "preact-resnet", "sizes": "paper"}), boolit.activation(spec)
    for budget, total in zip(HEADERS, TOTALS[spec], strict=True):
        widths = resnet.widths_for_budget(budget, 1, CIFAR, 10, gate)
        assert resnet.parameters(CIFAR, 10, widths, gate) == total
    more = resnet.parameters(CIFAR, 100, widths, gate) - total
    assert more == (183_690 if spec == "or_and_xnor_ail_p" else 184_410)


def test_the_three_way_partition_has_a_stem_of_60_and_an_embedding_of_2040() -> None:
    with torch.device("meta"):
        network = family({"name": "preact-resnet"}).network(CIFAR, 10, [90, 192, 378, 768], "or_and_xnor_ail_p")
    assert (network.stem.out_channels, network.linear.in_features) == (60, 2040)


def test_a_budget_far_from_the_papers_is_refused() -> None:
    resnet = family({"name": "preact-resnet", "sizes": "paper"})
    with pytest.raises(UserError, match="5,868,426"):
        resnet.widths_for_budget(1000, 1, CIFAR, 10, boolit.activation("relu"))


@pytest.mark.parametrize("depth", BLOCKS)
def test_layers(depth: int) -> None:
    with torch.device("meta"):
        network = family({"name": "preact-resnet", "depth": depth, "base": 8}).network(CIFAR, 5, [12, 12, 24, 24], "relu")
    layers = [name for name, module in network.named_modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    projections = [name for name in layers if name.endswith("identity")]
    assert len(layers) - len(projections) == depth
    assert len(projections) == (3 if depth < 50 else 4)


def test_blocks_add_the_identity_and_only_the_stem_is_always_relu() -> None:
    network = family({"name": "preact-resnet", "depth": 18, "base": 4}).network(CIFAR, 5, [4, 4, 8, 8], "or_ail").eval()
    activations = [module for module in network.modules() if isinstance(module, boolit.nn.Activation)]
    assert {module.spec for module in activations} == {"or_ail"}
    x = torch.randn(2, 4, 8, 8)
    block = network.blocks[0]
    torch.testing.assert_close(block(x), block.steps(x) + x)
    entered: list[torch.Tensor] = []
    network.blocks.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    network(torch.randn(2, *CIFAR))
    assert float(entered[0].detach().min()) == 0
