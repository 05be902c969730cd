"""Steps of large networks, as `boolit bench training` times them; a timing decides no test."""

import pytest

import boolit
from boolit.lab.bench import training as bench_training
from boolit.lab.bench.training import HeadsCost, heads_cost, resnet_steps
from boolit.lab.models import family


def test_resnets_are_measured_at_matched_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = bench_training._in_new_process("or_ail", 370_000, 4, 8)
    peaks = {"relu": 77, "or_ail": measured}  # one such process is enough: the other network's peak is made up
    monkeypatch.setattr(
        bench_training, "_in_new_process", lambda spec, *sizes: peaks[spec] if sizes == (370_000, 4, 8) else None
    )
    steps = resnet_steps(("relu", "or_ail"), budget=370_000, batch=4, rounds=1, base=8)
    assert list(steps) == ["relu", "or_ail"]
    network = family({"name": "preact-resnet", "base": 8})
    for spec, step in steps.items():
        activation = boolit.activation(spec)
        widths = network.widths_for_budget(370_000, 1, (3, 32, 32), 10, activation)
        assert step.parameters == network.parameters((3, 32, 32), 10, widths, activation)
        assert abs(step.parameters / 370_000 - 1) < 0.04
        assert step.seconds > 0
        assert step.peak == peaks[spec]
    assert measured > 4 * steps["or_ail"].parameters, "a training holds its weights at least"


def test_all_heads_are_measured_against_one_with_their_encoder() -> None:
    cost = heads_cost(("identity", "relu", "or_and_xnor_ail_p"), seeds=2, batch=4, rounds=1, side=32)
    assert cost.heads == 6
    assert min(cost.encoder, cost.one, cost.all) > 0


def test_the_encoder_counts_on_both_sides() -> None:
    assert HeadsCost(heads=200, encoder=2.0, one=0.5, all=3.0).ratio == 2.0
