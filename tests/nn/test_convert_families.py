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

from boolit.nn import convert, from_pretrained

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
def test_a_family_runs_trains_and_saves(name: str, tmp_path: Path) -> None:
    """Each family once; specs, budgets and the treatment of products alternate. All cases are in results/convert.csv."""
    number, family = list(FAMILIES).index(name), FAMILIES[name]
    every = convert_models.cases(family)
    spec, budget, gated = every[5 * number % len(every)]
    row = convert_models.try_conversion(family, spec, budget, tmp_path, gated=gated)
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
        ("T5", [("or_ail", {"weights": "exact"})]),
    ],
)
def test_what_was_converted_twice_or_exactly_is_loaded(
    name: str, steps: list[tuple[str, dict[str, Any]]], tmp_path: Path
) -> None:
    family = FAMILIES[name]
    model, example = family.build(), family.example()
    for spec, settings in steps:
        model = convert(model, spec, example=example, **settings).model
    model.eval().save_pretrained(tmp_path)
    assert type(model) is family.model_class
    again = from_pretrained(family.model_class, tmp_path).eval()
    torch.testing.assert_close(convert_models.outputs(model, example), convert_models.outputs(again, example))


def test_experts_whose_weights_are_no_layers_are_refused_for_that() -> None:
    experts = MixtralForCausalLM(MixtralConfig(**ENCODER, vocab_size=96, num_key_value_heads=2, num_local_experts=4)).eval()
    example = {"input_ids": torch.randint(96, (2, 9))}
    with pytest.raises(ValueError, match=r"experts\.act_fn .* does not come from a layer"):
        convert(experts, "or_ail", example=example)
    assert convert(experts, "relu", example=example).model(**example).logits.shape == (2, 9, 96)
