"""What can go wrong with a log, in its own words. Doors translate these into their protocol's codes."""


class LogError(Exception):
    """A partition could not do what it was asked to."""


class StorageError(LogError):
    """The disk is full or failing. Nothing was acknowledged; what was acknowledged before can be read."""


class OffsetOutOfRange(LogError):
    """No record of that offset: it was removed, or is not yet there."""


class Closed(LogError):
    """The partition was removed, or the broker is stopping."""


class OutOfOrderSequence(LogError):
    """An idempotent producer skipped a batch."""


class StaleEpoch(LogError):
    """A producer of an epoch that has been replaced."""


class WouldBlock(Exception):
    """What was asked for is not in memory: ask again where waiting for the disk delays nobody."""
