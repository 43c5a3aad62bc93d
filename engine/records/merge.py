"""Joins the stores of one run, such as the shards that the machines of a cluster wrote, into a single store."""

import dataclasses
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ars.engine.records.record import Record
from ars.engine.records.settings import CHOICE, RunHeader, Sampling, differences
from ars.engine.records.store import Store, read_header, read_records
from ars.errors import StoreError
from ars.output import SIDE_SUFFIXES, refuse_inputs, replacing
from ars.temporaries import temporary_folder

__all__ = ["merge_runs"]

_FIX = "merge stores of one run, with the same model, noise, data, plan and seed"


def merge_runs(stores: Sequence[str | Path], output: str | Path) -> int:
    """Join stores of one run into a new store, and return the number of its certified inputs.

    The stores must agree in every setting but the batch size; each input keeps the environment that it was certified
    in. An input may be in several stores if they agree about it. Otherwise a StoreError names the store and what
    differs, and nothing is written.
    """
    paths, output = [Path(store) for store in stores], Path(output)
    # SQLite would take the latest commits of an older store of that name for those of the merged one.
    for file in (output, *(output.with_name(output.name + suffix) for suffix in SIDE_SUFFIXES)):
        if os.path.lexists(file):
            raise StoreError(file, "it exists already", "choose another name for the merged store, or remove it")
    refuse_inputs(output, paths)
    if output.name.endswith(SIDE_SUFFIXES):
        raise StoreError(output, "its name is like that of what SQLite keeps beside a store", "choose another name")
    if not output.parent.is_dir():
        raise StoreError(output, "it cannot be written (there is no such folder)", "choose another name")
    headers = [read_header(path) for path in paths]
    for path, header in zip(paths, headers, strict=True):
        _check_same_run(path, header, paths[0], headers[0])
    found: dict[int, tuple[Record, Path]] = {}
    for path, header in zip(paths, headers, strict=True):
        ran = dataclasses.replace(header.environment, batch=header.settings.batch)
        for record in read_records(path):
            record = dataclasses.replace(record, made_by=record.made_by or ran)
            if record.idx in found:
                _check_same_input(path, record, *found[record.idx])
            else:
                found[record.idx] = record, path
    origin = dataclasses.replace(headers[0].origin, store_folder=str(output.parent.absolute()))
    merged = dataclasses.replace(headers[0], origin=origin, sampling=_join([header.sampling for header in headers]))
    try:
        # In this order, a merge that is killed leaves the store and nothing else, or no store.
        with replacing(output) as whole, temporary_folder(output.parent, f".{output.name[:48]}.") as folder:
            place = folder / "merged.sqlite"
            with Store(place, merged) as store:
                store.add(*(record for _, (record, _) in sorted(found.items())))
            shutil.copyfile(place, whole)
    except OSError as error:
        raise StoreError(output, f"it cannot be written ({error.strerror})", "choose another name") from error
    except StoreError as error:
        raise StoreError(output, error.problem, "make room, or choose another name") from error
    return len(found)


def _check_same_run(path: Path, header: RunHeader, first: Path, other: RunHeader) -> None:
    for name, here, there in differences(header.settings, other.settings):
        if name != "batch":
            what = {"engine": "model", "data": "data (images, labels or their order)"}.get(name, name)
            raise StoreError(path, f"its {what} is {here}, and that of {first} is {there}", _FIX)
    if header.classes != other.classes:
        raise StoreError(path, f"its classes have other names than those of {first}", _FIX)
    if header.sampling.data_inputs != other.sampling.data_inputs:
        raise StoreError(path, f"its data has another number of inputs than that of {first}", _FIX)
    if header.sampling.target is not None:
        raise StoreError(path, "it was made with --target-width, and is complete by itself", "leave it out")


def _check_same_input(path: Path, record: Record, other: Record, where: Path) -> None:
    """Refuse two certificates of an input that differ in anything but the time they took and what made them."""
    here, there = (dataclasses.asdict(one.certificate) | vars(one) for one in (record, other))
    for name in here:
        if name not in ("certificate", "seconds", "made_by") and here[name] != there[name]:
            problem = f"for input {record.idx}, its {name} is {here[name]}, and that in {where} is {there[name]}"
            raise StoreError(path, problem, "find out with `ars-engine audit` which of the two does not hold")


def _join(samplings: Sequence[Sampling]) -> Sampling:
    """Which inputs the merged run asked for: what its shards are shards of, or everything that its stores asked for."""
    given_up = ",".join(sampling.given_up for sampling in samplings if sampling.given_up) or None
    whole = [dataclasses.replace(sampling, shard=None, given_up=given_up) for sampling in samplings]
    if all(sampling == whole[0] for sampling in whole) or samplings[0].data_inputs is None:
        return whole[0]
    asked = sorted({idx for sampling in samplings for idx in sampling.asked or ()})
    starts = [idx for idx, before in zip(asked, [None, *asked], strict=False) if before is None or idx != before + 1]
    ends = [idx for idx, after in zip(asked, [*asked[1:], None], strict=True) if after is None or idx != after - 1]
    ranges = ",".join(f"{low}-{high}" for low, high in zip(starts, ends, strict=True))
    return dataclasses.replace(whole[0], **{name: getattr(Sampling(), name) for name in CHOICE} | {"only": ranges})
