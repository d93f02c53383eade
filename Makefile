# Two commands do all the set-up on a fresh machine: `make render` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ROCM   ?=
PYTEST_FLAGS ?=
# The unit tests make 300,000 small files: in memory, where there is plenty, that takes a third less time than on a disk.
IN_MEMORY = $(shell df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 4000000 {print "TMPDIR=/dev/shm"}')

# What Python compiles is kept, whatever the environment says: tests start it hundreds of times.
export PYTHONDONTWRITEBYTECODE =

# What runs in jobs beside the helper.
SH_JOBS = $(wildcard lumisite/validate/probes/*/*.sh lumisite/validate/run/*.sh)

.DEFAULT_GOAL := help
.PHONY: help render lint unit test measure bench docs dist twin twin-down rehearse clean

help:  ## what can be made
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

$(VENV)/.run-time: pyproject.toml .ci/venv
	.ci/venv "$(PYTHON)" $(VENV) .
	@touch $@

$(VENV)/.dev: pyproject.toml .ci/venv
	.ci/venv "$(PYTHON)" $(VENV) ".[dev,report]"
	@touch $@ $(VENV)/.run-time

render: $(VENV)/.run-time  ## install lumisite here and render LUMI's modules into site-out/ (ROCM=6.2: for that release)
	$(BIN)/lumisite render --site lumi $(if $(ROCM),--rocm $(ROCM))

lint: $(VENV)/.dev  ## ruff, mypy, vulture, shellcheck, shfmt
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/vulture
	$(BIN)/shellcheck .ci/run .ci/venv .ci/packages $(SH_JOBS)
	@# A part alone uses, sets and defines what other parts do; a thorough test has what is rendered checked.
	$(BIN)/shellcheck --shell=dash --exclude=SC2154,SC2034,SC2329 spank_helpers/*.sh
	$(BIN)/shfmt -p -d spank_helpers/*.sh


unit: $(VENV)/.dev  ## the tests that need no root and no packages, under a minute (without the thorough ones)
	$(IN_MEMORY) $(BIN)/pytest tests/unit tests/golden --numprocesses auto -m "not thorough" $(PYTEST_FLAGS)

test: lint  ## what lumisite does, on real Slurm, Lmod and Apptainer where the machine has root
	.ci/packages
	$(IN_MEMORY) $(BIN)/pytest tests/unit tests/golden --numprocesses auto -m "not thorough" --no-skips-as-root $(PYTEST_FLAGS)
	$(BIN)/pytest tests/twin tests/browser -m "not measures" --numprocesses 4 --dist loadfile --no-loadscope-reorder --no-skips-as-root $(PYTEST_FLAGS)

measure: $(VENV)/.dev  ## what takes long for what it adds: thorough unit tests, a LUMI-G node, minutes of real jobs; CI runs it too
	.ci/packages
	$(IN_MEMORY) $(BIN)/pytest tests/unit tests/golden --numprocesses auto -m thorough --no-skips-as-root $(PYTEST_FLAGS)
	$(BIN)/pytest tests/twin -m measures --numprocesses 2 --dist loadfile --no-loadscope-reorder --no-skips-as-root $(PYTEST_FLAGS)

bench: $(VENV)/.dev  ## speed, as ratios against a peer or a physical limit in the same run
	.ci/packages
	$(BIN)/python -m tests.bench

docs: $(VENV)/.dev  ## draw stale pictures and build the pages, with the generated reference, into public/
	$(BIN)/python -m docs.generate
	$(BIN)/mkdocs build --strict --site-dir public

dist: $(VENV)/.dev  ## build the wheel that admins install, and try it
	$(BIN)/python .ci/dist.py

twin: $(VENV)/.dev  ## start the cluster in miniature
	.ci/packages
	$(BIN)/python -m tests.twin up

twin-down: $(VENV)/.dev  ## stop it and leave nothing behind
	$(BIN)/python -m tests.twin down

rehearse: $(VENV)/.dev  ## a maintenance in miniature, on screen: before it, after it, after a new release
	@.ci/packages
	@$(BIN)/python -m tests.twin.rehearse

clean:  ## remove what was built here (not the caches of the twin)
	rm -rf $(VENV) site-out public dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
