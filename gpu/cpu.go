package gpu

import "strconv"

// CPUSlots returns the first sell slots of a host with cores logical cores and
// memBytes of memory, as devices of class "cpu". A slot is one logical core with
// memBytes/cores of the memory; 0 memory is unknown. The ids are
// "CPU-<host>-<n>" with n from 0; host must be unique on the network and stable
// across restarts. sell is cut to cores; nothing is returned when either is 0 or
// less, or when host is empty.
func CPUSlots(host string, cores int, memBytes uint64, sell int) []Device {
	sell = min(sell, cores)
	if sell <= 0 || host == "" {
		return nil
	}
	slots := make([]Device, sell)
	for n := range slots {
		slots[n] = Device{
			ID:       "CPU-" + host + "-" + strconv.Itoa(n),
			Name:     "CPU",
			Model:    "CPU",
			Class:    ClassCPU,
			MemBytes: memBytes / uint64(cores),
		}
	}
	return slots
}
