package recovery_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"belay/checkpoint"
	"belay/internal/agent"
	"belay/internal/agent/claude"
	"belay/recovery"
)

// recovered goes the whole way of a case file: reader, fold, brief as JSON, which holds the text too.
func recovered(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}

	session := "11111111-1111-4111-8111-111111111111"
	path := filepath.Join(t.TempDir(), session+".jsonl")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	key := checkpoint.NewKey("claude-code", "", session, "")
	s := checkpoint.NewState(key)
	tr := claude.New(agent.Host{}).Open(agent.Source{Path: path, Session: session})
	defer tr.Close()
	if gone, err := recovery.CatchUp(
		context.Background(), s, tr, checkpoint.ReadOptions{Final: true}, time.Now(),
	); gone ||
		err != nil {
		t.Fatalf("catch up: gone %v, %v", gone, err)
	}

	r, err := recovery.Plan(recovery.Input{State: s}, recovery.Options{Start: recovery.StartManual, MaxBytes: 64 << 10,
		Roles: []checkpoint.Role{checkpoint.RoleUser, checkpoint.RoleAssistant, checkpoint.RoleTool}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}

	out, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}

	return string(out)
}

func TestX01X02NoSecretIsPrinted(t *testing.T) {
	for name, secrets := range map[string][]string{
		"X01-secrets.jsonl":      {"sb_secret_probe", "tok_live_EXAMPLE", "eyJEXAMPLE", "EXAMPLE0EXAMPLE0"},
		"X02-secret-forms.jsonl": {"RVhBTVBMRQRVhBTVBMRQ", "EXAMPLE-pass", "EXAMPLE0EXAMPLE0"},
	} {
		got := recovered(t, name)
		for _, s := range secrets {
			if strings.Contains(got, s) {
				t.Errorf("%s: %q is in:\n%s", name, s, got)
			}
		}

		if !strings.Contains(got, `"role":`) {
			t.Errorf("%s: nothing was recovered: %s", name, got)
		}
	}
}

func TestX03WhatIsNoSecretStays(t *testing.T) {
	got := recovered(t, "X03-not-secrets.jsonl")
	for _, s := range []string{
		"return errNoKey", "+ key", "set it to sk-ant-...", "${TOKEN}", "9f8c3a39e61ba7fca8ca62b94af150718336ba4c",
		"at least 12 characters",
	} {
		if !strings.Contains(got, s) {
			t.Errorf("%q is missing in:\n%s", s, got)
		}
	}
}
