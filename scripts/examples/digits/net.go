package main

import (
	"encoding/binary"
	"errors"
	"math"
)

const (
	pixels  = 28 * 28
	hidden  = 64
	classes = 10
	// rate is the step of the descent, tried out on this data.
	rate = 0.02
	// rateDecay multiplies the rate after each epoch.
	rateDecay = 0.8
	seed      = 1
)

// network is the model. Weights lie by input, since most inputs are zero and
// their rows are skipped.
type network struct {
	w1 [pixels][hidden]float32
	b1 [hidden]float32
	w2 [hidden][classes]float32
	b2 [classes]float32
}

// training is a network on its way, and all that a resumed run needs to go on
// with the same numbers.
type training struct {
	net   network
	rng   rng
	epoch int     // epochs done
	loss  float64 // mean loss of the last one
	order []int32 // of the images; each epoch shuffles the last one's
}

func newTraining(images int) *training {
	t := &training{rng: seed, order: make([]int32, images)}
	for i := range t.order {
		t.order[i] = int32(i)
	}
	for i := range t.net.w1 {
		t.rng.fill(t.net.w1[i][:], math.Sqrt(6.0/(pixels+hidden)))
	}
	for i := range t.net.w2 {
		t.rng.fill(t.net.w2[i][:], math.Sqrt(6.0/(hidden+classes)))
	}
	return t
}

// trainEpoch shows the network each image once, in a new order.
func (t *training) trainEpoch(set []sample) {
	for i := len(t.order) - 1; i > 0; i-- {
		j := int(t.rng.next() % uint64(i+1))
		t.order[i], t.order[j] = t.order[j], t.order[i]
	}
	step := float32(rate * math.Pow(rateDecay, float64(t.epoch)))
	sum := 0.0
	for _, i := range t.order {
		sum += t.net.learn(&set[i], step)
	}
	t.epoch++
	t.loss = sum / float64(len(set))
}

// forward fills the hidden layer and the probabilities of the classes.
func (n *network) forward(s *sample, h *[hidden]float32, p *[classes]float32) {
	*h = n.b1
	for _, in := range s.ink {
		w := &n.w1[in.pixel]
		for j := range h {
			h[j] += float32(in.value * w[j])
		}
	}
	*p = n.b2
	for j := range h {
		if h[j] <= 0 {
			h[j] = 0
			continue
		}
		for k := range p {
			p[k] += float32(h[j] * n.w2[j][k])
		}
	}
	top, sum := p[0], 0.0
	for _, v := range p {
		top = max(top, v)
	}
	for k, v := range p {
		e := math.Exp(float64(v - top))
		p[k] = float32(e)
		sum += e
	}
	for k := range p {
		p[k] = float32(float64(p[k]) / sum)
	}
}

// learn does one step of descent and returns the loss before it. Products are
// rounded by a conversion before they are added, so that no processor fuses
// the two and gives other bits.
func (n *network) learn(s *sample, step float32) float64 {
	var h [hidden]float32
	var p [classes]float32
	n.forward(s, &h, &p)
	loss := -math.Log(max(float64(p[s.label]), 1e-12))
	p[s.label]-- // now the gradient of the outputs
	var dh [hidden]float32
	for j := range h {
		if h[j] == 0 {
			continue
		}
		w := &n.w2[j]
		for k := range p {
			dh[j] += float32(p[k] * w[k])
			w[k] -= float32(step * float32(p[k]*h[j]))
		}
	}
	for k := range p {
		n.b2[k] -= float32(step * p[k])
	}
	for j := range dh {
		dh[j] *= step
		n.b1[j] -= dh[j]
	}
	for _, in := range s.ink {
		w := &n.w1[in.pixel]
		for j := range w {
			w[j] -= float32(in.value * dh[j])
		}
	}
	return loss
}

// accuracy returns the share of the set that the network reads rightly.
func (n *network) accuracy(set []sample) float64 {
	right := 0
	for i := range set {
		var h [hidden]float32
		var p [classes]float32
		n.forward(&set[i], &h, &p)
		best := 0
		for k := range p {
			if p[k] > p[best] {
				best = k
			}
		}
		if best == int(set[i].label) {
			right++
		}
	}
	return float64(right) / float64(len(set))
}

// marshal returns the weights as little-endian float32: w1 by input, b1, w2 by
// hidden unit, b2.
func (n *network) marshal() []byte {
	b := make([]byte, 0, 4*(pixels*hidden+hidden+hidden*classes+classes))
	for _, row := range n.rows() {
		for _, v := range row {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

// rows lists the weights in the order of marshal.
func (n *network) rows() [][]float32 {
	var rows [][]float32
	for i := range n.w1 {
		rows = append(rows, n.w1[i][:])
	}
	rows = append(rows, n.b1[:])
	for i := range n.w2 {
		rows = append(rows, n.w2[i][:])
	}
	return append(rows, n.b2[:])
}

// marshal returns the state: the random generator, the epoch and the loss in
// eight bytes each, the number of images and their order in four bytes each,
// then the weights; all little-endian.
func (t *training) marshal() []byte {
	var b []byte
	b = binary.LittleEndian.AppendUint64(b, uint64(t.rng))
	b = binary.LittleEndian.AppendUint64(b, uint64(t.epoch))
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(t.loss))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(t.order)))
	for _, i := range t.order {
		b = binary.LittleEndian.AppendUint32(b, uint32(i))
	}
	return append(b, t.net.marshal()...)
}

var errState = errors.New("state is damaged or belongs to another run")

// unmarshal reads a state of a run with as many images as t was made for.
func (t *training) unmarshal(b []byte) error {
	n := len(t.order)
	if len(b) != len(t.marshal()) || binary.LittleEndian.Uint32(b[24:]) != uint32(n) {
		return errState
	}
	t.rng = rng(binary.LittleEndian.Uint64(b))
	t.epoch = int(binary.LittleEndian.Uint64(b[8:]))
	t.loss = math.Float64frombits(binary.LittleEndian.Uint64(b[16:]))
	if t.epoch < 1 || t.rng == 0 {
		return errState
	}
	b = b[28:]
	for i := range t.order {
		t.order[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		if t.order[i] < 0 || int(t.order[i]) >= n {
			return errState
		}
	}
	b = b[4*n:]
	for _, row := range t.net.rows() {
		for i := range row {
			row[i] = math.Float32frombits(binary.LittleEndian.Uint32(b))
			b = b[4:]
		}
	}
	return nil
}

// rng is xorshift64* (Vigna, "An experimental exploration of Marsaglia's
// xorshift generators, scrambled", 2016). Zero is no valid state.
type rng uint64

func (r *rng) next() uint64 {
	*r ^= *r >> 12
	*r ^= *r << 25
	*r ^= *r >> 27
	return uint64(*r) * 0x2545F4914F6CDD1D
}

// fill sets evenly spread values between -limit and limit.
func (r *rng) fill(row []float32, limit float64) {
	for i := range row {
		u := float64(r.next()>>11) / (1 << 53)
		row[i] = float32(float64(2*u-1) * limit)
	}
}
