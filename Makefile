# Every target is a phase of .ci/run, where its command is written down.
.PHONY: help ci setup format lint types imports test test-fast affected nightly features prove matrix bench docs

help:
	@echo "test-fast  tests that need no JVM and no server, about a minute"
	@echo "affected   what your change reaches, compared with the main branch (TIDEGATE_BASE=commit names another)"
	@echo "ci         everything a change can break, as CI runs it: half an hour or more on two cores"
	@echo "nightly    all walks, full simulations, slow tests: hours; resumes where it was interrupted."
	@echo "           PARTS='simulation slow' narrows it, SIZE=0.1 shortens it"
	@echo "setup      create .venv from the lock file"
	@echo "format     let ruff rewrite what lint would complain about"
	@echo "lint       ruff: rules and format"
	@echo "types      mypy: strict on src, names and arguments in tests"
	@echo "imports    import directions"
	@echo "test       one pytest process over all tests but the slow ones; T=path or T='-k name' narrows them"
	@echo "docs       build the documentation site with both generators into artifacts/site and artifacts/site-mkdocs, and check it"
	@echo "features   which capabilities are proven"
	@echo "prove      breaks each proven capability in a copy, and runs its tests; P='A13 --quick' narrows it"
	@echo "matrix     a fixed suite with other versions of Python, Spark, Java and dependencies: hours; resumes."
	@echo "           CELLS='python3.12 spark4.1.4' narrows it to cells whose name contains a word, STEPS=unit,walk to steps"
	@echo "bench      B=keyed-count OUT=file.json [Q=--quick]"

ci:
	@.ci/run

format:
	.venv/bin/ruff check --fix-only --quiet . ; .venv/bin/ruff format --quiet .

setup lint types imports features:
	@.ci/run $@

test test-fast affected:
	@.ci/run $@ $(T)

docs:
	@.ci/run site

prove:
	@.ci/run prove $(P)

# What cells have shown goes into the record and the page of the support matrix, also if some have failed.
matrix:
	@.ci/run matrix run $(CELLS) $(if $(STEPS),--steps $(STEPS)); ended=$$?; .ci/run matrix record && exit $$ended

SIZE ?= 1
nightly:
	@.ci/run nightly $(PARTS) --size $(SIZE)

B ?= keyed-count
OUT ?= artifacts/$(B).json
bench:
	@mkdir -p $(dir $(OUT))
	@.ci/run bench $(B) --json $(OUT) $(Q)
