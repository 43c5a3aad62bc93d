"""`ars-bench backends` in small: every candidate is measured, and the ratios are named."""

import json

import torch
from click.testing import CliRunner

from ars.bench.cli import main


def test_backends_are_measured_in_turns_and_compared():
    before = torch.get_num_threads()
    small = ["backends", "--arch", "resnet8", "--draws", "8", "--batch", "4", "--pytorch-batch", "8", "--rounds", "3"]
    result = CliRunner().invoke(main, [*small, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)["resnet8"]
    assert {len(seconds) for seconds in report["seconds"].values()} == {3}
    assert [(ratio["faster"], ratio["slower"]) for ratio in report["ratios"]] == [
        ("ars, onnxruntime FP32", "PyTorch loop"),
        ("ars, openvino FP32", "PyTorch loop"),
        ("ars, openvino INT8", "PyTorch loop"),
        ("ars, openvino INT8", "ars, onnxruntime FP32"),
    ]
    assert torch.get_num_threads() == before


def test_an_architecture_that_is_none_is_refused():
    result = CliRunner().invoke(main, ["backends", "--arch", "renset20"])
    assert (result.exit_code, "did you mean 'resnet20'" in result.stderr) == (2, True)
