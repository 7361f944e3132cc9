# The commands of the project. `make` alone lists the main ones, `make help ALL=1` all.
# What each needs is brought by tests/support/project/set_up.py: Python packages into .venv, jars into a per-user cache.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
SOURCES := core schemas stream tests docker

# Set PYTHON to choose another interpreter than the first that fits. Any Python can run the set-up.
PYTHON ?=
SET_UP = $(shell command -v python3 python3.13 python3.12 python3.11 python | head -n 1) \
  tests/support/project/set_up.py $(if $(PYTHON),--python "$(PYTHON)")

ALL ?=
ONCE ?=
ONLY ?=
QUICK ?=
STORED ?=

# Set SPARK to run the tests of Spark and of the job on another PySpark: make test SPARK=4.3.0. It
# has an environment of its own, which takes all other packages from .venv.
SPARK ?=

# Set LOWEST=1 to run what uses other packages with the lowest versions that pyproject.toml admits.
LOWEST ?=
ifneq ($(filter-out 0,$(LOWEST)),)
ifneq ($(SPARK),)
$(error SPARK and LOWEST exclude each other)
endif
OTHER := build/lowest
WITH_OTHER := lowest
else ifneq ($(SPARK),)
OTHER := build/spark-$(SPARK)
WITH_OTHER := spark $(SPARK)
endif

.PHONY: help
help: ## list the commands (ALL=1: those of single checks, of generated files and of long runs, too)
	@awk 'BEGIN {FS = ":.*##[+]? "} /^[a-z-]+:.*##$(if $(filter-out 0,$(ALL)),[+]?) / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what all commands need; each brings by itself what it needs
	@$(SET_UP) --look develop

.PHONY: to-run to-develop to-test
to-run:
	@$(SET_UP) run

to-develop:
	@$(SET_UP) develop

to-test:
	@$(SET_UP) $(or $(WITH_OTHER),develop)

.PHONY: run
run: to-run ## broker, job and the bundled scenario; stays up (ONCE=1: ends, status 0 if every map is as expected)
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

ifeq ($(OTHER),)
PYTEST := $(BIN)/pytest -q -rs $(PARALLEL)
else
PYTEST := $(OTHER)/bin/python -P -m pytest -q -rs $(PARALLEL) $(if $(SPARK),$(OF_SPARK),$(OF_PACKAGES))
endif

.PHONY: test
test: to-test ## all unit tests, and of Spark, broker, crashes and commands one of each kind (6 minutes; SPARK=4.3.0: what depends on Spark, on that one; LOWEST=1: on the lowest versions of all packages)
	@$(PYTEST) -m 'not ($(ELSEWHERE)) and (smoke or not ($(HEAVY)))' --durations 10

.PHONY: test-all
test-all: to-test ## all tests, the long ones included; before a release (35 minutes; SPARK=: as above)
	@SPU_ASSIGNER_TEST_CASES=all $(PYTEST) -m 'not ($(ELSEWHERE))' --durations 20

.PHONY: sizes
sizes: to-develop ##+ lines of each package, and the sizes that have a limit, beside it
	@$(BIN)/python tests/support/project/sizes.py

.PHONY: unit
unit: to-develop ## the quick tests that need neither Java nor Spark nor a broker, with few random cases
	@SPU_ASSIGNER_TEST_CASES=few $(BIN)/pytest -q -rs $(PARALLEL) -m 'not ($(ELSEWHERE) or $(HEAVY) or thorough)'

.PHONY: coverage
coverage: to-develop ##+ the quick tests, and which lines of the product they run; fails below the floor in pyproject.toml
	@$(BIN)/coverage erase
	@SPU_ASSIGNER_TEST_CASES=few $(BIN)/coverage run -m pytest -q $(PARALLEL) -m 'not ($(ELSEWHERE) or $(HEAVY) or thorough)'
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

.PHONY: check
check: to-develop ## format, lint, types, import rules, quick unit tests; to be run before each commit
	@$(MAKE) --keep-going lint unit  # a test that fails hides no other fault

.PHONY: lint
lint: to-develop ##+ format, lint, spelling, types, import rules
	@$(BIN)/ruff format --check --quiet $(SOURCES) \
	  || { echo 'lint: `make format` formats the files above' >&2; exit 1; }
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/codespell $(SOURCES) docs .github Makefile *.md *.toml mkdocs.yml
	@$(BIN)/mypy -p spu_assigner.core -p spu_assigner.schemas -p spu_assigner.stream
	@MYPYPATH=docker:build/types $(BIN)/mypy docker/*.py
	@$(BIN)/mypy tests/support/project/site_hooks.py
	@$(BIN)/mypy tests/support/project/set_up.py
	@$(BIN)/lint-imports --no-logo

.PHONY: to-docs
to-docs:
	@$(SET_UP) docs

.PHONY: docs
docs: to-docs ## build the documentation into build/docs; a broken link or anchor is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "docs: build/docs/index.html"

.PHONY: format
format: to-develop ## format the sources, and fix what the linter can
	@$(BIN)/ruff check --fix --quiet $(SOURCES) || true
	@$(BIN)/ruff format $(SOURCES)

.PHONY: bench
bench: to-develop ## benches against their targets; keeps results (an hour; QUICK=1: an impression in a few; ONLY=core,load …: some; STORED=1: the tables of what is stored)
	@$(BIN)/python tests/bench/run.py $(if $(ONLY),--only $(ONLY)) $(if $(filter-out 0,$(QUICK)),--quick) $(if $(filter-out 0,$(STORED)),--stored)

.PHONY: chart
chart: to-develop ##+ store what the Helm chart of docker/helm renders, which tests compare
	@$(BIN)/python tests/support/project/chart.py

.PHONY: docker-build
docker-build: to-run ##+ images of Kafka and of the job, where they are missing or old (KAFKA_IMAGE=… takes another Kafka)
	@$(BIN)/python docker/stack.py build

.PHONY: docker-up
docker-up: to-run ## Kafka, a Spark cluster and the job in containers; plays the scenario, stays up
	@$(BIN)/python docker/stack.py up

VOLUMES ?=

.PHONY: docker-down
docker-down: to-run ## stop the containers (VOLUMES=1: and forget their data)
	@$(BIN)/python docker/stack.py down $(if $(filter-out 0,$(VOLUMES)),--volumes)

.PHONY: docker-test
docker-test: to-develop ## the same in a project of its own: the scenario, then containers are killed (5 minutes; QUICK=1: the scenario alone)
	@$(BIN)/pytest -q -m 'docker$(if $(filter-out 0,$(QUICK)), and smoke)' --durations 5 tests/docker

.PHONY: pictures
pictures: to-develop ##+ the documentation's pictures of Spark's UI, of a real job in a browser
	@$(BIN)/pytest -q tests/broker/job/test_spark_ui.py tests/broker/audit/test_ui.py --write-pictures

SEEDS ?= 100000

.PHONY: seeds
seeds: to-develop ##+ random lives of clusters on the real core, each invariant checked after each event (SEEDS=100000)
	@$(BIN)/python tests/support/events/simulation.py --seeds $(SEEDS) --from 0 --processes 2

RUNS ?= 1000000

.PHONY: fuzz
fuzz: to-develop ##+ coverage-guided fuzzing of all that reads foreign input, about 20 minutes (RUNS=1000000)
	@$(BIN)/python tests/fuzz/run.py --runs $(RUNS) --keep

KILLS ?= 100
BROKER_KILLS ?= 20

.PHONY: soak
soak: to-develop ##+ kill the job and its broker again and again under load, check every message (KILLS=100 BROKER_KILLS=20)
	@$(BIN)/python tests/soak/soak.py --kills $(KILLS) --broker-kills $(BROKER_KILLS)

TIMES ?= 10

.PHONY: repeat
repeat: to-test ##+ run `make test` again and again, and keep what each run gave (TIMES=10)
	@$(BIN)/python tests/soak/repeat.py --times $(TIMES)

.PHONY: asyncapi
asyncapi: to-develop ##+ write asyncapi.yaml from asyncapi_base.yaml, the schemas and the table of topics
	@$(BIN)/python tests/support/project/asyncapi.py

.PHONY: jar
jar: to-develop ##+ compile the product's own Java into the jar beside it; needs a JDK
	@$(BIN)/python tests/support/project/java_jar.py

.PHONY: lock
lock: ## resolve the dependencies again and write the lock files
	@$(SET_UP) lock

.PHONY: dist
dist: to-develop ##+ build the wheel and the source archive into dist, by the locked build tools
	@rm -rf dist
	@$(BIN)/uv build --quiet --build-constraints requirements-build.lock --require-hashes --out-dir dist

.PHONY: clean
clean: ## remove what was built here (the cache of jars stays)
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
	  .import_linter_cache .spu-assigner spark-warehouse metastore_db derby.log
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
