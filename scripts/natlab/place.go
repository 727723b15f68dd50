//go:build linux

package main

import (
	"context"
	"slices"
)

// kind is a kind of place where a machine may stand.
type kind struct {
	name string
	text string // what it is, in one line
	// build makes the machine's namespace, and what stands between it and the internet, on public address n.
	build    func(ctx context.Context, w *world, machine string, n int) error
	proxy    bool // the only way out is the HTTP proxy on its router
	can      abilities
	verdicts []string // that a peer there may come to
}

// abilities are what packets can do from and to a kind of place, as physics has it.
type abilities struct {
	v4, v6 bool // the machine has a way to public addresses of this family
	udp    bool // UDP leaves
	tcp    bool // TCP leaves by itself, without a proxy
	steady bool // one port inside is one port outside, whoever it talks to
	open   bool // strangers reach the machine's port
}

// lanNet is the network inside every home: the same everywhere, as most homes have the same.
const lanNet = "192.168.1"

// What routers do. Without the two rules of closed, an inbound packet makes an entry of its own in the box, the answer
// then gets another port, and the box looks symmetric. Home routers drop such packets.
const (
	masquerade = "iptables -t nat -A POSTROUTING -o wan -j MASQUERADE"
	symmetric  = masquerade + " --random-fully"
	closed     = "; iptables -A INPUT -i wan -m conntrack --ctstate NEW -j DROP; iptables -A FORWARD -i wan -m conntrack --ctstate NEW -j DROP"
	noUDP      = "iptables -I FORWARD -p udp -j DROP"
	mapped     = "; iptables -t nat -A PREROUTING -i wan -p udp --dport 4711 -j DNAT --to-destination " + lanNet + ".2" +
		"; iptables -t nat -A PREROUTING -i wan -p tcp --dport 4711 -j DNAT --to-destination " + lanNet + ".2"
	closed6 = "ip6tables -A INPUT -p icmpv6 -j ACCEPT; ip6tables -A INPUT -m conntrack --ctstate NEW -j DROP"
)

// kinds returns all kinds, in the order of the table.
func kinds() []kind {
	direct, punched, relayed := []string{"direct"}, []string{"relayed", "hole-punched"}, []string{"relayed"}
	return []kind{
		{name: "public", text: "IPv4, nothing between it and the internet", build: online(true, false), verdicts: direct,
			can: abilities{v4: true, udp: true, tcp: true, steady: true, open: true}},
		{name: "ipv6", text: "IPv6 alone, nothing between it and the internet", build: online(false, true), verdicts: direct,
			can: abilities{v6: true, udp: true, tcp: true, steady: true, open: true}},
		{name: "cone", text: "a router that lets strangers in by the port that was mapped (full cone)", build: behind(masquerade + mapped), verdicts: direct,
			can: abilities{v4: true, udp: true, tcp: true, steady: true, open: true}},
		{name: "home", text: "a router that lets in answers alone (port-restricted)", build: behind(masquerade + closed), verdicts: punched,
			can: abilities{v4: true, udp: true, tcp: true, steady: true}},
		{name: "symmetric", text: "a router that gives every connection another port", build: behind(symmetric + closed), verdicts: relayed,
			can: abilities{v4: true, udp: true, tcp: true}},
		{name: "cgnat", text: "a home router behind a carrier's", build: carrier(masquerade+closed, masquerade+closed), verdicts: punched,
			can: abilities{v4: true, udp: true, tcp: true, steady: true}},
		{name: "no-udp", text: "a home router that drops UDP", build: behind(masquerade + closed + "; " + noUDP), verdicts: punched,
			can: abilities{v4: true, tcp: true, steady: true}},
		{name: "proxy", text: "a network that one leaves by an HTTP proxy alone", build: behind("iptables -P FORWARD DROP" + closed), proxy: true, verdicts: relayed,
			can: abilities{v4: true}},
	}
}

// kindOf returns the kind of that name.
func kindOf(name string) (kind, bool) {
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, false
	}
	return all[i], true
}

// online is a machine with a public address of its own.
func online(v4, v6 bool) func(context.Context, *world, string, int) error {
	return func(ctx context.Context, w *world, machine string, n int) error {
		if err := w.space(ctx, machine); err != nil {
			return err
		}
		return w.online(ctx, machine, n, v4, v6)
	}
}

// behind is a machine behind a router of its own, which the script sets up.
func behind(script string) func(context.Context, *world, string, int) error {
	return func(ctx context.Context, w *world, machine string, n int) error {
		box := router(machine)
		for _, s := range []string{box, machine} {
			if err := w.space(ctx, s); err != nil {
				return err
			}
		}
		if err := w.online(ctx, box, n, true, false); err != nil {
			return err
		}
		if err := w.cable(ctx, box, machine, lanNet, 24); err != nil {
			return err
		}
		return w.sh(ctx, box, script)
	}
}

// carrier is a home whose router has an address that its carrier translates once more (RFC 6598).
func carrier(outer, inner string) func(context.Context, *world, string, int) error {
	return func(ctx context.Context, w *world, machine string, n int) error {
		out, box := "carrier-"+machine, router(machine)
		for _, s := range []string{out, box, machine} {
			if err := w.space(ctx, s); err != nil {
				return err
			}
		}
		if err := w.online(ctx, out, n, true, false); err != nil {
			return err
		}
		if err := w.cable(ctx, out, box, "100.64.0", 10); err != nil {
			return err
		}
		if err := w.cable(ctx, box, machine, lanNet, 24); err != nil {
			return err
		}
		if err := w.sh(ctx, out, outer); err != nil {
			return err
		}
		return w.sh(ctx, box, inner)
	}
}

// router is the namespace of the box that a machine stands behind.
func router(machine string) string { return "router-" + machine }
