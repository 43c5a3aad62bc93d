"""Run settings as JSON: nothing is lost, older stores have defaults, and what is not understood is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ars.engine.noise_maps import NoiseSource
from ars.engine.records.settings import Environment, Origin, RunSettings, differences
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid, Tolerance
from ars.noise import NoiseKind

SETTINGS = RunSettings(
    engine="abc",
    runner="onnxruntime",
    data="def",
    family="gaussian",
    kind=NoiseKind.ISOTROPIC,
    noise=NoiseSource(sigma=0.5),
    plan=Plan(10, 1000),
    seed=0,
    batch=64,
)

radii = st.lists(st.floats(0, 100), min_size=1, max_size=4).map(tuple)
questions = st.none() | radii.map(Grid) | st.floats(0.001, 0.5).map(Tolerance)
plans = st.builds(Plan, st.integers(1, 1000), st.integers(1, 10**9), st.floats(1e-4, 0.5), st.booleans(), questions)
sources = (
    st.floats(0.01, 10).map(lambda sigma: NoiseSource(sigma=sigma))
    | st.text(min_size=1).map(lambda sha256: NoiseSource(maps=sha256))
    | st.text(min_size=1).map(lambda sha256: NoiseSource(generator=sha256))
)


@given(plans, sources, st.sampled_from(NoiseKind), st.integers(0, 2**64 - 1))
def test_settings_come_back_from_json(plan, noise, kind, seed):
    settings = replace(SETTINGS, plan=plan, bounds=plan.bounds_version, noise=noise, kind=kind, seed=seed)
    assert RunSettings.from_json(settings.to_json()) == settings


def test_settings_are_one_flat_object_without_nulls():
    assert SETTINGS.to_json() == {
        "engine": "abc",
        "runner": "onnxruntime",
        "data": "def",
        "family": "gaussian",
        "kind": "isotropic",
        "sigma": 0.5,
        "n0": 10,
        "n": 1000,
        "alpha": 0.001,
        "two_sided": True,
        "stopping": "fixed",
        "seed": 0,
        "batch": 64,
        "noise_stream": 1,
    }


def test_what_an_older_store_lacks_has_a_default():
    content = SETTINGS.to_json()
    del content["noise_stream"]
    assert RunSettings.from_json(content) == SETTINGS
    assert Origin.from_json({}) == Origin()
    assert Environment.from_json({"onnxruntime": "1.2"}, "onnxruntime").runner_version == "1.2"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"engine": None}, "it has no engine"),
        ({"seed": "0"}, "its seed is '0'"),
        ({"seed": 0.5}, "its seed is 0.5"),
        ({"batch": True}, "its batch is True"),
        ({"sigma": "abc"}, "its sigma is 'abc'"),
        ({"kind": "wide"}, "unknown noise kind 'wide'"),
        ({"n": 0}, "n = 0 is not valid"),
        ({"n": None}, "n = None is not valid"),
        ({"stopping": "sometimes"}, "stopping = sometimes is not valid"),
        ({"tolerance": 0.1}, "cannot have tolerance = 0.1"),
        ({"of_tomorrow": 3}, "cannot have of_tomorrow = 3"),
    ],
)
def test_what_is_not_understood_is_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        RunSettings.from_json(SETTINGS.to_json() | changed)


def test_differences_are_named_with_both_values():
    other = replace(SETTINGS, noise=NoiseSource(maps="x"), seed=1)
    assert differences(SETTINGS, other) == [("sigma", 0.5, None), ("seed", 0, 1), ("maps", None, "x")]
    assert differences(SETTINGS, SETTINGS) == []
    adaptive = replace(SETTINGS, plan=Plan(question=Grid()), bounds=4)
    older = adaptive.to_json()
    del older["max_loss"]
    assert differences(RunSettings.from_json(older), adaptive) == [("max_loss", 0.7, 0.5)]


def test_the_environment_names_the_runners_version_after_the_runner():
    environment = Environment(ars="1", runner="openvino", runner_version="2026.4", device="cpu, 2 lanes")
    assert environment.to_json()["openvino"] == "2026.4"
    assert Environment.from_json(environment.to_json(), "openvino") == environment
