# make demo    install boolit and show it at work
# make test    install boolit and run the tests a contributor needs
# make check   everything else: lint, types, docs, browser, cluster, exporters, model families, other processors, real files
#
# Every target sets up what it needs in .venv. Only Python and, for speed, a C++ compiler have to be there.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q
# GNU's OpenMP, which torch uses: threads that wait otherwise spin so long that a busy core makes the docs take ten times as long.
export GOMP_SPINCOUNT ?= 1000
SOURCES := $(shell find src setup.py pyproject.toml -type f -not -name '*.so' -not -path '*/__pycache__/*' -not -path '*.egg-info/*')

.PHONY: demo test check lint types processors docs bench clean

demo: .venv/installed
	@$(BIN)/boolit verify --summary
	@$(BIN)/boolit run parity --out results/demo
	@echo "Next: $(BIN)/boolit compare YOUR.csv --target COLUMN, $(BIN)/boolit list studies, docs/tutorial.md"

test: .venv/test .venv/installed
	$(PYTEST) -n 2 --dist worksteal tests

check: .venv/check .venv/axe .venv/installed lint types processors docs
	$(PYTEST) -n 2 -m check tests

lint: .venv/check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/check .venv/installed
	$(BIN)/mypy
	$(BIN)/lint-imports

# torch, MKL, oneDNN and boolit choose their instructions once, when Python starts.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 BOOLIT_INSTRUCTIONS=x86-64-v3
BASELINE := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 MKL_CBWR=COMPATIBLE \
	BOOLIT_INSTRUCTIONS=baseline
NUMERICAL := tests/logic tests/test_functional.py tests/nn/test_gates.py --ignore=tests/logic/test_kernel_choice.py

processors: .venv/test .venv/installed
	$(AVX2) $(PYTEST) -n 2 $(NUMERICAL) tests/lab/training
	$(BASELINE) $(PYTEST) -n 2 $(NUMERICAL)
	OMP_NUM_THREADS=2 $(BIN)/python -m pytest -q tests/logic

docs: .venv/check .venv/installed
	$(BIN)/sphinx-build -W --keep-going -q -b html docs site

bench: .venv/installed
	$(BIN)/boolit bench

.venv/runtime: requirements/runtime.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -r requirements/runtime.txt
	touch $@

.venv/test: requirements/test.txt .venv/runtime
	$(PIP) -r requirements/test.txt
	touch $@

.venv/check: requirements/check.txt .venv/test
	$(PIP) -r requirements/check.txt
	touch $@

# axe-core checks the accessibility of pages; without npm those tests are skipped.
.venv/axe: .venv/check
	mkdir -p $@
	if command -v npm > /dev/null; then npm install --silent --no-audit --no-fund --prefix $@ axe-core@4.10.3; fi
	touch $@

# Compiled kernels stay in build/ and are rebuilt only when their sources change; everything else is copied again.
.venv/installed: .venv/runtime $(SOURCES)
	if test -d build; then find build -path '*/lib*' -type f -not -name '*.so' -delete; fi
	$(PIP) --no-deps --no-build-isolation --force-reinstall .
	touch $@

clean:
	rm -rf .venv build dist site results figures docs/auto_examples docs/reference/generated src/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
