package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/attest/receipt"
	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
)

// Magic is how a receipt file begins. The canonical CBOR of a [File] follows, then the SHA-256 of all before it.
const Magic = "LACR1\n"

// MaxFileBytes is the largest receipt file. With about 700 bytes for an interval's receipt and voucher that is 40 days of
// receipts each ten seconds, or seven years of receipts each ten minutes.
const MaxFileBytes = 256 << 20

// File is what a receipt file holds.
type File struct {
	Network string      `cbor:"1,keyasint"` // name; its SHA-256 stands in every signature
	Leases  []LeaseFile `cbor:"2,keyasint"`
}

// LeaseFile is all that proves one lease.
type LeaseFile struct {
	Award    attest.Envelope   `cbor:"1,keyasint"` // the lease, signed by the renter
	Accept   attest.Envelope   `cbor:"2,keyasint"` // the same bytes, signed by the provider
	Offer    attest.Envelope   `cbor:"3,keyasint"`
	Receipts []attest.Envelope `cbor:"4,keyasint"`
	Vouchers []attest.Envelope `cbor:"5,keyasint"`
	Outcomes []attest.Envelope `cbor:"6,keyasint"` // none, one side's, or both
}

// ErrProof means that a receipt file does not prove what it claims.
var ErrProof = errors.New("receipts do not verify")

// Encode returns the receipt file. It fails if that is larger than [MaxFileBytes].
func (f File) Encode() ([]byte, error) {
	b, err := attest.Marshal(f)
	if err != nil {
		return nil, err
	}
	if len(b) > MaxFileBytes-len(Magic)-len(attest.Digest{}) {
		return nil, fmt.Errorf("receipts of %d bytes: at most %d fit a file; export fewer leases", len(b), MaxFileBytes)
	}
	out := append([]byte(Magic), b...)
	sum := attest.Sum(out)
	return append(out, sum[:]...), nil
}

// LeaseReport is what a verified lease says.
type LeaseReport struct {
	Lease        attest.Digest
	Terms        market.Lease
	Offer        market.Offer
	Receipts     int             // all valid and chained
	Acknowledged int             // accepted by a voucher
	Head         attest.Digest   // id of the last receipt, zero if there is none
	Cum          gpu.Usage       // cumulative usage of the last receipt
	Due          market.MicroUSD // P(Cum)
	Vouched      market.MicroUSD // total of the last voucher
	Outcome      *market.Outcome // the one that covers the most receipts, nil if there is none
	Signers      int             // parties that signed an outcome, 0 to 2
}

// Report is what a receipt file proves.
type Report struct {
	Network  string
	Leases   []LeaseReport
	Receipts int
	Due      market.MicroUSD // sum over the leases
	Vouched  market.MicroUSD
}

// Verify reads a receipt file and checks all of it: the file's own digest, every signature, that award and accept are
// over the same bytes and answer the offer, each chain of receipts, that each voucher promises exactly the price of
// what it acknowledges, and that the outcomes agree with both. No lease may stand in it twice, and simulated devices only
// on a test network. Errors wrap [ErrProof] and say what does not hold. It needs no network, no clock and no store.
func Verify(data []byte) (Report, error) {
	var rep Report
	f, err := decode(data)
	if err != nil {
		return rep, err
	}
	rep.Network = f.Network
	network := attest.NetworkID(f.Network)
	seen := make(map[attest.Digest]bool, len(f.Leases))
	for i, l := range f.Leases {
		lr, err := verifyLease(l, network)
		switch {
		case err != nil:
		case seen[lr.Lease]:
			err = errors.New("the lease stands in the file twice")
		case lr.Terms.Simulated && !market.IsTestNetwork(f.Network):
			err = fmt.Errorf("simulated devices on %q, which is no test network", f.Network)
		case add(rep.Due, lr.Due) == math.MaxUint64:
			err = market.ErrOverflow
		}
		if err != nil {
			return Report{}, fmt.Errorf("%w: lease %d of %d: %w", ErrProof, i+1, len(f.Leases), err)
		}
		seen[lr.Lease] = true
		rep.Leases = append(rep.Leases, lr)
		rep.Receipts += lr.Receipts
		rep.Due += lr.Due
		rep.Vouched += lr.Vouched
	}
	return rep, nil
}

func decode(data []byte) (File, error) {
	var f File
	body := len(data) - len(attest.Digest{})
	switch {
	case !bytes.HasPrefix(data, []byte(Magic)):
		return f, fmt.Errorf("%w: this is no receipt file, it does not begin with LACR1", ErrProof)
	case len(data) > MaxFileBytes || body < len(Magic):
		return f, fmt.Errorf("%w: the file is cut off or too large (%d bytes)", ErrProof, len(data))
	}
	if sum := attest.Sum(data[:body]); !bytes.Equal(sum[:], data[body:]) {
		return f, fmt.Errorf("%w: the file was changed or cut off, its digest is %s", ErrProof, sum)
	}
	if err := attest.Unmarshal(data[len(Magic):body], &f); err != nil {
		return f, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if len(f.Leases) == 0 {
		return f, fmt.Errorf("%w: it holds no lease", ErrProof)
	}
	return f, nil
}

func verifyLease(lf LeaseFile, network attest.Digest) (LeaseReport, error) {
	var rep LeaseReport
	if !bytes.Equal(lf.Award.Payload, lf.Accept.Payload) {
		return rep, errors.New("award and accept are not over the same lease")
	}
	l, err := market.OpenLease(lf.Award, network, market.AwardDomain)
	if err != nil {
		return rep, fmt.Errorf("award: %w", err)
	}
	if _, err := market.OpenLease(lf.Accept, network, market.AcceptDomain); err != nil {
		return rep, fmt.Errorf("accept: %w", err)
	}
	o, err := attest.Open[market.Offer](lf.Offer, network, market.OfferDomain)
	if err != nil {
		return rep, fmt.Errorf("offer: %w", err)
	}
	if lf.Offer.Signer != l.Provider {
		return rep, errors.New("offer: not signed by the provider of the lease")
	}
	if err := l.CheckOffer(o, lf.Offer.ID()); err != nil {
		return rep, err
	}
	rep = LeaseReport{Lease: lf.Award.ID(), Terms: l, Offer: o}
	chain, err := verifyChain(lf.Receipts, rep.Lease, l, network)
	if err != nil {
		return rep, err
	}
	if n := len(chain); n > 0 {
		last := chain[n-1]
		rep.Receipts, rep.Head, rep.Cum = n, last.ID, last.Last.Cum
	}
	if rep.Due, err = market.Due(l.Price, rep.Cum); err != nil {
		return rep, err
	}
	if rep.Due > l.Budget {
		return rep, fmt.Errorf("%s are due, the lease's budget is %s", rep.Due, l.Budget)
	}
	vouchers, err := verifyVouchers(lf.Vouchers, chain, rep.Lease, l, network)
	if err != nil {
		return rep, err
	}
	if n := len(vouchers); n > 0 {
		rep.Vouched, rep.Acknowledged = vouchers[n-1].Total, int(vouchers[n-1].AckSeq)
	}
	err = verifyOutcomes(lf, &rep, network)
	return rep, err
}

// verifyChain returns the tail after each receipt.
func verifyChain(envs []attest.Envelope, lease attest.Digest, l market.Lease, network attest.Digest) ([]receipt.Tail, error) {
	tail := receipt.Tail{Lease: lease}
	chain := make([]receipt.Tail, 0, len(envs))
	for i, e := range envs {
		r, err := attest.Open[receipt.Receipt](e, network, receipt.Domain)
		if err != nil {
			return nil, fmt.Errorf("receipt %d: %w", i+1, err)
		}
		if e.Signer != l.Provider {
			return nil, fmt.Errorf("receipt %d: %w: signed by %s, not by the provider", i+1, attest.ErrSignature, e.Signer)
		}
		if r.Simulated != l.Simulated {
			return nil, fmt.Errorf("receipt %d: lease and receipt differ on whether the devices are simulated", i+1)
		}
		if tail, err = tail.Accept(r, e.ID()); err != nil {
			return nil, err
		}
		chain = append(chain, tail)
	}
	return chain, nil
}

// verifyVouchers returns the vouchers, each of which follows the one before it.
func verifyVouchers(envs []attest.Envelope, chain []receipt.Tail, lease attest.Digest, l market.Lease, network attest.Digest) ([]market.Voucher, error) {
	out := make([]market.Voucher, 0, len(envs))
	for i, e := range envs {
		v, err := market.OpenVoucher(e, network, l.Renter)
		if err != nil {
			return nil, fmt.Errorf("voucher %d: %w", i+1, err)
		}
		if v.AckSeq > uint64(len(chain)) {
			return nil, fmt.Errorf("voucher %d: %w: it acknowledges receipt %d, which is missing", v.Seq, market.ErrVoid, v.AckSeq)
		}
		var last *market.Voucher
		if i > 0 {
			last = &out[i-1]
		}
		acked := chain[v.AckSeq-1]
		if err := market.CheckVoucher(v, l, lease, acked.Last.Cum, acked.ID, last); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// verifyOutcomes holds each outcome against the receipts and the voucher that it names. One side's may have been written
// before the last receipt or voucher arrived, so that it states an earlier point of the same chain; one that both signed
// states the end.
func verifyOutcomes(lf LeaseFile, rep *LeaseReport, network attest.Digest) error {
	envs := lf.Outcomes
	both := len(envs) == 2 && bytes.Equal(envs[0].Payload, envs[1].Payload)
	for i, e := range envs {
		o, err := market.OpenOutcome(e, network, rep.Lease, rep.Terms)
		if err != nil {
			return fmt.Errorf("outcome: %w", err)
		}
		for _, other := range envs[:i] {
			if other.Signer == e.Signer {
				return errors.New("outcome: one party signed two")
			}
		}
		ended := o.LastSeq == uint64(rep.Receipts) && o.Vouched == rep.Vouched
		if o.LastSeq > uint64(rep.Receipts) || both && !ended {
			return fmt.Errorf("outcome: it states %d receipts, %s due and %s vouched; the file has %d, %s and %s",
				o.LastSeq, o.Due, o.Vouched, rep.Receipts, rep.Due, rep.Vouched)
		}
		var last attest.Envelope
		if o.LastSeq > 0 {
			last = lf.Receipts[o.LastSeq-1]
		}
		if err := CheckOutcome(o, rep.Terms, last, lf.Vouchers); err != nil {
			return err
		}
		if rep.Outcome == nil || o.LastSeq > rep.Outcome.LastSeq {
			rep.Outcome = &o
		}
		rep.Signers++
	}
	return nil
}
