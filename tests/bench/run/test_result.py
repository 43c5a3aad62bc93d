"""What follows from raw times: seconds per sample, ratios, the table, and the files that keep them."""

import csv
import dataclasses
import io
import json

import pytest

from ars.bench.run.export import EXPORTERS, cells
from ars.bench.run.result import BenchResult, Measurement
from ars.bench.run.result_file import read_result
from ars.bench.run.show import show
from ars.errors import FileError


def measurement(
    name,
    seconds,
    *,
    backend="openvino",
    draws=1000,
    inputs=1,
    extrapolated=True,
    once=0.0,
    per_sample=100_100,
    stopping="fixed",
):
    return Measurement(
        name,
        backend,
        "int8",
        stopping,
        "input",
        64,
        2,
        "ab12",
        extrapolated,
        draws,
        inputs,
        per_sample,
        once,
        seconds,
    )


LOOP = measurement("PyTorch loop", (2.0, 4.0, 2.0), backend="loop")
OURS = measurement("ars openvino int8", (1.0, 2.0, 1.0), once=0.5)
ADAPTIVE = measurement(
    "ars openvino int8 adaptive",
    (5.0, 10.0, 5.0),
    draws=40_000,
    inputs=10,
    extrapolated=False,
    per_sample=4000.0,
    stopping="adaptive",
)
RESULT = BenchResult(
    "net", 100, 100_000, 3, (LOOP, OURS, ADAPTIVE), ("x is left out: why",), {"cpu": "a | b", "cores": 2}
)


def test_a_rate_is_extrapolated_to_a_sample_and_what_comes_once_is_not():
    assert LOOP.seconds_per_sample == pytest.approx((200.2, 400.4, 200.2))
    assert OURS.seconds_per_sample[0] == pytest.approx(0.5 + 0.5 * 100.1)
    assert LOOP.draws_per_second == pytest.approx(1000 / (8 / 3))


def test_a_turn_of_many_inputs_is_shared_out():
    assert ADAPTIVE.seconds_per_sample == (0.5, 1.0, 0.5)


def test_the_fastest_is_compared_with_each_other_one_the_nearest_first():
    assert RESULT.fastest is ADAPTIVE
    assert [one.name for one, _ in RESULT.ratios()] == [OURS.name, LOOP.name]
    assert RESULT.ratios()[1][1].median == pytest.approx(400.4)


def test_the_fastest_wins_within_the_rounds_although_another_has_the_lower_median():
    steady = measurement("steady", (2.0, 6.0, 4.0), extrapolated=False)
    quick = measurement("quick", (1.0, 5.0, 5.0), extrapolated=False)
    result = dataclasses.replace(RESULT, measurements=(steady, quick))
    assert result.fastest is quick
    assert [ratio.median for _, ratio in result.ratios()] == [1.2]
    assert result.baseline is steady
    assert [row[0] for row in cells(result)] == ["steady", "quick"]


def test_a_single_candidate_is_the_fastest_and_the_baseline():
    result = dataclasses.replace(RESULT, measurements=(OURS,))
    assert (result.fastest, result.baseline, result.ratios()) == (OURS, OURS, [])


def test_every_candidate_has_its_speed_up_over_the_loop_or_over_the_slowest_where_there_is_none():
    assert RESULT.baseline is LOOP
    assert RESULT.speed_up(ADAPTIVE).median == pytest.approx(400.4)
    assert [row[-1] for row in cells(RESULT)] == ["1.00", f"{200.2 / 50.55:.2f}", "400.40"]
    assert "speed-up over PyTorch loop" in EXPORTERS["markdown"](RESULT)
    assert json.loads(EXPORTERS["json"](RESULT))["measurements"][2]["speed_up"]["median"] == pytest.approx(400.4)
    ours = dataclasses.replace(RESULT, measurements=(ADAPTIVE, OURS))
    assert ours.baseline is OURS


def test_a_star_marks_what_was_extrapolated():
    by_name = {row[0]: row for row in cells(RESULT)}
    assert by_name["PyTorch loop"][1] == "267*"
    assert by_name[ADAPTIVE.name][1] == "0.667"
    assert "* extrapolated" in EXPORTERS["markdown"](RESULT)


def test_long_names_are_shown_whole_and_as_they_are(capsys):
    name = "ars onnxruntime fp32, [bold] of a name :smile: " + "x" * 150
    ours = dataclasses.replace(OURS, name=name)
    show(dataclasses.replace(RESULT, network="[red]net", measurements=(LOOP, ours)))
    shown = capsys.readouterr().out
    row = next(line for line in shown.splitlines() if name in line)
    assert row.rstrip("│ ").endswith("3.96"), "its last column is there"
    assert "…" not in shown
    assert "[red]net: seconds per sample" in shown


def test_json_keeps_every_raw_time_and_is_read_back(tmp_path):
    text = EXPORTERS["json"](RESULT)
    content = json.loads(text)
    assert content["measurements"][0]["seconds"] == [2.0, 4.0, 2.0]
    assert content["measurements"][0]["mean"] == pytest.approx(266.93, abs=0.01)
    assert content["ratios"][1]["slower"] == "PyTorch loop"
    path = tmp_path / "bench.json"
    path.write_text(text)
    assert read_result(path) == RESULT


def test_csv_and_markdown_have_a_row_for_each_candidate():
    rows = list(csv.DictReader(io.StringIO(EXPORTERS["csv"](RESULT))))
    assert [row["name"] for row in rows] == [LOOP.name, OURS.name, ADAPTIVE.name]
    assert float(rows[2]["seconds_per_sample"]) == pytest.approx(2 / 3)
    lines = EXPORTERS["markdown"](RESULT).splitlines()
    assert len({line.count("|") - line.count("\\|") for line in lines[:5]}) == 1


def test_a_file_that_is_no_benchmark_is_refused(tmp_path):
    path = tmp_path / "bench.json"
    for text in ("no json", "[]", "{}", "[" * 100_000, '{"format": 1, "measurements": [{}]}'):
        path.write_text(text)
        with pytest.raises(FileError, match=r"bench\.json: it is not a benchmark that can be read"):
            read_result(path)
    path.write_text('{"format": 99}')
    with pytest.raises(FileError, match=r"\(its format is 99, and this version reads 1\)"):
        read_result(path)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("measurements", []),
        ("measurements", 5),
        ("network", 5),
        ("rounds", 0),
        ("left_out", [5]),
        ("environment", {}),
        ("environment", []),
        ("seconds", []),
        ("seconds", ["a", 1.0, 1.0]),
        ("seconds", [float("nan"), 1.0, 1.0]),
        ("seconds", [0.0, 1.0, 1.0]),
        ("seconds", [-1.0, 1.0, 1.0]),
        ("seconds", [1.0, 1.0]),
        ("seconds", [1e-320, 1.0, 1.0]),
        ("seconds", "abc"),
        ("name", None),
        ("draws", 0),
        ("draws", 10**400),
        ("once", float("inf")),
        ("draws_per_sample", 0),
        ("name", OURS.name),
    ],
)
def test_a_damaged_value_is_refused_where_it_is_read(tmp_path, where, value):
    content = json.loads(EXPORTERS["json"](RESULT))
    (content if where in content else content["measurements"][0])[where] = value
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match=r"bench\.json: it is not a benchmark that can be read \(") as refusal:
        read_result(path)
    assert "Error(" not in str(refusal.value)
