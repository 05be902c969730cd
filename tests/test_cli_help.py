"""Help texts: every command has examples that parse, options in groups, one style, and no word cut at 80 or 60 columns."""

from __future__ import annotations

import inspect
import shlex
from enum import Enum
from typing import Any, get_args, get_type_hints

import pytest
import typer

from boolit.cli import _options
from boolit.cli._app import COMMANDS, HELP, application, run
from boolit.cli._help import split_examples
from boolit.lab.bench import DTYPES
from boolit.lab.catalogue import CATALOGUES, STUDIES
from boolit.lab.compare.config import CompareConfig
from boolit.lab.paper.figures.look import FORMATS as DRAWINGS
from boolit.lab.reports.tables import FORMATS as TABLES
from boolit.lab.results import export


def commands(group: str = "boolit", path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every command's words, groups included."""
    found = [path]
    for places in COMMANDS[group].values():
        for name, place in places.items():
            found += commands(place, (*path, name)) if place in COMMANDS else [(*path, name)]
    return found


def find(words: tuple[str, ...]) -> Any:
    command: Any = typer.main.get_command(application())
    for word in words:
        command = command.get_command(None, word)
    return command


def resolve(words: list[str]) -> tuple[Any, Any]:
    """The command that an argument list names, with everything parsed, and its context."""
    command: Any = typer.main.get_command(application())
    context = command.make_context("boolit", list(words))
    while hasattr(command, "get_command"):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        if not rest:
            break
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return command, context


EVERY = commands()
LEAVES = [words for words in EVERY if words and words not in (("data",), ("data", "generate"), ("bench",))]


@pytest.fixture(params=EVERY, ids=lambda words: " ".join(("boolit", *words)))
def words(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return request.param


def help_text(words: tuple[str, ...], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    assert run([*words, "--help"]) == 0
    return capsys.readouterr().out


def test_every_command_ends_its_help_with_examples(words: tuple[str, ...]) -> None:
    examples = split_examples(find(words).help)[1]
    assert 2 <= len(examples) <= 4
    assert all(line.startswith("boolit ") and len(line) <= 78 for line in examples)


def test_every_example_parses_and_names_what_there_is(words: tuple[str, ...]) -> None:
    for line in split_examples(find(words).help)[1]:
        given = shlex.split(line.partition("|")[0])[1:]
        command, context = resolve(given)
        assert command.callback is not None, line
        study = context.params.get("study")
        assert study is None or study.endswith(".toml") or (STUDIES / f"{study}.toml").exists(), line


def test_an_example_with_a_mistake_would_not_parse() -> None:
    with pytest.raises(typer.BadParameter.__mro__[2], match="--seedz"):
        resolve(["run", "parity", "--seedz", "3"])


@pytest.mark.parametrize("width", [80, 60])
def test_no_help_is_cut_or_too_wide(
    words: tuple[str, ...], width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text, _, examples = help_text(words, width, monkeypatch, capsys).partition("\nExamples:\n")
    assert max(map(len, text.splitlines())) <= width
    assert max(map(len, examples.splitlines())) <= 80
    assert not [line for line in text.splitlines() if line.endswith("...") and "Usage" not in line]
    assert not {"│", "╭", "\x1b"} & set(text)


def test_commands_stand_in_groups(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_text((), 80, monkeypatch, capsys)
    for heading, places in COMMANDS["boolit"].items():
        section = text.partition(f"\n{heading}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines() if line[2] != " "] == list(places)


def test_options_stand_in_groups_with_their_ranges_choices_and_defaults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_text(("compare",), 80, monkeypatch, capsys)
    headings = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Arguments:", "Data:", "What to compare:", "Training:", "Output:", "Examples:"]
    assert "--task classify|regress" in text
    assert "[1 to 20; default: 2]" in text
    assert "[default: results/TABLE]" in text
    assert text.count("--help") == 1


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_one_style_of_options(words: tuple[str, ...]) -> None:
    for parameter in find(words).params:
        if parameter.name == "help":
            continue
        if "activation" in parameter.name:
            assert parameter.opts == ["--activations", "-a"]
        if parameter.name == "out" and parameter.metavar == "DIR" and words[0] != "data":
            assert parameter.show_default.startswith("results/")
        if parameter.param_type_name == "option" and not parameter.is_flag:
            assert parameter.metavar, f"{words}: {parameter.name} would show the name of a Python type"


def test_choices_are_those_of_the_lab() -> None:
    offered: dict[type[Enum], Any] = {
        _options.Kind: CATALOGUES,
        _options.Task: get_args(get_args(get_type_hints(CompareConfig)["task"])[0]),
        _options.DrawingFormat: DRAWINGS,
        _options.TableFormat: TABLES,
        _options.RunsFormat: export._WRITERS,
        _options.FloatType: DTYPES,
    }
    for choice, known in offered.items():
        assert [each.value for each in choice] == list(known), choice
    own = [each for _, each in inspect.getmembers(_options, inspect.isclass) if issubclass(each, Enum) and each is not Enum]
    assert set(own) == set(offered)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("list studie", "KIND 'studie' is not one of activations, studies, figures; did you mean studies?"),
        ("run parity --seeds 0", "--seeds 0 must be at least 1"),
        ("run parity --seeds=few", "--seeds few is not a whole number, at least 1"),
        ("compare t.csv -t y --test 2", "--test 2 must be 0.01 to 0.9"),
        ("compare t.csv -t y --test half", "--test half is not a number, 0.01 to 0.9"),
        ("compare t.csv -t y --task regres", "--task 'regres' is not one of classify, regress; did you mean regress?"),
        ("bench gates --dtype float33", "--dtype 'float33' is not one of float32, float64, bfloat16, float16; did you mean"),
        ("export somewhere -f xls", "-f 'xls' is not one of csv, parquet, json"),
        ("figures --format pngg", "--format 'pngg' is not one of png, svg, pdf; did you mean png?"),
        ("paper mlp-mnist --format latx", "--format 'latx' is not one of markdown, latex, html, csv; did you mean latex?"),
        ("verify --only mapz", "--only 'mapz' is not one of normalisation,"),
        ("run parity --activations relu,reluu", "unknown activation 'reluu'; did you mean relu"),
        ("search parity -a reluu", "unknown activation 'reluu'; did you mean relu"),
        ("show parity -a ,", "--activations , names none"),
        ("run", "Missing argument 'STUDY'"),
        ("compare t.csv", "Missing option '--target'"),
        ("run parity --seed 3", "No such option: --seed"),
        ("verfy", "No such command 'verfy'. Did you mean 'verify'?"),
    ],
)
def test_a_wrong_argument_is_one_line_with_the_value_and_the_rule(
    given: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(given.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {told}"), err
    assert err.count("\n") == 1


def test_the_groups_have_help() -> None:
    assert set(HELP) == set(COMMANDS)


def test_the_activations_of_a_command_are_those_of_the_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "parity", "--activations", "relu, xnor_ail", "--json"]) == 0
    out = capsys.readouterr().out
    assert '"activation": "xnor_ail"' in out
    assert '"activation": "max"' not in out
