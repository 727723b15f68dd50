#!/bin/sh
# Builds the example job for WASI into the file $1 (default: digits.wasm beside
# this script, together with the version of Go that made it). The same version
# of Go gives the same bytes in any folder and on any machine: no paths, no
# build id, no version control stamp, no settings from the environment.
set -eu
cd "$(dirname "$0")"
out=${1:-digits.wasm}
export GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 GOFLAGS= GOWASM= GOEXPERIMENT= GODEBUG= GOWORK=off
go build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o "$out" .
chmod 644 "$out"
if [ $# -eq 0 ]; then
	go env GOVERSION >digits.wasm.go-version
fi
