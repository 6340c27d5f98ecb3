PYTHON ?= python3
export PYTHON
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Folders are included: their times change when a file is deleted.
SOURCES := $(shell find src -not -path '*/__pycache__*' -not -name '*.swp' 2>/dev/null) CMakeLists.txt pyproject.toml
CXX_FILES = $(shell find src/native tests/native tests/fuzz bench -name '*.h' -o -name '*.cc' 2>/dev/null)
TSAN_TESTS := $(sort $(basename $(notdir $(shell find tests/native -name "*ring*_test.cc" -o -name "*thread*_test.cc"))))

# $(STEP) NAME COMMAND…: output goes to build/log/NAME and is printed if the command fails; progress is shown.
STEP = tools/step.sh
CONFIGURE = cmake -G Ninja -DVERBENA_PYTHON=OFF -DVERBENA_WERROR=ON
# Sanitizers of older compilers fail with a large address-space randomisation: it is switched off where that is permitted.
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)
RANDOM_BITS := $(shell cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)

.NOTPARALLEL:
.PHONY: FORCE help install run test test-kernel native-test asan-test tsan-test fuzz-test fuzz-native-test \
	fuzz-python-test fuzz fuzz-build fuzz-seeds fuzz-merge soak crash-matrix partition-matrix conformance bench \
	bench-kernel docs site wheels format clean \
	check ruff-check format-check types-check imports-check clang-format-check stubs stubs-check reference-check

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-17s %s\n", $$1, $$2 }' Makefile

# What building and running need, and what tests, checks and benchmarks need in addition.
.venv/.ready: pyproject.toml tools/setup.sh tools/packages.sh
	@tools/setup.sh run
	@touch $@

.venv/.test-ready: pyproject.toml tools/setup.sh tools/packages.sh
	@tools/setup.sh test
	@touch .venv/.ready $@

# Changes when the headers of an optional library are installed or removed: the package is then built again.
build/headers: FORCE
	@mkdir -p build; tools/packages.sh headers >$@.new; cmp -s $@.new $@ && rm $@.new || mv $@.new $@

.venv/.installed: .venv/.ready build/headers $(SOURCES)
	@$(STEP) install pip install --verbose --no-build-isolation --check-build-dependencies --no-deps . \
		--config-settings=build-dir=build/wheel --config-settings=cmake.define.VERBENA_WERROR=ON
	@touch $@

install: .venv/.installed ## build the package into .venv (EXTRAS=registry,dask: and install what these need)
	@test -z "$(EXTRAS)" || $(STEP) extras pip install --disable-pip-version-check "verbena[$(EXTRAS)]"

run: install ## start the key-value store (ARGS=…: arguments of `verbena serve`)
	@verbena serve $(ARGS)

test: .venv/.test-ready install ## run the native tests under sanitizers, then pytest (ARGS=…: its arguments)
	@native=0; $(MAKE) --no-print-directory -k native-test || native=1; \
	pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=10 $(ARGS); status=$$?; \
	if [ $$status = 1 ]; then echo "the failed tests again, one at a time:"; pytest --last-failed $(ARGS); status=$$?; fi; \
	test $$status = 0 || exit 1; \
	test $$native = 0 || { echo "native tests failed, see above"; exit 1; }

native-test: asan-test tsan-test fuzz-test ## run the native tests only

# Where clang has libFuzzer, one build serves the native tests and the fuzzer. Evaluated once, after .venv/.test-ready.
ASAN = $(eval ASAN := $(shell tools/packages.sh has libclang-rt-dev && echo build/fuzz || echo build/asan))$(ASAN)
CONFIGURE_ASAN = $(CONFIGURE) -DVERBENA_NATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug -DVERBENA_SANITIZE=address,undefined
CONFIGURE_FUZZ = $(CONFIGURE_ASAN) -B build/fuzz -DVERBENA_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++

asan-test: .venv/.test-ready
	@$(STEP) asan-configure $(if $(filter %/fuzz,$(ASAN)),$(CONFIGURE_FUZZ),$(CONFIGURE_ASAN) -B build/asan)
	@$(STEP) asan-build cmake --build $(ASAN)
	@$(STEP) asan-test $(FIXED_ADDRESSES) ctest --test-dir $(ASAN) --output-on-failure -j 2
	@grep 'tests passed' build/log/asan-test || echo "  no native tests"

tsan-test: .venv/.test-ready
ifeq ($(TSAN_TESTS),)
	@echo "  tsan-test skipped: no tests/native/**/*_test.cc is named after a ring or a thread"
else ifeq ($(FIXED_ADDRESSES)$(shell test $(RANDOM_BITS) -le 28 && echo fits),)
	@echo "  tsan-test skipped: vm.mmap_rnd_bits is $(RANDOM_BITS) (TSan needs 28 or less) and setarch -R is not permitted"
else
	@$(STEP) tsan-configure $(CONFIGURE) -B build/tsan -DVERBENA_NATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug \
		-DVERBENA_SANITIZE=thread -DVERBENA_UNITY=ON
	@$(STEP) tsan-build cmake --build build/tsan --target $(TSAN_TESTS)
	@$(STEP) tsan-test $(FIXED_ADDRESSES) ctest --test-dir build/tsan --output-on-failure -j 2 -R '(ring|thread).*_test'
	@grep 'tests passed' build/log/tsan-test
endif

# libFuzzer on the parsers of network input, with atheris on those in Python: tests/fuzz/README.md. asan-test and pytest
# run the stored corpus.
FUZZ_TARGETS = $(patsubst tests/fuzz/%.cc,%,$(filter-out %/replay.cc,$(wildcard tests/fuzz/*.cc)))
PYTHON_FUZZ_TARGETS = hello
PYTHON_FUZZER = env PYTHONPATH=tests$${PYTHONPATH:+:$$PYTHONPATH} python -m fuzz.python.run
# $(FUZZER) TARGET OPTION…
FUZZER = fuzzer() { target=$$1; shift; case " $(PYTHON_FUZZ_TARGETS) " in \
	*" $$target "*) $(PYTHON_FUZZER) $$target "$$@" ;; \
	*) $(FIXED_ADDRESSES) build/fuzz/fuzz_$$target "$$@" ;; esac; }; fuzzer
# $(FUZZ) TARGET SECONDS: new inputs go to build/fuzz/found, failing ones to build/fuzz/findings.
FUZZ = fuzz() { mkdir -p build/fuzz/found/$$1 build/fuzz/findings; \
	$(FUZZER) $$1 -max_total_time=$$2 -max_len=4096 -timeout=20 -rss_limit_mb=1024 \
	-print_final_stats=1 -artifact_prefix=build/fuzz/findings/$$1- build/fuzz/found/$$1 tests/fuzz/corpus/$$1; }; fuzz

fuzz-build: .venv/.test-ready
	@$(STEP) fuzz-configure $(CONFIGURE_FUZZ)
	@$(STEP) fuzz-build cmake --build build/fuzz --target $(FUZZ_TARGETS:%=fuzz_%)

fuzz-test: fuzz-native-test fuzz-python-test

FUZZ_TEST_SECONDS = $(shell expr 40 / $(words $(FUZZ_TARGETS)))
fuzz-native-test: .venv/.test-ready
	@if ! tools/packages.sh has libclang-rt-dev; then \
		echo "  fuzz-native-test skipped: no clang++ with libFuzzer (Debian: clang and libclang-rt-dev)"; exit; fi; \
	$(MAKE) --no-print-directory fuzz-build && \
	$(STEP) fuzz-test sh -c 'printf "%s\n" $(FUZZ_TARGETS) | xargs -P 2 -I NAME $(STEP) fuzz-NAME sh -c "$$@" fuzz NAME' \
		sh '$(FUZZ) $$1 $(FUZZ_TEST_SECONDS)'

fuzz-python-test: .venv/.test-ready install
	@if ! python -c 'import atheris' 2>/dev/null; then \
		echo "  fuzz-python-test skipped: the Python package atheris cannot be imported"; exit; fi; \
	for target in $(PYTHON_FUZZ_TARGETS); do $(STEP) fuzz-$$target sh -c '$(FUZZ) $$1 5' sh $$target || exit 1; done

fuzz: $(if $(filter $(PYTHON_FUZZ_TARGETS),$(TARGET)),,fuzz-build) install ## fuzz the parsers (TARGET=name: only one; TIME=600: seconds for each)
	@for target in $(or $(TARGET),$(FUZZ_TARGETS) $(PYTHON_FUZZ_TARGETS)); do \
		echo "== $$target"; $(FUZZ) $$target $(or $(TIME),600) || exit 1; done

fuzz-seeds: asan-test install
	@for target in $(FUZZ_TARGETS); do $(ASAN)/replay_$$target --seeds tests/fuzz/corpus/$$target; done
	@for target in $(PYTHON_FUZZ_TARGETS); do $(PYTHON_FUZZER) $$target --seeds tests/fuzz/corpus/$$target; done

fuzz-merge: fuzz-build install
	@for target in $(FUZZ_TARGETS) $(PYTHON_FUZZ_TARGETS); do mkdir -p build/fuzz/found/$$target; \
	$(FUZZER) $$target -merge=1 -max_len=400 tests/fuzz/corpus/$$target build/fuzz/found/$$target; done

check: ruff-check format-check types-check imports-check clang-format-check stubs-check reference-check ## run the static checks (make -k check: all of them, even after a failure)

ruff-check: .venv/.test-ready
	@$(STEP) $@ ruff check .

format-check: .venv/.test-ready
	@$(STEP) $@ ruff format --check .

types-check: .venv/.test-ready
	@$(STEP) $@ mypy

imports-check: .venv/.test-ready
	@PYTHONPATH=src; export PYTHONPATH; $(STEP) $@ lint-imports --no-cache

clang-format-check: .venv/.test-ready
	@$(if $(CXX_FILES),$(STEP) $@ clang-format --dry-run --Werror $(CXX_FILES))

stubs-check: .venv/.test-ready install
	@$(STEP) $@ python tools/stubs.py --check

reference-check: .venv/.test-ready install
	@$(STEP) $@ sh -c 'python tools/error_codes.py --check && python tools/reference.py --check'

stubs: .venv/.test-ready install ## write the type stubs src/verbena/_native/*.pyi
	@python tools/stubs.py

format: .venv/.test-ready ## format Python and C++
	@ruff check --quiet --fix-only --exit-zero .
	@ruff format --quiet .
	@$(if $(CXX_FILES),clang-format -i $(CXX_FILES))

test-kernel: .venv/.test-ready install ## run the tests on the kernel's RDMA stack in a virtual machine (ARGS=…: of pytest)
	@tests/kernel/host/build-siw.sh || test $$? = 77
	@status=0; python tests/kernel/host/boot.py --python --timeout 1200 tests/kernel/guest/suite $(ARGS) || status=$$?; \
	test $$status != 77 || exit 0; \
	$(if $(ARGS),,PYTHONPATH=tests python -m support.security.hostile_kernel || status=1;) exit $$status

crash-matrix: .venv/.test-ready install ## kill slot moves at every checkpoint (ARGS="--random 200": also at random times)
	@python tests/support/kv/crash_matrix.py $(ARGS)

partition-matrix: .venv/.test-ready install ## cut the network between nodes during slot moves and failovers (ARGS="--only ROW")
	@python tests/support/kv/partition_matrix.py $(ARGS)

conformance: .venv/.test-ready install ## run the OCI conformance suite (SPEC=, IMAGE_SPEC=: clones of its repositories)
	@tools/conformance.sh $(SPEC) $(IMAGE_SPEC)

soak: .venv/.test-ready install ## run sessions under injected faults (TIME=600: seconds)
	@python tests/transport/soak.py --seconds $(or $(TIME),600) $(ARGS)

bench-kernel: .venv/.test-ready install ## compare with perftest on Soft-RoCE in a virtual machine (ARGS=…)
	@python tests/kernel/host/boot.py --python --timeout 1200 .venv/bin/python -m bench.verbs.soft_roce $(ARGS)

bench: .venv/.test-ready install ## run the benchmarks (ARGS=…)
ifneq ($(wildcard bench/native/*.cc),)
	@$(STEP) bench-configure $(CONFIGURE) -B build/bench -DVERBENA_NATIVE_BENCH=ON
	@$(STEP) bench-build cmake --build build/bench
endif
	@python -m bench.run $(ARGS)

site: .venv/.test-ready ## build the documentation into build/site
	@export NO_MKDOCS_2_WARNING=1; $(STEP) $@ python -m mkdocs build && echo "  build/site/index.html"

wheels: .venv/.test-ready ## build and test the source distribution and wheels in dist (ARGS=…)
	@python tools/wheels.py $(ARGS)

docs: .venv/.test-ready install ## write the generated pages of docs/reference
	@python tools/reference.py

clean: ## remove all build results and .venv
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
