"""The record batch: what is encoded is decoded, what is damaged is found, and kio agrees."""

import io
import random
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from fanlog.wire import compression

optional_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), optional_bytes), max_size=3).map(tuple)
entries = st.lists(st.tuples(optional_bytes, optional_bytes, headers), min_size=1, max_size=20)


@settings(max_examples=60)
@given(entries=entries, now=st.integers(0, 2**41))
def test_what_is_encoded_is_decoded(records: ModuleType, entries: list, now: int) -> None:
    batch = records.batch_of(entries, now)
    header = records.check_header(batch)
    records.check_records(batch, records.HEADER_BYTES, header.record_count, False)
    decoded = records.decode_records(batch, records.HEADER_BYTES, header)
    assert [(record.key, record.value, record.headers) for record in decoded] == entries
    assert [record.offset for record in decoded] == list(range(len(entries)))
    assert {record.timestamp for record in decoded} == {now}


@settings(max_examples=40)
@given(entries=entries)
def test_another_implementation_reads_the_same(records: ModuleType, entries: list) -> None:
    batch = records.batch_of(entries, 1_700_000_000_000)
    theirs, size = read_batch(batch, 0)
    assert size == len(batch)
    assert [(record.key, record.value) for record in theirs.records] == [
        (key, value) for key, value, _ in entries
    ]


@settings(max_examples=150)
@given(data=st.data(), entries=entries)
def test_any_flipped_bit_is_found(records: ModuleType, data: st.DataObject, entries: list) -> None:
    batch = bytearray(records.batch_of(entries, 1))
    # The offset and the leader's epoch are the broker's to set, and outside the checksum.
    place = data.draw(st.sampled_from([*range(8, 12), *range(16, len(batch))]))
    batch[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(records.BatchError):
        records.check_header(bytes(batch))


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), entries=entries)
def test_records_that_lie_behind_a_right_checksum_are_found(
    records: ModuleType, seed: int, entries: list
) -> None:
    """Whatever the records are, the check passes only if decoding gives that many, in order."""
    chance = random.Random(seed)
    body = bytearray(records.batch_of(entries, 5)[records.HEADER_BYTES :])
    for _ in range(chance.randint(1, 3)):
        body[chance.randrange(len(body))] = chance.randrange(256)
    batch = records.encode_batch(bytes(body), len(entries), len(entries) - 1, 5, 5)
    header = records.check_header(batch)
    try:
        records.check_records(batch, records.HEADER_BYTES, header.record_count, False)
    except records.BatchError:
        return
    decoded = records.decode_records(batch, records.HEADER_BYTES, header)
    assert [record.offset for record in decoded] == list(range(len(entries)))


def test_a_compacted_topic_wants_keys(records: ModuleType) -> None:
    batch = records.batch_of([(b"k", b"v", ()), (None, b"v", ())], 1)
    with pytest.raises(records.BatchError, match="no key"):
        records.check_records(batch, records.HEADER_BYTES, 2, True)
    records.check_records(batch, records.HEADER_BYTES, 2, False)


def test_a_batch_takes_its_place_without_a_new_checksum(records: ModuleType) -> None:
    batch = records.batch_of([(b"k", b"v", ())], 1)
    placed = records.placed(records.read_header(batch), 4711, 3) + batch[16:]
    header = records.check_header(placed)
    assert (header.base_offset, header.leader_epoch) == (4711, 3)


def test_the_brokers_time_replaces_the_producers(records: ModuleType) -> None:
    batch = records.batch_of([(b"k", b"v", ()), (b"k", b"w", ())], 1000)
    stamped = records.stamped(batch, records.read_header(batch), 99_000)
    header = records.check_header(stamped)
    decoded = records.decode_records(stamped, records.HEADER_BYTES, header)
    assert [record.timestamp for record in decoded] == [99_000, 99_000]


def test_the_batch_that_holds_an_offset_is_found(records: ModuleType) -> None:
    log = b""
    places = []
    for base in (0, 3, 6):
        batch = records.batch_of([(None, b"x", ())] * 3, 1)
        places.append(len(log))
        log += records.placed(records.read_header(batch), base, 0) + batch[16:]
    assert [records.find_batch(log, offset) for offset in range(9)] == [
        place for place in places for _ in range(3)
    ]
    assert records.find_batch(log, 9) == -1
    assert records.find_batch(log[:100], 8) == -1


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_every_codec_gives_back_what_it_was_given(codec: int) -> None:
    data = random.Random(codec).randbytes(100_000) + bytes(100_000)
    assert compression.decompress(codec, compression.compress(codec, data), 1 << 20) == data


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_refused(codec: int, records: ModuleType) -> None:
    bomb = compression.compress(codec, bytes(8 << 20))
    with pytest.raises(compression.BatchError):
        compression.decompress(codec, bomb, 1 << 20)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@settings(max_examples=50)
@given(junk=st.binary(max_size=300))
def test_junk_does_not_decompress(codec: int, junk: bytes) -> None:
    try:
        compression.decompress(codec, junk, 1 << 20)
    except compression.BatchError:
        return


def test_snappy_in_javas_blocks_is_read() -> None:
    blocks = [b"hello " * 10, b"world " * 10]
    framed = io.BytesIO()
    framed.write(b"\x82SNAPPY\x00" + bytes([0, 0, 0, 1, 0, 0, 0, 1]))
    for block in blocks:
        packed = compression.compress(compression.SNAPPY, block)
        framed.write(len(packed).to_bytes(4, "big") + packed)
    assert compression.decompress(compression.SNAPPY, framed.getvalue(), 1 << 20) == b"".join(blocks)
