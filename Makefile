# Everything a developer does, one target each. `make` alone lists them.
# Needs Python 3.11+, Node 20+ and npm; the rest is fetched into .venv and node_modules.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Each stamp is newer than what it was made from; they live in .venv and die with it.
RUN_PACKAGES := $(VENV)/.stamp-run
DEV_PACKAGES := $(VENV)/.stamp-dev
PACKAGE := $(VENV)/.stamp-package
# npm writes these files last.
TOOLING := tooling/node_modules/.package-lock.json
GUEST_PACKAGES := guest/node_modules/.package-lock.json
WEB_PACKAGES := web/node_modules/.package-lock.json
PEERS := tooling/peers/node_modules/.package-lock.json
CODEX_VERSIONS := tooling/codex/node_modules/.package-lock.json

# -qq: errors only.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip -qq
NPM_CI := ci --ignore-scripts --no-audit --no-fund --loglevel=error

# $(call step,name,command): one line when it works, its whole output when it does not.
step = @printf '%-14s' '$(1)'; if output=$$($(2) 2>&1); then echo ok; \
	else status=$$?; printf 'failed\n%s\n' "$$output"; exit $$status; fi
# The same beside other output: the line is written as a whole.
step_at_end = @if output=$$($(2) 2>&1); then printf '\n%-14s%s\n' '$(1)' ok; \
	else status=$$?; printf '\n%-14s%s\n%s\n' '$(1)' failed "$$output"; exit $$status; fi
need_node = @command -v node >/dev/null && command -v npm >/dev/null || \
	{ echo 'error: node and npm are needed (Node 20 or newer); install them and try again.' >&2; exit 1; }

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

.PHONY: help
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "make %-12s %s\n", $$1, $$2 }'

.PHONY: install install-dev
install: $(PACKAGE) assets  ## set up .venv with what running needs, and install nacre into it
install-dev: install $(DEV_PACKAGES)  ## add the tools for tests, checks and benchmarks

.PHONY: run
run: install  ## start the gateway, with a demonstration model if none is configured
	@$(BIN)/nacre gateway

.PHONY: test
test: install-dev $(GUEST_PACKAGES) $(WEB_PACKAGES) $(PEERS) $(TOOLING)  ## run the tests of the guest, of the web app, and the Python tests
	$(need_node)
	@tooling/ensure_chromium.sh
	@$(MAKE) -j 2 test-npm test-python

# Beside the Python tests, which begin with what one core does: to compile and to collect.
.PHONY: test-npm test-python
test-npm:
	$(call step_at_end,guest tests,npm test --silent --prefix guest)
	$(call step_at_end,web tests,npm test --silent --prefix web)
test-python:
	@$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder

# The binary of the dev lock is always tested; these are the oldest that works, and the newest.
.PHONY: test-codex-versions
test-codex-versions: install-dev $(CODEX_VERSIONS)  ## run the tests of the Codex harness with other versions of Codex
	@for program in $$(find tooling/codex/node_modules -type f -name codex -perm -u+x | sort); do \
		echo "$$($$program --version)"; \
		CODEX_UNDER_TEST=$$PWD/$$program $(BIN)/pytest -q -rs -n 2 --dist loadfile tests/codex_harness || exit 1; \
	done

.PHONY: test-kills
test-kills: install-dev  ## kill processes at each failpoint of durable cells and turns, 20 times each
	@NACRE_KILL_ROUNDS=20 $(BIN)/pytest -q -n 2 tests/code_mode/test_killed_cells.py tests/agent/test_killed_turns.py

.PHONY: coverage
coverage: install-dev $(PEERS)  ## run the Python tests and report the coverage of src/nacre
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -n 2 --dist loadfile
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

.PHONY: check check-format check-lint check-types check-web check-imports
check: check-format check-lint check-types check-web check-imports  ## format, lint, types, layers (-k: all)
check-format: install-dev
	$(call step,ruff format,$(BIN)/ruff format --check .)
check-lint: install-dev
	$(call step,ruff check,$(BIN)/ruff check .)
check-types: install-dev $(TOOLING)
	$(call step,pyright,tooling/node_modules/.bin/pyright)
check-web: $(WEB_PACKAGES)
	$(call step,tsc,npm run check --silent --prefix web)
check-imports: install-dev
	$(call step,lint-imports,$(BIN)/lint-imports --no-logo)

.PHONY: format
format: $(DEV_PACKAGES)  ## format the Python code and apply the safe lint fixes
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: bench
bench: install-dev $(PEERS)  ## run the benchmarks
	@$(BIN)/python -m benchmarks

# The peers are installed into tooling/bench_peers, each into an environment of its own.
.PHONY: bench-peers
bench-peers: install-dev  ## measure other code modes and LiteLLM beside Nacre (PEERS_FLAGS='--rounds 2 --only codex')
	@$(BIN)/python -m benchmarks.peers $(PEERS_FLAGS)

.PHONY: screenshots
screenshots: install-dev  ## draw the pictures of the web app in docs/images anew (needs Chromium)
	@tooling/ensure_chromium.sh
	@$(BIN)/python -m tests.web.screenshots

.PHONY: build
build: install  ## build the wheel into dist/
	@$(PIP) wheel --no-deps --no-build-isolation -w dist .
	@ls dist/*.whl

# Pins with hashes and without the address of an index.
COMPILE = CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(LOCK_FLAGS)

.PHONY: lock
lock: $(DEV_PACKAGES)  ## pin the dependencies anew (newest: make lock LOCK_FLAGS=--upgrade)
	$(need_node)
	$(call step,run lock,$(COMPILE) --extra build --extra gateway --output-file requirements/run.txt pyproject.toml)
	$(call step,dev lock,$(COMPILE) --constraint requirements/run.txt --extra build --extra codex --extra dev \
		--extra gateway --extra postgres --extra ray --extra semantic --output-file requirements/dev.txt pyproject.toml)
	$(call step,web lock,npm install --package-lock-only --no-audit --no-fund --prefix web)
	$(call step,tooling lock,npm install --package-lock-only --no-audit --no-fund --prefix tooling)
	$(call step,peers lock,npm install --package-lock-only --no-audit --no-fund --prefix tooling/peers)
	$(call step,codex lock,npm install --package-lock-only --no-audit --no-fund --prefix tooling/codex)
	$(call step,bench peers,for file in tooling/bench_peers/*/package.json; do \
		npm install --package-lock-only --no-audit --no-fund --prefix $$(dirname $$file) || exit 1; done; \
		for file in tooling/bench_peers/*/requirements.in; do \
		$(COMPILE) --output-file $${file%.in}.txt $$file || exit 1; done)

.PHONY: clean
clean:  ## remove everything that was built or fetched
	@rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache \
		.pytest_cache .ruff_cache guest/node_modules web/node_modules tooling/node_modules tooling/peers/node_modules \
		tooling/codex/node_modules tooling/bench_peers/*/node_modules tooling/bench_peers/*/.venv \
		src/nacre/gateway/assets src/nacre/sandbox/assets
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || \
		{ echo 'error: $(PYTHON) is not on PATH; Nacre needs Python 3.11 or newer.' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("error: $(PYTHON) is Python " \
		+ sys.version.split()[0] + "; Nacre needs 3.11 or newer (make PYTHON=python3.12 ...).")'
	@echo 'creating $(VENV)'
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) uninstall --yes setuptools  # Python 3.11 adds it; nothing here uses it

# Not compiled: Python compiles what it imports, which is a part of it and half of the space.
$(RUN_PACKAGES): requirements/run.txt | $(BIN)/python
	@echo "installing $$(grep -c '==' requirements/run.txt) packages"
	@$(PIP) install --no-compile --require-hashes -r requirements/run.txt
	@touch $@

$(DEV_PACKAGES): requirements/dev.txt $(RUN_PACKAGES)
	@echo "installing the packages for tests and checks, $$(grep -c '==' requirements/dev.txt) in all; the first time takes a minute"
	@$(PIP) install --no-compile --require-hashes -r requirements/dev.txt
	@touch $@

# The digest of the sources decides, not their dates: asked each time, in a moment.
.PHONY: assets
assets: $(RUN_PACKAGES)
	@$(BIN)/python hatch_build.py

$(PACKAGE): pyproject.toml hatch_build.py $(RUN_PACKAGES) | assets
	@echo 'installing nacre into $(VENV)'
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(TOOLING): tooling/package-lock.json
	$(need_node)
	@echo 'installing pyright and axe'
	@npm $(NPM_CI) --prefix tooling >/dev/null
	@touch $@

# MCP servers and clients, and the TypeScript compiler: what the tests talk to.
$(PEERS): tooling/peers/package-lock.json
	$(need_node)
	@echo 'installing the peers of the tests'
	@npm $(NPM_CI) --prefix tooling/peers >/dev/null
	@touch $@

# 600 MB, so only for its target.
$(CODEX_VERSIONS): tooling/codex/package-lock.json
	$(need_node)
	@echo 'installing other versions of Codex'
	@npm $(NPM_CI) --prefix tooling/codex >/dev/null
	@touch $@

# The builds fetch them too, but are skipped when the assets are already there.
$(GUEST_PACKAGES): guest/package-lock.json | assets
	$(need_node)
	@npm $(NPM_CI) --prefix guest >/dev/null
	@touch $@

$(WEB_PACKAGES): web/package-lock.json | assets
	$(need_node)
	@npm $(NPM_CI) --prefix web >/dev/null
	@touch $@
