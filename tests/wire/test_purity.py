"""The codecs do no I/O: bytes in, values out, and no clock, no loop, no chance."""

import ast
from pathlib import Path

import pytest

import fanlog.wire

SOURCES = sorted(Path(fanlog.wire.__path__[0]).glob("*.py"))
IMPURE = {
    "asyncio",
    "socket",
    "ssl",
    "select",
    "selectors",
    "time",
    "datetime",
    "random",
    "secrets",
    "threading",
}
IMPURE |= {"os", "subprocess", "uvloop", "logging"}


def imported(source: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_codec_imports_nothing_that_does_io(source: Path) -> None:
    assert not {name.split(".")[0] for name in imported(source)} & IMPURE


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_codec_imports_nothing_above_it(source: Path) -> None:
    ours = {name for name in imported(source) if name.split(".")[0] == "fanlog"}
    assert {name for name in ours if not name.startswith("fanlog.wire")} == set()
