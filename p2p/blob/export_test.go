package blob

import "github.com/lacuna-network/lacuna/attest"

// Messages returns a zero value of each frame that a peer may send, for the fuzz test.
func Messages() []attest.Validator { return []attest.Validator{new(request), new(header)} }
