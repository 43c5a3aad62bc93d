"""What the four commands share: errors as one sentence on stderr, with the exit status of DESIGN: 1 failed, 2 wrong."""

import click

from ars.errors import ArsError

__all__ = ["Command", "Group", "version_option"]

version_option = click.version_option(package_name="ars")


class _Sentence(click.ClickException):
    """An ArsError on its way to the terminal."""

    def __init__(self, error: ArsError) -> None:
        super().__init__(str(error))
        self.exit_code = error.exit_status


class Command(click.Command):
    """A click command that never shows a traceback for an error the project raised on purpose."""

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except ArsError as error:
            raise _Sentence(error) from error


class Group(click.Group):
    """A group of such commands."""

    command_class = Command
