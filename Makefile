# Drydock's targets. Everything works from a clean clone with Go alone, and with an empty module cache; what a
# target needs besides is fetched by the target itself into .cache/, pinned.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

GO    ?= go
CACHE := $(CURDIR)/.cache
TOOLS := $(CACHE)/bin
LINT  := $(TOOLS)/golangci-lint

# The programs carry no VCS stamp: a clone that belongs to another user, or a source archive, builds all the same.
export GOFLAGS := $(strip -buildvcs=false $(filter-out -buildvcs%,$(shell $(GO) env GOFLAGS)))

TEST_TIMEOUT ?= 10m
FUZZTIME     ?= 20s
PKG          ?= ./...

##@ Use

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the programs into bin/
	$(GO) build -trimpath -o bin/ ./cmd/...

.PHONY: demo
demo: build ## four publishers, two receivers, three versions on this machine, proven byte for byte (ARGS="--keep" …)
	bin/refitctl demo $(ARGS)

##@ Check

# Two cores are enough: go test runs as many packages, and as many parallel tests in each, as there are cores.
# Go reports CGO_ENABLED=0 by itself where no C compiler exists, and the race detector needs one.
.PHONY: test
test: ## run the tests, with the race detector where a C compiler exists (PKG=./pkg/plan/… for some)
	@race=; if [ "$$($(GO) env CGO_ENABLED)" = 1 ]; then race=-race; echo "race detector: on"; \
	else echo "race detector: off, no C compiler"; fi; \
	set -x; $(GO) test $$race -shuffle=on -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (20s)
	@grep -rnoE '^func Fuzz[A-Za-z0-9_]+' --include='*_test.go' . | sed -E 's|^(.*)/[^/]+:[0-9]+:func |\1 |' | sort -u | \
	while read -r dir target; do \
		echo "== $$dir $$target"; \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir"; \
	done

.PHONY: cover
cover: ## test coverage by package, and .cache/cover.html
	@mkdir -p $(CACHE)
	$(GO) test -timeout $(TEST_TIMEOUT) -coverpkg=./... -coverprofile=$(CACHE)/cover.out $(PKG)
	@$(GO) tool cover -html=$(CACHE)/cover.out -o $(CACHE)/cover.html
	@$(GO) tool cover -func=$(CACHE)/cover.out | tail -1

##@ Tidy up

.PHONY: clean
clean: ## remove what builds and tests made; keep the tools in .cache/bin
	rm -rf bin dist $(CACHE)/cover.out $(CACHE)/cover.html
	$(GO) clean -testcache

.PHONY: distclean
distclean: clean ## remove .cache too
	rm -rf $(CACHE)
