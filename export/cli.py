"""`ars-export`."""

import click

from ars.command_line import Command, version_option
from ars.errors import InputError


@click.command(cls=Command)
@version_option
def main() -> None:
    """Export a trained model to ONNX and TensorRT."""
    raise InputError("this version of ARS does not export models yet; export to ONNX with torch.onnx.export")
