"""Patterns match characters, across levels, in time that a hostile pattern cannot stretch."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanlog.doors.lbroker.globs import pattern_of


@pytest.mark.parametrize(
    ("glob", "address", "wanted"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("topic/*/pattern", "topic/x/pattern", True),
        ("topic/*/pattern", "topic/x/y/pattern", True),
        ("topic/*/pattern", "topic/pattern", False),
        ("*", "", True),
        ("*", "any/thing", True),
        ("a?c", "a/c", True),
        ("a?c", "ac", False),
        ("caf?", "café", True),
        ("?", "温", True),
        ("??", "温", False),
        ("?", "😀", True),
        ("温*", "温度/室内", True),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a*b*c", "a b b c", True),
        ("a**c", "abc", True),
        ("*\n*", "a\nb", True),
    ],
)
def test_a_glob_covers(glob: str, address: str, wanted: bool) -> None:
    assert bool(pattern_of(glob).fullmatch(address)) is wanted


def _plain(glob: str, text: str) -> bool:
    """The definition, one character at a time."""
    reached = {0}
    for character in glob:
        if character == "*":
            reached = set(range(min(reached), len(text) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(text) and character in ("?", text[at])}
    return len(text) in reached


@given(st.text("ab*?", max_size=10), st.text("ab", max_size=10))
def test_globs_do_as_their_definition(glob: str, text: str) -> None:
    assert bool(pattern_of(glob).fullmatch(text)) == _plain(glob, text)


def test_a_pattern_of_many_stars_is_decided_at_once() -> None:
    started = time.process_time()
    assert not pattern_of("*a" * 200 + "b").fullmatch("a" * 2_000)
    assert time.process_time() - started < 1.0
