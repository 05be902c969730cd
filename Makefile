# make demo   install, then show boolit at work
# make test   install, then run the tests against the installed package
# make processors   the numerical tests again, as on processors with AVX2 alone (unless this is one), and by 2 threads; those of gates with none of that
# make lint types bench docs   what they say
# Each target sets up what it needs, in .venv; nothing but Python and (for speed) a C++ compiler has to be there.

PYTHON ?= python3
BIN := .venv/bin
SOURCES := $(shell find src setup.py pyproject.toml -type f -not -name '*.so' -not -path '*/__pycache__/*' -not -path '*.egg-info/*')

.PHONY: demo test processors slow lint types bench docs clean

demo: .venv/installed
	@$(BIN)/boolit verify --summary
	@echo
	@$(BIN)/boolit run parity --out results/demo --offer

test: .venv/installed .venv/axe
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests --pyargs boolit

# Set before Python starts: torch, oneDNN, MKL and boolit choose their instructions once.
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 BOOLIT_INSTRUCTIONS=x86-64-v3
BASELINE := ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 MKL_CBWR=COMPATIBLE \
	BOOLIT_INSTRUCTIONS=baseline
# Without what takes long and is not about numbers: exports and compilers (Triton's too), other processes' imports, timings,
# scikit-learn's checks, what convert understands of a model.
NUMERICAL := tests/logic tests/nn tests/citizenship tests/paper tests/saved tests/lab/models tests/lab/training \
	tests/test_functional.py tests/test_sklearn.py \
	$(addprefix --ignore=tests/,citizenship/test_export.py citizenship/test_tracers.py citizenship/test_compile.py citizenship/test_import.py \
	citizenship/test_memory.py logic/test_kernel_choice.py logic/test_triton.py nn/test_convert_families.py \
	nn/test_convert_example.py nn/test_convert_connections.py nn/test_convert_refusals.py) \
	$(addprefix --deselect=tests/,test_sklearn.py::test_check_estimator test_sklearn.py::test_needs_scikit_learn_and_no_lab \
	nn/test_specs.py::test_random_text_fails_kindly saved/test_saved_model.py::test_loading_needs_no_lab \
	lab/training/test_distributed.py::test_the_command_is_the_same_and_so_is_the_store)
THREADED := tests/logic/test_kernels.py tests/nn/test_conv1x1.py tests/lab/models tests/lab/training/test_stacked.py \
	tests/lab/training/test_single.py tests/lab/training/test_checkpoint.py tests/lab/training/test_early_stopping.py \
	tests/lab/training/test_threads.py tests/lab/training/test_batch_norm.py tests/test_functional.py

# Where the processor has no AVX-512, `make test` was the run with AVX2.
processors: .venv/installed
	if ! test -e /proc/cpuinfo || grep -q avx512f /proc/cpuinfo; then \
	$(AVX2) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 $(NUMERICAL); fi
	$(BASELINE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 $(filter-out tests/lab/% tests/paper tests/saved tests/test_sklearn.py,$(NUMERICAL))
	$(AVX2) OMP_NUM_THREADS=2 $(BIN)/python -m pytest -q $(THREADED)

slow: .venv/installed
	$(BIN)/python -m pytest -m slow tests

lint: .venv/dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/installed
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/installed
	$(BIN)/boolit bench

docs: .venv/installed
	$(BIN)/sphinx-build -W --keep-going -b html docs site

.venv/dependencies: requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	touch $@

# For the tests of pages in a browser, which are skipped without it. A stamp is left where npm is missing, too: it is asked once.
.venv/axe: .venv/dependencies
	mkdir -p $@
	if command -v npm > /dev/null; then npm install --silent --no-audit --no-fund --prefix $@ axe-core@4.10.3 || \
	echo "axe-core cannot be fetched: pages are not checked with it"; \
	else echo "npm is not installed: pages are not checked with axe-core"; fi
	@for name in chromium chromium-browser google-chrome chrome; do command -v $$name > /dev/null && exit 0; done; \
	echo "no Chromium is installed: pages are not tested in a browser"
	touch $@

.venv/installed: .venv/dependencies $(SOURCES)
	rm -rf build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall .
	touch $@

clean:
	rm -rf .venv build dist site jupyter_execute docs/auto_examples docs/reference/generated *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
