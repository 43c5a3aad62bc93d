"""`ars-export`."""

import importlib.util
from pathlib import Path

import click

from ars.command_line import Command, version_option
from ars.errors import MissingPackage


@click.command(cls=Command)
@version_option
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder. Default: the model's.")
def main(model: Path, output: Path | None) -> None:
    """Export a model.pt of ars-train to ONNX: the classifier, its noise, and the manifest."""
    for package in ("torch", "onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(package, "train")
    from ars.export.onnx_files import export_model

    written, parity = export_model(model, output or model.parent)
    for path in written:
        click.echo(path)
    agreement = f"{parity.agreement:.2%} of {parity.draws} noisy draws have torch's top class"
    click.echo(f"{agreement}; logits differ by at most {parity.largest_difference:.1e} of the largest", err=True)
