"""SRAN: the published data flow, written plainly, and the paper's counts."""

import pytest
import torch
from torch import Tensor, nn

import boolit
from boolit.errors import UserError
from boolit.lab.models import family
from boolit.lab.models.sran import SranNetwork

PANELS = (16, 13, 13)


def plain(network: SranNetwork, x: Tensor) -> Tensor:
    """Every row and pair as an image of its own, one problem at a time (facts, section 1.1)."""
    x = (255 - x) / 255

    def encode(encoder: nn.Module, images: list[Tensor]) -> Tensor:
        return encoder(torch.stack(images, 1).flatten(0, 1)).unflatten(0, (len(x), len(images)))

    rows = [[0, 1, 2], [3, 4, 5], *([6, 7, candidate] for candidate in range(8, 16))]
    pairs = [(0, 1), *((0, row) for row in range(2, 10)), *((1, row) for row in range(2, 10))]
    of_panels = encode(network.panel_encoder, [x[:, panel : panel + 1] for panel in range(16)])
    joined = torch.stack([of_panels[:, row].flatten(1) for row in rows], 1)
    of_rows = torch.cat([network.row_module(joined), encode(network.row_encoder, [x[:, row] for row in rows])], -1)
    orders = [*pairs, *((second, first) for first, second in pairs)]
    images = encode(network.pair_encoder, [x[:, rows[first] + rows[second]] for first, second in orders])
    modules = network.pair_module(torch.stack([torch.cat([of_rows[:, a], of_rows[:, b]], -1) for a, b in orders], 1))
    both = [torch.cat([modules[:, i] + modules[:, 17 + i], images[:, i] + images[:, 17 + i]], -1) for i in range(17)]
    rules = network.rule_module(torch.stack(both, 1))[..., :-9]
    first = rules[:, 0]
    return torch.stack([(first * (rules[:, 1 + i] + rules[:, 9 + i])).sum(1) for i in range(8)], 1)


@pytest.mark.parametrize("layout", ["layernorm", "published"])
@pytest.mark.parametrize("spec", ["relu", "or_ail", "or_and_xnor_nail_d", "or_and_xnor_ail_pu"])
def test_the_data_flow_is_the_published_one(spec: str, layout: str) -> None:
    torch.manual_seed(0)
    sran = family({"name": "sran", "size": "small", "channels": 2, "dropout": 0.0, "layout": layout})
    widths = sran.widths_for_activation(sran.widths(12, 1), PANELS, 8, boolit.activation(spec))
    network = sran.network(PANELS, 8, widths, spec).double()
    x = (255 * torch.rand(3, *PANELS, dtype=torch.float64)).round()
    # In training mode batch norms see all images of a kind, in whichever order.
    torch.testing.assert_close(network(x), plain(network, x))


def test_panels_are_resized() -> None:
    sran = family({"name": "sran", "size": "small", "channels": 2, "resize": 20})
    network = sran.network(PANELS, 8, sran.widths(4, 1), "relu")
    seen: list[torch.Size] = []
    network.panel_encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    assert network(torch.zeros(2, *PANELS)).shape == (2, 8)
    assert seen[0][-2:] == (20, 20)


def test_budget_and_wrong_sizes() -> None:
    sran, gate = family({"name": "sran", "size": "small"}), boolit.activation("or_ail")
    widths = sran.widths_for_budget(100_000, 1, PANELS, 8, gate)
    assert sran.parameters(PANELS, 8, widths, gate) == pytest.approx(100_000, rel=0.1)
    with pytest.raises(UserError, match="iraven"):
        sran.network((3, 32, 32), 8, widths, "or_ail")
    with pytest.raises(UserError, match="7 activations"):
        sran.network(PANELS, 8, widths[:3], "or_ail")
