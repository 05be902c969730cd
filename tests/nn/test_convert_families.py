"""Conversion of small random transformers models, with the checks of benchmarks/convert_models.py."""

from __future__ import annotations

import csv
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

from boolit.nn import convert

pytestmark = pytest.mark.check

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    """A script of benchmarks/, under the name by which the others import it."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


model_families = load("model_families")
ENCODER, FAMILIES = model_families.ENCODER, model_families.FAMILIES
convert_models = load("convert_models")
ROWS = list(csv.DictReader(convert_models.RESULTS.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_runs_trains_and_loads_its_weights(name: str) -> None:
    """Each family once; specs, budgets and the treatment of products alternate. All cases are in results/convert.csv."""
    number, family = list(FAMILIES).index(name), FAMILIES[name]
    every = convert_models.cases(family)
    spec, budget, gated = every[5 * number % len(every)]
    row = convert_models.try_conversion(family, spec, budget, gated=gated)
    assert {name: str(value) for name, value in vars(row).items()} in ROWS
    assert bool(row.refused) == (name == "Mamba" and spec != "silu")


def test_mamba_is_refused_for_its_reason() -> None:
    mamba = FAMILIES["Mamba"]
    with pytest.raises(ValueError, match=r"at backbone\.layers\.0\.mixer\.silu .*: its input does not come from a layer"):
        convert(mamba.build(), "or_ail", example=mamba.example())


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("BERT", [("or_ail", {"only": "*pooler*"}), ("silu", {})]),
        ("ResNet", [("or_ail", {"skip_pinned": True}), ("silu", {})]),
        ("Whisper encoder", [("or_ail", {"only": "gelu"}), ("or_and_ail_d", {})]),
    ],
)
def test_the_weights_of_a_model_that_was_converted_twice_are_loaded(name: str, steps: list[tuple[str, dict[str, Any]]]) -> None:
    family = FAMILIES[name]
    example, models = family.example(), []
    for _ in range(2):
        model = family.build()
        for spec, settings in steps:
            model = convert(model, spec, example=example, **settings).model
        models.append(model.eval())
    first, second = models
    second.load_state_dict(first.state_dict())
    assert type(first) is family.model_class
    torch.testing.assert_close(convert_models.outputs(first, example), convert_models.outputs(second, example))


def test_experts_whose_weights_are_no_layers_are_refused_for_that() -> None:
    experts = MixtralForCausalLM(MixtralConfig(**ENCODER, vocab_size=96, num_key_value_heads=2, num_local_experts=4)).eval()
    example = {"input_ids": torch.randint(96, (2, 9))}
    with pytest.raises(ValueError, match=r"experts\.act_fn .* does not come from a layer"):
        convert(experts, "or_ail", example=example)
    assert convert(experts, "relu", example=example).model(**example).logits.shape == (2, 9, 96)
