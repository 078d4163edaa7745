package repair

import (
	"encoding/json"
	"strings"

	"belay/internal/lazyre"
)

// Salvage finds the string members that stand whole in a record that was cut short. Of a name that stands there more
// than once, the first counts.
func Salvage(stub []byte) map[string]string {
	found := map[string]string{}
	for _, m := range wholeMember().FindAllSubmatch(stub, -1) {
		var key, value string
		if json.Unmarshal(m[1], &key) != nil || json.Unmarshal(m[2], &value) != nil {
			continue
		}
		if _, known := found[key]; !known {
			found[key] = value
		}
	}

	return found
}

var wholeMember = lazyre.New(`("(?:[^"\\]|\\.)*")\s*:\s*("(?:[^"\\]|\\.)*")\s*[,}]`)

// MadeUp says that a result's text is one that a repair made.
func MadeUp(text string) bool { return strings.HasPrefix(text, madeUp) }

const madeUp = "[Interrupted: the session ended before this call's result was recorded."

// Interrupted is what a made result says of a call.
const Interrupted = madeUp + " Its outcome is not known: check before relying on it or running it again.]"
