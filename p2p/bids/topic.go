package bids

import (
	"fmt"
	"slices"
	"strings"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/market"
)

// Topic names the bids for one class of device in one place.
type Topic struct {
	Class string // one of gpu.Classes
	Place string // a continent or market.AnyPlace
}

// String returns "class/place".
func (t Topic) String() string { return t.Class + "/" + t.Place }

// Validate reports a topic that does not exist.
func (t Topic) Validate() error {
	if !gpu.KnownClass(t.Class) {
		return fmt.Errorf("%w class %.20q", market.ErrUnknown, t.Class)
	}
	if t.Place == market.AnyPlace {
		return nil
	}
	if t.Place == "" {
		return fmt.Errorf("%w place", market.ErrUnknown)
	}
	return market.Place{Continent: t.Place}.Validate()
}

func prefix(network string) string { return "/lacuna/" + network + "/bids/1/" }

func (t Topic) name(network string) string { return prefix(network) + t.String() }

// TopicsFor returns the topics on which bids for a device of that class at that place are announced: those of its
// continent, if known, and those for anywhere. It returns nil for an unknown class.
func TopicsFor(class string, place market.Place) []Topic {
	if !gpu.KnownClass(class) {
		return nil
	}
	topics := []Topic{{Class: class, Place: market.AnyPlace}}
	if place.Continent != "" {
		topics = append(topics, Topic{Class: class, Place: place.Continent})
	}
	return topics
}

// topicsOf returns each class at each place once.
func topicsOf(classes, places []string) []Topic {
	if len(places) == 0 {
		places = []string{market.AnyPlace}
	}
	var out []Topic
	for _, c := range classes {
		for _, p := range places {
			if t := (Topic{Class: c, Place: p}); !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

// maxPlaces is how many places a bid may be announced for: each continent and anywhere.
const maxPlaces = 8

// maxTopics is how many topics a peer may name at once: a hub that relays every class on every continent.
const maxTopics = 256

// topicFilter lets only topics of this network pass, so that a peer cannot fill memory with invented ones.
type topicFilter struct{ prefix string }

// CanSubscribe reports whether there is such a topic.
func (f topicFilter) CanSubscribe(name string) bool {
	rest, ok := strings.CutPrefix(name, f.prefix)
	class, place, cut := strings.Cut(rest, "/")
	return ok && cut && Topic{Class: class, Place: place}.Validate() == nil
}

// FilterIncomingSubscriptions drops unknown topics, and everything from a peer that names too many.
func (f topicFilter) FilterIncomingSubscriptions(_ peer.ID, subs []*pb.RPC_SubOpts) ([]*pb.RPC_SubOpts, error) {
	if len(subs) > maxTopics {
		return nil, pubsub.ErrTooManySubscriptions
	}
	return pubsub.FilterSubscriptions(subs, f.CanSubscribe), nil
}
