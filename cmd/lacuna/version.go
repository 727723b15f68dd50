package main

import (
	"errors"
	"io/fs"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/gpu"
)

// version is the release; the linker sets it when one is built.
var version = "0.1.0-dev"

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string  `json:"version"`
				Revision *string `json:"revision"` // null when it was not built from a repository
				Modified *bool   `json:"modified"` // likewise
				Go       string  `json:"go"`
				Platform string  `json:"platform"`
			}{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					switch s.Key {
					case "vcs.revision":
						v.Revision = &s.Value
					case "vcs.modified":
						m := s.Value == "true"
						v.Modified = &m
					}
				}
			}
			return c.print(v, func(t *table) {
				revision := ""
				if v.Revision != nil {
					revision = " (" + (*v.Revision)[:min(12, len(*v.Revision))] + ")"
				}
				t.text("lacuna " + version + revision + " " + v.Platform + " " + v.Go)
			})
		},
	}
}

// pathCause returns what is wrong with a file, without the name and the system call, which the caller says better.
func pathCause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// billable returns the device-milliseconds that are paid for.
func billable(u gpu.Usage) uint64 { return u[gpu.BillableDeviceMS] }
