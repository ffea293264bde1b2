# Two commands do everything on a fresh machine: `make demo` and `make test`. Each sets up .venv first if it has to.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?= dev
STAMP := $(VENV)/.installed-$(EXTRAS)
# Three workers for two cores, because many tests wait: for peers, for time to pass, for a browser. Tests that take long
# and tests that wait stand side by side: an idle worker takes over what another has not begun.
PYTEST := $(BIN)/python -m pytest -n 3 --dist worksteal
# Some images turn bytecode off; every process that a test starts would then compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Gossamer needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

setup: $(STAMP) ## create .venv and install everything

demo: $(STAMP) ## the main job on embedded data: six methods on equal and on different nodes, a table and a report in out/demo
	$(BIN)/gossamer compare examples/demo.toml --out out/demo

test: $(STAMP) ## all tests
	$(PYTEST) -m "not slow" $(TESTFLAGS)

coverage: $(STAMP) ## all tests, and which lines they reach
	$(PYTEST) -m "not slow" --cov --cov-report=term

test-slow: $(STAMP) ## the long proofs
	$(PYTEST) -n 2 -m slow
	$(PYTEST) -n 2 --hypothesis-profile=thorough tests/methods/test_properties.py

lint: $(STAMP) ## ruff (lint and format), mypy and the layers of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(STAMP) ## every benchmark: ratios measured side by side, recorded in results/benchmarks
	@missed=0; for script in benchmarks/[a-z]*.py; do echo "== $$script"; \
	  $(BIN)/python $$script --json results/benchmarks/$$(basename $$script .py).json || missed=1; done; exit $$missed

docs: $(STAMP) ## the documentation in site/: regenerate what comes from the code, build strictly, check links
	$(BIN)/python docs/generate.py
	$(BIN)/zensical build --strict --clean
	$(BIN)/python docs/check_site.py
	@echo "open site/index.html"

results: $(STAMP) ## the tables and figures of results/ and of the documentation, from the stored runs
	$(BIN)/python results/publish.py
	$(BIN)/python docs/generate.py

figures: $(STAMP) ## redraw the figures of the documentation (minutes)
	$(BIN)/python docs/figures.py

clean: ## remove the environment and everything generated
	rm -rf $(VENV) out runs site .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*

.PHONY: help setup demo test coverage test-slow lint bench docs results figures clean
