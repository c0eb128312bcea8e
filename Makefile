# Short names for what the scripts and CMake do; CMake holds the build itself.
PREFIX ?= /usr/local
BUILD := build

.DEFAULT_GOAL := help
.PHONY: help demo build test bench format tidy asan fuzz install package clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## install what is missing, build, draw a red apple
	@./demo

build: ## build the program in Release: build/bin/mere.run
	@scripts/setup build
	@scripts/build mere.run

test: ## build and run every test
	@./test

bench: build ## measure a picture stage by stage; docs/perf compares with other programs
	@scripts/bench

format: ## format all C++ with clang-format 14
	@scripts/format

tidy: ## look for mistakes in src/ with clang-tidy
	@scripts/tidy

asan: ## run the tests with the address and undefined-behaviour sanitizers
	@scripts/asan

fuzz: ## fuzz the readers of outside files, 60 s each
	@scripts/fuzz

install: build ## install under PREFIX (default /usr/local): a tree that can be moved
	@cmake --install $(BUILD) --prefix '$(abspath $(PREFIX))' --component program --strip

package: build ## make dist/*.deb and dist/*.tar.gz
	@scripts/package

clean: ## remove what was built; .deps (the engine) stays
	rm -rf build build-asan build-fuzz build-tidy dist
