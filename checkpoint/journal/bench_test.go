package journal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"belay/internal/vfs"
)

// BenchmarkAck measures Append until Wait returns, for a record of 250 bytes, against the yardstick of the same run:
// one bare write of as many bytes and its sync on a file that grows. x-sync is the ratio of the medians.
//
//	go test -run '^$' -bench Ack -benchtime 2000x ./checkpoint/journal
func BenchmarkAck(b *testing.B) {
	for _, clients := range []int{1, 8, 64} {
		for _, ahead := range []int{-1, 0} {
			name := fmt.Sprintf("clients=%d/ahead=%v", clients, ahead == 0)
			b.Run(name, func(b *testing.B) { benchmarkAck(b, clients, ahead) })
		}
	}
}

func benchmarkAck(b *testing.B, clients, ahead int) {
	dir := b.TempDir()
	j, err := Open(vfs.OS{}, filepath.Join(dir, "journal"), Options{Ahead: ahead})
	if err != nil {
		b.Fatal(err)
	}

	stop := run(j)
	p := []byte(fmt.Sprintf(`{"pad":%240d}`, 1))
	one := func() {
		seq, err := j.Append(b.Context(), p)
		if err == nil {
			err = j.Wait(context.Background(), seq)
		}
		if err != nil {
			b.Error(err)
		}
	}

	one() // the first makes the folder and the segment
	bare := bareSync(b, filepath.Join(dir, "bare"), len(p))
	took := make([][]time.Duration, clients)
	b.ResetTimer()
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for range b.N / clients {
				start := time.Now()
				one()
				took[c] = append(took[c], time.Since(start))
			}
		})
	}

	wg.Wait()
	b.StopTimer()
	if err := stop(); err != nil {
		b.Fatal(err)
	}

	all := slices.Concat(took...)
	if len(all) == 0 {
		return
	}

	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64(bare.Microseconds()), "bare-us")
	b.ReportMetric(float64(all[len(all)/2])/float64(bare), "x-sync")
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "records/s")
}

// bareSync is the median of 200 appends with a sync each.
func bareSync(b *testing.B, name string, size int) time.Duration {
	f, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}

	defer f.Close()
	var took []time.Duration
	for range 200 {
		start := time.Now()
		if _, err := f.Write(make([]byte, size)); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}

		took = append(took, time.Since(start))
	}

	slices.Sort(took)
	return took[len(took)/2]
}

// BenchmarkReplay reads a journal of 50,000 records.
func BenchmarkReplay(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "journal")
	j, err := Open(vfs.OS{}, dir, Options{})
	if err != nil {
		b.Fatal(err)
	}

	stop := run(j)
	p := []byte(fmt.Sprintf(`{"pad":%240d}`, 1))
	for range 50_000 {
		if _, err := j.Append(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}

	if err := stop(); err != nil {
		b.Fatal(err)
	}

	b.ResetTimer()
	for b.Loop() {
		r, err := Scan(vfs.OS{}, dir, 0, func(uint64, []byte) error { return nil })
		if err != nil || r.Records != 50_000 {
			b.Fatalf("%+v, %v", r, err)
		}
	}

	b.ReportMetric(float64(b.N)*50_000/b.Elapsed().Seconds(), "records/s")
}
