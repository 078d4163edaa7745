package index

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"belay/checkpoint"
	"belay/checkpoint/journal"
	"belay/internal/state"
	"belay/internal/state/query"
	"belay/recovery"
)

// Errors of Search.
var (
	// ErrNoWords: there is no letter and no digit in what is searched for.
	ErrNoWords = errors.New("no word to search for")
	// ErrManyWords: more than MostWords.
	ErrManyWords = errors.New("too many words")
)

// MostWords is how many words one question may have.
const MostWords = 64

// Query is what is searched for. Words are data, whatever they look like: a session is found when all of them begin a
// word of what was said in it; a word with punctuation inside means its parts in that order. Case and accents make no
// difference.
type Query struct {
	Words     []string
	Agent     string
	Workspace string
	Most      int // 0: all
}

// accepts says whether a session may be found at all.
func (q Query) accepts(s *checkpoint.State) bool {
	return s.Key.Child == "" && (q.Agent == "" || s.Key.Agent == q.Agent) &&
		(q.Workspace == "" || s.Workspace == q.Workspace)
}

// Hit is a session that was found.
type Hit struct {
	query.SessionStatus
	Snippet string  `json:"snippet"` // the place that fits best, on one line
	Score   float64 `json:"score"`   // larger is better; it means something among the hits of one answer only
	Pieces  []Piece `json:"-"`       // the snippet, taken apart

	key checkpoint.Key
}

// Piece is a part of a snippet.
type Piece struct {
	Text string
	Hit  bool // it is one of the words
}

// Search finds sessions by their words, the best first: in titles, tasks and decisions before the user's words, and in
// these before the answers. Sub-agents' sessions are not searched.
func (x Index) Search(ctx context.Context, q Query) ([]Hit, error) {
	match, err := expression(q.Words)
	if err != nil {
		return nil, err
	}

	var hits []Hit
	err = x.dir.Steady(func() (rep journal.Report, err error) {
		hits, rep, err = x.search(ctx, q, match)
		return rep, err
	})

	return hits, err
}

// search is one search, which a daemon may disturb.
func (x Index) search(ctx context.Context, q Query, match string) (hits []Hit, rep journal.Report, err error) {
	v, err := x.view(ctx)
	if err != nil {
		return nil, rep, err
	}

	ask := func(db *database) error {
		err := x.gather(ctx, db, v, true)
		if err != nil {
			return err
		}
		if rep, err = x.fold(ctx, v); err != nil {
			return err
		}

		hits, err = x.find(ctx, db, v, q, match)
		return err
	}

	if x.with(ctx, v, ask) != nil {
		db, err := inMemory(ctx)
		if err == nil {
			err = errors.Join(ask(db), db.close())
		}
		if err != nil {
			return nil, rep, fmt.Errorf("search the sessions: %w", err)
		}
	}

	return hits, rep, nil
}

// expression makes FTS5's of the words: each a string in quotes, in which nothing has a meaning.
func expression(words []string) (string, error) {
	var terms []string
	for word := range strings.FieldsSeq(clean(strings.Join(words, " "))) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }) {
			terms = append(terms, `"`+strings.ReplaceAll(word, `"`, `""`)+`"*`)
		}
	}

	switch {
	case len(terms) == 0:
		return "", ErrNoWords
	case len(terms) > MostWords:
		return "", fmt.Errorf("%w: %d, at most %d", ErrManyWords, len(terms), MostWords)
	}

	return strings.Join(terms, " "), nil
}

// find asks the index, and the states that it does not hold as they are: these are put in for the question alone.
func (x Index) find(ctx context.Context, db *database, v *view, q Query, match string) ([]Hit, error) {
	keys := map[string]checkpoint.Key{}
	var fresh []string
	for k := range v.states {
		n := filepath.Join("journal", k.Dir()) // where only the journal knows it; no state file has such a name
		if path, ok := v.paths[k]; ok {
			n = name(path)
		}

		keys[n] = k
		if !v.kept[k] {
			fresh = append(fresh, n)
		}
	}

	slices.Sort(fresh)
	var found []Hit
	ask := func(on asker) error {
		scores, err := rank(ctx, on, match)
		for n, score := range scores {
			s := v.states[keys[n]]
			if s != nil && q.accepts(s) {
				found = append(found, Hit{SessionStatus: query.StatusOf(s, v.began), Score: score, key: s.Key})
			}
		}

		return err
	}

	if err := x.asked(ctx, db, v, keys, fresh, ask); err != nil {
		return nil, err
	}

	slices.SortFunc(found, func(a, b Hit) int {
		if c := cmp.Or(cmp.Compare(b.Score, a.Score), b.LastEvent.Compare(a.LastEvent)); c != 0 {
			return c
		}
		return cmp.Compare(a.key.Dir(), b.key.Dir())
	})

	if q.Most > 0 {
		found = found[:min(q.Most, len(found))]
	}

	return found, x.quote(ctx, v, found, match)
}

// asker is a database or a transaction in it.
type asker interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// asked calls ask with the index as it would be with the fresh states in it, which are taken out again.
func (x Index) asked(
	ctx context.Context, db *database, v *view, keys map[string]checkpoint.Key, fresh []string, ask func(asker) error,
) error {
	if len(fresh) == 0 {
		return ask(db)
	}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}

	for _, n := range fresh {
		s := x.whole(ctx, v, keys[n])
		if err = put(ctx, tx, n, state.File{}, s, true); err != nil {
			break
		}
	}

	if err == nil {
		err = ask(tx)
	}

	return errors.Join(err, tx.Rollback())
}

// whole gives a state with all that was said.
func (x Index) whole(ctx context.Context, v *view, k checkpoint.Key) *checkpoint.State {
	s := v.states[k]
	if !v.thin[k] {
		return s
	}
	if saved := x.dir.Saved(ctx, v.paths[k]); saved != nil && saved.Key == k {
		return saved
	}

	return s // removed since: its title and its task are left
}

// rank gives the score of each session that matches, by its name in the index.
func rank(ctx context.Context, on asker, match string) (map[string]float64, error) {
	rows, err := on.QueryContext(
		ctx,
		"select name, -bm25(talk, 4, 4, 2, 4, 1) from talk join states on id = talk.rowid where talk match ?",
		match,
	)

	if err != nil {
		return nil, err
	}

	defer rows.Close() // its error comes with Err
	scores := map[string]float64{}
	for rows.Next() {
		var name string
		var score float64
		if err := rows.Scan(&name, &score); err != nil {
			return nil, err
		}
		scores[name] = score
	}

	return scores, rows.Err()
}

// Marks around the words in a snippet: clean leaves no such characters in a text.
const opens, closes = "\x02", "\x03"

// quote adds the snippets. The index does not hold the texts, and only SQLite knows what it took for a word: so those
// of the sessions that are shown go into a table of their own, in memory.
func (x Index) quote(ctx context.Context, v *view, hits []Hit, match string) (err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "create virtual table shown using fts5("+columns+")"); err != nil {
		return err
	}

	for i := range hits {
		h := &hits[i]
		t := talkOf(x.whole(ctx, v, h.key))
		const show = "insert or replace into shown (rowid, title, task, said, decided, answered) " +
			"values (1, ?, ?, ?, ?, ?)"
		if _, err := db.ExecContext(ctx, show, t.title, t.task, t.said, t.decided, t.answered); err != nil {
			return err
		}

		text := clean(h.Title)
		err := db.QueryRowContext(
			ctx, "select snippet(shown, -1, ?, ?, '…', 24) from shown where shown match ?", opens, closes,
			match,
		).Scan(
			&text,
		)

		if err != nil && !errors.Is(err, sql.ErrNoRows) { // what it said may have changed since
			return err
		}

		h.Pieces = pieces(strings.Join(strings.Fields(text), " "))
		for _, p := range h.Pieces {
			h.Snippet += p.Text
		}
	}

	return nil
}

// pieces takes a marked text apart.
func pieces(marked string) (list []Piece) {
	for i, part := range strings.Split(marked, opens) {
		hit, rest, _ := strings.Cut(part, closes)
		if i == 0 {
			hit, rest = "", part
		}

		for _, p := range []Piece{{hit, true}, {rest, false}} {
			if p.Text != "" {
				list = append(list, p)
			}
		}
	}
	return list
}

// talk is what is searched of a session.
type talk struct{ title, task, said, decided, answered string }

func talkOf(s *checkpoint.State) talk {
	var said, decided, answered []string
	for _, m := range s.Messages {
		if m.Role == checkpoint.RoleUser {
			said = append(said, m.Text)
		} else {
			answered = append(answered, m.Text)
		}
	}

	for _, n := range slices.Concat(s.Decisions, s.Notes) {
		decided = append(decided, n.Text)
	}

	join := func(texts []string) string { return clean(strings.Join(texts, "\n")) }
	return talk{clean(s.Title), clean(s.Task), join(said), join(decided), join(answered)}
}

// clean takes out what a terminal obeys and what people do not see.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r):
			return ' '
		case recovery.Hidden(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}
