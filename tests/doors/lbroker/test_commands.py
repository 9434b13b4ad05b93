"""Commands as bytes, in whatever pieces they come."""

import contextlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanlog.doors.lbroker.commands import CommandError, CommandReader, Publish, Subscribe, Unsubscribe

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
_COMMANDS = st.one_of(
    st.builds(lambda texts: {"Subscribe": texts}, st.lists(st.text(), max_size=4)),
    st.builds(lambda texts: {"Unsubscribe": texts}, st.lists(st.text(), max_size=4)),
    st.builds(lambda pairs: {"Publish": pairs}, st.lists(st.tuples(st.text(), _VALUES), max_size=4)),
)


@given(st.lists(_COMMANDS, max_size=6), st.integers(1, 40))
def test_commands_are_read_back_to_back_in_pieces_of_any_size(sent: list[dict], size: int) -> None:
    data = b"".join(msgpack.packb(one) for one in sent)
    reader = CommandReader(1 << 20)
    found = [one for at in range(0, len(data), size) for one in reader.feed(data[at : at + size])]
    expected = []
    for one in sent:
        [(name, given)] = one.items()
        if name == "Publish":
            expected.append(Publish([(topic, msgpack.packb(value)) for topic, value in given]))
        else:
            expected.append({"Subscribe": Subscribe, "Unsubscribe": Unsubscribe}[name](given))
    assert found == expected
    assert reader.between_frames


@pytest.mark.parametrize(
    "command",
    [
        5,
        None,
        [],
        {},
        {"Publish": 1},
        {"Publish": ["a"]},
        {"Publish": [["a"]]},
        {"Publish": [[1, 2]]},
        {"Publish": [["a", 1, 2]]},
        {"Subscribe": "a"},
        {"Subscribe": [1]},
        {"Subscribe": ["a"], "Unsubscribe": ["a"]},
        {"Nonsense": []},
        {3: []},
    ],
)
def test_what_is_no_command_is_refused(command: object) -> None:
    with pytest.raises(CommandError):
        CommandReader(1000).feed(msgpack.packb(command))


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_but_give_commands_or_a_refusal(data: bytes) -> None:
    reader = CommandReader(100)
    with contextlib.suppress(CommandError):
        assert isinstance(reader.feed(data), list)


def test_what_came_before_a_fault_counts() -> None:
    with pytest.raises(CommandError) as caught:
        CommandReader(1000).feed(msgpack.packb({"Subscribe": ["a"]}) + b"\xc1")
    assert caught.value.commands == [Subscribe(["a"])]


def test_a_frame_may_have_its_limit_and_not_one_byte_more() -> None:
    frame = msgpack.packb({"Publish": [["a", b"x" * 500]]})
    assert CommandReader(len(frame)).feed(frame)
    with pytest.raises(CommandError, match="more than"):
        CommandReader(len(frame) - 1).feed(frame)
    reader = CommandReader(len(frame) - 1)
    for byte in frame[:-1]:
        assert reader.feed(bytes([byte])) == []
    with pytest.raises(CommandError, match="more than"):
        reader.feed(frame[-1:])


def test_a_value_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(CommandError):
        CommandReader(1 << 20).feed(b"\x81\xa7Publish\x91\x92\xa1a" + b"\x91" * 100_000)
