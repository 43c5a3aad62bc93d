"""`ars-engine`."""

import os

import click

from ars.command_line import Group, version_option


@click.group(cls=Group)
@version_option
def main() -> None:
    """Certify classifiers by anisotropic randomized smoothing."""


@main.command()
def devices() -> None:
    """Say what can make noise and count votes on this machine."""
    from ars.engine.devices.host import usable_instructions

    fastest, *others = usable_instructions()
    click.echo(f"host  ready  {os.cpu_count()} cores, noise by {fastest} (also here: {', '.join(others)})")
