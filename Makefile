# MBCAS: everything that people run starts here. `make` lists the targets.

GO ?= go
TAG ?= dev
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# BENCHTIME is the time of each benchmark; FUZZRUNS the runs of each fuzz target, LONGFUZZRUNS those in make test-all.
BENCHTIME ?= 1s
FUZZRUNS ?= 30000
LONGFUZZRUNS ?= 300000

export GOTOOLCHAIN ?= local

# sudo takes Go out of PATH where it was unpacked as https://go.dev/doc/install says.
ifeq ($(shell command -v $(GO) 2>/dev/null),)
export PATH := $(PATH):/usr/local/go/bin
endif

# Go asks git for the commit, and refuses to build where git refuses to answer.
ifeq ($(shell git status --porcelain >/dev/null 2>&1 && echo yes),)
export GOFLAGS := $(GOFLAGS) -buildvcs=false
endif

CLUSTER := bin/mbcas-cluster
COMMANDS := $(notdir $(wildcard cmd/*))
IMAGES := agent controller load
# REGISTRY, and path in it, has the images agent and controller of a release.
REGISTRY ?= mbcas.io
LDFLAGS := -s -w -X main.version=$(VERSION)
BUILD := CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)'
# GENERATED is a command that lists the generated files as they are now.
GENERATED := find api/v1alpha1/zz_generated.deepcopy.go config/crd charts monitoring/dashboards docs/helm.md -type f
# MODULES are the folders of the modules that have code to check.
MODULES := . test/cluster test/chart test/page

.DEFAULT_GOAL := help
.PHONY: help build FORCE go-found generate test test-all ci test-unit ledger deflake fuzz e2e skew rules faults soak mutants fidelity scale bench check check-format \
	check-tidy check-vet check-lint check-generated check-imports check-workflows test-packages node-packages vm-packages page-packages npm-packages \
	page page-test \
	cluster-up cluster-down cluster-addons images load install uninstall manifests dist demo reaction platform is-root \
	measure-programs kind-demo kind-down minikube-install clean

help: ## list the targets
	@awk -F ':.*## ' '/^##@ / { print substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Build

build: go-found $(COMMANDS:%=bin/%) $(CLUSTER) ## build every program into bin/

FORCE:

bin/%: FORCE | go-found
	@$(BUILD) -o $@ ./cmd/$*

bin/mbcas-measure: FORCE | go-found
	@$(BUILD) -o $@ ./test/measure

bin/mbcas-preview: FORCE | go-found
	@$(BUILD) -o $@ ./test/measure/preview

bin/mbcas-scale: FORCE | go-found
	@$(BUILD) -o $@ ./test/scale

bin/mbcas-load: FORCE | go-found
	@$(BUILD) -o $@ ./test/load

$(CLUSTER): FORCE | go-found
	@cd test/cluster && CGO_ENABLED=0 $(GO) build -o ../../$@ ./cmd/mbcas-cluster

go-found:
	@need=$$(sed -n 's/^go //p' go.mod); \
	command -v $(GO) >/dev/null || { echo "no Go in PATH; install Go $$need or newer from https://go.dev/dl"; exit 1; }; \
	have=$$($(GO) version | sed -n 's/.*go\([0-9][0-9.]*\).*/\1/p'); \
	printf '%s\n' "$$need" "$$have" | sort -VC || { echo "Go $$have is too old; install Go $$need or newer from https://go.dev/dl"; exit 1; }

generate: go-found ## write the generated files (deepcopy, CRD, dashboards, Helm chart)
	@$(GO) tool -modfile=tools/controller-gen.mod controller-gen object crd paths=./api/... output:crd:dir=config/crd
	@$(GO) run ./tools/dashboards
	@$(GO) run ./tools/chart

# The page of kubectl mbcas dashboard needs two packages of npm. Programs that are built without them serve a page that says so.
PAGE := internal/page
PAGE_FILES := lit-html/lit-html.js uplot/dist/uPlot.esm.js uplot/dist/uPlot.min.css
# ESBUILD bundles what an exported page has in it.
ESBUILD := node_modules/.bin/esbuild --minify --log-level=warning --target=es2022

page: go-found ## fetch what the page of the dashboard needs into internal/page/dist (npm), and build its market; then make build
	@command -v npm >/dev/null || { echo "no npm; install Node.js with npm (Debian package npm)"; exit 1; }
	@cd $(PAGE) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	@cd $(PAGE)/node_modules && cp $(PAGE_FILES) ../dist/
	@cd $(PAGE)/node_modules && cp lit-html/LICENSE ../dist/lit-html.LICENSE.txt && cp uplot/LICENSE ../dist/uPlot.LICENSE.txt
	@cp "$$($(GO) env GOROOT)/LICENSE" $(PAGE)/dist/Go.LICENSE.txt
	@cd $(PAGE) && $(ESBUILD) --bundle --format=iife --outfile=dist/page.js web/main.js
	@cd $(PAGE) && cat dist/uPlot.min.css web/page.css | $(ESBUILD) --loader=css > dist/page.css
	@cd $(PAGE) && cat "$$($(GO) env GOROOT)/lib/wasm/wasm_exec.js" web/worker.js | $(ESBUILD) --loader=js > dist/worker.js
	@GOOS=js GOARCH=wasm CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(PAGE)/dist/market.wasm ./$(PAGE)/wasm
	@gzip -9nf $(PAGE)/dist/market.wasm

##@ Test

# TESTALL runs suites; tools/testall lists them.
TESTALL := $(GO) run ./tools/testall

test: $(CLUSTER) test-packages node-packages ## run every package, the API server tests and one end-to-end path; the last line counts the tests
	@$(TESTALL)

test-all: $(CLUSTER) test-packages node-packages vm-packages cluster-addons ## run every suite: also virtual nodes, two nodes, other versions, fuzzing at length (90 minutes)
	@$(TESTALL) -tier all -fuzzruns $(LONGFUZZRUNS)

ci: $(CLUSTER) test-packages node-packages
	@$(TESTALL) -tier ci

test-unit: $(CLUSTER) test-packages ## run the tests without a node: unit, property and API server tests; concurrent code with -race
	@$(TESTALL) -only unit

ledger: go-found ## print the ten slowest tests of the last run, and those that failed or were flaky in the last 40
	@$(TESTALL) -ledger

deflake: $(CLUSTER) ## run the tests of PKG (that match RUN) until one fails or 20 minutes are over: random order, two busy loops beside them
	@assets=$$($(CLUSTER) assets) && KUBEBUILDER_ASSETS="$$assets" tools/deflake.sh $(PKG) $(RUN)

page-test: go-found ## run the page in a browser: each view, by keyboard, with 5,000 nodes, and axe (npm, Chromium)
	@$(TESTALL) -only page

fuzz: go-found ## run each fuzz target FUZZRUNS times (30000; make fuzz FUZZRUNS=5000000)
	@$(TESTALL) -only fuzz -fuzzruns $(FUZZRUNS)

e2e: $(CLUSTER) node-packages ## run the end-to-end path on a real node (root)
	@$(TESTALL) -only path

skew: $(CLUSTER) ## run the API server tests on other versions of Kubernetes (the first time 10 to 14 minutes of building)
	@$(TESTALL) -only skew

# SCHEDULES is how many random schedules make faults plays, SEED the first of them.
SCHEDULES ?= 10000
SEED ?= 1

faults: go-found ## play SCHEDULES random schedules of faults (10000; an hour), and each fault at each request; report in out/faults.md
	@mkdir -p out
	@$(GO) test -c -o out/faults.test ./internal/controller
	@cd internal/controller && GOGC=400 ../../out/faults.test -test.timeout 12h -test.run '^(TestSchedules|TestKnownSchedules|TestCrashes)$$' \
		-schedules $(SCHEDULES) -seed $(SEED) -report $(CURDIR)/out/faults.md

# SOAK is how long the soak has load and faults, and TRACES a folder of recorded load for it.
SOAK ?= 24h

soak: go-found ## let a cluster run through SOAK of load, churn and faults (24h) by a clock of its own (15 minutes); report in out/soak.md
	@mkdir -p out
	@$(GO) test -c -o out/soak.test ./internal/controller
	@cd internal/controller && GOGC=400 ../../out/soak.test -test.timeout 12h -test.run '^TestSoak$$' \
		-soak $(SOAK) -seed $(SEED) -traces "$(TRACES)" -soakreport $(CURDIR)/out/soak.md

rules: $(CLUSTER) ## run the unit tests of the alert rules, and each rule with a fault in it (the first time builds Prometheus, 5 minutes)
	@$(TESTALL) -only rules

mutants: $(CLUSTER) ## put bugs into safety-relevant lines, one at a time: the tests must catch each (7 minutes)
	@assets=$$($(CLUSTER) assets) && KUBEBUILDER_ASSETS="$$assets" $(GO) run ./tools/mutants

fidelity: bin/mbcas-lab ## measure how closely the simulator agrees with this machine's kernel; also in out/fidelity (root, Perl; 11 minutes)
	@bin/mbcas-lab fidelity --out out/fidelity

# SCALE is the size: make scale SCALE='-nodes 1000 -pods 30000'. Nodes and pods are simulated; the API server, etcd and the
# controller are real.
SCALE ?= -nodes 100 -pods 3000

scale: $(CLUSTER) bin/mbcas-controller bin/mbcas-scale ## measure MBCAS on a cluster of simulated nodes; also in out/scale (7 minutes)
	@KUBEBUILDER_ASSETS="$$($(CLUSTER) assets)" bin/mbcas-scale $(SCALE)

bench: $(CLUSTER) ## run the benchmarks, 6 minutes; also in out/bench.txt (the first time builds an API server)
	@mkdir -p out
	@bash -c 'set -o pipefail; KUBEBUILDER_ASSETS="$$($(CLUSTER) assets)" $(GO) test -run "^$$" -bench . -benchmem -benchtime $(BENCHTIME) \
		$(sort $(dir $(shell grep -rlE "^func Benchmark" --include=*_test.go cpu market internal actuator 2>/dev/null | sed "s,^,./,"))) | tee out/bench.txt'

check: check-format check-tidy check-vet check-lint check-generated check-imports check-workflows ## format, go.mod, vet, lint, generated files, import rules, workflows

check-format: go-found
	@bad=$$(gofmt -l .) || exit 1; \
	test -z "$$bad" || { echo "not formatted; run gofmt -w on:"; echo "$$bad"; exit 1; }

# What go.mod says is what is imported. Needs no network once the modules are in the cache.
check-tidy: go-found
	@for dir in $(MODULES); do \
		diff=$$(cd $$dir && $(GO) mod tidy -diff) && continue; \
		test -z "$$diff" || { echo "$$diff"; echo "go.mod or go.sum is not tidy; run: (cd $$dir && go mod tidy)"; }; \
		exit 1; \
	done

check-vet: go-found
	@for dir in $(MODULES); do (cd $$dir && $(GO) vet ./...) || exit 1; done

check-lint: go-found
	@for dir in $(MODULES); do \
		(cd $$dir && $(GO) tool -modfile=$(CURDIR)/tools/golangci-lint.mod golangci-lint run --config $(CURDIR)/.golangci.yml ./...) || exit 1; \
	done

check-generated: go-found
	@before=$$($(GENERATED) -exec sha256sum {} + | sort); $(MAKE) --no-print-directory generate || exit 1; \
	test "$$before" = "$$($(GENERATED) -exec sha256sum {} + | sort)" || { echo "generated files were out of date; they are written now, commit them"; exit 1; }

check-imports: go-found
	@$(GO) test -count=1 .

check-workflows: go-found
	@$(GO) tool -modfile=tools/actionlint.mod actionlint .github/workflows/*.yml

test-packages:
	@tools/packages.sh gcc=gcc /usr/include/stdlib.h=libc6-dev corelist=perl || true

# The suites that need them install these, so that a change of something else does not wait for a browser.
page-packages:
	@tools/packages.sh chromium=chromium npm=npm || true

npm-packages:
	@tools/packages.sh npm=npm || true

##@ The local cluster

node-packages:
	@tools/packages.sh containerd=containerd ctr=containerd runc=runc /usr/lib/cni/bridge=containernetworking-plugins || true

vm-packages:
	@tools/packages.sh qemu-system-x86_64=qemu-system-x86 mmdebstrap=mmdebstrap mke2fs=e2fsprogs || true

cluster-up: $(CLUSTER) node-packages ## start a real Kubernetes on this machine (root; the first time builds it, 10 minutes)
	@$(CLUSTER) up

cluster-down: $(CLUSTER) ## stop it and remove everything of it
	@$(CLUSTER) down

cluster-addons: $(CLUSTER) ## build metrics-server and the VPA for it, unless they are built (the first time 6 minutes)
	@$(CLUSTER) addon build

images: $(CLUSTER) $(IMAGES:%=bin/mbcas-%) ## build the image archives into out/images, without a container engine
	@for i in $(IMAGES); do \
		$(CLUSTER) image --name mbcas.io/$$i:$(TAG) -o out/images/$$i.tar bin/mbcas-$$i || exit 1; \
		echo "out/images/$$i.tar"; \
	done

load: images ## load the images into the local cluster, with that of the tests' load
	@$(CLUSTER) load $(IMAGES:%=out/images/%.tar)

##@ Install

# KUBECTL speaks to the local cluster, whatever KUBECONFIG says: these targets must not
# change another cluster by accident.
LOCAL_KUBECTL = $$($(CLUSTER) assets)/kubectl --kubeconfig $$($(CLUSTER) kubeconfig)

install: load ## install MBCAS on the local cluster, from config/overlays/local
	@$(LOCAL_KUBECTL) apply -k config/overlays/local
	@$(LOCAL_KUBECTL) -n mbcas-system rollout status deployment/mbcas-controller --timeout=120s
	@$(LOCAL_KUBECTL) -n mbcas-system rollout status daemonset/mbcas-agent --timeout=120s

uninstall: $(CLUSTER) ## restore every pod on the local cluster, then take MBCAS off it
	@KUBECTL="$(LOCAL_KUBECTL)" config/uninstall.sh

manifests: $(CLUSTER) ## write the manifests for a cluster of your own to out/mbcas.yaml
	@mkdir -p out
	@$$($(CLUSTER) assets)/kubectl kustomize config/base > out/mbcas.yaml
	@echo "out/mbcas.yaml"

dist: go-found page ## write the files of a release to dist/VERSION (make dist VERSION=v0.1.0 REGISTRY=ghcr.io/mbcas; 10 minutes the first time)
	@$(GO) run ./tools/dist -version '$(VERSION)' -registry '$(REGISTRY)'

##@ Demo

demo: is-root bin/mbcas-preview ## the same load with no limits, declared limits and MBCAS: 8 minutes (root; FULL=1 measures for 30; KEEP=1 leaves the cluster running)
	@bin/mbcas-preview demo $(MAKE) --no-print-directory measure-programs
	@bin/mbcas-measure $(MEASURE_FLAGS) demo

reaction: is-root measure-programs ## how fast limits are raised, stage by stage, in 44 steps of four kinds: 10 minutes (root; FULL=1: 100 steps)
	@bin/mbcas-measure $(MEASURE_FLAGS) reaction

platform: is-root measure-programs ## twenty pods in a quota, and a service under an HPA, with and without MBCAS: 17 minutes (root; FULL=1 measures for 35)
	@bin/mbcas-measure $(MEASURE_FLAGS) quota hpa

MEASURE_FLAGS = $(if $(FULL),--full) $(if $(KEEP),--keep)

is-root:
	@test "$$(id -u)" -eq 0 || { echo "this runs a node, which needs root; use: sudo make $(MAKECMDGOALS)"; exit 1; }

measure-programs: $(CLUSTER) node-packages bin/mbcas-agent bin/mbcas-controller bin/mbcas-load bin/mbcas-measure
	@$(CLUSTER) assets

kind-demo: ## install on a new kind cluster, with a small shop (needs kind, docker and kubectl)
	@tools/install.sh kind

kind-down: ## delete that kind cluster
	@tools/install.sh kind-down

minikube-install: ## install on a minikube that runs (needs minikube, docker and kubectl)
	@tools/install.sh minikube

##@ Clean up

clean: ## remove bin/, out/ and dist/ (the cluster's programs stay in ~/.cache/mbcas)
	@rm -rf bin out dist
