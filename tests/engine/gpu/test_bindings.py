"""Which package reaches CUDA's driver, and what is said if it cannot."""

import importlib
import sys

import pytest

from ars.errors import DeviceError, MissingPackage


@pytest.fixture
def fresh(monkeypatch):
    """The bindings are imported again, and forgotten after the test."""
    for name in ("pycuda", "pycuda.driver", "ars.engine.bindings.pycuda", "ars.engine.bindings.cuda_python"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield monkeypatch
    for name in ("pycuda", "pycuda.driver", "ars.engine.bindings.pycuda"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("libcuda.so.1: cannot open shared object file", "no NVIDIA driver is installed (libcuda"),
        ("libcurand.so.10: cannot open shared object file", "pycuda does not load (libcurand"),
        ("_driver.so: undefined symbol: cuGraphAddNode", "the NVIDIA driver is older than the CUDA"),
    ],
)
def test_a_pycuda_that_does_not_load_says_which_library_it_lacks(tmp_path, fresh, reason, said):
    (tmp_path / "pycuda").mkdir()
    (tmp_path / "pycuda" / "__init__.py").write_text("")
    (tmp_path / "pycuda" / "driver.py").write_text(f"raise ImportError({reason!r})")
    fresh.syspath_prepend(str(tmp_path))
    for name in ("cuda", "cuda.bindings"):
        fresh.setitem(sys.modules, name, None)
    with pytest.raises(DeviceError, match=r"; ") as error:
        importlib.import_module("ars.engine.bindings").choose_binding()
    assert str(error.value).startswith(said)


def test_a_cuda_python_that_does_not_load_is_one_sentence(tmp_path, fresh):
    (tmp_path / "cuda" / "bindings").mkdir(parents=True)
    (tmp_path / "cuda" / "bindings" / "__init__.py").write_text("")
    (tmp_path / "cuda" / "bindings" / "driver.py").write_text("raise ImportError('libstdc++.so.6: cannot open')")
    for name in [name for name in sys.modules if name == "cuda" or name.startswith("cuda.")]:
        fresh.delitem(sys.modules, name)
    fresh.syspath_prepend(str(tmp_path))
    with pytest.raises(DeviceError, match=r"^cuda-python does not load \(libstdc\+\+.*; install cuda-bindings again$"):
        importlib.import_module("ars.engine.bindings").choose_binding()
    for name in [name for name in sys.modules if name == "cuda" or name.startswith("cuda.")]:
        del sys.modules[name]


def test_without_either_package_the_extra_is_named(fresh):
    for name in ("cuda", "cuda.bindings", "pycuda"):
        fresh.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackage, match=r"cuda-bindings is not installed; run `pip install 'ars-certify\[gpu\]'`"):
        importlib.import_module("ars.engine.bindings").choose_binding()
