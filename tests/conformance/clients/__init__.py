"""The clients under test, each behind the same few verbs, so that one scenario serves them all."""

from .aiokafka_client import AiokafkaClient
from .base import Client, Member, Membership, Message, Record, TooLarge
from .confluent_client import ConfluentClient
from .java_client import JavaClient
from .kafka_python_client import KafkaPythonClient
from .kcat_client import KcatClient

__all__ = [
    "AiokafkaClient",
    "Client",
    "ConfluentClient",
    "JavaClient",
    "KafkaPythonClient",
    "KcatClient",
    "Member",
    "Membership",
    "Message",
    "Record",
    "TooLarge",
]
