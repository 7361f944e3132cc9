# The commands of the project. `make` alone lists them.
# Everything is installed into .venv (Python) and a per-user cache (jars); the rest of the machine is left alone.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PACKAGES := $(VENV)/packages.stamp
WHEEL := $(VENV)/wheel.stamp
READY := $(VENV)/ready.stamp
SETUP_LOG := $(VENV)/setup.log
MERMAID := build/mermaid/mermaidx/assets/mermaid.js
SOURCES := core schemas stream tests docker docs

# Set PYTHON to choose another interpreter than the first that fits.
PYTHON ?=
ONCE ?=
ONLY ?=

# Set SPARK to run the tests of Spark and of the job on another PySpark: make test SPARK=4.3.0. It
# has an environment of its own, which takes all other packages from .venv.
SPARK ?=
SPARKS := 4.2.1 4.3.0
ifneq ($(SPARK),)
ifeq ($(filter $(SPARK),$(SPARKS)),)
$(error SPARK is $(SPARK); expected one of $(SPARKS), or none for the locked one)
endif
endif
OTHER := build/spark-$(SPARK)
OTHER_LOCK := tests/spark/pyspark-$(SPARK).lock

# Set LOWEST=1 to run what uses other packages with the lowest versions that pyproject.toml admits.
LOWEST ?=
ifneq ($(filter-out 0,$(LOWEST)),)
ifneq ($(SPARK),)
$(error SPARK and LOWEST exclude each other)
endif
OTHER := build/lowest
OTHER_LOCK := tests/lowest.lock
endif

# Set BROKER to choose the broker that tests share: make test BROKER=container, or embedded. By
# default it is a container where a Docker engine has the image, KAFKA_IMAGE or one built here.
BROKER ?=
ifneq ($(BROKER),)
export SPU_ASSIGNER_TEST_BROKER := $(BROKER)
endif
ifneq ($(KAFKA_IMAGE),)
export SPU_ASSIGNER_KAFKA_IMAGE ?= $(KAFKA_IMAGE)
endif

.PHONY: help
help: ## list the commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(WHEEL) ## install what the project needs; the other commands do it when it is due
	$(BRING)

# Asked for by name, set-up always looks whether Java and jars are still there; the others trust the stamp.
$(READY): $(WHEEL) stream/local/jvm/requirements-java.lock stream/local/jvm/jars.lock.json
	$(BRING)

define BRING
@echo "setup 3/3: Java and jars"
@$(BIN)/python -m spu_assigner.stream.setup --stamp $(READY)
endef

# uv installs in a quarter of the time that pip takes. pip brings it; it does not read where pip is set to
# find packages, so it is told. Where it cannot do its work, behind a registry that asks for more, pip does.
$(PACKAGES): requirements-build.lock requirements.lock pyproject.toml
	@python=''; \
	for candidate in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11 python); do \
	  if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	      >/dev/null 2>&1; then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo 'setup: no Python 3.11 or later with venv and ensurepip found' \
	    '(install one, or name it: make setup PYTHON=/path/to/python3)' >&2; exit 1; \
	fi; \
	echo "setup 1/3: $$($$python --version) makes $(VENV)"; \
	"$$python" -m venv $(VENV)
	@echo "setup 2/3: Python packages, every one checked against requirements.lock" \
	  "(the first time about 800 MB; log: $(SETUP_LOG))"
	@: > $(SETUP_LOG); \
	shown='Downloading .*\([0-9]{2,}\.[0-9] ?Mi?B\)|Building .*(==|wheel.*started)'; \
	log() { \
	  tee -a $(SETUP_LOG) | while IFS= read -r line; do [[ ! $$line =~ $$shown ]] || echo "  $$line"; done; \
	}; \
	pip() { $(BIN)/python -m pip --disable-pip-version-check --no-input install "$$@" 2>&1 | log; }; \
	uv() { $(BIN)/uv pip install --python $(BIN)/python --system-certs "$$@" 2>&1 | log; }; \
	from_pip() { \
	  $(BIN)/python -m pip config list | sed -n "s/^[a-z:]*\.$$1='\(.*\)'$$/\1/p" | tail -n 1; \
	}; \
	install() { \
	  "$$1" --require-hashes --requirement requirements-build.lock \
	  && "$$1" --require-hashes --no-build-isolation --requirement requirements.lock; \
	}; \
	awk '/^[a-z]/ {is_uv = /^uv==/} is_uv' requirements.lock > $(VENV)/uv.lock; \
	index=$$(from_pip index-url); more=$$(from_pip extra-index-url); \
	[[ -z $$index ]] || export UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$$index}"; \
	export UV_INDEX="$${UV_INDEX:-$$more}" UV_HTTP_TIMEOUT="$${UV_HTTP_TIMEOUT:-300}"; \
	{ pip --require-hashes --no-deps --requirement $(VENV)/uv.lock && install uv; } \
	|| { echo "  uv could not (see the log), so pip installs them, which takes longer"; install pip; } \
	|| { echo "setup: pip failed; the end of $(SETUP_LOG):" >&2; tail -n 12 $(SETUP_LOG) >&2; exit 1; }
	@touch $@

# The product is installed as its users have it, from the wheel, and made again after each change of a
# source; the folders' own times tell of files that went.
$(WHEEL): $(PACKAGES) pyproject.toml README.md LICENSE \
    $(shell find core schemas stream -name __pycache__ -prune -o -print)
	@echo "setup: the wheel, made and installed"
	@rm -rf dist
	@HATCH_QUIET=1 $(BIN)/python -m hatchling build --directory dist
	@$(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet --no-index --no-deps \
	  --force-reinstall dist/*.whl
	@touch $@

.PHONY: run
run: $(READY) ## broker, job and the bundled scenario; stays up (ONCE=1: ends, status 0 if every map is as expected)
	@$(BIN)/spu-assigner run --demo $(if $(filter-out 0,$(ONCE)),--once)

# Tests of Spark, Kafka or a fuzzer take seconds to minutes each: `make test` runs those that are marked
# `smoke`, `make test-all` all, and all random cases where `make test` draws a sixth and `make unit`
# a thirtieth. WORKERS processes share them, a file to each (pytest-xdist).
WORKERS ?= 2
HEAVY := spark or broker or kafka_jar or fuzz or installed
ELSEWHERE := bench or docker
export SPU_ASSIGNER_TEST_PRODUCT := wheel
PARALLEL := -p no:cacheprovider -n $(WORKERS) --dist loadgroup

# What depends on the version of Spark.
OF_SPARK := $(addprefix tests/,spark broker/job broker/audit)

# What uses other packages. Clients of a Schema Registry are not the product's, and want others.
OF_PACKAGES := $(OF_SPARK) $(addprefix tests/,unit/schemas unit/stream broker/client broker/clusters/moves broker/clusters/plan) \
  $(addprefix --ignore=tests/,$(addprefix unit/stream/client/,test_asyncapi.py test_schema_publish.py) broker/client/test_asyncapi.py)

ifeq ($(OTHER),build/spark-)
TEST_READY := $(READY)
PYTEST := $(BIN)/pytest -q -rs $(PARALLEL)
else
TEST_READY := $(OTHER)/ready.stamp
PYTEST := $(OTHER)/bin/python -P -m pytest -q -rs $(PARALLEL) $(if $(SPARK),$(OF_SPARK),$(OF_PACKAGES))
endif

.PHONY: test
test: $(TEST_READY) ## all unit tests, and of Spark, broker, crashes and commands one of each kind (6 minutes; SPARK=4.3.0: what depends on Spark, on that one; LOWEST=1: on the lowest versions of all packages)
	@$(PYTEST) -m 'not ($(ELSEWHERE)) and (smoke or not ($(HEAVY)))' --durations 10

STORE ?=

.PHONY: test-all
test-all: $(TEST_READY) ## all tests, the long ones included; before a release (25 minutes; STORE=1: keeps what each took; SPARK=: as above)
	@SPU_ASSIGNER_TEST_CASES=all $(PYTEST) -m 'not ($(ELSEWHERE))' --durations 20 $(if $(filter-out 0,$(STORE)),--store-durations)

# An environment without pip: its packages are found first, all else in .venv.
$(OTHER)/ready.stamp: $(OTHER_LOCK) $(READY)
	@echo "setup: $(if $(SPARK),PySpark $(SPARK),the lowest versions) into $(OTHER) (the first time 450 MB)"
	@$(BIN)/python -m venv --clear --without-pip $(OTHER)
	@packages=$$($(OTHER)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	$(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet --require-hashes --no-deps \
	  --no-build-isolation --target "$$packages" --requirement $<; \
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > "$$packages/venv.pth"
	@$(OTHER)/bin/python -m spu_assigner.stream.setup --stamp $@

.PHONY: tiers
tiers: $(READY) ## write CONTRIBUTING's table of which tests are in which tier
	@$(BIN)/python tests/support/project/tiers.py

.PHONY: sizes
sizes: $(READY) ## lines of each package, and the sizes that have a limit, beside it
	@$(BIN)/python tests/support/project/sizes.py

CONTAINER_TESTS := kafka/test_kafka_container.py kafka/test_topics.py \
  job/test_job.py::test_a_restart_goes_on_and_repeats_nothing

.PHONY: test-containers
test-containers: $(READY) ## some of the broker tests on a Kafka in a container; builds our image, or takes KAFKA_IMAGE
	@$(BIN)/python docker/images.py kafka
	@SPU_ASSIGNER_TEST_BROKER=container $(BIN)/pytest -q \
	  $(addprefix tests/broker/,$(CONTAINER_TESTS))

.PHONY: unit
unit: $(READY) ## the quick tests that need neither Java nor Spark nor a broker, with few random cases
	@SPU_ASSIGNER_TEST_CASES=few $(BIN)/pytest -q -rs $(PARALLEL) -m 'not ($(ELSEWHERE) or $(HEAVY) or thorough)'

.PHONY: check
check: $(READY) ## format, lint, types, import rules, audit, quick unit tests; to be run before each commit
	@$(MAKE) --keep-going lint audit unit  # a test that fails hides no other fault

.PHONY: lint
lint: $(READY) build/types
	@$(BIN)/ruff format --check --quiet $(SOURCES) \
	  || { echo 'lint: `make format` formats the files above' >&2; exit 1; }
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/mypy -p spu_assigner.core -p spu_assigner.schemas -p spu_assigner.stream
	@MYPYPATH=docker:build/types $(BIN)/mypy docker/*.py
	@$(BIN)/mypy docs/*.py
	@$(BIN)/lint-imports --no-logo

.PHONY: audit
audit: $(READY) ## dependencies: locks, hashes, what is installed, licences, advisories (AUDIT=strict: they must be reached)
	@$(BIN)/python tests/support/project/audit.py

# mypy takes a module's name from its path, so it is shown the folders under the name they are imported by.
build/types: Makefile
	@mkdir -p $@/spu_assigner
	@for package in core schemas stream; do ln -sfn ../../../$$package $@/spu_assigner/$$package; done
	@touch $@

.PHONY: docs
docs: $(READY) build/types $(MERMAID) ## build the documentation into build/docs; a broken link or anchor is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "docs: build/docs/index.html"

# The wheel is only unpacked, never installed: of it the pages need mermaid.js alone.
$(MERMAID): docs/requirements-mermaid.lock
	@rm -rf build/mermaid && mkdir -p build/mermaid
	@$(BIN)/python -m pip --disable-pip-version-check --no-input download --quiet --no-deps \
	  --require-hashes --only-binary :all: --requirement $< --dest build/mermaid
	@$(BIN)/python -m zipfile --extract build/mermaid/mermaidx-*.whl build/mermaid
	@touch $@

.PHONY: format
format: $(READY) ## format the sources, and fix what the linter can
	@$(BIN)/ruff check --fix --quiet $(SOURCES) || true
	@$(BIN)/ruff format $(SOURCES)

.PHONY: bench
bench: $(READY) ## all benches and the neighbours, a table against the targets, the curves; keeps results (ONLY=planner,core …)
	@$(BIN)/python tests/bench/run.py $(if $(ONLY),--only $(ONLY))

.PHONY: bench-quick
bench-quick: $(READY) ## most of that on small sizes in a few minutes; keeps nothing
	@$(BIN)/python tests/bench/run.py --quick $(if $(ONLY),--only $(ONLY))

.PHONY: figures
figures: $(READY) ## the tables of the documentation and the curves of the results that are stored
	@$(BIN)/python tests/bench/run.py --stored

.PHONY: chart
chart: $(READY) ## lint the Helm chart of docker/helm, render it into build/chart, hold it to Kubernetes' schemas
	@$(BIN)/python tests/support/project/chart.py

.PHONY: docker-build
docker-build: $(READY) ## images of Kafka and of the job, where they are missing or old (KAFKA_IMAGE=… takes another Kafka)
	@$(BIN)/python docker/images.py

.PHONY: docker-up
docker-up: $(READY) ## Kafka, a Spark cluster and the job in containers; plays the scenario, stays up
	@$(BIN)/python docker/stack.py up

VOLUMES ?=
QUICK ?=

.PHONY: docker-down
docker-down: $(READY) ## stop the containers (VOLUMES=1: and forget their data)
	@$(BIN)/python docker/stack.py down $(if $(filter-out 0,$(VOLUMES)),--volumes)

.PHONY: docker-test
docker-test: $(READY) ## the same in a project of its own: the scenario, then containers are killed (5 minutes; QUICK=1: the scenario alone)
	@$(BIN)/pytest -q -m 'docker$(if $(filter-out 0,$(QUICK)), and smoke)' --durations 5 tests/docker

.PHONY: pictures
pictures: $(READY) ## the documentation's pictures of Spark's UI, of a real job in a browser
	@$(BIN)/pytest -q tests/broker/job/test_spark_ui.py --write-pictures

SEEDS ?= 100000

.PHONY: seeds
seeds: $(READY) ## random lives of clusters on the real core, each invariant checked after each event (SEEDS=100000)
	@$(BIN)/python tests/support/events/simulation.py --seeds $(SEEDS) --from 0 --processes 2

RUNS ?= 1000000

.PHONY: fuzz
fuzz: $(READY) ## coverage-guided fuzzing of all that reads foreign input, about 20 minutes (RUNS=1000000)
	@$(BIN)/python tests/fuzz/run.py --runs $(RUNS) --keep

KILLS ?= 100
BROKER_KILLS ?= 20

.PHONY: soak
soak: $(READY) ## kill the job and its broker again and again under load, check every message (KILLS=100 BROKER_KILLS=20)
	@$(BIN)/python tests/soak/soak.py --kills $(KILLS) --broker-kills $(BROKER_KILLS)

.PHONY: compare
compare: $(READY) ## the table of evenness: our policies beside Kafka's placers
	@$(BIN)/python tests/bench/comparison.py

.PHONY: movement
movement: $(READY) ## the table of moved replicas: ours beside Kafka's reassignment tool
	@$(BIN)/python tests/bench/movement.py

.PHONY: load
load: $(READY) ## the job under load: rates, peaks of memory, every answer compared; keeps results (20 minutes)
	@$(BIN)/python tests/bench/scale/load.py --write

.PHONY: growth
growth: $(READY) ## what growth costs: a million topics, many clusters, SPUs, lists, executors; keeps results (25 minutes; QUICK=1: 5)
	@for part in scale/growth scale/growth_curves sink scale/scaling; do \
	  echo "$$part"; $(BIN)/python tests/bench/$$part.py $(if $(filter-out 0,$(QUICK)),--quick,--write); \
	done
	@$(if $(filter-out 0,$(QUICK)),,$(BIN)/python tests/bench/scale/scale_plan.py --write)

.PHONY: neighbours
neighbours: $(READY) ## the job beside others that do its work: a plain loop, Spark programs and more; keeps results (30 minutes)
	@$(BIN)/python tests/bench/neighbours/run.py --write

MINUTES ?= 30

.PHONY: churn
churn: $(READY) ## a steady life of 50 clusters: memory, checkpoint and latency over time (MINUTES=30)
	@$(BIN)/python tests/bench/scale/churn.py --write --minutes $(MINUTES)

.PHONY: asyncapi
asyncapi: $(READY) ## write asyncapi.yaml from asyncapi_base.yaml, the schemas and the table of topics
	@$(BIN)/python tests/support/project/asyncapi.py

.PHONY: screenshots
screenshots: $(READY) ## picture the pages of `spu-assigner ui` for the documents
	@mkdir -p docs
	@$(BIN)/python tests/support/pages/ui_screenshots.py

.PHONY: jar
jar: $(READY) ## compile the product's own Java into the jar beside it; needs a JDK
	@$(BIN)/python tests/support/project/java_jar.py

.PHONY: lock
lock: ## resolve the dependencies again and write the lock files
	@test -x $(BIN)/uv || { echo 'lock: needs uv: run `make setup` first' >&2; exit 1; }
	@compile() { $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --custom-compile-command 'make lock' "$$@"; }; \
	compile pyproject.toml --extra job --group dev --output-file requirements.lock; \
	compile pyproject.toml --extra job --constraints requirements.lock --output-file docker/requirements.lock; \
	compile --group pyproject.toml:build --constraints requirements.lock --output-file requirements-build.lock; \
	compile --group pyproject.toml:java --output-file stream/local/jvm/requirements-java.lock; \
	for spark in $(SPARKS); do \
	  echo "pyspark==$$spark" | compile --no-deps --output-file tests/spark/pyspark-$$spark.lock -; \
	done; \
	compile pyproject.toml --extra job --resolution lowest-direct --no-emit-package pyspark \
	  --output-file tests/lowest.lock; \
	compile --no-deps --group pyproject.toml:mermaid --output-file docs/requirements-mermaid.lock; \
	compile tests/bench/neighbours/quix.in --output-file tests/bench/neighbours/quix.lock

.PHONY: clean
clean: ## remove what was built here (the cache of jars stays)
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache .spu-assigner spark-warehouse metastore_db derby.log
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
