package renter

import (
	"context"
	"time"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/p2p"
	"github.com/lacuna-network/lacuna/p2p/work"
)

// stream is one work stream of an attendance, while it is open. Its fields belong to the goroutine of session.
type stream struct {
	*attendance
	s        *work.Session
	frames   chan work.Frame
	broke    chan error       // why the stream ended
	ckpts    chan *Checkpoint // a checkpoint was fetched; nil = it was not
	gone     chan bool        // what looking for a quiet provider found
	fetching bool             // of a checkpoint
	looking  bool             // for the provider
	waiting  *work.Checkpoint // the newest checkpoint that is not being fetched yet
}

// session follows one work stream. It returns how the lease ended, or why the stream did.
func (a *attendance) session(ctx context.Context) (*leaseEnd, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := work.Open(ctx, a.r.o.Host, a.h.provider, a.r.recordAddrs(a.h.id))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	a.since = time.Now()
	defer func() { a.heard, a.idle = s.Heard(), a.idle+time.Since(a.since) }()
	if err := s.Send(work.Frame{Start: a.startFrame()}); err != nil {
		return nil, err
	}
	a.h.resumed = true
	if err := a.r.setState(a.h.id, market.EvStart, ""); err != nil {
		return nil, err
	}
	st := &stream{attendance: a, s: s, frames: make(chan work.Frame), broke: make(chan error, 1), ckpts: make(chan *Checkpoint, 1), gone: make(chan bool, 1)}
	go st.read(ctx)
	quiet := time.NewTicker(quietCheck)
	defer quiet.Stop()
	for {
		if end, err := st.step(ctx, quiet.C); end != nil || err != nil {
			return end, err
		}
	}
}

func (a *attendance) startFrame() *work.Start {
	c := a.h.chain
	f := &work.Start{Lease: a.h.id, Challenge: c.challenge()}
	if a.h.resumed {
		f.Resume, f.Receipt, f.LogOffset, f.Checkpoint = true, c.tail.Seq, a.logOffset(), a.ckptDone
	}
	return f
}

// logOffset is how much of this lease's log is here. The log of the leases before it lies in the same file.
func (a *attendance) logOffset() uint64 { return a.t.log.Size() - a.h.logBase }

// read passes on the frames until the session ends, which it does with ctx.
func (st *stream) read(ctx context.Context) {
	for {
		f, err := st.s.Recv()
		if err != nil {
			st.broke <- err
			return
		}
		select {
		case st.frames <- f:
		case <-ctx.Done():
			return
		}
	}
}

// step does what there is to do and then waits for the next thing to happen. It returns an end if the lease is over, and
// an error if the stream is.
func (st *stream) step(ctx context.Context, quiet <-chan time.Time) (*leaseEnd, error) {
	st.t.mu.Lock()
	changed, stopped := st.t.changed, st.t.stopped
	st.t.mu.Unlock()
	if err := st.begin(ctx, stopped); err != nil {
		return nil, err
	}
	if end := st.ended(st.s); end != nil {
		return end, nil
	}
	var patience <-chan time.Time
	if st.stopAsked {
		patience = time.After(time.Until(st.stopAt.Add(stopPatience)))
	}
	select {
	case <-ctx.Done():
		return &leaseEnd{detached: true}, nil
	case err := <-st.broke:
		return nil, err
	case <-patience:
		return &leaseEnd{code: market.CodeRenterCancel, reason: "stopped"}, nil
	case <-changed:
	case err := <-st.outputs:
		if err != nil {
			return st.outputsLost(ctx, err), err
		}
		st.fetched, st.outputs = true, nil
		st.came()
	case c := <-st.ckpts:
		st.fetching = false
		return nil, st.acknowledge(c)
	case <-quiet:
		return st.look(ctx), nil
	case is := <-st.gone:
		st.looking = false
		if is {
			st.noteSilence()
			end := st.lost()
			return &end, nil
		}
	case f := <-st.frames:
		st.silent = false
		if f.Checkpoint == nil {
			return st.take(ctx, st.s, f)
		}
		st.waiting = f.Checkpoint
	}
	return nil, nil
}

// begin asks the provider to stop if that is wanted, and begins to fetch the newest checkpoint.
func (st *stream) begin(ctx context.Context, stopped bool) error {
	if st.waiting != nil && !st.fetching {
		st.fetching = true
		go st.fetchCheckpoint(ctx, *st.waiting, st.ckpts)
		st.waiting = nil
	}
	if !stopped || st.stopAsked {
		return nil
	}
	st.stopAsked, st.stopAt = true, time.Now()
	return st.s.Send(work.Frame{Cancel: &work.Cancel{Reason: "stopped"}})
}

// acknowledge tells the provider that a checkpoint lies safely here.
func (st *stream) acknowledge(c *Checkpoint) error {
	if c == nil {
		return nil
	}
	st.ckptDone = c.Seq
	return st.s.Send(work.Frame{Ack: &work.Ack{LogOffset: st.logOffset(), Checkpoint: c.Seq}})
}

// look ends a lease that does not come further, and looks for a provider whose heartbeat is missing.
func (st *stream) look(ctx context.Context) *leaseEnd {
	if st.stuck() {
		return &leaseEnd{move: true, code: market.CodeProviderAbort, reason: "no_progress"}
	}
	if !st.looking && time.Since(st.s.Heard()) >= quietAfter {
		st.looking = true
		go func() { // ends with ctx
			st.gone <- st.r.o.Host.Probe(ctx, st.h.provider, st.r.recordAddrs(st.h.id)) == p2p.Gone
		}()
	}
	return nil
}
