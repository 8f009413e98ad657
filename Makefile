# `make demo` and `make test` are all a newcomer needs; the rest is for daily work.
SHELL := /bin/bash
PYTHON ?= python3
PIP = .venv/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: demo test test-quick lint format bench cluster-up cluster-down clean

demo: .venv/demo.done
	.venv/bin/hpcbench submit examples/demo/plan.yaml --wait

test: lint test-quick
	.venv/bin/python -m pytest tests/packages tests/remote -q -n auto
	.venv/bin/python -m pytest tests/engine tests/docker tests/runpod tests/demo -q -n 2 --dist loadgroup
	.venv/bin/python -m pytest tests/apptainer tests/slurm -q

test-quick: .venv/dev.done
	.venv/bin/python -m pytest tests/unit -q -n auto

lint: .venv/dev.done
	.venv/bin/ruff format --check . && .venv/bin/ruff check . && .venv/bin/mypy && .venv/bin/lint-imports

format: .venv/dev.done
	.venv/bin/ruff format . && .venv/bin/ruff check --fix .

# Left out: those that need an image or vLLM, and benchmarks/gpu.
bench: .venv/dev.done
	for script in $(filter-out %/images.py %/through_wrapper.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; .venv/bin/python $$script || exit 1; done

cluster-up: .venv/dev.done
	.venv/bin/python -m tests.cluster install && .venv/bin/python -m tests.cluster up

cluster-down: .venv/dev.done
	.venv/bin/python -m tests.cluster down

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.done: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e '.[hf]' && touch $@

.venv/dev.done: .venv/demo.done
	$(PIP) -e '.[hf,http,s3,pdf,arrow,docker]' -r requirements-dev.txt && touch $@
