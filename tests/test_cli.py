"""The command line as a user meets it: what it prints where, and the exit codes."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import boolit
from boolit.cli import _app, _list, _paper, main
from boolit.cli._signals import INTERRUPTS
from boolit.errors import UserError
from boolit.lab.paper.verification import Check, CheckFamily
from boolit.nn import known_specs

Run = Callable[..., tuple[int, str, str]]


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


def one_family(*checks: Check) -> tuple[CheckFamily, ...]:
    return (CheckFamily("sample", "A sample", "tab:sample", lambda: checks),)


def in_another_process(*command: str) -> tuple[int, str, str]:
    done = subprocess.run([sys.executable, "-W", "error", *command], capture_output=True, encoding="utf-8", timeout=120)
    return done.returncode, done.stdout, done.stderr


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
        (("list", "--nope"), "--nope"),
        (("list", "planets"), "'planets'"),
        (("list", "activations", "more"), "more"),
        (("verify", "--only"), "--only"),
        (("verify", "--only", "maps,mapz"), "'mapz'"),
        (("verify", "--only", ""), "''"),
    ],
)
def test_bad_input_is_one_line_naming_it(run: Run, arguments: tuple[str, ...], named: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert named in err


def test_a_users_error_stays_on_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise UserError("line one\n  line [bold]two[/bold]")

    monkeypatch.setitem(_list.LISTINGS, "activations", refuse)
    assert run("list") == (2, "", "error: line one line [bold]two[/bold]\n")


def test_an_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("a bug, not the user's")

    monkeypatch.setitem(_list.LISTINGS, "activations", fail)
    with pytest.raises(ValueError, match="a bug"):
        main(["list"])


def test_an_error_after_an_interrupt_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ValueError("a bug while the report is written")

    monkeypatch.setattr(_list, "LISTINGS", {"activations": fail})
    monkeypatch.setattr(INTERRUPTS, "received", True)
    with pytest.raises(ValueError, match="a bug"):
        main(["list"])


def test_debug_shows_the_traceback_of_a_system_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no space left")

    monkeypatch.setitem(_list.LISTINGS, "activations", fail)
    code, _, err = run("list")
    assert (code, err.count("\n")) == (2, 1)
    assert "no space left" in err
    with pytest.raises(OSError, match="no space left"):
        _app.run(["--debug", "list"])


def test_an_interrupt_is_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(_list.LISTINGS, "activations", interrupt)
    code, out, err = run("list")
    assert (code, out, err.strip()) == (130, "", "")


def test_list_shows_every_activation_within_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run("list")
    assert code == 0
    first_words = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert set(known_specs()) <= set(first_words)
    assert "2→3 duplicates" in out
    assert "_kN" in out
    assert "_halves" in out


def test_list_as_json(run: Run) -> None:
    entries = json.loads(run("list", "activations", "--json")[1])
    assert {entry["spec"] for entry in entries} == set(known_specs())
    ensemble = next(entry for entry in entries if entry["spec"] == "or_and_xnor_ail_p")
    assert (ensemble["channels"], ensemble["width_multiple"], ensemble["feature_factor"], ensemble["kind"]) == (
        [2, 1],
        6,
        0.5,
        "partition",
    )


def test_a_list_on_a_closed_stream_is_no_traceback() -> None:
    command = f"{sys.executable} -m boolit list studies >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_paper_with_the_runner_of_typer() -> None:
    result = CliRunner().invoke(_app.application(), ["verify", "--only", "maps", "--only", "normalization"])
    assert result.exit_code == 0, result.output
    assert re.search(r"all \d+ checks agree", result.output)
    assert "tab:normalization-constants" in result.output
    assert "transfer heads" not in result.output


def test_paper_takes_names_separated_by_commas(run: Run) -> None:
    report = json.loads(run("verify", "--only", "maps,difference", "--json")[1])
    assert {check["family"] for check in report["checks"]} == {"maps", "difference"}


def test_a_mismatch_exits_with_1_and_shows_both_values(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = one_family(Check("right", 1, 1), Check("wrong", 0.5, 0.5000001, tolerance=1e-9), Check("lost", 0.0, float("nan")))
    monkeypatch.setattr(_paper, "choose", lambda _: checks)
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


def test_an_erratum_has_a_note(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Check("share", 12, 10, expected=10, kind="erratum", note="the paper says 12")
    monkeypatch.setattr(_paper, "choose", lambda _: one_family(check))
    code, out, _ = run("verify")
    assert code == 0
    assert "[1] the paper says 12" in out
    assert "1 errata of the paper" in out


def test_doctor_as_json(run: Run) -> None:
    code, out, err = run("doctor", "--json")
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert report["software"]["boolit"] == boolit.__version__
    assert set(report) == {"software", "kernels", "devices", "extras", "data", "warnings"}


def test_doctor_works_with_torch_alone() -> None:
    blocked = ("pandas", "platformdirs", "pydantic", "rich", "typer")
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked})); from boolit.cli import main; main(['doctor'])"
    status, out, err = in_another_process("-c", code)
    assert (status, err) == (0, "")
    assert boolit.__version__ in out


def test_a_dry_run_lists_the_runs_and_trains_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("run", "parity", "--activations", "relu,xnor_ail", "--seeds", "3", "--dry-run")
    assert "6 runs" in run(*arguments)[1]
    plan = json.loads(run(*arguments, "--json")[1])
    assert {row["activation"]: row["runs"] for row in plan["runs"]} == {"relu": 3, "xnor_ail": 3}
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
    assert "'4y6'" in run("bench", "--shape", "4y6")[2]


def test_a_missing_module_of_ours_is_not_blamed_on_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boolit.cli._app", None)
    with pytest.raises(ModuleNotFoundError, match="_app"):
        main(["list"])


def test_a_terminal_without_the_characters_still_tells_right_from_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(_paper, "choose", lambda _: one_family(Check("1→1", 1, 1), Check("2→1", 1, 2)))
    with pytest.raises(SystemExit):
        main(["verify"])
    terminal.seek(0)
    out = terminal.read()
    assert "\nok    1?1" in out
    assert "\nFAIL  2?1" in out


def test_module_runs_as_the_command() -> None:
    code, out, err = in_another_process("-m", "boolit", "list", "planets")
    assert (code, out) == (2, "")
    assert re.fullmatch(r"error: .*'planets' is not one of 'activations', 'studies', 'figures'.*see boolit list --help\n", err)


def test_without_the_extra_the_library_works_and_the_command_says_how_to_get_it() -> None:
    blocked = ("matplotlib", "pyarrow", "pydantic", "rich", "safetensors", "scipy", "typer")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked})); import boolit; print(boolit.activation('or_ail').channels)"
    )
    message = "boolit's commands need the extra: pip install 'boolit[lab]' (typer is missing)\n"
    assert in_another_process("-c", f"{code}; from boolit.cli import main; main()") == (2, "(2, 1)\n", message)
