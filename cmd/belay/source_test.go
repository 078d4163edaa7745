package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Bounds of the house rules. Tests may be longer: the rows of a table stand one under the other.
const (
	fileLines, testFileLines = 500, 700
	funcLines, testFuncLines = 80, 150
	lineColumns              = 120
)

type source struct {
	name string // below the module, with slashes
	text []byte
	fset *token.FileSet
	file *ast.File
}

func (s source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

// eachFile gives every file of ours with its text: what is built and what git keeps is left out.
func eachFile(t *testing.T, fn func(name string, text []byte)) {
	t.Helper()
	root := moduleRoot(t)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, rel) {
			return fs.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}

		text, err := os.ReadFile(p)
		if os.IsNotExist(err) {
			return nil // somebody's temporary file
		}

		fn(filepath.ToSlash(rel), text)
		return err
	})

	if err != nil {
		t.Fatal(err)
	}
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	eachFile(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "testdata/") {
			return
		}

		s := source{name: name, text: text, fset: token.NewFileSet()}
		var err error
		s.file, err = parser.ParseFile(s.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("parse: %v", err)
			return
		}

		all = append(all, s)
	})

	if len(all) < 50 {
		t.Fatalf("%d source files: this test holds nothing", len(all))
	}

	return all
}

// place names a function for waivers.
func (s source) place(f *ast.FuncDecl) string { return path.Base(s.name) + ": " + f.Name.Name }

// at says where a piece of code stands.
func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.name, s.fset.Position(n.Pos()).Line)
}

func (s source) lines(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
}

// waivers are the places that may break one rule, each with the reason. A place is "file.go", "file.go: function" or
// "file.go: how the line begins", without the folder, so that a package can move.
type waivers map[string]string

// hold reports what breaks a rule without a waiver, and each waiver that nothing needs any more.
func (w waivers) hold(t *testing.T, broken map[string]string) {
	t.Helper()
	for place, fault := range broken {
		if w[place] == "" {
			t.Error(strings.TrimSpace(fault))
		}
	}

	for place := range w {
		if broken[place] == "" {
			t.Errorf("%s breaks no rule: it needs no waiver", place)
		}
	}
}

func TestLengths(t *testing.T) {
	broken := map[string]string{}
	for _, s := range sources(t) {
		mostFile, mostFunc := fileLines, funcLines
		if s.test() {
			mostFile, mostFunc = testFileLines, testFuncLines
		}
		if n := bytes.Count(s.text, []byte("\n")); n > mostFile {
			broken[path.Base(s.name)] = fmt.Sprintf("%s has %d lines, over %d", s.name, n, mostFile)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := s.lines(f); n > mostFunc {
				broken[s.place(f)] = fmt.Sprintf("%s: %s has %d lines, over %d", s.name, f.Name.Name, n, mostFunc)
			}
		}
	}

	waivers{
		"gate_test.go: TestGateRows": "one table",
		"reader_test.go: TestForms":  "one table",
	}.hold(t, broken)
}

// TestWidths: a tab counts as four columns. In tests, the lab and the benchmark a line may be longer by a literal:
// records and tables read better whole.
func TestWidths(t *testing.T) {
	broken := map[string]string{}
	for _, s := range sources(t) {
		literal := map[int]bool{}
		if s.test() || strings.HasPrefix(s.name, "internal/test/") || strings.HasPrefix(s.name, "scripts/") {
			literal = s.literalLines()
		}

		for i, line := range bytes.Split(s.text, []byte("\n")) {
			n := utf8.RuneCount(line) + 3*bytes.Count(line, []byte("\t"))
			if n > lineColumns && !literal[i+1] {
				place := fmt.Sprintf("%s: %.40s", path.Base(s.name), bytes.TrimSpace(line)) // its number would change
				broken[place] += fmt.Sprintf("%s:%d has %d columns, over %d\n", s.name, i+1, n, lineColumns)
			}
		}
	}

	waivers{}.hold(t, broken)
}

// literalLines are the lines on which a text stands, or a part of one.
func (s source) literalLines() map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			for i := s.fset.Position(l.Pos()).Line; i <= s.fset.Position(l.End()).Line; i++ {
				lines[i] = true
			}
		}
		return true
	})
	return lines
}

func TestExportedNamesAreExplained(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || s.file.Name.Name == "main" {
			continue
		}

		known := s.interfaceMethods()
		explained := 0 // the line on which the last explained function ends
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			switch {
			case !ok:
				for _, name := range unexplained(d.(*ast.GenDecl)) {
					t.Errorf("%s: %s has no comment", s.name, name)
				}

			case f.Doc != nil || s.lines(f) == 1 && s.fset.Position(f.Pos()).Line == explained+1:
				explained = s.fset.Position(f.End()).Line // a comment stands for a run of one-line functions
			case f.Name.IsExported() && exportedReceiver(f) && !slices.Contains(known, f.Name.Name):
				t.Errorf("%s: %s has no comment", s.name, f.Name.Name)
			}
		}
	}
}

// interfaceMethods are methods that are explained elsewhere: at an interface of the same file, or in the standard
// library.
func (s source) interfaceMethods() []string {
	names := []string{"Error", "Unwrap", "Is", "String", "Write", "Read", "Close", "MarshalJSON", "UnmarshalJSON",
		"Len", "Less", "Swap"}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if in, ok := n.(*ast.InterfaceType); ok {
			for _, m := range in.Methods.List {
				for _, name := range m.Names {
					names = append(names, name.Name)
				}
			}
		}
		return true
	})

	return names
}

// unexplained gives the exported names of a declaration that no comment covers. A constant is covered by its type's.
func unexplained(d *ast.GenDecl) []string {
	var names []string
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Name.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
				names = append(names, spec.Name.Name)
			}
		case *ast.ValueSpec:
			bare := d.Doc == nil && spec.Doc == nil && spec.Comment == nil
			if spec.Names[0].IsExported() && spec.Type == nil && bare {
				names = append(names, spec.Names[0].Name)
			}
		}
	}

	return names
}

func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}

	typ := f.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	if g, ok := typ.(*ast.IndexExpr); ok {
		typ = g.X
	}

	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

// A sleep in a test is a guess, but for two: in a synctest bubble it costs nothing, and a loop that polls for a
// condition has nothing better between two looks.
func TestNoSleepInTests(t *testing.T) {
	broken := map[string]string{}
	for _, s := range sources(t) {
		if !s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && sleeps(f) {
				broken[s.place(f)] = fmt.Sprintf("%s: %s sleeps: wait for an event", s.name, f.Name.Name)
			}
		}
	}

	waivers{
		"fault_test.go: life":     "runs in a bubble",
		"fault_test.go: fullDisk": "runs in a bubble",
		"month_test.go: playDay":  "runs in a bubble",
		"helper_test.go: at":      "runs in a bubble",

		"durable_test.go: run":                                   "kills at a random moment",
		"mirror_test.go: TestKillDuringAnExactMirror":            "kills at a random moment",
		"process_test.go: hook":                                  "kills at a random moment",
		"gates_test.go: TestOwedIsTakenOnceWhenTheGateOpens":     "nothing happens, and that is tested",
		"many_test.go: TestNothingWakesUpWhenNothingHappens":     "silence is what is measured",
		"rest_test.go: TestIdleDaemonSleeps":                     "silence is what is measured",
		"flood_test.go: TestIdleConnections":                     "silence is what is tested",
		"process_test.go: TestSuspended":                         "the length of the sleep is what is tested",
		"rest_test.go: TestD10TwoHundredSessionsLeaveOneProcess": "the long form waits as long as it was told",
		"rest_test.go: settled":                                  "nothing reports what the collector gives back",

		"event_test.go: TestO02OneDocumentOrNothing":            "a server that answers in pieces",
		"extension_test.go: TestExtensionBrief":                 "a daemon that is too slow",
		"transcript_test.go: TestH07LastAnswerComesLateOrNever": "a file that is late",
		"sqlite_test.go: TestOwnerIsNeverHeldUp":                "an owner that writes on behind a reader",
		"gemini_tui_test.go: press":                             "a person's fingers",
	}.hold(t, broken)
}

// sleeps says whether code calls time.Sleep elsewhere than in a bubble or between the rounds of a loop.
func sleeps(code ast.Node) (found bool) {
	ast.Inspect(code, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt:
			if post, ok := n.Post.(*ast.ExprStmt); ok && isCall(post.X, "time.Sleep") {
				found = found || sleeps(n.Body)
				return false
			}
		case *ast.CallExpr:
			found = found || isCall(n, "time.Sleep")
			return !isCall(n, "synctest.Test") && !isCall(n, "bubble")
		}
		return true
	})
	return found
}

// isCall says whether an expression calls the named function.
func isCall(x ast.Expr, name string) bool {
	call, ok := x.(*ast.CallExpr)
	return ok && types.ExprString(call.Fun) == name
}

// A name of Go's own means one thing everywhere.
func TestBuiltInsAreNotShadowed(t *testing.T) {
	broken := map[string]string{}
	for _, s := range sources(t) {
		for _, name := range declared(s.file) {
			if types.Universe.Lookup(name.Name) != nil {
				broken[s.at(name)] = fmt.Sprintf("%s: %s is a name of Go's own", s.at(name), name.Name)
			}
		}
	}

	waivers{}.hold(t, broken)
}

// declared gives the names that a file declares, but for fields and methods: these stand behind a point.
func declared(file *ast.File) (names []*ast.Ident) {
	parameters := func(lists ...*ast.FieldList) {
		for _, list := range lists {
			if list == nil {
				continue
			}
			for _, f := range list.List {
				names = append(names, f.Names...)
			}
		}
	}

	define := func(exprs ...ast.Expr) {
		for _, x := range exprs {
			if id, ok := x.(*ast.Ident); ok {
				names = append(names, id)
			}
		}
	}

	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if parameters(n.Recv); n.Recv == nil {
				define(n.Name)
			}

		case *ast.FuncType:
			parameters(n.TypeParams, n.Params, n.Results)
		case *ast.TypeSpec:
			define(n.Name)
			parameters(n.TypeParams)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				define(n.Lhs...)
			}

		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				define(n.Key, n.Value)
			}
		}
		return true
	})

	return names
}

// The tree names no folder of the machine that it was made on.
func TestNoMachinePaths(t *testing.T) {
	names := []string{moduleRoot(t) + "/"}
	if home, err := os.UserHomeDir(); err == nil && len(home) > 1 {
		names = append(names, home+"/")
	}

	eachFile(t, func(file string, text []byte) {
		for _, name := range names {
			if i := bytes.Index(text, []byte(name)); i >= 0 && (i == 0 || !partOfPath(text[i-1])) {
				t.Errorf("%s, line %d, names %s", file, bytes.Count(text[:i], []byte("\n"))+1, name)
			}
		}
	})
}

// partOfPath says whether a name after c is the middle of another path.
func partOfPath(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-}", c) >= 0
}
