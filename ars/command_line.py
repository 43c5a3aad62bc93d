"""What the four commands share: an error is one sentence on stderr and an exit status, 1 for a failed run and 2 for
bad input."""

import click

from ars.distribution import VERSION
from ars.errors import ArsError

__all__ = ["Command", "Group", "version_option"]

version_option = click.version_option(VERSION)


class Command(click.Command):
    """A click command that shows no traceback for errors that ARS raises on purpose."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except ArsError as error:
            sentence, status = str(error), error.exit_status
        except MemoryError:
            sentence, status = "there is not enough memory; use a smaller batch, or less data", 1
        except BrokenPipeError:
            raise  # click exits quietly when a reader, like head, closes the pipe
        except OSError as error:
            sentence, status = (
                f"{error.filename or 'output'}: {error.strerror or error}; check the path and the disk",
                1,
            )
        except KeyboardInterrupt:
            sentence, status = "stopped", 130
        click.echo(f"Error: {sentence}", err=True)
        return context.exit(status)


class Group(click.Group):
    """A group of such commands."""

    command_class = Command
