"""What a measurement hands back, and how it is shown: on the terminal by rich, in a file as Markdown.

A section is made of tables, of notes that a reader needs to judge them, and of targets: what the project
set itself, what was measured, and whether it was met. Where the peer was not measured its cells say so, and
no ratio is claimed.
"""

import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table as RichTable

NOT_MEASURED = "not measured"


@dataclass(slots=True)
class Table:
    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)


@dataclass(slots=True)
class Target:
    """A figure that the project set itself; `met` is None where it could not be measured."""

    what: str
    measured: str
    met: bool | None

    @property
    def verdict(self) -> str:
        return NOT_MEASURED if self.met is None else "met" if self.met else "**missed**"


@dataclass(slots=True)
class Section:
    title: str
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)


def spread(values: Sequence[float], form: str) -> str:
    """The median and, behind it, the least and the greatest value."""
    middle = format(statistics.median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({format(min(values), form)} to {format(max(values), form)})"


def ratio(ours: Sequence[float], theirs: Sequence[float] | None) -> float | None:
    """The quotient of the medians."""
    if not ours or not theirs or not statistics.median(theirs):
        return None
    return statistics.median(ours) / statistics.median(theirs)


def show_ratio(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:.2f}"


def at_most(what: str, value: float, limit: float, form: str) -> Target:
    return Target(what, format(value, form), value <= limit)


def at_least(what: str, value: float | None, limit: float, form: str) -> Target:
    if value is None:
        return Target(what, NOT_MEASURED, None)
    return Target(what, format(value, form), value >= limit)


def print_section(console: Console, section: Section) -> None:
    console.rule(section.title)
    for table in section.tables:
        shown = RichTable(title=table.title, title_justify="left")
        for index, column in enumerate(table.columns):
            shown.add_column(column, justify="left" if index == 0 else "right")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
    if section.targets:
        shown = RichTable("target", "measured", "", title="Targets", title_justify="left")
        for target in section.targets:
            shown.add_row(target.what, target.measured, target.verdict.strip("*"))
        console.print(shown)


def markdown(
    title: str, preface: str, setting: dict[str, str], sections: Sequence[Section], seconds: float
) -> str:
    lines = [
        f"# {title}",
        "",
        *textwrap.wrap(preface, 110),
        "",
        "## Setting",
        "",
        *_rows(["", ""], [[key, value] for key, value in setting.items()]),
        "",
        "## Targets",
        "",
        *_rows(
            ["target", "measured", ""],
            [[target.what, target.measured, target.verdict] for part in sections for target in part.targets],
        ),
    ]
    for section in sections:
        lines += ["", f"## {section.title}"]
        for table in section.tables:
            lines += ["", f"**{table.title}**", "", *_rows(table.columns, table.rows)]
        if section.notes:
            lines += ["", *(f"- {note}" for note in section.notes)]
    return "\n".join([*lines, "", f"The whole run took {seconds:.0f} s.", ""])


def _rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---"] + ["---:"] * (len(columns) - 1) if len(columns) > 2 else ["---"] * len(columns)
    return [f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)]
