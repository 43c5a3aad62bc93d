"""What the four commands share: errors as one sentence on stderr, and an exit status: 1 failed, 2 bad input."""

import click

from ars.distribution import VERSION
from ars.errors import ArsError

__all__ = ["Command", "Group", "version_option"]

version_option = click.version_option(VERSION)


class Command(click.Command):
    """A click command that never shows a traceback for an error the project raised on purpose."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except ArsError as error:
            sentence, status = str(error), error.exit_status
        except MemoryError:
            sentence, status = "there is not enough memory for this; ask for less at a time", 1
        except BrokenPipeError:
            raise  # click ends quietly, as a reader like head wants
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
