# `make demo` and `make test` do everything on a fresh machine: environment, installation, run.
PYTHON ?= python3
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help tools demo test lint bench nightly clean

help:
	@echo "make demo     replay a real model's attention trace, write the Verilog, print the tables"
	@echo "make test     the whole regression"
	@echo "make lint     style and types"
	@echo "make bench    measured figures beside their references, as ratios"
	@echo "make nightly  exhaustive and long runs"
	@echo "make clean    remove build/ and the environment"

tools:
	@command -v $(PYTHON) >/dev/null || { echo "kvsmith needs python3 3.11 or newer: apt-get install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kvsmith needs python3 3.11 or newer, not $$($(PYTHON) --version): install it and pass PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "kvsmith needs the venv module of python3: apt-get install python3-venv" >&2; exit 1; }
	@for tool in g++ make perl; do command -v $$tool >/dev/null || { echo "kvsmith needs $$tool: apt-get install $$tool" >&2; exit 1; }; done

$(VENV)/installed: pyproject.toml | tools
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) -e .
	@touch $@

$(VENV)/installed-test: pyproject.toml | $(VENV)/installed
	$(INSTALL) -e '.[model,formal]'
	@touch $@

$(VENV)/installed-dev: pyproject.toml | $(VENV)/installed
	$(INSTALL) -e '.[model,formal,dev]'
	@touch $@

demo: $(VENV)/installed
	$(BIN)/kvsmith demo

test: $(VENV)/installed-test
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not nightly and not model" --durations 10

nightly: $(VENV)/installed-test
	$(BIN)/python -m pytest -m "nightly or model" --durations 0

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/pyright

bench: $(VENV)/installed
	$(BIN)/python -m synth.benchmarks

clean:
	rm -rf build $(VENV)
