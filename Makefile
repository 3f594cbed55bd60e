# Halcyon. `make` alone shows the targets; each does its own set-up.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
CLUSTER ?= halcyon
MARK ?= "not more and not keda and not gateway and not nodes"
CACHE := $(or $(HALCYON_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/halcyon)

# Bytecode is kept also where the environment says otherwise: tests start hundreds of Python processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help bootstrap properties coverage demo demo-down test test-more lint format unit simulator integration e2e test-readme cluster-up cluster-down images crds docs lock bench-scaling bench-ablation bench-reaction bench-dataplane bench-gpu clean

help: ## show the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

bootstrap: ## make the Python environment in .venv
	@scripts/bootstrap

demo: bootstrap ## the main job: a cluster, Halcyon, a model, load, scaling (CLUSTER=existing: use KUBECONFIG)
	@$(PY) -m demo up --cluster $(CLUSTER)
	@$(PY) -m benchmarks.quality record demo

demo-down: bootstrap ## stop the cluster and the processes of the demo
	@$(PY) -m demo down --cluster $(CLUSTER)

test: lint binaries images unit simulator integration e2e ## lint, unit, simulator, and the way of the demo: integration, e2e
	@$(PY) -m benchmarks.quality record test

test-more: bootstrap ## what goes beyond: the balancer's features, rollouts, the planner, charts, on the API server and with pods
	@$(MAKE) -s site integration e2e MARK=more
	@$(PY) -m benchmarks.quality record test-more

.PHONY: quality
quality: bootstrap ## structure, names and words against their targets, into build/quality and docs/quality/house.md; prints what falls short
	@PATH=$(CURDIR)/.venv/bin:$$PATH $(PY) -m benchmarks.quality

.PHONY: typecheck
typecheck: bootstrap ## the types of the dashboard's pages, by TypeScript
	@scripts/typecheck

.PHONY: test-browser
test-browser: typecheck binaries ## the dashboard in a real browser; figures into build/browser.json, screenshots into docs/images
	@HALCYON_HELM=$${HALCYON_HELM:-$$(ls -t $(CACHE)/bin/*/helm 2>/dev/null | head -1)} scripts/browser

.PHONY: binaries
binaries: bootstrap
	@$(PY) -m e2e.cluster build >/dev/null

lint: bootstrap ## ruff, mypy, import layers, generated files
	@scripts/lint

format: bootstrap ## format the code
	@.venv/bin/ruff format -q . && .venv/bin/ruff check -q --fix .

unit: bootstrap ## pure tests, two minutes on two cores
	@$(PY) -m tests.parts tests/unit -q

properties: bootstrap ## the unit tests and those of the planner with other drawn examples, and 100 times as many
	@$(PY) -m pytest tests/unit tests/simulator/planner -q -n 2 --hypothesis-profile=thorough

coverage: bootstrap ## the unit tests' coverage, by line and branch, into build/coverage
	@$(PY) -m pytest tests/unit -q -n 2 --cov=halcyon --cov=halcyon_batch --cov=halcyon_cli --cov=halcyon_measure --cov=halcyon_tune --cov-branch --cov-report=term:skip-covered --cov-report=html:build/coverage

simulator: bootstrap ## the simulator's tests
	@$(PY) -m pytest tests/simulator -q -n 2

integration: bootstrap ## tests against a real API server (KWOK nodes and pods)
	@HALCYON_HELM=$${HALCYON_HELM:-$$(ls -t $(CACHE)/bin/*/helm 2>/dev/null | head -1)} \
	  $(PY) -m pytest tests/integration -q -n 2 --dist loadfile -m $(MARK)

e2e: bootstrap ## tests with real pods: the demo's path as assertions
	@$(PY) -m pytest e2e/scenarios -q -m $(MARK)

test-readme: bootstrap ## the commands of README in a fresh cluster with an image registry, and the demo on it as on an existing cluster
	@$(PY) -m pytest e2e/readme -q

.PHONY: test-quickstart
test-quickstart: bootstrap ## what a new user runs: README word by word, and the shell blocks of docs/quickstart.md
	@$(PY) -m pytest e2e/readme -q
	@$(PY) -m pytest e2e/guides/test_guides.py -q -k quickstart

.PHONY: test-guides
test-guides: bootstrap ## every shell block of docs/quickstart.md, docs/troubleshooting.md and docs/guides, in a fresh cluster with the chart
	@$(PY) -m pytest e2e/guides -q

COMPAT := $(addprefix tests/integration/,api/test_crd.py api/test_hostile_specs.py api/test_site_policy.py \
  autoscaling/test_direct_scaling.py autoscaling/test_planner.py chart/test_installation.py chart/test_manifests.py \
  cli/test_refresh.py metricsapi/test_metrics_api.py $(addprefix operator/test_,bad_input.py children.py conflicting_objects.py \
  image_source.py leader_election.py network_policies.py rights.py rollout.py routing_modes.py secrets.py))

.PHONY: test-compat
test-compat: bootstrap ## tests that depend on the version of the API server, with the oldest and the newest supported one (VERSIONS="1.31 1.36"), control planes only
	@for version in $(or $(VERSIONS),1.31 1.36); do \
	  echo "test-compat: Kubernetes $$version"; export HALCYON_KUBERNETES=$$version; \
	  HALCYON_HELM=$$($(PY) -m e2e.cluster build | tail -1)/helm $(PY) -m pytest $(COMPAT) -q -n 2 --dist loadfile || exit 1; \
	done

.PHONY: test-python
test-python: bootstrap ## the unit tests with another release of Python, from Debian (PYTHON=3.14 or 3.13); needs root, and apt
	@$(PY) scripts/python_release.py $(or $(PYTHON),3.14)

.PHONY: test-clients
test-clients: bootstrap binaries ## NVIDIA's perf_analyzer and PyTriton's ModelClient against models on the cluster, with and without balancers
	@$(PY) -m pytest e2e/scenarios/test_clients.py -q -m more

.PHONY: test-nodes
test-nodes: bootstrap binaries ## a cluster of two real nodes: spread, drain, taints, the loss of a node and its return, with pods under load; needs root
	@$(PY) -m pytest e2e/scenarios/test_two_nodes.py e2e/scenarios/test_node_loss.py -q -m nodes

.PHONY: test-adversary
test-adversary: bootstrap ## attacks by a tenant and by a client as tests, and what each attack costs, into build/quality and docs/quality/hold.md
	@$(PY) -m pytest tests/adversary -q
	@$(PY) -m benchmarks.hold.tenant_costs
	@$(PY) -m benchmarks.hold.tenant
	@$(PY) -m benchmarks.hold.clients

.PHONY: test-keda
test-keda: bootstrap binaries ## the real KEDA beside Halcyon, on the API server; builds it the first time (10 minutes)
	@$(PY) -m pytest tests/integration -q -m keda

.PHONY: test-gateway
test-gateway: bootstrap binaries ## the real Envoy Gateway in front of models, on the API server; builds it the first time (10 minutes), and needs root
	@$(PY) -m pytest tests/integration -q -m gateway

.PHONY: test-docker
test-docker: bootstrap ## the same Dockerfiles under a real docker daemon: built, compared, run; and a push by podman to a registry
	@$(PY) -m pytest images/test_docker.py images/test_push.py -q

.PHONY: test-supply
test-supply: bootstrap ## bills of materials against what dpkg and Python find in the images, and two builds from nothing compared
	@$(PY) -m pytest images/test_sbom.py images/test_reproducible.py -q

cluster-up: bootstrap ## start the embedded Kubernetes; the first time, build it
	@$(PY) -m e2e.cluster up --name $(CLUSTER)

cluster-down: bootstrap ## stop the embedded Kubernetes
	@$(PY) -m e2e.cluster down --name $(CLUSTER)

images: bootstrap ## build the images; `make images push REGISTRY=...` pushes them and writes build/images-values.yaml
	@$(if $(and $(WITH),$(filter push,$(MAKECMDGOALS))),:,$(PY) -m images build)

.PHONY: kind
kind: bootstrap ## build the images with docker or podman and load them into a kind cluster (KIND_CLUSTER=kind); writes build/images-values.yaml
	@$(PY) -m images kind --cluster $(or $(KIND_CLUSTER),kind)

.PHONY: push
push: $(if $(WITH),bootstrap,images) ## push the images to REGISTRY (WITH=docker or podman: build with it, without root)
	@test -n "$(REGISTRY)" || { echo "push: REGISTRY is not set; for example: make images push REGISTRY=127.0.0.1:5000/halcyon" >&2; exit 2; }
	@$(PY) -m images push --registry $(REGISTRY) --values build/images-values.yaml $(if $(WITH),--with $(WITH)) $(if $(PLATFORMS),--platforms $(PLATFORMS))

.PHONY: release
release: bootstrap ## wheels, charts with digests, install.yaml, the command line as one file, SBOMs, checksums: build/release (DRY=1: without a push before)
	@$(PY) scripts/release.py $(if $(DRY),--dry-run) $(if $(WITHOUT_SBOM),--without-sbom)

.PHONY: sbom
sbom: bootstrap ## what is in the images that the chart refers to, as CycloneDX documents: build/sbom
	@$(PY) -m images sbom

.PHONY: audit
audit: bootstrap ## packages that Debian has updated since the images were built
	@$(PY) -m images audit

crds: bootstrap ## generate the CRD from the models
	@scripts/generate crds

docs: bootstrap ## generate the reference pages
	@scripts/generate docs
	@scripts/generate monitoring

.PHONY: site
site: bootstrap ## docs/ as a site: build/site/VERSION (VERSION=0.2.0; default: the tag, or dev), with search, for any web server; keeps other versions
	@$(PY) scripts/site.py $(if $(VERSION),--version $(VERSION))

lock: bootstrap ## resolve the dependencies again, and write them to requirements/
	@scripts/lock

bench-scaling: bootstrap ## every scaler on every scenario, simulated: build/bench/scaling.json, docs/benchmarks/scaling.md (CHECK=1: the page's rows again, compared)
	@nice -n 10 $(PY) -m halcyon_simulator.benchmark.$(if $(CHECK),page_check,table) $(if $(FULL),--full)

bench-ablation: bootstrap ## the planner without each part that learns: build/bench/ablation.json, a section of docs/benchmarks/scaling.md
	@nice -n 10 $(PY) -m halcyon_simulator.benchmark.ablation

bench-reaction: bootstrap ## from a load step to /scale, measured (ONLY=fleet: a part): build/bench/reaction.json, docs/benchmarks/reaction.md
	@$(PY) -m benchmarks.reaction $(foreach part,$(ONLY),--only $(part))

bench-dataplane: bootstrap ## what the balancer costs and loses, beside its peers (ONLY=loss: a part): build/bench/dataplane.json, docs/benchmarks/dataplane.md
	@$(PY) -m benchmarks.dataplane $(ONLY)

bench-gpu: bootstrap ## what is learnt from a recorded GPU (RECORDING=FILE: another one's): build/bench/gpu.json, docs/benchmarks/gpu.md
	@$(PY) -m benchmarks.gpu $(if $(RECORDING),--recording $(RECORDING))

.PHONY: bench-faults
bench-faults: bootstrap ## faults at every step of the operator, goes on where it has ended (ONLY=2.1: a row): docs/quality/faults.md
	@$(PY) -m benchmarks.hold.faults $(ONLY)

.PHONY: test-reliability
test-reliability: bootstrap ## the goals R-1 to R-26 at their counts, goes on where it has ended (60 minutes; MINUTES=20: fewer): docs/quality/reliability.md
	@status=0; $(if $(MINUTES),HALCYON_RELIABILITY_MINUTES=$(MINUTES)) $(PY) -m pytest tests/reliability -q || status=$$?; \
	  $(PY) -m benchmarks.hold.reliability; exit $$status

.PHONY: scan
scan: bootstrap ## checkov and kube-score on the chart and on a model's objects: findings without a reason, into docs/quality/hold.md
	@$(PY) -m benchmarks.hold.scanners

.PHONY: bench-size
bench-size: bootstrap ## one operator with 100 to 2,000 models (SIZES=100,300: fewer): docs/benchmarks/size.md, docs/quality/hold.md
	@$(if $(SIZES),SIZES=$(SIZES)) $(PY) -m benchmarks.hold.size

.PHONY: bench-tune
bench-tune: bootstrap ## halcyon tune, taught capacities and advice against known truths, goes on where it has ended (ONLY=6.2: a row, LAWS=20: fewer laws): docs/quality/tune.md
	@$(if $(LAWS),LAWS=$(LAWS)) $(PY) -m benchmarks.tune $(ONLY)

.PHONY: bench-batch
bench-batch: bootstrap ## batch inference beside users, with kills, and the estimate of its end: docs/quality/tune.md
	@$(PY) -m benchmarks.tune.lower
	@$(PY) -m benchmarks.tune.batch

.PHONY: bench-measure
bench-measure: bootstrap ## halcyon bench against known truths, goes on where it has ended (ONLY=1.1: a row): docs/quality/measure.md, docs/benchmarks/measure.md
	@$(PY) -m benchmarks.measure $(ONLY)

clean: ## remove what was built in the tree (the caches outside stay)
	@rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
