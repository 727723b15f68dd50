package main

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/home"
)

// maxKeyBytes bounds a key file that is read.
const maxKeyBytes = 64 << 10

func (c *cli) identityCommand() *cobra.Command {
	var force bool
	imp := &cobra.Command{
		Use: "import FILE|-", Short: "Make a key the identity of this home", Args: exactArgs(1, "a key file, or - for stdin"),
		Long: `Make an Ed25519 private key the identity of this home: a PEM file (PKCS #8), as
export writes it, or a libp2p private key. The daemon must not run.

A key must never run in two places at once: both would sign. Leases that are open
under an imported key are abandoned at the next start, and count against it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			h, file, err := c.identityFile()
			if err != nil {
				return err
			}
			data, err := c.readFile(cmd.Context(), args[0], maxKeyBytes, "")
			if err != nil {
				return err
			}
			key, err := h.Import(file, data, force)
			if err != nil {
				return identityError(err)
			}
			c.say("the next start abandons all leases that are open under this key; make sure that it runs nowhere else")
			return c.printIdentity(key, h.IdentityFile(file))
		},
	}
	imp.Flags().BoolVar(&force, "force", false, "replace another key; it is kept beside the new one as FILE.old")
	return group("identity", "This peer's key",
		&cobra.Command{
			Use: "show", Short: "Show who this peer is", Args: noArgs,
			RunE: func(*cobra.Command, []string) error {
				h, file, err := c.identityFile()
				if err != nil {
					return err
				}
				key, err := h.Identity(file)
				if err != nil {
					return identityError(err)
				}
				return c.printIdentity(attest.Key(key.Public().(ed25519.PublicKey)), h.IdentityFile(file))
			},
		},
		&cobra.Command{
			Use: "export [FILE|-]", Short: "Write the private key, by default to stdout", Args: rangeArgs(0, 1, "at most one file"),
			Long: "Write the private key as PEM (PKCS #8). Whoever has it is this peer: keep it where only you can read it.",
			RunE: func(_ *cobra.Command, args []string) error {
				h, file, err := c.identityFile()
				if err != nil {
					return err
				}
				data, err := h.Export(file)
				if err != nil {
					return identityError(err)
				}
				if len(args) == 0 || args[0] == "-" {
					_, err := c.stdout.Write(data)
					return err
				}
				return writeNew(args[0], data)
			},
		}, imp)
}

// identityFile returns the home and the name of its key file.
func (c *cli) identityFile() (home.Home, string, error) {
	h, err := c.homeDir()
	if err != nil {
		return h, "", err
	}
	cfg, err := c.config(nil)
	return h, cfg.Identity.File, err
}

func identityError(err error) error {
	var used *home.InUseError
	switch {
	case errors.Is(err, home.ErrNoIdentity):
		return &exitError{exit: exitFailed, code: "no_identity", err: err, hint: "the first start makes one: lacuna up"}
	case errors.Is(err, home.ErrIdentityExists):
		return &exitError{exit: exitFailed, code: "identity_exists", err: err, hint: "lacuna identity export FILE, then lacuna identity import --force FILE"}
	case errors.Is(err, home.ErrKeyFormat):
		return usageError("", "%w", err)
	case errors.As(err, &used):
		return &exitError{exit: exitFailed, code: "running", err: err, hint: "lacuna down"}
	}
	return err
}

func (c *cli) printIdentity(key attest.Key, file string) error {
	v := struct {
		Peer attest.Key `json:"peer"`
		File string     `json:"file"`
	}{key, file}
	return c.print(v, func(t *table) {
		t.field("peer", key.String())
		t.field("file", file)
	})
}

// writeNew writes a secret into a file that must not be there yet.
func writeNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, pathCause(err))
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// say prints a word on stderr that is no result.
func (c *cli) say(format string, args ...any) {
	if !c.quiet {
		fmt.Fprintf(c.stderr, format+"\n", args...)
	}
}
