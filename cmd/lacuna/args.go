package main

import (
	"path/filepath"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// exactArgs wants n arguments and says which.
func exactArgs(n int, what string) cobra.PositionalArgs { return rangeArgs(n, n, what) }

// someArgs wants at least one argument and says which.
func someArgs(what string) cobra.PositionalArgs { return rangeArgs(1, 1<<20, what) }

// rangeArgs wants from least to most arguments and says which.
func rangeArgs(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usageError("see: "+cmd.CommandPath()+" --help", "%s takes %s, got %s", cmd.CommandPath(), what, count(len(args), "argument"))
		}
		return nil
	}
}

// absolute returns the absolute path, as the daemon has another working folder.
func absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil && !utf8.ValidString(abs) { // the daemon is asked in JSON
		err = usageError("", "path %q is not UTF-8 text", path)
	}
	return abs, err
}
