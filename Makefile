# Each target sets up what it needs, from nothing and with no environment active, and says what it is doing.
# The second time nothing is left to set up: a stamp in each environment is newer than the pyproject files and the C++
# sources. (While working on those, see docs/building-wheels.md for a build that compiles only what changed.)

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
MODEL ?=
HOST ?= 127.0.0.1
PORT ?= 8000
PLATFORM ?= cpu
ARGS ?=

VENV := .venv
TEST_VENV := .venv-test
FAKECHIP := conformance_tests/fakechip
DISTRIBUTIONS := core/pyproject.toml plugins/cpu/pyproject.toml conformance_tests/pyproject.toml $(FAKECHIP)/pyproject.toml
NATIVE := plugins/cpu/CMakeLists.txt $(wildcard plugins/cpu/csrc/*)

# An environment that happens to be active, or pip settings meant for another one, must not leak in.
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV PIP_PREFIX PIP_REQUIRE_VIRTUALENV PIP_TARGET PIP_USER
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# $(call make_venv,FOLDER): the virtual environment FOLDER with a current pip; an existing one that works is kept.
define make_venv
if ! $(1)/bin/python -c '' 2>/dev/null; then \
  "$(PYTHON)" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || { \
    echo "Octavo needs Python 3.10 to 3.13; '$(PYTHON)' is $$("$(PYTHON)" --version 2>/dev/null || echo 'no Python that runs')" >&2; \
    echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }; \
  rm -rf $(1); \
  "$(PYTHON)" -m venv $(1) || { rm -rf $(1); \
    echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu it comes with: apt-get install python3-venv" >&2; exit 1; }; \
fi; \
$(1)/bin/python -m pip install -qq --upgrade pip
endef

.PHONY: help
help:  ## this list
	@echo 'Octavo: make TARGET [NAME=value ...]'
	@sed -nE 's/^([a-z-]+):.*  ## (.*)$$/make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
	  while IFS='|' read -r target text; do printf '  %-13s %s\n' "$$target" "$$text"; done

.PHONY: serve
serve: export OCTAVO_MAKE_MODEL := $(MODEL)
serve: $(VENV)/.ready  ## serve a model: [MODEL=folder, .gguf file or hub id] [HOST=127.0.0.1] [PORT=8000] [ARGS=octavo flags]
	@model=$$OCTAVO_MAKE_MODEL; \
	if [ -z "$$model" ]; then \
	  model=$$($(VENV)/bin/python scripts/fetch_models.py smollm2); \
	  set -- --served-model-name SmolLM2-135M-Instruct; \
	fi; \
	echo "==> Serving $$model on http://$(HOST):$(PORT)/v1 (Ctrl-C stops it)" >&2; \
	exec $(VENV)/bin/octavo serve "$$model" --host $(HOST) --port $(PORT) "$$@" $(ARGS)

.PHONY: test
test: $(TEST_VENV)/.ready  ## run every test: [ARGS=pytest arguments]
	@$(TEST_VENV)/bin/python scripts/fetch_models.py smollm2 gemma3 minilm vocabularies >/dev/null
	@$(TEST_VENV)/bin/python scripts/dequantise_models.py smollm2 gemma3
	@echo '==> Running the tests' >&2
	@models=$$($(TEST_VENV)/bin/python scripts/fetch_models.py --where); \
	exec env OCTAVO_TEST_MODELS="$$models" $(if $(strip $(ARGS)),$(TEST_VENV)/bin/python -m pytest $(ARGS),bash scripts/all_tests.sh $(TEST_VENV)/bin/python)

.PHONY: mutants
mutants: $(TEST_VENV)/.ready  ## change the core in 40 small ways and see whether tests notice: [ARGS=--seed N --only PATH]
	@models=$$($(TEST_VENV)/bin/python scripts/fetch_models.py --where); \
	exec env OCTAVO_TEST_MODELS="$$models" $(TEST_VENV)/bin/python scripts/mutants.py $(ARGS)

.PHONY: lint
lint: $(TEST_VENV)/.ready  ## ruff (format and check), mypy, import-linter
	@echo '==> Checking the format (make format mends it)' >&2
	@$(TEST_VENV)/bin/ruff format --check .
	@echo '==> Checking with ruff' >&2
	@$(TEST_VENV)/bin/ruff check .
	@echo '==> Checking the types with mypy' >&2
	@$(TEST_VENV)/bin/mypy
	@echo '==> Checking the layers with import-linter' >&2
	@$(TEST_VENV)/bin/lint-imports --no-logo

.PHONY: conformance
conformance: $(VENV)/.ready  ## prove a platform: [PLATFORM=cpu] [ARGS=octavo conformance run arguments]
	@exec $(VENV)/bin/octavo conformance run --platform $(PLATFORM) $(ARGS)

.PHONY: bench
bench: $(VENV)/.ready  ## measure the core's own time per step, with no model: [ARGS=octavo bench arguments]
	@echo '==> Measuring the scheduler' >&2
	@exec $(VENV)/bin/octavo bench scheduler $(ARGS)

.PHONY: format
format: $(TEST_VENV)/.ready  ## format the code and mend what ruff can mend
	@echo '==> Formatting' >&2
	@$(TEST_VENV)/bin/ruff check --fix .
	@$(TEST_VENV)/bin/ruff format .

.PHONY: clean
clean:  ## remove the environments and what the tools left (the checkpoints stay in the cache)
	@echo '==> Removing environments and caches' >&2
	@rm -rf $(VENV) $(TEST_VENV) plugins/cpu/build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find core plugins conformance_tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready: $(DISTRIBUTIONS) $(NATIVE)
	@echo '==> Setting up $(VENV): Octavo and its CPU platform, which is compiled' >&2
	@$(call make_venv,$(VENV))
	@$(VENV)/bin/python -m pip install -qq --editable ./core --editable ./plugins/cpu --editable ./conformance_tests
	@touch $@

$(TEST_VENV)/.ready: $(DISTRIBUTIONS) $(NATIVE)
	@echo '==> Setting up $(TEST_VENV): Octavo with torch and the test tools, once (minutes)' >&2
	@$(call make_venv,$(TEST_VENV))
	@$(TEST_VENV)/bin/python -m pip install -qq --editable './core[test,lint]' --editable './plugins/cpu[test]' \
	  --editable ./conformance_tests --editable ./$(FAKECHIP)
	@touch $@
