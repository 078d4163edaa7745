package mirror

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"belay/internal/vfs"
)

// made is 32 MB of lines with no secrets.
func made() []byte {
	var text bytes.Buffer
	for i := 0; text.Len() < 32<<20; i++ {
		fmt.Fprintf(
			&text,
			`{"type":"assistant","uuid":"5f0c1a9e-2f7d-4c7e-%04x-1b1f6f3a2c44","timestamp":"2026-01-05T10:00:%02d.000Z","message":{"role":"assistant",`+
				`"content":[{"type":"text","text":"Step %d: read the parser, pass the token list on, run the tests.\nfunc f%d(a int) error {\n\treturn nil // see %x\n}"}],`+
				`"usage":{"input_tokens":%d,"output_tokens":%d}}}`+"\n",
			i%65536,
			i%60,
			i,
			i*7,
			i*i*31,
			i*3,
			i*5,
		)
	}

	return text.Bytes()
}

// corpus is 32 MB of transcripts of real agents, which are no part of the repository.
func corpus(b *testing.B) []byte {
	paths, err := filepath.Glob("../../../../shared/transcripts/*/public/*.jsonl")
	if err != nil || len(paths) == 0 {
		b.Skip("no transcripts beside the repository")
	}

	var text []byte
	for len(text) < 32<<20 {
		for _, p := range paths {
			data, err := os.ReadFile(p)
			if err != nil {
				b.Fatal(err)
			}
			text = append(text, data...)
		}
	}

	return text
}

func BenchmarkMirror(b *testing.B)     { benchMirror(b, made()) }
func BenchmarkMirrorReal(b *testing.B) { benchMirror(b, corpus(b)) }

func benchMirror(b *testing.B, text []byte) { benchMirrorWith(b, text, nil) }

func benchMirrorWith(b *testing.B, text []byte, key *Key) {
	src := filepath.Join(b.TempDir(), "s.jsonl")
	if err := os.WriteFile(src, text, 0o600); err != nil {
		b.Fatal(err)
	}

	b.SetBytes(int64(len(text)))
	for b.Loop() {
		m, err := Open(vfs.OS{}, b.TempDir(), Options{FirstSight: 1 << 40, Key: key})
		if err != nil {
			b.Fatal(err)
		}

		for done := false; !done; {
			p, err := m.Sync(context.Background(), src)
			if err != nil {
				b.Fatal(err)
			}
			done = p.Done
		}

		b.ReportMetric(float64(m.Status().FileBytes)/float64(len(text)), "ratio")
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIdleSync(b *testing.B) {
	src := filepath.Join(b.TempDir(), "s.jsonl")
	if err := os.WriteFile(src, []byte(lines(0, 100, 100)), 0o600); err != nil {
		b.Fatal(err)
	}

	m, err := Open(vfs.OS{}, b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}

	defer m.Close()
	for b.Loop() {
		if _, err := m.Sync(context.Background(), src); err != nil {
			b.Fatal(err)
		}
	}
}
