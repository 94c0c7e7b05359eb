# make report               the whole chain on 12,000 digits that come with it: results/report.html
# make demo                 a page on this machine where the run's model names a picture that is dropped or drawn
# make model               the run's model as files for other programs: results/model.zip (docs/use.md)
# make table               the run's features as a table for other programs: results/features.parquet (docs/use.md)
# make test                 linters and the short run of the tests, which tests/README.md describes
# make test-all             linters and all tests
# make rung NAME=mine FROM=gpu_basic   a rung of your own: a folder, a module and a row to start from, all new files
# make check RUNG=mine      what is wrong with one rung of the ladder, in a line each, and its tests if it has any
# make benchmark            images/s of the cpu rung and of PyTorch, side by side
# make gpu-check            this machine's GPU: every rung checked, and measured beside PyTorch; a page, and a file to send in
# make gpu-prepare          kernels compiled and packages downloaded here, and what to carry, for a GPU without a network
# make profile RUNG=gpu_opt_v2  the time of each launch of a rung's training step, and where ncu is, what it is spent on
# make records PRESET=cifar10_best   a preset on its real data, whole and with three seeds: benchmarks/presets/, and the tables
# make container            a Docker image with the packages of the CPU and a copy of the project: kernel-ladder
# make container-gpu        the same for a machine with an NVIDIA GPU: kernel-ladder-gpu
# make docs                 docs/configuration.md and tables of docs/networks.md and climb.md, with its figures, from the source;
#                           and a site of all pages, which needs no network: site/index.html
# make pictures             the pictures of README.md and docs/, photographed by Chromium; runs what is missing for them
# make pins                 newest releases, with the hashes of their files, into envs/*.txt
# make dist                 the packages of a release, wheels of the workflow and of the emulator, and their sources: dist/
# make clean                everything generated, results included; not the environments
# PYTHON=python3.12         the interpreter for .venv
# DEVICE=cpu                no GPU packages on a machine with an NVIDIA GPU
# MINUTES=13                of a gpu-check, which goes on where the time ran out
# ARCHITECTURE=sm_90        that gpu-prepare compiles for; TARGET=3.12 is the version of Python there
# KERNEL=gpu_basic/relu.cu  the file of kernels, or a header of one, that rung copies, by default that of FROM's convolutions
# CONFIG="key=value ..."    settings that records and pictures add, the address of a data set for one
# VERBOSE=1                 Snakemake's own words in report, model and table, in place of a line for each stage
# PORT=8000                 of the demo; RUN, of the model and the table too:
# RUN='--configfile presets/mnist_lenet_5.yaml' chooses its run, by default config.yaml's

export PYTHON ?= python3
DEVICE ?= auto
PORT ?= 8000
MINUTES ?= 13

# Tests start hundreds of processes, each of which would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE
# pip would compile all modules, which takes half of an installation; Python compiles those that it imports.
export PIP_COMPILE = 0

TARGETS = report model table demo test test-all lint rung check benchmark gpu-check gpu-prepare profile records container container-gpu docs pictures pins dist clean
.PHONY: $(TARGETS) environment gpu-environment test-environment pins-environment pytorch

# Snakemake with a line for each stage; VERBOSE=1: with its own words.
SNAKEMAKE = @.venv/bin/python workflow/scripts/run_workflow.py --cores all $(if $(VERBOSE),-v)

report: environment
	$(SNAKEMAKE) results/report.html
	@.venv/bin/python workflow/scripts/tools/next_step.py

demo: environment
	@envs/install demo
	@.venv/bin/python workflow/scripts/tools/demo.py --port $(PORT) $(RUN)

model table: environment
	@envs/install export
	$(SNAKEMAKE) $@ $(RUN)
	@echo "docs/use.md says what is in it and how to use it"

environment:
	@envs/install cpu
	@if [ "$(DEVICE)" != cpu ] && nvidia-smi -L >/dev/null 2>&1; then \
	    envs/install gpu || echo "The GPU set could not be installed; going on with the CPU"; \
	fi

# More workers than two cores: tests of the workflow wait for processes, of which the whole run has more.
PYTEST = .venv/bin/python -m pytest --dist worksteal

test: test-environment lint
	$(PYTEST) -n 3 --short

test-all: test-environment lint
	$(PYTEST) -n 4

lint: test-environment
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	git ls-files '*.cu' '*.cuh' '*.cpp' '*.h' | xargs .venv/bin/clang-format --dry-run --Werror
	.venv/bin/snakefmt --check Snakefile workflow
	.venv/bin/snakemake --lint
	PYTHONPATH=workflow/scripts .venv/bin/lint-imports --no-cache
	.venv/bin/mypy

rung: test-environment
	@.venv/bin/python tests/support/new_rung.py "$(NAME)" "$(FROM)" "$(KERNEL)"

check: test-environment
	@.venv/bin/python tests/support/judge_rung.py "$(RUNG)"
	@if [ -f "tests/kernels/test_$(RUNG).py" ]; then .venv/bin/python -m pytest -n 2 --maxschedchunk 1 -k "$(RUNG)" \
	    tests/operations tests/rungs/test_ladder.py tests/rungs/test_largest_batch.py "tests/kernels/test_$(RUNG).py"; fi

test-environment:
	@envs/install cpu test demo export $(if $(filter Linux,$(shell uname)),kernels)
	@command -v g++ >/dev/null || echo "g++ is not here (Debian package: g++); tests that need it are skipped"
	@command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null || \
	    echo "Chromium is not here (Debian package: chromium); tests that need it are skipped"

benchmark: environment pytorch
	.venv/bin/python benchmarks/cpu.py --torch-python .venv-benchmark/bin/python

# A build of the pinned version that is there already stays, such as one for the CPU alone from PyTorch's own index.
TORCH = $(shell sed -n 's/^torch==\([^ ]*\).*/\1/p' envs/benchmark.txt)
pytorch:
	@test -x .venv-benchmark/bin/python || $(PYTHON) -m venv .venv-benchmark
	@.venv-benchmark/bin/python -c "import numpy, torch; exit(torch.__version__.partition('+')[0] != '$(TORCH)')" \
	    2>/dev/null || .venv-benchmark/bin/python envs/bring.py benchmark

gpu-check: gpu-environment
	@$(PYTHON) -c "import tomllib, numpy, torch; torch.zeros(1, device='cuda')" 2>/dev/null || \
	    $(MAKE) --no-print-directory pytorch || echo "PyTorch could not be installed; the rungs are measured without it"
	@.venv/bin/python benchmarks/gpu_check.py --minutes $(MINUTES)

gpu-prepare: environment
	@test -x .venv-nvrtc/bin/python || $(PYTHON) -m venv .venv-nvrtc
	@.venv-nvrtc/bin/python envs/bring.py nvrtc13
	@.venv-nvrtc/bin/python benchmarks/gpu_check.py --prepare --architecture $(or $(ARCHITECTURE),sm_90) \
	    --python $(or $(TARGET),3.12)

profile: gpu-environment
	@.venv/bin/python benchmarks/gpu_check.py --only launches,ncu --rungs $(or $(RUNG),gpu_opt_v2)

gpu-environment:
	@nvidia-smi -L >/dev/null 2>&1 || \
	    { echo "this needs an NVIDIA GPU and its driver, and nvidia-smi does not answer here"; exit 1; }
	@envs/install cpu gpu

records: environment
	@test -n "$(PRESET)" || { echo "PRESET=cifar10_best: say which preset; there are$(patsubst presets/%.yaml, %,$(wildcard presets/*.yaml))"; exit 1; }
	.venv/bin/python benchmarks/preset_records.py $(PRESET) $(if $(CONFIG),--config $(CONFIG))
	.venv/bin/python benchmarks/preset_table.py

container:
	docker build -f envs/Dockerfile.cpu -t kernel-ladder .

container-gpu:
	docker build -f envs/Dockerfile.gpu -t kernel-ladder-gpu .

docs:
	@envs/install cpu docs
	.venv/bin/python docs/generate.py
	.venv/bin/python docs/climb.py
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict

pictures: environment
	.venv/bin/python docs/pictures.py $(if $(CONFIG),--config $(CONFIG))

pins: pins-environment
	.venv-pins/bin/python envs/pins.py cpu pins pip
	.venv-pins/bin/python envs/pins.py test gpu demo export docs cluster kernels benchmark nvrtc13
	.venv-pins/bin/python envs/pins.py slurm

pins-environment:
	@test -x .venv-pins/bin/python || $(PYTHON) -m venv .venv-pins
	@.venv-pins/bin/python envs/bring.py pins

dist: pins-environment
	rm -rf dist
	.venv-pins/bin/python -m hatchling build
	cd emulator && ../.venv-pins/bin/python -m hatchling build -d ../dist

# A mistyped target.
.DEFAULT:
	@PYTHONPATH=workflow/scripts/ladder/workflow $(PYTHON) -Bc 'import difflib, removed, sys; name, *names = sys.argv[1:]; \
	    near = difflib.get_close_matches(name, names, 1); \
	    sys.exit(removed.instead(name) or f"make: there is no target {name}; " + (f"did you mean {near[0]}?" if near else "there are " + ", ".join(names)))' \
	    "$@" $(TARGETS)

clean:
	rm -rf results logs dist site .snakemake .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -not -path './.venv*' -exec rm -rf {} +
