package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

const (
	version    = 1
	headerSize = 36
	recordHead = 16
)

const magic = "belayjl"

// Errors of the decoders.
var (
	errShort   = errors.New("bytes end before the record does")
	errDamaged = errors.New("no such record was written")
	errVersion = errors.New("written by another version")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the head of a segment; the package comment draws it.
type header struct{ prev, high, dropped uint64 }

func (h header) appendTo(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, version)
	for _, n := range []uint64{h.prev, h.high, h.dropped} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

func decodeHeader(b []byte) (header, error) {
	if len(b) < headerSize {
		return header{}, errShort
	}

	ours := append([]byte(magic), version)
	ours = append(ours, b[len(ours):headerSize-4]...)
	sumOK := binary.LittleEndian.Uint32(b[headerSize-4:]) == crc32.Checksum(ours, castagnoli)
	switch v := b[len(magic)]; {
	case string(b[:len(magic)]) != magic,
		v == 0,
		v == version && !sumOK,
		v != version && sumOK: // the last: a flipped bit
		return header{}, errDamaged
	case v != version:
		return header{}, errVersion
	}

	h := header{
		binary.LittleEndian.Uint64(b[8:]),
		binary.LittleEndian.Uint64(b[16:]),
		binary.LittleEndian.Uint64(b[24:]),
	}

	if h.prev > maxNumber || h.high > maxNumber || h.dropped > maxNumber {
		return header{}, errDamaged
	}

	return h, nil
}

func (r record) appendTo(dst []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(r.payload)))
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, r.seq)
	dst = append(dst, r.payload...)
	binary.LittleEndian.PutUint32(dst[at+4:], recordSum(dst[at:]))
	return dst
}

func recordSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, b[8:])
}

// decodeRecord reads the record at the beginning of b and says how many bytes it takes; the payload lies in b. With
// errShort it is not known whether more bytes would help, and the count says how many the record claims.
func decodeRecord(b []byte) (record, int, error) {
	if len(b) < recordHead {
		return record{}, recordHead, errShort
	}

	length := binary.LittleEndian.Uint32(b)
	seq := binary.LittleEndian.Uint64(b[8:])
	if length > MaxPayload || seq == 0 || seq > maxNumber {
		return record{}, 0, errDamaged
	}

	n := recordHead + int(length)
	if len(b) < n {
		return record{}, n, errShort
	}
	if binary.LittleEndian.Uint32(b[4:]) != recordSum(b[:n]) {
		return record{}, 0, errDamaged
	}

	return record{seq, b[recordHead:n:n]}, n, nil
}
