import gc

import pytest
import simulated_gpu


@pytest.fixture
def machine():
    """A simulated machine with one GPU, on which nothing is left when the test is over."""
    with simulated_gpu.installed() as machine:
        yield machine
        gc.collect()
        assert not any(machine.held().values()), machine.held()
