package claude

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/transcript/lines"
)

func benchFile(b *testing.B, size int) string {
	content, _ := made(size)
	path := filepath.Join(b.TempDir(), sessionOne+".jsonl")
	write(b, path, content)
	return path
}

// BenchmarkScan compares ways over one file of 100 MB with reading it and doing nothing.
func BenchmarkScan(b *testing.B) {
	path := benchFile(b, 100<<20)
	scan := func(b *testing.B, fn func(lines.Line) bool) {
		f := lines.Open(path)
		defer f.Close()
		if _, err := f.Read(lines.Pos{}, lines.Options{Max: 1 << 40}, fn); err != nil {
			b.Fatal(err)
		}
	}

	for name, way := range map[string]func(b *testing.B){
		"read": func(b *testing.B) {
			f, err := os.Open(path)
			if err != nil {
				b.Fatal(err)
			}

			defer f.Close()
			buf := make([]byte, 256<<10)
			for {
				if _, err := f.Read(buf); err == io.EOF {
					return
				} else if err != nil {
					b.Fatal(err)
				}
			}
		},
		"lines":       func(b *testing.B) { scan(b, func(lines.Line) bool { return true }) },
		"first-stage": func(b *testing.B) { scan(b, func(l lines.Line) bool { matters(l.Data); return true }) },
		"entries":     func(b *testing.B) { readAll(b, path, whole) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(100 << 20)
			n, before := 0, cpuTime(b)
			for b.Loop() {
				way(b)
				n++
			}

			// Other work on the machine makes the wall clock useless for a ratio.
			b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(n), "cpu-ms/op")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func readAll(b *testing.B, path string, opt checkpoint.ReadOptions) {
	r := openTranscript(agent.Source{Path: path, Session: sessionOne})
	defer r.Close()
	for cur := checkpoint.Cursor(""); ; {
		got, err := r.Read(context.Background(), cur, opt)
		if err != nil {
			b.Fatal(err)
		}
		if cur = got.Cursor; !got.More {
			return
		}
	}
}

// BenchmarkFirstSight must not grow with the file.
func BenchmarkFirstSight(b *testing.B) {
	for _, mb := range []int{1, 10, 100} {
		path := benchFile(b, mb<<20)
		b.Run(fmt.Sprintf("%dMB", mb), func(b *testing.B) {
			for b.Loop() {
				readAll(b, path, checkpoint.ReadOptions{})
			}
		})

		b.Run(fmt.Sprintf("last-5-answers/%dMB", mb), func(b *testing.B) {
			for b.Loop() {
				f := lines.Open(path)
				size, err := f.Size()
				if err != nil {
					b.Fatal(err)
				}

				n, said := 0, format(agent.Source{Session: sessionOne})
				if err := f.Backward(size, 64<<20, func(l lines.Line) bool {
					for _, e := range said.Entries(b.Context(), state{}, l) {
						if e.Kind == checkpoint.EntryAssistant {
							n++
						}
					}
					return n < 5
				}); err != nil || n < 5 {
					b.Fatal(n, err)
				}

				f.Close()
			}
		})
	}
}
