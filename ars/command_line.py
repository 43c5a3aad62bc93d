"""What the four commands share: errors as one sentence on stderr, and an exit status: 1 failed, 2 bad input."""

import click

from ars.errors import ArsError

__all__ = ["Command", "Group", "version_option"]

version_option = click.version_option(package_name="ars")


class Command(click.Command):
    """A click command that never shows a traceback for an error the project raised on purpose."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except ArsError as error:
            click.echo(f"Error: {error}", err=True)
            context.exit(error.exit_status)
        except MemoryError:
            click.echo("Error: there is not enough memory for this; ask for less at a time", err=True)
            context.exit(1)


class Group(click.Group):
    """A group of such commands."""

    command_class = Command
