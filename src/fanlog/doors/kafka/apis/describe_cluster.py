"""DescribeCluster, versions 0-1: the brokers, for administrators."""

from typing import Any

from kio.schema.errors import ErrorCode

from fanlog.doors.kafka.registry import Answer, Context, api

_BROKERS = 1


@api(60, 0, 1)
async def describe_cluster(context: Context, request: Any) -> Answer:
    broker = context.broker
    if getattr(request, "endpoint_type", _BROKERS) != _BROKERS:
        return {
            "error_code": int(ErrorCode.unsupported_endpoint_type),
            "error_message": "there are no controllers to connect to",
            "cluster_id": broker.cluster_id,
        }
    node = broker.settings.node_id
    host, port = broker.advertised(context.connection.tls)
    return {
        "error_code": 0,
        "cluster_id": broker.cluster_id,
        "controller_id": node,
        "brokers": [{"broker_id": node, "host": host, "port": port, "rack": None}],
    }
