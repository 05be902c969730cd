"""convert on small random models of the transformers library; benchmarks/convert_models.py says what is checked of each.

All of its cases are in benchmarks/results/convert.json; here every architecture meets every activation and both budgets.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

from boolit.nn import convert, from_pretrained

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
ROWS = json.loads(convert_models.RESULTS.read_text(encoding="utf-8"))

IN_ANOTHER_PROCESS = """
import importlib, sys
import torch
from boolit.nn import from_pretrained
for folder, module, name in zip(*[iter(sys.argv[1:])] * 3):
    expected = torch.load(f"{folder}/expected.pt", weights_only=True)
    model = from_pretrained(getattr(importlib.import_module(module), name), folder).eval()
    given = model(**expected["example"])
    for key, value in expected["outputs"].items():
        torch.testing.assert_close(given[key], value)
    print(name)
"""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_runs_trains_and_saves(name: str, tmp_path: Path) -> None:
    """Each activation once, with either budget in turn; the counts are those of the table in the docs."""
    for number, spec in enumerate(convert_models.SPECS):
        budget = convert_models.BUDGETS[(number + list(FAMILIES).index(name)) % 2]
        assert vars(convert_models.try_conversion(FAMILIES[name], spec, budget, tmp_path / spec)) in ROWS


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.gated])
def test_the_product_of_a_gated_layer_becomes_a_gate(name: str, tmp_path: Path) -> None:
    number = list(FAMILIES).index(name)
    spec, budget = convert_models.SPECS[number % 2], convert_models.BUDGETS[number // 2 % 2]
    assert vars(convert_models.try_conversion(FAMILIES[name], spec, budget, tmp_path, gated="replace")) in ROWS


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
    """The configuration's own fields for widths say what layers make, and the layers that differ from them are kept, too."""
    family = FAMILIES[name]
    model, example = family.build(), family.example()
    for spec, settings in steps:
        model = convert(model, spec, example=example, **settings).model
    model.eval().save_pretrained(tmp_path)
    for again in (type(model).from_pretrained(tmp_path), from_pretrained(family.model_class, tmp_path)):
        convert_models.same(convert_models.outputs(model, example), convert_models.outputs(again.eval(), example))


def test_another_process_loads_what_was_saved(tmp_path: Path) -> None:
    arguments = []
    for name in ("BERT", "GPT-2", "T5 gated", "MobileNetV2", "Whisper encoder"):
        cls = FAMILIES[name].model_class
        convert_models.try_conversion(FAMILIES[name], "or_ail", "params", tmp_path / cls.__name__)
        arguments += [str(tmp_path / cls.__name__), cls.__module__, cls.__name__]
    done = subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == arguments[2::3]


def test_experts_whose_weights_are_no_layers_are_refused_for_that() -> None:
    """Of a mixture of experts, whose router has a weight and no bias, and is not a linear layer for all that."""
    experts = MixtralForCausalLM(MixtralConfig(**ENCODER, vocab_size=96, num_key_value_heads=2, num_local_experts=4)).eval()
    example = {"input_ids": torch.randint(96, (2, 9))}
    with pytest.raises(ValueError, match=r"experts\.act_fn .* does not come from a layer"):
        convert(experts, "or_ail", example=example)
    assert convert(experts, "relu", example=example).model(**example).logits.shape == (2, 9, 96)


def test_the_docs_say_what_was_measured() -> None:
    assert convert_models.table(ROWS) in (ROOT / "docs" / "convert.md").read_text(encoding="utf-8")
    assert {(row["family"], row["spec"], row["budget"], row["gated"]) for row in ROWS} == {
        (name, *case) for name, family in FAMILIES.items() for case in convert_models.cases(family)
    }
