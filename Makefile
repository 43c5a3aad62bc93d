# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv first, and skip that when repeated.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NATIVE := $(wildcard engine/native/*.h engine/native/*.cpp)

.PHONY: demo test test-slow check format clean

demo: $(VENV)/installed
	@mkdir -p build && rm -f build/demo.sqlite*
	$(BIN)/ars-engine certify --engine examples/fashion-mnist/classifier.onnx --sigma 0.5 \
	  --data examples/fashion-mnist/images.npz --n 10000 --out build/demo.sqlite
	$(BIN)/ars-engine results build/demo.sqlite | cut -f 1-6 | head -6
	$(BIN)/python examples/linear.py

test: check
	$(BIN)/pytest -n auto

# The checks that take minutes: 10^9 values through the tests of distribution.
test-slow: $(VENV)/installed
	$(BIN)/pytest -m slow

# mypy does not follow an editable install, so build/tree shows it the folders as the import package.
check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p build/tree/ars
	ln -sfn $(filter-out %/__pycache__,$(wildcard $(CURDIR)/ars/*)) $(addprefix $(CURDIR)/,train export engine bench) build/tree/ars/
	MYPYPATH=build/tree $(BIN)/mypy -p ars

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build $(VENV)

$(VENV)/dependencies: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt scikit-build-core nanobind cmake ninja
	$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  print(*p["dependencies"], *(r for e in ("cpu", "train", "dev") for r in p["optional-dependencies"][e]), sep="\n")' \
	  > $(VENV)/requirements.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --requirement $(VENV)/requirements.txt
	touch $@

$(VENV)/installed: $(VENV)/dependencies CMakeLists.txt $(NATIVE)
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --editable .
	touch $@
