"""The seven transfer studies are the paper's: its rows, its recipe, and both of its width settings."""

import pytest

from boolit.errors import UserError
from boolit.lab.datasets.embeddings import Embeddings
from boolit.lab.paper import table
from boolit.lab.paper.comparison import DATASETS
from boolit.lab.studies import load_study

NAMES = list(DATASETS.values())


@pytest.mark.parametrize("name", NAMES)
def test_all_rows_and_the_recipe(name: str) -> None:
    study = load_study(f"transfer-{name}").resolve("paper").study
    rows = list(dict.fromkeys(cell.activation for cell in table("tab:transfer-extra")))
    assert ["linear" if spec == "identity" else spec for spec in study.sweep.activation] == rows
    assert (len(rows), study.sweep.seeds) == (46, 5)
    assert isinstance(study.data, Embeddings)
    assert study.data.of.name == name
    assert (study.data.views, study.data.size, study.data.refresh, study.data.flip) == (25, 224, True, name != "svhn")
    recipe = study.training
    assert (recipe.optimiser, recipe.momentum, recipe.weight_decay, recipe.batch) == ("sgd", 0.9, 1e-4, 128)
    assert (recipe.epochs, recipe.prelude, recipe.prelude_rate) == (25, 1, 1e-5)
    assert (recipe.schedule, recipe.learning_rate) == ("cosine", 0.01)


@pytest.mark.parametrize("name", NAMES)
def test_profiles_differ_in_what_they_say_only(name: str) -> None:
    file = load_study(f"transfer-{name}")
    matched, equal = (file.resolve(profile).study for profile in ("paper", "paper-512"))
    assert matched.model.model_dump() == {"name": "head", "sizes": "matched"}
    assert equal.model.model_dump() == {"name": "head", "sizes": "equal"}
    assert matched.sweep == equal.sweep
    assert (matched.sweep.width, matched.sweep.depth, matched.sweep.rounding) == ([512], [2], "nearest")
    quick = file.resolve("quick").study
    assert isinstance(quick.data, Embeddings)
    assert quick.data.views < 25
    assert quick.data.of.name == name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("data.of.subse=0.1", "data.of.subse is no known key; did you mean subset?"),
        ("data.veiws=3", "data.veiws is no known key; did you mean views?"),
        ("data.of.subset=3.0", "data.of.subset is 3.0; it should be less than or equal to 1"),
        ("data.of=cifar10", "data.of: a table that names a dataset, such as"),
        ("data.of.name=cifar11", "data.of: unknown dataset 'cifar11'; choose cifar10"),
    ],
)
def test_a_mistake_in_the_pictures_is_named_as_one_elsewhere(given: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        load_study("transfer-cifar10").resolve("quick", sets=[given])
    assert message in str(caught.value)
