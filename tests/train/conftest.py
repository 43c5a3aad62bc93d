import numpy as np
import pytest


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Two classes that are easy to tell apart: bright on the left, bright on the right."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    x = rng.random((400, 1, 12, 12), dtype=np.float32) * 0.3
    for image, label in zip(x, y, strict=True):
        image[..., 6 * label : 6 * label + 6] += 0.7
    np.savez("data.npz", x=x, y=y)
    return tmp_path


@pytest.fixture(autouse=True)
def every_test_has_one_thread(one_thread):
    pass
