package index

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"belay/checkpoint"
)

// sameHits fails unless a search with the file gives what one in memory gives.
func (f folder) sameHits(t testing.TB, when string, words ...string) {
	t.Helper()
	q := Query{Words: words}
	got, err := Of(f.Dir).Search(t.Context(), q)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}

	x := Of(f.Dir)
	v, err := x.view(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	db, err := inMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	match, err := expression(words)
	if err != nil {
		t.Fatal(err)
	}

	err = x.gather(t.Context(), db, v, true)
	if err == nil {
		_, err = x.fold(t.Context(), v)
	}
	if err != nil {
		t.Fatal(err)
	}

	want, err := x.find(t.Context(), db, v, q, match)
	if err = errors.Join(err, db.close()); err != nil {
		t.Fatal(err)
	}

	for _, list := range [][]Hit{want, got} {
		for i := range list {
			list[i].AtRisk.Seconds = 0 // each took its own time
		}
	}

	if diff := differ(want, got); diff != "" {
		t.Fatalf("%s: a search in the file and one in memory differ: %s", when, diff)
	}
}

// found are the numbers of the sessions that a search finds, in order.
func (f folder) found(t *testing.T, q Query) (list []string) {
	t.Helper()
	hits, err := Of(f.Dir).Search(t.Context(), q)
	if err != nil {
		t.Fatalf("search %q: %v", q.Words, err)
	}

	for _, h := range hits {
		list = append(list, strings.TrimLeft(h.SessionID[:8], "0"))
	}

	return list
}

func TestSearch(t *testing.T) {
	f := newFolder(t)
	f.save(t, talked(key("a", 1), "/w/1", "mend the login page", "and the café's page"))
	f.save(t, talked(key("a", 2), "/w/2", "say hello", "then look at internal/state/index/search.go"))
	three := talked(key("b", 3), "/w/1", "write a poem")
	three.Apply(
		checkpoint.Event{
			Key:      three.Key,
			Kind:     checkpoint.EventMark,
			Decision: true,
			Text:     "no NOT and no OR in it",
			At:       noon,
		},
	)

	three.Apply(
		checkpoint.Event{Key: three.Key, Kind: checkpoint.EventPrompt, Text: "a last line about a page", At: noon},
	)
	three.Apply(
		checkpoint.Event{
			Key:  three.Key,
			Kind: checkpoint.EventStop,
			Text: "the heron stands, the login waits",
			At:   noon,
		},
	)

	f.save(t, three)
	child := key("a", 4)
	child.Child = "c"
	f.save(t, talked(child, "/w/1", "login page of a child"))
	for _, c := range []struct {
		name string
		q    Query
		want string
	}{
		{"all words", Query{Words: []string{"login", "page"}}, "1 3"},
		{"in one argument", Query{Words: []string{"login page"}}, "1 3"},
		{"the beginning of a word", Query{Words: []string{"hel"}}, "2"},
		{"not its middle", Query{Words: []string{"ello"}}, ""},
		{"case and accents", Query{Words: []string{"CAFE"}}, "1"},
		{"a path", Query{Words: []string{"index/search.go"}}, "2"},
		{"its parts in another order", Query{Words: []string{"search/index.go"}}, ""},
		{"a decision", Query{Words: []string{"NOT"}}, "3"},
		{"an answer", Query{Words: []string{"heron"}}, "3"},
		{"operators are words", Query{Words: []string{"poem", "OR", "hello"}}, ""},
		{"brackets, stars and quotes are nothing", Query{Words: []string{`("poem"`, "*", `^-:`, `"`}}, "3"},
		{"a quote in a word", Query{Words: []string{`say"hello`}}, "2"},
		{"columns are words", Query{Words: []string{"title:poem"}}, ""},
		{"an agent", Query{Words: []string{"page"}, Agent: "b"}, "3"},
		{"a folder", Query{Words: []string{"say"}, Workspace: "/w/1"}, ""},
		{"the best one", Query{Words: []string{"page"}, Most: 1}, "1"},
	} {
		if got := strings.Join(f.found(t, c.q), " "); got != c.want {
			t.Errorf("%s: %q found %q, want %q", c.name, c.q.Words, got, c.want)
		}
	}

	for words, want := range map[string]error{"": ErrNoWords, " \x00 ": ErrNoWords, `"* -`: ErrNoWords, strings.Repeat("a ", MostWords+1): ErrManyWords} {
		if _, err := Of(f.Dir).Search(t.Context(), Query{Words: []string{words}}); !errors.Is(err, want) {
			t.Errorf("search %q: %v, want %v", words, err, want)
		}
	}
}

// What the index does not hold is found too: what only the journal knows, what was saved just now, what a checkpoint
// stands for.
func TestSearchFindsWhatIsNotKept(t *testing.T) {
	f := newFolder(t)
	f.save(t, talked(key("a", 1), "/w/1", "an old wish"))
	if got := f.found(t, Query{Words: []string{"wish"}}); len(got) != 1 {
		t.Fatalf("found %q, want the one", got)
	}
	if err := f.SaveState(talked(key("a", 2), "/w/1", "a warm wish")); err != nil {
		t.Fatal(err)
	}

	lost := talked(key("a", 3), "/w/1", "a lost wish")
	path := f.save(t, lost)
	f.checkpoint(t, lost)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}

	f.save(t, talked(key("a", 1), "/w/1", "an old plan")) // and its old words are forgotten
	f.save(t, talked(key("a", 4), "/w/1", "good morning"))
	f.found(t, Query{Words: []string{"good"}}) // it is kept now
	j := f.journal(t)
	for _, n := range []int{4, 5} {
		log(
			t,
			j,
			checkpoint.Event{
				Key:  key("a", n),
				Kind: checkpoint.EventPrompt,
				Text: "a late wish",
				At:   noon.Add(time.Hour),
			},
		)
	}

	got := f.found(t, Query{Words: []string{"wish"}})
	slices.Sort(got)
	if want := []string{"2", "3", "4", "5"}; !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if got := f.found(t, Query{Words: []string{"morning", "late"}}); !slices.Equal(got, []string{"4"}) {
		t.Errorf("found %q, want 4: what was saved, and what came later", got)
	}

	f.sameHits(t, "with all of them", "wish")
}

// Snippets show the words where they stand, on one line, without what a terminal obeys.
func TestSnippet(t *testing.T) {
	f := newFolder(t)
	words := strings.Repeat(
		"before ", 60,
	) + "the \x1b[31mred\u202e heron\n\tstands\x02 here " + strings.Repeat(
		"after ", 60,
	)

	f.save(t, talked(key("a", 1), "/w/1", "a title", words))
	hits, err := Of(f.Dir).Search(t.Context(), Query{Words: []string{"heron", "stands"}})
	if err != nil || len(hits) != 1 {
		t.Fatalf("%d hits, %v", len(hits), err)
	}

	h := hits[0]
	if !strings.Contains(h.Snippet, "red heron stands here") || len(h.Snippet) > 300 ||
		strings.ContainsFunc(h.Snippet, unicode.IsControl) {
		t.Errorf("snippet %q, want a short line with the words and no controls", h.Snippet)
	}

	var marked []string
	for _, p := range h.Pieces {
		if p.Hit {
			marked = append(marked, p.Text)
		}
	}

	if got := strings.Join(marked, ","); got != "heron,stands" {
		t.Errorf("marked %q, want heron,stands", got)
	}
}

// FuzzSearch: words are data. What was said is found by itself, and nothing is an error but that there is no word.
func FuzzSearch(f *testing.F) {
	for _, s := range []string{
		"login page", `"`, `a" OR "b`, "NEAR(a b)", "title : x", "{title task}: x", "a*", "^a", "-a", "a+b", `a"b`,
		"\x00x", "日本語", "²", "e\u0301", "ﬁ", "x\xffy", "🦩",
	} {
		f.Add(s)
	}

	dir := newFolder(f)
	at := time.Now()
	f.Fuzz(func(t *testing.T, words string) {
		s := talked(key("a", 1), "/w/1", "first", words)
		s.LastEvent = at
		if err := dir.SaveState(s); err != nil {
			t.Fatal(err)
		}

		_, err := Of(dir.Dir).Search(t.Context(), Query{Words: []string{words}})
		if err != nil && !errors.Is(err, ErrNoWords) && !errors.Is(err, ErrManyWords) {
			t.Errorf("search %q: %v", words, err)
		}
	})
}

// BenchmarkLook measures a list of many sessions, all unchanged and all read.
func BenchmarkLook(b *testing.B) {
	f := newFolder(b)
	for i := range 200 {
		f.save(b, talked(key("a", i), "/w/1", slices.Repeat([]string{strings.Repeat("words ", 60)}, 20)...))
	}

	for _, with := range []bool{true, false} {
		b.Run(fmt.Sprint("index=", with), func(b *testing.B) {
			for b.Loop() {
				if !with {
					if err := os.RemoveAll(f.Index()); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := Of(f.Dir).States(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
