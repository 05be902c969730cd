"""The command line as a user meets it: what it prints where, and the exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import boolit
from boolit.cli import _app, _list, _paper, main
from boolit.cli._signals import INTERRUPTS
from boolit.errors import UserError, user_input
from boolit.lab.paper.verification import Check, CheckFamily
from boolit.nn import known_specs

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """``main`` in this process: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        assert isinstance(exit_.value.code, int)
        captured = capsys.readouterr()
        return exit_.value.code, captured.out, captured.err

    return run


def list_raises(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``boolit list`` fail."""

    def fail() -> None:
        raise error

    monkeypatch.setitem(_list.LISTINGS, "activations", fail)


def verify_checks(monkeypatch: pytest.MonkeyPatch, *checks: Check) -> None:
    """Make ``boolit verify`` compute these checks."""
    monkeypatch.setattr(_paper, "choose", lambda _: (CheckFamily("sample", "A sample", "tab:sample", lambda: checks),))


def in_another_process(*command: str, stdout: int = subprocess.PIPE) -> tuple[int, str, str]:
    arguments = [sys.executable, "-W", "error", *command]
    done = subprocess.run(arguments, stdout=stdout, stderr=subprocess.PIPE, encoding="utf-8", timeout=120)
    return done.returncode, done.stdout, done.stderr


# ------------------------------------------------------------------------------------------------ help and bad input


@pytest.mark.parametrize("arguments", [("--version",), ("--version", "list")])
def test_version(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == (0, f"boolit {boolit.__version__}\n", "")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_names_every_command(run: Run, arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    for command in ("list", "doctor", "verify"):
        assert f" {command} " in out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("lst",), "'lst'"),
        (("--nope",), "--nope"),
        (("list", "planets"), "'planets' is not one of 'activations', 'studies', 'figures'; see boolit list --help"),
        (("list", "activations", "more"), "more"),
        (("verify", "--only"), "--only"),
        (("verify", "--only", "maps,mapz"), "'mapz'"),
        (("bench", "--shape", "4y6"), "'4y6'"),
        (("run", "parity", "--out="), "--out is followed by '', an empty value"),
        (("run", "parity", "--hparams", ""), "--hparams is followed by '', an empty value"),
        (("run", "parity", "--seeds", "1000000000"), "--seeds 1000000000"),
        (("run", "parity", "--seeds", "100000"), "at most 200,000"),
    ],
)
def test_bad_input_is_one_line_naming_it(run: Run, arguments: tuple[str, ...], named: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert named in err


def test_a_users_error_stays_on_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    list_raises(UserError("line one\n  line [bold]two[/bold]"), monkeypatch)
    assert run("list") == (2, "", "error: line one line [bold]two[/bold]\n")


@pytest.mark.parametrize("interrupted", [False, True])
def test_an_unexpected_error_keeps_its_traceback(interrupted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    list_raises(ValueError("a bug, not the user's"), monkeypatch)
    monkeypatch.setattr(INTERRUPTS, "received", interrupted)
    with pytest.raises(ValueError, match="a bug"):
        main(["list"])


@pytest.mark.parametrize("kind", [RuntimeError, KeyError, ZeroDivisionError, KeyboardInterrupt])
def test_an_error_that_no_input_causes_is_not_the_users(kind: type[BaseException]) -> None:
    with pytest.raises(kind), user_input():
        raise kind


def test_debug_shows_the_traceback_of_a_system_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    list_raises(OSError("no space left"), monkeypatch)
    code, _, err = run("list")
    assert (code, err.count("\n")) == (2, 1)
    assert "no space left" in err
    with pytest.raises(OSError, match="no space left"):
        _app.run(["--debug", "list"])


def test_an_interrupt_is_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    list_raises(KeyboardInterrupt(), monkeypatch)
    code, out, err = run("list")
    assert (code, out, err.strip()) == (130, "", "")


def test_a_missing_module_of_ours_is_not_blamed_on_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boolit.cli._app", None)
    with pytest.raises(ModuleNotFoundError, match="_app"):
        main(["list"])


# ------------------------------------------------------------------------------------------------ output


def test_list_shows_every_activation(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run("list")
    assert code == 0
    assert set(known_specs()) <= {line.split()[0] for line in out.splitlines() if line.strip()}
    entries = json.loads(run("list", "activations", "--json")[1])
    assert {entry["spec"] for entry in entries} == set(known_specs())
    ensemble = next(entry for entry in entries if entry["spec"] == "or_and_xnor_ail_p")
    assert ensemble.items() >= {"channels": [2, 1], "width_multiple": 6, "feature_factor": 0.5, "kind": "partition"}.items()


@pytest.mark.parametrize("columns", ["", "40"])
def test_no_list_cuts_a_word(run: Run, columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for arguments in (("list",), ("list", "studies"), ("list", "figures"), ("run", "parity", "--dry-run"), ("paper",)):
        out = run(*arguments)[1]
        assert "…" not in out
        assert not columns or max(map(len, out.splitlines())) <= 40


def test_a_mismatch_exits_with_1_and_shows_both_values(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, lost = Check("wrong", 0.5, 0.5000001, tolerance=1e-9), Check("lost", 0.0, float("nan"))
    verify_checks(monkeypatch, Check("right", 1, 1), wrong, lost)
    code, out, _ = run("verify")
    assert code == 1
    assert "2 of 3 checks fail" in out
    assert "expected 0.5, got 0.5000001" in out
    assert out.count("✗") == 2
    code, out, _ = run("verify", "--json")
    report = json.loads(out)
    assert (code, report["ok"]) == (1, False)
    assert [check["ok"] for check in report["checks"]] == [True, False, False]
    assert report["checks"][2]["ours"] == "nan"


def test_an_erratum_agrees_with_the_correct_value_and_has_a_note(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    verify_checks(monkeypatch, Check("a", 1, 1), Check("b", 12, 10, expected=10, kind="erratum", note="the paper says 12"))
    assert "[1] the paper says 12" in run("verify")[1]
    assert run("verify", "--summary")[:2] == (0, "all 2 checks agree: 1 printed in the paper, 1 errata of the paper\n")


def test_verify_takes_names_separated_by_commas_or_repeated(run: Run) -> None:
    report = json.loads(run("verify", "--only", "maps,difference", "--only", "normalization", "--json")[1])
    assert {check["family"] for check in report["checks"]} == {"maps", "difference", "normalization"}


def test_a_terminal_without_the_characters_still_tells_right_from_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    monkeypatch.setattr(sys, "stdout", terminal)
    verify_checks(monkeypatch, Check("1→1", 1, 1), Check("2→1", 1, 2))
    with pytest.raises(SystemExit):
        main(["verify"])
    terminal.seek(0)
    out = terminal.read()
    assert "\nok    1?1" in out
    assert "\nFAIL  2?1" in out


def test_a_dry_run_lists_the_runs_and_trains_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("run", "parity", "--activations", "relu,xnor_ail", "--seeds", "3", "--dry-run")
    assert "6 runs" in run(*arguments)[1]
    plan = json.loads(run(*arguments, "--json")[1])
    assert {row["activation"]: row["runs"] for row in plan["runs"]} == {"relu": 3, "xnor_ail": 3}
    assert "18 runs" in run("run", "transfer-cifar10", "--dry-run")[1]  # one row has no hidden layer
    assert list(tmp_path.iterdir()) == []


def test_data_is_loaded_only_for_missing_runs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("run", "xor", "--seeds", "1", "--activations", "relu,or_ail", "--set", "training.epochs=1")
    assert run(*command, "--out", str(tmp_path), "--json")[0] == 0
    monkeypatch.setattr("boolit.lab.datasets.load", lambda _: pytest.fail("it was loaded again"))
    assert run(*command, "--out", str(tmp_path), "--json")[0] == 0


def test_bench_compares_with_torch(run: Run) -> None:
    arguments = ("bench", "--activations", "or_ail", "--shape", "4x6", "--rounds", "2", "--threads", "1")
    code, out, _ = run(*arguments, "--json")
    ratios = json.loads(out)["ratios"]
    assert (code, {ratio["shape"] for ratio in ratios}) == (0, {"4x6", "8x8"})
    assert all(ratio["ratio"] > 0 for ratio in ratios)
    assert "or_ail" in run(*arguments)[1]


# ------------------------------------------------------------------------------------------------ in a process


def test_doctor_works_with_torch_alone() -> None:
    blocked = ("pandas", "platformdirs", "pydantic", "rich", "typer")
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked})); from boolit.cli import main; main(['doctor'])"
    status, out, err = in_another_process("-c", code)
    assert (status, err) == (0, "")
    assert boolit.__version__ in out


@pytest.mark.parametrize(
    ("set_by_user", "spins"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")]
)
def test_waiting_threads_leave_the_processor_unless_the_user_decides(set_by_user: dict[str, str], spins: str) -> None:
    code = f"""import atexit, os, sys
for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
    os.environ.pop(name, None)
os.environ.update({set_by_user})
atexit.register(lambda: print(os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules))
sys.argv = ["boolit", "--version"]
from boolit.cli import main
main()"""
    assert in_another_process("-c", code) == (0, f"boolit {boolit.__version__}\n{spins} False\n", "")


def test_without_the_extra_the_library_works_and_the_command_says_how_to_get_it() -> None:
    blocked = ("matplotlib", "pyarrow", "pydantic", "rich", "safetensors", "scipy", "typer")
    library = "import boolit; print(boolit.activation('or_ail').channels); from boolit.cli import main; main()"
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked})); {library}"
    message = "boolit's commands need the extra: pip install 'boolit[lab]' (typer is missing)\n"
    assert in_another_process("-c", code) == (2, "(2, 1)\n", message)


def test_a_closed_output_is_no_error() -> None:
    command = f"{sys.executable} -m boolit list studies >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is always full")
@pytest.mark.parametrize("arguments", [("list",), ("run", "parity", "--dry-run")])
def test_a_full_output_is_one_line(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        code, _, err = in_another_process("-m", "boolit", *arguments, stdout=full.fileno())
    assert code == 2
    assert re.fullmatch("error: .*No space left.*\n", err)


def test_a_reader_that_leaves_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code, _, err = in_another_process("-m", "boolit", "list", stdout=writing)
    os.close(writing)
    assert (code, err) == (141, "")


COMPLETE = """
import contextlib, io, json, os, sys
lines, sys.argv[0] = json.loads(sys.argv[1]), "boolit"
from boolit.cli import main
found = {}
for line in lines:
    os.environ.update(_BOOLIT_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(line.count(" ")))
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([])
    found[line] = out.getvalue().split()
print(json.dumps([found, "torch" in sys.modules]))
"""
COMPLETED = {
    "boolit ver": ["verify"],
    "boolit run par": ["parity", "parity8"],
    "boolit compare t.csv -a relu,signed": ["relu,signed_geomean"],
    "boolit list st": ["studies"],
    "boolit compare t.csv --task ": ["classify", "regress"],
    "boolit run parity --dry": ["--dry-run"],
}


def test_a_shell_completes_names_without_torch() -> None:
    code, out, err = in_another_process("-c", COMPLETE, json.dumps(list(COMPLETED)))
    assert (code, err) == (0, "")
    assert json.loads(out) == [COMPLETED, False]
