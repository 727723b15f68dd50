package deal

import "github.com/lacuna-network/lacuna/attest"

// Messages returns a zero value of each message that a peer may send, for the fuzz test.
func Messages() []attest.Validator {
	return []attest.Validator{new(bidRequest), new(bidAnswer), new(answerRequest), new(ack), new(awardRequest),
		new(awardAnswer), new(Ending), new(Settlement)}
}
