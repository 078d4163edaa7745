package redact

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// corpusDir holds transcripts of real agents. It is not part of the repository.
const corpusDir = "../../../shared/transcripts"

func corpus(t testing.TB) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(corpusDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".jsonl") {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = data
		return err
	})
	if err != nil || len(files) == 0 {
		t.Skipf("no transcripts at %s beside the repository: %v", corpusDir, err)
	}
	return files
}

// wantCorpusHits is the number of marks in the corpus when each hit was last judged by hand (with -v they are listed).
const wantCorpusHits = 0

func TestCorpusFalseAlarms(t *testing.T) {
	hits, lines := 0, 0
	for path, data := range corpus(t) {
		for i, line := range bytes.Split(data, []byte("\n")) {
			lines++
			out := Bytes(nil, line)
			if json.Valid(line) && !json.Valid(out) {
				t.Errorf("%s:%d: no JSON any more", path, i+1)
			}
			if bytes.Equal(out, line) {
				continue
			}
			tx := text{s: string(line), json: looksJSON(line)}
			for _, sp := range tx.find() {
				hits++
				before := tx.s[max(0, sp.start-60):sp.start]
				t.Logf("%s:%d: %s: %q | %q", path, i+1, sp.kind, before, tx.s[sp.start:min(sp.end, sp.start+80)])
			}
		}
	}
	t.Logf("%d hits in %d lines", hits, lines)
	if hits > wantCorpusHits {
		t.Errorf("got %d hits, want at most the %d that were judged", hits, wantCorpusHits)
	}
}

// benchLines makes lines like those of a transcript: prose, code, usage numbers, ids, long tool output.
func benchLines() []byte {
	var b bytes.Buffer
	for b.Len() < 4<<20 {
		b.WriteString(`{"type":"assistant","uuid":"5f0c1a9e-2f7d-4c7e-9d0e-1b1f6f3a2c44","parentUuid":"0b5e1c1a-1111-4c7e-9d0e-1b1f6f3a2c44",` +
			`"sessionId":"11111111-1111-4111-8111-111111111111","cwd":"/home/user/proj","timestamp":"2026-01-05T10:00:07.000Z","message":{"id":"msg_01",` +
			`"role":"assistant","content":[{"type":"text","text":"I'll read the parser first, then pass the token list to the tokenizer and run the tests.\nThe error comes from the password field."}],` +
			`"usage":{"input_tokens":3,"cache_creation_input_tokens":1204,"cache_read_input_tokens":18210,"output_tokens":211}}}` + "\n")
		b.WriteString(`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01","content":"`)
		for range 20 {
			b.WriteString(`     1→package main\n     2→\n     3→func (p *parser) next() token {\n     4→\tif p.tok == nil { return p.err(\"unexpected end\") }\n     5→\treturn p.tok // see https://go.dev/ref/spec\n`)
		}
		b.WriteString(`"}]}}` + "\n")
	}
	return b.Bytes()
}

func benchBytes(b *testing.B, data []byte) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	b.SetBytes(int64(len(data)))
	var dst []byte
	for b.Loop() {
		for _, line := range lines {
			dst = Bytes(dst[:0], line)
		}
	}
}

func BenchmarkBytes(b *testing.B) { benchBytes(b, benchLines()) }

func BenchmarkBytesCorpus(b *testing.B) {
	var all []byte
	for _, data := range corpus(b) {
		all = append(all, data...)
	}
	benchBytes(b, all)
}

func BenchmarkText(b *testing.B) {
	s := string(benchLines())
	b.SetBytes(int64(len(s)))
	for b.Loop() {
		Text(s)
	}
}

func BenchmarkCutHuge(b *testing.B) {
	s := strings.Repeat("some words and a number 12345\n", 500_000) // 15 MB
	for b.Loop() {
		Cut(s, 4096)
	}
}
