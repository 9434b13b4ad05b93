"""What is kept of groups and offsets can be read back."""

from hypothesis import given
from hypothesis import strategies as st

from fanlog.state.groups import encoding, subscription
from fanlog.state.groups.encoding import Committed, GroupKey, OffsetKey
from fanlog.state.groups.model import Member, Snapshot

from .world import subscription as subscribed

TEXT = st.text(max_size=20)
MILLISECONDS = st.integers(0, 2**31 - 1)
MEMBERS = st.builds(
    Member,
    id=TEXT,
    instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    session_timeout_ms=MILLISECONDS,
    rebalance_timeout_ms=MILLISECONDS,
    protocols=st.lists(st.tuples(TEXT, st.binary(max_size=20)), max_size=3).map(tuple),
    assignment=st.binary(max_size=20),
    joining=st.none(),
    syncing=st.none(),
    owes_sync=st.just(False),
)
SNAPSHOTS = st.builds(
    Snapshot,
    generation=st.integers(0, 2**31 - 1),
    protocol_type=TEXT,
    protocol=st.none() | TEXT,
    leader=st.none() | TEXT,
    members=st.lists(MEMBERS, max_size=4),
)


@given(SNAPSHOTS, st.integers(0, 2**62))
def test_a_group_is_read_back_as_it_was(snapshot: Snapshot, at_ms: int) -> None:
    found = encoding.read_group(encoding.value(encoding.kept(snapshot, at_ms)))
    assert found is not None
    assert (found.snapshot(), found.at_ms) == (snapshot, at_ms)


@given(st.builds(GroupKey, TEXT) | st.builds(OffsetKey, TEXT, TEXT, st.integers(0, 2**31 - 1)))
def test_a_key_is_read_back_as_it_was(key: GroupKey | OffsetKey) -> None:
    assert encoding.read_key(encoding.key(key)) == key


@given(st.builds(Committed, st.integers(-1, 2**63 - 1), st.integers(-1, 2**31 - 1), TEXT, MILLISECONDS))
def test_an_offset_is_read_back_as_it_was(committed: Committed) -> None:
    assert encoding.read_offset(encoding.value(committed)) == committed


def test_the_layout_on_disk_stays_what_it_is() -> None:
    assert encoding.key(GroupKey("g")) == b"\x01\x92\x00\xa1g"
    assert encoding.key(OffsetKey("g", "t", 3)) == b"\x01\x94\x01\xa1g\xa1t\x03"
    assert encoding.value(Committed(5, -1, "m", 9)) == b"\x01\x94\x05\xff\xa1m\x09"


def test_what_a_later_version_wrote_is_left_alone() -> None:
    assert encoding.read_key(b"\x02whatever") is None
    assert encoding.read_key(None) is None
    assert encoding.read_group(b"\x02whatever") is None
    assert encoding.read_offset(b"\x02whatever") is None


@given(st.binary(max_size=40))
def test_nothing_that_may_stand_in_the_log_stops_a_broker_from_starting(data: bytes) -> None:
    for read in (encoding.read_key, encoding.read_group, encoding.read_offset):
        read(data)
        read(encoding.VERSION + data)


def test_fields_that_were_added_at_the_end_are_passed_over() -> None:
    assert encoding.read_offset(b"\x01\x95\x05\xff\xa1m\x09\x01") == Committed(5, -1, "m", 9)


@given(st.binary(max_size=60))
def test_any_bytes_may_be_a_subscription_or_not(data: bytes) -> None:
    found = subscription.topics(data)
    assert found is None or isinstance(found, frozenset)


def test_the_topics_of_a_subscription_are_found() -> None:
    assert subscription.topics(subscribed("a", "b", owned=b"more")) == {"a", "b"}
    assert not subscription.same("consumer", subscribed("a"), subscribed("b"))
    assert subscription.same("consumer", subscribed("a", "b"), subscribed("b", "a", owned=b"x"))
    assert not subscription.same("connect", b"one", b"two")
