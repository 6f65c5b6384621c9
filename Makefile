# Two commands for a newcomer: `make quickstart` and `make test`. The rest is for contributors.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help quickstart test slow test-gpu lint types imports check wheel clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

quickstart: $(VENV)/.train ## install, then train the starter model on starter problems (minutes on two cores)
	$(BIN)/rlgym-train --env math-gsm8k $(ARGS)

test: $(VENV)/.dev ## install, then run the tests
	$(BIN)/pytest $(ARGS)

slow: $(VENV)/.dev ## the tests that take minutes
	$(BIN)/pytest -m slow --timeout 3600 $(ARGS)

test-gpu: $(VENV)/.dev ## the checks that need CUDA, on a machine that has it
	$(BIN)/pytest -m gpu --timeout 1800 $(ARGS)

lint: $(VENV)/.dev ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy, strict
	$(BIN)/mypy

imports: $(VENV)/.dev ## the floors: who may import whom
	$(BIN)/lint-imports

check: lint types imports test ## everything that a change must pass

wheel: $(VENV)/.dev ## sdist and wheel into dist/
	$(BIN)/python -m build

clean: ## forget environments and build outputs
	rm -rf $(VENV) build dist

$(VENV)/.train: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[train,plot]'
	@touch $@

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[train,plot,dev]'
	@touch $@ $(VENV)/.train
