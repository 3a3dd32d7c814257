# make demo    install into a fresh environment; train the two examples, eager and compiled, and
#              show both side by side (about four minutes)
# make test    build and run the tests; no PyTorch needed
# make oracle  judge the operators by PyTorch 2.13's own samples, PyTorch being installed apart
# make oracle-compiled  all samples of the whole database through torch.compile, four ways: an hour
# make oracle-further  the rest of PyTorch's operator database: eager, and two samples each compiled
# make oracle-modules  PyTorch's databases of modules and optimisers, every compiled form among it
# make oracle-docstrings  the examples in PyTorch's docstrings, run on both
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
    sys.exit("%s: no %s. Debian and Ubuntu: apt install python3-venv"
             % (sys.executable, error.name))
if sys.version_info < (3, 11):
    sys.exit("%s is Python %d.%d; 3.11 or later is needed: make ... PYTHON=python3.11"
             % ((sys.executable,) + sys.version_info[:2]))
if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
    sys.exit("%s: its C headers are missing. Debian and Ubuntu: apt install python3-dev"
             % sys.executable)
endef
export CHECK

# $(call install,ENVIRONMENT,EXTRA,PROJECT): make ENVIRONMENT and install what pyproject.toml lists
# under EXTRA and, if PROJECT is not empty, what flambeau itself needs.
define LIST
import sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print(*(project["dependencies"] if sys.argv[2:] else []), sep="\n")
print(*project["optional-dependencies"][sys.argv[1]], sep="\n")
endef
export LIST

define install
$(PYTHON) -m venv $(1)
$(1)/bin/python -c "$$LIST" $(2) $(3) > $(1)/requirements.txt
$(1)/bin/pip install --quiet --disable-pip-version-check -r $(1)/requirements.txt
endef

.PHONY: all help demo test oracle oracle-compiled oracle-further oracle-docstrings bench build lint format clean check-python
all: test

help:
	@sed -n '/^#/!q; s/^# \{0,1\}//p' Makefile

check-python:
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON): make ... PYTHON=<interpreter>"; exit 1; }
	@$(PYTHON) -c "$$CHECK"
	@command -v $${CC:-cc} >/dev/null || { echo "no C compiler: apt install gcc"; exit 1; }

# Environments. A stamp file says that one is complete; a newer pyproject.toml renews it.
$(TEST)/stamp: pyproject.toml | check-python
	$(call install,$(TEST),test,project)
	echo '$(CURDIR)' > $(TEST)/lib/python$(VERSION)/site-packages/flambeau-source.pth
	touch $@

$(ORACLE)/stamp: pyproject.toml | check-python
	$(call install,$(ORACLE),oracle,)
	touch $@

$(LINT)/stamp: pyproject.toml | check-python
	$(call install,$(LINT),dev,project)
	touch $@

$(DEMO)/stamp: pyproject.toml | check-python
	$(call install,$(DEMO),demo,project)
	touch $@

# The demonstration uses what a user gets: a wheel, installed. It runs in a folder from which the
# source tree is not found.
$(DEMO)/installed: $(DEMO)/stamp setup.py $(PACKAGE)
	rm -rf build/lib*
	$(DEMO)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
	touch $@

build: $(TEST)/stamp
	$(TEST)/bin/python setup.py --quiet build_ext --inplace

demo: RUN := $(CURDIR)/$(DEMO)/bin/python -m flambeau
demo: PICTURES := $(CURDIR)/build/demo
demo: $(DEMO)/installed
	rm -rf build/demo
	cd examples && $(RUN) digits/train.py --out $(PICTURES)/digits
	cd examples && $(RUN) digits/train.py --out $(PICTURES)/digits-compiled --compile
	@echo; echo "The same twice more, in turn: a run is too short to tell its speed"
	cd examples && for turn in 2 3; do \
		$(RUN) digits/train.py --out $(PICTURES)/digits-$$turn | grep steps; \
		$(RUN) digits/train.py --out $(PICTURES)/digits-$$turn-compiled --compile | grep steps; \
	done
	cd examples && $(RUN) gpt/train.py --out $(PICTURES)/gpt
	cd examples && $(RUN) gpt/train.py --out $(PICTURES)/gpt-compiled --compile --sample 0
	@echo; echo "Handwritten digits"
	@cd examples && $(RUN) compare.py $(PICTURES)/digits{,-2,-3}{,-compiled} \
		--title "Handwritten digits" --out $(PICTURES)/digits.png
	@echo; echo "A small GPT"
	@cd examples && $(RUN) compare.py $(PICTURES)/gpt{,-compiled} \
		--title "A small GPT" --out $(PICTURES)/gpt.png

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
	$(TEST)/bin/python -m tests.oracle --torch-python $(ORACLE)/bin/python --jobs $(JOBS)
	$(TEST)/bin/python -m tests.oracle.compiled --dtype float32 --limit 2 --jobs $(JOBS)
	$(TEST)/bin/python -m tests.oracle.modules --torch-python $(ORACLE)/bin/python \
		--dtype float32 --limit 2 --jobs $(JOBS)
	$(TEST)/bin/python -m tests.oracle.optimizers --torch-python $(ORACLE)/bin/python \
		--dtype float32 --limit 2 --jobs $(JOBS)

oracle-compiled: build $(ORACLE)/stamp
	$(ORACLE)/bin/python -m tests.oracle.record --further --jobs $(JOBS)
	$(TEST)/bin/python -m tests.oracle.compiled --further --jobs $(JOBS)

oracle-further: build $(ORACLE)/stamp
	$(TEST)/bin/python -m tests.oracle --torch-python $(ORACLE)/bin/python --jobs $(JOBS) --further \
		--report build/oracle_further.json
	$(TEST)/bin/python -m tests.oracle.compiled --further --dtype float32 --limit 2 --jobs $(JOBS)

oracle-modules: build $(ORACLE)/stamp
	$(TEST)/bin/python -m tests.oracle.modules --torch-python $(ORACLE)/bin/python --jobs $(JOBS)
	$(TEST)/bin/python -m tests.oracle.optimizers --torch-python $(ORACLE)/bin/python --jobs $(JOBS)

oracle-docstrings: build $(ORACLE)/stamp
	$(TEST)/bin/python -m tests.oracle.docstrings --torch-python $(ORACLE)/bin/python

bench: build $(ORACLE)/stamp
	$(TEST)/bin/python bench/eager.py --torch-python $(ORACLE)/bin/python
	$(TEST)/bin/python bench/capture.py --torch-python $(ORACLE)/bin/python
	$(TEST)/bin/python bench/compile_cpu.py --torch-python $(ORACLE)/bin/python
	$(TEST)/bin/python bench/memory.py --torch-python $(ORACLE)/bin/python
	$(TEST)/bin/python bench/parity.py --torch-python $(ORACLE)/bin/python
