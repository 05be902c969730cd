"""Printing of ``boolit doctor``. Needs only torch."""

from __future__ import annotations

import json as json_module
import textwrap

from boolit.lab.doctor import Fact, examine


def print_facts(json: bool = False) -> None:
    """Print what is active on this machine, and warnings with their fixes."""
    sections = examine()
    warnings = [line for section in sections for line in section.warnings]
    if json:
        facts = {section.name: dict(section.facts) for section in sections}
        print(json_module.dumps({**facts, "warnings": warnings}, indent=2, ensure_ascii=False))
        return
    width = max(len(name) for section in sections for name in section.facts)
    for section in sections:
        print(section.name)
        for name, fact in section.facts.items():
            label = name.replace("_", " ")
            lines = textwrap.wrap(_in_words(fact), 75 - width, break_long_words=False, break_on_hyphens=False)
            print(f"  {label:<{width}}  {(chr(10) + ' ' * (width + 4)).join(lines)}")
    print("\n" + ("\n".join(f"warning: {line}" for line in warnings) or "no problems found"))


def _in_words(fact: Fact) -> str:
    if fact is None:
        return "-"
    if isinstance(fact, bool):
        return "yes" if fact else "no"
    if isinstance(fact, str | int):
        return str(fact)
    missing = ", ".join(package for package, version in fact.items() if version is None)
    present = ", ".join(f"{package} {version}" for package, version in fact.items() if version is not None)
    return "; ".join(filter(None, [present, missing and f"not installed: {missing}"]))
