package pi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
)

func TestFirstSight(t *testing.T) {
	wide := func(lines []string) []string { // too large to be read as a whole
		for i, l := range lines {
			lines[i] = strings.TrimSuffix(l, "}") + fmt.Sprintf(`,"pad":%q}`, strings.Repeat("x", 2000))
		}
		return lines
	}

	long := wide(chat(0, 200)) // 100 prompts
	compacted := slices.Concat(
		long,
		[]string{
			`{"type":"compaction","id":"k","parentId":"id00199","summary":"so far"}`,
			said("after", "k", "user", "after"),
		},
	)

	reset := slices.Concat(
		long, []string{`{"type":"reset","id":"k","parentId":"id00199"}`, said("after", "k", "user", "after")},
	)

	fat := slices.Clone(long)
	for i := range 80 { // results of 100 KB each behind the last prompt
		fat = append(
			fat,
			fmt.Sprintf(
				`{"type":"message","id":"r%d","message":{"role":"toolResult","toolCallId":"c%d","content":%q}}`,
				i, i, strings.Repeat("x", 100<<10),
			),
		)
	}

	for _, c := range []struct {
		name    string
		lines   []string
		want    []string // first and last texts
		count   int      // of entries with a text
		skipped bool
	}{
		{"short", chat(0, 10), []string{"words 00000", "words 00009"}, 10, false},
		{"twenty prompts", long, []string{"words 00000", "words 00160", "words 00199"}, 1 + 40, true},
		{"compaction", compacted, []string{"words 00000", "words 00199", "so far", "after"}, 4, true},
		{"reset", reset, []string{"words 00000", "after"}, 2, true},
		{"4 MB", fat, []string{"words 00000"}, 1, true},
		{"header alone", chat(0, 0), nil, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.lines...)
			tr := open(t, path)
			b := readAll(t, tr, "", readOptions)
			got := standing(b.Entries, checkpoint.EntryUser, checkpoint.EntryAssistant, checkpoint.EntryCompaction)
			if len(got) != c.count || !b.First || (b.Skipped > 0) != c.skipped {
				t.Fatalf(
					"%d texts, first %v, %d bytes skipped; want %d, true, skipped %v: %q", len(got), b.First,
					b.Skipped, c.count, c.skipped, got,
				)
			}

			at := 0
			for _, w := range c.want {
				i := slices.Index(got[at:], w)
				if i < 0 {
					t.Fatalf("no %q after place %d of %q", w, at, got)
				}
				at += i
			}

			if len(c.want) > 1 &&
				(got[0] != c.want[0] || got[1] != c.want[1] && c.skipped || got[len(got)-1] != c.want[len(c.want)-1]) {
				t.Errorf("got %q, want it to begin and end as %q", got, c.want)
			}
			if b.Entries[0].Workspace != "/proj/demo" {
				t.Errorf("workspace %q, want /proj/demo", b.Entries[0].Workspace)
			}

			add(t, path, said("next", "", "user", "next")+"\n")
			if got := standing(readAll(t, tr, b.Cursor, readOptions).Entries, talk...); !slices.Contains(got, "next") {
				t.Errorf("after it: got %q, want what was added", got)
			}
		})
	}
}

// What does not fit in one Read comes in pages that together are the whole.
func TestPages(t *testing.T) {
	path := write(t, chat(0, 12000)...)
	tr := open(t, path)
	var cursor checkpoint.Cursor
	var entries []checkpoint.Entry
	pages := 0
	for {
		b, err := tr.Read(context.Background(), cursor, checkpoint.ReadOptions{Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Entries) > 4010 || b.First != (pages == 0) {
			t.Errorf("page %d: %d entries, first %v", pages, len(b.Entries), b.First)
		}

		entries = append(entries, b.Entries...)
		pages++
		if cursor = b.Cursor; !b.More {
			break
		}
	}

	if got := len(standing(entries, talk...)); got != 12000 || pages < 4 {
		t.Errorf("%d texts in %d pages, want 12000 in 4 or more", got, pages)
	}
}

// A caller that could not keep a batch asks again from the older cursor and gets it again.
func TestOlderCursorGivesTheSameAgain(t *testing.T) {
	path := write(t, chat(0, 2)...)
	tr := open(t, path)
	c := readAll(t, tr, "", readOptions).Cursor
	add(t, path, strings.Join(chat(2, 2)[1:], "\n")+"\n")
	first := readable(readAll(t, tr, c, readOptions).Entries)
	again := readable(readAll(t, tr, c, readOptions).Entries)
	if !slices.Equal(first, again) || len(first) == 0 {
		t.Errorf("got %q, then %q", first, again)
	}

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if b, err := tr.Read(ctx, c, readOptions); !errors.Is(err, context.Canceled) || b.Cursor != c {
		t.Errorf("cancelled: got %v and cursor %q, want the same cursor", err, b.Cursor)
	}
	if got := readable(readAll(t, tr, c, readOptions).Entries); !slices.Equal(first, got) {
		t.Errorf("after a cancelled read: got %q, want %q", got, first)
	}
	if b := readAll(t, tr, "not a cursor", readOptions); !b.First {
		t.Errorf("a cursor of nobody's: First is not set")
	}
}

func TestGoneFile(t *testing.T) {
	path := write(t, chat(0, 2)...)
	tr := open(t, path)
	c := readAll(t, tr, "", readOptions).Cursor
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if b, err := tr.Read(context.Background(), c, readOptions); !errors.Is(err, fs.ErrNotExist) || b.Cursor != c {
		t.Errorf("got %v and cursor %q, want fs.ErrNotExist and the same cursor", err, b.Cursor)
	}
}

// large writes a transcript of about size bytes in the shape of real ones: long and short words, thinking, calls,
// outputs.
func large(tb testing.TB, size int64) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "large.jsonl")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}

	defer f.Close()
	var b strings.Builder
	b.WriteString(headLine + "\n")
	parent, written := "null", int64(0)
	for i := 0; written < size; i++ {
		id := fmt.Sprintf("%08x", i)
		message := ""
		stamp := 1767607200000 + i*1000
		switch i % 6 {
		case 0:
			message = fmt.Sprintf(
				`{"role":"user","content":[{"type":"text","text":%q}],"timestamp":%d}`,
				strings.Repeat("please look at this ", 5), stamp,
			)

		case 1, 3:
			message = fmt.Sprintf(
				`{"role":"assistant","content":[{"type":"thinking","thinking":%q},{"type":"text","text":%q},{"type":"toolCall","id":"call_%d","name":"bash","arguments":{"command":%q}}],"usage":{"input":1200,"output":40,"cost":{"input":0.001}},"stopReason":"toolUse","timestamp":%d}`,
				strings.Repeat(
					"想 ", 200,
				),
				strings.Repeat("words \"and\" more\n", 10),
				i,
				strings.Repeat("echo \"x\" && ", 20),
				stamp,
			)

		case 2, 4:
			message = fmt.Sprintf(
				`{"role":"toolResult","toolCallId":"call_%d","toolName":"bash","content":[{"type":"text","text":%q}],"isError":false,"timestamp":%d}`,
				i-1, strings.Repeat("\tline of output: \"value\"\n", 60), stamp,
			)

		case 5:
			message = fmt.Sprintf(
				`{"role":"assistant","content":[{"type":"text","text":%q}],"stopReason":"stop","timestamp":%d}`,
				strings.Repeat("结果如下。 ", 60), stamp,
			)
		}

		fmt.Fprintf(
			&b,
			`{"type":"message","id":"%s","parentId":%s,"timestamp":"2026-01-05T10:00:07.000Z","message":%s}`+"\n",
			id, parent, message,
		)

		parent = `"` + id + `"`
		if b.Len() > 1<<20 {
			written += int64(b.Len())
			if _, err := io.WriteString(f, b.String()); err != nil {
				tb.Fatal(err)
			}
			b.Reset()
		}
	}

	return path
}

func BenchmarkWholeRead(b *testing.B) {
	path := large(b, 100<<20)
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}

	b.SetBytes(info.Size())
	b.ReportAllocs()
	for b.Loop() {
		tr := OpenTranscript(sourceOf(path))
		readAll(b, tr, "", checkpoint.ReadOptions{Whole: true})
		tr.Close()
	}

	b.StopTimer()
	start := time.Now()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}

	defer f.Close()
	buf := make([]byte, 256<<10)
	for {
		if _, err := f.Read(buf); err != nil {
			break
		}
	}

	b.ReportMetric(float64(info.Size())/1e6/time.Since(start).Seconds(), "read()MB/s")
}

func BenchmarkFirstSight(b *testing.B) {
	for _, mb := range []int64{1, 10, 100} {
		b.Run(fmt.Sprintf("%dMB", mb), func(b *testing.B) {
			path := large(b, mb<<20)
			for b.Loop() {
				tr := OpenTranscript(sourceOf(path))
				if _, err := tr.Read(context.Background(), "", readOptions); err != nil {
					b.Fatal(err)
				}
				tr.Close()
			}
		})
	}
}

// First sight must not read more of a larger file.
func TestM02FirstSightIsFlat(t *testing.T) {
	small, big := large(t, 1<<20), large(t, 8<<20)
	took := func(path string) time.Duration {
		best := time.Hour
		for range 8 {
			start := time.Now()
			tr := OpenTranscript(sourceOf(path))
			if _, err := tr.Read(context.Background(), "", readOptions); err != nil {
				t.Fatal(err)
			}
			best = min(best, time.Since(start))
			tr.Close()
		}

		return best
	}

	if s, b := took(small), took(big); b > 3*s+2*time.Millisecond {
		t.Errorf("8 MB took %v, 1 MB %v: want at most three times", b, s)
	}
}
