# Everything is set up in .venv and .cache beside this file; nothing is installed on the system.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CACHE := $(if $(AMDGPU_EXPORTER_CACHE),$(AMDGPU_EXPORTER_CACHE),.cache)
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test lint types unit docs alerts dashboards screenshots golden bench bench-leaks stack clean

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(VENV)/.run: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[amdsmi]'
	touch $@

$(VENV)/.test: $(VENV)/.run
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[amdsmi,test]'
	touch $@

run: $(VENV)/.run ## start the exporter: on this node's GPUs, or on a simulated node if it has none
	@if ls /sys/bus/pci/drivers/amdgpu 2>/dev/null | grep -q '^[0-9a-f]*:'; then \
	  exec $(BIN)/amdgpu-exporter serve $(ARGS); \
	else \
	  echo "make run: no GPU is bound to the amdgpu driver here, so a SIMULATED node is served" >&2; \
	  exec $(BIN)/amdgpu-exporter serve --sources simulated $(ARGS); \
	fi

test: lint types unit ## set everything up, and pass every check and test

lint: $(VENV)/.test ## style
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .

types: $(VENV)/.test ## types, strictly
	$(BIN)/mypy

unit: $(VENV)/.test ## all tests, with coverage by branch
	$(BIN)/python -m tests.kernel.packages
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --skip-empty

docs: $(VENV)/.test ## regenerate docs/metrics.md and docs/configuration.md
	$(BIN)/python -m tests.docs.generate

alerts: $(VENV)/.run ## regenerate rules, docs/alerts.md and runbooks from alerts/
	$(BIN)/python -m alerts.generate

dashboards: $(VENV)/.test ## regenerate dashboards/json from dashboards/
	$(BIN)/python -m dashboards.generate

screenshots: $(VENV)/.test ## draw docs/images/dashboard-*.png; needs a chromium
	$(BIN)/python -m tests.dashboards.screenshots

golden: $(VENV)/.test ## regenerate the golden pages; review the diff
	$(BIN)/python -m tests.kernel.packages
	$(BIN)/python -m pytest tests/golden --regenerate-golden

bench: $(VENV)/.test ## measure over the real AMD SMI on the simulated kernel
	$(BIN)/python -m tests.kernel.packages
	$(BIN)/python -m tests.bench $(ARGS)

bench-leaks: $(VENV)/.test ## judge the leak detector on labelled traces, beside three public practices
	$(BIN)/python -m tests.leaks.bench $(ARGS)

stack: $(VENV)/.test ## simulated nodes, Prometheus and Alertmanager with these rules, on loopback ports
	$(BIN)/python -m tests.kernel.packages
	$(BIN)/python -m tests.alerts.stack

clean: ## remove what was set up and fetched
	rm -rf $(VENV) $(CACHE) .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
