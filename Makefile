# Everything a newcomer or CI runs. Every target works from a clean clone: it makes
# the virtual environment and installs the package into it, as users would.
#
#   make demo      train a digit classifier on data fed by gristmill
#   make dev       a debug build in place, in an environment of its own
#   make quick     the fast tests of that build: seconds, no workers, no packages
#   make test      all tests: C++ (ctest) and Python (pytest)
#   make sanitize  the C++ tests under ASan, UBSan and TSan
#   make lint      formatting, linters, types, stubs, locks
#   make docs      the docs as a site, at http://localhost:8000
#   make pictures  the pictures of terminals in the docs
#   make wheel     a wheel for this Python that needs nothing of the system, tried out
#   make sdist     the sources as users get them
#   make bench     all measurements, their tables and plots
#   make soak      the tests that take minutes
#   make clients   programs of other packages with their loader and with ours
#   make clean     remove what these targets made

PYTHON ?= python3
VENV ?= .venv
DEV_VENV ?= .venv-dev
BUILD_DIR ?= build
WERROR ?= OFF
PYTEST_ARGS ?=
BENCH_ARGS ?=

BIN := $(abspath $(VENV))/bin
DEV_BIN := $(abspath $(DEV_VENV))/bin
DEV_BUILD := $(BUILD_DIR)/dev
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(BIN)/python .ci/install.py
PYTEST = $(BIN)/python -m pytest -n 3 --dist worksteal $(PYTEST_ARGS)
CTEST := $(BIN)/ctest --output-on-failure --no-tests=error
CXX_FILES = $(wildcard csrc/*/*.[ch]pp csrc/*/*/*.[ch]pp tests/core/*.[ch]pp \
	tests/core/*/*.[ch]pp tests/fuzz/*.[ch]pp)
HOT_MODULES = $(patsubst pkg/gristmill/_hot/%.pyx,gristmill._hot.%,\
	$(wildcard pkg/gristmill/_hot/*.pyx))

.PHONY: demo dev quick test test-core sanitize docs site wheel sdist bench \
	bench-compare soak clients clean tools lint-tools lint check-format check-ruff \
	check-mypy check-programs check-stubs check-threads check-costs
.NOTPARALLEL:

demo: tools
	$(INSTALL) demo
	$(BIN)/python examples/train_digits.py --picture $(BUILD_DIR)/digits.png

# Compiles what changed and puts the modules into pkg, where the environment looks
# for the package: what is written in Python there needs no step at all.
dev: $(DEV_VENV)/bin/ninja
	$(DEV_BIN)/cmake -S . -B $(DEV_BUILD) -G Ninja --log-level=WARNING \
		-DCMAKE_MAKE_PROGRAM=$(DEV_BIN)/ninja -DCMAKE_BUILD_TYPE=Debug \
		-DPython_EXECUTABLE=$(DEV_BIN)/python -DGRISTMILL_BUILD_TESTS=ON \
		-DGRISTMILL_UNITY=OFF
	$(DEV_BIN)/cmake --build $(DEV_BUILD) --target csrc/all
	$(DEV_BIN)/cmake --install $(DEV_BUILD) --prefix pkg > $(DEV_BUILD)/installed.log

$(DEV_VENV)/bin/ninja:
	.ci/system-packages $(PYTHON)
	test -x $(DEV_VENV)/bin/pip || $(PYTHON) -m venv $(DEV_VENV)
	$(DEV_BIN)/python -c 'import pathlib, site; \
		path = pathlib.Path(site.getsitepackages()[0]) / "gristmill-dev.pth"; \
		path.write_text(str(pathlib.Path("pkg").resolve()))'
	$(DEV_BIN)/python -m pip --disable-pip-version-check install --quiet \
		$$($(DEV_BIN)/python .ci/extra.py dev) 'cmake>=3.24' ninja

# Leaves out what starts processes or takes seconds; what needs an optional package
# that is not there is skipped, see tests/conftest.py.
quick:
	@test -x $(DEV_VENV)/bin/ninja || { echo "Run make dev first."; exit 1; }
	env -u CI $(DEV_BIN)/python -m pytest -q -rfE -n 2 $(PYTEST_ARGS) \
		-m 'not multiprocess and not slow and not soak'

# The packages that tests use are installed while the C++ tests are compiled and run.
# (make takes the word `$(MAKE)` for leave to run the line even where it only prints
# what it would do.)
#
# Tests of torch's loader fork the process that they run in, hundreds of times. A fork
# takes three times as long where other tests have imported what they need, so they run
# apart. Three processes leave no core idle where tests wait. (5: PYTEST_ARGS chose none.)
test: export PYTHONDONTWRITEBYTECODE :=
test: tools
	$(BIN)/python .ci/requirements.py test & \
		installing=$$!; make --no-print-directory test-core; tested=$$?; \
		wait $$installing && exit $$tested
	$(INSTALL) test --no-build-isolation
	failed=; \
	$(PYTEST) tests/torch_loader || test $$? -eq 5 || failed=1; \
	$(PYTEST) tests --ignore=tests/torch_loader || test $$? -eq 5 || failed=1; \
	test -z "$$failed"

test-core: tools
	$(call build_core,$(BUILD_DIR)/test,-DGRISTMILL_WERROR=$(WERROR))
	$(CTEST) --test-dir $(BUILD_DIR)/test

sanitize: sanitize-address sanitize-undefined sanitize-thread

sanitize-%: tools
	$(call build_core,$(BUILD_DIR)/$*,-DGRISTMILL_SANITIZE=$*)
	$(CTEST) --test-dir $(BUILD_DIR)/$*

docs: site
	$(BIN)/python -m http.server --bind localhost --directory $(BUILD_DIR)/site 8000

# A page that is in no list, a link to nothing, a name without a place: any warning fails,
# which `--quiet` would prevent.
site: tools
	$(PIP) install --quiet $$($(BIN)/python .ci/extra.py docs)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --config-file .ci/mkdocs.yml \
		--site-dir $(abspath $(BUILD_DIR))/site

.PHONY: pictures
pictures: tools
	$(INSTALL) demo
	$(BIN)/python .ci/terminal_pictures.py

wheel: tools
	$(PIP) install --quiet $$($(BIN)/python .ci/extra.py wheel)
	rm -rf $(BUILD_DIR)/wheel
	$(BIN)/python .ci/make_wheel.py build $(BUILD_DIR)/wheel/built
	PATH=$(BIN):$$PATH $(BIN)/python .ci/make_wheel.py repair \
		$(BUILD_DIR)/wheel/built/*.whl $(BUILD_DIR)/wheel/repaired
	$(BIN)/python .ci/make_wheel.py try $(BUILD_DIR)/wheel/repaired/*.whl
	mkdir -p dist && cp $(BUILD_DIR)/wheel/repaired/*.whl dist

sdist: tools
	$(PIP) install --quiet $$($(BIN)/python .ci/extra.py wheel)
	$(BIN)/python -m build --sdist --outdir dist .

bench: tools
	$(INSTALL) bench
	$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

# How this checkout compares with a commit: make bench-compare REF=main ONLY="array map"
bench-compare: tools
	$(INSTALL) bench
	$(BIN)/python benchmarks/compare.py $(REF) $(if $(ONLY),--only $(ONLY))

soak: tools
	$(INSTALL) test
	GRISTMILL_HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n 2 -m soak --timeout 3600 $(PYTEST_ARGS)

# Each client has an environment of its own: make clients ONLY="lightning keras"
clients: tools
	$(PIP) install --quiet $$($(BIN)/python .ci/extra.py clients)
	cd tests && $(BIN)/python -m clients.run --build $(abspath $(BUILD_DIR))/clients $(ONLY)

# Instructions of hot paths against benchmarks/costs.json.
check-costs: tools
	.ci/system-packages $(PYTHON) valgrind
	$(BIN)/python -c 'import gristmill, torch' || $(INSTALL) test
	$(BIN)/python benchmarks/costs.py

lint: check-format check-ruff check-spelling check-mypy check-programs check-stubs \
	check-threads

check-format: lint-tools
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

check-ruff: lint-tools
	$(BIN)/ruff check .

check-spelling: lint-tools
	$(BIN)/codespell .ci .github benchmarks csrc docs examples pkg tests *.md *.toml \
		CMakeLists.txt Makefile

check-mypy: lint-tools
	$(BIN)/mypy --strict

# What type checkers make of users' programs, of which some import other packages.
check-programs: lint-tools
	$(BIN)/python -c 'import basedpyright, gristmill' || $(INSTALL) test
	$(BIN)/mypy --config-file tests/typing/mypy.ini tests/typing
	$(BIN)/basedpyright --project tests/typing --pythonpath $(BIN)/python

# stubtest imports the installed modules and compares them with pkg's stubs.
check-stubs: lint-tools
	$(BIN)/python -c 'import gristmill' || $(PIP) install --quiet .
	$(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml \
		--allowlist .ci/stubtest-allowlist --ignore-disjoint-bases \
		gristmill._core $(HOT_MODULES)

# Clang's analysis of who holds which lock, see core/base/mutex.hpp.
check-threads: lint-tools
	$(BIN)/python .ci/check_threads.py $(BIN)/clang-tidy

lint-tools: tools
	$(PIP) install --quiet $$($(BIN)/python .ci/extra.py lint)

# The environment holds CMake and Ninja, so that no system's are needed.
tools: $(VENV)/bin/ninja

$(VENV)/bin/ninja:
	.ci/system-packages $(PYTHON)
	test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet 'cmake>=3.24' ninja

clean:
	rm -rf $(BUILD_DIR) .venv .venv-dev dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Builds the C++ tests: $(1) is the build folder, $(2) more options. Debug, because
# Release removes the asserts that guard every REQUIRES.
define build_core
	$(BIN)/cmake -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(BIN)/ninja \
		-DCMAKE_BUILD_TYPE=Debug -DGRISTMILL_BUILD_PYTHON=OFF \
		-DGRISTMILL_BUILD_TESTS=ON $(2) --log-level=WARNING
	$(BIN)/cmake --build $(1)
endef
