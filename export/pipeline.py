"""The steps of an export: ONNX, the other precisions, the comparison of each with the model, the TensorRT engine."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ars.data import ImageSize
from ars.engine.backends import choose_backend, load_generator, load_runner
from ars.engine.noise_maps import open_generator
from ars.errors import ArgumentError, ArsError, InputError, MissingPackage, ModelError, RunError, one_line
from ars.export.draft import Draft
from ars.export.examples import FEWEST, Examples, read_examples
from ars.export.graphs import MAX_BYTES
from ars.export.mixed import Kept, Target, time_ratio
from ars.export.onnx_source import open_onnx
from ars.export.parity import LARGEST_DIFFERENCE, NoisyInputs, collect_logits, compare
from ars.export.precision import write_fp16, write_int8
from ars.export.progress import ExportProgress
from ars.export.source import Array, OwnModel, Source
from ars.export.tensorrt import BuildOptions, Flavour, build_engine, check_capabilities, find_flavour, local_gpu
from ars.external_data import hash_model
from ars.manifest import PRECISIONS, Manifest, Parity
from ars.regular import check_regular
from ars.trial import own_models

__all__ = ["ExportPlan", "export_model"]

# The first opset with a quantisation scale for each channel.
INT8_OPSET = 13
ADVICE = {
    "fp16": "its values may be too large for half precision: omit fp16",
    "int8": "try fp16, or more of the model's own data with --calibration",
}


@dataclass(frozen=True)
class ExportPlan:
    """What to export, and how."""

    precisions: tuple[str, ...]
    """The precisions to write, besides the model's own."""
    tensorrt: str
    """on, off, or auto: on if there are a GPU and TensorRT."""
    build: BuildOptions
    calibration: str | None
    """The data to calibrate and compare on; None for the examples in the model.pt."""
    min_agreement: float
    size: ImageSize
    """The size that images of this data are brought to."""
    for_engine: tuple[str, ...]
    """The options for the engine that were given."""
    overwrite: bool = False
    """Whether to overwrite files that are not of an earlier export."""

    def __post_init__(self) -> None:
        for precision in self.precisions:
            if precision not in PRECISIONS:
                raise ArgumentError("precision", precision, f"choose from {', '.join(PRECISIONS)}")
        if not 0 <= self.min_agreement <= 1:
            raise ArgumentError("min-agreement", self.min_agreement, "it must be between 0 and 1")
        for name, value in (("resize", self.size.resize), ("crop", self.size.crop)):
            if value is not None and self.calibration is None:
                raise ArgumentError(name, value, "it applies to the images of --calibration; omit it")


def export_model(
    path: Path | None, folder: Path | None, own: OwnModel, plan: ExportPlan, progress: ExportProgress
) -> list[Path]:
    """Write the files of the model to one folder; returns their paths, the manifest last."""
    flavour = _choose_flavour(plan, progress)
    source = _open(path, own)
    if source.changes:
        progress.say(f"{source.stem}.onnx is {source.path.name}, adapted: {'; '.join(source.changes)}")
    for note in source.notes:
        progress.say(note)
    precisions = _choose_precisions(source, plan.precisions)
    examples = _choose_examples(source, plan, progress)
    inputs = [each for each in (path, own.weights, plan.calibration) if each is not None]
    home = source.path.parent if folder is None else folder
    with Draft(home, f"{source.stem}.json", inputs, overwrite=plan.overwrite) as draft:
        classifier = _write(source, source.classifier, f"{source.stem}.onnx", ["logits"], draft, progress)
        generator = _write(source, source.generator, f"{source.stem}.noise.onnx", ["mean", "scale"], draft, progress)
        to_calibrate, to_compare = _add_noise(source, generator, examples)
        progress.begin("running the model itself", len(to_compare))
        theirs = collect_logits(to_compare, source.run, progress.advance)

        def measure(file: Path) -> Parity:
            return _measure(file, source.reference, to_compare, theirs, progress)

        parity = None
        if not isinstance(source.classifier, Path):
            parity = measure(classifier)
            _check_difference(classifier, parity.largest_difference, source.reference)
        draft.add("classifier", classifier, source.precision, parity)
        draft.add("noise", generator)
        if source.trained and draft.is_home_of(source.path):
            draft.add("trained", source.path)
        smallest = classifier, source.precision
        for precision in precisions:
            file = draft.path(f"{source.stem}.{precision}.onnx")
            progress.begin(f"writing {file.name}")
            kept = _bring_to(precision, classifier, file, to_calibrate, plan.min_agreement, source.path)
            if kept is not None:
                progress.say(f"{file.name}: {kept.describe()}")
            parity = measure(file)
            _check_agreement(file, parity, plan.min_agreement, ADVICE[precision])
            if precision == "int8":
                _compare_speed(file, classifier, to_calibrate, progress)
            draft.add("classifier", file, precision, parity)
            smallest = file, precision
        if flavour is not None:
            _write_engine(*smallest, f"{source.stem}.trt", flavour, plan.build, draft, progress)
        manifest = Manifest(source.shape, source.classes, source.noise, (), training=source.training)
        written, removed = draft.publish(manifest)
    for old in removed:
        progress.say(f"{old}: removed, because it belonged to another model of this name, or to other noise")
    return written


def _choose_flavour(plan: ExportPlan, progress: ExportProgress) -> Flavour | None:
    """The TensorRT package to build with, or None if no engine is to be built. Errors show before the work starts."""
    if plan.tensorrt == "off":
        _no_engine(plan)
        return None
    if plan.tensorrt == "auto" and local_gpu() is None:
        _no_engine(plan)
        progress.say("no TensorRT engine: there is no GPU here; --tensorrt on builds one for other GPUs")
        return None
    try:
        flavour = find_flavour()
    except MissingPackage as error:
        if plan.tensorrt == "on":
            raise
        _no_engine(plan)
        progress.say(f"no TensorRT engine: {error}")
        return None
    check_capabilities(flavour, plan.build.compute_capabilities)
    return flavour


def _no_engine(plan: ExportPlan) -> None:
    """Reject options that would have no effect."""
    if plan.for_engine:
        problem = f"{plan.for_engine[0]} is for an engine, but --tensorrt {plan.tensorrt} builds none here"
        raise InputError(f"{problem}; omit it, or use --tensorrt on")


def _choose_precisions(source: Source, asked: tuple[str, ...]) -> list[str]:
    """The precisions to make from the source's own, the smallest last."""
    others = [precision for precision in PRECISIONS if precision in asked and precision != source.precision]
    if others and source.precision != "fp32":
        problem = f"it is {source.precision} already, but {others[0]} is made from fp32"
        raise ModelError(source.path, problem, f"use the fp32 model, or --precision {source.precision}")
    if "int8" in others and source.opset < INT8_OPSET:
        problem = f"its opset is {source.opset}, but int8 needs {INT8_OPSET}"
        raise ModelError(source.path, problem, "export it again with a newer opset, or omit int8")
    return others


def _choose_examples(source: Source, plan: ExportPlan, progress: ExportProgress) -> Examples:
    if plan.calibration is not None:
        return read_examples(plan.calibration, source.shape, source.classes, plan.size, progress.warn)
    if source.examples is None or len(source.examples.x) < FEWEST:
        number = 0 if source.examples is None else len(source.examples.x)
        problem = f"it has {number} examples, but the comparison needs at least {FEWEST}"
        raise ModelError(source.path, problem, "give the model's own kind of data with --calibration")
    return source.examples


def _open(path: Path | None, own: OwnModel) -> Source:
    """Open what is to be exported. An ONNX file needs no torch."""
    if path is not None:
        check_regular(path, ModelError)
    if path is not None and path.suffix == ".onnx" and own.arch is None and own.weights is None:
        return open_onnx(path, own)
    from ars.export.sources import open_torch_source

    return open_torch_source(path, own)


def _write(source: Source, what: Any, name: str, outputs: list[str], draft: Draft, progress: ExportProgress) -> Path:
    """Write a module or a graph as an ONNX file; an ONNX file is taken as it is."""
    if isinstance(what, Path):
        return draft.bring(what)
    progress.begin(f"writing {name}")
    if isinstance(what, onnx.ModelProto):
        onnx.save(what, draft.path(name))
        return draft.path(name)
    from ars.export.onnx_files import write_onnx

    write_onnx(what, source.shape, draft.path(name), outputs, source.path)
    return draft.path(name)


def _add_noise(source: Source, generator: Path, examples: Examples) -> tuple[NoisyInputs, NoisyInputs]:
    """Half of the examples for calibration and half for the comparison, alternating, with the noise maps of each."""
    maps = open_generator(generator, load_generator(generator), source.noise.kind, source.shape)
    pairs = [maps.at(number, x) for number, x in enumerate(examples.x)]
    mean, scale = np.stack([pair[0] for pair in pairs]), np.stack([pair[1] for pair in pairs])
    if not isinstance(source.generator, Path | onnx.ModelProto):
        import torch

        with torch.no_grad():
            theirs = [part.numpy() for part in source.generator(torch.from_numpy(examples.x))]
        _check_difference(
            generator, max(float(np.abs(mean - theirs[0]).max()), float(np.abs(scale - theirs[1]).max())), "torch"
        )
    labels = [None, None] if examples.labels is None else [examples.labels[0::2], examples.labels[1::2]]
    first, second = (
        NoisyInputs(examples.x[start::2], labels[start], mean[start::2], scale[start::2], source.noise)
        for start in (0, 1)
    )
    return first, second


def _bring_to(
    precision: str, classifier: Path, file: Path, to_calibrate: NoisyInputs, least: float, named: Path
) -> Kept | None:
    """Write the classifier in another precision; returns the layers of INT8 that stay in float, if any had to. INT8
    aims at half of the disagreement that is allowed. Errors name the user's file."""
    size = sum(each.stat().st_size for each in (classifier, *_external_files(classifier)))
    if size > MAX_BYTES:
        problem = f"it has {size / 2**30:.1f} GiB of weights, but {precision} is made from less than 2"
        raise ModelError(named, problem, f"omit {precision}")
    try:
        if precision == "fp16":
            write_fp16(classifier, file, named)
            return None
        target = Target((1 + least) / 2, np.concatenate(list(to_calibrate.choice_draws())))
        with own_models():
            return write_int8(classifier, file, list(to_calibrate.calibration_draws()), named, target)
    except (ArsError, OSError, MemoryError):
        raise
    except Exception as error:  # the tools raise many types of errors
        problem = f"it cannot be converted to {precision} ({one_line(error)})"
        raise ModelError(named, problem, f"omit {precision}") from error


def _external_files(classifier: Path) -> list[Path]:
    return [classifier.parent / file.path for file in hash_model(classifier).external]


def _measure(file: Path, reference: str, inputs: NoisyInputs, theirs: Array, progress: ExportProgress) -> Parity:
    progress.begin(f"comparing {file.name}", len(inputs))
    with own_models():
        runner = load_runner(file)
    ours = collect_logits(inputs, runner.run, progress.advance)
    parity = compare(inputs, theirs, ours, reference, f"{runner.name} {runner.version}")
    apart = parity.certified_accuracy_difference
    accuracy = (
        "" if apart is None else f", certified accuracy of {parity.inputs} inputs within {100 * apart:.1f} points"
    )
    progress.say(
        f"{file.name}: {parity.agreement:.2%} of {parity.draws} noisy draws have the top class of {reference}, logits "
        f"within {parity.largest_difference:.1e} of the largest{accuracy} (run by {parity.runner})"
    )
    return parity


def _compare_speed(file: Path, classifier: Path, inputs: NoisyInputs, progress: ExportProgress) -> None:
    """Say what INT8 gains on this machine, where each file is run by the backend that is taken for it."""
    with own_models():
        ours = load_runner(file)
        # A manifest beside the user's file may be of an earlier file of this name.
        theirs = load_runner(classifier, choose_backend(classifier, None)[0])
    ratio = time_ratio(ours, theirs, np.concatenate(list(inputs.choice_draws())))
    found = (
        f"{file.name}: a draw takes {ratio:.2f} times as long ({ours.name}) as with {classifier.name} ({theirs.name})"
    )
    if ratio < 1:
        progress.say(found)
    else:
        progress.warn(f"{found}: INT8 is not faster here, so certify with {classifier.name}")


def _check_difference(file: Path, difference: float, reference: str) -> None:
    if not difference <= LARGEST_DIFFERENCE:
        problem = f"its output differs from that of {reference} by {difference:.2g} of the largest value"
        raise RunError(f"{file.name}: {problem}, so nothing was written; please report this with the model")


def _check_agreement(file: Path, parity: Parity, least: float, advice: str) -> None:
    if parity.agreement < least:
        found = f"it agrees with {parity.reference} on {parity.agreement:.2%} of {parity.draws} noisy draws"
        raise RunError(f"{file.name}: {found}, below --min-agreement {least}, so nothing was written; {advice}")


def _write_engine(
    onnx: Path,
    precision: str,
    name: str,
    flavour: Flavour,
    options: BuildOptions,
    draft: Draft,
    progress: ExportProgress,
) -> None:
    progress.begin(f"building {name}")
    start = time.perf_counter()
    plan, build = build_engine(onnx, flavour, options, lambda phase, done, steps: progress.set(done, steps))
    draft.path(name).write_bytes(plan)
    draft.add("engine", draft.path(name), precision, build=build)
    smallest, largest = build.profile.min_batch, build.profile.max_batch
    progress.say(
        f"{name}: {len(plan) / 1e6:.1f} MB from {onnx.name} in {time.perf_counter() - start:.1f} s by {build.flavour} "
        f"{build.version}, for compute capability {', '.join(build.compute_capabilities)} and batches of "
        f"{f'{smallest} only' if smallest == largest else f'{smallest} to {largest}'}"
    )
