package main

import (
	"encoding/json"
	"fmt"

	"belay/internal/redact"
)

// said is a text of errors and faults for people: they quote what was given, or what a file holds.
func said(text string) string { return printable(redact.Text(text)) }

// withoutSecrets takes the secrets out of all texts of a document, in place, before anything of it is shortened or
// printed. It is for what quotes an agent's file as it is; all else has no secrets by the time it is kept.
func withoutSecrets(doc any) error {
	data, err := json.Marshal(doc)
	if err == nil {
		err = json.Unmarshal(redact.Bytes(nil, data), doc)
	}
	if err != nil {
		return fmt.Errorf("take secrets out: %w", err)
	}

	return nil
}
