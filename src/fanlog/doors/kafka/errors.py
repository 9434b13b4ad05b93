"""What goes wrong, in Kafka's codes: one table, looked up by the class of the error."""

from kio.schema.errors import ErrorCode

from fanlog.cluster import catalog
from fanlog.log import errors as log
from fanlog.log.topic_config import InvalidTopicConfig

NONE = int(ErrorCode.none)

_CODES: dict[type[BaseException], ErrorCode] = {
    log.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    log.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    log.StaleEpoch: ErrorCode.invalid_producer_epoch,
    log.StorageError: ErrorCode.kafka_storage_error,
    log.Closed: ErrorCode.unknown_topic_or_partition,
    catalog.UnknownTopic: ErrorCode.unknown_topic_or_partition,
    catalog.TopicExists: ErrorCode.topic_already_exists,
    catalog.InvalidTopic: ErrorCode.invalid_topic_exception,
    catalog.InvalidPartitions: ErrorCode.invalid_partitions,
    catalog.CatalogError: ErrorCode.unknown_server_error,
    InvalidTopicConfig: ErrorCode.invalid_config,
    OSError: ErrorCode.kafka_storage_error,
}
EXPECTED = tuple(_CODES)


def code_of(error: BaseException) -> int:
    for kind in type(error).__mro__:
        if kind in _CODES:
            return int(_CODES[kind])
    raise error
