"""What cannot be converted is refused, with the name of the place, the reason and what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from boolit.nn import Gate
from boolit.nn.conversion import convert


def weight_normed(inside: int, outside: int) -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Linear(inside, outside))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    model[2].weight = model[0].weight
    return model


class Sum(nn.Module):
    """An activation on the sum of a layer's output and something else."""

    def __init__(self, other: nn.Module | None) -> None:
        super().__init__()
        self.a, self.other, self.act, self.b = nn.Linear(6, 6), other, nn.ReLU(), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.act(self.a(x) + (x if self.other is None else self.other(x))))


def shuffled() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.PixelShuffle(2), nn.Conv2d(1, 4, 3))


@pytest.mark.parametrize(
    ("model", "spec", "words"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU()), "or_and_xnor_nail_d", "at 1: its 8 channels .* the model's output"),
        (lambda: nn.Sequential(nn.ReLU(), nn.Linear(4, 2)), "or_ail", "at 0: its input does not come from a layer"),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.ReLU()), "or_ail", "at 2: it acts after a flatten"),
        (
            lambda: nn.Sequential(weight_normed(4, 8), nn.ReLU(), weight_normed(8, 2)),
            "or_ail",
            "at 1: its output is fixed by 2",
        ),
        (tied, "or_ail", "at 1: its output is fixed by 2, whose parameters are shared"),
        (
            lambda: nn.Sequential(nn.Embedding(9, 6), nn.ReLU(), nn.Linear(6, 2)),
            "or_xnor_ail_p",
            "at 1: its 6 channels are fixed by the embedding 0, and must be a multiple of 4",
        ),
        (
            lambda: Sum(None),
            "or_xnor_ail_p",
            "at act: its 6 channels are fixed by the operand of add that is no layer's output",
        ),
        (lambda: Sum(weight_normed(6, 6)), "or_xnor_ail_p", "at act: its 6 channels are fixed by other, whose parameters are"),
        (
            lambda: Sum(nn.utils.spectral_norm(nn.Linear(6, 6))),
            "or_xnor_ail_p",
            "act: its 6 channels are fixed by other, whose",
        ),
        (shuffled, "or_and_xnor_nail_d", "at 1: its 4 channels are fixed by the PixelShuffle 2"),
    ],
)
def test_refusals_name_the_place_and_the_reason(model: Callable[[], nn.Module], spec: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        convert(model(), spec)


def test_activations_of_different_maps_that_meet_are_refused() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 8), nn.Linear(4, 16), nn.Linear(8, 2)
            self.relu, self.gate = nn.ReLU(), Gate("or")

        def forward(self, x: Tensor) -> Tensor:
            return self.c(self.relu(self.a(x)) + self.gate(self.b(x)))

    with pytest.raises(ValueError, match=r"at relu .*gate.*different maps"):
        convert(Mixed(), "max_k4", replace=["relu", Gate])
    assert [change[:3] for change in convert(Mixed(), "and_ail", replace=[Gate]).changes] == [("gate", "or_ail", "and_ail")]


def test_a_fixed_output_is_kept_by_widening_what_comes_before() -> None:
    model = shuffled()
    conversion = convert(model, "or_ail")
    assert conversion.model(x := torch.randn(2, 3, 8, 8)).shape == model(x).shape
    assert [str(change) for change in conversion.changes] == [
        "0: Conv2d(3, 4) → Conv2d(3, 8), new weights",
        "1: ReLU() → or_ail",
    ]


def test_budget_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot keep 40 parameters: with the width fixed at 1, the nearest is 80"):
        convert(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), "or_ail", budget="params")
    with pytest.raises(ValueError, match="unknown budget 'parameters'"):
        convert(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), "or_ail", budget="parameters")  # type: ignore[arg-type]


class DataDependent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = -x
        return self.fc2(self.act(self.fc1(x)))


def test_untraceable_models_are_refused_unless_no_width_changes() -> None:
    model = nn.Sequential(nn.Linear(4, 4), DataDependent())
    with pytest.raises(ValueError, match=r"torch\.fx cannot trace Sequential in 1: symbolically traced variables .*submodules"):
        convert(model, "or_ail")
    conversion = convert(model, "silu")
    assert conversion.model(torch.randn(2, 4)).shape == (2, 2)
    assert [change.layer for change in conversion.changes] == ["1.act"]
    assert "Sequential" in conversion.left


def test_a_model_without_activations_or_with_lazy_layers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Sequential calls none of .*relu.*replace="):
        convert(nn.Sequential(nn.Linear(3, 3)), "or_ail")
    with pytest.raises(ValueError, match="0 is a LazyLinear that has seen no input"):
        convert(nn.Sequential(nn.LazyLinear(3), nn.ReLU()), "or_ail")
