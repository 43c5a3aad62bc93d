"""`ars-engine` on the simulated GPU: the certificates are the processor's, and little moves between host and GPU."""

import pytest
from engine_runs import certify, records

pytestmark = pytest.mark.usefixtures("files", "machine")


@pytest.fixture
def expected():
    assert certify().exit_code == 0
    return records()


def test_a_tensorrt_engine_gives_the_processors_certificates(plan, expected):
    result = certify("--out", "gpu.sqlite", engine="model.trt")
    assert result.exit_code == 0, result.output
    assert records("gpu.sqlite") == expected


def test_an_onnx_file_on_the_gpu_gives_the_processors_certificates(expected):
    result = certify("--out", "gpu.sqlite", "--device", "cuda:0")
    assert result.exit_code == 0, result.output
    assert records("gpu.sqlite") == expected
