# Everything here sets itself up: a bare machine with Python 3.11 and make is enough.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
NODES ?= 3
PORT ?= 9092
DATA ?= data
SEEDS ?= 0..100
MINUTES ?= 60
IMAGE ?= fencepost:latest

.DEFAULT_GOAL := help
.PHONY: help run test test-alone test-long test-cluster test-docker image install lint format check benchmark benchmark-one benchmark-spark chaos sim pipeline clean

help:  ## show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

run: $(VENV)/.installed  ## start three nodes on 127.0.0.1:9092 to 9094 with their data in ./data
	@exec $(BIN)/fencepost dev --nodes $(NODES) --port $(PORT) --data $(DATA)

test: $(VENV)/.tested  ## run every test that this machine has the tools for, in nine processes
	$(BIN)/python tests/side_by_side.py

test-alone: $(VENV)/.tested  ## run what a busy machine can't be asked: times that are kept, and whether Kafka still does what we compare with
	FENCEPOST_TEST_ALONE=1 $(BIN)/python -m pytest -m "timed or of_kafka" tests

test-long: $(VENV)/.tested  ## run what takes very long: Spark's jobs, the pipeline and Kafka's tools while something is killed or moved (about a quarter of an hour)
	$(BIN)/python -m pytest -m long tests

test-cluster: $(VENV)/.tested  ## run the client suites against three nodes whose leaders are being killed
	FENCEPOST_TEST_AGAINST=cluster-chaos $(BIN)/python -m pytest tests/clients

test-docker: $(VENV)/.tested  ## run the tests that start containers, on the engine that DOCKER_HOST names
	$(BIN)/python -m pytest -s tests/docker tests/kubernetes

# Packages come by the way that this machine knows: its network, and its index if it has one of its own.
image:  ## build the container image fencepost:latest
	docker build --network host --file deploy/docker/Dockerfile --tag $(IMAGE) \
	  --build-arg VERSION=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) \
	  --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) $(foreach \
	  name,EXTRAS PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST,$(if $($(name)),--build-arg $(name))) .

install: $(VENV)/.installed  ## put the command at .venv/bin/fencepost

lint: $(VENV)/.linted build/types  ## ruff and strict mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	MYPYPATH=build/types $(BIN)/mypy -p fencepost

format: $(VENV)/.linted  ## let ruff put the code in form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

benchmark: $(VENV)/.tested  ## measure three nodes beside three of Kafka (needs Java and Maven; about half an hour)
	$(BIN)/python deploy/benchmarks/three_nodes.py

benchmark-one: $(VENV)/.tested  ## measure one node beside one of Kafka (about a quarter of an hour)
	$(BIN)/python deploy/benchmarks/one_node.py

benchmark-spark: $(VENV)/.measured  ## measure PySpark beside its own Kafka connector (needs Java and Maven; about twenty minutes)
	$(BIN)/python deploy/benchmarks/spark.py

# What is not here (Docker, Kafka's files, a C compiler) makes it unknown: leave it out by name, with TARGETS=processes.
chaos: $(VENV)/.tested  ## break real nodes under load for MINUTES (60), every fault in turn on TARGETS (all); pages in chaos-runs
	$(BIN)/fencepost chaos rounds --minutes $(MINUTES) --out chaos-runs $(if $(TARGETS),--targets $(TARGETS))

sim: $(VENV)/.tested  ## run every campaign and fault of the simulator over SEEDS (0..100) on all cores, then the planted bugs
	@mkdir -p chaos-runs
	$(BIN)/fencepost sim run --campaign all --seeds $(SEEDS) --summary chaos-runs/campaigns.jsonl
	FENCEPOST=$(BIN)/fencepost chaos/asked_for.sh $(SEEDS) chaos-runs/campaigns.jsonl
	$(BIN)/fencepost sim planted

pipeline: $(VENV)/.tested  ## a database's orders through Spark to two topics while everything is killed, compared with SQL
	$(BIN)/python examples/pipeline/run.py

clean:  ## remove what was built, not the data
	rm -rf $(VENV) build .mypy_cache .ruff_cache .cache *.egg-info

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "fencepost needs $(PYTHON) on the path; name another with make PYTHON=…" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet -e '.[clients]'
	@touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet -e '.[clients,chaos,test]'
	@touch $@

$(VENV)/.linted: $(VENV)/.tested
	$(BIN)/python -m pip install --quiet -e '.[clients,chaos,test,lint]'
	@touch $@

$(VENV)/.measured: $(VENV)/.tested
	$(BIN)/python -m pip install --quiet -e '.[clients,chaos,test,benchmark]'
	@touch $@

# setuptools warns of every editable install, at length.
$(VENV)/.installed $(VENV)/.tested $(VENV)/.linted $(VENV)/.measured: export PYTHONWARNINGS = ignore

# mypy can't follow an editable install that maps folders, so it is given the same tree as links.
build/types: pyproject.toml
	@mkdir -p build/types/fencepost
	@for part in cluster replication txn node clients chaos; do ln -sfn ../../../$$part build/types/fencepost/$$part; done
	@touch build/types
