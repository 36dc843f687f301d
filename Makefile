# Everything a person runs. Each target sets up what it needs; nothing is done twice.
#   make demo [LANDING=folder]   make ui [PORT=3000]   make test   make lint   make bench
PYTHON ?= $(firstword $(shell command -v python3.11 python3.12 python3.13 python3 2>/dev/null))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LANDING ?=
PORT ?= 3000

.PHONY: install demo ui test test-slow lint format bench clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is too old: Python 3.11 or newer is needed. Name one: make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: install
	$(BIN)/dyna-assets demo run $(if $(LANDING),--landing '$(LANDING)')

ui: install
	$(BIN)/dyna-assets ui --workspace workspace.yaml --port $(PORT)

test: install
	$(BIN)/python -m pytest -m 'not slow' -n 2 --dist loadfile --no-loadscope-reorder

test-slow: install
	$(BIN)/python -m pytest -m slow

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV)
