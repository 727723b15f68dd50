package gpu

import "slices"

// Models returns a copy of the registry in its fixed order.
func Models() []Model {
	all := slices.Clone(models[:])
	for i := range all {
		all[i] = all[i].clone()
	}
	return all
}

// Units returns every unit in ascending order.
func Units() []Unit {
	return []Unit{BillableDeviceMS, ActiveMS, EnergyMJ, TokensIn, TokensCachedIn, TokensOut, BytesIn, BytesOut}
}
