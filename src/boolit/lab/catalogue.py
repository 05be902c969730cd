"""Lists of activations and studies with descriptions. Nothing here imports torch."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STUDIES = Path(__file__).parent / "studies" / "definitions"
# A study of decoders instead of activations, in boolit.lab.decoding.
DECODING = {"name": "decoding", "profiles": ["quick", "paper"], "title": "Decoders on three parity-check codes"}
POINTWISE = "relu leaky_relu prelu softplus elu celu selu gelu silu hardswish mish softsign tanh sigmoid relu6"  # of torch
POINTWISE += " rrelu hardtanh hardsigmoid hardshrink softshrink tanhshrink logsigmoid identity"
GATED = {"glu": "x σ(y)", "swiglu": "x silu(y)", "geglu": "x gelu(y)", "bilinear": "x y"}
PAIRWISE = {name: f"{text}, y from the second half" for name, text in GATED.items()}
PAIRWISE |= {"max": "max(x, y), MaxOut", "min": "min(x, y)", "signed_geomean": "sgn(x y) √|x y|"}
ARROWS = {"implies": "x ⇒ y", "nimplies": "NOT (x ⇒ y)", "implied_by": "x ⇐ y", "nimplied_by": "NOT (x ⇐ y)"}
OPERATIONS = {name: f"x {name.upper()} y" for name in ("and", "or", "xnor", "nand", "nor", "xor")} | ARROWS
FORMS = {"il": "exact", "ail": "approximate", "nil": "exact, normalized", "nail": "approximate, normalized"}
ENSEMBLES = {"p": ("or_xnor", "or_and_xnor"), "d": ("or_and", "or_xnor", "or_and_xnor")}  # of the paper
KINDS = ("baseline", "gate", "duplicate", "partition", "registered")


@dataclass(frozen=True)
class ActivationFacts:
    """An activation: ``channels`` is (in, out) of a group, a width must be a multiple of ``width_multiple``."""

    spec: str
    channels: tuple[int, int]
    width_multiple: int
    kind: str
    description: str


def list_activations() -> list[ActivationFacts]:
    """List every activation that has a plain name, including registered ones, by channels and kind."""
    facts = [ActivationFacts(spec, (1, 1), 1, "baseline", f"{spec} of torch") for spec in POINTWISE.split()]
    facts += [ActivationFacts(spec, (2, 1), 2, "baseline", text) for spec, text in PAIRWISE.items()]
    facts.append(ActivationFacts("max_min_d", (2, 2), 2, "baseline", "max and min of each pair, GroupSort"))
    for form, how in FORMS.items():
        facts += [ActivationFacts(f"{op}_{form}", (2, 1), 2, "gate", f"{text}, {how}") for op, text in OPERATIONS.items()]
        for strategy, kind in (("d", "duplicate"), ("p", "partition")):
            for names in ENSEMBLES[strategy]:
                members = names.upper().split("_")
                out, width_multiple = (len(members), 2) if strategy == "d" else (1, 2 * len(members))
                text = f"{', '.join(members)}; {how}"
                facts.append(ActivationFacts(f"{names}_{form}_{strategy}", (2, out), width_multiple, kind, text))
    if "boolit.nn.specs" in sys.modules:  # nothing can be registered before
        from boolit.nn import activation, known_specs

        for module in map(activation, set(known_specs()) - {entry.spec for entry in facts}):
            text = (inspect.getdoc(module) or "").partition("\n")[0]
            facts.append(ActivationFacts(module.spec, module.channels, module.width_multiple, "registered", text))
    return sorted(facts, key=lambda entry: (entry.channels, KINDS.index(entry.kind)))


def list_studies() -> list[dict[str, Any]]:
    """List the studies that ship with boolit: name, profiles, title."""
    files = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(STUDIES.glob("*.toml"))}
    studies = [{"name": name, "profiles": list(file["profiles"]), "title": file["title"]} for name, file in files.items()]
    return sorted([*studies, DECODING], key=lambda study: str(study["name"]))
