# A short front of the CMake build; everything it makes is under build/.
#   make                   build/pantile and the libraries
#   make demo              the ladder on real histories
#   make test              every test; the last line is the sum
#   make test-peers        the attention of another library's model replaced by ours
#   make versus            side by side with what a user could run instead; FULL=1: every shape, resumable
#   make sanitize          the quick tests under ASan + UBSan and under TSan
#   make neon              the quick tests on ARM, by cross compiler and qemu
#   make install PREFIX=   libraries, headers, command
#   make format            clang-format over all sources
SHELL := /bin/bash -o pipefail
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
VENV := build/venv

# $(call configure,folder,options) and $(call compile,folder,targets): CMake speaks only when it fails,
# and the compiler's progress becomes "[ 12%] src/api/check.c".
CMAKE := env -u MAKEFLAGS -u MAKELEVEL cmake
configure = mkdir -p $(1) && { $(CMAKE) -S . -B $(1) $(2) >$(1)/configure.log 2>&1 \
	|| { cat $(1)/configure.log; false; }; }
compile = $(CMAKE) --build $(1) -j $(JOBS) --target $(2) 2>&1 | sed -u -E \
	-e 's,Building C object CMakeFiles/[^/]+\.dir/(.*)\.o$$,\1,' -e 's,Linking C .* ,,'
build_tests = $(call configure,$(1),-DPANTILE_BUILD_TESTS=ON $(2)) && $(call compile,$(1),all)

.PHONY: all demo test test-peers versus quick sanitize asan tsan neon install format clean

all:
	@$(call configure,$(BUILD))
	@$(call compile,$(BUILD),pantile pantile_static pantile_command)

demo: all
	@python3 tools/fetch_ml100k.py
	@$(BUILD)/pantile demo

test: $(VENV)/stamp
	@$(call build_tests,$(BUILD))
	@tests/run.py $(BUILD) --python $(VENV)/bin/python

test-peers: $(VENV)-peers/stamp
	@$(call configure,$(BUILD),-DPANTILE_BUILD_PYTHON=ON)
	@$(call compile,$(BUILD),pantile pantile_torch)
	@PANTILE_BUILD=$(BUILD) $(VENV)-peers/bin/python -m pytest -q -p no:cacheprovider tests/peers/check_rechub.py

# VERSUS: more options of bench/versus/versus.py.
SET := $(if $(FULL),full,quick)
versus: $(VENV)-versus/stamp
	@$(call configure,$(BUILD),-DPANTILE_BUILD_PYTHON=ON)
	@$(call compile,$(BUILD),pantile pantile_command)
	@$(VENV)-versus/bin/python bench/versus/versus.py --set $(SET) --build $(BUILD) --out $(BUILD)/versus-$(SET).jsonl $(VERSUS)
	@test -f $(BUILD)/ladder.md || $(VENV)-versus/bin/python bench/versus/ladder.py --out $(BUILD)
	@$(VENV)-versus/bin/python bench/versus/roofline.py $(if $(FULL),,--quick) --build $(BUILD)
	@$(VENV)-versus/bin/python bench/versus/report.py $(BUILD)/versus-$(SET).jsonl --ladder $(BUILD)/ladder.md \
		--roofline $(BUILD)/roofline.jsonl --md $(BUILD)/versus-$(SET).md

$(VENV)/stamp: tests/requirements.txt
$(VENV)-peers/stamp: tests/peers/requirements.txt
$(VENV)-versus/stamp: bench/versus/requirements.txt
$(VENV)/stamp $(VENV)-peers/stamp $(VENV)-versus/stamp:
	@echo "Python packages for $(@D)"
	@python3 -m venv $(@D)
	@$(@D)/bin/pip install -q --disable-pip-version-check -r $<
	@touch $@

# The quick tests in another build: make quick BUILD=build/clang with CC=clang in the environment.
quick:
	@$(call build_tests,$(BUILD))
	@tests/run.py $(BUILD) --quick

sanitize: asan tsan

# Asserts are on in these two.
checked = -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_C_FLAGS_DEBUG=-g -O1" "-DPANTILE_SANITIZE=$(1)"
comma := ,

asan:
	@$(call build_tests,build/asan,$(call checked,address$(comma)undefined))
	@tests/run.py build/asan --quick

# The sanitizer's memory map wants a fixed layout on some kernels; some containers forbid to ask for it.
tsan:
	@$(call build_tests,build/tsan,$(call checked,thread))
	@tests/run.py build/tsan --quick --prefix "$$(setarch -R true 2>/dev/null && echo setarch -R)"

neon:
	@$(call build_tests,build/neon,-DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake)
	@tests/run.py build/neon --quick --prefix "qemu-aarch64-static -L /usr/aarch64-linux-gnu"

install: all
	@$(CMAKE) --install $(BUILD) --prefix $(PREFIX)

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf build
