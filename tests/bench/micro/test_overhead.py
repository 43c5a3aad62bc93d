import json

from click.testing import CliRunner

from ars.bench.cli import main


def test_the_noise_streams_are_timed_with_a_classifier_of_the_users(run_folder):
    given = ["overhead", "--engine", str(run_folder / "model.onnx"), "--rounds", "3", "--batch", "4", "--json"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    (ratio,) = json.loads(result.stdout)["model.onnx"]["ratios"]
    assert (ratio["faster"], ratio["slower"]) == ("ars engine", "ars engine, noise stream 1")
    assert ratio["median"] > 0
