"""Convert every architecture of model_families.py with three activations and all budgets, and check the results.

Each converted model must run forward and backward with finite gradients, keep its output shapes and parameter names, and give
the same outputs after its weights are loaded into a second conversion. Writes results/convert.csv, and prints a table and the
step time of a converted MobileNetV2.

    python benchmarks/convert_models.py
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from model_families import FAMILIES, Family
from torch import Tensor, nn

from boolit.nn import convert
from boolit.nn.width import count_parameters

SPECS = ("or_ail", "or_and_ail_d", "silu")
BUDGETS = ("width", "params", "flops")
RESULTS = Path(__file__).parent / "results" / "convert.csv"


@dataclass(frozen=True)
class Row:
    """A conversion: trainable parameters, resized layers and replaced activations, or why it was refused."""

    family: str
    spec: str
    budget: str
    gated: str
    before: int
    after: int
    resized: int
    replaced: int
    left: int
    refused: str = ""


def outputs(model: nn.Module, example: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that the model computes from the example."""
    return {name: value for name, value in model(**example).items() if isinstance(value, Tensor)}


def trained(model: nn.Module, example: Mapping[str, Tensor]) -> set[str]:
    """Return the names of the parameters that get a gradient in training, which must be finite."""
    model.train().zero_grad()
    torch.stack([value.float().square().mean() for value in outputs(model, example).values()]).sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    infinite = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
    assert not infinite, f"gradients that are not finite: {infinite}"
    model.eval().zero_grad()
    return set(gradients)


def try_conversion(family: Family, spec: str, budget: str, *, gated: str = "keep") -> Row:
    """Convert a model and check the result. Raise AssertionError if a check fails."""
    torch.manual_seed(0)
    model, example = family.build(), family.example()
    before, count = outputs(model, example), count_parameters(model)
    settings: dict[str, Any] = {"budget": budget, "example": example, "gated": gated, **family.options}
    try:
        conversion = convert(model, spec, **settings)
    except ValueError as refusal:
        return Row(family.name, spec, budget, gated, count, count, 0, 0, 0, str(refusal))

    converted = conversion.model
    assert isinstance(converted, family.model_class), type(converted)
    assert set(converted.state_dict()) == set(model.state_dict()), "the names of the weights changed"
    after = outputs(converted.eval(), example)
    assert {name: value.shape for name, value in after.items()} == {name: value.shape for name, value in before.items()}
    assert all(value.isfinite().all() for value in after.values())
    assert conversion.parameters == (count, count_parameters(converted))
    if budget == "params":
        assert abs(conversion.parameters[1] / count - 1) <= 0.01, f"{count} parameters became {conversion.parameters[1]}"
    torch.testing.assert_close(before, outputs(model, example))  # the original model is not changed

    untrained = trained(model, example) - trained(converted, example)
    assert not untrained, f"without a gradient: {sorted(untrained)}"
    after = outputs(converted, example)  # batch norm has seen the example

    torch.manual_seed(1)
    second = convert(family.build(), spec, **settings).model.eval()
    second.load_state_dict(converted.state_dict())
    torch.testing.assert_close(after, outputs(second, example))

    counts = len(conversion.resized), len(conversion.replaced), len(conversion.left)
    return Row(family.name, spec, budget, gated, *conversion.parameters, *counts)


def cases(family: Family) -> list[tuple[str, str, str]]:
    """Return all (spec, budget, gated) of a family. Only a gate that reads pairs can replace a product."""
    kept = [(spec, budget, "keep") for spec in SPECS for budget in BUDGETS]
    return kept + [(spec, budget, "replace") for spec in SPECS[:2] for budget in BUDGETS if family.gated]


def table(rows: list[dict[str, Any]]) -> str:
    """Return a table with the parameters of each family before and after conversion to ``or_ail``."""
    lines = ["| architecture | activations | parameters | width | params | flops |", "|---|---:|---:|---:|---:|---:|"]
    chosen = [row for row in rows if row["spec"] == "or_ail"]
    for family, gated in dict.fromkeys((row["family"], row["gated"]) for row in chosen):
        mine = [row for row in chosen if (row["family"], row["gated"]) == (family, gated)]
        counts = ["refused" if row["refused"] else f"{row['after']:,}" for row in mine]
        total = mine[0]["replaced"] + mine[0]["left"]
        share = f"{mine[0]['replaced']} of {total}" if mine[0]["left"] else str(total)
        name = family if gated == "keep" else f'{family}, `gated="replace"`'
        lines.append(f"| {name} | {share} | {mine[0]['before']:,} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Try all cases, write the results and print them. Return 1 if a check failed."""
    torch.set_num_threads(1)
    rows, failed = [], 0
    for family in FAMILIES.values():
        for spec, budget, gated in cases(family):
            try:
                rows.append(asdict(try_conversion(family, spec, budget, gated=gated)))
            except Exception as error:
                failed += 1
                reason = f"{type(error).__name__}: {str(error).splitlines()[0]}"
                print(f"FAILED {family.name} {spec} {budget} {gated}: {reason}", file=sys.stderr)
    if failed:
        print(f"{failed} failed", file=sys.stderr)
        return 1
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(table(rows))
    mobile = FAMILIES["MobileNetV2"]
    images = {"pixel_values": torch.randn(16, 3, 64, 64)}
    converted = convert(mobile.build(), "or_ail", budget="params", example=mobile.example())
    for name, (before, after) in converted.measure(images).items():
        print(f"{name}: {before:,} → {after:,} (× {after / before:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
