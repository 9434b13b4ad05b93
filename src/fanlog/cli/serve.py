"""`fanlog serve`: the broker, with one flag per setting.

The flags are not written down here. They are made from `fanlog.config.names()`, so that a setting added there
has its flag, its place in the help and its check at once. Values travel as text: `config` alone knows what is
valid, and says the same thing of a flag, a variable and a line in the file.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fanlog import config
from fanlog.cli.output import teach, usage

_METAVARS = {int: "N", bool: "true|false", str: "TEXT", Path: "PATH"}
_ADDRESSES = ("kafka", "mqtt", "http", "grpc", "lbroker", "kafka_tls", "mqtt_tls", "http_tls")
_PANELS = {
    "": "Broker",
    "topics": "Topics: what a topic gets that does not say otherwise",
    "log": "Log: how it works on disk",
    "groups": "Consumer groups",
    "limits": "Limits: past these, the peer is told so",
}

HELP = (
    teach(
        "Run a broker until it is told to stop (SIGTERM or Ctrl-C).",
        "fanlog serve",
        "fanlog serve --data /var/lib/fanlog --kafka 0.0.0.0:9092 --advertise broker1.example.org",
        "fanlog serve --config fanlog.toml --topics-durability os",
        "FANLOG_TOPICS_PARTITIONS=4 fanlog serve --kafka 127.0.0.1:0",
    )
    + "\n\nEvery setting has one name: --topics-durability is durability under \\[topics] in the file and "
    "FANLOG_TOPICS_DURABILITY in the environment. A flag wins over the environment, the environment over the "
    "file."
    "\n\nOnce it listens it prints one line: ready kafka=HOST:PORT mqtt=HOST:PORT http=HOST:PORT ..."
)


def serve(**given: Any) -> None:
    file: Path | None = given.pop("config_file")
    keys = {_parameter(name): name.key for name in config.names()}
    flags = {keys[parameter]: value for parameter, value in given.items() if value is not None}
    try:
        settings = config.load(flags, file)
        for door in _ADDRESSES:
            config.address(getattr(settings, door))
        # Imported here, so that the other commands need not load the broker.
        from fanlog.broker import run

        exit_code = run(settings)
    except config.ConfigError as error:
        raise usage(str(error)) from error
    raise typer.Exit(exit_code)


def _parameter(name: config.Name) -> str:
    return "_".join(name.path)


def _option(name: config.Name) -> inspect.Parameter:
    metavar = "|".join(name.choices) or ("HOST:PORT" if name.key in _ADDRESSES else _METAVARS[name.type])
    shown = str(name.default).lower() if name.type is bool else str(name.default)
    option = typer.Option(
        name.flag,
        metavar=metavar,
        help=name.help,
        show_default=shown or False,
        rich_help_panel=_PANELS.get(name.path[0] if len(name.path) > 1 else "", name.path[0].capitalize()),
    )
    return inspect.Parameter(
        _parameter(name),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[str | None, option],
    )


def _signature() -> inspect.Signature:
    file = inspect.Parameter(
        "config_file",
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[
            Path | None,
            typer.Option(
                "--config", "-c", metavar="FILE", help="Settings in TOML.", rich_help_panel="Broker"
            ),
        ],
    )
    return inspect.Signature([file, *(_option(name) for name in config.names())])


def command() -> Callable[..., None]:
    """`serve` with the signature that typer reads its options from."""
    vars(serve)["__signature__"] = _signature()
    return serve
