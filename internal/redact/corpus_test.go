package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// corpusDirs hold what real agents wrote: in the repository, and beside it where that is there.
var corpusDirs = []string{"../agent", "../../../shared"}

// planted are files whose secrets are meant to be found.
func planted(path string) bool {
	return strings.Contains(path, "X01-") || strings.Contains(path, "X02-") || strings.Contains(path, "/fuzz/") ||
		strings.HasSuffix(path, "_test.go")
}

func corpus(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		ext := filepath.Ext(path)
		if err != nil || !d.Type().IsRegular() || planted(path) ||
			!slices.Contains([]string{".jsonl", ".json", ".md", ".txt", ".go", ".js", ".ts"}, ext) {
			return err
		}

		data, err := os.ReadFile(path)
		files[path] = data
		return err
	})

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skipf("no files of agents at %s", dir)
	}

	return files
}

// TestCorpusFalseAlarms: no file of an agent has a mark. Each hit is listed: either it is a secret that somebody should
// know of, or a rule is wrong.
func TestCorpusFalseAlarms(t *testing.T) {
	for _, dir := range corpusDirs {
		t.Run(dir, func(t *testing.T) {
			hits, size := 0, 0
			for path, data := range corpus(t, dir) {
				n := marksIn(t, path, data)
				if n > 0 {
					t.Errorf("%s: got %d marks, want none", path, n)
				}
				hits += n
				size += len(data)
			}

			t.Logf("%d hits in %.1f MB", hits, float64(size)/1e6)
		})
	}
}

// marksIn counts and lists the marks of a file, and says whether its JSON stays JSON.
func marksIn(t *testing.T, path string, data []byte) (n int) {
	for i, line := range bytes.Split(data, []byte("\n")) {
		out := Bytes(nil, line)
		if json.Valid(line) && !json.Valid(out) {
			t.Errorf("%s:%d: no JSON any more", path, i+1)
		}
		if bytes.Equal(out, line) {
			continue
		}

		tx := text{s: string(line), json: looksJSON(line)}
		for _, sp := range tx.spans() {
			n++
			t.Logf(
				"%s:%d: %s: %q | %q", path, i+1, sp.kind, tx.s[max(0, sp.start-60):sp.start],
				tx.s[sp.start:min(sp.end, sp.start+80)],
			)
		}
	}
	return n
}

// benchLines makes lines like those of a transcript: prose, code, usage numbers, ids, long tool output.
func benchLines() []byte {
	var b bytes.Buffer
	for b.Len() < 4<<20 {
		b.WriteString(
			`{"type":"assistant","uuid":"5f0c1a9e-2f7d-4c7e-9d0e-1b1f6f3a2c44","parentUuid":"0b5e1c1a-1111-4c7e-9d0e-1b1f6f3a2c44",` +
				`"sessionId":"11111111-1111-4111-8111-111111111111","cwd":"/home/user/proj","timestamp":"2026-01-05T10:00:07.000Z","message":{"id":"msg_01",` +
				`"role":"assistant","content":[{"type":"text","text":"I'll read the parser first, then pass the token list to the tokenizer and run the tests.\nThe error comes from the password field."}],` +
				`"usage":{"input_tokens":3,"cache_creation_input_tokens":1204,"cache_read_input_tokens":18210,"output_tokens":211}}}` + "\n",
		)

		b.WriteString(
			`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_01","content":"`,
		)
		for range 20 {
			b.WriteString(
				`     1→package main\n     2→\n     3→func (p *parser) next() token {\n     4→\tif p.tok == nil { return p.err(\"unexpected end\") }\n     5→\treturn p.tok // see https://go.dev/ref/spec\n`,
			)
		}

		b.WriteString(`"}]}}` + "\n")
	}

	return b.Bytes()
}

func benchBytes(b *testing.B, data []byte) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	b.SetBytes(int64(len(data)))
	var dst []byte
	start := used(b)
	for b.Loop() {
		for _, line := range lines {
			dst = Bytes(dst[:0], line)
		}
	}

	perCore(b, len(data), used(b)-start)
}

// perCore tells the speed by the processor's time: on a machine that does other work the clock says nothing.
func perCore(b *testing.B, size int, took time.Duration) {
	b.ReportMetric(float64(size)*float64(b.N)/1e6/took.Seconds(), "MB/core-s")
}

func BenchmarkBytes(b *testing.B) { benchBytes(b, benchLines()) }

func BenchmarkBytesCorpus(b *testing.B) {
	var all []byte
	for _, data := range corpus(b, "../../../shared") {
		all = append(all, data...)
	}
	benchBytes(b, all)
}

func BenchmarkText(b *testing.B) {
	s := string(benchLines())
	b.SetBytes(int64(len(s)))
	start := used(b)
	for b.Loop() {
		Text(s)
	}
	perCore(b, len(s), used(b)-start)
}

func BenchmarkCutHuge(b *testing.B) {
	s := strings.Repeat("some words and a number 12345\n", 500_000) // 15 MB
	for b.Loop() {
		Cut(s, 4096)
	}
}
