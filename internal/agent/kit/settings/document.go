package settings

import (
	"bytes"
	"encoding/json"
)

// Document is a JSON object with one string in it, as these agents read it from a hook's stdout.
func Document(key, text string) []byte {
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)                     // the model reads it: the frame of a brief stays as it is
	_ = enc.Encode(map[string]string{key: text}) // strings always encode
	return bytes.TrimSuffix(doc.Bytes(), []byte("\n"))
}
