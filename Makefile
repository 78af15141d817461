# One door for everything: 'make help' lists what there is.
.DEFAULT_GOAL := help
.PHONY: help install demo check style types quick-tests test test-deep simulate faults planted fuzz lint format bench bench-kernel bench-payloads bench-slices bank nexmark pictures lock clean

BIN := .venv/bin
SEEDS ?= 0-9999
KILLS ?= 200
WORKERS ?= 4
PACKAGES := ordering ingest query sinks tidegate
NATIVE := tidegate/platform/kafka/_native.so
# Tests of one file stay together, the longest files come first: tests/conftest.py. Where Python is told to write no bytecode, every
# process of a run - hundreds of commands, jobs and workers - would compile anew all that it imports, and pytest all tests.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/installed $(NATIVE)  ## make .venv with all that requirements.lock names (done by the other doors when needed)

.venv/installed: requirements.lock pyproject.toml scripts/install.sh
	@echo "installing into .venv (about a minute; pyspark is 450 MB) ..."
	@scripts/install.sh
	@touch $@

$(NATIVE): tidegate/platform/kafka/native.c $(wildcard tidegate/language/json_columns/*.[ch] tidegate/records/payloads/*.c) hatch_build.py | .venv/installed
	@$(BIN)/python hatch_build.py || true

demo: install  ## order 100,000 real flights and query them, through a real Kafka, Valkey and Spark; POSTGRES=URL fills tables too, KEEP=1 leaves page and servers up
	@$(BIN)/tidegate demo $(if $(POSTGRES),--postgres $(POSTGRES)) $(if $(KEEP),--keep)

# mypy takes one core for twenty seconds when it has no cache: the tests run beside it.
check: style  ## style, types and all tests that need no service (3 minutes)
	@$(MAKE) --no-print-directory -j 2 types quick-tests

quick-tests: install
	@$(PYTEST) -m "not integration and not heavy" $(ARGS)

test: install  ## all that a change must pass (25 minutes on 2 cores); services in containers if Docker answers, else the embedded ones
	@$(PYTEST) $(ARGS)

test-deep: install  ## the laws with many more examples, every case through Kafka and Spark, faults, chains and large states (four hours)
	@TIDEGATE_TEST_ALL_CASES=1 $(PYTEST) tests/ordering tests/ingest tests/tidegate/language/json_columns tests/tidegate/records/payloads \
	  tests/query tests/integration/query/test_cases_on_kafka.py \
	  --hypothesis-profile=deep $(ARGS)
	@TIDEGATE_TEST_ALL_CASES=1 $(PYTEST) -m deep $(ARGS)
	@$(BIN)/python tests/simulation/run.py 150-2999
	@$(BIN)/python tests/fuzz/run.py --minutes 10
	@$(BIN)/python tests/faults/run.py --kills $(KILLS) --minutes 30
	@$(BIN)/python tests/faults/run.py --only chains --rounds 50

simulate: install  ## run whole channels through seeded faults; SEEDS=0-9999, SEEDS=17, SEEDS=5,9,100-200
	@$(BIN)/python tests/simulation/run.py $(SEEDS)

faults: install  ## kill, wipe, fill and step all there is, on the real stack; KILLS=200, SEED=7, MINUTES=30, ONLY=kills|matrix|queries|chains|run|zombie
	@$(BIN)/python tests/faults/run.py --kills $(KILLS) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only "$(ONLY)") \
	  $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

planted: install  ## plant bugs in the model, one per rule, and see that a test catches each
	@$(BIN)/python tests/planted/run.py

fuzz: install  ## fuzz the decoders, scripts and the wire format, the parts in C under sanitizers; MINUTES=10
	@nice -n 19 $(BIN)/python tests/fuzz/run.py --minutes $(or $(MINUTES),10) $(ARGS)

lint: style types  ## check style, formatting and types

style: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: install
	$(BIN)/mypy --strict $(PACKAGES)

format: install  ## put imports and formatting right
	$(BIN)/ruff check --select I --fix
	$(BIN)/ruff format

bench: install  ## measure everything on 2 cores (hours); ARGS='--only ingest --events 3000000 --runs 1' for a look
	@$(BIN)/python benchmarks/run.py $(ARGS)

bench-kernel: install  ## measure the time model alone: rates on one core, memory of its state
	@$(BIN)/python benchmarks/kernel.py $(ARGS)

bench-payloads: install  ## measure the reading of payloads: CPU of each shape and format, as a multiple of flat JSON
	@$(BIN)/python benchmarks/payloads.py $(ARGS)

bench-slices: install  ## measure what small slices of a query cost, in process; ARGS='--only hopping --sizes 40'
	@$(BIN)/python benchmarks/slices.py $(ARGS)

bank: install  ## a bank of 10 million transfers through Kafka and Spark: all balances sum to 0 at every instant; ARGS='--transfers 1000000'
	@$(BIN)/python benchmarks/bank.py $(ARGS)

nexmark: install  ## Nexmark's 24 queries, judged row by row by DuckDB, with their cost; ARGS='--queries q0,q5 --events 200000 --layout three'
	@PYTHONPATH=benchmarks $(BIN)/python -m nexmark.run $(ARGS)

pictures: install  ## draw the pictures of README and tutorial again, from the model
	@$(BIN)/python docs/pictures/toll.py

lock: install  ## write requirements.lock anew from pyproject.toml
	@{ sed -n 1p requirements.lock; $(BIN)/uv pip compile pyproject.toml --quiet --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --upgrade; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

clean:  ## stop the embedded stack of this folder and delete all that the doors made
	@test ! -x $(BIN)/tidegate || $(BIN)/tidegate down --wipe
	@find $(PACKAGES) tests benchmarks docs examples -name __pycache__ -prune -exec rm -rf {} +
	@rm -rf tidegate/*/_*.so .venv .tidegate build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse
