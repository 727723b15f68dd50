package deal

import (
	"bytes"
	"context"
	"fmt"

	"github.com/lacuna-network/lacuna/attest"
	"github.com/lacuna-network/lacuna/market"
)

// SendBid sends a bid straight to a provider, which is known under addrs or connected already. ok is false when the
// provider has nothing to say. Errors of all senders wrap [p2p.ErrUnreachable], [p2p.ErrProtocol] or [ErrUnanswered], or
// say that the message itself is malformed.
func (s *Service) SendBid(ctx context.Context, provider attest.Key, addrs []string, bid attest.Envelope) (answer attest.Envelope, ok bool, err error) {
	var a bidAnswer
	if err := s.ask(ctx, provider, addrs, BidProtocol, bidRequest{Bid: bid}, &a); err != nil || a.Answer == nil {
		return attest.Envelope{}, false, err
	}
	return *a.Answer, true, nil
}

// SendAnswer sends an offer or a decline to the renter at the reply-to addresses of its bid.
func (s *Service) SendAnswer(ctx context.Context, renter attest.Key, replyTo []string, answer attest.Envelope) (Code, error) {
	var a ack
	err := s.ask(ctx, renter, replyTo, AnswerProtocol, answerRequest{Answer: answer}, &a)
	return a.Code, err
}

// SendAward sends the renter's signature over a lease with the encoded terms, at most [market.MaxTermsBytes], and
// returns the provider's accept, which is over the same bytes, or its decline. After [ErrUnanswered] the provider may
// hold the devices for [market.HoldTime]; without a start nobody owes anything.
func (s *Service) SendAward(ctx context.Context, provider attest.Key, addrs []string, award attest.Envelope, terms []byte) (attest.Envelope, error) {
	var a awardAnswer
	if err := s.ask(ctx, provider, addrs, AwardProtocol, awardRequest{Award: award, Terms: terms}, &a); err != nil {
		return attest.Envelope{}, err
	}
	if a.Answer.Domain == market.AcceptDomain && !bytes.Equal(a.Answer.Payload, award.Payload) {
		return attest.Envelope{}, fmt.Errorf("send award to %s: %w: it accepts another lease", provider.Short(), ErrUnanswered)
	}
	return a.Answer, nil
}

// SendOutcome sends how a lease ended, with receipts in the order of their chain. Receipts that do not fit into one
// message go out in several, one after the other, each with the outcome; it stops where the other side's code is not
// [OK]. The settlement has the last code, voucher and outcome that came, also beside an error.
func (s *Service) SendOutcome(ctx context.Context, peer attest.Key, addrs []string, e Ending) (Settlement, error) {
	var last Settlement
	rest := e.Receipts
	for {
		n := fit(rest)
		var a Settlement
		err := s.ask(ctx, peer, addrs, OutcomeProtocol, Ending{Outcome: e.Outcome, Receipts: rest[:n]}, &a)
		if err != nil {
			return last, err
		}
		last.Code = a.Code
		if a.Voucher != nil {
			last.Voucher = a.Voucher
		}
		if a.Outcome != nil {
			last.Outcome = a.Outcome
		}
		if rest = rest[n:]; len(rest) == 0 || a.Code != OK {
			return last, nil
		}
	}
}

// fit returns how many of the first receipts one message carries, at least one if there is one.
func fit(receipts []attest.Envelope) int {
	room := maxReceiptBytes
	for i, r := range receipts {
		room -= len(r.Payload) + envelopeOverhead
		if i == MaxReceipts || room < 0 && i > 0 {
			return i
		}
	}
	return len(receipts)
}
