package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Bounds of the house rules. What is longer says in its comment why: the comment holds the word "long".
const (
	fileLines = 500
	funcLines = 60
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
		if s.file, err = parser.ParseFile(s.fset, name, text, parser.ParseComments|parser.SkipObjectResolution); err != nil {
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

func (s source) lines(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
}

func excused(doc *ast.CommentGroup) bool {
	return doc != nil && strings.Contains(strings.ToLower(doc.Text()), "long")
}

// longOnes are lists of calls, one a line: they read better whole.
var longOnes = []string{"internal/vfs/vfstest/vfstest_test.go: script", "cmd/belay-hook/bench_test.go: BenchmarkSpawn"}

func TestLengths(t *testing.T) {
	for _, s := range sources(t) {
		if n := bytes.Count(s.text, []byte("\n")); n > fileLines && !excused(s.file.Doc) {
			t.Errorf("%s has %d lines, over %d", s.name, n, fileLines)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			if n := s.lines(f); n > funcLines && !excused(f.Doc) && !(s.test() && s.mostlyTable(f)) && !slices.Contains(longOnes, s.name+": "+f.Name.Name) {
				t.Errorf("%s: %s has %d lines, over %d", s.name, f.Name.Name, n, funcLines)
			}
		}
	}
}

// mostlyTable says whether a third of a test function or more is one table.
func (s source) mostlyTable(f *ast.FuncDecl) bool {
	largest := 0
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if c, ok := n.(*ast.CompositeLit); ok {
			largest = max(largest, s.lines(c))
		}
		return true
	})
	return largest*3 >= s.lines(f)
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

// interfaceMethods are methods that are explained elsewhere: at an interface of the same file, or in the standard library.
func (s source) interfaceMethods() []string {
	names := []string{"Error", "Unwrap", "Is", "String", "Write", "Read", "Close", "MarshalJSON", "UnmarshalJSON", "Len", "Less", "Swap"}
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
			if spec.Names[0].IsExported() && spec.Type == nil && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
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

// sleepers are files with sleeps that have a reason and do not say it.
var sleepers = []string{
	"cmd/belay-hook/event_test.go", // a server that answers in pieces
	"watch/watch_test.go",          // polls a counter
}

// A sleep in a test is a guess, but for three: in a synctest bubble it costs nothing, a loop that polls for a condition has
// nothing better, and some have a reason that stands beside them.
func TestNoSleepInTests(t *testing.T) {
	call := []byte("time." + "Sleep(")
	for _, s := range sources(t) {
		if !s.test() || bytes.Contains(s.text, []byte(`"testing/synctest"`)) || slices.Contains(sleepers, s.name) {
			continue
		}
		for i, line := range bytes.Split(s.text, []byte("\n")) {
			polls := bytes.HasPrefix(bytes.TrimSpace(line), []byte("for "))
			if bytes.Contains(line, call) && !polls && !bytes.Contains(line, []byte("//")) && !s.waits(i+1) {
				t.Errorf("%s:%d sleeps: wait for an event, or say on the line why not", s.name, i+1)
			}
		}
	}
}

// waits says whether a line lies in a function whose comment says that it waits or polls.
func (s source) waits(line int) bool {
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && f.Doc != nil && s.fset.Position(f.Pos()).Line <= line && line <= s.fset.Position(f.End()).Line {
			doc := f.Doc.Text()
			return strings.Contains(doc, "wait") || strings.Contains(doc, "poll")
		}
	}
	return false
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
