"""All commands as one Typer application, and the reporting of their errors.

A command is a function that imports torch and the lab when it is called, so that help is quick. It raises `UserError` for
invalid input and ``typer.Exit(code)`` to end early.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from boolit import __version__
from boolit.cli import print_error
from boolit.cli._bench import bench
from boolit.cli._compare import compare, predict
from boolit.cli._list import doctor, fetch, list_
from boolit.cli._options import UNFINISHED
from boolit.cli._paper import figures, paper, verify
from boolit.cli._results import export, report, watch
from boolit.cli._run import run as run_study
from boolit.cli._run import search
from boolit.cli._signals import INTERRUPTED, INTERRUPTS, READER_GONE
from boolit.errors import UserError, lacks_memory

COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {  # by the headings of the help
    "Your data": (compare, predict),
    "Studies": (run_study, search, list_),
    "Results": (report, watch, export),
    "The paper": (verify, paper, figures),
    "This machine": (fetch, bench, doctor),
}
EXIT_CODES = {
    0: "done",
    1: "a check failed",
    2: "bad input or a system error",
    UNFINISHED: "workers failed",
    INTERRUPTED: "interrupted",
    READER_GONE: "the reader of the output left",
}
COMPLETION = "_BOOLIT_COMPLETE"  # set by the script that --install-completion adds to a shell
UsageError: Any = typer.BadParameter.__mro__[1]  # which typer does not export


def application() -> typer.Typer:
    """Return the application with every command."""
    codes = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    app = typer.Typer(
        name="boolit",
        epilog=f"Exit codes: {codes}.",
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(_root)
    for heading, commands in COMMANDS.items():
        for command in commands:
            name = command.__name__.rstrip("_")
            app.command(name, cls=TyperCommand if command is list_ else _TorchCommand, rich_help_panel=heading)(command)
    return app


class _TorchCommand(TyperCommand):
    """A command that needs torch. A signal ends the process at once until torch is imported."""

    def invoke(self, ctx: Any) -> Any:
        import_module("boolit.nn")
        INTERRUPTS.raise_interrupt()
        return super().invoke(ctx)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code.

    Invalid input and errors of the system, such as a full disk, become one line on standard error. With ``--debug``, and for
    every other exception, the traceback is shown.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # "?" for a character that the terminal does not have
    command = typer.main.get_command(application())
    if COMPLETION in os.environ:
        command.main([], prog_name="boolit")  # answers the shell and exits
    try:
        _check_not_empty(arguments)
        # command.main would exit by itself when the reader of standard output leaves.
        with command.make_context("boolit", list(arguments)) as context:
            code = command.invoke(context)
            return code if isinstance(code, int) else 0
    except typer.Exit as end:
        return end.exit_code
    except UsageError as error:
        print_error(_describe(error))
    except (UserError, OSError, MemoryError, RuntimeError) as error:
        if "--debug" in arguments or isinstance(error, BrokenPipeError):
            raise
        if isinstance(error, UserError):
            print_error(error)
        elif isinstance(error, OSError):
            print_error(f"{error}; check that file or disk and run the command again (boolit --debug … shows the traceback)")
        elif lacks_memory(error):
            print_error("there is not enough memory; use smaller networks, smaller batches or fewer samples")
        else:
            raise
    return 2


def _describe(error: Any) -> str:
    """Format a parsing error with the value that was given, which newer versions of typer leave out."""
    invalid = getattr(error.__cause__, "errors", None)  # of pydantic
    message, value = error.format_message().rstrip("."), repr(invalid()[0]["input"]) if invalid else ""
    got = "" if value in message else f" (got {value})"
    return f"{message.replace('Value error, ', '')}{got}; see {error.ctx.command_path if error.ctx else 'boolit'} --help"


def _check_not_empty(arguments: Sequence[str]) -> None:
    """Refuse empty values: usually an unset shell variable, and as a path it would mean the current folder."""
    for place, argument in enumerate(arguments):
        if argument == "" or re.fullmatch("--[a-z-]+=", argument):
            name = argument.rstrip("=") or (arguments[place - 1] if place else "the first argument")
            raise UserError(f"{name} is followed by '', an empty value; give a value or leave the option out")


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    plugins: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="FILE",
            help="Load a .py file or module that registers activations, datasets or models. May be repeated; "
            "the variable BOOLIT_PLUGINS names plugins for every command.",
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of every error.")] = False,  # noqa: ARG001
) -> None:
    """Logical activation functions for PyTorch, and the lab to test them.

    Start with: boolit compare TABLE.csv --target COLUMN, boolit run parity,
    or boolit list studies. Every command has its own --help with examples.
    """
    if version:
        print(f"boolit {__version__}")
        raise typer.Exit
    from boolit.lab.common.plugins import load_plugins

    load_plugins(plugins or ())
    if context.invoked_subcommand is None:
        print(context.get_help())
