package renter

import (
	"sync"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// leftovers are blobs that a job needs no more. They go as soon as nobody else needs them either.
type leftovers struct {
	mu        sync.Mutex // held while blobs are removed, so that nobody begins to need one meanwhile
	blobs     map[attest.Digest]bool
	preparing int // jobs whose files are being read; it is not known yet which blobs those need
}

// discard removes the blobs that nobody needs.
func (r *Renter) discard(blobs []attest.Digest) {
	r.left.mu.Lock()
	defer r.left.mu.Unlock()
	for _, d := range blobs {
		r.left.blobs[d] = true
	}
	r.sweep()
}

// sweep removes the leftovers that nobody needs, once no job is being prepared. The caller holds r.left.mu.
func (r *Renter) sweep() {
	if r.left.preparing > 0 || len(r.left.blobs) == 0 {
		return
	}
	needed := r.needed()
	for d := range r.left.blobs {
		if needed[d] || r.o.Keep != nil && r.o.Keep(d) {
			continue
		}
		if err := r.o.Files.Remove(d); err != nil {
			r.log.Warn("blob is not removed", "blob", d.Short(), "err", err)
		}
	}
	clear(r.left.blobs)
}

// needed are the blobs of jobs under way, those that a provider may fetch, and the outputs of all jobs.
func (r *Renter) needed() map[attest.Digest]bool {
	needed := map[attest.Digest]bool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.serving {
		for d := range s.blobs {
			needed[d] = true
		}
	}
	for _, t := range r.tasks {
		t.mu.Lock()
		for _, f := range t.job.Outputs {
			needed[f.Digest] = true
		}
		if t.job.OutputsList != nil {
			needed[t.job.OutputsList.Digest] = true
		}
		if !t.job.State.Final() {
			for _, d := range t.needsLocked() {
				needed[d] = true
			}
		}
		t.mu.Unlock()
	}
	return needed
}

// needs are the blobs that a job needs while it is under way.
func (t *task) needs() []attest.Digest {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.needsLocked()
}

func (t *task) needsLocked() []attest.Digest {
	needs := append([]attest.Digest{}, t.inputs...)
	for d := range t.coming {
		needs = append(needs, d)
	}
	if t.job.Checkpoint != nil {
		needs = append(needs, digestsOf(t.job.Checkpoint.Files)...)
	}
	return needs
}

// expect keeps blobs that are about to be fetched, until the returned function is called: then those go that the job has
// not come to need, such as the files of an attempt that failed.
func (t *task) expect(files []market.File) (done func()) {
	blobs := digestsOf(files)
	change := func(by int) {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, d := range blobs {
			if t.coming[d] += by; t.coming[d] == 0 {
				delete(t.coming, d)
			}
		}
	}
	t.r.left.mu.Lock()
	defer t.r.left.mu.Unlock()
	change(1)
	return func() {
		change(-1)
		t.r.discard(blobs)
	}
}

func digestsOf(files []market.File) []attest.Digest {
	out := make([]attest.Digest, len(files))
	for i, f := range files {
		out[i] = f.Digest
	}
	return out
}
