# make demo    install into a fresh environment and train the two examples (about two minutes)
# make test    build and run the tests; no PyTorch needed
# make oracle  judge the operators by PyTorch 2.13's own samples (installs it, in its own environment)
# make bench   flambeau and PyTorch side by side
# make build   the extension and the kernel pack, in place, for whoever works on them
# make lint    style and types;  make format  rewrites the style;  make clean
#
# PYTHON chooses the interpreter (3.11 or later): make test PYTHON=python3.12
# ARGS is handed to pytest: make test ARGS="tests/ops -x"

PYTHON ?= python3
ARGS ?=
JOBS ?= 2

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
ENVS := .venv
TEST := $(ENVS)/test-$(VERSION)
DEMO := $(ENVS)/demo-$(VERSION)
ORACLE := $(ENVS)/oracle-$(VERSION)
LINT := $(ENVS)/lint-$(VERSION)

PACKAGE := $(shell find flambeau -name '*.py' -o -name '*.[ch]' -o -name 'py.typed' 2>/dev/null)

# What the interpreter must bring, said before anything is installed.
define CHECK
import sys
try:
    import os, sysconfig
    import ensurepip, venv
except ImportError as error:
    sys.exit("%s: no %s. Debian and Ubuntu: apt install python3-venv" % (sys.executable, error.name))
if sys.version_info < (3, 11):
    sys.exit("%s is Python %d.%d; 3.11 or later is needed: make ... PYTHON=python3.11"
             % ((sys.executable,) + sys.version_info[:2]))
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    sys.exit("%s: its C headers are missing. Debian and Ubuntu: apt install python3-dev"
             % sys.executable)
endef
export CHECK

# The requirements of the project and of one of its extras, as pip's arguments.
requirements = $$($(PYTHON) -c 'import shlex, tomllib; \
  p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
  print(shlex.join([*$(2), *p["optional-dependencies"]["$(1)"]]))')

.PHONY: all demo test oracle bench build lint format clean check-python
all: test

check-python:
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON): make ... PYTHON=<interpreter>"; exit 1; }
	@$(PYTHON) -c "$$CHECK"
	@command -v $${CC:-cc} >/dev/null || { echo "no C compiler: apt install gcc"; exit 1; }

# Environments. A stamp file says that one is complete; it is made again when pyproject.toml changes.
$(TEST)/stamp: pyproject.toml | check-python
	$(PYTHON) -m venv $(TEST)
	eval $(TEST)/bin/pip install --quiet --disable-pip-version-check "$(call requirements,test,p["dependencies"])"
	echo '$(CURDIR)' > "$$($(TEST)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/flambeau-source.pth"
	touch $@

$(ORACLE)/stamp: pyproject.toml | check-python
	$(PYTHON) -m venv $(ORACLE)
	eval $(ORACLE)/bin/pip install --quiet --disable-pip-version-check "$(call requirements,oracle,[])"
	touch $@

$(LINT)/stamp: pyproject.toml | check-python
	$(PYTHON) -m venv $(LINT)
	eval $(LINT)/bin/pip install --quiet --disable-pip-version-check "$(call requirements,dev,p["dependencies"])"
	touch $@

# The demonstration uses what a user gets: a wheel, installed, no source tree on the path.
$(DEMO)/stamp: pyproject.toml setup.py $(PACKAGE) | check-python
	test -d $(DEMO) || $(PYTHON) -m venv $(DEMO)
	rm -rf build/lib*
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check '.[demo]'
	touch $@

build: $(TEST)/stamp
	$(TEST)/bin/python setup.py --quiet build_ext --inplace

demo: $(DEMO)/stamp
	rm -rf build/demo
	$(DEMO)/bin/python -P -m flambeau examples/digits/train.py --out build/demo/digits
	$(DEMO)/bin/python -P -m flambeau examples/gpt/train.py --out build/demo/gpt
	@echo "pictures     $(CURDIR)/build/demo/gpt/loss.png"
	@echo "             $(CURDIR)/build/demo/digits/digits.png"

test: build
	$(TEST)/bin/python -m pytest -n $(JOBS) --dist worksteal tests $(ARGS)

lint: $(LINT)/stamp
	$(LINT)/bin/ruff check .
	$(LINT)/bin/ruff format --check .
	$(LINT)/bin/mypy

format: $(LINT)/stamp
	$(LINT)/bin/ruff check --fix .
	$(LINT)/bin/ruff format .

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find flambeau -name '*.so' -delete

oracle: build $(ORACLE)/stamp
	@test -d tests/oracle || { echo "tests/oracle is missing"; exit 1; }
	$(TEST)/bin/python -m tests.oracle --torch-python $(ORACLE)/bin/python --out build/oracle.json

bench: build $(ORACLE)/stamp
	$(TEST)/bin/python bench/eager.py --torch-python $(ORACLE)/bin/python --flambeau-python $(TEST)/bin/python
