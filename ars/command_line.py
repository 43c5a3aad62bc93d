"""What the four commands share: an error is one sentence on stderr and an exit status, 1 for a failed run, 2 for bad
input, and 70 for a bug in ARS."""

import errno
import os
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

import click

from ars.distribution import VERSION, list_versions
from ars.errors import ArsError, one_line
from ars.printable import printable

__all__ = ["Command", "Group", "version_option"]


def _say_versions(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if not asked or context.resilient_parsing:
        return
    click.echo(f"{context.info_name}, version {VERSION}")
    for name, version in list_versions():
        click.echo(f"{name:<16} {version}")
    context.exit()


version_option = click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_say_versions,
    help="Show the versions of ARS and of what it runs on, and exit.",
)

BUG = 70
"""The exit status that sysexits.h has for an internal error."""

# What a device or the system lacks. Other errors of files are the user's to mend.
_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EBADF)
# The parameters that name what a command reads and what it writes, those first that most likely matter.
_READ = ("engine", "model", "dataset", "data", "store", "run", "runs", "file")
_WRITTEN = ("output", "out")


class _Examples(click.Command):
    """A click command whose help ends with examples, one command line each."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.examples = tuple(examples)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class Command(_Examples):
    """A command that shows no traceback, except for bugs if the environment variable ARS_TRACEBACK is set."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except ArsError as error:
            sentence, status = str(error), error.exit_status
        except MemoryError:
            problem = "there is not enough memory; use a smaller batch, or less data"
            sentence, status = f"{_named(context, _READ)}{problem}", 1
        except BrokenPipeError:
            raise  # click exits quietly when a reader, like head, closes the pipe
        except OSError as error:
            named = f"{error.filename}: " if error.filename else _named(context, _WRITTEN) or "output: "
            sentence = f"{named}{error.strerror or one_line(error)}; check the path and the disk"
            status = 1 if error.errno in _FAILURES else 2
        except KeyboardInterrupt:
            sentence, status = "stopped", 130
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if os.environ.get("ARS_TRACEBACK"):
                raise
            sentence, status = _describe_bug(error), BUG
        click.echo(f"Error: {printable(sentence)}", err=True)
        return context.exit(status)


class Group(_Examples, click.Group):
    """A group of such commands."""

    command_class = Command


def _named(context: click.Context, parameters: tuple[str, ...]) -> str:
    """The first of these parameters that was given, as the start of a sentence."""
    found = next((context.params[name] for name in parameters if context.params.get(name)), None)
    first = str(found[0] if isinstance(found, tuple) else found)
    return "" if found is None else f"{'stdout' if first == '-' else first}: "


def _describe_bug(error: Exception) -> str:
    """One sentence about an error that nobody foresaw. Its traceback goes to a file."""
    sentence = f"this is a bug in ARS ({type(error).__name__}: {one_line(error)}); nothing that was written is lost"
    try:
        descriptor, path = tempfile.mkstemp(prefix="ars-error-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return f"{sentence}; run it again with ARS_TRACEBACK=1, and report what it says"
    return f"{sentence}, please report it with the details in {path}"
