# `make demo` and `make test` set up what they need. ENGINE picks vLLM's build: cpu or gpu.
#
# The CPU build of torch is not on PyPI. Where pip does not find it by its own configuration, name PyTorch's
# CPU wheel index: make demo TORCH_INDEX=…
PYTHON ?= $(shell command -v python3.11 || command -v python3)
ENGINE ?= cpu
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/$(ENGINE).txt
# Stamped into the environment, so that a changed lock or project file is installed again.
READY := $(VENV)/.ready-$(ENGINE)

export PREFECT_HOME ?= $(CURDIR)/.rollmill/prefect

.PHONY: setup demo test faults check lock clean

setup: $(READY)

$(READY): $(LOCK) pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-deps $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r $(LOCK)
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	touch $@

demo: $(READY)
	$(BIN)/rollmill train examples/guess_number/demo.yaml

test: $(READY)
	$(BIN)/python -m pytest

# Kill runs at many more places than `make test` does: for the night.
FAULTS ?= 200
faults: $(READY)
	ROLLMILL_FAULTS=$(FAULTS) $(BIN)/python -m pytest tests/faults

# Lint, types and import contracts.
check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Write the lock files from pyproject.toml; see [tool.uv] there for what is overridden and why.
# TORCH_LINKS is a folder or page with torch's CPU wheels.
TORCH_LINKS ?=
COMPILE = $(BIN)/uv pip compile pyproject.toml --quiet --no-annotate --custom-compile-command "make lock" \
	--python-version 3.11 --extra dev $(if $(UPGRADE),--upgrade)
lock:
	$(COMPILE) --extra cpu $(if $(TORCH_LINKS),--find-links $(TORCH_LINKS)) -o requirements/cpu.txt
	$(COMPILE) --extra gpu -o requirements/gpu.txt

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
