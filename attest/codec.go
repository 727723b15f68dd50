package attest

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// ErrEncoding means that bytes are not the one valid encoding of the object they claim to be.
var ErrEncoding = errors.New("not canonical")

// Validator is implemented by objects that cross a trust border. Validate returns what is wrong with the values, or nil.
type Validator interface{ Validate() error }

var (
	encMode = must(cbor.EncOptions{
		Sort:          cbor.SortCoreDeterministic,
		ShortestFloat: cbor.ShortestFloat16,
		NaNConvert:    cbor.NaNConvert7e00,
		InfConvert:    cbor.InfConvertFloat16,
		IndefLength:   cbor.IndefLengthForbidden,
		TagsMd:        cbor.TagsForbidden,
		NilContainers: cbor.NilContainerAsEmpty,
	}.EncMode())
	decMode = must(cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		UTF8:              cbor.UTF8RejectInvalid,
		MaxNestedLevels:   8,
		MaxArrayElements:  1 << 19, // the receipts of the largest receipt file; all else is bounded by its bytes
		MaxMapPairs:       1_000,
	}.DecMode())
)

func must[T any](v T, err error) T {
	if err != nil {
		panic("attest: " + err.Error()) // the options above are constants; they cannot be wrong at run time
	}
	return v
}

// Marshal returns the one encoding of v: CBOR as of RFC 8949 §4.2.1.
func Marshal(v any) ([]byte, error) {
	b, err := encMode.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return b, nil
}

// Unmarshal decodes b into v, which must be a pointer to a zero value. It refuses duplicate and unknown keys,
// indefinite lengths, tags and trailing bytes; then it encodes v again and refuses b unless both are equal, so that
// there is one byte string for one value. If v is a [Validator], its verdict counts too. Errors wrap [ErrEncoding]
// unless they come from Validate.
func Unmarshal(b []byte, v any) error {
	if err := decMode.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %w", ErrEncoding, err)
	}
	again, err := encMode.Marshal(v)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEncoding, err)
	}
	if !bytes.Equal(b, again) {
		return fmt.Errorf("%w: %d bytes are not the shortest sorted form", ErrEncoding, len(b))
	}
	if c, ok := v.(Validator); ok {
		return c.Validate()
	}
	return nil
}
