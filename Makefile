# Everything a newcomer needs is `make run` and `make test`; both set up what they use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
SEED ?= $(shell date +%s)
# Slow tests that every change runs: real processes, signals, lost power, larger exact targets.
SLOW_PART := tests/cli/test_command_processes.py \
  tests/docs/test_examples.py::test_a_newcomer_follows_the_readme \
  tests/exact/test_sampled_translations.py \
  tests/models/test_model_options.py \
  tests/resume/test_same_bytes.py::test_processes_load_the_experts_themselves \
  tests/resume/test_power_loss.py \
  tests/workers/test_processes.py::test_a_killed_worker_is_replaced_and_its_turn_taken_again \
  tests/workers/test_processes.py::test_one_process_and_four_give_the_same_bytes
AXE := 4.10.3
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test test-slow test-slow-part test-fuzz test-mutants test-browser reproduce-quick docs docs-serve lint types format check clean

run: $(VENV)/.core  ## draw sentences from the default model, changing as you watch
	$(BIN)/maskov sample

# Bytecode is kept: tests that start processes would compile the package anew in each.
test: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.dev  ## the tests, without the slow ones
	$(BIN)/pytest -n $(JOBS) --dist worksteal

test-slow: $(VENV)/.dev  ## the slow tests
	$(BIN)/pytest -m slow

test-slow-part: $(VENV)/.dev  ## the slow tests that every change runs, about two minutes
	$(BIN)/pytest -m slow $(SLOW_PART)

test-fuzz: $(VENV)/.dev  ## tests of random input, with a new seed each time (SEED=1 for that one)
	FUZZ=10 $(BIN)/pytest -m hypothesis --hypothesis-seed=$(SEED)

test-mutants: $(VENV)/.dev  ## make mistakes in the source, each of which a test must notice
	$(BIN)/python tests/guard/mutants.py

test-browser: $(VENV)/.dev build/axe/axe.min.js  ## the pages in a real Chromium
	command -v chromium > /dev/null || apt-get install -y chromium || { apt-get update && apt-get install -y chromium; } || { echo 'test-browser needs Chromium: install it, as `chromium` on the path.' >&2; exit 1; }
	$(BIN)/pytest -m browser tests/browser

reproduce-quick: $(VENV)/.dev  ## every experiment of the paper, as a smoke test
	rm -rf build/reproduce-quick
	$(BIN)/python -m experiments all --quick --device cpu --out build/reproduce-quick

docs: $(VENV)/.dev  ## the documentation, into build/site; broken links fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.dev  ## the documentation at http://127.0.0.1:8000, as you edit it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

lint: $(VENV)/.dev  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## types, strictly
	$(BIN)/mypy

format: $(VENV)/.dev  ## fix style, where ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: test docs lint types  ## most of what CI runs

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/pip:
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v > (3, 13) and print("maskov is tested with Python 3.11 to 3.13, not yet with this one.", file=sys.stderr); sys.exit(v < (3, 11) and "maskov needs Python 3.11 or later: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) --editable .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) --editable '.[dev,docs,reference]'
	$(INSTALL) --no-deps sapiens==1.0.3
	touch $@ $(VENV)/.core

# Checks pages for accessibility; only the browser tests need it, so it is never part of the package.
build/axe/axe.min.js:
	mkdir -p $(@D)
	cd $(@D) && npm pack --silent axe-core@$(AXE) && tar -xzf axe-core-$(AXE).tgz --strip-components=1 package/axe.min.js
