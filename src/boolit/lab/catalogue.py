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
BASELINES: dict[tuple[int, int], dict[str, str]] = {  # by channels in and out
    (1, 1): {
        "relu": "max(0, x)",
        "leaky_relu": "x if x > 0, else 0.01 x",
        "prelu": "x if x > 0, else a x with a learned a",
        "softplus": "log(1 + eˣ)",
        "elu": "x if x > 0, else eˣ − 1",
        "celu": "elu, smooth for any α (α = 1)",
        "selu": "elu, scaled to keep mean 0 and sd 1",
        "gelu": "x Φ(x)",
        "silu": "x σ(x)",
        "hardswish": "x clip(x + 3, 0, 6) / 6",
        "mish": "x tanh(log(1 + eˣ))",
        "softsign": "x / (1 + |x|)",
        "tanh": "tanh(x)",
        "sigmoid": "σ(x)",
        "relu6": "clip(x, 0, 6)",
        "rrelu": "x if x > 0, else a x with a random a",
        "hardtanh": "clip(x, −1, 1)",
        "hardsigmoid": "clip(x + 3, 0, 6) / 6",
        "hardshrink": "x if |x| > 0.5, else 0",
        "softshrink": "x moved toward 0 by 0.5",
        "tanhshrink": "x − tanh(x)",
        "logsigmoid": "log σ(x)",
        "identity": "x",
    },
    (2, 1): {
        "glu": "x σ(y), y from the second half",
        "swiglu": "x silu(y), y from the second half",
        "geglu": "x gelu(y), y from the second half",
        "bilinear": "x y, y from the second half",
        "max": "max(x, y), MaxOut",
        "min": "min(x, y)",
        "signed_geomean": "sgn(x y) √|x y|",
    },
    (2, 2): {"max_min_d": "max and min of each pair, GroupSort"},
}
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
    facts = [
        ActivationFacts(spec, map_, map_[0], "baseline", text)
        for map_, texts in BASELINES.items()
        for spec, text in texts.items()
    ]
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
