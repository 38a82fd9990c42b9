# Everything runs from a fresh clone: `make demo`, `make test`. The environment is .venv/, the command .venv/bin/muse.
.PHONY: help setup demo test crash night storm check mutate bench compare lock clean
VENV ?= .venv
BIN = $(VENV)/bin

help:   ## what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

setup:  ## make .venv/ from requirements.lock
	@sh tools/setup.sh

demo: setup  ## the whole story in under 30 seconds, no key needed
	@$(BIN)/muse demo

check: setup  ## ruff, mypy --strict, import contracts, size ratchet
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/ratchet.py

test: setup  ## all checks and tests
	@sh tools/test.sh

crash: setup  ## the crash matrix: kill everything everywhere (SEED=… KILLS=…), write docs/guarantees.md
	$(BIN)/python -m tests.crash.matrix $(if $(SEED),--seed $(SEED)) $(if $(KILLS),--kills $(KILLS)) --write docs/guarantees.md

night: setup  ## a fan-out killed 50 times, then a night of 8 agents, 1,200 calls and 24 hours (SEED=…); write docs/guarantees.md
	$(BIN)/python -m tests.night $(if $(SEED),--seed $(SEED)) --write docs/guarantees.md

storm: setup  ## whatever people say at whatever moment, thirty sessions long, with kills (STORMS=…, MUSE_CRASH_SEED=…)
	MUSE_STORMS=$(or $(STORMS),30) $(BIN)/python -m pytest -q tests/crash/test_storm.py

mutate: setup  ## change every field of every recorded session, and see that replay --verify finds it (two minutes)
	MUSE_MUTATE=full $(BIN)/python -m pytest -q tests/runtime/check/test_mutations.py

bench: setup  ## measure, and write docs/performance.md
	$(BIN)/python -m bench

compare: setup  ## the same task killed under muse and under other frameworks; writes docs/comparison.md
	$(BIN)/python -m tools.compare

lock: setup  ## resolve requirements.lock again
	$(BIN)/uv pip compile --universal --generate-hashes --no-header --no-emit-index-url --python-version 3.11 --group dev pyproject.toml -o requirements.lock --quiet

clean:  ## remove what make made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache
