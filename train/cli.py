"""`ars-train`."""

import sys
from pathlib import Path

import click

from ars.command_line import Command, version_option
from ars.errors import ArgumentError, MissingPackage, ModelError
from ars.noise import FAMILIES, NoiseKind, family_named
from ars.output import refuse_inputs

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    cls=Command,
    examples=[
        "ars-train --dataset fashion-mnist --noise isotropic --sigma 0.5 -o model.pt",
        "ars-train --dataset train.npz --arch resnet20 --epochs 30 --flip -o model.pt",
        "ars-train --dataset photos/train --resize 256 --crop 224 --arch resnet50",
    ],
)
@click.option("--dataset", help="fashion-mnist, an .npz file, a folder of images or .npz files, or CIFAR-10's folder.")
@click.option("--arch", default="cnn", show_default=True, help="cnn, resnet20 ... resnet110, resnet50, or timm:NAME.")
@click.option("--noise", "kind", default="input", show_default=True, help="isotropic, dataset or input.")
@click.option("--family", default="gaussian", show_default=True, help=f"{', '.join(FAMILIES)}.")
@click.option("--sigma", "sigma0", type=float, default=0.5, show_default=True, help="Smallest scale aimed for.")
@click.option("--mean-max", type=float, default=1.0, show_default=True, help="Bound on |mean| of the noise.")
@click.option("--scale-floor", type=float, default=0.9, show_default=True, help="Smallest scale, in units of sigma.")
@click.option("--scale-ceiling", type=float, default=4.0, show_default=True, help="Largest scale, in units of sigma.")
@click.option("--generator-layers", type=int, default=4, show_default=True, help="Convolutions of the noise generator.")
@click.option("--generator-growth", type=int, default=16, show_default=True, help="Channels that each of them adds.")
@click.option(
    "--generator-stride", type=int, default=1, show_default=True, help="2: the generator at half the resolution."
)
@click.option(
    "--volume-weight",
    type=float,
    default=0.0,
    show_default=True,
    help="Reward for a large geometric mean of the scale (dataset and input noise).",
)
@click.option(
    "--consistency",
    type=float,
    default=0.0,
    show_default=True,
    help="Weight of consistency regularisation, like 10; needs two draws.",
)
@click.option("--epochs", type=int, default=10, show_default=True, help="Times that every image is seen.")
@click.option("--batch", type=int, default=128, show_default=True, help="Images per step.")
@click.option("--draws", type=int, default=5, show_default=True, help="Noisy copies of each image per step.")
@click.option("--lr", type=float, default=1e-3, show_default=True, help="Initial learning rate.")
@click.option("--optimizer", default="adamw", show_default=True, help="adamw or sgd.")
@click.option("--schedule", default="cosine", show_default=True, help="cosine, step or constant.")
@click.option(
    "--weights",
    type=(float, float, float),
    default=(1, 1, 0.01),
    show_default=True,
    help="Weights of the three losses.",
)
@click.option("--shift", type=click.IntRange(0), default=0, help="Shift each image by up to this many pixels.")
@click.option("--flip", is_flag=True, help="Mirror a random half of the images.")
@click.option("--random-crop", type=click.IntRange(1), help="Train on random crops of this size, read from disk.")
@click.option("--limit", type=click.IntRange(2), help="Train on at most this many images.")
@click.option("--resize", type=click.IntRange(1), help="Resize the shorter side of each image to this.")
@click.option("--crop", type=click.IntRange(1), help="Then crop a square of this size from the centre.")
@click.option("--seed", type=click.IntRange(0, 4095), default=0, show_default=True, help="Decides all that is random.")
@click.option("--init", type=FILE, help="Start from the weights of this model.pt or state_dict.")
@click.option("--resume", is_flag=True, help="Resume the unfinished run in the output file.")
@click.option("--precision", default="auto", show_default=True, help="auto, fp32, bf16 or fp16 (GPUs).")
@click.option("--device", default="auto", show_default=True, help="auto, cpu or cuda.")
@click.option("-o", "--output", type=FILE, default=Path("model.pt"), show_default=True, help="The model.")
@click.option("--overwrite", is_flag=True, help="Replace the output file if it exists.")
@version_option
def main(
    dataset: str | None,
    arch: str,
    kind: str,
    family: str,
    sigma0: float,
    mean_max: float,
    scale_floor: float,
    scale_ceiling: float,
    generator_layers: int,
    generator_growth: int,
    generator_stride: int,
    volume_weight: float,
    consistency: float,
    epochs: int,
    batch: int,
    draws: int,
    lr: float,
    optimizer: str,
    schedule: str,
    weights: tuple[float, float, float],
    shift: int,
    flip: bool,
    random_crop: int | None,
    limit: int | None,
    resize: int | None,
    crop: int | None,
    seed: int,
    init: Path | None,
    resume: bool,
    precision: str,
    overwrite: bool,
    device: str,
    output: Path,
) -> None:
    """Train a classifier together with its noise, and write both to a model.pt."""
    try:
        import torch
    except ImportError as error:
        raise MissingPackage("torch", "train") from error
    from ars.data import ImageSize
    from ars.train.datasets import open_training_data
    from ars.train.loop import train
    from ars.train.model_file import (
        ModelSettings,
        build,
        check_output,
        find_unfinished,
        read_unfinished,
    )
    from ars.train.noise_models import PAPERS_SIZE, GeneratorSize, NoiseShape
    from ars.train.plan import TrainingPlan
    from ars.train.processes import choose_device, choose_precision, is_first
    from ars.train.progress import TrainingProgress
    from ars.train.weights import load_weights, start_from

    if dataset is None:
        raise ArgumentError("dataset", None, "say what to train on, like --dataset fashion-mnist")
    if not output.parent.is_dir():
        raise ModelError(output, "its folder does not exist", "make it, or choose another --output")
    refuse_inputs(output, [dataset, *([] if init is None or overwrite else [init])])
    check_output(output)
    if resume and not output.exists():
        raise ModelError(output, "there is no such file to resume", "omit --resume to start a new run")
    where = choose_device(device)
    if output.exists() and not resume and not overwrite:
        lost = find_unfinished(output)
        what = "it exists" if lost is None else f"it holds an unfinished run, stopped after epoch {lost}"
        other = "" if lost is None else "continue it with --resume, "
        raise ModelError(output, what, f"{other}choose another --output, or replace it with --overwrite")
    plan = TrainingPlan(
        epochs,
        batch,
        draws,
        lr,
        optimizer,
        schedule,
        weights,
        shift,
        flip,
        random_crop,
        seed,
        volume_weight,
        consistency,
        choose_precision(precision, where),
    )
    bounds = NoiseShape(sigma0, mean_max, scale_floor, scale_ceiling)
    noise_kind, noise_family = NoiseKind(kind), family_named(family).name
    if volume_weight and noise_kind is NoiseKind.ISOTROPIC:
        raise ArgumentError(
            "volume-weight", volume_weight, "isotropic noise has one scale; use --noise dataset or --noise input"
        )
    generator = GeneratorSize(generator_layers, generator_growth, generator_stride)
    if generator != PAPERS_SIZE and noise_kind is not NoiseKind.INPUT:
        raise ArgumentError("noise", kind, "only input noise has a generator, whose size the options give")
    data = open_training_data(dataset, ImageSize(resize, crop), limit, random_crop)
    statistics = data.images.pixel_statistics()
    settings = ModelSettings(
        arch,
        data.images.shape,
        data.classes,
        *statistics,
        noise_family,
        noise_kind,
        bounds,
        bool(volume_weight) and noise_kind is NoiseKind.DATASET,
        generator,
    )
    torch.manual_seed(seed)
    model = build(settings)
    earlier = None
    if resume:
        earlier = read_unfinished(output, settings, plan, data.fingerprint)
        load_weights(model, earlier["weights"], output)
    elif init is not None:
        loaded = start_from(init, model.classifier)
        if loaded.note is not None and is_first():
            click.echo(loaded.note, err=True)
    done = 0 if earlier is None else earlier["state"]["epoch"]
    try:
        with TrainingProgress(plan, quiet=not is_first()) as progress:
            for metrics in train(model, settings, plan, data, output, where, earlier, progress.step):
                progress.epoch(metrics)
                done = metrics.epoch
    except KeyboardInterrupt:
        held = f"{output} holds epoch {done}; use --resume to continue from there" if done else "nothing was written"
        if is_first():
            click.echo(f"Stopped: {held}.", err=True)
        sys.exit(130)
    if is_first():
        click.echo(f"{output}: {metrics.accuracy:.1%} accuracy under noise, min(sigma) {metrics.sigma_min:.3f}")
