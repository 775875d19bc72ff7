# Two commands: `make demo` and `make test`. Each sets itself up; a second run starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# With NVIDIA's driver, what Neutron's own tests are made of, Ironic's agent, and those that weft's driver loads of what
# weft needs.
NEUTRON := neutron networking-mlnx ironic-python-agent msgspec numpy \
	ddt fixtures oslotest testresources testscenarios testtools webtest
TORCH := torch==2.13.0+cpu
# Engines of inference servers. NIXL's metadata wants torch, which it does not need.
ENGINES := nixl==1.5.1 nixl-cu13==1.5.1 mooncake-transfer-engine-non-cuda==0.3.13.post1
# Hundreds of commands are run by the tests: each would compile weft's sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test docs web wheel peers interop rdma-core-tests bench mutate clean

demo: $(VENV)/.installed
	@mkdir -p out
	@$(BIN)/weft compare superpod:su=1 --report out/compare.html
	@$(BIN)/weft draw superpod:su=1 -o out/superpod.html
	@echo
	@echo "Open out/compare.html, the report, and out/superpod.html, the fabric. Try next:"
	@echo "  . $(BIN)/activate"
	@echo "  weft nccl all_reduce -b 1M -e 8G superpod:su=1 what nccl-tests would print"
	@echo "  weft show superpod:su=1 dgx7                   one server and where its cables go"
	@echo "  weft draw fat-tree:hosts=1024,switch=QM9700 -o out/tree.html"
	@echo "  weft export superpod:su=1 -o out/superpod.net  what ibnetdiscover would print; ibsim loads it"
	@echo "  weft route torus:6x6 --compare                 routing engines side by side"
	@echo "  weft perf send_lat --live                      RDMA between two processes, as perftest measures it"
	@echo "  weft topologies                                what else can be built"

# What is collected first compiles weft, and every assertion: once, beside mypy, which leaves a processor idle, and not by each
# worker.
test: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; [ -e $(VENV)/.collected ] || $(BIN)/pytest --collect-only >$(VENV)/.collected; wait $$types
	$(BIN)/pytest -n auto --dist worksteal

docs: $(VENV)/.tested
	@$(BIN)/python docs/site/build.py out/site
	@echo "Read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory out/site/html"

# The console's page, from web/: once, and again when a source changes. `weft serve` and `weft up --web` show it.
web: $(VENV)/bin/python
	@$(BIN)/python web/build.py

# What `pip install weft-fabric` gives, in an environment that has nothing else: the main job runs from it.
wheel: $(VENV)/bin/python
	@rm -rf out/wheel
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir out/wheel .
	@$(PYTHON) -m venv out/wheel/venv
	@out/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check out/wheel/weft_fabric-*.whl
	@cd out/wheel && venv/bin/weft compare superpod:su=1 --report compare.html && ls weft_fabric-*.whl

# The outside judges: Ray, Arrow, Neutron, PyTorch, NIXL and Mooncake, which are too large for `make test` to fetch, and
# programs of Debian. PyTorch without CUDA, if pip is shown an index that has it: the other is gigabytes.
peers: $(VENV)/.judged $(VENV)/neutron/.installed web
	@$(PIP) '$(TORCH)' 2> /dev/null || $(PIP) -e '.[torch]'
	@$(PIP) --no-deps $(ENGINES) || echo "weft: no wheels of NIXL and Mooncake for this Python: their tests are skipped"
	@chown -R --reference=. $(VENV) web src/weft/web  # root's, after sudo make peers, `make test` could not add to it
	@./peers.sh

# What the outside judges say, alone: all of it is part of `make test`.
interop: $(VENV)/.tested
	$(BIN)/pytest -n auto --dist worksteal tests/interop

# Neutron is in an environment of its own, as on a controller: its versions are not ours.
$(VENV)/neutron/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "weft: installing Neutron into $(VENV)/neutron"
	@$(PYTHON) -m venv $(VENV)/neutron
	@$(VENV)/neutron/bin/python -m pip install --quiet --disable-pip-version-check $(NEUTRON)
	@$(VENV)/neutron/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

# rdma-core's own tests, unmodified, on weft's adapter; last line: N passed, N failed, N skipped.
rdma-core-tests: $(VENV)/.tested
	@$(BIN)/python tests/interop/rdma_core.py

bench: $(VENV)/.tested
	$(BIN)/python benchmarks/fabric.py
	$(BIN)/python benchmarks/routing.py
	$(BIN)/python benchmarks/packet.py
	$(BIN)/python benchmarks/collectives.py
	$(BIN)/python benchmarks/lab.py
	$(BIN)/python benchmarks/sm.py --rows 648 3456
	$(BIN)/python benchmarks/verbs.py
	$(BIN)/python benchmarks/join.py
	$(BIN)/python benchmarks/mpi.py
	$(BIN)/python benchmarks/study.py
	$(BIN)/python benchmarks/serve.py

# Changes of a package's source that none of its tests notices: make mutate PACKAGE=sm MUTANTS=100 SEED=2
MUTANTS ?= 40
SEED ?= 1
mutate: $(VENV)/.tested
	@$(BIN)/python -m tests.mutate $(PACKAGE) --sample $(MUTANTS) --seed $(SEED)

$(VENV)/bin/python:
	@echo "weft: making $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "weft needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "weft: installing into $(VENV)"
	@$(PIP) -e .
	@touch $@

# All at once, for `make test` too: it would look for versions that fit a second time.
$(VENV)/.judged: pyproject.toml | $(VENV)/bin/python
	@echo "weft: installing into $(VENV), with what the tests and their judges need"
	@$(PIP) -e '.[test,judges,parquet,postgres,ray]'
	@touch $@ $(VENV)/.tested $(VENV)/.installed

$(VENV)/.tested: pyproject.toml | $(VENV)/bin/python
	@echo "weft: installing into $(VENV), with what the tests need"
	@$(PIP) -e '.[test]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) out src/weft/web/dist web/node_modules web/.node .mypy_cache .ruff_cache .pytest_cache .hypothesis
