# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv first, and skip that when repeated.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard engine/native/*.h engine/native/*.cpp engine/native/*.cu)
CPP := $(NATIVE) $(wildcard $(addprefix tests/engine/native/*.,cpp cu) $(addprefix tests/simulated_gpu/host/*.,h cpp) tests/fuzz/native.cpp)

.PHONY: chaos check clean demo docs format fuzz gpu-report locks test test-gpu-lab test-slow tree wheel

demo: $(VENV)/installed
	examples/demo.sh

# The floor of the coverage is in pyproject.toml. There is a worker for each core, so each has one thread of torch: more
# would wait for each other, which takes more than twice the time.
test: check
	rm -rf build/coverage && mkdir -p build/coverage
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run -m pytest -n auto --durations 20
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage json --quiet --fail-under 0 -o build/coverage/report.json
	$(BIN)/python -c 'import json; t = json.load(open("build/coverage/report.json"))["totals"]; print("coverage:", \
	  "{percent_statements_covered:.1f}% of lines, {percent_branches_covered:.1f}% of branches".format(**t))'
	$(BIN)/python -m coverage report

# The documentation site, in build/site. It opens from there as it is, without a server or a network.
docs: $(VENV)/develop tree
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The checks that take minutes: 10^9 values through the tests of distribution, random bounds with 50 digits, 20,000
# adaptive certificates of each kind.
test-slow: $(VENV)/develop
	$(BIN)/pytest -m slow

# Mutated files through every reader: 20,000 seeded ones, then guided by coverage, then the native module under
# sanitizers. It takes minutes; the fuzzers among the slow tests take a quarter of an hour.
fuzz: $(VENV)/develop
	$(call install,fuzz)
	$(BIN)/python tests/fuzz/campaign.py --count 20000
	$(BIN)/pytest -m slow tests/fuzz -k 'atheris or sanitizers'

# The GPU tests on the real pycuda instead of cuda-python. It is built first, which takes minutes and needs nvcc.
test-gpu-lab: $(VENV)/develop
	tests/gpu_lab.sh

# Kill every long command at random moments, and compare what it gives in the end. KILLS and SEED choose how often and when.
KILLS ?= 300
SEED ?= 1
chaos: $(VENV)/develop
	rm -rf build/chaos
	$(BIN)/python tests/chaos.py --kills $(KILLS) --seed $(SEED) build/chaos

# For a machine with a GPU: installs ARS with what runs and times it there, checks the GPU, times it against the field's
# PyTorch loop, and writes gpu-report.json. It needs the driver for CUDA 13; docs/gpu.md says more. Without a CUDA toolkit, nvcc
# is installed from PyPI.
gpu-report: export PATH := $(PATH):$(abspath .venv-gpu/nvcc/bin)
gpu-report:
	test -x .venv-gpu/bin/python || $(PYTHON) -m venv .venv-gpu
	command -v nvcc > /dev/null || tests/wheel/nvcc.sh $(abspath .venv-gpu/nvcc)
	.venv-gpu/bin/pip install --quiet --constraint constraints-gpu.txt '.[gpu,train]'
	.venv-gpu/bin/ars-bench gpu-report

# The source distribution and a wheel for this machine, in dist, tried in empty environments with the newest packages and with
# the oldest. The oldest numpy has wheels up to Python 3.12.
wheel: $(VENV)/develop
	$(call install,release)
	rm -rf dist
	PYTHON=$(BIN)/python tests/wheel/build.sh dist
	SBOM=$(abspath dist/sbom.cdx.json) PYTHON=$(abspath $(BIN))/python tests/wheel/try.sh dist/*.whl
	$(BIN)/python tests/wheel/oldest.py cpu > build/oldest.txt
	PYTHON=$(BIN)/python tests/wheel/try.sh dist/*.whl build/oldest.txt

# mypy does not follow an editable install, and neither does the reader of docstrings for the site, so build/tree shows
# them the folders as the import package.
tree:
	rm -rf build/tree && mkdir -p build/tree/ars
	cd build/tree/ars && ln -sfn ../../../ars/* ../../../train ../../../export ../../../engine ../../../bench .

check: $(VENV)/develop tree
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	MYPYPATH=build/tree $(BIN)/mypy -p ars

format: $(VENV)/develop
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

clean:
	rm -rf build $(VENV) .venv-gpu

# Install the requirements in pyproject.toml with these extras, at the versions in constraints.txt.
define install
	$(BIN)/python -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  print(*p["dependencies"], *(r for e in sys.argv[1:] for r in p["optional-dependencies"][e]), sep="\n")' \
	  $(1) > $(VENV)/requirements.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --requirement $(VENV)/requirements.txt
endef

BASE := cpu train openvino report rtx
DEVELOP := $(BASE) parquet pandas cluster docs dev

# Every package is checked against its hashes; locks/README.md says why torch is not. HASHES=no installs by version alone.
HASHES ?= yes
define locked
	$(if $(filter no,$(HASHES)),,$(BIN)/pip install --quiet --require-hashes --no-deps --requirement locks/$(1).txt)
	$(call install,$(2))
endef

$(VENV)/base: pyproject.toml constraints.txt locks/base.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("ARS needs Python 3.11 or newer; try make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(call locked,base,$(BASE))
	$(BIN)/pip install --quiet --constraint constraints.txt scikit-build-core nanobind cmake ninja
	touch $@

$(VENV)/installed: $(VENV)/base CMakeLists.txt $(NATIVE)
	$(BIN)/pip uninstall -qq --yes ars  # the distribution's former name, with the same files
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --editable .
	touch $@

$(VENV)/develop: $(VENV)/installed locks/develop.txt
	$(call locked,develop,$(DEVELOP))
	touch $@

# The locks, after a change of pyproject.toml or constraints.txt.
locks: $(VENV)/installed
	$(call install,release)
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python locks/lock.py locks/base.txt $(BASE)
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python locks/lock.py locks/develop.txt $(DEVELOP)
