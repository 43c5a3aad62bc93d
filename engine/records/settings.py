"""What a store says about its run as a whole: the settings that decide the certificates, where model and data came
from, which inputs were asked for, and what ran them.

In the store these records are JSON objects. A field that an object lacks takes its default, so a new field needs one
line here, with a default that is true of every older run.
"""

import dataclasses
import json
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Self, TypeVar, get_args, get_type_hints

from ars.data import select
from ars.engine.noise_maps import NoiseSource
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid
from ars.engine.statistics.target import Target
from ars.noise import NoiseKind
from ars.plain_json import parse_json

__all__ = ["Difference", "Environment", "Origin", "RunHeader", "RunSettings", "Sampling", "differences"]

Json = Mapping[str, object]
T = TypeVar("T")

CHOICE = ("start", "limit", "skip", "end", "only", "shard")
"""The arguments of `ars.data.select`."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Everything that decides the certificates of a run. A run is resumed only with the same settings."""

    engine: str
    """The hash of the model, external data included (`hash_model`)."""
    runner: str
    data: str
    """The fingerprint of the data."""
    family: str
    kind: NoiseKind
    noise: NoiseSource
    plan: Plan
    bounds: int | None = None
    """The version of the bounds, for plans whose bounds have versions (`Plan.bounds_version`)."""
    seed: int
    batch: int
    """A runner's float arithmetic may depend on the number of draws in a batch."""
    noise_stream: int = 1
    lattice_step: float | None = None
    """Of noise stream 2."""
    only_correct: bool = False
    """Whether an input ends after selection if its selected class is not its label."""

    def __post_init__(self) -> None:
        if not 1 <= self.batch < 2**31 or not 0 <= self.seed < 2**64:
            raise ValueError(f"no run has batch = {self.batch} and seed = {self.seed}")
        if self.noise_stream not in (1, 2) or (self.noise_stream == 2) != (self.lattice_step is not None):
            raise ValueError(f"there is no noise stream {self.noise_stream} with lattice_step = {self.lattice_step}")

    def to_json(self) -> dict[str, object]:
        """One flat object with the settings of the noise and of the plan among the others, and nothing that is None."""
        content: dict[str, object] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Plan):
                content |= value.settings
            elif isinstance(value, NoiseSource):
                content |= vars(value)
            elif value is not False:  # as in older stores, which have no such setting
                content[field.name] = value
        return {name: value for name, value in content.items() if value is not None}

    @classmethod
    def from_json(cls, content: Json) -> Self:
        """The settings that `to_json` wrote. ValueError if there is anything among them that no run of this version can
        have had: a setting that was not understood might decide the certificates."""
        settings = _read(cls, content)
        understood = settings.to_json()
        for name, value in content.items():
            if value is not None and value != understood.get(name):
                raise ValueError(f"a run with its other settings cannot have {name} = {value}")
        return settings


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where model, noise and data came from, as the user named them. An audit and a report look for them there."""

    data_name: str | None = None
    data_source: str | None = None
    engine_file: str | None = None
    noise_file: str | None = None
    classes_file: str | None = None
    resize: int | None = None
    crop: int | None = None
    unit: str | None = None
    """The unit of sigma and of every radius; None if the run is of a version that did not say."""
    folder: str | None = None
    """The absolute path of the working folder, to which the paths above are relative."""
    store_folder: str | None = None
    """The absolute path of the folder that the store was made in, so that files can be found relative to the store."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, str) and "\0" in value:
                raise ValueError(f"its {name} is {value!r}")

    def to_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Json) -> Self:
        return _read(cls, content)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Which inputs of the data the last command into a store asked for. Older stores do not say."""

    data_inputs: int | None = None
    """How many inputs the data has."""
    start: int = 0
    limit: int | None = None
    skip: int = 1
    end: int | None = None
    only: str | None = None
    shard: str | None = None
    target_width: float | None = None
    """With a target, the inputs are taken in random order until certified accuracy is known to within this width."""
    target_radii: str | None = None
    looked: int | None = None
    """With a target: how many inputs, in that order, the last look was at."""
    given_up: str | None = None
    """On a cluster: the inputs that were given up because workers died of them, like "17,203"."""

    def __post_init__(self) -> None:
        if not 0 <= (self.data_inputs or 0) < 2**63:
            raise ValueError(f"no data has {self.data_inputs} inputs")

    @property
    def asked(self) -> list[int] | None:
        """The numbers of the inputs that were asked for; None if the store does not say."""
        if self.data_inputs is None:
            return None
        return select(self.data_inputs, **{name: getattr(self, name) for name in CHOICE})

    @property
    def target(self) -> Target | None:
        if self.target_width is None or self.target_radii is None:
            return None
        return Target(self.target_width, Grid.parse(self.target_radii).radii)

    def to_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Json) -> Self:
        return _read(cls, content)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What ran the model. It decides no certificate by itself, and may differ between the inputs of a run: after a
    resumption, between shards, and on a cluster."""

    ars: str | None = None
    runner: str
    """The name of the runner. Its version stands under this name in the store."""
    runner_version: str | None = None
    precision: str | None = None
    device: str | None = None
    instructions: str | None = None
    python: str | None = None
    machine: str | None = None
    node: str | None = None
    """The name of the computer."""
    batch: int | None = None
    """The draws in a batch. Shards of a run may differ in it."""

    def describe(self) -> str:
        """All of it in one line."""
        return "; ".join(f"{name} {value}" for name, value in self.to_json().items() if value is not None)

    def to_json(self) -> dict[str, object]:
        content = dataclasses.asdict(self)
        return {content.pop("runner"): content.pop("runner_version")} | content

    @classmethod
    def from_json(cls, content: Json, runner: str) -> Self:
        return _read(cls, {**content, "runner": runner, "runner_version": content.get(runner)})

    def to_row(self) -> str:
        """The environment of one certified input, as the store keeps it."""
        return json.dumps({name: value for name, value in vars(self).items() if value is not None})

    @classmethod
    def from_row(cls, text: str) -> Self:
        content = parse_json(text)
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
        return _read(cls, content)


@dataclass(frozen=True)
class RunHeader:
    """The run of a store, without its certificates."""

    settings: RunSettings
    origin: Origin
    environment: Environment
    classes: tuple[str, ...] | None
    """The names of the classes in the order of their numbers, if the data has names."""
    sampling: Sampling = Sampling()


class Difference(NamedTuple):
    """A value that differs between two runs; None where a run has no such value."""

    name: str
    one: object
    other: object


def differences(one: RunSettings | Environment, other: RunSettings | Environment) -> list[Difference]:
    """The values that differ between two records of the same kind, in the order of the first."""
    first, second = one.to_json(), other.to_json()
    names = dict.fromkeys([*first, *second])
    return [
        Difference(name, first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)
    ]


def _read(kind: type[T], content: Json) -> T:
    """A dataclass from the members of a JSON object that have the names of its fields."""
    hints, values = get_type_hints(kind), dict[str, Any]()
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]  # it is a dataclass
        hint, value = hints[field.name], content.get(field.name)
        if hint is Plan:
            values[field.name] = Plan.from_settings(content)
        elif hint is NoiseSource:
            values[field.name] = _read(hint, content)
        elif value is not None:
            values[field.name] = _parse(field.name, value, hint)
        elif field.default is dataclasses.MISSING:
            raise ValueError(f"it has no {field.name}")
    return kind(**values)


def _parse(name: str, value: object, hint: Any) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"its {name} is {value}")
    for kind in get_args(hint) if isinstance(hint, types.UnionType) else (hint,):
        if type(value) is kind:
            return value
        if (kind is float and type(value) is int) or (issubclass(kind, Enum) and isinstance(value, str)):
            return kind(value)
    raise ValueError(f"its {name} is {value!r}")
