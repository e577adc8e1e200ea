# Every target is a phase of .ci/run, where its command is written down.
.PHONY: help ci setup format lint types imports test test-fast features bench

help:
	@echo "ci         everything, as CI runs it"
	@echo "setup      create .venv from the lock file"
	@echo "format     let ruff rewrite what lint would complain about"
	@echo "lint       ruff: rules and format"
	@echo "types      mypy --strict on src"
	@echo "imports    import directions"
	@echo "test       all tests but the slow ones; T=path or T='-k name' narrows them"
	@echo "test-fast  tests without a JVM"
	@echo "features   which lines of the specification are proven"
	@echo "bench      B=keyed-count OUT=file.json [Q=--quick]"

ci:
	@.ci/run

format:
	.venv/bin/ruff check --fix-only --quiet . ; .venv/bin/ruff format --quiet .

setup lint types imports features:
	@.ci/run $@

test test-fast:
	@.ci/run $@ $(T)

B ?= keyed-count
OUT ?= artifacts/$(B).json
bench:
	@mkdir -p $(dir $(OUT))
	@.ci/run bench $(B) --json $(OUT) $(Q)
