# Two commands are enough to begin: `make run` and `make test`. Both set up what they need.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Used by `make bench`; what `fila bench --help` lists.
WORKLOAD ?= all
ARGS ?=
# Where `make dist` puts what it builds.
DIST ?= dist

.DEFAULT_GOAL := help
.PHONY: help install run demo record-demo time-demo test check format proto reference docs dist bench soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## create .venv and install the broker, the client and the command line

run: $(VENV)/.installed ## start the broker (ARGS="--config my.toml" passes options on)
	$(BIN)/fila server $(ARGS)

demo: $(VENV)/.installed ## see a quiet tenant overtake a flood (ARGS="--seconds 5" passes options on)
	$(BIN)/fila demo $(ARGS)

# Two at a time, a file to each: many wait for a process or a clock most of the time.
test: $(VENV)/.installed-dev ## run all tests (ARGS="tests/unit -k lease" runs some)
	$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),-n 2 --dist loadfile)

check: $(VENV)/.installed-dev ## lint, types, import contracts, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/generate_proto.py --check
	$(BIN)/python tools/generate_reference.py --check

format: $(VENV)/.installed-dev ## format the code and apply the linter's safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: $(VENV)/.installed-dev ## regenerate src/fila/wire/v1 from proto/
	$(BIN)/python tools/generate_proto.py

reference: $(VENV)/.installed-dev ## write docs/reference/cli.md from the help of the commands
	$(BIN)/python tools/generate_reference.py

docs: $(VENV)/.installed-dev ## build the documentation in build/site; warnings and broken links are errors
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --conf-dir docs . build/site
	@echo "The documentation is in build/site/index.html."

dist: $(VENV)/.installed-dev ## build wheel and sdist in dist (DIST=folder puts them elsewhere)
	$(BIN)/hatchling build -d $(DIST)

bench: $(VENV)/.installed-dev ## measure all workloads, or one (WORKLOAD=produce ARGS=--json)
	$(BIN)/fila bench $(WORKLOAD) $(ARGS)

soak: $(VENV)/.installed-dev ## run a suite for long, one JSON line per run (SUITE=name)
	@test -n "$(SUITE)" || { echo "Say which: make soak SUITE=name. The names:"; $(BIN)/python tools/soak.py --list; exit 2; }
	$(BIN)/python tools/soak.py $(SUITE) $(ARGS)

record-demo: $(VENV)/.installed ## run the demo and put what it prints into README.md (ARGS=--check only compares)
	$(BIN)/python tools/record_demo.py $(ARGS)

time-demo: $(VENV)/.installed ## measure what a newcomer waits for: clone, set-up and demo
	$(BIN)/python tools/time_demo.py

clean: ## remove .venv, caches and what was built, never data
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The stamps make repeats quick; they are older than the files that say what to install when those change.
$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch $(VENV)/.installed $@

# Debian ships python3 without the module that creates environments.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "fila needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1 | head -n 1): say which to use with make PYTHON=python3.12."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "This Python cannot create environments: installing the package python3-venv."; \
			apt-get install -y -qq python3-venv >/dev/null || { apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null; }; \
		else \
			echo "This Python cannot create environments: install the package python3-venv (as root: apt-get install python3-venv), then repeat."; exit 1; \
		fi; }
	@rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
