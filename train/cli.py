"""`ars-train`."""

import click

from ars.command_line import Command, version_option
from ars.errors import InputError


@click.command(cls=Command)
@version_option
def main() -> None:
    """Train a classifier and its noise generator."""
    raise InputError(
        "this version of ARS does not train models yet; give `ars-engine certify` an ONNX classifier of your own"
    )
