#!/usr/bin/env bash
# Make sure that the browser tests find a Chromium or Chrome: in $CHROMIUM or on PATH, else from
# Debian's packages. Never fails: without a browser these tests are skipped.
set -u
max_seconds=300

if [ -n "${CHROMIUM:-}" ]; then exit 0; fi
for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
	if command -v "$name" >/dev/null; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo 'installing chromium for the browser tests (Debian package, 120 MB)'
	export DEBIAN_FRONTEND=noninteractive
	install='apt-get install -qq -y --no-install-recommends chromium'
	if timeout "$max_seconds" sh -c "$install || (apt-get update -qq && $install)" >/dev/null 2>&1; then exit 0; fi
fi
echo 'note: no Chromium found, so the browser tests are skipped; install chromium, or set CHROMIUM to its path.'
