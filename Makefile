# Every target sets itself up: it makes .venv if need be and installs what it uses, again only after
# pyproject.toml changed. `make demo` installs neither torch nor jax.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
comma := ,

# In CI a missing engine is a failure, not a skipped test.
ifeq ($(CI),true)
export FIREBRICK_REQUIRE_ENGINES ?= numpy,cpu,torch,webgpu
endif

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test check lint format bench docs soak mutate array-api ray clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

DEVICE ?= cpu
demo: $(STAMPS)/$(if $(filter webgpu%,$(DEVICE)),webgpu,train) ## train a small network on the digits that come with the package (DEVICE=webgpu: on a GPU)
	$(BIN)/firebrick train digits --model cnn --device $(DEVICE) --out runs/demo

test: $(STAMPS)/test $(STAMPS)/drivers ## run all tests but the soak tests
	$(BIN)/python -m pytest -n auto --dist worksteal

check: lint ## lint, then the tests that are not marked slow (under two minutes)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not soak and not slow"

lint: $(STAMPS)/test ## format check, lint, types, and which package may import which
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMPS)/test ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMPS)/bench ## compare with PyTorch and JAX on this machine
	$(BIN)/python -m benchmarks

docs: $(STAMPS)/docs ## build the documents into site/, generated pages included
	$(BIN)/python -m firebrick.testing.optable docs/ops.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

soak: $(STAMPS)/test ## run the full conformance product, exhaustive tests, random programs and damaged files (long; goes on where it was)
	@test -d .soak/dawn/node_modules/webgpu || npm install --silent --prefix .soak/dawn webgpu@0.6.2 || \
		echo "note: without npm, the tests of webgpu on Dawn are skipped"
	$(BIN)/python -m firebrick.testing.soak --write docs/accuracy.md
	PYTHONPATH=tests/shared $(BIN)/python -m networks.soak --count 2000
	$(BIN)/python -m pytest -n auto -m soak
	PYTHONPATH=tests/shared $(BIN)/python -m damaged_files --count 10000
	PYTHONPATH=tests/shared $(BIN)/python -m differential --count 20000 --write docs/accuracy.md
	PYTHONPATH=tests/shared $(BIN)/python -m differential --count 5000 --gradients --write docs/accuracy.md

ENGINES ?= cpu numpy torch:cpu
EXAMPLES ?= 100
array-api: $(STAMPS)/test ## run the Array API standard's public test suite, which lies at SUITE=path
	@test -d "$(SUITE)/array_api_tests" && test -d "$(SUITE)/array-api/src" || { \
		echo "error: SUITE must be a checkout of the suite and its submodule, outside this tree:" >&2; \
		echo "  git clone --recurse-submodules https://github.com/data-apis/array-api-tests ../array-api-tests" >&2; \
		echo "  make array-api SUITE=../array-api-tests" >&2; \
		exit 1; }
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -r "$(SUITE)/requirements.txt"
	@python="$(abspath $(BIN))/python"; cd "$(SUITE)" && for engine in $(ENGINES); do \
		echo "$$engine"; \
		FIREBRICK_DEVICE=$$engine ARRAY_API_TESTS_MODULE=firebrick ARRAY_API_TESTS_VERSION=2024.12 \
			"$$python" -m pytest -q -rfEsx --disable-deadline --max-examples $(EXAMPLES) array_api_tests || exit 1; \
	done

mutate: $(STAMPS)/test ## change the sources at one point at a time and see whether a test notices (long; goes on where it was)
	PYTHONPATH=tests/shared $(BIN)/python -m mutation --count 600 --seed 0 --write docs/testing.md

ray: $(STAMPS)/ray ## run the tests of clusters on a local Ray cluster (downloads Ray)
	$(BIN)/python -m pytest -m ray

clean: ## remove the environment, caches and build outputs (not runs/)
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

# $(call install,WHAT): pip prints only errors; after one, say what a person can do about it. Packages are compiled to bytecode
# when they are first imported: pip would compile all of their files, which takes as long as the rest of the installation.
define install
@echo "Installing $(1) into $(VENV) ..."
@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --editable '$(1)' || { \
	echo "error: pip could not install $(1); its own message is above." >&2; \
	echo "If it speaks of a connection, or found no version of a package, then this machine cannot" >&2; \
	echo "reach the package index: check the network, or point pip at an index with PIP_INDEX_URL." >&2; \
	exit 1; }
@mkdir -p $(STAMPS) && touch $@
endef

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: Firebrick needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name another one, for example: make $(firstword $(MAKECMDGOALS)) PYTHON=python3.12" >&2; \
		exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo "error: '$(PYTHON) -m venv' failed; on Debian and Ubuntu, install the python3-venv package." >&2; \
		exit 1; }
	@# The pip of older releases of Python takes half as long again to find and unpack packages; with it, all works too.
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --retries 0 --upgrade pip > /dev/null 2>&1 || true
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/train: $(STAMPS)/venv pyproject.toml
	$(call install,.[train])

$(STAMPS)/test: $(STAMPS)/venv pyproject.toml
	$(call install,.[test$(comma)train])

$(STAMPS)/webgpu: $(STAMPS)/venv pyproject.toml
	$(call install,.[train$(comma)webgpu])

# A Vulkan driver for processors, so that the engine webgpu is tested on machines without a GPU. Installed where that needs no
# password; elsewhere its tests are skipped by name, and a line says what to install.
$(STAMPS)/drivers: $(STAMPS)/test
	@usable() { $(BIN)/python -c 'import firebrick; firebrick.device("webgpu:0")' > /dev/null 2>&1 && found=yes || found=no; }; usable; \
	if [ $$found = no ] && command -v apt-get > /dev/null; then \
		echo "Installing mesa-vulkan-drivers, to test the engine webgpu ..."; \
		if [ "$$(id -u)" = 0 ]; then sudo=; else sudo="sudo -n"; fi; \
		{ $$sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq mesa-vulkan-drivers; } \
			> /dev/null 2>&1; \
		usable; \
	fi; \
	if [ $$found = yes ]; then touch $@; else \
		echo "note: the engine webgpu cannot be tested: there is no Vulkan driver, and it could not be installed here." >&2; \
		echo "On Debian and Ubuntu: sudo apt-get install mesa-vulkan-drivers" >&2; \
	fi

$(STAMPS)/docs: $(STAMPS)/venv pyproject.toml
	$(call install,.[docs])

$(STAMPS)/ray: $(STAMPS)/test
	$(call install,.[test$(comma)ray])

$(STAMPS)/bench: $(STAMPS)/venv pyproject.toml
	$(call install,.[bench])
