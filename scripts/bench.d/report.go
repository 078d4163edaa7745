//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// sample is what the rounds of one variant gave.
type sample []float64

func (s *sample) add(x ...float64) { *s = append(*s, x...) }

// at gives a quantile; 0 when there is none.
func (s sample) at(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func (s sample) median() float64 { return s.at(0.5) }

// row is one line of the report.
type row struct {
	Section string  `json:"section"`
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	Median  float64 `json:"median"`
	Min     float64 `json:"min"`
	P99     float64 `json:"p99"`
	Rounds  int     `json:"rounds"`
	Against string  `json:"against,omitempty"` // the yardstick of Ratio
	Ratio   float64 `json:"ratio,omitempty"`   // of the medians
	Goal    string  `json:"goal,omitempty"`
	Met     *bool   `json:"met,omitempty"`
}

// report collects the rows.
type report struct {
	Machine map[string]string `json:"machine"`
	Quick   bool              `json:"quick"`
	Skipped string            `json:"skipped,omitempty"` // why rows with C yardsticks are absent
	Seconds float64           `json:"seconds"`
	Rows    []*row            `json:"rows"`
	current string
}

func (r *report) section(name string) { r.current = name }

// add makes a row of a sample.
func (r *report) add(name, unit string, s sample) *row {
	w := &row{
		Section: r.current,
		Name:    name,
		Unit:    unit,
		Median:  s.median(),
		Min:     s.at(0),
		P99:     s.at(0.99),
		Rounds:  len(s),
	}

	r.Rows = append(r.Rows, w)
	return w
}

// over sets the ratio to a yardstick. Without one (no C compiler) there is none, and no goal is judged.
func (w *row) over(name string, s sample) *row {
	if m := s.median(); m > 0 {
		w.Against, w.Ratio = name, w.Median/m
	}
	return w
}

// most and least judge the ratio.
func (w *row) most(id string, x float64) *row {
	return w.judge(fmt.Sprintf("%s: at most %gx", id, x), w.Ratio <= x)
}
func (w *row) least(id string, x float64) *row {
	return w.judge(fmt.Sprintf("%s: at least %gx", id, x), w.Ratio >= x)
}

func (w *row) judge(goal string, met bool) *row {
	w.Goal = goal
	if w.Ratio > 0 {
		w.Met = &met
	}
	return w
}

// worth judges the value itself.
func (w *row) worth(goal string, met bool) *row {
	w.Goal, w.Met = goal, &met
	return w
}

func (r *report) json(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *report) print(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(
		&text, "%s, %s CPUs, %s, %s; %.0f s", r.Machine["os"], r.Machine["cpus"], r.Machine["go"],
		r.Machine["disk"], r.Seconds,
	)

	if r.Skipped != "" {
		fmt.Fprintf(&text, "; without C yardsticks: %s", r.Skipped)
	}

	text.WriteByte('\n')
	section, missed := "", 0
	for _, w := range r.Rows {
		if w.Section != section {
			section = w.Section
			fmt.Fprintf(
				&text, "\n%-50s %10s %10s %10s %-6s %s\n", strings.ToUpper(section), "median", "min", "p99", "",
				"ratio",
			)
		}

		line := fmt.Sprintf("%-50s %10s %10s %10s %-6s", w.Name, number(w.Median), number(w.Min), number(w.P99), w.Unit)
		if w.Ratio > 0 {
			line += fmt.Sprintf(" %.2fx %s", w.Ratio, w.Against)
		}

		if w.Goal != "" {
			verdict := "not judged"
			if w.Met != nil {
				verdict = map[bool]string{true: "met", false: "MISSED"}[*w.Met]
				if !*w.Met {
					missed++
				}
			}

			line += fmt.Sprintf("  [%s: %s]", w.Goal, verdict)
		}

		text.WriteString(strings.TrimRight(line, " ") + "\n")
	}

	fmt.Fprintf(&text, "\n%d goals missed\n", missed)
	_, err := io.WriteString(out, text.String())
	return err
}

func number(x float64) string {
	switch {
	case x >= 1000:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func machine(dir string) map[string]string {
	m := map[string]string{
		"os":   runtime.GOOS + "/" + runtime.GOARCH,
		"cpus": fmt.Sprint(runtime.NumCPU()),
		"go":   runtime.Version(),
		"disk": fileSystem(dir),
	}
	return m
}

// fileSystem says on what the files lie: a sync on a tmpfs costs nothing and proves nothing.
func fileSystem(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return "unknown file system"
	}

	names := map[int64]string{
		0xef53:     "ext4",
		0x01021994: "tmpfs (syncs are free: use --dir)",
		0x58465342: "xfs",
		0x9123683e: "btrfs",
		0x794c7630: "overlayfs",
	}

	if name, ok := names[int64(st.Type)]; ok { //nolint:unconvert // its type differs between systems
		return name
	}

	return fmt.Sprintf("file system %#x", st.Type)
}

// progress is a bar on a terminal and a line for each measurement elsewhere.
type progress struct {
	out  io.Writer
	term bool
	bar  *progressbar.ProgressBar
}

func newProgress(out io.Writer) *progress {
	f, ok := out.(*os.File)
	return &progress{out: out, term: ok && term.IsTerminal(int(f.Fd()))}
}

func (p *progress) begin(what string, steps int) {
	p.done()
	if !p.term {
		fmt.Fprintf(p.out, "%s %s\n", time.Now().Format("15:04:05"), what)
		return
	}

	p.bar = progressbar.NewOptions(
		steps,
		progressbar.OptionSetWriter(p.out),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(
			30,
		),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

func (p *progress) step() {
	if p.bar != nil {
		_ = p.bar.Add(1) // a broken terminal is no reason to stop measuring
	}
}

func (p *progress) done() {
	if p.bar != nil {
		_ = p.bar.Finish() // as above
		p.bar = nil
	}
}
