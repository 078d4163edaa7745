package openclaw

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"belay/checkpoint"
	"belay/internal/agent"
)

// BenchmarkRead measures what a look costs in a database with a long session: first sight, and the next few rows.
func BenchmarkRead(b *testing.B) {
	s := newStore(b, filepath.Join(b.TempDir(), databaseName), schema23)
	s.exec("begin")
	s.add("s1", 0, header, false)
	pad := strings.Repeat("x", 1000)
	for i := 1; i <= 30000; i++ {
		s.add(
			"s1",
			i,
			fmt.Sprintf(
				`{"type":"message","id":"m%d","parentId":"m%d","message":{"role":"user","content":"question %d %s","timestamp":%d}}`,
				i, i-1, i, pad, i,
			),
			false,
		)
	}

	s.exec("commit")
	b.Run("first sight of 30 MB", func(b *testing.B) {
		for b.Loop() {
			r := New(agent.Host{}).Open(agent.Source{Path: s.path, Session: "s1"})
			if _, err := r.Read(b.Context(), "", checkpoint.ReadOptions{}); err != nil {
				b.Fatal(err)
			}
			r.Close()
		}
	})

	b.Run("nothing new", func(b *testing.B) {
		r := New(agent.Host{}).Open(agent.Source{Path: s.path, Session: "s1"})
		defer r.Close()
		first, err := r.Read(b.Context(), "", checkpoint.ReadOptions{})
		if err != nil {
			b.Fatal(err)
		}

		for first.More {
			if first, err = r.Read(b.Context(), first.Cursor, checkpoint.ReadOptions{}); err != nil {
				b.Fatal(err)
			}
		}

		for b.Loop() {
			if _, err := r.Read(b.Context(), first.Cursor, checkpoint.ReadOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
