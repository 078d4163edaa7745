package all

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/recovery"
)

// The rows on files that grow, shrink, repeat themselves and are replaced, over every agent that writes lines.

func marshal(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only maps of strings and numbers are given
	}
	return string(data)
}

func resets(b checkpoint.Batch) bool {
	return slices.ContainsFunc(b.Entries, func(e checkpoint.Entry) bool { return e.Op == checkpoint.Reset })
}

func TestR01RepeatsOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 6)
		words = append(words, said(7))
		again := append(slices.Clone(lines[1:]), f.say(7, said(7))) // the file is appended to itself, and goes on
		whole := f.put(t, f.all(append(slices.Clone(lines), again...)...))
		wantTalk(t, f.whole(t, whole), words)
		for name, s := range map[string]*checkpoint.State{"in one run": f.folded(t, whole, nil), "in a later run": nil} {
			if s == nil {
				path := f.put(t, f.all(lines...))
				s = f.folded(t, path, nil)
				add(t, path, strings.Join(again, "\n")+"\n")
				s = f.folded(t, path, s)
			}

			var got []string
			for _, m := range s.Messages {
				got = append(got, m.Text)
			}

			if !slices.Equal(got, words) {
				t.Errorf("%s: got %q, want %q", name, got, words)
			}
			if s.Rounds > 1 { // rounds of first sight do not count; the one prompt that is new ends one at most
				t.Errorf("%s: %d rounds, want 1 at most", name, s.Rounds)
			}
		}
	})
}

// folded is a session's state after its transcript was read on, as a daemon that has just started does it.
func (f lineForm) folded(t *testing.T, path string, s *checkpoint.State) *checkpoint.State {
	t.Helper()
	if s == nil {
		s = checkpoint.NewState(checkpoint.NewKey(f.agent, "", session, ""))
	}

	if gone, err := recovery.CatchUp(
		t.Context(), s, f.reads(t, path), checkpoint.ReadOptions{Whole: true}, time.Now(),
	); gone ||
		err != nil {
		t.Fatalf("read %s: gone %v, %v", path, gone, err)
	}

	return s
}

func TestR04MissingParentOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 7)
		// where the form has parents
		lines[4] = strings.Replace(lines[4], fmt.Sprint(id(4)), "00000000-0000-4000-8000-000000000777", 1)
		wantTalk(t, f.whole(t, f.put(t, f.all(lines...))), words)
	})
}

func TestR02ParentCycleOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 6)
		lines[1] = strings.Replace(lines[1], fmt.Sprint(id(1)), fmt.Sprint(id(4)), 1) // 2 -> 4 -> 3 -> 2
		lines[5] = strings.Replace(lines[5], fmt.Sprint(id(5)), fmt.Sprint(id(6)), 1) // its own parent
		wantTalk(t, f.whole(t, f.put(t, f.all(lines...))), words)
	})
}

// R09: stamps say nothing about the order.
func TestR09StampsOutOfOrderOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 5)
		for i, at := range []string{
			"2026-01-05T10:00:03Z", "2026-01-05T10:00:01Z", "2099-01-01T00:00:00Z", "1970-01-01T00:00:00Z",
			"2026-01-05T09:00:00Z",
		} {
			lines[i] = strings.Replace(lines[i], stamp, at, 1)
		}

		path := f.put(t, f.all(lines[:3]...))
		first := readOn(t, f.reads(t, path), "", checkpoint.ReadOptions{Whole: true})
		wantTalk(t, first, words[:3])
		add(t, path, strings.Join(lines[3:], "\n")+"\n")
		wantTalk(t, readOn(t, f.reads(t, path), first.Cursor, checkpoint.ReadOptions{}), words[3:])
	})
}

func TestF01HalfLineOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 3)
		half := len(lines[2]) / 2
		path := f.put(t, f.all(lines[:2]...))
		r := f.reads(t, path)
		b := readOn(t, r, "", checkpoint.ReadOptions{Whole: true})
		add(t, path, lines[2][:half])
		if b = readOn(t, r, b.Cursor, checkpoint.ReadOptions{}); len(b.Entries) != 0 || b.Losses.Torn != int64(half) {
			t.Errorf("half a line: %q and %d torn bytes, want nothing and %d", talk(b.Entries), b.Losses.Torn, half)
		}

		add(t, path, lines[2][half:]+"\n")
		wantTalk(t, readOn(t, r, b.Cursor, checkpoint.ReadOptions{}), words[2:])
	})
}

func TestF03RewrittenToTheSameSizeOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, _ := f.records(11, 18)
		path := f.put(t, f.all(lines...))
		r := f.reads(t, path)
		before := readOn(t, r, "", checkpoint.ReadOptions{Whole: true})
		lines, words := f.records(21, 28)
		rewrite(t, path, f.all(lines...))
		for name, r := range map[string]checkpoint.Transcript{"same run": r, "later run": f.reads(t, path)} {
			after := readOn(t, r, before.Cursor, checkpoint.ReadOptions{})
			if !resets(after) {
				t.Errorf("%s: no reset", name)
			}
			wantTalk(t, after, words)
		}
	})
}

func TestF04RotationOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		n, want := 0, []string(nil)
		path := f.put(t, "")
		r := f.reads(t, path)
		var got []string
		cursor := checkpoint.Cursor("")
		look := func() {
			b := readOn(t, r, cursor, checkpoint.ReadOptions{})
			got, cursor = append(got, talk(b.Entries)...), b.Cursor
		}

		grow := func(lines int) {
			for range lines {
				n++
				want = append(want, said(n))
				add(t, path, f.say(n, said(n))+"\n")
			}
		}

		for round := range 10 {
			if f.head != "" {
				add(t, path, f.head+"\n")
			}

			grow(20)
			look()
			grow(20) // these are read after the file was renamed away
			if err := os.Rename(path, fmt.Sprintf("%s.%d", path, round)); err != nil {
				t.Fatal(err)
			}
			if round%2 == 0 {
				look()
			}
		}

		add(t, path, f.say(n+1, said(n+1))+"\n")
		look()
		if want = append(want, said(n+1)); !slices.Equal(got, want) {
			t.Errorf("%d lines read, want %d, each once and in order", len(got), len(want))
		}
	})
}

// F11, F12: an empty new file elsewhere unbinds nothing; a file that shrank is read anew and what is known does not
// come again.
func TestF11AnotherFileOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, words := f.records(1, 4)
		path := f.put(t, f.all(lines[:3]...))
		r := f.reads(t, path)
		b := readOn(t, r, "", checkpoint.ReadOptions{Whole: true})
		rewrite(
			t, filepath.Join(filepath.Dir(path), strings.ReplaceAll(filepath.Base(path), "1111", "2222")),
			f.head+"\n",
		)

		add(t, path, lines[3]+"\n")
		wantTalk(t, readOn(t, r, b.Cursor, checkpoint.ReadOptions{}), words[3:])
	})
}

func TestF12ShrunkFileOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		lines, _ := f.records(1, 40)
		path := f.put(t, f.all(lines...))
		r := f.reads(t, path)
		before := readOn(t, r, "", checkpoint.ReadOptions{Whole: true})
		rewrite(t, path, f.all(f.say(41, said(41))))
		for name, r := range map[string]checkpoint.Transcript{"same run": r, "later run": f.reads(t, path)} {
			after := readOn(t, r, before.Cursor, checkpoint.ReadOptions{})
			if !resets(after) {
				t.Errorf("%s: no reset", name)
			}

			wantTalk(t, after, []string{said(41)})
			if i := slices.IndexFunc(
				after.Entries, func(e checkpoint.Entry) bool { return e.Op == checkpoint.Retract },
			); i >= 0 {
				t.Errorf("%s: entry %d takes back what the richer file held", name, i)
			}
		}
	})
}

func TestM07OneHugeRecordOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		huge := "BEGIN" + strings.Repeat("界", 1<<20) + "END"
		path := f.put(t, f.all(f.say(1, "remember the first"), f.say(2, huge), f.say(3, "remember the second")))
		b := readOn(t, f.reads(t, path), "", checkpoint.ReadOptions{})
		got := talk(b.Entries)
		if len(got) != 3 || got[0] != "remember the first" || got[2] != "remember the second" {
			t.Fatalf("got %d records, want 3 with both remember lines", len(got))
		}
		if !strings.HasPrefix(got[1], "BEGIN") || !strings.HasSuffix(got[1], "END") ||
			len(got[1]) > checkpoint.CutText {
			t.Errorf("%d bytes, want head and tail in %d", len(got[1]), checkpoint.CutText)
		}
	})
}

// P01: of what project a file is comes from its content; the folder that it lies in says nothing.
func TestP01ProjectOfEveryAgent(t *testing.T) {
	everyLineForm(t, func(t *testing.T, f lineForm) {
		if f.agent == "gemini" {
			t.Skip("its lines name no project: that stands in a file beside them")
		}

		lines, _ := f.records(1, 2)
		text := strings.ReplaceAll(f.all(lines...), `"/proj"`, `"/w/외주/app"`)
		for _, e := range f.whole(t, f.put(t, text)).Entries {
			if e.Workspace == "/w/외주/app" {
				return
			}
		}

		a, _ := ByName(agent.Host{}, f.agent)
		found, err := a.Locate(t.Context(), agent.Query{Workspace: "/w/외주/app"})
		t.Errorf("no entry names the project; found %v, %v", found, err)
	})
}
