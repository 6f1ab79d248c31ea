# One command from a fresh checkout: `make demo` or `make test`. Needs Python 3.11+ and Java 17+, nothing else; the first
# run fetches the rest (about 1.5 GB) into .venv*/ and the user's cache, later runs are offline.

PYTHON ?= python3
# pypaimon needs pyarrow < 20, which exists for Python 3.11 to 3.13: name one of these here when PYTHON is newer
PEERS_PYTHON ?= $(PYTHON)
ARGS ?=
# Processes that share the tests; each that needs one starts its own Spark or broker. Most of the time they wait for
# starts, stops and kills, so there are more of them than the two cores of the machines that CI has.
WORKERS ?= 4
FAST_WORKERS ?= 2
# Tests that need the same server, and those of one file, are one process's: tests/support/groups.py. They begin in the
# order of tests/conftest.py: the longest groups first.
GROUPS := --dist loadgroup --no-loadscope-reorder

VENV := .venv
PEERS := .venv-peers
PY := $(VENV)/bin/python
PREFLIGHT := engine/preflight.py
CONSTRAINTS := conf/constraints.txt
PEERS_CONSTRAINTS := conf/peers-constraints.txt
BENCH := .venv-bench
BENCH_CONSTRAINTS := conf/bench-constraints.txt
DBT := .venv-dbt
DBT_CONSTRAINTS := conf/dbt-constraints.txt
OLDER := .venv-older
OLDER_CONSTRAINTS := conf/older-constraints.txt
# Spark before 4.2, which has not all that Fluvial can use
SPARKS := 4.0 4.1
SPARK_CONSTRAINTS := $(SPARKS:%=conf/spark-%-constraints.txt)
DOCS := .venv-docs
DOCS_CONSTRAINTS := conf/docs-constraints.txt
# Where `make docs` puts the site; a version has its own directory there, beside those of other versions
SITE ?= .site
AUDIT := .venv-audit
AUDIT_CONSTRAINTS := conf/audit-constraints.txt
PINS := $(CONSTRAINTS) $(PEERS_CONSTRAINTS) $(BENCH_CONSTRAINTS) $(DBT_CONSTRAINTS) $(OLDER_CONSTRAINTS) $(SPARK_CONSTRAINTS) $(DOCS_CONSTRAINTS) $(AUDIT_CONSTRAINTS)
MINUTES ?= 10
PYTEST := $(PY) -m pytest
CHECKED := engine logstore filestore lsm tests benchmarks

FETCH_BROKER := from engine.broker.jars import broker_jars; broker_jars()
MAKE_BROKER_CLASSES := from engine.broker.broker import make_class_archive; make_class_archive()
FETCH_PEER := from tests.peers.java_peer import paimon_jars; paimon_jars()
FETCH_STORE := from tests.stores.object_store import s3proxy_jars; s3proxy_jars()
FETCH_ICEBERG := from tests.stores.iceberg_rest import iceberg_rest_jars; iceberg_rest_jars()
FETCH_AZURITE := from tests.stores.azurite import azurite_packages; azurite_packages()
FETCH_REGISTRY := from tests.stores.apicurio import apicurio_archive; apicurio_archive()
FETCH_BROWSER := from tests.stores.chromium import chromium; chromium()
FETCH_MYSQL := from tests.stores.mariadb import mariadb_jars; mariadb_jars()
FETCH_FLINK := from tests.peers.flink import flink_jars; flink_jars()
FETCH_DELTA := from tests.peers.delta import delta_jars; delta_jars()
FETCH_INPUTS := from tests.peers.spark_inputs import spark_tests_jars; spark_tests_jars()
FETCH_CDC := from tests.stores.kafka_connect import debezium_jars; debezium_jars()

# compiled modules and rewritten asserts are kept, also where the environment says otherwise: see tests/conftest.py
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv venv-peers venv-dbt venv-bench venv-older venv-sparks venv-docs docs jars jars-peers parts test test-all test-fast demo demo-cdc demo-flink bench explore crossings histories statements simulate soak soak-job soak-table soak-cdc lint house audit format clean

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile
	@echo "  ARGS=… is passed on, for example: make test-fast ARGS='-k merge -x'"

venv: $(VENV)/.stamp ## the environment of the project, in .venv/, with every version pinned
venv-peers: $(PEERS)/.stamp ## the environment of pypaimon and DuckDB, interop peers, in .venv-peers/

$(VENV)/.stamp: pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -I $(PREFLIGHT) check
	@$(PYTHON) -I $(PREFLIGHT) venv $(VENV) $(CONSTRAINTS) --editable '.[dev]'
	@touch $@

$(PEERS)/.stamp: $(PEERS_CONSTRAINTS)
	@$(PEERS_PYTHON) -I $(PREFLIGHT) venv $(PEERS) $(PEERS_CONSTRAINTS) --only-binary :all: pypaimon duckdb duckdb-extensions duckdb-extension-avro duckdb-extension-iceberg
	@touch $@

venv-dbt: $(DBT)/.stamp ## the environment of dbt, a client of the Thrift server in the tests, in .venv-dbt/

$(DBT)/.stamp: $(DBT_CONSTRAINTS)
	@$(PEERS_PYTHON) -I $(PREFLIGHT) venv $(DBT) $(DBT_CONSTRAINTS) 'dbt-spark[PyHive]' dbt-tests-adapter pytest
	@touch $@

venv-bench: $(BENCH)/.stamp ## Spark 3.5, for peers that load on no newer one: of the ingest benchmark, Iceberg's SQL in the tests, in .venv-bench/

$(BENCH)/.stamp: $(BENCH_CONSTRAINTS)
	@$(PEERS_PYTHON) -I $(PREFLIGHT) venv $(BENCH) $(BENCH_CONSTRAINTS) pyspark setuptools
	@touch $@

venv-older: $(OLDER)/.stamp ## the older PySpark of the tests, beside the packages of .venv/, in .venv-older/

$(OLDER)/.stamp: $(OLDER_CONSTRAINTS) | $(VENV)/.stamp
	@rm -rf $(OLDER)
	@$(PY) -I $(PREFLIGHT) run "fetching Spark 4.2" $(PY) -m pip install --quiet --no-deps --no-compile \
	  --require-hashes --no-build-isolation --target $(OLDER) --requirement conf/hashes/$(notdir $(OLDER_CONSTRAINTS))
	@touch $@

venv-sparks: $(SPARKS:%=.venv-spark-%/.stamp) ## Spark 4.0 and 4.1, each beside the packages of .venv/, in .venv-spark-*/

.venv-spark-%/.stamp: conf/spark-%-constraints.txt | $(VENV)/.stamp
	@rm -rf $(@D)
	@$(PY) -I $(PREFLIGHT) run "fetching Spark $*" $(PY) -m pip install --quiet --no-deps --no-compile \
	  --require-hashes --no-build-isolation --target $(@D) --requirement conf/hashes/$(notdir $<)
	@touch $@

venv-docs: $(DOCS)/.stamp ## what builds the site, beside the packages of .venv/, in .venv-docs/

$(DOCS)/.stamp: $(DOCS_CONSTRAINTS) | $(VENV)/.stamp
	@rm -rf $(DOCS)
	@$(PY) -I $(PREFLIGHT) run "fetching Sphinx" $(PY) -m pip install --quiet --no-deps --no-compile \
	  --require-hashes --target $(DOCS) --requirement conf/hashes/$(notdir $(DOCS_CONSTRAINTS))
	@touch $@

docs: venv-docs ## the pages as a site, with search, the Python API and earlier versions beside it, in .site/
	@version=$$($(PY) -c "import tomllib; print(tomllib.load(open('pyproject.toml', 'rb'))['project']['version'])") && \
	PYTHONPATH=$(DOCS) $(PY) -m sphinx --quiet --fail-on-warning --keep-going --builder html --jobs 2 \
	  --doctree-dir $(SITE)/.made/$$version --conf-dir conf/site . $(SITE)/$$version && \
	echo "open $(SITE)/$$version/index.html"

jars: venv ## the Kafka broker's jars, in the user's cache
	@$(PY) -I $(PREFLIGHT) run "fetching the broker's jars" $(PY) -c "$(FETCH_BROKER)"
	@$(PY) -c "$(MAKE_BROKER_CLASSES)"

jars-peers: venv ## the jars of the tests' peers, Apache Paimon, Flink, object stores, an Iceberg catalog, MariaDB, a schema registry and Chromium, in the user's cache
	@$(PY) -I $(PREFLIGHT) run "fetching Apache Paimon's jars" $(PY) -c "$(FETCH_PEER)"
	@$(PY) -I $(PREFLIGHT) run "fetching the object store's jars" $(PY) -c "$(FETCH_STORE)"
	@$(PY) -I $(PREFLIGHT) run "fetching Iceberg's REST catalog" $(PY) -c "$(FETCH_ICEBERG)"
	@$(PY) -I $(PREFLIGHT) run "fetching Azurite" $(PY) -c "$(FETCH_AZURITE)"
	@$(PY) -I $(PREFLIGHT) run "fetching Chromium" $(PY) -c "$(FETCH_BROWSER)"
	@$(PY) -I $(PREFLIGHT) run "fetching MariaDB" $(PY) -c "$(FETCH_MYSQL)"
	@$(PY) -I $(PREFLIGHT) run "fetching a schema registry" $(PY) -c "$(FETCH_REGISTRY)"
	@$(PY) -I $(PREFLIGHT) run "fetching Flink" $(PY) -c "$(FETCH_FLINK)"
	@$(PY) -I $(PREFLIGHT) run "fetching the inputs of Spark's tests" $(PY) -c "$(FETCH_INPUTS)"
	@$(PY) -I $(PREFLIGHT) run "fetching Debezium" $(PY) -c "$(FETCH_CDC)"

demo: venv venv-peers jars ## change stream -> Kafka log and files -> SQL, on this machine, in .demo/
	$(PY) -m benchmarks.demo $(ARGS)

demo-cdc: venv jars jars-peers ## PostgreSQL under load -> Debezium -> tables, compared value by value, in .demo/cdc/
	$(PY) -m tests.stores.cdc_demo $(ARGS)

demo-flink: venv jars jars-peers ## Debezium topics -> PySpark -> tables -> a join in Flink, both killed, in .demo/flink/
	$(PY) -m tests.flink.whole_way $(ARGS)

$(VENV)/spark-classes.jsa: $(VENV)/.stamp tests/support/class_archive.py
	@$(PY) -m tests.support.class_archive

parts: venv venv-peers venv-dbt venv-older venv-sparks venv-docs venv-bench jars jars-peers $(VENV)/spark-classes.jsa ## all that the tests need: environments, a broker, Spark, peers

test: parts ## every test that is not long, with a real broker, Spark and peers; about 12 minutes on two cores
	$(PYTEST) -n $(WORKERS) $(GROUPS) -m "not (soak or long)" $(ARGS)

test-all: parts ## every test but the soak, which is what CI runs: more kills and histories
	$(PYTEST) -n $(WORKERS) $(GROUPS) -m "not soak" $(ARGS)

test-fast: venv ## the tests that need no broker, Spark, peer, store or long sweep: under a minute
	$(PYTEST) -n $(FAST_WORKERS) -m "not (broker or spark or interop or soak or store or sweep or long)" $(ARGS)

bench: venv venv-peers venv-bench jars ## the benchmarks: one line of JSON each, kept in .bench/
	$(PY) -m benchmarks $(ARGS)

explore: parts ## the tests of random input, with input that no run had before, then histories
	$(PYTEST) -n $(WORKERS) $(GROUPS) --hypothesis-profile explore -m "hypothesis and not soak" $(ARGS)
	$(MAKE) histories ARGS=

crossings: venv ## tables from the whole space of options, histories of everything, every way to read; ARGS='--seconds 3600'
	$(PY) -m tests.crossings $(ARGS)

histories: venv ## random histories of versions and lineage by oracles, with new seeds; ARGS='--seconds 3600', '--only lineage'
	$(PY) -m tests.histories $(ARGS)

statements: venv ## random statements and conditions against plain Parquet, with new seeds; ARGS='--seconds 3600'
	$(PY) -m tests.statements $(ARGS)

simulate: venv ## interleavings, crashes and storage faults of real operations; ARGS='--seconds 3600', '--matrix'
	$(PY) -m engine.cli simulate $(ARGS)

soak: parts ## the tests that take minutes, all cells of sweeps, then soak-job, soak-table and soak-cdc; before a release
	@$(PY) -I $(PREFLIGHT) run "fetching Delta's jars" $(PY) -c "$(FETCH_DELTA)"
	$(PYTEST) -m soak --timeout 3600 $(ARGS)
	$(MAKE) soak-job soak-table soak-cdc ARGS=

soak-job: venv jars ## a job through kills, freezes and outages; MINUTES=60; its page is .bench/soak.html
	$(PY) -m tests.soak --minutes $(MINUTES) $(ARGS)

soak-table: venv ## processes that race on one table, killed and frozen; MINUTES=60, ARGS='--seed 7 --kind keyed'
	$(PY) -m tests.soak.table --minutes $(MINUTES) $(ARGS)

soak-cdc: venv jars jars-peers ## years of migrations in a captured database, under kills; MINUTES=60, ARGS='--seed 7'
	$(PY) -m tests.soak.cdc --minutes $(MINUTES) $(ARGS)

lint: venv ## format, lint, types and the import rules, without changing anything
	$(VENV)/bin/ruff format --check $(CHECKED)
	$(VENV)/bin/ruff check $(CHECKED)
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

$(AUDIT)/.stamp: $(AUDIT_CONSTRAINTS)
	@$(PYTHON) -I $(PREFLIGHT) venv $(AUDIT) $(AUDIT_CONSTRAINTS) pip-audit
	@touch $@

# Strict: a pin that the service does not know is an error, or a service that answers nothing would look like no advisory.
# A service that cannot be reached (2) is asked once, not for each file of pins.
audit: $(AUDIT)/.stamp ## list what is fetched in .venv-audit/sbom.json, and compare every version with published advisories (ARGS='-s osv': with another service's)
	@$(PYTHON) -I $(PREFLIGHT) sbom $(AUDIT)/sbom.json
	@failed=0; for pins in $(PINS); do \
	  $(PYTHON) -I $(PREFLIGHT) run "auditing $$pins" $(AUDIT)/bin/python -m pip_audit --strict --no-deps --disable-pip \
	    --progress-spinner off --requirement $$pins $(ARGS) || failed=$$?; \
	  if [ $$failed = 2 ]; then break; fi; \
	done; exit $$failed

house: venv ## how large the code is: lines, modules, rooms, layers, modules for one importer, private members of Spark
	@$(PY) -m tests.support.house_counts

format: venv ## rewrite the code in the house's format
	$(VENV)/bin/ruff check --fix $(CHECKED)
	$(VENV)/bin/ruff format $(CHECKED)

clean: ## remove everything that was made in the checkout
	rm -rf $(VENV) .venv-* .demo .bench .site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
