//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/node/renter"
)

// story is something that happens to a network. It plays after the jobs of the table, in the order of [scenes].
type story struct {
	name, text string
	play       func(ctx context.Context, l *lab, s *scene) error // an error is a fault
}

// scenes returns all stories. Each leaves the world as it found it, but for the last, which ends the hubs.
func scenes() []story {
	return []story{
		{"ipv6-only", "two machines that have IPv6 alone, each behind a firewall that lets in answers alone, meet through hubs that have both families", sceneIPv6},
		{"relay-restart", "a hub that a home provider waits at goes away and comes back", sceneRelayRestart},
		{"udp-blocked", "the renter's router begins to drop UDP in the middle of a job", sceneUDPBlocked},
		{"moved", "a provider's machine is carried to another network", sceneMoved},
		{"bulk", "places between which there is no straight way, once one hub lets data pass", sceneBulk},
		{"hubs-gone", "all hubs are killed, and a newcomer has an invite of before", sceneHubsGone},
	}
}

// play plays one story.
func (l *lab) play(ctx context.Context, s story) scene {
	l.say("scene %s: %s", s.name, s.text)
	out := scene{Name: s.name, Text: s.text}
	began := time.Now()
	if err := s.play(ctx, l, &out); err != nil {
		out.Faults = append(out.Faults, err.Error())
	}
	out.TookMS = time.Since(began).Milliseconds()
	l.say("scene %s: %v %v", s.name, out.Notes, out.Faults)
	return out
}

func (s *scene) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// done runs the job and wants it done, over one of the paths.
func (s *scene) done(ctx context.Context, l *lab, r, p *peer, paths ...string) error {
	got, err := l.run(ctx, r, p, task{})
	if err != nil {
		return err
	}
	return s.judge(got, paths...)
}

func (s *scene) judge(got ran, paths ...string) error {
	s.Faults = append(s.Faults, got.faults...)
	if got.job.State != renter.JobSucceeded {
		return fmt.Errorf("the job is %s: %s", got.job.State, got.reason)
	}
	s.note("job done, %s, first output after %.1f s", got.path, float64(*got.job.ToOutMS)/1000)
	if !slices.Contains(paths, got.path) {
		return fmt.Errorf("the path is %s, want one of %v", got.path, paths)
	}
	return nil
}

// until polls a peer's status until f likes it; what is the fault if it never does.
func (p *peer) until(ctx context.Context, within time.Duration, what string, f func(status) bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var last status
	began := time.Now()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if s, err := p.status(ctx); err == nil {
			if last = s; f(s) {
				return time.Since(began), nil
			}
		}
		select {
		case <-ctx.Done():
			return within, fmt.Errorf("%s: %s within %s; the last status: %+v", p.name, what, within, last.Reachability)
		case <-tick.C:
		}
	}
}

func sceneIPv6(ctx context.Context, l *lab, s *scene) error {
	k := kind{name: "ipv6-firewall", build: func(ctx context.Context, w *world, machine string, n int) error {
		return errors.Join(online(false, true)(ctx, w, machine, n), w.sh(ctx, machine, closed6))
	}}
	p, err := l.begin(ctx, k, provider, k.name)
	if err != nil {
		return err
	}
	r, err := l.begin(ctx, k, renting, k.name)
	if err != nil {
		return err
	}
	for _, one := range []*peer{p, r} {
		word, after, err := one.verdict(ctx, verdictWait)
		if err != nil {
			return err
		}
		s.note("%s is %s after %.1f s", one.name, word, after.Seconds())
	}
	return s.done(ctx, l, r, p, "hole-punched", "direct")
}

func sceneRelayRestart(ctx context.Context, l *lab, s *scene) error {
	p, err := l.settled(ctx, provider, "home")
	if err != nil {
		return err
	}
	r, err := l.settled(ctx, renting, "home")
	if err != nil {
		return err
	}
	var at *peer
	holds := func(st status, h *peer) bool { return slices.Contains(st.Reachability.Relays, h.id) }
	if _, err := p.until(ctx, verdictWait, "no place at a relay", func(st status) bool {
		for _, h := range l.hubs {
			if holds(st, h) {
				at = h
			}
		}
		return at != nil
	}); err != nil {
		return err
	}
	if _, err := at.must(ctx, "down"); err != nil {
		return err
	}
	gone, err := p.until(ctx, verdictWait, "the lost relay is not noticed, or no other one holds a place", func(st status) bool {
		return !holds(st, at) && len(st.Reachability.Relays) > 0
	})
	if err != nil {
		return err
	}
	s.note("another relay alone after %.1f s", gone.Seconds())
	if err := at.up(ctx); err != nil {
		return err
	}
	// It has lost what it knew of its places. Whoever held one must ask again, or take another relay.
	if _, err := at.until(ctx, verdictWait, "the hub is not back", func(st status) bool { return len(st.Peers) > 0 }); err != nil {
		return err
	}
	st, err := p.status(ctx)
	if err != nil {
		return err
	}
	list := slices.Sorted(slices.Values(st.Reachability.Relays))
	if n := len(list); n == 0 || n != len(slices.Compact(list)) {
		s.Faults = append(s.Faults, fmt.Sprintf("places at relays %v, want at most one each", st.Reachability.Relays))
	}
	s.note("%d relays at last", len(list))
	return s.done(ctx, l, r, p, "hole-punched")
}

func sceneUDPBlocked(ctx context.Context, l *lab, s *scene) error {
	p, err := l.settled(ctx, provider, "public")
	if err != nil {
		return err
	}
	r, err := l.settled(ctx, renting, "home")
	if err != nil {
		return err
	}
	type end struct {
		ran
		err error
	}
	job := make(chan end, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); <-job }()
	go func() {
		defer close(job)
		got, err := l.run(ctx, r, p, task{epochs: 40, images: 4000})
		job <- end{got, err}
	}()
	if err := r.running(ctx); err != nil {
		return err
	}
	box := router(r.name)
	if err := l.world.sh(ctx, box, noUDP); err != nil {
		return err
	}
	blocked := time.Now()
	got := <-job
	err = l.world.sh(ctx, box, strings.Replace(noUDP, "-I", "-D", 1))
	if err = errors.Join(got.err, err); err != nil {
		return err
	}
	s.note("the job ended %.1f s later, after %d leases", time.Since(blocked).Seconds(), len(got.job.Leases))
	s.note("job took %.1f s", got.took.Seconds())
	return s.judge(got.ran, "direct")
}

// running waits until a job of the peer has printed something.
func (p *peer) running(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, jobWait)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		jobs, err := p.client.Jobs(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(jobs, func(j renter.Job) bool { return j.State == renter.JobRunning && j.ToOutMS != nil }) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for a job of %s to run: %w", p.name, ctx.Err())
		case <-tick.C:
		}
	}
}

func sceneMoved(ctx context.Context, l *lab, s *scene) error {
	k, _ := kindOf("home")
	p, err := l.begin(ctx, k, provider, "moving")
	if err != nil {
		return err
	}
	if _, _, err := p.verdict(ctx, verdictWait); err != nil {
		return err
	}
	r, err := l.settled(ctx, renting, "home")
	if err != nil {
		return err
	}
	if err := s.done(ctx, l, r, p, "hole-punched"); err != nil {
		return err
	}
	if err := l.move(ctx, p); err != nil {
		return err
	}
	moved := time.Now()
	for {
		got, err := l.run(ctx, r, p, task{})
		if err != nil {
			return err
		}
		if got.job.State == renter.JobSucceeded || time.Since(moved) > verdictWait {
			s.note("%.1f s after the move:", (time.Since(moved) - got.took).Seconds())
			return s.judge(got, "hole-punched")
		}
		s.note("refused %.1f s after the move: %s", (time.Since(moved) - got.took).Seconds(), got.job.Reason)
	}
}

// move takes a machine off its router and puts it behind a new one, with another network inside.
func (l *lab) move(ctx context.Context, p *peer) error {
	box := router(p.name + "-2")
	l.mu.Lock()
	n := l.next
	l.next++
	l.mu.Unlock()
	w := l.world
	for _, step := range []func() error{
		func() error { return w.space(ctx, box) },
		func() error { return w.online(ctx, box, n, true, false) },
		func() error { return w.sh(ctx, box, masquerade+closed) },
		func() error { return w.sh(ctx, p.name, "ip link del wan") },
		func() error { return w.cable(ctx, box, p.name, "10.20.30", 24) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func sceneBulk(ctx context.Context, l *lab, s *scene) error {
	h := l.hubs[0]
	if _, err := h.must(ctx, "down"); err != nil {
		return err
	}
	h.config["network.relay_bulk"] = "true"
	if err := errors.Join(os.Remove(h.home.ConfigFile()), config.Write(h.home.ConfigFile(), h.config)); err != nil {
		return err
	}
	if err := h.up(ctx); err != nil {
		return err
	}
	if _, _, err := h.verdict(ctx, verdictWait); err != nil { // before it relays nothing
		return err
	}
	for _, c := range []pair{{"symmetric", "symmetric"}, {"home", "ipv6"}, {"proxy", "symmetric"}, {"home", "proxy"}} {
		if err := l.bulkJob(ctx, s, c); err != nil {
			s.Faults = append(s.Faults, fmt.Sprintf("provider %s, renter %s: %s", c.provider, c.renter, err))
		}
	}
	return nil
}

// bulkJob runs a job between places of these kinds. The provider is a newcomer: those from before keep the relays that
// they have.
func (l *lab) bulkJob(ctx context.Context, s *scene, c pair) error {
	k, _ := kindOf(c.provider)
	p, err := l.begin(ctx, k, provider, c.provider+"-for-"+c.renter)
	if err != nil {
		return err
	}
	r, err := l.settled(ctx, renting, c.renter)
	if err != nil {
		return err
	}
	after, err := p.until(ctx, verdictWait, "no place at the relay that lets data pass", func(st status) bool { return slices.Contains(st.Reachability.Relays, l.hubs[0].id) })
	if err != nil {
		return err
	}
	s.note("%s has a place at it after %.1f s", p.name, after.Seconds())
	// It has just become known, and an auction that nobody answers is held again later and later.
	got, err := l.run(ctx, r, p, task{flags: []string{"--start-within", "60s"}})
	if err != nil {
		return err
	}
	return s.judge(got, relayed)
}

func sceneHubsGone(ctx context.Context, l *lab, s *scene) error {
	p, err := l.settled(ctx, provider, "public")
	if err != nil {
		return err
	}
	if _, _, err := p.verdict(ctx, verdictWait); err != nil {
		return err
	}
	invite, err := p.invite(ctx)
	if err != nil {
		return err
	}
	for _, h := range l.hubs {
		if err := kill(h.space); err != nil {
			return err
		}
	}
	k, _ := kindOf("home")
	r, err := l.settle(ctx, k, "r-newcomer", nil)
	if err != nil {
		return err
	}
	if err := r.up(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := r.join(ctx, invite); err != nil {
		return err
	}
	s.note("joined after %.1f s", time.Since(began).Seconds())
	return s.done(ctx, l, r, p, "direct")
}
