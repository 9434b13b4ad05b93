"""The part of a consumer's subscription that the broker understands: the names of its topics.

What a member sends along when it joins is between the clients. For the protocol type `consumer` it begins
with a version (int16) and the subscribed topics (an array of strings); what follows, such as the
partitions that it owns, differs from one join to the next.
"""

CONSUMER = "consumer"


def topics(metadata: bytes) -> frozenset[str] | None:
    """The subscribed topics; None if these bytes are no subscription."""
    if len(metadata) < 6:
        return None
    count = int.from_bytes(metadata[2:6], "big", signed=True)
    at = 6
    names = set()
    for _ in range(count):
        end = at + 2 + int.from_bytes(metadata[at : at + 2], "big")
        if end > len(metadata) or end < at + 2:
            return None
        names.add(metadata[at + 2 : end].decode("utf-8", "replace"))
        at = end
    return frozenset(names)


def same(protocol_type: str, before: bytes, after: bytes) -> bool:
    """Whether two subscriptions ask for the same topics."""
    if before == after:
        return True
    if protocol_type != CONSUMER:
        return False
    wanted = topics(before)
    return wanted is not None and wanted == topics(after)
