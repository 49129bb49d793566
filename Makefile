# What a person needs to start, to test and to look after this project. `make` alone lists it.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
PIP_ARGS ?=
PYTEST_ARGS ?=
TRACE ?= ../shared/traces/mooncake_conversation.jsonl

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq $(PIP_ARGS)

.PHONY: help quickstart test test-slow lint format bench clean

help:
	@echo "make quickstart  run experiments/quickstart.yaml and leave results/quickstart/report.html"
	@echo "make test        run the tests (in minutes)"
	@echo "make test-slow   run the tests that take long"
	@echo "make lint        ruff and mypy"
	@echo "make format      let ruff format the code"
	@echo "make bench       measure speed on a Mooncake trace (TRACE=file)"
	@echo "make clean       delete the virtual environment and caches (results stay)"

quickstart: $(VENV)/.core
	$(BIN)/hybridsim run experiments/quickstart.yaml --jobs $(JOBS)
	@echo "open results/quickstart/report.html in a browser"

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/mypy --no-error-summary hybridsim

format: $(VENV)/.test
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

bench: $(VENV)/.test
	@test -f $(TRACE) || { echo "name a Mooncake trace: make bench TRACE=conversation_trace.jsonl"; exit 1; }
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script $(TRACE) || exit 1; done

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis .benchmarks build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One environment; a stamp says what is installed in it.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "hybridsim needs Python 3.11 or newer; name one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(PIP) -e .
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[test]'
	@touch $@ $(VENV)/.core
