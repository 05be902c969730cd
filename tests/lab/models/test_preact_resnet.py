"""Pre-activation ResNets: the paper's counts and widths, and layers."""

import pytest
import torch
from torch import nn

import boolit
from boolit.errors import UserError
from boolit.lab.models import family
from boolit.lab.models.preact_resnet import BLOCKS

CIFAR = (3, 32, 32)


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
