"""Addresses become places and back, and filters find what they cover."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanlog.router.addresses import (
    NAME,
    AddressError,
    Addresses,
    Place,
    Route,
    level_name,
    matches,
    parse_routes,
    topic_name,
)
from fanlog.router.trie import Trie

levels = st.text(alphabet="ab$", max_size=3)
addresses = st.lists(levels, min_size=1, max_size=4).map("/".join)
filter_levels = st.one_of(levels, st.just("+"))


@st.composite
def filters(draw: st.DrawFn) -> str:
    parts = draw(st.lists(filter_levels, max_size=4))
    if draw(st.booleans()) or not parts:
        parts.append("#")
    return "/".join(parts)


def test_the_first_level_is_the_topic_and_the_rest_the_key() -> None:
    rules = Addresses()
    assert rules.place("sensors/site1/dev42/temp") == Place("sensors", b"site1/dev42/temp")
    assert rules.place("sensors") == Place("sensors", None)
    assert rules.place("sensors/") == Place("sensors", b"")
    assert rules.address("sensors", b"site1/dev42/temp") == "sensors/site1/dev42/temp"
    assert rules.address("sensors", None) == "sensors"


@given(st.text(max_size=40))
def test_any_first_level_becomes_a_topic_and_comes_back(level: str) -> None:
    name = topic_name(level)
    assert NAME.fullmatch(name)
    assert name not in (".", "..")
    assert not name.startswith("__")
    assert level_name(name) == level


@given(addresses)
def test_an_address_survives_the_way_to_its_place_and_back(address: str) -> None:
    rules = Addresses()
    assert rules.address(*rules.place(address)) == address


def test_a_level_too_long_to_be_a_topic_is_refused() -> None:
    assert topic_name("x" * 249) == "x" * 249
    with pytest.raises(AddressError):
        topic_name("x" * 250)
    with pytest.raises(AddressError):
        topic_name("ä" * 60)


def test_keys_that_are_no_address_are_delivered_under_their_topic() -> None:
    rules = Addresses()
    for key in (b"\xff\xfe", b"a/+/b", b"a#", b"a\x00b"):
        assert rules.address("sensors", key) == "sensors"


def test_a_route_keeps_the_whole_address_as_the_key() -> None:
    rules = Addresses(parse_routes("+/telemetry -> telemetry, +/status -> status"))
    assert rules.place("dev42/telemetry") == Place("telemetry", b"dev42/telemetry")
    assert rules.address("telemetry", b"dev42/telemetry") == "dev42/telemetry"
    assert rules.place("dev42/other") == Place("dev42", b"other")
    assert rules.topics_of("dev42/telemetry", ["telemetry", "dev42", "other"]) == ["telemetry", "dev42"]
    assert parse_routes("") == ()
    assert parse_routes("a/+ -> t") == (Route("a/+", "t"),)
    for text in ("a/+", "a -> b/c", "-> x", "a -> __groups"):
        with pytest.raises(AddressError):
            parse_routes(text)


@settings(max_examples=300)
@given(st.dictionaries(filters(), st.integers(), max_size=12), st.lists(addresses, max_size=8), st.data())
def test_the_tree_finds_what_a_plain_comparison_finds(
    chosen: dict[str, int], looked_up: list[str], data: st.DataObject
) -> None:
    trie: Trie[tuple[str, int]] = Trie()
    for filter, number in chosen.items():
        trie.put(filter, (filter, number))
    for address in looked_up:
        expected = {(filter, number) for filter, number in chosen.items() if matches(filter, address)}
        found = trie.match(address)
        assert len(found) == len(set(found))
        assert set(found) == expected
        assert trie.match(address) == found
    removed = data.draw(st.sets(st.sampled_from(sorted(chosen))) if chosen else st.just(set()))
    for filter in removed:
        trie.remove(filter)
        trie.remove(filter)
    left = {(filter, number) for filter, number in chosen.items() if filter not in removed}
    assert set(trie) == left
    assert len(trie) == len(left)
    for address in looked_up:
        assert set(trie.match(address)) == {one for one in left if matches(one[0], address)}
    for filter, _ in left:
        trie.remove(filter)
    assert trie._root.empty()


@pytest.mark.parametrize(
    ("filter", "address", "covered"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/broker", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/broker", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
    ],
)
def test_the_examples_of_the_specification(filter: str, address: str, covered: bool) -> None:
    trie: Trie[int] = Trie()
    trie.put(filter, 1)
    assert matches(filter, address) is covered
    assert bool(trie.match(address)) is covered
