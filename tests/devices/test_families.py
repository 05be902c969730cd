"""Every family of networks, every kind of data and every option trains on another device to the last bit as on the CPU."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch

from boolit import activation
from boolit.lab.common.devices import DeviceCopies, use_device
from boolit.lab.common.random import generator
from boolit.lab.datasets import chorales as chorales_data
from boolit.lab.datasets import load, source
from boolit.lab.datasets.base import Dataset, Split, look_up_rows
from boolit.lab.datasets.covertype import COLUMNS, Covertype
from boolit.lab.datasets.embeddings import draw_view
from boolit.lab.datasets.images import normalizer
from boolit.lab.datasets.images.arrays import encode_digits
from boolit.lab.datasets.iraven import configuration_accuracies, look_up_panels, shuffle_panels, stored_samples
from boolit.lab.models import MODELS, family
from boolit.lab.training import Job, Outcome, Recipe, train

DRAWN = generator(0, "devices")
FAST = {"epochs": 2, "batch": 16, "learning_rate": 0.01}


def split(x: torch.Tensor, classes: int, at: int = 32) -> dict[str, Split]:
    """The first samples to train on, the next half of the others to validate with, and the rest to test."""
    y = torch.randint(classes, (len(x),), generator=DRAWN)
    middle = (at + len(x)) // 2
    rows = {"train": slice(at), "valid": slice(at, middle), "test": slice(middle, None)}
    return {name: Split(x[part], y[part]) for name, part in rows.items()}


def images() -> Dataset:
    x = torch.randint(256, (48, 3, 16, 16), generator=DRAWN, dtype=torch.uint8)
    return Dataset(split(x, 3), "classes", 3, encode=normalizer("imagenet"))


def digits() -> Dataset:
    x = torch.randint(17, (48, 8, 8), generator=DRAWN, dtype=torch.uint8)
    return Dataset(split(x, 3), "classes", 3, encode=encode_digits)


def covertype() -> Dataset:
    splits = split(torch.randint(100, (48, COLUMNS), generator=DRAWN, dtype=torch.int16), 7)
    return Dataset(splits, "classes", 7, encode=Covertype()._encoding(splits["train"].x))


def chorales() -> Dataset:
    x = torch.randint(chorales_data.TOKENS, (48, 4, 4), generator=DRAWN, dtype=torch.uint8)
    splits = {name: Split(part.x, torch.ones(len(part), 1)) for name, part in split(x, 2).items()}
    return Dataset(splits, "binary", 1, encode=chorales_data.one_hot, draw=chorales_data.draw)


def features() -> Dataset:
    """As `boolit transfer` has them: rows of a table of two views."""
    table = torch.randn(96, 512, generator=DRAWN).half()
    splits = split(torch.arange(48), 3)
    return Dataset(
        splits,
        "classes",
        3,
        encode=partial(look_up_rows, DeviceCopies(table)),
        draw=partial(draw_view, 48, 2),
        input_shape=(512,),
    )


def panels() -> Dataset:
    """As I-RAVEN has them: two configurations, whose files are mapped."""
    images = [torch.randint(256, (24, 16, 9, 9), generator=DRAWN, dtype=torch.uint8) for _ in range(2)]
    rows = {"train": torch.arange(0, 48, 2), "valid": torch.arange(1, 48, 4), "test": torch.arange(3, 48, 4)}
    splits = {name: Split(stored_samples(own), own % 8) for name, own in rows.items()}
    judge = partial(configuration_accuracies, splits, ("one", "two"))
    return Dataset(
        splits, "classes", 8, (), partial(look_up_panels, images), shuffle_panels, extra_metrics=judge, input_shape=(16, 9, 9)
    )


def named(**options: Any) -> Callable[[], Dataset]:
    return lambda: load(source(options))


PARITY = named(name="parity", train=64, test=40)
COMPOSED = {"attributes": 3, "objects": 3, "listed": 0.7, "samples": 100, "features": 6, "words": 6, "negatives": 2}
TMN = {"name": "tmn", "attributes": 3, "objects": 3, "vectors": 6, "modules": 2, "layers": 2, "gater_rate": 10.0}
NARROW = {"name": "preact-resnet", "depth": 18}
SRAN = {"name": "sran", "size": "small", "channels": 2}

CASES: dict[str, tuple[Callable[[], Dataset], dict[str, Any], list[int], str, dict[str, Any]]] = {
    "mlp": (PARITY, {"name": "mlp"}, [4, 2], "xnor_il", {"schedule": "cosine", "weight_decay": 1e-3}),
    "mlp, adamw": (PARITY, {"name": "mlp"}, [4], "or_ail", {"optimizer": "adamw", "weight_decay": 0.1}),
    "mlp, norm, dropout": (
        digits,
        {"name": "mlp", "normalization": "batch", "dropout": 0.2},
        [12, 6],
        "or_and_xnor_nail_d",
        {},
    ),
    "mlp, prelu, jitter": (PARITY, {"name": "mlp", "normalization": "layer"}, [4], "prelu", {"augmentation": "jitter"}),
    "mlp, covertype": (covertype, {"name": "mlp", "normalization": "batch"}, [6], "max_min_d", {"optimizer": "sgd"}),
    "mlp, chorales": (chorales, {"name": "mlp"}, [6], "xnor_nail", {"patience": 1, "epochs": 4}),
    "mlp, regression": (named(name="parity8", train=64, test=40), {"name": "mlp"}, [8], "xnor_ail", {"prelude": 1}),
    "head": (features, {"name": "head"}, [6, 6], "or_ail", {"optimizer": "sgd", "momentum": 0.9}),
    "cnn, affine": (digits, {"name": "cnn"}, [4] * 8, "or_ail", {"augmentation": "affine", "epochs": 1}),
    "preact-resnet, autoaugment": (images, NARROW, [4], "or_ail", {"augmentation": "autoaugment-cifar10", "epochs": 1}),
    "sran": (panels, SRAN, [4], "or_ail", {"patience": 2, "patience_on": "accuracy_two", "patience_goal": "max"}),
    "tmn": (
        named(name="composed", **COMPOSED),
        TMN | {"variant": "tmn", "embedding": 4},
        [4],
        "relu",
        {"optimizer": "adamw", "weight_decay": 0.1, "batch": 32},
    ),
    "tmnx": (named(name="composed", **COMPOSED), TMN, [4], "or_ail", {"patience": 3, "patience_on": "auc", "batch": 32}),
}


def job_of(case: str) -> Job:
    data, model, width, spec, recipe = CASES[case]
    dataset, built, own = data(), family(model), Recipe.model_validate({**FAST, **recipe})
    nominal = width if len(width) > 1 else built.widths(width[0], 1)
    widths = built.widths_for_activation(nominal, dataset.inputs, dataset.outputs, activation(spec))
    runs = 1 if built.trains_alone else 2
    return Job(dataset, built, spec, tuple(widths), (own,) * runs, tuple(range(runs)))


def assert_same(one: list[Outcome] | None, other: list[Outcome] | None) -> None:
    assert one is not None
    assert other is not None
    for own, its in zip(one, other, strict=True):
        assert (own.state, own.metrics, own.history) == (its.state, its.metrics, its.history)
        assert own.weights is not None
        assert its.weights is not None
        assert own.weights.keys() == its.weights.keys()
        assert all(torch.equal(values, its.weights[name]) for name, values in own.weights.items())


def test_every_family_is_here() -> None:
    assert {model["name"] for _, model, *_ in CASES.values()} == set(MODELS.names())


@pytest.mark.parametrize("case", CASES)
def test_a_training_has_the_cpu_s_numbers(case: str, standin: ModuleType) -> None:
    job = job_of(case)
    expected = train(job, keep_weights=True)
    with use_device(standin.NAME):
        assert_same(train(job, keep_weights=True), expected)
