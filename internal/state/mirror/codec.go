package mirror

import (
	"bytes"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// frameBytes is the most that one zstd frame holds before compression: a reader needs no more memory than that.
const frameBytes = 1 << 20

// Codec compresses for any number of mirrors. It may be used by several goroutines and starts none.
type Codec struct {
	enc *zstd.Encoder
}

// NewCodec makes a Codec.
func NewCodec() (*Codec, error) {
	enc, err := zstd.NewWriter(
		nil, zstd.WithEncoderConcurrency(2), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(frameBytes),
	)

	if err != nil {
		return nil, fmt.Errorf("make compressor: %w", err)
	}

	return &Codec{enc}, nil
}

// frames appends lines to dst as frames of at most frameBytes, cut at line ends where that can be.
func (c *Codec) frames(dst, lines []byte) []byte {
	for len(lines) > 0 {
		n := min(len(lines), frameBytes)
		if n < len(lines) {
			if i := bytes.LastIndexByte(lines[:n], '\n'); i >= 0 {
				n = i + 1
			}
		}

		dst = c.enc.EncodeAll(lines[:n], dst)
		lines = lines[n:]
	}
	return dst
}
