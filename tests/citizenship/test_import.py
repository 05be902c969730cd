"""``import boolit`` needs torch alone, and little time; a command loads what it needs and no more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PUBLIC = ["__version__", "activation", "combine", "functional", "load", "logic", "nn"]
SCRIPT = """
import sys, time
started = time.perf_counter()
import torch
loaded, with_torch = set(sys.modules), time.perf_counter()
import boolit.nn
done = time.perf_counter()
print(*sorted(set(sys.modules) - loaded))
print(f"import torch {with_torch - started:.2f} s, import boolit {1000 * (done - with_torch):.0f} ms more")
"""
HEAVY = ("torch._dynamo", "torch._inductor", "torch.onnx", "torch.testing")
COMMANDS = """
import contextlib, io, json, sys
commands, sys.argv[0] = json.loads(sys.argv[1]), "boolit"  # as the script is called
from boolit.cli import main
found = {}
for arguments in commands:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
    found[" ".join(arguments)] = [code, len(out.getvalue()), sorted(sys.modules)]
print(json.dumps(found))
"""
LIGHT = [
    ["--version"],
    ["--help"],
    *(
        [*command, "--help"]
        for command in (
            ["run"],
            ["compare"],
            ["verify"],
            ["bench"],
        )
    ),
    *(["list", kind, *json_] for kind in ("activations", "studies", "figures") for json_ in ([], ["--json"])),
]
UNUSED = ("compare.job", "datasets.iraven", "datasets.czsl", "datasets.images")


def loaded_by(*commands: list[str]) -> dict[str, tuple[int, int, list[str]]]:
    """Exit code, length of the output and loaded modules after each command, all run in one new process."""
    arguments = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
    done = subprocess.run(arguments, capture_output=True, encoding="utf-8", check=True, timeout=300)
    found: dict[str, tuple[int, int, list[str]]] = json.loads(done.stdout)
    return found


def test_import_needs_torch_alone() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=300)
    modules, times = done.stdout.splitlines()
    print(times)
    packages = {name.partition(".")[0] for name in modules.split()}
    assert {name for name in packages - sys.stdlib_module_names if not name.startswith("_sysconfigdata")} <= {"boolit", "torch"}
    assert not [name for name in modules.split() if name.startswith(HEAVY)]
    assert "boolit.lab" not in modules


def test_importing_boolit_does_nothing_else() -> None:
    code = (
        "import signal, sys; sys.argv[0] = 'boolit'; before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]\n"
        f"import boolit; assert dir(boolit) == {PUBLIC} == boolit.__all__\n"
        "assert before == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]\n"
        "print(boolit.nn.convert.__name__, boolit.activation('or_ail').channels, boolit.functional.or_ail.__name__)\n"
        f"from boolit import *; assert len([{', '.join(PUBLIC[1:])}]) == 6\n"
        "try: boolit.nothing\nexcept AttributeError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines() == ["convert (2, 1) or_ail", "module 'boolit' has no attribute 'nothing'"]


def test_version_help_and_lists_load_neither_torch_nor_what_draws_or_tests() -> None:
    found = loaded_by(*LIGHT)
    for command, (code, length, modules) in found.items():
        assert code == 0
        assert length, command
        assert not {"torch", "scipy", "matplotlib", "pooch", "sklearn", "pyarrow"} & set(modules), command
    assert "typer" not in found["--version"][2]


def test_a_study_loads_only_the_packages_it_uses(tmp_path: Path) -> None:
    small = ["--seeds", "1", "--set", "training.epochs=1", "--set", "sweep.activation=['relu', 'or_ail']"]
    ((code, _, modules),) = loaded_by(["run", "parity", *small, "--out", str(tmp_path), "--json"]).values()
    ours = [name for name in modules if name.partition(".")[0] == "boolit"]
    assert code == 0
    assert len(ours) <= 120
    assert not [name for name in ours if name.startswith(tuple(f"boolit.lab.{package}" for package in UNUSED))]
