"""The `fanlog` command: its parts, and the one place where it ends.

Commands raise `Trouble` for what a user can do something about. Here it becomes a line on standard error and
an exit code: 0 it worked, 1 it did not, 2 the command line was at fault, 130 it was interrupted. Nobody but a
developer (FANLOG_TRACEBACK=1) is shown a traceback.
"""

import os
import signal
import sys
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from fanlog import __version__
from fanlog.cli import demo, doctor, groups, publish, serve, subscribe, topics
from fanlog.cli.output import Trouble, forget_output, interrupt, interruptions, teach

app = typer.Typer(
    name="fanlog",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fanlog {__version__}")
        raise typer.Exit


@app.callback(
    help=teach(
        "Fanlog: a message broker in which every topic is a durable log.",
        "fanlog demo                       what it does, shown on this machine",
        "fanlog serve                      a broker on 127.0.0.1:9092",
        "fanlog pub sensors 21.5           publish a record",
        "fanlog sub sensors --from -1h     read a topic, and go on reading",
    )
)
def fanlog(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


app.command(help=serve.HELP)(serve.command())
app.command(help=publish.HELP)(publish.pub)
app.command(help=subscribe.HELP)(subscribe.sub)
app.add_typer(topics.app, name="topic")
app.add_typer(groups.app, name="group")
app.command(help=doctor.HELP)(doctor.doctor)
app.command(help=demo.HELP)(demo.demo)


def _end(message: str, exit_code: int) -> NoReturn:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]fanlog:[/red] {escape(message)}")
    sys.exit(exit_code)


def main() -> None:
    # Where it is ignored (nohup, a background job of a script), it stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        app(prog_name="fanlog")
    except Trouble as error:
        _end(str(error), error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        forget_output()
        sys.exit(0)
    except Exception as error:
        if interruptions:
            sys.exit(130)
        if os.environ.get("FANLOG_TRACEBACK") == "1":
            raise
        reason = f"{type(error).__name__}: {error}"
        _end(f"{reason} (this is a defect; FANLOG_TRACEBACK=1 shows where)", 1)
