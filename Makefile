# Each target sets up .venv on first use, so any of them may be the first command after a clone.
PYTHON ?= python3
BIN := .venv/bin
EPOCHS ?= 8
OUT ?= runs/demo
READY := .venv/ready

.PHONY: demo test check bench clean

demo: $(READY)
	$(BIN)/python examples/02_compare.py --epochs $(EPOCHS) --out $(OUT)

test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

BENCHMARKS := step memory scaling clustering pipeline options methods

bench: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[peers]'
	for name in $(BENCHMARKS); do \
	  $(BIN)/python benchmarks/$$name.py --quick --json benchmarks/out/$$name.json || exit 1; done

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# torch first and on its own: with its pin in place nothing else asks for another build of it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("cicf needs Python 3.11 or newer; name one with: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(READY)
