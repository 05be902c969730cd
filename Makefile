# make demo   install, then show boolit at work
# make test   install, then run the tests against the installed package
# make lint types bench docs   what they say
# Each target sets up what it needs, in .venv; nothing but Python and (for speed) a C++ compiler has to be there.

PYTHON ?= python3
BIN := .venv/bin
SOURCES := $(shell find src setup.py pyproject.toml -type f -not -name '*.so' -not -path '*/__pycache__/*' -not -path '*.egg-info/*')

.PHONY: demo test slow lint types bench docs clean

demo: .venv/installed
	$(BIN)/boolit verify
	$(BIN)/boolit run parity --out results/demo

test: .venv/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests --pyargs boolit

slow: .venv/installed
	$(BIN)/python -m pytest -m slow tests

lint: .venv/dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed
	$(BIN)/boolit bench gates

docs: .venv/dependencies
	$(BIN)/mkdocs build --strict

.venv/dependencies: requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	touch $@

.venv/installed: .venv/dependencies $(SOURCES)
	rm -rf build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall .
	touch $@

clean:
	rm -rf .venv build dist site *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
