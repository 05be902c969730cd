"""Every activation is listed, described, and as its module says it is."""

from __future__ import annotations

import torch

import boolit
from boolit.lab.catalogue import list_activations, list_studies
from boolit.nn import Custom, known_specs, register


def test_every_activation_is_listed_as_its_module_says_it_is() -> None:
    register("triple", lambda dim: Custom(lambda x: torch.cat([x, x, x], -1), dim, name="triple"))
    entries = {entry.spec: entry for entry in list_activations()}
    assert set(entries) == set(known_specs())
    for spec, entry in entries.items():
        module = boolit.activation(spec)
        assert (module.spec, module.channels, module.width_multiple) == (spec, entry.channels, entry.width_multiple)
        assert module(torch.zeros(2, 12)).shape[-1] * entry.channels[0] == 12 * entry.channels[1]
        assert entry.description
    assert entries["triple"].kind == "registered"
    assert len({(entry.description, entry.kind, entry.channels) for entry in entries.values()}) == len(entries)
    assert [entry.channels for entry in list_activations()] == sorted(entry.channels for entry in list_activations())


def test_every_study_has_profiles_and_a_title() -> None:
    studies = {study["name"]: study for study in list_studies()}
    assert len(studies) == 30
    settle = {name for name in studies if name.startswith("settle-")}
    assert all({"params", "outputs", "step-time"} <= set(studies[name]["profiles"]) for name in settle)
    others = [study for name, study in studies.items() if name not in settle]
    assert all({"quick", "paper"} <= set(study["profiles"]) and study["title"] for study in others)
