package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lacuna-network/lacuna/node/testnet"
)

// testnetGPUs is what each provider of a testnet sells.
const testnetGPUs = `[{"model":"RTX 4090","price":"0.21 USD/h","place":"eu/de",
  "load":[{"for":"2s","util":9400,"power_mw":340000,"mem_mib":6000,"temp_c":64}],
  "idle":{"util":0,"power_mw":21000,"mem_mib":12,"temp_c":38}}]`

func (c *cli) testnetCommand() *cobra.Command {
	var n int
	var dir, name string
	up := &cobra.Command{
		Use: "up", Short: "Start a network of real peers on this machine", Args: noArgs,
		Long: `Start a network of peers on this machine, each a process of its own: providers with
one simulated GPU each, and a renter. It outlives this command; down ends it.`,
		Example: `  lacuna testnet up -n 5
  lacuna --home "$(lacuna testnet ls -o json | jq -r '.[0].dir')/renter" asks`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 2 || n > 64 {
				return usageError("", "-n %d: want 2 to 64 peers", n)
			}
			if dir == "" {
				root, err := testnetRoot()
				if err != nil {
					return err
				}
				if err := os.MkdirAll(root, 0o700); err != nil {
					return fmt.Errorf("make folder of testnets: %w", err)
				}
				dir = filepath.Join(root, name)
			}
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find this program: %w", err)
			}
			specs := []testnet.PeerSpec{}
			for i := 1; i < n; i++ {
				specs = append(specs, testnet.PeerSpec{Name: fmt.Sprintf("provider%d", i), Provide: true, GPUs: testnetGPUs})
			}
			specs = append(specs, testnet.PeerSpec{Name: "renter"})
			net, err := testnet.Up(cmd.Context(), testnet.Options{Dir: dir, Binary: self, Network: name, Peers: specs, Keep: true, Logger: c.logger(slog.LevelWarn)})
			if err != nil {
				return err
			}
			st, err := testnet.Read(net.Dir())
			if err := errors.Join(err, net.Close()); err != nil { // of a kept net this only lets go
				return err
			}
			c.say("rent on it with: lacuna --home %s run --gpus 1 FILE.wasm", filepath.Join(st.Dir, "renter"))
			return c.printTestnets([]testnet.State{st})
		},
	}
	up.Flags().IntVarP(&n, "peers", "n", 5, "peers, the renter among them")
	up.Flags().StringVar(&dir, "dir", "", "`folder` of the network, new or empty (default in the user's cache, by its name)")
	up.Flags().StringVar(&name, "name", "testnet", "name of the network; begins with test")
	return group("testnet", "Real peers on this machine, for trying things out", up,
		&cobra.Command{
			Use: "ls", Short: "List the networks that up started", Args: noArgs,
			RunE: func(*cobra.Command, []string) error {
				root, err := testnetRoot()
				if err != nil {
					return err
				}
				nets, err := testnet.List(root)
				if err != nil {
					return err
				}
				return c.printTestnets(nets)
			},
		},
		&cobra.Command{
			Use: "down [NAME|FOLDER]", Short: "End a network and remove it, by default testnet", Args: rangeArgs(0, 1, "at most one network"),
			RunE: func(_ *cobra.Command, args []string) error {
				net := "testnet"
				if len(args) > 0 {
					net = args[0]
				}
				if !strings.ContainsRune(net, filepath.Separator) && !exists(net) {
					root, err := testnetRoot()
					if err != nil {
						return err
					}
					net = filepath.Join(root, net)
				}
				err := testnet.Down(net)
				if errors.Is(err, testnet.ErrNoNet) {
					return usageError("see: lacuna testnet ls", "%w", err)
				}
				return err
			},
		})
}

// testnetRoot is where testnets lie that name no folder.
func testnetRoot() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", usageError("name a folder with --dir", "find the user's cache: %w", err)
	}
	return filepath.Join(cache, "lacuna", "testnets"), nil
}

func (c *cli) printTestnets(nets []testnet.State) error {
	return c.print(nets, func(t *table) {
		t.head = []string{"NETWORK", "PEER", "ROLE", "PID", "STATE", "HOME"}
		for _, n := range nets {
			for _, p := range n.Peers {
				role, state := "renter", "ended"
				if p.Provide {
					role = "provider"
				}
				if p.Running {
					state = "running"
				}
				t.row(n.Network, p.Name, role, fmt.Sprint(p.PID), state, filepath.Join(n.Dir, p.Name))
			}
		}
	})
}
