package main

import (
	"fmt"
	"strings"

	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/api"
)

func (c *cli) printAuctions(views []api.AuctionView) error {
	return c.print(views, func(t *table) {
		for i, v := range views {
			if i > 0 {
				t.text("")
			}
			t.rows = append(t.rows, c.auction(v)...)
		}
	})
}

// auction returns one auction: offers in rank order, declines, the award, and whether it holds.
func (c *cli) auction(v api.AuctionView) [][]string {
	var t table
	t.text(fmt.Sprintf("bid %s, open %s of %s, closed by %s, heard by %s, reference price %s", c.digest(v.Bid), millis(v.TookMS), millis(v.WindowMS), words(v.ClosedBy), count(int(v.Heard), "peer"), reference(v.ReferencePrice)))
	t.row("OFFER", "PRICE", "SUCCESS", "THETA", "SCORE", "START", "VERDICT")
	for _, o := range v.Offers {
		verdict := "runner-up"
		switch {
		case o.Excluded != "":
			verdict = "cannot win: " + words(o.Excluded)
		case v.Award != nil && v.Award.Peer == o.Peer:
			verdict = "award"
		case !o.Kept:
			verdict = "not kept"
		}
		t.row(c.peer(o.Peer), o.Price.PerHour(), percent(o.MeanBP), fmt.Sprint(o.Theta), market.MicroUSD(o.Score).PerHour(), millis(o.StartInMS), verdict)
	}
	for _, o := range v.Offers {
		if way := wayTo(o); way != "" {
			t.text("the way to " + c.peer(o.Peer) + ": " + way)
		}
	}
	if v.Received > 0 || v.DeclineCount > 0 {
		t.text(fmt.Sprintf("answers: %s offered (%d known here), %d declined (%d known here)", count(int(v.Received), "peer"), v.ReceivedKnown, v.DeclineCount, v.DeclinedKnown))
	}
	for _, d := range v.Declines {
		t.text("declined: " + c.peer(d.Peer) + ", " + failures(d.Failures))
	}
	if n := int(v.DeclineCount) - len(v.Declines); n > 0 {
		t.text(fmt.Sprintf("declined: %d more", n))
	}
	for _, u := range v.Unreached {
		t.text("passed over before an award: " + c.peer(u.Peer) + ", " + words(u.Reason))
	}
	for _, d := range v.Refusals {
		t.text("refused its award: " + c.peer(d.Peer) + ", " + failures(d.Failures))
	}
	passed := "did not answer its award: "
	if v.Follows != nil {
		t.text("chosen among the runners-up after lease " + c.digest(*v.Follows) + " was lost")
		passed = "lost the job, did not answer, or its offer had run out: "
	}
	for _, k := range v.Failed {
		t.text(passed + c.peer(k))
	}
	switch {
	case v.Award != nil:
		t.text(fmt.Sprintf("award: %s at %s", c.peer(v.Award.Peer), v.Award.Price.PerHour()))
	case v.DryRun:
		t.text("award: none, this is a dry run")
	default:
		t.text("award: none")
	}
	t.text("score = price · (1 + theta·(1−success)/success); the lowest wins")
	if v.Recomputed {
		t.text("recomputed: same award")
	} else {
		t.text("recomputed: " + note(v.RecomputeError, "not the same award"))
	}
	return t.rows
}

// wayTo says how far and how good the way to a provider is, where that counts; "" where it does not.
func wayTo(o api.OfferView) string {
	var parts []string
	if o.RTTMS != nil {
		parts = append(parts, "round trip "+millis(*o.RTTMS))
	}
	if o.SurchargeBP > 0 || o.RTTMS != nil {
		parts = append(parts, o.Path, fmt.Sprintf("counts as %d.%02d%% of the price", o.SurchargeBP/100, o.SurchargeBP%100))
	}
	if o.PlaceFault {
		parts = append(parts, "it cannot be where it says it is, so its success rate counts half")
	}
	return strings.Join(parts, ", ")
}

func reference(m *market.MicroUSD) string {
	if m == nil {
		return unknown
	}
	return m.PerHour()
}
