# Targets for people who use Groundplane from a checkout, and for its developers.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= $(shell nproc)
RUNTIME := --extra router --extra shard --extra operator --extra embedded
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help venv demo test simulate lint format reference bench bench-operator e2e e2e-smoke cluster-up cluster-down cluster-status lock clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## make the virtual environment and install everything, by hash

$(STAMP): requirements.lock pyproject.toml
	@echo "groundplane: making $(VENV) and installing the locked dependencies (about 350 MB, one or two minutes the first time)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "groundplane: Python 3.11 or newer is needed, found " + sys.version.split()[0] + ": set PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --progress-bar on --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -e .
	@touch $@
	@echo "groundplane: installed"

demo: $(STAMP)  ## start everything on this machine, index the demo corpus, ask, check every answer
	@$(BIN)/groundplane demo

test: $(STAMP)  ## all tests that need no root and no cluster
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

simulate: $(STAMP)  ## the log protocol under seeded faults; SEEDS=2000 FIRST_SEED=0, exit 1 on a violation
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),2000) --first-seed $(or $(FIRST_SEED),0)

lint: $(STAMP)  ## format, ruff, mypy, layers, drift of generated files
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python docs/generate.py --check

format: $(STAMP)  ## rewrite the files as lint wants them
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

reference: $(STAMP)  ## write the generated files: docs/reference.md, the CRD, the values of the chart
	@$(BIN)/python docs/generate.py

bench: $(STAMP)  ## product against raw LanceDB on the same rows; writes build/bench.json
	@$(BIN)/python -m bench

e2e: $(STAMP)  ## all tests that need a Kubernetes: makes one (root, kind or KUBECONFIG), KEEP=1 keeps it; docs/cluster.md
	@$(BIN)/python -m e2e

e2e-smoke: $(STAMP)  ## whether the cluster itself does what the other tests rely on; KEEP=1 keeps it
	@$(BIN)/python -m e2e e2e/smoke

cluster-up: $(STAMP)  ## a Kubernetes with one node on this machine, in namespaces of its own; needs root
	@$(BIN)/python -m e2e.cluster up

cluster-down: $(STAMP)  ## remove that Kubernetes and everything it left
	@$(BIN)/python -m e2e.cluster down

cluster-status: $(STAMP)  ## what runs of it, and whether it can be used
	@$(BIN)/python -m e2e.cluster status

bench-operator: $(STAMP)  ## an operator with 500 corpora before a real API server; into build/bench.json, about 15 minutes
	@$(BIN)/python -m bench.operator

lock: $(STAMP)  ## resolve the dependencies again and write the lock files: all of it, the image's part, its build's
	@$(LOCK) --upgrade $(RUNTIME) --extra dev pyproject.toml -o requirements.lock
	@$(LOCK) --no-annotate -c requirements.lock $(RUNTIME) pyproject.toml -o requirements-image.lock
	@echo hatchling | $(LOCK) --no-annotate -c requirements.lock - -o requirements-build.lock

clean:  ## remove the virtual environment and what was built
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
