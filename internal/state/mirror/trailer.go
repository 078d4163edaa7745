package mirror

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
)

// A mirror file is a row of batches:
//
//	+--------------------+-----+--------------------+----------------------------------+
//	| zstd frame, <= 1MB | ... | zstd frame         | skippable frame: header, trailer |
//	+--------------------+-----+--------------------+----------------------------------+
//
// zstd programs step over skippable frames. A batch counts only when its trailer is whole: it is the commit.
//
//	skippable frame:  magic 0x184D2A5B | size of the trailer (4)
//	trailer:          "blym" | version (4) | 9 numbers of 8 bytes | device, inode (8 each)
//	                  | length (4) and hash (16) of the source's head | the same of the bytes before To
//	                  | crc32c of the batch's frames (4) | crc32c of the trailer so far (4)
//
// All numbers are little-endian.
const (
	skipMagic      = 0x184D2A5B
	trailerMagic   = "blym"
	trailerVersion = 1
	payloadSize    = 4 + 4 + 9*8 + 2*8 + 2*(4+16) + 4 + 4
	trailerSize    = 8 + payloadSize // with the skippable frame's header
)

// trailer describes one batch: which bytes of the source its lines are, and how to know that source again.
type trailer struct {
	From, To   int64 // of the source
	Raw        int64 // bytes of the lines, redacted
	Lines      int64
	Frames     int64 // bytes of the frames before the trailer
	Begin      int64 // where in the source this file begins
	TotalRaw   int64 // of this file up to here
	TotalLines int64
	Synced     int64 // bytes of this file that were on stable storage when the batch was written
	Dev, Ino   uint64
	Head       fingerprint // the source's first bytes
	Tail       fingerprint // the bytes before To
	Sum        uint32
}

// fingerprint identifies a few bytes by their hash.
type fingerprint struct {
	Len uint32
	Sum [16]byte
}

func fingerprintOf(b []byte) fingerprint {
	sum := sha256.Sum256(b)
	p := fingerprint{Len: uint32(len(b))}
	copy(p.Sum[:], sum[:])
	return p
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendTo writes the skippable frame.
func (t trailer) appendTo(dst []byte) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, skipMagic)
	dst = le.AppendUint32(dst, payloadSize)
	begin := len(dst)
	dst = append(dst, trailerMagic...)
	dst = le.AppendUint32(dst, trailerVersion)
	for _, v := range []int64{t.From, t.To, t.Raw, t.Lines, t.Frames, t.Begin, t.TotalRaw, t.TotalLines, t.Synced} {
		dst = le.AppendUint64(dst, uint64(v))
	}

	dst = le.AppendUint64(dst, t.Dev)
	dst = le.AppendUint64(dst, t.Ino)
	for _, p := range []fingerprint{t.Head, t.Tail} {
		dst = le.AppendUint32(dst, p.Len)
		dst = append(dst, p.Sum[:]...)
	}

	dst = le.AppendUint32(dst, t.Sum)
	return le.AppendUint32(dst, crc32.Checksum(dst[begin:], castagnoli))
}

// decodeTrailer reads a skippable frame of trailerSize bytes. Anything else is none of ours.
func decodeTrailer(b []byte) (t trailer, ok bool) {
	le := binary.LittleEndian
	if len(b) != trailerSize || le.Uint32(b) != skipMagic || le.Uint32(b[4:]) != payloadSize {
		return t, false
	}

	b = b[8:]
	body := b[:payloadSize-4]
	known := string(b[:4]) == trailerMagic && le.Uint32(b[4:]) == trailerVersion
	if !known || le.Uint32(b[payloadSize-4:]) != crc32.Checksum(body, castagnoli) {
		return t, false
	}

	b = b[8:]
	numbers := []*int64{
		&t.From, &t.To, &t.Raw, &t.Lines, &t.Frames, &t.Begin, &t.TotalRaw, &t.TotalLines, &t.Synced,
	}
	for _, v := range numbers {
		*v = int64(le.Uint64(b))
		if *v < 0 {
			return trailer{}, false
		}
		b = b[8:]
	}

	t.Dev, t.Ino = le.Uint64(b), le.Uint64(b[8:])
	b = b[16:]
	for _, p := range []*fingerprint{&t.Head, &t.Tail} {
		p.Len = le.Uint32(b)
		copy(p.Sum[:], b[4:])
		b = b[20:]
	}

	t.Sum = le.Uint32(b)
	return t, t.From <= t.To && t.Begin <= t.From
}

// lastTrailerMark finds the last place in b where a trailer may begin, -1 when there is none.
func lastTrailerMark(b []byte) int {
	le := binary.LittleEndian
	mark := le.AppendUint32(nil, skipMagic)
	mark = le.AppendUint32(mark, payloadSize)
	return bytes.LastIndex(b, append(mark, trailerMagic...))
}
