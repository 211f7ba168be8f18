# Two commands do everything on a machine with CPython 3.10 or newer (tested: 3.11), make and a C++ compiler:
#   make demo     compile, train, check and inspect a small language model
#   make test     run the tests
# Each sets up .venv first when it is missing or older than pyproject.toml or constraints.txt.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
JOBS   ?= 2
PYTEST := $(BIN)/python -m pytest
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help setup browser demo test test-all zoo opinfo fuzz gpu check format-check lint types imports \
        docs-check format docs coverage clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | \
	  while IFS="$$(printf '\t')" read -r name text; do printf '  make %-13s %s\n' "$$name" "$$text"; done

setup: $(READY) ## Create .venv with the pinned packages

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; some minutes, most of it is torch)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[report,test,dev]'
	@touch $@

browser: ## Install Chromium for the tests of the HTML page (Debian; without root it does nothing)
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then \
	  echo "Chromium is installed"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get update -q && apt-get install -qy chromium chromium-driver; } || \
	    echo "Chromium could not be installed; the tests that need it are skipped"; \
	else \
	  echo "Chromium is not installed, and this takes root and apt-get; its tests are skipped"; \
	fi

demo: $(READY) ## Compile, train, check and inspect a small Hugging Face model
	@echo "Loading torch and transformers"
	@$(BIN)/python examples/demo.py $(ARGS)

test: $(READY) ## Run the tests (ARGS='tests/trace -k name' narrows them)
	$(PYTEST) -n $(JOBS) --dist worksteal -m 'not slow' $(ARGS)

test-all: $(READY) ## Run the tests, the slow ones included
	$(PYTEST) -n $(JOBS) --dist worksteal $(ARGS)

zoo: $(READY) ## Compare with eager on many Hugging Face architectures
	$(PYTEST) -n $(JOBS) --dist worksteal tests/zoo $(ARGS)

opinfo: $(READY) ## Compare with eager on PyTorch's own operator samples
	$(PYTEST) -n $(JOBS) tests/opinfo $(ARGS)

fuzz: $(READY) ## Compare with eager on generated programs
	$(PYTEST) -n $(JOBS) tests/fuzz $(ARGS)

gpu: ## Run the CUDA tests with the python that is on the path
	$(PYTHON) -m pytest tests/gpu $(ARGS)

check: format-check lint types imports docs-check ## Check format, lint, types, import contracts and docs

format-check: $(READY) ## Check the format
	$(BIN)/ruff format --check .

lint: $(READY) ## Run ruff's rules
	$(BIN)/ruff check .

types: $(READY) ## Run pyright
	$(BIN)/pyright --warnings

imports: $(READY) ## Check the import contracts between the layers
	$(BIN)/lint-imports --no-logo --no-cache

docs: $(READY) ## Bring the generated parts of the docs up to date
	$(BIN)/python docs/generate.py

docs-check: $(READY) ## Check the docs (links, examples, generated parts) and the package's shape
	$(PYTEST) --quiet tests/test_docs.py tests/test_architecture.py

format: $(READY) ## Format the code and fix what can be fixed by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

coverage: $(READY) ## Run the tests and list what they do not reach
	$(PYTEST) -n $(JOBS) -m 'not slow' --cov --cov-report=term --cov-report=html $(ARGS)

clean: ## Remove caches and what the demo wrote; .venv stays
	rm -rf .pytest_cache .ruff_cache .hypothesis .benchmarks htmlcov .coverage* build dist demo_output thunder_debug
	find thunder tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
