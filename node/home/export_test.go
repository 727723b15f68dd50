package home

// ErrNetworkKeyFormat means that a file holds no network key.
var ErrNetworkKeyFormat = errNetworkKeyFormat

// ParseNetworkKey reads the bytes of a network key's file.
func ParseNetworkKey(data []byte) ([]byte, error) { return parseNetworkKey(data) }
