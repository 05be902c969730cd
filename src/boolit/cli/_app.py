"""The commands, gathered; and what becomes of their errors.

A command is a function in a file of this folder, registered in `application`. It imports the lab inside the function, so
that ``boolit --help`` does not wait for scipy; it raises `UserError` for bad input and ``typer.Exit(code)`` to end early.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Sequence
from typing import Annotated, cast

import torch
import typer

from boolit import __version__
from boolit.cli import _bench, _compare, _data, _list, _results, _run, _transfer, _verify
from boolit.cli._terminal import print_error
from boolit.lab.common.errors import UserError
from boolit.lab.common.plugins import load_plugins

# Newer typers carry click inside themselves, older ones use the package: the base of BadParameter is right in both.
ParsingError = cast("type[Exception]", typer.BadParameter.__mro__[2])


_EMPTY_OPTION = re.compile(r"--[a-z-]+=")


def application() -> typer.Typer:
    """The command line, with every command."""
    app = typer.Typer(
        name="boolit",
        help="Logical activation functions for PyTorch, and the lab to test them.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: no boxes, which a narrow terminal breaks
        epilog="Exit codes: 0 done, 1 a check failed, 2 bad input, 3 another process has the rest, 130 interrupted, "
        "141 the reader of the output left.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    app.command("run")(_run.run)
    app.command("show")(_run.show)
    app.command("compare")(_compare.compare)
    app.command("predict")(_compare.predict)
    app.command("transfer")(_transfer.transfer)
    app.command("search")(_run.search)
    app.command("correlations")(_results.correlations)
    app.command("export")(_results.export)
    app.command("rescue")(_results.rescue)
    app.command("figures")(_results.figures)
    app.command("paper")(_results.paper)
    app.command("list")(_list.list_)
    app.command("doctor")(_list.doctor)
    app.command("verify")(_verify.verify)
    app.add_typer(_data.application(), name="data")
    app.add_typer(_bench.application(), name="bench")
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; an exception that is not the user's to mend passes through.

    What the system refuses (a full disk, a file in a folder's place, no memory) is the user's to mend.
    """
    _tolerate_narrow_encodings()
    command = typer.main.get_command(application())
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _refuse_empty(given)
        # Not command.main, which ends the process by itself where the reader of standard output has left.
        with command.make_context("boolit", given) as context:
            code = command.invoke(context)
    except UserError as error:
        print_error(error)
    except ParsingError as error:
        print_error(_usage(cast(typer.BadParameter, error)))
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
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _usage(error: typer.BadParameter) -> str:
    command = error.ctx.command_path if error.ctx else "boolit"
    return f"{error.format_message().rstrip('.')} (see `{command} --help`)"


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
    load_plugins(plugins or ())
    if context.invoked_subcommand is None:
        print(context.get_help())


def _tolerate_narrow_encodings() -> None:
    """A terminal that has no → shows a ? for it, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
