//go:build linux && race

package main

const raceDetector = true
