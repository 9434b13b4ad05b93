# Each target works by itself in a fresh clone: it makes a virtual environment in .venv, with all that it needs.
#   make demo    the system at work, with a crash in the middle        make test     everything that CI runs
#   make run     a broker on 127.0.0.1:9092 (ARGS="--help" for more)   make bench    measurements beside other brokers
#   make format  format, and fix what can be fixed                     make clean    remove what the others made
# PYTHON=python3.13 chooses the Python; FANLOG_COMPILE=0 leaves the codecs uncompiled.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
COMPILED := $(VENV)/compiled
READY := $(INSTALLED) $(COMPILED)

.PHONY: demo run test lint bench format clean
.DEFAULT_GOAL := demo

demo: $(READY)
	$(BIN)/fanlog demo

run: $(READY)
	$(BIN)/fanlog serve $(ARGS)

test: lint
	scripts/provision test
	$(BIN)/pytest $(ARGS)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(READY)
	scripts/provision bench
	$(BIN)/python -m bench $(ARGS)

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(INSTALLED): pyproject.toml setup.py scripts/environment
	scripts/environment $(VENV)
	touch $@

# The compiled codecs lie beside their sources, so an edited source must be compiled again, or the old one runs.
$(COMPILED): $(INSTALLED) $(wildcard src/fanlog/wire/*.py)
	rm -f src/*.so src/fanlog/wire/*.so
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f src/*.so src/fanlog/wire/*.so
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
