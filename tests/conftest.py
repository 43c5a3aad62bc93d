import gc
import signal

import hypothesis
import pytest
import simulated_gpu

# A busy machine, or coverage, may slow any example down.
hypothesis.settings.register_profile("without a deadline", deadline=None)
hypothesis.settings.load_profile("without a deadline")

# A shell starts background jobs with SIGINT ignored, and children inherit that; some tests interrupt theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def machine():
    """A simulated machine with one GPU, on which nothing is left when the test is over."""
    if not simulated_gpu.has_binding():
        pytest.skip("neither cuda-bindings nor pycuda is installed")
    with simulated_gpu.installed() as machine:
        yield machine
        gc.collect()
        assert not any(machine.held().values()), machine.held()


@pytest.fixture
def same_seed(monkeypatch):
    """The seed that would be random is always 0."""
    monkeypatch.setattr("ars.engine.smoothed.secrets.randbits", lambda bits: 0)
