"""convert on every family of model_families.py, with three activations and both budgets: what works, and what it costs.

Not about speed: each conversion is run forward and backward, its weights go into a second conversion and through a folder, and
all outputs must agree. Writes results/convert.json and prints the table of docs/convert.md.

    python benchmarks/convert_models.py
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from model_families import FAMILIES, Family
from torch import Tensor, nn

from boolit.nn import convert

SPECS = ("or_ail", "or_and_ail_d", "silu")
BUDGETS = ("width", "params")
RESULTS = Path(__file__).parent / "results" / "convert.json"


@dataclass(frozen=True)
class Row:
    """What became of one model: trainable parameters, layers and activations that were changed, or why it was refused."""

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
    """The tensors a model gives by name; caches, which are no tensors, are left out."""
    return {name: value for name, value in model(**example).items() if isinstance(value, Tensor)}


def parameter_count(model: nn.Module) -> int:
    """How many there are to train."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def trained(model: nn.Module, example: Mapping[str, Tensor]) -> set[str]:
    """The parameters that get a gradient in training; all of these must be finite."""
    model.train().zero_grad()
    torch.stack([value.float().square().mean() for value in outputs(model, example).values()]).sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    wrong = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
    assert not wrong, f"gradients that are not finite: {wrong}"
    model.eval().zero_grad()
    return set(gradients)


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    """Fails unless the outputs are the same to rounding."""
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], msg=lambda said, name=name: f"{name}: {said}")


def try_conversion(family: Family, spec: str, budget: str, folder: Path, *, gated: str = "keep") -> Row:
    """Converts a model of the family and checks all that is promised of it; the converted model is left in the folder, too.

    A refusal is a row of its own; anything else that is wrong is an AssertionError.
    """
    torch.manual_seed(0)
    model, example = family.build(), family.example()
    before = outputs(model, example)
    count = parameter_count(model)
    settings: dict[str, Any] = {"budget": budget, "example": example, "gated": gated, **family.options}
    try:
        conversion = convert(model, spec, **settings)
    except ValueError as refusal:
        return Row(family.name, spec, budget, gated, count, count, 0, 0, 0, str(refusal))

    converted = conversion.model
    assert isinstance(converted, family.model_class), type(converted)
    assert set(converted.state_dict()) == set(model.state_dict()), "the names of the weights are others"
    after = outputs(converted.eval(), example)
    assert {name: value.shape for name, value in after.items()} == {name: value.shape for name, value in before.items()}
    assert all(value.isfinite().all() for value in after.values())
    assert conversion.parameters == (count, parameter_count(converted))
    if budget == "params":
        assert abs(conversion.parameters[1] / count - 1) <= 0.01, f"{count} parameters became {conversion.parameters[1]}"
    same(before, outputs(model, example))  # the model given is not touched

    untrained = trained(model, example) - trained(converted, example)
    assert not untrained, f"without a gradient: {sorted(untrained)}"
    after = outputs(converted, example)  # batch norm has seen the example

    torch.manual_seed(1)
    second = convert(family.build(), spec, **settings).model.eval()
    second.load_state_dict(converted.state_dict())
    same(after, outputs(second, example))

    converted.save_pretrained(folder)
    same(after, outputs(type(converted).from_pretrained(folder).eval(), example))
    torch.save({"example": example, "outputs": {name: value.detach() for name, value in after.items()}}, folder / "expected.pt")

    replaced = sum(change.now.startswith(conversion.spec) for change in conversion.changes)
    resized = len(conversion.changes) - replaced
    return Row(family.name, spec, budget, gated, *conversion.parameters, resized, replaced, len(conversion.left))


def cases(family: Family) -> list[tuple[str, str, str]]:
    """All (spec, budget, gated) of a family; only a gate of two can take the place of a product."""
    kept = [(spec, budget, "keep") for spec in SPECS for budget in BUDGETS]
    return kept + [(spec, budget, "replace") for spec in SPECS if spec != "silu" for budget in BUDGETS if family.gated]


def table(rows: list[dict[str, Any]]) -> str:
    """The table of docs/convert.md: a line for each family, a column for each activation and budget."""
    columns = [(spec, budget) for spec in SPECS for budget in BUDGETS]
    heads = ["architecture", "activations", "parameters", *(f"`{spec}`, {budget}" for spec, budget in columns)]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for family, gated in dict.fromkeys((row["family"], row["gated"]) for row in rows):
        own = {(row["spec"], row["budget"]): row for row in rows if (row["family"], row["gated"]) == (family, gated)}
        first = next((row for row in own.values() if not row["refused"]), own[columns[0]])
        name = family if gated == "keep" else f'{family}, `gated="replace"`'
        found = f"{first['replaced']} of {first['replaced'] + first['left']}" if first["left"] else str(first["replaced"])
        counts = ["" if key not in own else "refused" if own[key]["refused"] else f"{own[key]['after']:,}" for key in columns]
        lines.append(f"| {name} | {found} | {first['before']:,} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    torch.set_num_threads(1)
    rows, failed = [], 0
    for family in FAMILIES.values():
        for spec, budget, gated in cases(family):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    row = try_conversion(family, spec, budget, Path(folder), gated=gated)
                except Exception as error:
                    failed += 1
                    print(
                        f"FAILED {family.name} {spec} {budget} {gated}: {type(error).__name__}: {str(error).splitlines()[0]}",
                        file=sys.stderr,
                    )
                    continue
            rows.append(asdict(row))
    if failed:
        print(f"{failed} failed", file=sys.stderr)
        return 1
    RESULTS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    print(table(rows), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
