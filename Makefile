# `make` alone lists the targets. Every target makes what it needs first; stamps in $(VENV) keep a second
# run short, and only what changed is installed again.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Files side by side, on two cores three: most of a test's time is tracing, which uses one core, and many wait for other
# processes. `make test PARALLEL=` runs one by one.
PARALLEL ?= --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations 10
BUILD_TOOLS := cmake setuptools wheel packaging hatchling editables
# auto: CUDA's libraries, and Horovod with NCCL, where the NVIDIA driver shows a card. `GPU=yes` on the login node of a
# cluster, which has no card itself; `GPU=no` against it.
GPU := auto
ifeq ($(filter auto yes no,$(GPU)),)
$(error GPU is $(GPU); give auto, yes or no)
endif
HAS_GPU = [ $(GPU) = yes ] || { [ $(GPU) = auto ] && [ "$$($(PYTHON) launch/count_gpus.py)" -gt 0 ]; }

.DEFAULT_GOAL := help
.PHONY: help quickstart same install test soak bench lint horovod cuda system-packages constraints clean
.SUFFIXES:

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | \
	    awk -F'|' '{ printf "%-22s %s\n", $$1, $$2 }'
	@echo
	@echo "  PYTHON=…  the Python to use, 3.11 to 3.13 (now: $(PYTHON))"
	@echo "  GPU=…     yes or no: install for NVIDIA GPUs (now: $(GPU), which asks the driver)"

quickstart: $(VENV)/.core cuda ## install the core into .venv and train a small model, nothing else needed
	@$(BIN)/python -m distxcept.data.flowers data/flowers --train 960 --validation 200
	$(BIN)/distxcept train configs/quickstart.yaml

# On the CPU, which can be two devices on every machine; `distxcept prove` is for GPUs.
same: $(VENV)/.core ## five updates of the quickstart on one device and on two, and the largest difference of their weights
	@$(BIN)/python -m distxcept.data.flowers data/flowers --train 960 --validation 200
	@for devices in 1 2; do CUDA_VISIBLE_DEVICES=-1 $(BIN)/distxcept train -q configs/quickstart.yaml \
	    run.name=devices-$$devices engine.devices=$$devices \
	    run.epochs=null run.updates=5 run.log_every=1 run.resume=never precision=float64 data.validation=null || exit 1; done
	$(BIN)/distxcept compare runs/devices-1 runs/devices-2

install: $(VENV)/.dev ## the full development environment: core, test tools, Horovod, mpi4py
	@launch/install_system_packages.sh build || true
	@$(MAKE) --no-print-directory horovod

# Without MPI or SLURM the tests that need them skip themselves and say so; the others still count.
test: $(VENV)/.dev system-packages ## install what the tests need, then lint, types and all tests
	@$(MAKE) --no-print-directory horovod || echo "no Horovod: the tests that need it will be skipped"
	@$(MAKE) --no-print-directory lint
	$(BIN)/python -m pytest tests/unit -m "not soak" $(PARALLEL)
	$(BIN)/python -m pytest tests/integration -m "not soak" $(PARALLEL)

soak: $(VENV)/.dev system-packages horovod ## the long tests: full counts, the whole GPU build
	$(BIN)/python -m pytest tests/integration -m soak
	$(BIN)/python -m pytest tests/unit --hypothesis-profile=fresh

bench: $(VENV)/.dev ## measure speed side by side with others, into build/bench (hours; TORCH_PYTHON=… for PyTorch)
	@$(MAKE) --no-print-directory horovod || echo "no Horovod: what needs it is left out"
	PYTHON=$(BIN)/python benchmarks/everything.sh build/bench

lint: $(VENV)/.dev ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

horovod: $(VENV)/.dev cuda ## build Horovod, with NCCL on a machine with GPUs and a CUDA toolkit, and install it with mpi4py
	@if $(HAS_GPU); then prefer=--prefer-gpu; else prefer=; fi; \
	    PIP_CONSTRAINT=$(CURDIR)/constraints.txt launch/build_horovod.sh $$prefer --python $(BIN)/python >/dev/null
	@$(MAKE) --no-print-directory $(VENV)/.mpi4py

cuda: $(VENV)/.core
	@if $(HAS_GPU); then $(MAKE) --no-print-directory $(VENV)/.cuda; fi

system-packages:
	@launch/install_system_packages.sh test || true

constraints: ## write constraints.txt anew, from the newest versions that pyproject.toml allows
	@rm -rf build/constraints && $(PYTHON) -m venv build/constraints
	@echo "resolving the newest versions"
	@build/constraints/bin/python -m pip --quiet install --upgrade '.[dev]' mpi4py cloudpickle $(BUILD_TOOLS)
	@{ echo "# The versions tried together, Horovod's own needs included; written by \`make constraints\`."; \
	   { build/constraints/bin/python -m pip --quiet freeze --all --exclude distxcept --exclude pip; \
	     echo "horovod==0.28.1"; } | sort -f; } > constraints.new
	@mv constraints.new constraints.txt && rm -rf build/constraints
	@echo "constraints.txt has $$(grep -c == constraints.txt) packages"

clean: ## remove the environment and everything generated (not the wheel cache, not runs/)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	    echo "TensorFlow 2.21 needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is not one of them" \
	         "(found: $$($(PYTHON) --version 2>&1)); name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { \
	    echo "$(PYTHON) cannot make environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.core: $(VENV)/.made pyproject.toml constraints.txt $(wildcard distxcept/data/op/*.cc distxcept/data/op/*.h)
	@echo "installing the core into $(VENV) (TensorFlow is large: some minutes)"
	@$(PIP) install --constraint constraints.txt --editable .
	@TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -m distxcept.data.op.build >/dev/null || true
	@touch $@

$(VENV)/.cuda: $(VENV)/.core
	@echo "installing TensorFlow's CUDA libraries into $(VENV) (some GB; GPU=no leaves them out)"
	@$(PIP) install --constraint constraints.txt --editable '.[gpu]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing test and build tools into $(VENV)"
	@$(PIP) install --constraint constraints.txt $(BUILD_TOOLS) --editable '.[dev]'
	@touch $@

$(VENV)/.mpi4py: $(VENV)/.core
	@echo "installing mpi4py into $(VENV)"
	@$(PIP) install --constraint constraints.txt --editable '.[horovod]'
	@touch $@
