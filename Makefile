# Every target sets up what it needs in .venv first; a second call starts at once.
# PYTHON=python3.12 makes .venv with another interpreter; ARGS go to the command that a target runs.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
NATIVE := src/sestina/rollout/native src/sestina/drafting/native src/sestina/kvpool/native
SOURCES := $(wildcard $(addsuffix /*,$(NATIVE)))
DRIVERS := src/sestina/bench/drafting/growth.cc tests/unit/drafting/fuzz.cc tests/unit/drafting/fuzz_texts.cc
SCRIPTS := .ci/run $(wildcard *.sh slurm/*.sh)
RUNTIME := $(VENV)/.runtime $(VENV)/.native
DEV := $(RUNTIME) $(VENV)/.dev
SGLANG := .venv-sglang

# One thread per process: ranks share the cores. Kernels are not compiled by torch: on models this small it only costs.
export OMP_NUM_THREADS := 1
export TORCH_COMPILE_DISABLE := 1
export PATH := $(CURDIR)/$(BIN):$(PATH)
# What these run is for the CPU, and its trainer refuses to start where Megatron would find a GPU.
quickstart ablation-staleness bench-async bench-quickstart bench-sglang test test-slow test-sglang test-all test-slurm: export CUDA_VISIBLE_DEVICES :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help ablation-staleness bench-async quickstart reproduce notebooks test test-slow test-all test-sglang test-slurm sglang check fmt bench bench-drafting bench-draft-service bench-engine bench-packing bench-quantized bench-rollout bench-sglang bench-simulator bench-speculation bench-quickstart docs hooks clean distclean validate-simulator

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

quickstart: $(RUNTIME) ## train the built-in task on this machine's CPU
	$(BIN)/python launch/train.py +exp=quickstart $(ARGS)

test: $(DEV) ## the fast tests
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow and not sglang and not slurm and not gpu" --timeout=240 $(ARGS)

test-slow: $(DEV) ## the tests that take minutes
	$(BIN)/pytest -n 2 --dist loadfile -m "slow and not sglang and not slurm and not gpu" $(ARGS)

notebooks: $(DEV) ## run the notebooks of analysis/ on their recorded runs
	$(BIN)/pytest tests/integration/test_notebooks.py $(ARGS)

test-all: $(DEV) $(SGLANG)/.ready ## every test that needs no GPU and no SLURM
	$(BIN)/pytest -m "not slurm and not gpu" $(ARGS)

test-slurm: $(DEV) $(SGLANG)/.ready ## jobs on a SLURM of virtual nodes on this machine; wants root, installs SLURM (Debian)
	$(BIN)/pytest -m slurm --timeout=600 -s $(ARGS)

sglang: $(SGLANG)/.ready ## the environment of SGLang's servers, for the CPU

test-sglang: $(DEV) $(SGLANG)/.ready ## the tests that start SGLang servers
	$(BIN)/pytest -m "sglang and not slurm and not gpu" $(ARGS)

check: $(DEV) ## lint, formats, types, layers, spelling
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/clang-format --dry-run -Werror $(SOURCES) $(DRIVERS)
	$(BIN)/shellcheck $(SCRIPTS)
	$(BIN)/codespell
	$(BIN)/lint-imports
	$(BIN)/pyright

fmt: $(DEV) ## format everything, and mend what ruff can
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format
	$(BIN)/clang-format -i $(SOURCES) $(DRIVERS)

bench: bench-async bench-drafting bench-draft-service bench-engine bench-packing bench-quantized bench-rollout bench-sglang bench-simulator bench-speculation bench-quickstart validate-simulator ## every bench

bench-async: $(RUNTIME) ## bounds of staleness, interruption, micro-batches; emulated, a quarter of an hour
	$(BIN)/python launch/bench.py async $(ARGS)

ablation-staleness: $(RUNTIME) ## accuracy over bounds of staleness, decoupled and naive; emulated, most of an hour
	$(BIN)/python launch/bench.py staleness $(ARGS)

bench-drafting: $(RUNTIME) ## the suffix index, against arctic-inference where .venv has it
	$(BIN)/python launch/bench.py drafting $(ARGS)

bench-draft-service: $(RUNTIME) ## the draft service on loopback
	$(BIN)/python launch/bench.py draft_service $(ARGS)

bench-engine: $(RUNTIME) ## the embedded engine against transformers' generate
	$(BIN)/python launch/bench.py engine $(ARGS)

bench-sglang: $(RUNTIME) $(SGLANG)/.ready ## what chunks cost on an SGLang server
	$(BIN)/python launch/bench.py sglang $(ARGS)

bench-packing: $(RUNTIME) ## micro-batches under a token budget
	$(BIN)/python launch/bench.py packing $(ARGS)

bench-quantized: $(RUNTIME) ## the quantised drafter against none
	$(BIN)/python launch/bench.py quantized $(ARGS)

bench-speculation: $(RUNTIME) ## drafting in the embedded engine against none
	$(BIN)/python launch/bench.py speculation $(ARGS)

validate-simulator: $(RUNTIME) ## simulations from a calibration and recordings, against emulated runs
	$(BIN)/python launch/bench.py validate $(ARGS)

bench-rollout: $(RUNTIME) ## schedulers on emulated instances and real ranks; decisions per second
	$(BIN)/python launch/bench.py rollout $(ARGS)

bench-simulator: $(RUNTIME) ## how long simulations of whole iterations take, and how that grows
	$(BIN)/python launch/bench.py simulator $(ARGS)

reproduce: $(RUNTIME) ## the papers' tables, predicted by simulation; minutes
	$(BIN)/python launch/reproduce.py $(ARGS)

bench-quickstart: $(RUNTIME) ## the quickstart for three seeds, and runs that must be equal
	$(BIN)/python launch/bench.py quickstart $(ARGS)

docs: $(RUNTIME) ## docs/measurements.md from out/measurements
	$(BIN)/python launch/bench.py report $(ARGS)

hooks: $(DEV) ## run the checks of .pre-commit-config.yaml at every commit
	$(BIN)/pre-commit install

clean: ## remove builds and caches; runs/, out/ and .venv stay
	rm -rf build dist src/*.egg-info $(addsuffix /../_native*.so,$(NATIVE)) $(VENV)/.native
	rm -rf .hypothesis .import_linter_cache .pytest_cache .ruff_cache

distclean: clean ## clean, and remove both environments
	rm -rf $(VENV) $(SGLANG)

# Set-up. Stamps are written last, so that a step that failed is done again.

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, $(PYTHON) is %s; choose another with make PYTHON=..." % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.txt | $(BIN)/pip
	$(PIP) install -r requirements.txt
	@touch $@

$(VENV)/.native: setup.py pyproject.toml $(SOURCES) | $(VENV)/.runtime
	$(PIP) install --no-build-isolation --no-deps -e .
	@touch $@

$(SGLANG)/.ready: requirements-sglang-cpu.txt
	$(PYTHON) -m venv $(SGLANG)
	$(SGLANG)/bin/python -m pip --disable-pip-version-check install --no-deps -r requirements-sglang-cpu.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt | $(VENV)/.native
	$(PIP) install -r requirements-dev.txt
	@touch $@
