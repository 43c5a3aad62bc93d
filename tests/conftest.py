import gc
import os
import signal

import hypothesis
import pytest
import simulated_gpu

# A busy machine, or coverage, may slow any example down.
hypothesis.settings.register_profile("without a deadline", deadline=None)
hypothesis.settings.load_profile("without a deadline")

# A shell starts background jobs with SIGINT ignored, and children inherit that; some tests interrupt theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _cache_of_the_tests(tmp_path_factory):
    """Models that passed their trial are remembered for all tests, and not in the user's own cache."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield


@pytest.fixture(scope="session", autouse=True)
def _short_search_for_the_batch_size():
    """The fastest batch size is not what tests are about, and looking for it takes longer than most of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ars.engine.batch_size._SECONDS_PER_SIZE", 0.02)
        yield


@pytest.fixture
def machine():
    """A simulated machine with one GPU, on which nothing is left when the test is over."""
    if not simulated_gpu.has_binding():
        pytest.skip("neither cuda-bindings nor pycuda is installed")
    with simulated_gpu.installed() as machine:
        yield machine
        if any(machine.held().values()):
            gc.collect()  # it takes its time
        assert not any(machine.held().values()), machine.held()


@pytest.fixture
def same_seed(monkeypatch):
    """The seed that would be random is always 0."""
    monkeypatch.setattr("ars.engine.smoothed.secrets.randbits", lambda bits: 0)


@pytest.fixture
def one_thread():
    """torch's threads, which sums depend on, are not what another test left."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
