"""The studies of CIFAR are the paper's: its networks, column by column, and the authors' hyper-parameters."""

from collections.abc import Iterator

import pytest
import torch

from boolit.lab.datasets import Dataset, Source, Split, load, source_type
from boolit.lab.models import family
from boolit.lab.paper import table_rows
from boolit.lab.paper.verification.networks import SIZES, read
from boolit.lab.studies import load_study, plan
from boolit.lab.training import Recipe

# beta1 and beta2 are 1 − 10ˣ; eps, weight decay and learning rate 10ˣ; the peak as it is.
EXPONENTS = {
    "relu": (-0.761, -2.444, -6.324, -4.559, -3.338, 0.230),
    "prelu": (-0.761, -2.444, -6.324, -4.559, -3.338, 0.230),
    "silu": (-0.878, -4.284, -9.783, -4.446, -2.898, 0.312),
    "max": (-0.964, -5.072, -6.962, -4.382, -2.694, 0.339),
    "max_min_d": (-0.887, -5.215, -6.307, -5.623, -2.972, 0.270),
    "or_ail": (-1.199, -5.005, -7.926, -4.548, -2.752, 0.334),
    "xnor_ail": (-2.206, -1.528, -6.216, -3.185, -2.950, 0.540),
    "or_and_ail_d": (-1.260, -4.870, -8.916, -4.670, -2.933, 0.386),
    "or_xnor_ail_d": (-1.188, -4.501, -6.091, -4.153, -2.833, 0.319),
    "or_and_xnor_ail_d": (-1.659, -4.266, -8.564, -4.911, -2.994, 0.342),
    "or_xnor_ail_p": (-1.052, -4.750, -7.848, -4.148, -2.822, 0.314),
    "or_and_xnor_ail_p": (-0.924, -4.513, -8.425, -3.994, -3.129, 0.185),
}


@pytest.fixture(params=[10, 100])
def classes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """How many there are, with black pictures in place of the real ones: planning needs shapes, not values."""

    def black(_: Source) -> Dataset:
        split = Split(torch.zeros(8, 3, 32, 32, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64))
        return Dataset({"train": split, "test": split}, "classes", request.param, encode=torch.Tensor.float)

    monkeypatch.setattr(source_type(f"cifar{request.param}"), "load", black)
    load.cache_clear()
    yield request.param
    load.cache_clear()


def test_the_profile_paper_has_the_networks_of_every_row_and_column(classes: int) -> None:
    runs = plan(load_study(f"cifar{classes}"), "paper").runs
    assert len(runs) == len({run.key for run in runs}) == 12 * 5 * 4
    found = {(run.config.activation, run.config.budget): run.config for run in runs}
    assert set(found) == {
        (spec, int(heading[:-1]) * 10**6) for spec in table_rows(f"tab:resnet50-cifar{classes}") for heading in SIZES
    }
    for row in read("counts.csv", f"tab:resnet50-cifar{classes}"):
        assert found[row["activation"], int(row["column"][:-1]) * 10**6].parameters == int(row["parameters"])
    (training,) = {
        str(
            {k: getattr(Recipe.model_validate(run.config.training), k) for k in ("epochs", "batch", "schedule", "augmentation")}
        )
        for run in runs
    }
    assert training == str({"epochs": 100, "batch": 128, "schedule": "one-cycle", "augmentation": "autoaugment-cifar10"})


def test_the_profile_quick_has_narrow_networks_of_about_one_size(classes: int) -> None:
    configs = [run.config for run in plan(load_study(f"cifar{classes}"), "quick").runs]
    assert [config.activation for config in configs] == ["relu", "or_ail", "or_and_ail_d"]
    counts = [config.parameters for config in configs]
    assert max(counts) < 1.05 * min(counts) < 500_000
    assert {family(config.model).depth for config in configs} == {50}


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_hyper_parameters_are_the_authors(name: str) -> None:
    study = load_study(name).resolve("paper").study
    assert set(study.hparams) == set(EXPONENTS) == set(study.sweep.activation)
    for spec, (*exponents, peak) in EXPONENTS.items():
        recipe = study.recipe(spec)
        beta1, beta2, eps, decay, rate = (10**exponent for exponent in exponents)
        powers = (1 - recipe.beta1, 1 - recipe.beta2, recipe.eps, recipe.weight_decay, recipe.learning_rate)
        assert powers == pytest.approx((beta1, beta2, eps, decay, rate), rel=1e-3)
        assert recipe.peak == peak


def test_both_studies_differ_in_their_data_only() -> None:
    ten, hundred = (load_study(name).tables for name in ("cifar10", "cifar100"))
    named = {"title", "paper", "data"}
    assert {k: v for k, v in ten.items() if k not in named} == {k: v for k, v in hundred.items() if k not in named}
    assert (ten["data"]["name"], hundred["data"]["name"]) == ("cifar10", "cifar100")
