# Two commands: `make demo` and `make test`. Each does its own set-up with Python >= 3.11 and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check bench docs setup clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   show a model that comes with Regard at work; then train a small one here and look at its attention (about two minutes after set-up)"
	@echo "make test   the tests"
	@echo "make check  lint, types, import contract, tests"
	@echo "make bench  the benchmarks"
	@echo "make docs   the documentation, into site/"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Regard needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Say which to use: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,docs,data,serve,export,import,music,pictures]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/regard demo

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

bench: $(READY)
	$(BIN)/python -m benchmarks

docs: $(READY)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site
