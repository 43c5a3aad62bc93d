"""What the host does for a batch on a GPU does not grow with the number of inputs that share the batch."""

import os

import pytest
from simulated_gpu.host_cost import calls_of_a_batch


@pytest.mark.parametrize("inputs", [1, 64])
@pytest.mark.skipif(os.environ.get("ARS_TEST_BINDING") == "pycuda", reason="pycuda has no CUDA graphs")
def test_a_batch_that_is_a_graph_takes_five_calls_of_the_driver_one_of_them_a_launch(machine, inputs):
    assert calls_of_a_batch(machine, inputs, graph=True) == {
        "cuCtxPushCurrent": 1,
        "cuGraphLaunch": 1,
        "cuEventRecord": 1,
        "cuEventSynchronize": 1,
        "cuCtxPopCurrent": 1,
    }


@pytest.mark.parametrize("inputs", [1, 64])
def test_a_batch_takes_nine_calls_of_the_driver_two_of_them_launches(machine, inputs):
    calls = calls_of_a_batch(machine, inputs, graph=False)
    assert calls == {
        "cuCtxPushCurrent": 1,
        "cuMemcpyHtoDAsync": 1,
        "cuMemsetD32Async": 1,
        "cuLaunchKernel": 2,
        "cuMemcpyDtoHAsync": 1,
        "cuEventRecord": 1,
        "cuEventSynchronize": 1,
        "cuCtxPopCurrent": 1,
    }
