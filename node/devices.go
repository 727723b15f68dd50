package node

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/lacuna-network/lacuna/gpu"
	"github.com/lacuna-network/lacuna/gpu/gputest"
	"github.com/lacuna-network/lacuna/market"
	"github.com/lacuna-network/lacuna/node/config"
	"github.com/lacuna-network/lacuna/p2p/bids"
)

// devices is what this peer has to sell: CPU slots of this machine, and simulated devices on a test network.
type devices struct {
	slots     []gpu.Device
	simulated *gputest.Set // nil = none
	sims      []gpu.Device
	prices    map[string]market.MicroUSD // of simulated devices that name their own
	place     market.Place
	c         config.Provide
}

// openDevices reads what there is. Errors name the file or the value at fault.
func openDevices(c config.Provide) (*devices, error) {
	d := &devices{c: c, place: c.Place, prices: map[string]market.MicroUSD{}}
	if c.SimulateGPUs != "" {
		if err := d.simulate(c.SimulateGPUs); err != nil {
			return nil, fmt.Errorf("simulated devices: %w", err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read host name: %w", err)
	}
	d.slots = gpu.CPUSlots(host, runtime.NumCPU(), 0, d.slotCount())
	return d, nil
}

// slotCount is how many CPU slots are for sale: what the config says, or half of the cores where there is no GPU.
func (d *devices) slotCount() int {
	if d.c.CPUSlots != config.Auto {
		return min(d.c.CPUSlots, runtime.NumCPU())
	}
	if len(d.sims) > 0 {
		return 0
	}
	return max(1, runtime.NumCPU()/2)
}

func (d *devices) simulate(file string) error {
	set, err := gputest.Load(file)
	if err != nil {
		return err
	}
	if d.sims, err = set.Devices(); err != nil {
		return err
	}
	for _, s := range d.sims {
		text := set.Price(s.ID)
		if text == "" {
			continue
		}
		price, err := market.ParsePrice(text)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", file, s.ID, err)
		}
		d.prices[s.ID] = price
	}
	if p := set.Place(); p != "" && d.place == (market.Place{}) {
		if d.place, err = market.ParsePlace(p); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	set.Start(time.Now())
	d.simulated = set
	return nil
}

// price returns the lowest price of a device.
func (d *devices) price(dev gpu.Device) market.MicroUSD {
	if p, ok := d.prices[dev.ID]; ok {
		return p
	}
	if dev.Class == gpu.ClassCPU {
		return d.c.CPUPrice
	}
	return d.c.Price
}

// topics are those on which bids that these devices could serve are announced.
func (d *devices) topics() []bids.Topic {
	seen := map[bids.Topic]bool{}
	var out []bids.Topic
	all, _ := d.Devices() // never fails, see there
	for _, dev := range all {
		for _, t := range bids.TopicsFor(dev.Class, d.place) {
			if !seen[t] {
				seen[t] = true
				out = append(out, t)
			}
		}
	}
	return out
}

// Devices returns all devices. What there is does not change while the peer runs.
func (d *devices) Devices() ([]gpu.Device, error) {
	return append(append([]gpu.Device(nil), d.sims...), d.slots...), nil
}

func (d *devices) isSimulated(id string) bool {
	for _, s := range d.sims {
		if s.ID == id {
			return true
		}
	}
	return false
}

// Sample reads a device. A CPU slot has no sensors of its own, so all its readings are absent.
func (d *devices) Sample(id string, now time.Time) (gpu.Sample, error) {
	if d.isSimulated(id) {
		return d.simulated.Sample(id, now)
	}
	return gpu.Sample{Device: id, At: now}, nil
}

// LeaseStarted tells a simulated device that it works.
func (d *devices) LeaseStarted(id string, now time.Time) {
	if d.isSimulated(id) {
		_ = d.simulated.LeaseStarted(id, now) // fails for unknown ids only
	}
}

// LeaseEnded tells a simulated device that it rests.
func (d *devices) LeaseEnded(id string) {
	if d.isSimulated(id) {
		_ = d.simulated.LeaseEnded(id) // fails for unknown ids only
	}
}

// Fault returns what is wrong with a device: a simulated one's script may say so.
func (d *devices) Fault(id string, now time.Time) (string, bool) {
	if d.isSimulated(id) {
		return d.simulated.Fault(id, now)
	}
	return "", false
}
