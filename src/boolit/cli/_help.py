"""How a help text is laid out, and what is said of an argument that cannot be used.

Plain text of at most 80 columns, without boxes, which a narrow terminal breaks and a screen reader spells out: the usage, what
the command does, its arguments, its options in groups, and the examples that end the command's docstring.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from boolit.cli._options import suggest

if TYPE_CHECKING:
    _Base = TyperCommand
else:
    _Base = object

_NUMBERS = {"N": (r"[+-]?\d+", "a whole number"), "X": (r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", "a number")}  # by metavar
_NO_CHOICE = re.compile(r"'(.*?)' is not one of (.*)", re.DOTALL)
EXAMPLES = "\n\nExamples:\n"
OTHERS = "Options"


class HelpLayout(_Base):
    """The parts of a help text, for commands and groups."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return ["[OPTIONS]", *map(_usage, arguments), *(["COMMAND ..."] if isinstance(self, TyperGroup) else [])]

    def format_help_text(self, _ctx: Any, formatter: Any) -> None:
        text = split_examples(self.help)[0]
        if text:
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_text(text)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            if getattr(each, "hidden", False):
                continue
            argument = each.param_type_name == "argument"
            group = "Arguments" if argument else getattr(each, "rich_help_panel", None) or OTHERS
            if not argument and each.name == "help" and groups:
                group = next(reversed(groups)) if next(reversed(groups)) != "Arguments" else OTHERS
            groups.setdefault(group, []).append(_row(each))
        for group, rows in groups.items():
            with formatter.section(group):
                formatter.write_dl(rows)
        if isinstance(self, TyperGroup):
            self.format_commands(ctx, formatter)

    def format_epilog(self, _ctx: Any, formatter: Any) -> None:
        examples = split_examples(self.help)[1]
        if examples:
            with formatter.section("Examples"):
                for line in examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")
        if self.epilog:
            formatter.write_paragraph()
            formatter.write_text(self.epilog)


def split_examples(text: str | None) -> tuple[str, list[str]]:
    """A docstring's text, and the commands that it ends with."""
    before, _, examples = (text or "").partition(EXAMPLES)
    return before.strip(), [line.strip() for line in examples.splitlines() if line.strip()]


def write_commands(formatter: Any, title: str, commands: Sequence[tuple[str, Any]]) -> None:
    """A group of commands, each with the whole first sentence of its help."""
    with formatter.section(title):
        formatter.write_dl([(name, (command.help or "").partition("\n")[0].rstrip(".")) for name, command in commands])


def _usage(argument: Any) -> str:
    name = _argument_name(argument)
    return name if argument.required else f"[{name}]"


def _argument_name(argument: Any) -> str:
    return f"{argument.metavar or argument.name.upper()}{' ...' if argument.nargs != 1 else ''}"


def _row(parameter: Any) -> tuple[str, str]:
    if parameter.param_type_name == "argument":
        names = _argument_name(parameter)
    else:
        names = ", ".join(sorted(parameter.opts, key=len))
        takes_value = not getattr(parameter, "is_flag", False) and parameter.metavar
        names += f" {parameter.metavar}" if takes_value else ""
    more = "; ".join(filter(None, (_required(parameter), _range_text(parameter), _default(parameter))))
    return names, f"{parameter.help or ''}{more and f'  [{more}]'}"


def _required(parameter: Any) -> str:
    return "required" if parameter.required else ""


def _default(parameter: Any) -> str:
    shown, default = getattr(parameter, "show_default", None), parameter.default
    if isinstance(shown, str):
        return f"default: {shown}"
    if parameter.required or shown is False or default is None or isinstance(default, bool) or callable(default):
        return ""
    value = getattr(default, "value", default)
    return f"default: {value:,}" if isinstance(value, int) and value >= 10_000 else f"default: {value}"


def limits(parameter: Any) -> tuple[Any, Any]:
    """The smallest and the largest number an option takes, if it says so; typers differ in where they keep them."""
    own = getattr(parameter, "type", None)
    low = getattr(parameter, "min", None) if hasattr(parameter, "min") else getattr(own, "min", None)
    high = getattr(parameter, "max", None) if hasattr(parameter, "max") else getattr(own, "max", None)
    return low, high


def _range_text(parameter: Any) -> str:
    low, high = limits(parameter)
    if low is None:
        return "" if high is None else f"at most {high:,}"
    return f"at least {low:,}" if high is None else f"{low:,} to {high:,}"


# What is said of an argument that cannot be used.


def explain(error: typer.BadParameter, arguments: Sequence[str]) -> str:
    """One line of a parser's complaint: the option, the value, the rule, and a value near it if there is one."""
    path = error.ctx.command_path if error.ctx else "boolit"
    return f"{_complaint(error, arguments).rstrip('.')} (see `{path} --help`)"


def _complaint(error: Any, arguments: Sequence[str]) -> str:
    message, parameter = str(error.format_message()), getattr(error, "param", None)
    if type(error) is not typer.BadParameter or parameter is None:
        return message
    name, value = _find(parameter, arguments)
    choice = _NO_CHOICE.search(str(error.message))
    if choice:
        value, choices = choice[1], re.findall(r"'([^']*)'", choice[2])
        return f"{name} {value!r} is not one of {', '.join(choices)}{suggest(value, choices)}"
    number, allowed = _NUMBERS.get(parameter.metavar), _range_text(parameter)
    if number is None or value is None:
        return message
    pattern, words = number
    rule = f"must be {allowed}" if re.fullmatch(pattern, value) and allowed else f"is not {words}{allowed and f', {allowed}'}"
    return f"{name} {value} {rule}"


def _find(parameter: Any, arguments: Sequence[str]) -> tuple[str, str | None]:
    """How an option was written, and its value; of an argument, its name."""
    for place in reversed(range(len(arguments))):
        option, equals, value = arguments[place].partition("=")
        if option in parameter.opts:
            return option, value if equals else next(iter(arguments[place + 1 :]), None)
    return (parameter.name.upper() if parameter.param_type_name == "argument" else parameter.opts[0]), None
