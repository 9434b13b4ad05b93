"""The codecs of `wire/` run compiled and uncompiled; their tests run on both."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

import fanlog.wire.messages
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
