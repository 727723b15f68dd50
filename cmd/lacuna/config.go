package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/node/config"
)

// maxConfigBytes bounds a config file that is read.
const maxConfigBytes = 1 << 20

func (c *cli) configCommand() *cobra.Command {
	return group("config", "Show, check or change the configuration",
		&cobra.Command{
			Use: "show", Short: "Print every value in force, what it means and where it comes from", Args: noArgs,
			Long: "Print the whole configuration as the file takes it, with what each key means and where its value comes from: the default, a line of the file, or the environment.",
			RunE: func(cmd *cobra.Command, _ []string) error {
				if d, err := c.dial(); err == nil { // its flags and environment count
					entries, err := d.Config(cmd.Context())
					if err != nil {
						return err
					}
					return c.printConfig(entries)
				}
				cfg, err := c.config(nil)
				if err != nil {
					return err
				}
				return c.printConfig(cfg.Explain())
			},
		},
		&cobra.Command{
			Use: "check [FILE]", Short: "Check a config file, by default the one in the home", Args: rangeArgs(0, 1, "at most one file"),
			RunE: func(cmd *cobra.Command, args []string) error {
				h, err := c.homeDir()
				if err != nil {
					return err
				}
				name := h.ConfigFile()
				if len(args) > 0 {
					name = args[0]
				}
				data, err := c.readFile(cmd.Context(), name, maxConfigBytes, "")
				if errors.Is(err, fs.ErrNotExist) && len(args) == 0 {
					data, err = nil, nil // without a file everything has its default
				}
				if err != nil {
					return err
				}
				if err := config.Check(name, data); err != nil {
					return usageError("every key with its meaning: lacuna config show", "%w", err)
				}
				v := struct {
					File string `json:"file"`
					OK   bool   `json:"ok"`
				}{name, true}
				return c.print(v, func(t *table) { t.row(name + ": ok") })
			},
		},
		&cobra.Command{
			Use: "set KEY VALUE", Short: "Change a key in the config file", Args: exactArgs(2, "a key and a value"),
			Long: `Change a key in the config file of the home; all else in it stays as it is. Commas
divide lists. The peer reads it when it starts.`,
			Example: `  lacuna config set provide.price "0.25 USD/h"
  lacuna config set network.announce /ip4/192.0.2.1/tcp/4711,/ip4/192.0.2.1/udp/4711/quic-v1
  lacuna config set network.hub no`,
			RunE: func(_ *cobra.Command, args []string) error { return c.setConfig(args[0], args[1]) },
		})
}

func (c *cli) setConfig(key, value string) error {
	h, err := c.homeDir()
	if err != nil {
		return err
	}
	if err := h.Create(); err != nil {
		return err
	}
	if err := config.Set(h.ConfigFile(), map[string]string{key: value}); err != nil {
		if errors.Is(err, config.ErrByHand) {
			return byHand(err, h.ConfigFile())
		}
		return usageError("every key with its meaning: lacuna config show", "%w", err)
	}
	v := struct {
		Key   string `json:"key"`
		Value string `json:"value"`
		File  string `json:"file"`
	}{key, value, h.ConfigFile()}
	if err := c.print(v, func(t *table) { t.text(key + " is " + value + " in " + h.ConfigFile()) }); err != nil {
		return err
	}
	if cfg, err := c.config(nil); err == nil && strings.HasPrefix(cfg.Origin(key), "env ") {
		c.say("the variable %s is set, and counts more", strings.TrimPrefix(cfg.Origin(key), "env "))
	}
	if _, held := h.Running(); held {
		c.say("the running peer reads it at its next start: lacuna down, then lacuna up -d with the flags of before")
	}
	return nil
}

// byHand says how a config file that only a person can change is changed.
func byHand(err error, file string) error {
	return usageError("write each section as a block, one key per line, and try again; or edit by hand: "+file, "%w", err)
}

// config returns the values in force; faults are errors of usage. Overrides are those of config.Load.
func (c *cli) config(overrides map[string]string) (config.Config, error) {
	h, err := c.homeDir()
	if err != nil {
		return config.Config{}, err
	}
	cfg, err := config.Load(h.Dir(), c.env, overrides)
	if err != nil {
		hint := ""
		if _, fault := config.Load(h.Dir(), func(string) string { return "" }, nil); fault != nil {
			hint = "check it with: lacuna config check" // which reads the file, not flags and variables
		}
		return cfg, usageError(hint, "%w", err)
	}
	return cfg, nil
}

// printConfig prints the values as a config file; in the other formats, as a list.
func (c *cli) printConfig(entries []config.Entry) error {
	if c.format != "table" && c.format != "yaml" {
		return c.print(entries, nil)
	}
	values := map[string]string{}
	for _, e := range entries {
		values[e.Key] = e.Value
	}
	text, err := config.Render(values)
	if err != nil {
		return fmt.Errorf("print config: %w", err)
	}
	// Each key's comment line is followed by its own line; the origin goes behind that.
	var out strings.Builder
	rest := entries
	for line := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(line)
		if len(rest) > 0 {
			_, field, _ := strings.Cut(rest[0].Key, ".")
			if strings.HasPrefix(trimmed, field+":") && strings.HasPrefix(line, "  ") {
				line = strings.TrimSuffix(line, "\n") + "  # " + rest[0].Origin + "\n"
				rest = rest[1:]
			}
		}
		out.WriteString(line)
	}
	_, err = c.stdout.Write([]byte(out.String()))
	return err
}

// exists reports whether there is something at path.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
