"""The commands, gathered; and what becomes of their errors.

A command is a function in a file of this folder, named in `COMMANDS`; its file is imported when the command or its help is
asked for. It imports the lab inside the function, so that no help waits for torch; it raises `UserError` for bad input and
``typer.Exit(code)`` to end early. Its docstring ends with examples, which a test parses.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from boolit import __version__
from boolit.cli import print_error
from boolit.cli._help import HelpLayout, explain, write_commands
from boolit.cli._options import UNFINISHED
from boolit.cli._signals import INTERRUPTED, INTERRUPTS, READER_GONE
from boolit.errors import UserError, lacks_memory

# Newer typers carry click inside themselves, older ones use the package: the base of BadParameter is right in both.
ParsingError = cast("type[Exception]", typer.BadParameter.__mro__[2])

# By group, and by the headings of its help; a command is a function of a module in this folder, or another group.
COMMANDS: dict[str, dict[str, dict[str, str]]] = {
    "boolit": {
        "Compare on your own data": {
            "compare": "_compare:compare",
            "predict": "_compare:predict",
        },
        "Studies": {"run": "_run:run", "show": "_run:show", "search": "_run:search", "list": "_list:list_"},
        "Results": {
            "report": "_report:report",
            "watch": "_report:watch",
            "export": "_results:export",
            "correlations": "_results:correlations",
        },
        "The paper": {"verify": "_verify:verify", "paper": "_results:paper", "figures": "_results:figures"},
        "This machine": {"doctor": "_list:doctor", "fetch": "_data:fetch", "bench": "_bench:bench"},
    },
}
HELP = {
    "boolit": """Logical activation functions for PyTorch, and the lab to test them.

Examples:
  boolit compare wine.csv --target quality
  boolit run parity
  boolit list studies
  boolit verify --summary""",
}
WITHOUT_TORCH = ("_list:list_",)
EXIT_CODES = {
    0: "done",
    1: "a check failed",
    2: "bad input, or what the system refused",
    UNFINISHED: "workers failed",
    INTERRUPTED: "interrupted",
    READER_GONE: "the reader of the output left",
}

COMPLETION = "_BOOLIT_COMPLETE"  # set by the script that --install-completion gives a shell
_SUBSCRIPT = re.compile("[ₐᵢₗₙ]+")  # as in the paper's names
_EMPTY_OPTION = re.compile(r"--[a-z-]+=")


def application() -> typer.Typer:
    """The command line, with every command."""
    codes = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    settings = {"help_option_names": ["-h", "--help"]}
    return _group("boolit", _root, epilog=f"Exit codes: {codes}.", context_settings=settings, add_completion=True)


def _group(name: str, callback: Any, add_completion: bool = False, **settings: Any) -> typer.Typer:
    app = typer.Typer(
        name=name,
        cls=_Group,
        help=HELP[name],
        add_completion=add_completion,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        **settings,
    )
    app.callback(invoke_without_command=True)(callback)
    return app


class _Group(HelpLayout, TyperGroup):
    """A group whose commands are imported when they are used."""

    def __init__(self, *, name: str, **settings: Any) -> None:
        super().__init__(name=name, **settings)
        self.places = {name: place for places in COMMANDS[name].values() for name, place in places.items()}
        self.commands = cast(Any, dict.fromkeys(self.places))  # the names alone

    def list_commands(self, _context: object) -> list[str]:
        return list(self.places)

    def get_command(self, _context: object, name: str) -> Any:
        place = self.places.get(name)
        if place is None:
            return None
        module, _, function = place.partition(":")
        if not function:
            return typer.main.get_command(_group(module, _print_help))
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        kind = _Command if place in WITHOUT_TORCH else _TorchCommand
        app.command(name, cls=kind)(getattr(import_module(f"boolit.cli.{module}"), function))
        return typer.main.get_command(app)

    def format_commands(self, context: Any, formatter: Any) -> None:
        for heading, places in COMMANDS[str(self.name)].items():
            write_commands(formatter, heading, [(name, self.get_command(context, name)) for name in places])


class _Command(HelpLayout, TyperCommand):
    """A command with its options in groups and its examples last."""


class _TorchCommand(_Command):
    """A command that needs torch, which is imported while a signal still ends the process at once."""

    def invoke(self, context: Any) -> Any:
        import_module("boolit.nn")
        INTERRUPTS.raise_interrupt()
        return super().invoke(context)


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; an exception that is not the user's to mend passes through.

    What the system refuses (a full disk, a file in a folder's place, no memory) is the user's to mend.
    """
    _tolerate_narrow_encodings()
    command = typer.main.get_command(application())
    if COMPLETION in os.environ:
        command.main([], prog_name="boolit")  # answers the shell and ends
    try:
        _refuse_empty(arguments)
        # Not command.main, which ends the process by itself where the reader of standard output has left.
        with command.make_context("boolit", list(arguments)) as context:
            code = command.invoke(context)
    except UserError as error:
        print_error(error)
    except ParsingError as error:
        print_error(explain(cast(typer.BadParameter, error), arguments))
    except typer.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        raise
    except OSError as error:
        print_error(f"{error}; see to that file or disk, and run the same command again")
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        print_error("there is not enough memory for this; ask for less: smaller networks, batches or fewer samples")
    else:
        return code if isinstance(code, int) else 0
    return 2


def _refuse_empty(arguments: Sequence[str]) -> None:
    """An empty argument is a variable that a script forgot to set; as a path it would mean the present folder."""
    for place, argument in enumerate(arguments):
        if argument == "" or _EMPTY_OPTION.fullmatch(argument):
            name = argument.rstrip("=") or (arguments[place - 1] if place else "the first argument")
            raise UserError(f"{name} is followed by '', an empty value; give one or leave the option out")


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    plugins: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="FILE",
            help="A .py file or module that registers activations, datasets or models of your own; may be repeated. "
            "BOOLIT_PLUGINS names them for every command.",
        ),
    ] = None,
) -> None:
    if version:
        print(f"boolit {__version__}")
        raise typer.Exit
    from boolit.lab.common.plugins import load_plugins

    load_plugins(plugins or ())
    _print_help(context)


def _print_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def _tolerate_narrow_encodings() -> None:
    """A terminal that has no → shows a ? for it, instead of ending the command, and XNOR_ail for the paper's subscript."""
    codecs.register_error("boolit", _spell_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="boolit")


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    missing = error.object[error.start : error.end]
    spelled = _SUBSCRIPT.sub(lambda found: f"_{unicodedata.normalize('NFKD', found[0])}", missing)
    return "".join(letter if letter.isascii() else "?" for letter in spelled), error.end
