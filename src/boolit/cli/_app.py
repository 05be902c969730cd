"""The commands, gathered; and what becomes of their errors.

A command is a function in a file of this folder, named in `COMMANDS`; its file is imported when the command or its help is
asked for. It imports the lab inside the function, so that no help waits for torch; it raises `UserError` for bad input and
``typer.Exit(code)`` to end early.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from boolit import __version__
from boolit._signals import INTERRUPTS, is_command
from boolit.cli import print_error
from boolit.lab.common.errors import UserError

# Newer typers carry click inside themselves, older ones use the package: the base of BadParameter is right in both.
ParsingError = cast("type[Exception]", typer.BadParameter.__mro__[2])

# By group; a command is a function of a module in this folder, or another group.
COMMANDS: dict[str, dict[str, str]] = {
    "boolit": {
        "run": "_run:run",
        "show": "_run:show",
        "compare": "_compare:compare",
        "predict": "_compare:predict",
        "transfer": "_transfer:transfer",
        "search": "_run:search",
        "report": "_report:report",
        "watch": "_report:watch",
        "correlations": "_results:correlations",
        "export": "_results:export",
        "rescue": "_results:rescue",
        "figures": "_results:figures",
        "paper": "_results:paper",
        "list": "_list:list_",
        "doctor": "_list:doctor",
        "verify": "_verify:verify",
        "data": "data",
        "bench": "bench",
    },
    "data": {"list": "_data:list_", "fetch": "_data:fetch", "check": "_data:check", "generate": "generate"},
    "generate": {"iraven": "_data:iraven"},
    "bench": {"gates": "_bench:gates", "training": "_bench:training"},
}
HELP = {
    "boolit": "Logical activation functions for PyTorch, and the lab to test them.",
    "data": "List, fetch, check and make datasets.",
    "generate": "Make a dataset's files.",
    "bench": "Measure speed and memory, as ratios to what everybody knows.",
}
WITHOUT_TORCH = ("_list:list_",)
EXIT_CODES = (
    "Exit codes: 0 done, 1 a check failed, 2 bad input, 3 another process has the rest, 130 interrupted, "
    "141 the reader of the output left."
)

_EMPTY_OPTION = re.compile(r"--[a-z-]+=")


def application() -> typer.Typer:
    """The command line, with every command."""
    return _group("boolit", _root, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})


def _group(name: str, callback: Any, **settings: Any) -> typer.Typer:
    app = typer.Typer(
        name=name,
        cls=_Group,
        help=HELP[name],
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: no boxes, which a narrow terminal breaks
        **settings,
    )
    app.callback(invoke_without_command=True)(callback)
    return app


class _Group(TyperGroup):
    """A group whose commands are imported when they are used."""

    def __init__(self, *, name: str, **settings: Any) -> None:
        super().__init__(name=name, **settings)
        self.commands = cast(Any, dict.fromkeys(COMMANDS[name]))  # the names alone

    def list_commands(self, _context: object) -> list[str]:
        return list(self.commands)

    def get_command(self, _context: object, name: str) -> Any:
        place = COMMANDS[str(self.name)].get(name)
        if place is None:
            return None
        module, _, function = place.partition(":")
        if not function:
            return typer.main.get_command(_group(module, _print_help))
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        kind = TyperCommand if place in WITHOUT_TORCH else _TorchCommand
        app.command(name, cls=kind)(getattr(import_module(f"boolit.cli.{module}"), function))
        return typer.main.get_command(app)


class _TorchCommand(TyperCommand):
    """A command that needs torch, which is imported while a signal still ends the process at once."""

    def invoke(self, context: Any) -> Any:
        import_module("boolit.nn")
        if is_command():
            INTERRUPTS.raise_interrupt()
        return super().invoke(context)


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; an exception that is not the user's to mend passes through.

    What the system refuses (a full disk, a file in a folder's place, no memory) is the user's to mend.
    """
    _tolerate_narrow_encodings()
    command = typer.main.get_command(application())
    try:
        _refuse_empty(arguments)
        # Not command.main, which ends the process by itself where the reader of standard output has left.
        with command.make_context("boolit", list(arguments)) as context:
            code = command.invoke(context)
    except UserError as error:
        print_error(error)
    except ParsingError as error:
        wrong = cast(typer.BadParameter, error)
        path = wrong.ctx.command_path if wrong.ctx else "boolit"
        print_error(f"{wrong.format_message().rstrip('.')} (see `{path} --help`)")
    except typer.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        raise
    except OSError as error:
        print_error(f"{error}; see to that file or disk, and run the same command again")
    except (MemoryError, RuntimeError) as error:
        if not _lacks_memory(error):
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


def _lacks_memory(error: Exception) -> bool:
    torch_lacks = type(error).__name__ == "OutOfMemoryError" or "can't allocate memory" in str(error)
    return isinstance(error, MemoryError) or torch_lacks


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    plugins: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="FILE",
            help="A .py file or module that registers your own; may be repeated. See BOOLIT_PLUGINS.",
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
    """A terminal that has no → shows a ? for it, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
