"""The codecs of `wire/` run compiled and uncompiled; their tests run on both."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fanlog.wire.messages
import fanlog.wire.mqtt
import fanlog.wire.records

SOURCES = Path(fanlog.wire.records.__file__).parent


def plain(name: str) -> ModuleType:
    """The module as its source says it, whether or not a compiled one stands beside it."""
    alias = f"plain_{name}"
    if alias not in sys.modules:
        spec = importlib.util.spec_from_file_location(alias, SOURCES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[alias] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[alias])
    return sys.modules[alias]


# In the order of their imports of one another.
MQTT = ("mqtt_tables", "mqtt_packets", "mqtt_fields", "mqtt_encode", "mqtt_decode", "mqtt")


def plain_together(names: tuple[str, ...]) -> None:
    """Loads plain modules that import one another, so that none of them sees a compiled one."""
    compiled = {f"fanlog.wire.{name}": sys.modules[f"fanlog.wire.{name}"] for name in names}
    try:
        for name in names:
            sys.modules[f"fanlog.wire.{name}"] = plain(name)
    finally:
        sys.modules.update(compiled)


def both(name: str) -> list[object]:
    compiled = sys.modules[f"fanlog.wire.{name}"]
    if str(compiled.__file__).endswith(".py"):
        reason = "the codecs are not compiled here"
        return [
            pytest.param(compiled, id="plain"),
            pytest.param(compiled, id="compiled", marks=pytest.mark.skip(reason=reason)),
        ]
    return [pytest.param(plain(name), id="plain"), pytest.param(compiled, id="compiled")]


@pytest.fixture(params=both("records"), scope="session")
def records(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


@pytest.fixture(params=both("messages"), scope="session")
def messages(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


plain_together(MQTT)


@pytest.fixture(params=both("mqtt"), scope="session")
def mqtt(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


@pytest.fixture(scope="session")
def mqtt_plain_and_compiled() -> tuple[ModuleType, ModuleType]:
    """The same one twice where nothing is compiled."""
    return plain("mqtt"), sys.modules["fanlog.wire.mqtt"]
