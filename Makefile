# PYTHON=/path/to/python3.11 chooses the interpreter; otherwise the first Python 3.10-3.12 that runs is taken.
VENV := .venv
# Many tests wait for processes that they start, so four files go on at a time on two cores, in 14 GB; the longest come first.
TOGETHER := -n 4 --dist loadfile --no-loadscope-reorder
.DEFAULT_GOAL := help
.PHONY: help setup demo dist airflows docs test test-all lint browser screenshots monitoring conformance soak soak-tables soak-upsert soak-memory chaos handoff topology hosts outage starts kubernetes crash-matrix crash-matrix-s3 crash-matrix-hdfs canary histories worlds disks differential readers fuzz bench bench-fixed bench-consumers bench-partitions bench-fleet bench-sustained bench-exactness bench-backlog bench-growth bench-skipping bench-upsert constraints clean

help: ## Show this help
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 18

setup: ## Make .venv and fetch all that is needed, in versions fixed by constraints.txt
	@sh tools/setup.sh

demo: setup ## Set up, then run the demo; DEMO_EXIT=1 ends after its proof, PORT=8081 moves Airflow's pages
	@$(VENV)/bin/slshudi demo $(if $(filter-out 0,$(DEMO_EXIT)),--exit) $(if $(PORT),--port $(PORT))

dist: setup ## Wheels and source distributions into dist/, the same bytes for the same commit; needs Rust
	@$(VENV)/bin/python tools/dist.py

airflows: setup ## The demo's proof and the tests under a real scheduler on Airflow 3.1, 3.2, 3.3, with the oldest and newest Python
	@$(VENV)/bin/python tools/airflows.py

lint: setup ## Check style and types
	@$(VENV)/bin/ruff check
	@$(VENV)/bin/ruff format --check
	@$(VENV)/bin/mypy

test: lint ## Set up, check style and types, run the short tests, and each capability once for real
	@$(VENV)/bin/pytest $(TOGETHER) -m "not long or capability"

test-all: lint ## The same with all tests, which continuous integration runs
	@$(VENV)/bin/pytest $(TOGETHER)

browser: setup ## Pages in headless Chromium (Debian's package): speed, looks, buttons; every error made and put right
	@$(VENV)/bin/python -m tests.browser
	@$(VENV)/bin/python -m tests.browser.errors

screenshots: setup ## The same, and the pictures of the docs
	@$(VENV)/bin/python -m tests.browser --pictures docs/images

docs: setup ## The docs as a site with search in build/docs, in English and Chinese, with a reference made from the code
	@$(VENV)/bin/python tools/docs.py
	@echo "the site: build/docs/index.html; served, with search: python3 -m http.server -d build/docs 8000"

monitoring: setup ## A real Prometheus (Debian's package) over the metrics: alerts fire and end, every panel has series
	@$(VENV)/bin/python -m tests.monitoring

conformance: setup ## The local server against the unmodified SDK and its command line
	@$(VENV)/bin/python -m tests.conformance

soak: setup ## A million logs through faults, and the local server killed fifty times under load
	@$(VENV)/bin/python -m tests.exact --trouble soak-crash,soak-pull

soak-tables: setup ## Five hundred small batches beside table services; columns that change while drivers die
	@$(VENV)/bin/python -m tests.exact --trouble soak-maintain,soak-columns

chaos: setup ## Two hundred batches under Airflow while random processes are killed; SEED=42 chooses the kills, FLEET=1 one DAG
	@$(VENV)/bin/python -m tests.exact --trouble chaos $(if $(FLEET),--fleet) $(if $(SEED),--seed $(SEED))

handoff: setup ## The same with three consumers behind each pipeline, one of which dies; asset events are dropped, doubled, delayed
	@$(VENV)/bin/python -m tests.exact --trouble handoff $(if $(SEED),--seed $(SEED))

topology: setup ## Two hundred batches on what several machines run, all of it killed at random (Debian's redis-server); throughput on it
	@command -v redis-server >/dev/null || { echo "topology: install Debian's redis-server first" >&2; exit 1; }
	@$(VENV)/bin/python tools/setup.py extra topology
	@$(VENV)/bin/python -m tests.exact --trouble topology $(if $(SEED),--seed $(SEED))
	@$(VENV)/bin/python -m tests.topology.first_batch
	@$(VENV)/bin/python benchmarks/cluster.py

crash-matrix: setup ## Every process killed at every point where state changes; RESIDENT=1 where one stays does the jobs
	@$(VENV)/bin/python -m tests.exact --trouble crash $(if $(RESIDENT),--resident)

crash-matrix-s3: setup ## The same with tables in an S3 store
	@$(VENV)/bin/python -m tests.exact --trouble crash --s3

crash-matrix-hdfs: setup ## The same with tables in HDFS
	@$(VENV)/bin/python -m tests.exact --trouble crash --hdfs

hosts: setup ## Two machines of namespaces (root): one vanishes, stands still or is cut off at every point of a batch
	@$(VENV)/bin/python -m tests.exact --trouble hosts

outage: setup ## The S3 store refuses, cuts off, does not answer, is gone: at every third request of a commit
	@$(VENV)/bin/python -m tests.exact --trouble outage --every 3

starts: setup ## Workers killed as a step's task begins or ends, at 120 moments, under Airflow: how long its batch waits; SEED=7 repeats
	@$(VENV)/bin/python -m tests.exact --trouble starts $(if $(SEED),--seed $(SEED))

kubernetes: setup ## Batches on Kubernetes' own API server, which is built once with Go: 10 minutes of CPU
	@$(VENV)/bin/python tools/apiserver.py
	@$(VENV)/bin/pytest tests/transaction/test_kubernetes.py

canary: setup ## A secret in every connection, everything run, refused and crashed, then all searched for the secrets
	@$(VENV)/bin/python -m tests.canary

histories: setup ## Drawn histories of puts, splits and merges, with real batches, too: each key holds its last put, each hour is complete in time
	@$(VENV)/bin/python -m tests.planning.histories --count 1000 $(if $(SEED),--seed $(SEED))
	@$(VENV)/bin/python -m tests.exact --trouble soak-splits --cases 20 $(if $(SEED),--seed $(SEED))
	@$(VENV)/bin/python -m tests.downstream.histories --count 500 --served 20 $(if $(SEED),--seed $(SEED))

worlds: setup ## Five hundred drawn worlds: zones, clocks, locales, users, disks, hands; SEED=7 repeats one
	@$(VENV)/bin/python -m tests.exact --trouble worlds $(if $(SEED),--world $(SEED))

disks: setup ## Each step on a disk that is full at each page, and each file that it wrote cut off: hours
	@$(VENV)/bin/python -m tests.exact --trouble disk

differential: setup ## Three hundred random tables asked by Spark, hudi-rs, DuckDB and Polars; then twelve planted lies
	@$(VENV)/bin/python -m tests.differential --tables 300 $(if $(SEED),--seed $(SEED))
	@$(VENV)/bin/python -m tests.differential --lies

readers: setup ## Query engines asked for tables of each kind, value by value, a real Trino among them: docs/engines.md
	@$(VENV)/bin/python -m tests.readers

fuzz: setup ## Mutated requests to the local server, mutated answers to the client
	@$(VENV)/bin/python -m tests.fuzz.requests --count 200000
	@$(VENV)/bin/python -m tests.fuzz.bodies --count 1000000

bench: setup ## The local server per core; decoding beside the SDK's own; expressions beside bare Arrow; fixed cost and throughput beside other ways
	@missed=; for part in local_server decode expressions memory evenness fixed_cost throughput; do \
		$(VENV)/bin/python benchmarks/$$part.py || missed="$$missed $$part"; \
	done; [ -z "$$missed" ] || { echo "bench: missed a bar:$$missed" >&2; exit 1; }

bench-fixed: setup ## What a small batch and an empty run cost, by kind of process, beside one spark-submit and a plain run
	@$(VENV)/bin/python benchmarks/fixed_cost.py

bench-fleet: setup ## A hundred small pipelines in one DAG for twenty minutes, then forty that all have news: how fresh each is
	@$(VENV)/bin/python benchmarks/fleet.py --pipelines 100 --news 10 --troubled
	@$(VENV)/bin/python benchmarks/fleet.py --pipelines 40 --news 40 --troubled

soak-memory: setup ## Two hours of small batches: memory is flat, sessions end when idle, nothing is left after Airflow
	@$(VENV)/bin/python benchmarks/fleet.py --pipelines 6 --news 6 --minutes 120

bench-sustained: setup ## A thousand logs a second for 15 minutes, then 20 MB a second: how fresh the table is
	@$(VENV)/bin/python benchmarks/sustained.py --logs 1000 --plot sustained-logs.svg
	@$(VENV)/bin/python benchmarks/sustained.py --mb 20 --plot sustained-mb.svg

bench-exactness: setup ## What exactness costs, beside one process that writes and commits at once
	@$(VENV)/bin/python benchmarks/exactness.py

bench-skipping: setup ## What a filter on a sorted column reads of twenty million rows
	@$(VENV)/bin/python benchmarks/skipping.py

bench-upsert: setup ## A million updates into twenty million rows, beside Hudi's data source with both indexes
	@$(VENV)/bin/python benchmarks/upsert.py

soak-upsert: setup ## Two hundred batches of upserts with processes killed at random, beside a model; SEED=42 chooses all
	@$(VENV)/bin/python -m tests.exact --trouble soak-upsert $(if $(SEED),--seed $(SEED))

bench-consumers: setup ## What a hundred consumers pay for the next commits after a hundred thousand; what a fold costs over a thousand shards
	@$(VENV)/bin/python benchmarks/consumers.py

bench-partitions: setup ## How soon a DAG starts behind the commit that completes its hour, over twenty hours of a real scheduler
	@$(VENV)/bin/python -m tests.airflow.partition_starts

bench-backlog: setup ## 20 GB behind while logs keep coming, drained by several transactions, beside one batch of the same size
	@$(VENV)/bin/python benchmarks/backlog.py

bench-growth: setup ## What a batch costs over thousands of shards and a million past transactions
	@$(VENV)/bin/python benchmarks/growth.py

constraints: setup ## Choose the versions of constraints.txt anew, within the ranges of pyproject.toml
	@$(VENV)/bin/python tools/setup.py constraints

clean: ## Remove .venv and everything made by builds, tests and the demo
	@rm -rf $(VENV) build dist native/target .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
