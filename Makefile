# kvscope: `make demo` shows it, `make test` checks it. `make` alone lists the rest.

PYTHON ?= python3
VENV ?= .venv
PINNED_TORCH := $(shell grep '^torch==' constraints.txt)
TORCH ?= $(PINNED_TORCH)
PORT ?= 8000
DEMO_SECONDS ?=
CHAOS_SECONDS ?= 600
FUZZ_INPUTS ?= 10000
PYTEST_ARGS ?=
VLLM_PYTHON ?=
VLLM ?= 0.32.0
SGLANG ?= 0.5.23
RAY ?= 2.60.0
VERSIONS ?= 0.20.2 0.28.0
SGLANG_VERSIONS ?= 0.5.17 0.5.19

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help venv tools chromium vllm vllm-beside sglang sglang-beside ray ray-beside demo test nightly weekly test-vllm-versions test-sglang-versions chaos engine-chaos fleet fuzz lint types bench \
  docs site release-check dashboards alerts regenerate screenshots clean

# CI imports a part of what it installs: that part is compiled when it is.
PIP_INSTALL := $(VENV)/bin/pip install $(if $(CI),--quiet --no-compile) -c $(VENV)/constraints.txt
STAMP := $(VENV)/.installed
export PATH := $(PATH):$(abspath $(VENV))/debian/usr/bin:$(abspath $(VENV))/kubernetes/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

venv: $(STAMP) ## Make .venv with everything in it (TORCH=torch==X for another torch)

# torch first and by its exact version: a bare `torch` takes the newest build, with gigabytes of
# CUDA packages. Its pin stays out of the other constraints, so that TORCH can differ; and so does
# Triton's with another torch, which names the one that it was built with.
$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "kvscope: no '$(PYTHON)': install Python 3.11 or newer, or name one: make PYTHON=..." >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "kvscope: $$($(PYTHON) --version) is too old, 3.11 is needed: make PYTHON=python3.11" >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "kvscope: '$(PYTHON)' cannot make virtual environments: install Debian's package" \
	    "python3-venv (as root: apt-get install python3-venv) and run make again" >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	grep -Ev '^(torch$(if $(filter $(PINNED_TORCH),$(TORCH)),,|triton))==' constraints.txt \
	  > $(VENV)/constraints.txt
	$(PIP_INSTALL) '$(TORCH)'
	$(PIP_INSTALL) -e '.[basic-auth,dashboards,engine,export,kv-events,otlp,plot,test,top]'
	@touch $@

tools: | $(STAMP)
	@scripts/debian-tools $(VENV)/debian
	@PYTHON=$(VENV)/bin/python scripts/kubernetes-tools $(VENV)/kubernetes

chromium: | $(STAMP)
	@scripts/chromium
	@scripts/axe $(VENV)/axe

vllm: ## Install a vLLM for the tests into .venv/vllm, 3.4 GB (VLLM=0.32.0; make test VLLM= has none)
	@PYTHON=$(PYTHON) scripts/vllm-env $(VENV)/vllm $(VLLM)

sglang: ## Install an SGLang for the tests into .venv/sglang, 2.5 GB (SGLANG=0.5.23)
	@PYTHON=$(PYTHON) scripts/sglang-env $(VENV)/sglang $(SGLANG)

sglang-beside: | $(STAMP)
	@$(if $(SGLANG),PYTHON=$(PYTHON) scripts/sglang-env $(VENV)/sglang $(SGLANG) </dev/null >/dev/null 2>&1 &)

ray: ## Install a Ray Serve for the tests into .venv/ray, 3.9 GB (RAY=2.60.0)
	@PYTHON=$(PYTHON) scripts/ray-env $(VENV)/ray $(RAY)

ray-beside: | $(STAMP)
	@$(if $(RAY),PYTHON=$(PYTHON) scripts/ray-env $(VENV)/ray $(RAY) </dev/null >/dev/null 2>&1 &)

# In the background: the tests that need it wait for it, the others do not. It needs none of what
# .venv has: both are installed at once.
vllm-beside:
	@$(if $(VLLM),PYTHON=$(PYTHON) scripts/vllm-env $(VENV)/vllm $(VLLM) </dev/null >/dev/null 2>&1 &)

demo: venv ## Run the engine under a live workload (PORT=8000, DEMO_SECONDS=60 to stop by itself)
	@exec $(VENV)/bin/kvscope demo --port $(PORT) $(if $(DEMO_SECONDS),--duration $(DEMO_SECONDS))

# PATHs come before options: the runner looks there for the tests of each of its lanes.
test: $(if $(PYTEST_ARGS),,vllm-beside) venv tools lint ## Lint, types and all tests but those of `make nightly` (PYTEST_ARGS="tests/engine -k pool")
	$(VENV)/bin/python -m tools.run_tests --beside $(VENV)/bin/mypy $(PYTEST_ARGS)

nightly: venv vllm-beside sglang-beside tools chromium ## The rest: real vLLM and SGLang, chaos, what measures times, long runs (PYTEST_ARGS=...)
	$(VENV)/bin/python -m tools.run_tests --nightly $(PYTEST_ARGS)

weekly: venv vllm-beside sglang-beside ray-beside tools ## More of a real vLLM and SGLang, a Ray, half an hour (PYTEST_ARGS=...)
	$(VENV)/bin/python -m tools.run_tests --weekly $(PYTEST_ARGS)

test-vllm-versions: venv ## Run the observer's tests on older vLLMs (VERSIONS="0.20.2 0.28.0")
	$(VENV)/bin/python -m tests.vllm.versions $(VERSIONS)

test-sglang-versions: venv ## Drive older SGLangs, observed (SGLANG_VERSIONS="0.5.17 0.5.19")
	$(VENV)/bin/python -m tests.sglang.versions $(SGLANG_VERSIONS)

chaos: venv ## Attack a server for ten minutes, and see what other clients notice (CHAOS_SECONDS=600)
	$(VENV)/bin/python -m tools.chaos server --seconds $(CHAOS_SECONDS)

engine-chaos: venv ## Ten minutes of preemptions, faults and cancellations on the engine, in each mode (CHAOS_SECONDS=600)
	for mode in recompute swap auto; do \
	  $(VENV)/bin/python -m tools.chaos engine --seconds $(CHAOS_SECONDS) --mode $$mode; \
	done

fleet: venv tools ## A day of fifty servers with eight GPUs each: false pages, faults
	$(VENV)/bin/python -m tools.chaos fleet

fuzz: venv ## Feed every parser with inputs that Hypothesis draws, other ones each time (FUZZ_INPUTS=10000 for each)
	KVSCOPE_HYPOTHESIS_PROFILE=fuzz KVSCOPE_FUZZ_INPUTS=$(FUZZ_INPUTS) $(VENV)/bin/pytest -n 2 \
	  -o timeout=0 tests/fuzz

lint: venv ## Run ruff, check formatting and lines per file
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pytest -q tests/repo/test_file_length.py

types: venv ## Run mypy --strict
	$(VENV)/bin/mypy

bench: venv ## Run the benchmarks (VLLM_PYTHON=... for those in the interpreter of a vLLM)
	PYTHONPATH=.:engine:exporter $(or $(VLLM_PYTHON),$(VENV)/bin/python) -m benchmarks.pool_life
	$(VENV)/bin/python -m benchmarks.step_growth
	$(VENV)/bin/python -m benchmarks.swap_cost
	$(VENV)/bin/python -m benchmarks.fold_cost
	$(VENV)/bin/python -m benchmarks.fold_throughput
	$(VENV)/bin/python -m benchmarks.shadow_cost
	$(VENV)/bin/python -m benchmarks.wire_cost
	$(VENV)/bin/python -m benchmarks.sidecar_cost
	$(VENV)/bin/python -m benchmarks.lying_pages
	$(VENV)/bin/python -m benchmarks.kv_events_cost
	$(VENV)/bin/python -m benchmarks.page_cost
	$(VENV)/bin/python -m benchmarks.observer_cost
	$(VENV)/bin/python -m benchmarks.whatif_cost $(KVSCOPE_TRACE)
	$(VENV)/bin/python -m benchmarks.scrape_cost $(if $(VLLM_PYTHON),--vllm-python $(VLLM_PYTHON))
	$(VENV)/bin/python -m benchmarks.decode $(if $(VLLM_PYTHON),--vllm-python $(VLLM_PYTHON))
	$(if $(VLLM_PYTHON),PYTHONPATH=.:engine:exporter $(VLLM_PYTHON) -m benchmarks.vllm_scheduler_cost)

docs: venv ## Generate the reference of metrics, servers, commands and environment variables
	$(VENV)/bin/kvscope docs metrics > $(VENV)/metrics.md
	$(VENV)/bin/kvscope docs metrics --servers > $(VENV)/servers.md
	mv $(VENV)/metrics.md $(VENV)/servers.md docs/reference/
	$(VENV)/bin/python -m tools.reference
	$(VENV)/bin/python -m kvscope.reference.engine_options

SITE := $(VENV)/site
$(SITE)/.installed: pyproject.toml tools/site/constraints.txt
	$(PYTHON) -m venv $(SITE)
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' \
	  > $(SITE)/requirements.txt
	$(SITE)/bin/pip install --quiet -c tools/site/constraints.txt -r $(SITE)/requirements.txt
	@touch $@

site: $(SITE)/.installed ## Build the documentation into build/site, and check its links and anchors
	rm -rf build/site
	$(SITE)/bin/sphinx-build --quiet --fail-on-warning --keep-going -c tools/site . build/site
	@$(SITE)/bin/python tools/site/check.py build/site

release-check: site ## Build what a release publishes into build/release, and try it in clean environments
	@VENV=$(VENV) PYTHON=$(PYTHON) scripts/release-check

dashboards: venv ## Generate dashboards/*.json and their ConfigMaps
	$(VENV)/bin/python -m dashboards
	$(VENV)/bin/python -m deploy

alerts: venv ## Generate the rule file and the PrometheusRule
	$(VENV)/bin/python -m kvscope_alerts
	$(VENV)/bin/python -m deploy

regenerate: docs dashboards alerts ## Generate all that is generated and committed, the golden page of the tests too
	KVSCOPE_UPDATE_GOLDEN=1 $(VENV)/bin/pytest -q tests/exporter/test_exposition.py -k golden

screenshots: venv tools ## Draw docs/images (needs node 20, npm, Chromium and a C compiler)
	cd tools/render && npm install --no-package-lock --no-audit --no-fund && npm run build
	$(VENV)/bin/python -m tools.pictures.screenshots

clean: ## Remove everything that make and the tools have made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
