"""What the commands say, and how.

People get tables and sentences from rich; scripts get JSON with `--json`, always on standard output and
never wrapped or coloured. What went wrong is a `Trouble`: a sentence for standard error that says what to do
about it. Commands raise it, `fanlog.cli.main` prints it and exits 1 (2 where the command line is at fault).
"""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

LINE_COLUMNS = 140

Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table, for scripts.")]


# The signals that asked this process to end.
interruptions: list[int] = []


def interrupt(number: int, _: FrameType | None) -> None:
    """A signal handler. It leaves a note, as librdkafka turns what its callbacks raise into errors."""
    interruptions.append(number)
    raise KeyboardInterrupt


class Trouble(Exception):
    """Something a user can do something about; the message says what."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def usage(message: str) -> Trouble:
    """The command line asks for something that cannot be."""
    return Trouble(message, exit_code=2)


def teach(summary: str, *examples: str) -> str:
    """A command's help: what it does, then lines that can be copied. `\b` keeps their line breaks."""
    lines = "\n".join(f"  {escape(example)}" for example in examples)
    return f"{summary}\n\n\b\n[bold]Examples[/bold]\n{lines}"


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' * (number != 1)}"


def console() -> Console:
    """Standard output. No window limits a file or a pipe, so lines there are long rather than folded."""
    watched = sys.stdout.isatty()
    return Console(highlight=False, soft_wrap=not watched, width=None if watched else LINE_COLUMNS)


def say(text: str) -> None:
    """A sentence on standard output; `text` may carry rich markup."""
    console().print(text)


def print_json(document: object) -> None:
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Numbers stand to the right, everything else to the left; None is shown as a dash."""
    kept = [list(row) for row in rows]
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for position, column in enumerate(columns):
        numeric = bool(kept) and all(isinstance(row[position], int | None) for row in kept)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in kept:
        table.add_row(*("-" if cell is None else escape(str(cell)) for cell in row))
    console().print(table)


def forget_output() -> None:
    """The reader of our output has gone: what is still buffered goes nowhere, silently."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
