# These commands do all the set-up:
#   make trial                          trains RCRL on MinAtar's Breakout, a minute and a half
#   make watch                          plays and films an agent that was trained before
#   make atari GAME=Pong SEED=0         trains RCRL on a game; the same command resumes
#   make dmc TASK=cheetah_run SEED=0    trains RCRL on a DMControl task
#   make test                           runs the linter and every test but make endurance's
#   make docs                           builds the documents as a site with a search
PYTHON ?= python3
BIN := .venv/bin
# Python compiles a module when it is first imported; few of the installed ones ever are.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile
# Processes that run tests. Those of a module stay together: they share what they trained.
JOBS ?= 2
PYTEST = $(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=loadfile --no-loadscope-reorder \
  --durations=8
# An accelerator to train on, cuda12, cuda13 or tpu: make GPU=cuda13 atari GAME=Pong
GPU ?=
# pip would only warn of another name, and JAX would train on the CPU.
ifneq ($(filter trial atari dmc sweep,$(MAKECMDGOALS)),)
$(if $(filter-out cuda12 cuda13 tpu,$(GPU)),$(error GPU=$(GPU): expected cuda12, cuda13 or tpu))
endif
TRAINER := .venv/installed $(if $(GPU),.venv/accelerator-$(GPU))
GAME ?= Pong
TASK ?= cheetah_run
SEED ?= 0
# A list of runs; without it ARGS has --presets, --games, --seeds, --results.
SPEC ?=
ARGS ?=
KERNELS := $(wildcard rcrl_jax/ops/kernels/*.c rcrl_jax/ops/kernels/*.cc rcrl_jax/ops/kernels/*.h)
# A browser for the tests of the report's page.
BROWSER := chromium chromium-driver
# Software renderers for DMControl; either EGL or OSMesa is enough.
RENDERER := libegl1 libgl1 libgl1-mesa-dri

# Non-empty where make is told of another Python than .venv has, or where that Python is gone.
MINOR := import sys; print("%d.%d" % sys.version_info[:2])
MADE_FOR := $(if $(filter clean,$(MAKECMDGOALS)),,$(shell \
  sed -n 's/^version = \([0-9]*\.[0-9]*\).*/\1/p' .venv/pyvenv.cfg 2>/dev/null))
ASKED := $(if $(filter command environment,$(origin PYTHON)),$(shell \
  $(PYTHON) -c '$(MINOR)' 2>/dev/null || echo none))
RUNS := $(if $(MADE_FOR),$(shell $(BIN)/python -c '$(MINOR)' 2>/dev/null || echo none))
OTHER_PYTHON := $(if $(MADE_FOR),$(if $(filter-out $(MADE_FOR),$(ASKED) $(RUNS)),other_python))
# What .venv is made with: the Python that it has, if make is not told of another.
BASE := $(if $(MADE_FOR),$(if $(OTHER_PYTHON),$(PYTHON),$(BIN)/python),$(PYTHON))
# Non-empty where kernels can be compiled: a compiler, and Python's headers.
COMPILER := $(if $(shell command -v c++ 2>/dev/null),$(wildcard $(shell \
  $(BASE) -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)/Python.h))

# Two recipes may install system packages, one after the other.
.NOTPARALLEL:

# `.venv/uncompiled`: a phony file is always newer, and two files touched in turn may have equal times.
COMPILED_LATER := $(if $(COMPILER),$(wildcard .venv/uncompiled))
.PHONY: $(OTHER_PYTHON) $(COMPILED_LATER) help trial watch atari dmc sweep test test-fast docs endurance \
  release-check compilers lock clean

atari: PRESET ?= rcrl
dmc: PRESET ?= rcrl_sac

# ARGS may name several games, tasks or seeds instead.
ONE_GAME = $(if $(findstring --games,$(ARGS)),,--game=$(GAME))
ONE_TASK = $(if $(findstring --tasks,$(ARGS)),,--task=$(TASK))
ONE_SEED = $(if $(findstring --seeds,$(ARGS)),,--seed=$(SEED))
TRIAL := --game=Breakout --seeds=0:4 --steps=7000 --nulls --video --workdir=runs/trial

help:
	@sed -n 's/^#   make/  make/p' $(firstword $(MAKEFILE_LIST))

# A device for each seed: with fewer cores they take turns.
trial: $(TRAINER)
	JAX_NUM_CPU_DEVICES=4 $(BIN)/python -m experiments.minatar $(TRIAL) $(ARGS)

# RUN is any directory of a run with its final parameters.
RUN ?= results/base/curl/MsPacman/seed_0

watch: .venv/installed
	$(BIN)/python -m experiments.evaluate --workdir='$(RUN)' --episodes=1 --video \
	  --output=runs/watch/$$(date +%Y-%m-%d_%H.%M.%S) $(ARGS)

atari: $(TRAINER)
	$(BIN)/python -m experiments.atari100k $(ONE_GAME) $(ONE_SEED) --preset=$(PRESET) $(ARGS)

DMC = $(BIN)/python -m experiments.dmc $(ONE_TASK) $(ONE_SEED) --preset=$(PRESET) $(ARGS)

# The preset that sees states needs no renderer.
dmc: CHECK = $(DMC) --dry_run
dmc: $(TRAINER) $(if $(findstring state_sac,$(PRESET) $(ARGS)),,.venv/renders)
	$(DMC)

SWEEP = $(BIN)/python -m experiments.sweep $(if $(SPEC),--spec='$(SPEC)') $(ARGS)

# Carries out a list of runs, on CPUs one on each core; the same command resumes. A spec is not read
# here: before one of DMControl tasks, make .venv/renders installs a renderer.
sweep: CHECK = $(SWEEP) --dry_run >/dev/null
sweep: $(TRAINER) $(if $(filter --presets=state_sac,$(ARGS)),,\
  $(if $(findstring experiment=dmc,$(ARGS)),.venv/renders))
	$(SWEEP)

# If there is no renderer, no browser or no compiler for TPUs and none can be installed, this says so
# and skips the tests that need one.
test: .venv/tested
	-@$(MAKE) --no-print-directory --keep-going .venv/renders .venv/browses .compilers/tpu/installed
	$(BIN)/ruff check . && $(BIN)/ruff format --check --quiet .
	$(PYTEST) $(ARGS)

# For the inner loop: the linter, and every test that takes little time.
test-fast: .venv/tested
	$(BIN)/ruff check . && $(BIN)/ruff format --check --quiet .
	$(PYTEST) -m "not slow" $(ARGS)

# A warning is an error; nothing is read from afar. mkdocs.yml has the navigation.
docs: .venv/tested
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open build/site/index.html"

# Builds the source archive, and from it the wheel; checks what an index would show of both; installs
# the wheel in an empty environment; runs every command there, and trains a little.
RELEASE := build/release
EMPTY := env -i PATH=/usr/bin:/bin HOME='$(HOME)'

release-check: .venv/tested .compilers/release/installed
	rm -rf $(RELEASE) && mkdir -p $(RELEASE)
	$(BIN)/python -c 'from setuptools import build_meta; build_meta.build_sdist("$(RELEASE)")' >/dev/null
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir=$(RELEASE) $(RELEASE)/*.tar.gz
	PYTHONPATH=.compilers/release $(BIN)/python -m twine check --strict $(RELEASE)/*.tar.gz $(RELEASE)/*.whl
	$(BIN)/python -m venv $(RELEASE)/env
	$(RELEASE)/env/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(RELEASE)/env/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(RELEASE)/*.whl
	cd $(RELEASE) && for command in env/bin/rcrl-*; do $(EMPTY) $$command --help >/dev/null || exit 1; done
	cd $(RELEASE) && $(EMPTY) env/bin/rcrl-doctor
	cd $(RELEASE) && $(EMPTY) env/bin/rcrl-minatar --game=Breakout --steps=200 --config.learn_start=100 \
	  --eval_episodes=1 --workdir=run
	@echo "$$(ls $(RELEASE)/*.whl) can be released"

# Kills and damages trainings at random, watches one for leaks, and compares runs of optimised
# programs, alone and in a fleet. For longer: KILLS=50 SOAK_MINUTES=120 make endurance.
endurance: .venv/tested
	$(PYTEST) -m endurance $(ARGS) tests/endurance

# What `benchmarks.compiled` compiles with for accelerators that are not here: 0.7 GB.
compilers: .compilers/tpu/installed .compilers/cuda/installed

.compilers/%/installed: requirements-%.lock | .venv/installed
	@$(PIP_INSTALL) --upgrade --target=$(@D) --require-hashes -r $< || { \
	  echo "the compiler for $* could not be installed"; exit 1; }
	@touch $@

# Rebuilt when requirements, setup.py or what it compiles change, when an earlier installation did
# not finish, when there is a compiler now and was none then, or for another Python. pip refuses every
# file whose hash is not in the lock. The package is built with what is installed.
.venv/installed: requirements.lock setup.py $(wildcard rcrl_jax/programs/commands.py) $(KERNELS) \
  $(COMPILED_LATER) $(OTHER_PYTHON)
	$(BASE) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "Python 3.11, 3.12 or 3.13 is needed: make PYTHON=python3.12 ...")'
	$(BASE) -m venv $(if $(OTHER_PYTHON),--clear) .venv || { echo "on Debian and Ubuntu: apt-get install python3-venv g++ python3-dev"; exit 1; }
	@$(if $(COMPILER),,echo "no C++ compiler or no Python.h: training takes several times as long; on Debian and Ubuntu: apt-get install g++ python3-dev, then the same command")
	@echo "installing 2 GB of packages: one to three minutes"
	@$(PIP_INSTALL) --require-hashes -r requirements.lock
	@rm -f rcrl_jax/ops/kernels/*.so  # pip leaves old ones where it cannot compile new ones
	$(PIP_INSTALL) --no-build-isolation --editable .
	touch $@
	@$(if $(COMPILER),rm -f,touch) .venv/uncompiled

# What the tests and sweeps on Ray need besides.
.venv/tested: requirements-test.lock .venv/installed
	@$(PIP_INSTALL) --require-hashes -r requirements-test.lock
	@touch $@

# JAX for an accelerator, in the version of requirements.txt, in place of that for another one: of two
# for CUDA, JAX would take either.
$(addprefix .venv/accelerator-,cuda12 cuda13 tpu): .venv/accelerator-%: .venv/installed
	@rm -f .venv/accelerator-*
	@$(BIN)/python -m pip list --format=freeze --disable-pip-version-check | \
	  sed -n 's/^\(jax-cuda[^=]*\|nvidia-[^=]*\|libtpu\)==.*/\1/p' | \
	  xargs -r $(BIN)/python -m pip uninstall --quiet --yes
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.txt 'jax[$*]'
	@touch $@

# Writes the hashes of all files of the versions in requirements.txt and requirements-test.txt, and of
# those that the other three files name, for every platform. Needs uv (pip install uv).
UV_COMPILE := uv pip compile --quiet --no-deps --universal --generate-hashes --python-version=3.11 \
  --no-annotate

lock:
	$(UV_COMPILE) --custom-compile-command="make lock" --output-file=requirements.lock requirements.txt
	$(UV_COMPILE) --no-header --output-file=requirements-test.lock requirements-test.txt
	$(UV_COMPILE) --no-header --output-file=requirements-tpu.lock requirements-tpu.lock
	$(UV_COMPILE) --no-header --output-file=requirements-cuda.lock requirements-cuda.lock
	$(UV_COMPILE) --no-header --output-file=requirements-release.lock requirements-release.lock

# Checks whether a renderer works. If not, installs one where that is possible, else says what is
# missing. Nothing is installed for a command that would be refused.
.venv/renders: .venv/installed
	@$(BIN)/python -m rcrl_jax.envs.dmc_rendering 2>/dev/null || { $(if $(CHECK),$(CHECK) || exit;) \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  echo "installing a renderer: $(RENDERER)" && \
	  apt-get update -qq && apt-get install -y -qq $(RENDERER) >/dev/null; } || true
	@$(BIN)/python -m rcrl_jax.envs.dmc_rendering
	@touch $@ 2>/dev/null || true  # where another user owns .venv, each command checks

# Checks whether there is a browser. If not, installs one where that is possible, else says so.
.venv/browses: .venv/installed
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  echo "installing a browser: $(BROWSER)" && \
	  apt-get update -qq && apt-get install -y -qq $(BROWSER) >/dev/null; } || true
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  echo "no browser found and none could be installed: $(BROWSER)"; exit 1; }
	@touch $@

clean:
	rm -rf .venv .compilers build *.egg-info .pytest_cache .ruff_cache .hypothesis rcrl_jax/ops/kernels/*.so
