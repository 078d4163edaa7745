package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"strings"
)

// agentText is the launch agent of `belay daemon --print-unit=launchd`. It begins with the login, comes again half a
// minute after it failed, as when a daemon that a hook started holds the lock, and stays away after a stop that was
// asked for. Umask is 077, which a property list can only say as a decimal number.
const agentText = `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- Made by belay daemon with its flag print-unit=launchd -->
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>belay</string>
	<key>ProgramArguments</key>
	<array>
		<string>%s</string>
		<string>daemon</string>
	</array>
	<key>EnvironmentVariables</key>
	<dict>
		<key>BELAY_STATE_DIR</key>
		<string>%s</string>
	</dict>
	<key>RunAtLoad</key>
	<true/>
	<key>KeepAlive</key>
	<dict>
		<key>SuccessfulExit</key>
		<false/>
	</dict>
	<key>ThrottleInterval</key>
	<integer>30</integer>
	<key>ExitTimeOut</key>
	<integer>10</integer>
	<key>AbandonProcessGroup</key>
	<true/>
	<key>ProcessType</key>
	<string>Background</string>
	<key>Umask</key>
	<integer>63</integer>
</dict>
</plist>
`

// printAgent writes a launchd agent for this program and this state folder.
func printAgent(w io.Writer, root string) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	_, err = fmt.Fprintf(w, agentText, xmlText(exe), xmlText(root))
	return err
}

func xmlText(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
