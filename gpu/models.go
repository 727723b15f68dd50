package gpu

import "slices"

// Model is one row of the registry: one kind of card, told apart from its
// laptop, form factor and memory variants. The registry is part of a network's
// rules, hence the CBOR keys.
type Model struct {
	// Name is the canonical name, unique in the registry.
	Name string `cbor:"1,keyasint" json:"name"`
	// Vendor makes the card.
	Vendor Vendor `cbor:"2,keyasint" json:"vendor"`
	// MemBytes is the nominal memory, never 0. Drivers report a little less.
	MemBytes uint64 `cbor:"3,keyasint" json:"mem_bytes"`
	// TDPWatts is the board power of the data sheet in watts; for a laptop
	// part the highest the maker allows. 0 means unknown.
	TDPWatts uint32 `cbor:"4,keyasint,omitempty" json:"tdp_watts,omitempty"`
	// Products are the driver's strings. Cards of different memory may share
	// one; then the memory decides.
	Products []string `cbor:"5,keyasint" json:"products"`
	// Aliases are further names of this row alone.
	Aliases []string `cbor:"6,keyasint,omitempty" json:"aliases,omitempty"`
	// Families are names that this row shares with others, as "A100".
	Families []string `cbor:"7,keyasint,omitempty" json:"families,omitempty"`
}

// Class returns the class of the model's nominal memory.
func (m Model) Class() string { return ClassOf(m.Vendor, m.MemBytes) }

// HasMem reports whether memBytes can be the memory of such a card, as a driver
// reports it (a few percent short of the nominal size, see [ClassOf]) or as
// decimal gigabytes. It is false for 0, unknown.
func (m Model) HasMem(memBytes uint64) bool {
	return memBytes >= m.MemBytes/100*92 && memBytes <= m.MemBytes/100*104
}

func (m Model) clone() Model {
	m.Products, m.Aliases, m.Families = slices.Clone(m.Products), slices.Clone(m.Aliases), slices.Clone(m.Families)
	return m
}

// list keeps the table below on one line per card.
func list(s ...string) []string { return s }

// models is the registry. Memory and board power are the figures of the makers'
// public data sheets; laptop power is the top of the maker's range.
var models = [...]Model{
	// Data centre.
	{"K80", NVIDIA, 12 * GiB, 150, list("Tesla K80"), nil, nil}, // one of the board's two chips
	{"P4", NVIDIA, 8 * GiB, 75, list("Tesla P4"), nil, nil},
	{"P40", NVIDIA, 24 * GiB, 250, list("Tesla P40"), nil, nil},
	{"P100 PCIe 12GB", NVIDIA, 12 * GiB, 250, list("Tesla P100-PCIE-12GB"), list("P100-12GB"), list("P100", "P100 PCIe")},
	{"P100 PCIe 16GB", NVIDIA, 16 * GiB, 250, list("Tesla P100-PCIE-16GB"), nil, list("P100", "P100 PCIe", "P100-16GB")},
	{"P100 SXM2 16GB", NVIDIA, 16 * GiB, 300, list("Tesla P100-SXM2-16GB"), list("P100 SXM2", "P100 SXM"), list("P100", "P100-16GB")},
	{"V100 PCIe 16GB", NVIDIA, 16 * GiB, 250, list("Tesla V100-PCIE-16GB"), nil, list("V100", "V100 PCIe", "V100-16GB")},
	{"V100 PCIe 32GB", NVIDIA, 32 * GiB, 250, list("Tesla V100-PCIE-32GB"), nil, list("V100", "V100 PCIe", "V100-32GB")},
	{"V100 SXM2 16GB", NVIDIA, 16 * GiB, 300, list("Tesla V100-SXM2-16GB"), nil, list("V100", "V100 SXM2", "V100 SXM", "V100-16GB")},
	{"V100 SXM2 32GB", NVIDIA, 32 * GiB, 300, list("Tesla V100-SXM2-32GB"), nil, list("V100", "V100 SXM2", "V100 SXM", "V100-32GB")},
	{"T4", NVIDIA, 16 * GiB, 70, list("Tesla T4"), nil, nil},
	{"A2", NVIDIA, 16 * GiB, 60, list("NVIDIA A2"), nil, nil},
	{"A10", NVIDIA, 24 * GiB, 150, list("NVIDIA A10"), nil, nil},
	{"A10G", NVIDIA, 24 * GiB, 150, list("NVIDIA A10G"), nil, nil},
	{"A30", NVIDIA, 24 * GiB, 165, list("NVIDIA A30"), nil, nil},
	{"A40", NVIDIA, 48 * GiB, 300, list("NVIDIA A40"), nil, nil},
	{"A100 SXM4 40GB", NVIDIA, 40 * GiB, 400, list("NVIDIA A100-SXM4-40GB"), list("A100 SXM 40GB"), list("A100", "A100-40GB", "A100 SXM4", "A100 SXM")},
	{"A100 SXM4 80GB", NVIDIA, 80 * GiB, 400, list("NVIDIA A100-SXM4-80GB"), list("A100 SXM 80GB", "A100 80GB SXM4", "A100 80GB SXM"), list("A100", "A100-80GB", "A100 SXM4", "A100 SXM")},
	{"A100 PCIe 40GB", NVIDIA, 40 * GiB, 250, list("NVIDIA A100-PCIE-40GB"), nil, list("A100", "A100-40GB", "A100 PCIe")},
	{"A100 PCIe 80GB", NVIDIA, 80 * GiB, 300, list("NVIDIA A100 80GB PCIe"), nil, list("A100", "A100-80GB", "A100 PCIe")},
	{"H100 SXM", NVIDIA, 80 * GiB, 700, list("NVIDIA H100 80GB HBM3"), list("H100 SXM5", "H100 SXM 80GB", "H100 SXM5 80GB"), list("H100", "H100-80GB")},
	{"H100 PCIe", NVIDIA, 80 * GiB, 350, list("NVIDIA H100 PCIe"), list("H100 PCIe 80GB", "H100 80GB PCIe"), list("H100", "H100-80GB")},
	{"H100 NVL", NVIDIA, 94 * GiB, 400, list("NVIDIA H100 NVL"), list("H100-94GB", "H100 NVL 94GB"), list("H100")},
	{"H200 SXM", NVIDIA, 141 * GiB, 700, list("NVIDIA H200"), list("H200 SXM5", "H200 SXM 141GB"), list("H200", "H200-141GB")},
	{"H200 NVL", NVIDIA, 141 * GiB, 600, list("NVIDIA H200 NVL"), nil, list("H200", "H200-141GB")},
	{"B200", NVIDIA, 192 * GiB, 1000, list("NVIDIA B200"), list("B200 SXM", "B200-192GB", "B200-180GB"), nil},
	{"L4", NVIDIA, 24 * GiB, 72, list("NVIDIA L4"), nil, nil},
	{"L40", NVIDIA, 48 * GiB, 300, list("NVIDIA L40"), nil, nil},
	{"L40S", NVIDIA, 48 * GiB, 350, list("NVIDIA L40S"), nil, nil},
	{"MI300X", AMD, 192 * GiB, 750, list("AMD Instinct MI300X"), list("Instinct MI300X", "AMD Instinct MI300X OAM"), nil},
	// Workstation.
	{"Quadro RTX 6000", NVIDIA, 24 * GiB, 295, list("Quadro RTX 6000"), nil, nil},
	{"Quadro RTX 8000", NVIDIA, 48 * GiB, 295, list("Quadro RTX 8000"), nil, nil},
	{"RTX A4000", NVIDIA, 16 * GiB, 140, list("NVIDIA RTX A4000"), list("A4000"), nil},
	{"RTX A4500", NVIDIA, 20 * GiB, 200, list("NVIDIA RTX A4500"), list("A4500"), nil},
	{"RTX A5000", NVIDIA, 24 * GiB, 230, list("NVIDIA RTX A5000"), list("A5000"), nil},
	{"RTX A6000", NVIDIA, 48 * GiB, 300, list("NVIDIA RTX A6000"), list("A6000"), nil},
	{"RTX 4000 Ada", NVIDIA, 20 * GiB, 130, list("NVIDIA RTX 4000 Ada Generation"), nil, nil},
	{"RTX 5000 Ada", NVIDIA, 32 * GiB, 250, list("NVIDIA RTX 5000 Ada Generation"), nil, nil},
	{"RTX 6000 Ada", NVIDIA, 48 * GiB, 300, list("NVIDIA RTX 6000 Ada Generation"), list("6000 Ada"), nil},
	{"RTX PRO 6000 Workstation", NVIDIA, 96 * GiB, 600, list("NVIDIA RTX PRO 6000 Blackwell Workstation Edition"), nil, list("RTX PRO 6000", "RTX PRO 6000 Blackwell")},
	{"RTX PRO 6000 Max-Q", NVIDIA, 96 * GiB, 300, list("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"), nil, list("RTX PRO 6000", "RTX PRO 6000 Blackwell")},
	{"RTX PRO 6000 Server", NVIDIA, 96 * GiB, 600, list("NVIDIA RTX PRO 6000 Blackwell Server Edition"), nil, list("RTX PRO 6000", "RTX PRO 6000 Blackwell")},
	// Consumer, desktop.
	{"GTX 1050 Ti", NVIDIA, 4 * GiB, 75, list("NVIDIA GeForce GTX 1050 Ti"), nil, nil},
	{"GTX 1080 Ti", NVIDIA, 11 * GiB, 250, list("NVIDIA GeForce GTX 1080 Ti"), nil, nil},
	{"RTX 2060", NVIDIA, 6 * GiB, 160, list("NVIDIA GeForce RTX 2060"), nil, nil},
	{"RTX 2070", NVIDIA, 8 * GiB, 175, list("NVIDIA GeForce RTX 2070"), nil, nil},
	{"RTX 2070 SUPER", NVIDIA, 8 * GiB, 215, list("NVIDIA GeForce RTX 2070 SUPER"), nil, nil},
	{"RTX 2080", NVIDIA, 8 * GiB, 215, list("NVIDIA GeForce RTX 2080"), nil, nil},
	{"RTX 2080 SUPER", NVIDIA, 8 * GiB, 250, list("NVIDIA GeForce RTX 2080 SUPER"), nil, nil},
	{"RTX 2080 Ti", NVIDIA, 11 * GiB, 250, list("NVIDIA GeForce RTX 2080 Ti"), nil, nil},
	{"RTX 3060 8GB", NVIDIA, 8 * GiB, 170, list("NVIDIA GeForce RTX 3060"), nil, list("RTX 3060")},
	{"RTX 3060 12GB", NVIDIA, 12 * GiB, 170, list("NVIDIA GeForce RTX 3060"), nil, list("RTX 3060")},
	{"RTX 3060 Ti", NVIDIA, 8 * GiB, 200, list("NVIDIA GeForce RTX 3060 Ti"), nil, nil},
	{"RTX 3070", NVIDIA, 8 * GiB, 220, list("NVIDIA GeForce RTX 3070"), nil, nil},
	{"RTX 3070 Ti", NVIDIA, 8 * GiB, 290, list("NVIDIA GeForce RTX 3070 Ti"), nil, nil},
	{"RTX 3080 10GB", NVIDIA, 10 * GiB, 320, list("NVIDIA GeForce RTX 3080"), nil, list("RTX 3080")},
	{"RTX 3080 12GB", NVIDIA, 12 * GiB, 350, list("NVIDIA GeForce RTX 3080"), nil, list("RTX 3080")},
	{"RTX 3080 Ti", NVIDIA, 12 * GiB, 350, list("NVIDIA GeForce RTX 3080 Ti"), nil, nil},
	{"RTX 3090", NVIDIA, 24 * GiB, 350, list("NVIDIA GeForce RTX 3090"), nil, nil},
	{"RTX 3090 Ti", NVIDIA, 24 * GiB, 450, list("NVIDIA GeForce RTX 3090 Ti"), nil, nil},
	{"RTX 4060", NVIDIA, 8 * GiB, 115, list("NVIDIA GeForce RTX 4060"), nil, nil},
	{"RTX 4060 Ti 8GB", NVIDIA, 8 * GiB, 160, list("NVIDIA GeForce RTX 4060 Ti"), nil, list("RTX 4060 Ti")},
	{"RTX 4060 Ti 16GB", NVIDIA, 16 * GiB, 165, list("NVIDIA GeForce RTX 4060 Ti"), nil, list("RTX 4060 Ti")},
	{"RTX 4070", NVIDIA, 12 * GiB, 200, list("NVIDIA GeForce RTX 4070"), nil, nil},
	{"RTX 4070 SUPER", NVIDIA, 12 * GiB, 220, list("NVIDIA GeForce RTX 4070 SUPER"), nil, nil},
	{"RTX 4070 Ti", NVIDIA, 12 * GiB, 285, list("NVIDIA GeForce RTX 4070 Ti"), nil, nil},
	{"RTX 4070 Ti SUPER", NVIDIA, 16 * GiB, 285, list("NVIDIA GeForce RTX 4070 Ti SUPER"), nil, nil},
	{"RTX 4080", NVIDIA, 16 * GiB, 320, list("NVIDIA GeForce RTX 4080"), nil, nil},
	{"RTX 4080 SUPER", NVIDIA, 16 * GiB, 320, list("NVIDIA GeForce RTX 4080 SUPER"), nil, nil},
	{"RTX 4090", NVIDIA, 24 * GiB, 450, list("NVIDIA GeForce RTX 4090"), nil, nil},
	{"RTX 4090 D", NVIDIA, 24 * GiB, 425, list("NVIDIA GeForce RTX 4090 D"), nil, nil},
	{"RTX 5070", NVIDIA, 12 * GiB, 250, list("NVIDIA GeForce RTX 5070"), nil, nil},
	{"RTX 5070 Ti", NVIDIA, 16 * GiB, 300, list("NVIDIA GeForce RTX 5070 Ti"), nil, nil},
	{"RTX 5080", NVIDIA, 16 * GiB, 360, list("NVIDIA GeForce RTX 5080"), nil, nil},
	{"RTX 5090", NVIDIA, 32 * GiB, 575, list("NVIDIA GeForce RTX 5090"), nil, nil},
	{"RTX 5090 D", NVIDIA, 32 * GiB, 575, list("NVIDIA GeForce RTX 5090 D"), nil, nil},
	// Consumer, laptop: the name is the desktop card's, the hardware is not.
	{"RTX 3060 Laptop", NVIDIA, 6 * GiB, 115, list("NVIDIA GeForce RTX 3060 Laptop GPU"), nil, nil},
	{"RTX 3070 Laptop", NVIDIA, 8 * GiB, 125, list("NVIDIA GeForce RTX 3070 Laptop GPU"), nil, nil},
	{"RTX 3080 Laptop 8GB", NVIDIA, 8 * GiB, 150, list("NVIDIA GeForce RTX 3080 Laptop GPU"), nil, list("RTX 3080 Laptop")},
	{"RTX 3080 Laptop 16GB", NVIDIA, 16 * GiB, 150, list("NVIDIA GeForce RTX 3080 Laptop GPU"), nil, list("RTX 3080 Laptop")},
	{"RTX 4060 Laptop", NVIDIA, 8 * GiB, 115, list("NVIDIA GeForce RTX 4060 Laptop GPU"), nil, nil},
	{"RTX 4070 Laptop", NVIDIA, 8 * GiB, 115, list("NVIDIA GeForce RTX 4070 Laptop GPU"), nil, nil},
	{"RTX 4080 Laptop", NVIDIA, 12 * GiB, 150, list("NVIDIA GeForce RTX 4080 Laptop GPU"), nil, nil},
	{"RTX 4090 Laptop", NVIDIA, 16 * GiB, 150, list("NVIDIA GeForce RTX 4090 Laptop GPU"), nil, nil},
	{"RTX 5090 Laptop", NVIDIA, 24 * GiB, 150, list("NVIDIA GeForce RTX 5090 Laptop GPU"), nil, nil},
}
