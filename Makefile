PYTHON ?= python3
export PYTHON
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Folders too: their times change when a file is deleted.
SOURCES := $(shell find src -not -path '*/__pycache__*' -not -name '*.swp' 2>/dev/null) CMakeLists.txt pyproject.toml
CXX_FILES = $(shell find src/native tests/native tests/fuzz bench -name '*.h' -o -name '*.cc' 2>/dev/null)
TSAN_TESTS := $(sort $(basename $(notdir $(shell find tests/native -name "*ring*_test.cc" -o -name "*thread*_test.cc"))))

# $(QUIET) NAME COMMAND…: its output goes to build/log/NAME and is shown only if it fails.
QUIET = quiet() { log=build/log/$$1; echo "  $$1"; shift; mkdir -p build/log; \
	"$$@" >$$log 2>&1 || { status=$$?; cat $$log; return $$status; }; }; quiet
CONFIGURE = cmake -G Ninja -DVERBENA_PYTHON=OFF -DVERBENA_WERROR=ON
# Sanitizers of older compilers need a small address-space randomisation: without it where we may, as it is elsewhere.
FIXED_ADDRESSES := $(shell setarch -R true 2>/dev/null && echo setarch -R)
RANDOM_BITS := $(shell cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)

.NOTPARALLEL:
.PHONY: help install run test test-kernel native-test asan-test tsan-test fuzz-test fuzz fuzz-build fuzz-seeds \
	fuzz-merge soak crash-matrix partition-matrix conformance bench bench-kernel docs site wheels format clean \
	check ruff-check format-check types-check imports-check clang-format-check stubs stubs-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

.venv/.ready: pyproject.toml tools/setup.sh
	@tools/setup.sh
	@touch $@

.venv/.installed: .venv/.ready $(SOURCES)
	@$(QUIET) install pip install --no-build-isolation --check-build-dependencies --no-deps . \
		--config-settings=build-dir=build/wheel --config-settings=cmake.define.VERBENA_WERROR=ON
	@touch $@

install: .venv/.installed ## build the package into .venv

run: install ## run the key-value store (ARGS=…)
	@verbena serve $(ARGS)

test: install ## native tests under sanitizers, then pytest (ARGS=…)
	@native=0; $(MAKE) --no-print-directory -k native-test || native=1; pytest $(ARGS) || exit 1; \
	test $$native = 0 || { echo "native tests failed, see above"; exit 1; }

native-test: asan-test tsan-test fuzz-test ## native tests only

asan-test: .venv/.ready
	@$(QUIET) asan-configure $(CONFIGURE) -B build/asan -DVERBENA_NATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug \
		-DVERBENA_SANITIZE=address,undefined
	@$(QUIET) asan-build cmake --build build/asan
	@$(QUIET) asan-test $(FIXED_ADDRESSES) ctest --test-dir build/asan --output-on-failure -j 2
	@grep 'tests passed' build/log/asan-test || echo "  no native tests"

tsan-test: .venv/.ready
ifeq ($(TSAN_TESTS),)
	@echo "  tsan-test skipped: no tests/native/**/*_test.cc is named after a ring or a thread"
else ifeq ($(FIXED_ADDRESSES)$(shell test $(RANDOM_BITS) -le 28 && echo fits),)
	@echo "  tsan-test skipped: vm.mmap_rnd_bits is $(RANDOM_BITS) (TSan needs 28 or less) and setarch -R is not permitted"
else
	@$(QUIET) tsan-configure $(CONFIGURE) -B build/tsan -DVERBENA_NATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=Debug \
		-DVERBENA_SANITIZE=thread
	@$(QUIET) tsan-build cmake --build build/tsan --target $(TSAN_TESTS)
	@$(QUIET) tsan-test $(FIXED_ADDRESSES) ctest --test-dir build/tsan --output-on-failure -j 2 -R 'ring|thread'
	@grep 'tests passed' build/log/tsan-test
endif

# What a peer may send, by libFuzzer: tests/fuzz/README.md. The corpus itself is played by asan-test.
FUZZ_TARGETS = $(patsubst tests/fuzz/%.cc,%,$(filter-out %/replay.cc,$(wildcard tests/fuzz/*.cc)))
FUZZ_HERE := $(shell echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, long) { return 0; }' | \
	clang++ -x c++ -fsanitize=fuzzer,address - -o /dev/null 2>/dev/null && echo yes)
# $(FUZZ) TARGET SECONDS: new inputs go to build/fuzz/found, what breaks to build/fuzz/findings.
FUZZ = fuzz() { mkdir -p build/fuzz/found/$$1 build/fuzz/findings; \
	$(FIXED_ADDRESSES) build/fuzz/fuzz_$$1 -max_total_time=$$2 -max_len=4096 -timeout=20 -rss_limit_mb=1024 \
	-print_final_stats=1 -artifact_prefix=build/fuzz/findings/$$1- build/fuzz/found/$$1 tests/fuzz/corpus/$$1; }; fuzz

fuzz-build: .venv/.ready
	@$(QUIET) fuzz-configure cmake -G Ninja -DVERBENA_PYTHON=OFF -B build/fuzz -DVERBENA_FUZZ=ON \
		-DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=Debug -DVERBENA_SANITIZE=address,undefined
	@$(QUIET) fuzz-build cmake --build build/fuzz

fuzz-test: .venv/.ready
ifeq ($(FUZZ_HERE),)
	@echo "  fuzz-test skipped: no clang++ with libFuzzer (apt-get install clang libclang-rt-14-dev)"
else
	@$(MAKE) --no-print-directory fuzz-build
	@for target in $(FUZZ_TARGETS); do $(QUIET) fuzz-$$target sh -c '$(FUZZ) "$$@"' fuzz $$target $$((40 / $(words $(FUZZ_TARGETS)))) || exit 1; done
endif

fuzz: fuzz-build ## fuzz the parsers (TIME=seconds for each, TARGET=…)
	@for target in $(or $(TARGET),$(FUZZ_TARGETS)); do echo "== $$target"; $(FUZZ) $$target $(or $(TIME),600) || exit 1; done

fuzz-seeds: asan-test
	@for target in $(FUZZ_TARGETS); do build/asan/fuzz_$$target --seeds tests/fuzz/corpus/$$target; done

fuzz-merge: fuzz-build
	@for target in $(FUZZ_TARGETS); do mkdir -p build/fuzz/found/$$target; \
	build/fuzz/fuzz_$$target -merge=1 -max_len=400 tests/fuzz/corpus/$$target build/fuzz/found/$$target; done

check: ruff-check format-check types-check imports-check clang-format-check stubs-check ## static checks (-k shows all)

ruff-check: .venv/.ready
	@$(QUIET) $@ ruff check .

format-check: .venv/.ready
	@$(QUIET) $@ ruff format --check .

types-check: .venv/.ready
	@$(QUIET) $@ mypy

imports-check: .venv/.ready
	@PYTHONPATH=src; export PYTHONPATH; $(QUIET) $@ lint-imports --no-cache

clang-format-check: .venv/.ready
	@$(if $(CXX_FILES),$(QUIET) $@ clang-format --dry-run --Werror $(CXX_FILES))

stubs-check: install
	@$(QUIET) $@ python tools/stubs.py --check

stubs: install ## write src/verbena/_native/*.pyi from the build
	@python tools/stubs.py

format: .venv/.ready ## format Python and C++
	@ruff check --quiet --fix-only --exit-zero .
	@ruff format --quiet .
	@$(if $(CXX_FILES),clang-format -i $(CXX_FILES))

test-kernel: install ## test on a real kernel's RDMA stack in a virtual machine (ARGS=…)
	@tests/kernel/build-siw.sh || test $$? = 77
	@status=0; python tests/kernel/boot.py --python --timeout 1200 tests/kernel/guest/suite $(ARGS) || status=$$?; \
	test $$status = 77 || exit $$status

crash-matrix: install ## moves of slots, with SIGKILL at every checkpoint (ARGS="--random 200": and at random instants)
	@python tests/support/crash_matrix.py $(ARGS)

partition-matrix: install ## moves of slots and failovers, with every pair of machines parted (ARGS="--only ROW")
	@python tests/support/partition_matrix.py $(ARGS)

conformance: install ## the OCI's own suite against the registry (SPEC=, IMAGE_SPEC=: clones of its repositories)
	@tools/conformance.sh $(SPEC) $(IMAGE_SPEC)

soak: install ## sessions under every kind of fault for TIME seconds (600), checked
	@python tests/transport/soak.py --seconds $(or $(TIME),600) $(ARGS)

bench-kernel: install ## compare with perftest on Soft-RoCE in the virtual machine (ARGS=…)
	@python tests/kernel/boot.py --python --timeout 1200 .venv/bin/python bench/soft_roce.py $(ARGS)

bench: install ## run the benchmarks (ARGS=…)
ifneq ($(wildcard bench/native/*.cc),)
	@$(QUIET) bench-configure $(CONFIGURE) -B build/bench -DVERBENA_NATIVE_BENCH=ON
	@$(QUIET) bench-build cmake --build build/bench
endif
	@python bench/run.py $(ARGS)

site: .venv/.ready ## build the documentation's site into build/site; a warning is an error
	@export NO_MKDOCS_2_WARNING=1; $(QUIET) $@ python -m mkdocs build && echo "  build/site/index.html"

wheels: .venv/.ready ## dist: the source distribution, and a wheel for each CPython here, tried (ARGS=…)
	@python tools/wheels.py $(ARGS)

docs: install ## generate docs/reference
	@python tools/reference.py

clean: ## remove everything built, .venv too
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
