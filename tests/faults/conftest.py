"""The shim of shim.c, compiled once a session where there is a C compiler. No client outlives its test."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.disk import compile_shim
from faults.load import Client


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not sys.platform.startswith("linux"):
        pytest.skip("the fault shim is for Linux: it is loaded by LD_PRELOAD")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler (cc, gcc or clang) to build the fault shim with")
    return compile_shim(compiler, tmp_path_factory.mktemp("shim"))


@pytest.fixture(autouse=True)
def clients_end_with_their_test() -> Iterator[None]:
    yield
    for client in tuple(Client.living):
        client.end()
