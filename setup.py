"""Compiles the hot codecs with mypyc where a C compiler is found; everything else is in pyproject.toml.

The same source runs uncompiled, so a machine without a compiler gets a slower broker, never a failed
install. FANLOG_COMPILE=0 skips the compilation, FANLOG_COMPILE=1 makes a failure of it fatal.
"""

import os
import sys

from setuptools import Extension, setup

HOT = [
    "src/fanlog/wire/records.py",
    "src/fanlog/wire/messages.py",
    "src/fanlog/wire/murmur2.py",
    "src/fanlog/wire/mqtt_tables.py",
    "src/fanlog/wire/mqtt_packets.py",
    "src/fanlog/wire/mqtt_fields.py",
    "src/fanlog/wire/mqtt_encode.py",
    "src/fanlog/wire/mqtt_decode.py",
    "src/fanlog/wire/mqtt.py",
]


def extensions() -> list[Extension]:
    wish = os.environ.get("FANLOG_COMPILE", "auto")
    if wish == "0":
        return []
    try:
        from mypyc.build import mypycify

        # An isolated build has the compiler, but not the packages that the codecs import.
        options = ["--strict", "--follow-imports=skip", "--ignore-missing-imports"]
        built: list[Extension] = mypycify([*HOT, *options], opt_level="3")
    except (Exception, SystemExit) as error:
        if wish == "1":
            raise
        print(f"fanlog: the codecs stay uncompiled: {error}", file=sys.stderr)
        return []
    for extension in built:
        extension.optional = wish != "1"
    return built


setup(ext_modules=extensions())
