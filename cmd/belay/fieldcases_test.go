package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fieldCases are the failures from the field that belay must not repeat, one row each. A row's tests carry its id.
var fieldCases = []struct{ id, title string }{
	{"T01", "a torn last line"},
	{"T02", "bad lines in the middle"},
	{"T03", "a record glued to a stub"},
	{"T05", "NUL blocks after a crash"},
	{"T07", "broken bookkeeping beside a whole checkpoint"},
	{"T08", "a torn first line"},
	{"T11", "every prefix of a good file"},
	{"T12", "a kill while a checkpoint is written"},
	{"T13", "records of other versions"},
	{"T15", "empty files, and a setting that does not parse"},
	{"L01", "a line of 15 MB"},
	{"L03", "half a surrogate pair"},
	{"L05", "cuts at rune borders"},
	{"L08", "BOM, CRLF and blank lines"},
	{"L09", "an escaped NUL"},
	{"R01", "records appended again"},
	{"R02", "a cycle of parents"},
	{"R04", "a parent that never reached the disk"},
	{"R05", "calls without a result"},
	{"R08", "two branches of one conversation"},
	{"R09", "stamps out of order"},
	{"F01", "half a line at a look"},
	{"F03", "rewritten to the same size"},
	{"F04", "rotation by rename"},
	{"F06", "compaction events without a compaction"},
	{"F07", "siblings that are no session"},
	{"F08", "a file that was compressed"},
	{"F10", "a transcript that was deleted"},
	{"F11", "a new file with a header alone"},
	{"F12", "a transcript that shrank"},
	{"V01", "no events of the file system"},
	{"V02", "the limits of inotify"},
	{"V03", "an overflow of the queue"},
	{"V05", "replaced by rename"},
	{"V06", "new folders in new folders"},
	{"P01", "two projects in one folder"},
	{"P03", "a home behind a link"},
	{"P05", "a sub-folder of the project"},
	{"P07", "odd paths"},
	{"S01", "two writers in one file"},
	{"S02", "a fork with the parent's id"},
	{"S04", "records in another session's file"},
	{"S06", "two files that grow at once"},
	{"S07", "no transcript at all"},
	{"S08", "an agent that starts itself"},
	{"S09", "two sessions in one folder"},
	{"S11", "an owner that died idle"},
	{"H01", "no end hook"},
	{"H02", "a daemon that answers late"},
	{"H03", "a daemon that never reads"},
	{"H05", "a listener that never answers"},
	{"H06", "every hook twice"},
	{"H07", "the last answer comes late"},
	{"H09", "a payload without a path"},
	{"H12", "hooks fall silent"},
	{"H13", "all sources of a start"},
	{"O01", "a cap on all that is printed"},
	{"O02", "one JSON document or nothing"},
	{"O03", "replay that is no order"},
	{"O04", "text that closes its frame"},
	{"O05", "a checkpoint in the work tree"},
	{"O08", "sessions of others in the folder"},
	{"D01", "a path too long for a socket"},
	{"D02", "what lies at the socket's place"},
	{"D05", "a pid that was used again"},
	{"D07", "an inherited listener"},
	{"D08", "an inherited stdout"},
	{"D10", "workers that are never reaped"},
	{"D11", "frames in any pieces"},
	{"D12", "a line without an end"},
	{"D13", "a stranger at the socket"},
	{"D15", "clients of another version"},
	{"D16", "a checkpoint that blocks"},
	{"D17", "fifty clients start it at once"},
	{"G01", "a checkpoint of 0 bytes"},
	{"G02", "an index that is empty or broken"},
	{"G04", "a byte budget"},
	{"G05", "pruning of whole chains"},
	{"G07", "a kill between write and bookkeeping"},
	{"G08", "a flipped byte"},
	{"G10", "a state folder that cannot be used"},
	{"G12", "a full disk"},
	{"G13", "a database's log under a reader"},
	{"X01", "keys by their shape"},
	{"X02", "secrets in other forms"},
	{"X03", "what is no secret"},
	{"X04", "modes whatever the umask"},
	{"C01", "missed ticks"},
	{"C02", "a next run in the past"},
	{"C05", "a job that panics"},
	{"C07", "a breaker that finds its way back"},
	{"C08", "asking for the state in its callback"},
	{"C09", "parallel writes while half open"},
	{"C12", "stamps from the future"},
	{"C13", "one event that always fails"},
	{"C14", "one session that always fails"},
	{"M01", "many large sessions in a list"},
	{"M02", "a session of gigabytes"},
	{"M04", "a million records"},
	{"M06", "a long queue at a start"},
	{"M07", "one huge record"},
	{"N01", "Gemini's two forms"},
	{"N02", "an id that nobody knows"},
	{"N03", "one JSON document of 127 MB"},
	{"N05", "another project key"},
	{"N07", "an agent without an end event"},
}

// rowIDs finds ids in a test's name: TestT01TornTail, TestX01X02NoSecret, TestR08BothBranchesAndR09FileOrder.
var rowIDs = regexp.MustCompile(`[A-Z][0-9]{2}`)

// otherLists are tests whose names carry the row of another list with the same letter.
var otherLists = []string{"TestP05ThousandRoundsInAMinuteThenSilence", "TestP05SilenceWithBeatsCostsNothing"}

// TestEveryFieldCaseHasItsTest reads the source: a row without a test that is named by it is a promise that nobody
// holds. With -v it prints which tests hold which row.
func TestEveryFieldCaseHasItsTest(t *testing.T) {
	tests := map[string][]string{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}

		names, err := testsIn(path)
		for _, name := range names {
			if slices.Contains(otherLists, name) {
				continue
			}
			for _, id := range rowIDs.FindAllString(name, -1) {
				tests[id] = append(
					tests[id], strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../")+"."+name,
				)
			}
		}

		return err
	})

	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(fieldCases), 106; got != want {
		t.Errorf("%d rows, want %d", got, want)
	}

	seen := map[string]bool{}
	for _, c := range fieldCases {
		if seen[c.id] {
			t.Errorf("row %s stands twice", c.id)
		}

		seen[c.id] = true
		if len(tests[c.id]) == 0 {
			t.Errorf("%s (%s): no test is named by it", c.id, c.title)
		}

		t.Logf("%s %s: %s", c.id, c.title, strings.Join(tests[c.id], ", "))
	}
}

// testsIn names the test functions of a file. One that skips whatever happens holds nothing.
func testsIn(path string) (names []string, err error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}

	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && len(f.Body.List) > 0 &&
			!skips(f.Body.List[0]) {
			names = append(names, f.Name.Name)
		}
	}

	return names, nil
}

// skips says whether a statement is t.Skip.
func skips(s ast.Stmt) bool {
	e, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}

	call, ok := e.X.(*ast.CallExpr)
	if !ok {
		return false
	}

	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && strings.HasPrefix(sel.Sel.Name, "Skip")
}
