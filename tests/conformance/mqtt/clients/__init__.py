"""Other people's MQTT clients, each behind the same few verbs."""

from .aiomqtt_client import AiomqttConnection
from .base import Connection, Message, Properties, Will
from .gmqtt_client import GmqttConnection
from .js_client import JsConnection, JsDriver
from .paho_client import PahoConnection

__all__ = [
    "AiomqttConnection",
    "Connection",
    "GmqttConnection",
    "JsConnection",
    "JsDriver",
    "Message",
    "PahoConnection",
    "Properties",
    "Will",
]
