package p2p_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/lacuna-network/lacuna/p2p"
)

// hostileRTT is short, so that the limits decide and not the way.
const hostileRTT = 2 * time.Millisecond

// soon is at once, with some round trips.
const soon = 10 * hostileRTT

// attacker is a bare host of the library.
type attacker struct {
	v *victim
	h *p2p.Host
	p p2p.Protocol
}

func (a attacker) open() (network.Stream, error) {
	id := protocol.ID(fmt.Sprintf("/lacuna/%s/%s/%d", a.v.Network(), a.p.Name, a.p.Major))
	return a.h.Libp2p().NewStream(a.v.ctx, p2p.PeerID(a.v.Key()), id)
}

// send opens a stream, writes that, and reads until the victim ends it. It returns how long that took.
func (a attacker) send(b []byte) (time.Duration, error) {
	s, err := a.open()
	if err != nil {
		return 0, err
	}
	defer func() { _ = s.Reset() }()
	start := time.Now()
	if _, err := s.Write(b); err != nil {
		return 0, nil // it has heard enough already
	}
	_, _ = io.Copy(io.Discard, s)
	return time.Since(start), nil
}

// dribble sends a byte a second of a frame that would be long.
func (a attacker) dribble() (time.Duration, error) {
	s, err := a.open()
	if err != nil {
		return 0, err
	}
	start, gone := time.Now(), make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, s)
	}()
	if _, err := s.Write(varint(p2p.MaxFrame)); err != nil {
		return 0, err
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-gone:
			return time.Since(start), s.Reset()
		case <-tick.C:
			_, _ = s.Write([]byte{0xa1})
		}
	}
}

// stall opens some streams more than one peer may have, and sends a part of a frame on each.
func (a attacker) stall() (time.Duration, error) {
	n := a.p.MaxPerPeer + tooMany
	took, errs := make([]time.Duration, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { took[i], errs[i] = a.send(append(varint(200), make([]byte, 40)...)) })
	}
	all.Wait()
	return slices.Max(took), errors.Join(errs...)
}

const tooMany = 5

// hurry opens streams as fast as it can, more than one peer may in a minute.
func (a attacker) hurry() (time.Duration, error) {
	streams := make(chan int)
	errs := make([]error, a.p.MaxPerPeer)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for range streams {
				if _, err := a.send([]byte{0}); err != nil {
					errs[i] = err
				}
			}
		})
	}
	for i := range a.p.PerMinute + a.p.PerMinute/10 + 50 {
		streams <- i
	}
	close(streams)
	all.Wait()
	return 0, errors.Join(errs...)
}

func varint(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// noise returns that many bytes of chance with their length before them.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return append(varint(n), b...)
}

// attack is what a peer can do to any protocol.
type attack struct {
	name    string
	do      func(a attacker) (held time.Duration, err error) // held is the longest that the victim kept a stream open
	within  time.Duration                                    // in which the victim must end the stream; 0 = its deadline
	refused string                                           // for what limit streams are refused; "" = none is
	most    func(p p2p.Protocol) int                         // streams that are served
}

func attacks() []attack {
	send := func(b []byte) func(attacker) (time.Duration, error) {
		return func(a attacker) (time.Duration, error) { return a.send(b) }
	}
	one := func(p2p.Protocol) int { return 1 }
	return []attack{
		{name: "a frame too long", do: send(append(varint(p2p.MaxFrame+1), make([]byte, 1000)...)), within: soon, most: one},
		{name: "a length without end", do: send(bytes.Repeat([]byte{0xff}, 100)), within: soon, most: one},
		{name: "an empty frame", do: send([]byte{0}), within: soon, most: one},
		{name: "garbage", do: send(noise(300)), within: soon, most: one},
		{name: "CBOR of no fixed length", do: send([]byte{2, 0xbf, 0xff}), within: soon, most: one},
		{name: "a number in too many bytes", do: send([]byte{4, 0xa1, 0x18, 0x01, 0xa0}), within: soon, most: one},
		{name: "a frame cut short", do: send(append(varint(100), make([]byte, 40)...)), most: one},
		{name: "the largest frame announced", do: send(varint(p2p.MaxFrame)), most: one},
		{name: "a byte a second", do: attacker.dribble, most: one},
		{name: "streams that stall", do: attacker.stall, refused: "peer_busy", most: func(p p2p.Protocol) int { return p.MaxPerPeer }},
		{name: "streams in a hurry", do: attacker.hurry, refused: "rate", most: func(p p2p.Protocol) int { return p.PerMinute + p.PerMinute/10 + 1 }},
	}
}

// TestHostilePeers does to each protocol what a peer can do to any.
func TestHostilePeers(t *testing.T) {
	for _, p := range servedProtocols() {
		t.Run(p.Name, func(t *testing.T) {
			for _, tt := range attacks() {
				t.Run(tt.name, func(t *testing.T) {
					dir := t.TempDir()
					synctest.Test(t, func(t *testing.T) { suffer(t, dir, p, tt) })
				})
			}
		})
	}
}

// suffer lets a peer loose on a victim that serves an honest one meanwhile, and looks what is left when it is gone.
func suffer(t *testing.T, dir string, p served, w attack) {
	v := newVictim(t, dir)
	defer v.close()
	a := attacker{v: v, h: v.net.Add(p2p.Options{}), p: p.Protocol}
	friend := v.net.Add(p2p.Options{Profile: p2p.Light})
	v.net.Connect(friend, v.Host)
	time.Sleep(time.Second)
	goroutines, memory, before := runtime.NumGoroutine(), heap(), gather(t, v.reg)

	v.net.Connect(a.h, v.Host)
	time.Sleep(time.Second)
	var held time.Duration
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		held, err = w.do(a)
	}()
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	if err := p.honest(v, friend); err != nil || time.Since(start) > meanwhile {
		t.Errorf("an honest peer meanwhile, after %v: %v", time.Since(start), err)
	}
	<-done
	if err != nil {
		t.Fatal(err)
	}
	limit := w.within
	if limit == 0 {
		limit = p.Timeout + soon
	}
	if held > limit {
		t.Errorf("the victim held a stream for %v, want at most %v", held, limit)
	}
	time.Sleep(soon) // the honest peer's streams end
	v.judge(p, before, w.refused, w.most(p.Protocol))

	a.h.Disconnect(v.Key())
	friend.Disconnect(v.Key())
	time.Sleep(2 * time.Minute)
	v.net.Connect(friend, v.Host)
	for range 10 { // what the library still has to clear away
		if time.Sleep(time.Second); runtime.NumGoroutine() <= goroutines+spare {
			break
		}
	}
	if n := runtime.NumGoroutine(); n > goroutines+spare {
		t.Errorf("%d goroutines are left, before it were %d", n, goroutines)
	}
	if m := heap(); m > memory+spareHeap {
		t.Errorf("%d kB of memory are left, before it were %d", m>>10, memory>>10)
	}
}

// TestManyHostilePeers has as many peers stall as it takes to hold all streams that a protocol may have; the victim serves
// others again at its deadline, without anybody's doing.
func TestManyHostilePeers(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		v := newVictim(t, dir)
		defer v.close()
		all := servedProtocols()
		p := all[slices.IndexFunc(all, func(p served) bool { return p.Name == "outcome" })]
		friend := v.net.Add(p2p.Options{Profile: p2p.Light})
		v.net.Connect(friend, v.Host)
		const more = 2 // peers that find no room
		var stalling sync.WaitGroup
		for range p.MaxIn/p.MaxPerPeer + more {
			a := attacker{v: v, h: v.net.Add(p2p.Options{}), p: p.Protocol}
			v.net.Connect(a.h, v.Host)
			stalling.Go(func() { _, _ = a.stall() })
		}
		time.Sleep(soon)
		if err := p.honest(v, friend); err == nil {
			t.Error("an honest peer is served, although all streams are taken")
		}
		counted := gather(t, v.reg)
		if n := counted["lacuna_p2p_streams_total in outcome"]; int(n) != p.MaxIn {
			t.Errorf("%v streams are served, want %d", n, p.MaxIn)
		}
		if n := counted["lacuna_p2p_streams_refused_total outcome busy"]; n < more*float64(p.MaxPerPeer) {
			t.Errorf("%v streams were refused since all are taken", n)
		}
		time.Sleep(p.Timeout)
		if err := p.honest(v, friend); err != nil {
			t.Errorf("an honest peer after the deadline: %v", err)
		}
		stalling.Wait()
	})
}

// What the library may keep of a peer that has come and gone.
const (
	spare     = 5       // goroutines
	spareHeap = 2 << 20 // bytes
)

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// meanwhile is how long the victim may take to serve an honest peer during an attack.
const meanwhile = 1500 * time.Millisecond

// judge looks at what the victim has counted.
func (v *victim) judge(p served, before map[string]float64, refused string, most int) {
	v.t.Helper()
	after := gather(v.t, v.reg)
	grown := func(name string) float64 { return after[name] - before[name] }
	if n := grown("lacuna_p2p_streams_total in " + p.Name); int(n) > most+friendly {
		v.t.Errorf("%v streams were served, want at most %d and an honest peer's", n, most)
	}
	if refused != "" {
		if n := grown("lacuna_p2p_streams_refused_total " + p.Name + " " + refused); n < 1 {
			v.t.Errorf("no stream was refused for %s", refused)
		}
	}
	counted := 0.0
	for name := range after {
		for _, why := range []string{"malformed", "broken", "stalled"} {
			if slices.Contains(strings.Fields(name), why) {
				counted += grown(name)
			}
		}
	}
	if counted < 1 && !p.uncounted {
		v.t.Error("nothing bad was counted")
	}
	for _, c := range v.Libp2p().Network().Conns() {
		for _, s := range c.GetStreams() {
			if strings.Contains(string(s.Protocol()), "/"+p.Name+"/") {
				v.t.Errorf("a stream of %s is still open", s.Protocol())
			}
		}
	}
	if n := grown("lacuna_p2p_handler_panics_total " + p.Name); n > 0 {
		v.t.Errorf("%v panics", n)
	}
}

// friendly is how many streams an honest peer needs at most.
const friendly = 4

// TestProtocolsAreKnown finds all protocols in the source and holds that TestHostilePeers tries them.
func TestProtocolsAreKnown(t *testing.T) {
	tried := map[string]bool{}
	for _, p := range servedProtocols() {
		tried[p.Name] = true
	}
	found := map[string]bool{}
	for _, dir := range []string{"../p2p", "../node", "../cmd"} {
		err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			return protocolsIn(filepath.Join(dir, path), found)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(tried))); diff != "" {
		t.Errorf("protocols that hostile peers are let loose on (-in the source +tried):\n%s", diff)
	}
}

// protocolsIn notes the names of the protocols that a file declares.
func protocolsIn(path string, names map[string]bool) error {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		switch of := lit.Type.(type) {
		case *ast.SelectorExpr:
			ok = of.Sel.Name == "Protocol"
		case *ast.Ident:
			ok = of.Name == "Protocol"
		default:
			ok = false
		}
		for _, e := range lit.Elts {
			kv, isPair := e.(*ast.KeyValueExpr)
			if !ok || !isPair {
				continue
			}
			if key, isName := kv.Key.(*ast.Ident); isName && key.Name == "Name" {
				name := path + ": no literal"
				if s, isText := kv.Value.(*ast.BasicLit); isText {
					name, _ = strconv.Unquote(s.Value)
				}
				names[name] = true
			}
		}
		return true
	})
	return nil
}
