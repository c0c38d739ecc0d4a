# The only front door: `make` lists what there is. Every target installs what it needs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv || echo .uv/bin/uv)
READY := $(VENV)/.ready
# CLUSTER=current makes demo and e2e use the cluster of your own kubeconfig instead of the devcluster.
CLUSTER ?= devcluster
export CLUSTER
# Some machines forbid Python to keep what it has compiled; here hundreds of processes would compile the same again.
unexport PYTHONDONTWRITEBYTECODE
IMG ?= steersman.dev/databases-operator:dev
DISTRIBUTIONS := packages/steersman packages/steersman-cel packages/steersman-manifests packages/steersman-testing packages/steersman-cli \
	operators/databases devcluster
PROJECTS := pyproject.toml $(DISTRIBUTIONS:%=%/pyproject.toml)
UNIT := $(wildcard packages/*/tests/unit) operators/databases/tests/unit benchmarks/tests/unit tests/unit
# Workers take tests without a group in this order: the longest ones first, the many short ones of the API server last.
TESTING := packages/steersman-testing/tests/integration
SIMULATED := operators/databases/tests/simulated
INTEGRATION := tests/integration operators/databases/tests/integration \
	$(filter-out $(TESTING),$(wildcard packages/*/tests/integration)) $(TESTING)
E2E := operators/databases/tests/e2e tests/e2e
SERVERS := postgresql-15 mariadb-server-core redis-server

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  \033[36m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.uv/bin/uv:
	@echo "==> Installing uv with pip into .uv (a few seconds)"
	@$(PYTHON) -m venv .uv || { echo "python3 -m venv failed: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@.uv/bin/pip install --quiet --require-hashes -r requirements/uv.txt

$(READY): requirements/dev.txt $(PROJECTS) | $(if $(filter .uv/bin/uv,$(UV)),.uv/bin/uv)
	@echo "==> Installing the pinned Python packages into $(VENV) (under a minute)"
	@[ -x $(BIN)/python ] || $(UV) venv --quiet --python $(PYTHON) $(VENV)
	@$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements/dev.txt
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation $(DISTRIBUTIONS:%=-e %)
	@touch $@

.PHONY: demo
demo: $(READY) ## PostgreSQL switchover under load and MySQL failover on a real cluster (first run 10 min, later 2 min)
	@$(BIN)/python operators/databases/demo

.PHONY: demo-backup
demo-backup: $(READY) ## A dropped table comes back from the backups of PostgreSQL and MySQL (first run 14 min, later 3 min)
	@$(BIN)/python operators/databases/demo backup

.PHONY: demo-operator
demo-operator: $(READY) ## An example operator and an API server on this machine, without root or a cluster (15 s)
	@$(BIN)/python examples/myapp/demo

.PHONY: test
test: $(READY) ## Unit tests of all packages, without root, Go or database servers (3 min)
	@# One worker more than cores, since some tests wait for processes.
	@$(BIN)/pytest -n 3 --dist loadgroup --durations 30 --junitxml build/junit-unit.xml $(UNIT)

.PHONY: test-simulated
test-simulated: $(READY) ## The whole database operator on simulated clusters, in virtual time (7 min)
	@$(BIN)/pytest -n 3 --dist loadgroup --durations 30 --junitxml build/junit-simulated.xml $(SIMULATED)

.PHONY: test-integration
test-integration: $(READY) ## Tests with a real API server and real database servers (17 min, plus 9 min for one build)
	@$(BIN)/python -m devcluster build
	@$(BIN)/python -m devcluster packages $(SERVERS)
	@$(BIN)/python -m devcluster servers
	@PYTHONPATH=tests/support $(BIN)/python -m framework_support.build_test_tools
	@# Tests of the object store are skipped where it is not built.
	@[ "$(MATRIX)" != whole ] || $(BIN)/python -m devcluster store build
	@# More workers than cores, since many tests wait for servers.
	@$(BIN)/pytest -n 4 --dist loadgroup --durations 30 --junitxml build/junit-integration.xml $(INTEGRATION)

.PHONY: conformance
conformance: $(READY) ## Run each conformance case on both API servers and compare the responses (3 min)
	@$(BIN)/python -m devcluster build
	@PYTHONPATH=tests/support:packages/steersman-testing/tests/support $(BIN)/python -m apiserver_cases

.PHONY: differential
differential: $(READY) ## Compare examples/prometheus with prometheus-operator on generated monitors (10 min)
	@$(BIN)/python -m devcluster build
	@export PROMETHEUS_DIRECTORY=$$($(BIN)/python -m devcluster servers | grep prometheus)/usr/bin; \
		cd examples/prometheus && $(abspath $(BIN))/python -m pytest --timeout 1200 tests/differential

.PHONY: e2e
e2e: $(READY) ## All end-to-end tests on the devcluster, including faults (4 hours)
	@$(MAKE) faults
	@# Two of them are lost at a time.
	@$(BIN)/python -m devcluster up --nodes 3
	@$(BIN)/pytest -v --durations 30 --timeout 1800 -n 3 --dist loadgroup -m "not disruptive" $(E2E)
	@$(BIN)/pytest -v --durations 30 --timeout 1800 -m disruptive $(E2E)
	@[ "$(CLUSTER)" = current ] || $(MAKE) e2e-ipv6

.PHONY: e2e-long
e2e-long: $(READY) ## Repeated, slow and matrix end-to-end tests; their results are committed (hours)
	@$(BIN)/python -m devcluster up --nodes 3
	@$(BIN)/pytest -v --durations 30 --timeout 7200 -m long $(E2E)

.PHONY: e2e-ipv6
e2e-ipv6: $(READY) ## Smoke and address tests on a separate devcluster with IPv6 only (15 min)
	@export DEVCLUSTER=ip6 DEVCLUSTER_IP=6 CLUSTER=; trap '$(BIN)/python -m devcluster down' EXIT; \
		$(BIN)/pytest -v --durations 30 --timeout 1800 -m "smoke or addresses" $(E2E)

.PHONY: faults
faults: $(READY) ## All faults at full scale on the real API server, and MySQL network partitions (25 min)
	@$(BIN)/python -m devcluster build
	@FAULTS=whole $(BIN)/pytest packages/steersman-testing/tests/integration/faults operators/databases/tests/integration/images/test_mysql_group.py

.PHONY: simulate
simulate: $(READY) ## All simulated faults and spec changes for the database operator, the examples and the gallery (hours)
	@SIMULATE=whole $(BIN)/pytest --steersman-processes auto operators/databases/tests/simulated/scenarios/test_databases.py operators/databases/tests/simulated/scenarios/test_users.py \
		operators/databases/tests/simulated/scenarios/test_postgresql_clusters.py operators/databases/tests/simulated/scenarios/test_mysql_clusters.py operators/databases/tests/simulated/sql/inspector/test_hanging_servers.py operators/databases/tests/simulated/sql/database/test_controller.py operators/databases/tests/unit/features/read_replicas/test_model.py \
		operators/databases/tests/simulated/scenarios/test_transitions.py packages/steersman-testing/tests/unit/test_gallery.py \
		operators/databases/tests/simulated/features/backup/test_controller.py operators/databases/tests/simulated/features/restore \
		operators/databases/tests/simulated/features/dump/test_interruptions.py operators/databases/tests/simulated/images/agent/test_bootstrap_explored.py \
		operators/databases/tests/simulated/features/verification/test_verification.py \
		packages/steersman-testing/tests/unit/simulation packages/steersman-testing/tests/unit/transitions \
		packages/steersman/tests/unit/cache/test_interleavings.py packages/steersman/tests/unit/webhook/test_cert_rotator.py
	@for example in leader myapp; do \
		(cd examples/$$example && SIMULATE=whole $(abspath $(BIN))/python -m pytest --steersman-processes auto tests/unit/test_simulated.py) || exit 1; done

.PHONY: partitions
partitions: $(READY) ## 50 faults of the leaders of examples/leader, with figures (10 min; RUNS=50)
	@cd examples/leader && RUNS=$(or $(RUNS),50) $(abspath $(BIN))/python -m pytest -s tests/integration/test_partitions.py

.PHONY: e2e-smoke
e2e-smoke: $(READY) ## The demo and one fault on the devcluster (first run 8 min, later 2 min)
	@$(BIN)/pytest --timeout 900 -m smoke $(E2E)

.PHONY: bench
bench: $(READY) ## Benchmarks against controller-runtime, kube-rs and Kopf (3 hours; BENCH="--scenario a --runs 1")
	@$(BIN)/python -m devcluster build
	@$(BIN)/python -m benchmarks $(BENCH)

.PHONY: bench-calls
bench-calls: $(READY) ## Compare the function calls per object of a cold start with the recorded count (1 min)
	@$(BIN)/python -m devcluster build
	@$(BIN)/python -m benchmarks.calls $(BENCH)

.PHONY: bench-limits
bench-limits: $(READY) ## CPU and memory of the worst input at each limit of the database operator (10 s)
	@PYTHONPATH=tests/support:operators/databases/tests/support $(BIN)/python -m benchmarks.limits

.PHONY: bench-databases
bench-databases: $(READY) ## Benchmarks of the database operator on the devcluster (6 hours; BENCH="--scenario drift --runs 1")
	@# A node for each instance: one of them is cut off.
	@$(BIN)/python -m devcluster up --nodes 3
	@PYTHONPATH=tests/support:operators/databases/tests/support $(BIN)/python -m benchmarks.databases $(BENCH)

.PHONY: bench-testing
bench-testing: $(READY) ## Benchmarks of the in-memory API server: start and object creation (2 min; BENCH="--runs 1")
	@$(BIN)/python -m benchmarks.testing_server $(BENCH)

.PHONY: lint
lint: $(READY) ## Check formatting, lint, types, layers, generated files, documentation links and repository rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/python scripts/check_tree.py
	@$(BIN)/python scripts/versions.py --check
	@$(BIN)/python scripts/public_api.py --check
	@$(BIN)/python scripts/check_prose.py
	@$(BIN)/python scripts/check_crds.py
	@$(BIN)/python scripts/field_reference.py --check
	@$(BIN)/python scripts/images.py --check
	@$(BIN)/python scripts/diagrams.py --check
	@$(BIN)/python scripts/articles.py --check
	@$(BIN)/python -m steersman_databases.features.monitoring.generate . --check
	@$(BIN)/mkdocs build --strict --quiet
	@$(BIN)/pyright

.PHONY: format
format: $(READY) ## Format the code and apply ruff's fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: manifests
manifests: $(READY) ## Generate CRDs, RBAC, the field reference, diagrams and the page of the articles
	@cd operators/databases && $(abspath $(BIN))/steersman manifests
	@$(BIN)/python scripts/field_reference.py
	@$(BIN)/python scripts/images.py
	@$(BIN)/python scripts/diagrams.py
	@$(BIN)/python scripts/articles.py
	@$(BIN)/python -m steersman_databases.features.monitoring.generate .

.PHONY: packages
packages: $(READY) ## Write install.yaml and Helm chart of the database operator with image IMG to operators/databases/dist
	@cd operators/databases && $(abspath $(BIN))/steersman installer --image $(IMG)
	@cd operators/databases && $(abspath $(BIN))/steersman chart --image $(IMG)

.PHONY: requirements
requirements: ## Pin the newest allowed package versions with hashes
	@$(UV) lock --upgrade
	@$(UV) export --quiet --all-packages --all-groups --all-extras --no-emit-workspace --no-header -o requirements/dev.txt
	@$(UV) export --quiet --package steersman-databases --no-dev --no-emit-workspace --no-header -o requirements/operator.txt
	@$(UV) export --quiet --package steersman --no-dev --group build --group examples --extra uvloop --extra webhooks \
		--no-emit-workspace --no-header -o requirements/project.txt
	@cd benchmarks/kopf_operator && $(abspath $(UV)) pip compile --quiet --upgrade --generate-hashes --no-header --no-annotate \
		--universal --python-version 3.11 requirements.in -o requirements.txt

.PHONY: docs
docs: $(READY) ## Build the documentation into site/
	@$(BIN)/mkdocs build --strict

.PHONY: cluster
cluster: $(READY) ## Start the devcluster with metrics-server (first run 8 min, later 30 s; NODES=3)
	@$(BIN)/python -m devcluster up $(addprefix --nodes=,$(NODES))
	@[ "$(CLUSTER)" = current ] || $(BIN)/python -m devcluster metrics

.PHONY: cluster-down
cluster-down: $(READY) ## Stop and remove the devcluster
	@$(BIN)/python -m devcluster down

.PHONY: clean
clean: ## Remove build output; caches in ~/.cache/steersman stay
	@rm -rf $(VENV) .uv site dist build .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
