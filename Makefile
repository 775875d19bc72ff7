# Two commands: `make demo` and `make test`. Each sets itself up; a second run starts at once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# NVIDIA's driver, Ironic's agent, the requirements of Neutron's own tests, and the packages that weft's driver imports.
NEUTRON := neutron networking-mlnx ironic-python-agent msgspec numpy \
	ddt fixtures oslotest testresources testscenarios testtools webtest
TORCH := torch==2.13.0+cpu
# Transfer engines of inference servers. NIXL's metadata requires torch, which it does not need.
ENGINES := nixl==1.5.1 nixl-cu13==1.5.1 mooncake-transfer-engine-non-cuda==0.3.13.post1
# The tests run hundreds of commands, and each would compile weft's sources again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick docs web wheel dist image peers interop rdma-core-tests bench mutate clean

demo: $(VENV)/.installed
	@mkdir -p out
	@$(BIN)/weft compare superpod:su=1 --report out/compare.html
	@$(BIN)/weft draw superpod:su=1 -o out/superpod.html
	@echo
	@echo "Open out/compare.html, the report, and out/superpod.html, the fabric. Try next:"
	@echo "  . $(BIN)/activate"
	@echo "  weft nccl all_reduce -b 1M -e 8G superpod:su=1     predict the output of nccl-tests"
	@echo "  weft show superpod:su=1 dgx7                       show a server and its cables"
	@echo "  weft export superpod:su=1 -o out/superpod.net      write a file as ibnetdiscover prints, for ibsim"
	@echo "  weft route torus:6x6 --compare                     compare routing engines"
	@echo "  weft perf send_lat --live                          measure RDMA between two processes, as perftest does"
	@echo "  weft topologies                                    list the topologies that weft can build"

# Collecting the tests once compiles weft's sources and all assertions before the workers start. mypy runs beside the
# tests: alone it would leave all processors but one idle.
test: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy >$(VENV)/.types & types=$$!; \
	{ [ -e $(VENV)/.collected ] || $(BIN)/pytest --collect-only >$(VENV)/.collected; } \
	&& $(BIN)/pytest -n auto --dist worksteal; tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/.types; [ $$tests = 0 ] && [ $$types = 0 ]

# The tests that changes since the branch left BASE can affect: make quick BASE=HEAD for uncommitted changes alone.
BASE ?= main
quick: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/python -m tests.quick --base $(BASE)

docs: $(VENV)/.tested
	@$(BIN)/python docs/site/build.py out/site
	@echo "Read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory out/site/html"

# Build the console's page from web/, again only when a source has changed. `weft serve` and `weft up --web` show it.
web: $(VENV)/bin/python
	@$(BIN)/python web/build.py

# Build the wheel, install it alone into new environments, and run the main job from each:
# make wheel PYTHONS="python3.11 python3.13" NUMBA=numba==0.61.0
PYTHONS ?= $(PYTHON)
wheel: $(VENV)/bin/python
	@rm -rf out/wheel
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir out/wheel .
	@set -e; for python in $(PYTHONS); do \
		rm -rf out/wheel/venv; $$python -m venv out/wheel/venv; \
		out/wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check out/wheel/weft_fabric-*.whl $(NUMBA); \
		(cd out/wheel && venv/bin/python -VV && venv/bin/weft-fabric --version && venv/bin/weft compare superpod:su=1 --report compare.html); \
	done
	@ls out/wheel/weft_fabric-*.whl

# Build the files of a release: source archive and wheel, their SBOM, notes and checksums. A second build, from the unpacked source
# archive with other times and permissions of files, must give the same archives. The SBOM lists the environment of `make wheel`.
ARCHIVES = $(BIN)/python -m build --no-isolation --sdist --wheel --outdir
dist: wheel
	@rm -rf out/dist out/rebuilt
	@$(PIP) -e '.[release]'
	@$(ARCHIVES) out/dist . >/dev/null
	@mkdir -p out/rebuilt/source
	@umask 077; tar -xzmf out/dist/*.tar.gz --no-same-permissions --strip-components=1 -C out/rebuilt/source
	@[ ! -d src/weft/web/dist ] || cp -R src/weft/web/dist out/rebuilt/source/src/weft/web/
	@$(ARCHIVES) out/rebuilt out/rebuilt/source >/dev/null
	@set -e; for file in out/dist/*; do cmp $$file out/rebuilt/$${file##*/}; done
	@$(BIN)/cyclonedx-py environment --short-PURLs --output-reproducible --pyproject pyproject.toml \
		--output-file out/dist/weft-fabric.cdx.json out/wheel/venv/bin/python
	@awk -v version="$$($(BIN)/python -c 'from weft.version import __version__; print(__version__)')" \
		'/^## / { printing = index($$2, version) == 1; next } printing' CHANGELOG.md >out/dist/NOTES.md
	@cd out/dist && sha256sum * >SHA256SUMS && cat SHA256SUMS

# Build the root file system of the Dockerfile without a container engine, and run the chart's containers in it as pods. Needs root
# and mmdebstrap. ARCH=arm64 builds for another architecture by qemu-user-static, and runs nothing.
image: $(VENV)/.peers web
	@$(BIN)/python deploy/rootfs.py out/image $(if $(ARCH),--arch $(ARCH))
	@$(if $(ARCH),,WEFT_IMAGE=out/image $(BIN)/pytest -n0 tests/interop/test_chart.py)

# Programs against which the tests check weft: Ray, Arrow, Neutron, PyTorch, NIXL and Mooncake, which are too large for
# `make test` to download, and programs of Debian. PyTorch without CUDA where an index has it: with CUDA it has gigabytes.
peers: $(VENV)/.peers $(VENV)/neutron/.installed web
	@$(PIP) '$(TORCH)' 2> /dev/null || $(PIP) -e '.[torch]'
	@$(PIP) --no-deps $(ENGINES) || echo "weft: no wheels of NIXL and Mooncake for this Python: their tests are skipped"
	@chown -R --reference=. $(VENV) web src/weft/web  # after `sudo make peers` these belong to root, and `make test` could not write there
	@./peers.sh

# Only the tests against other programs; `make test` includes them.
interop: $(VENV)/.tested
	$(BIN)/pytest -n auto --dist worksteal tests/interop

# Neutron has an environment of its own, as on a controller, because it needs other versions of packages.
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
	$(BIN)/python benchmarks/plan.py
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

# List changes of a package's source that none of its tests detects: make mutate PACKAGE=sm MUTANTS=100 SEED=2
# TESTS: these test files instead of the package's; ONLY: functions or kernels
MUTANTS ?= 40
SEED ?= 1
LIMIT_S ?= 20
mutate: $(VENV)/.tested
	@$(BIN)/python -m tests.mutate $(PACKAGE) --sample $(MUTANTS) --seed $(SEED) --limit-s $(LIMIT_S) \
		$(if $(ONLY),--only $(ONLY)) $(if $(TESTS),--tests $(TESTS))

$(VENV)/bin/python:
	@echo "weft: creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "weft needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "weft: installing into $(VENV)"
	@$(PIP) -e .
	@touch $@

# One installation for peers and tests, so that pip resolves versions once.
$(VENV)/.peers: pyproject.toml | $(VENV)/bin/python
	@echo "weft: installing into $(VENV), with the requirements of the tests and of the peers"
	@$(PIP) -e '.[test,peers,parquet,postgres,ray]'
	@touch $@ $(VENV)/.tested $(VENV)/.installed

$(VENV)/.tested: pyproject.toml | $(VENV)/bin/python
	@echo "weft: installing into $(VENV), with the requirements of the tests"
	@$(PIP) -e '.[test]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) out src/weft/web/dist web/node_modules web/.node .mypy_cache .ruff_cache .pytest_cache .hypothesis
