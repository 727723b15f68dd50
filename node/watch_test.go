package node_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/node/nodetest"
	"github.com/lacuna-network/lacuna/p2p/deal"
)

// noPorts are the ports of a peer that serves nothing but files.
func noPorts() deal.Options { return deal.Options{} }

func dealEnding(outcome attest.Envelope, receipts ...attest.Envelope) deal.Ending {
	return deal.Ending{Outcome: outcome, Receipts: receipts}
}

// logged keeps what a peer logs.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// quiet fails the test if anything was logged that an operator should look at.
func (l *logged) quiet(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			t.Errorf("a stranger's input shows in the log: %s", line)
		}
	}
}

// watched starts a provider of one device and keeps its log.
func watched(t *testing.T, values map[string]string) (*nodetest.Peer, *logged) {
	t.Helper()
	l := &logged{}
	return nodetest.StartProviderLogging(t, `[{"model":"RTX 4090","price":"3.60 USD/h"}]`, values, l.logger()), l
}

func leaseIs(t *testing.T, p *nodetest.Peer, id attest.Digest, state string) error {
	v, err := p.Client.Lease(t.Context(), id.Hex())
	if err == nil && v.State != state {
		err = fmt.Errorf("lease is %s, want %s", v.State, state)
	}
	return err
}

func deviceIs(t *testing.T, p *nodetest.Peer, state string) error {
	d, err := p.Client.Devices(t.Context())
	if err == nil && d[0].State != state {
		err = fmt.Errorf("device is %s, want %s", d[0].State, state)
	}
	return err
}
