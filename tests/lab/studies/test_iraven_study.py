"""The study of I-RAVEN is the paper's: its networks, row by row, and the published recipe."""

from boolit.lab.datasets import source
from boolit.lab.paper import table_rows
from boolit.lab.paper.verification.networks import UNEVEN, in_unit, read
from boolit.lab.studies import load_study, plan

CONFIGURATIONS = 7


def test_the_profile_paper_has_the_networks_of_every_row() -> None:
    configs = [run.config for run in plan(load_study("iraven"), "paper").runs]
    found = {config.activation: config.parameters for config in configs}
    assert set(found) == {UNEVEN.get(row, row) for row in table_rows("tab:sran")}
    for row in read("sizes.csv", "tab:sran")[1:]:
        spec, printed = row["activation"], row["parameters"]
        assert in_unit(found[UNEVEN.get(spec, spec)], printed) == printed
    assert {config.inputs[1] for config in configs} == {160}
    assert {len(source(config.data).configurations) for config in configs} == {CONFIGURATIONS}


def test_the_first_row_is_the_network_as_published() -> None:
    (run,) = plan(load_study("iraven"), "published").runs
    assert (run.config.activation, run.config.parameters) == ("relu", 44_030_217)


def test_the_recipe_is_the_published_one_and_reports_the_best_validation_epoch() -> None:
    study = load_study("iraven").resolve("paper").study
    recipe = study.training
    assert (recipe.optimiser, recipe.learning_rate, recipe.schedule, recipe.epochs, recipe.batch) == (
        "adam", 1e-4, "constant", 200, 32,
    )  # fmt: skip
    assert (recipe.beta1, recipe.beta2, recipe.eps, recipe.weight_decay) == (0.9, 0.999, 1e-8, 0)
    assert (recipe.patience, recipe.patience_on) == (recipe.epochs, "accuracy")
    assert study.model.dropout == 0.5


def test_the_profile_quick_is_small_and_has_one_configuration() -> None:
    cohorts = plan(load_study("iraven"), "quick").cohorts
    configs = [run.config for cohort in cohorts for run in cohort.runs]
    assert [config.activation for config in configs] == ["relu", "or_ail"]
    assert {tuple(source(config.data).configurations) for config in configs} == {("center_single",)}
    assert max(config.parameters for config in configs) < 500_000
    assert not any(cohort.job().single_network for cohort in cohorts)
