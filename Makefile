# Two commands do all the set-up:
#   make atari GAME=Pong SEED=0     trains RCRL on a game; the same command resumes
#   make test                       runs the linter and every test
PYTHON ?= python3
BIN := .venv/bin
GAME ?= Pong
SEED ?= 0
PRESET ?= rcrl
ARGS ?=

.PHONY: atari test clean

atari: .venv/installed
	$(BIN)/python -m experiments.atari100k --game=$(GAME) --seed=$(SEED) --preset=$(PRESET) $(ARGS)

test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/python -m pytest

# Remade when the pins or the package definition change; a half-made environment never counts.
.venv/installed: requirements.txt setup.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .hypothesis
