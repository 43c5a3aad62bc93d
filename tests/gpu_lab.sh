#!/bin/sh
# The GPU tests on the real pycuda, which has no wheels: it is built here against the CUDA toolkit that nvcc belongs to,
# PyPI's curand, and an empty libcuda.so, and loads the simulated driver. `make test-gpu-lab` runs this; it takes minutes.
# Tests of lost GPUs and of every call failing are left out: docs/gpu.md lists what pycuda makes of these.
set -e
cd "$(dirname "$0")/.."
lab=$PWD/build/gpu-lab bin=$PWD/.venv/bin
site=$lab/site
toolkit=$(nvcc --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
mkdir -p "$lab/lib"
if ! [ -d "$site/pycuda" ]; then
  "$bin/pip" install --quiet --target "$site" --no-deps nvidia-curand
  "$bin/pip" install --quiet --target "$site" --no-deps pytools platformdirs mako MarkupSafe siphash24
  curand=$(dirname "$(find "$site/nvidia" -name 'libcurand.so.*' | head -n 1)")
  ln -sf "$(find "$curand" -name 'libcurand.so.*' | head -n 1)" "$lab/lib/libcurand.so"
  echo 'void nothing(void) {}' | cc -shared -fPIC -Wl,-soname,libcuda.so.1 -x c - -o "$lab/lib/libcuda.so"
  # Without optimisation, its largest file takes a third of the time to compile.
  CXXFLAGS='-O0 -g0 -fwrapv -DNDEBUG' CPLUS_INCLUDE_PATH=$toolkit/include:$(dirname "$curand")/include LIBRARY_PATH=$lab/lib CUDA_ROOT=$toolkit \
    "$bin/pip" install --quiet --target "$site" --no-deps pycuda
fi
curand=$(dirname "$(find "$site/nvidia" -name 'libcurand.so.*' | head -n 1)")
ARS_TEST_BINDING=pycuda PYTHONPATH=$site LD_LIBRARY_PATH=$curand "$bin/python" -m pytest -n 0 -k "not lost and not any_call" "$@" \
  tests/engine/gpu tests/bench/run/test_gpu.py
