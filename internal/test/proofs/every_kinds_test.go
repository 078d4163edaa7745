package proofs

import "regexp"

// kinds says what each file is. Each line is one or several names; the first that fits counts.
var kinds = []kind{
	// Neither.
	{names: re(`/SOURCES\.md$`), reason: "says where the files come from"},
	{names: re(`/golden[a-z-]*\.(txt|json)$`), reason: "figures of another test"},
	{names: re(`/drive\.(mjs|py)$`), reason: "a program that drives an extension in its test"},
	{names: re(`/F07-dir-listing\.txt$`), reason: "names of files, not their content"},
	{
		names:  re(`/_config-after-trust\.toml$|/config-after-trust\.toml$`),
		reason: "Codex's settings after a person trusted the hooks",
	},
	{names: re(`sessions-pid`), reason: "the file in which Claude Code says which process has a session: a pid file"},
	{
		names: re(
			`/limits/.*/(hooks-[A-Za-z-]+|events|messages|session-records|app-server|stdout-[a-z-]+|headless|gateway|embedded|restart-recovery)\.jsonl$|/limits/codex/.*\.rollout\.jsonl$`,
		),
		reason: "single records and payloads of limited agents, cut out of their files: no whole file of an agent",
	},
	{names: re(`sessions\.(handmade|generated)\.json$`), reason: "OpenClaw's index of sessions"},
	{names: re(`jsonl-lock\.generated\.json$`), reason: "a lock file of OpenClaw's"},
	{names: re(`trajectory-path\.generated\.json$`), reason: "names the file of a trajectory, which is no transcript"},
	{
		names:  re(`/traces/`),
		reason: "what a recorder noted of the events of a program: their names and keys, not what a hook gets",
	},
	{
		names:  re(`1\.18-plugin-events-`),
		reason: "what opencode gave a recorder's plugin: objects of its own, of which belay's plugin makes the payloads",
	},
	{
		names:  re(`^(hooks-captured/openclaw|repo/internal/agent/openclaw/testdata/hooks)/`),
		reason: "arguments of function calls inside of OpenClaw, of which belay's plugin makes the payloads",
	},
	{names: re(`in-memory\.handmade\.json$`), reason: "a list in a program's memory, of which no file exists"},
	{names: re(`/P07-paths\.json$`), reason: "names of folders, which its tests put into payloads"},
	{names: re(`/S02-fork-event\.json$`), reason: "an event and a record side by side, which its test takes apart"},

	// Transcripts that do not say whose they are.
	{names: re(`/T15-empty\.jsonl$`), agent: "claude-code", why: "nothing in it"},
	{
		names: re(`/pi/.*/T08-torn-header\.jsonl$`),
		agent: "pi",
		why:   "records of Claude Code's behind the stub of its header",
	},
	{names: re(`/F11-old\.jsonl$`), agent: "claude-code", why: "a header of Gemini's before its records"},
	{names: re(`/claude/testdata/hooks/(O04|X01|X02)-`)},

	// Hook payloads.
	{
		names: re(
			`^(hooks-captured|transcripts)/claude-code/.*(hook|[A-Z][A-Za-z]+\.json$)|^repo/internal/agent/claude/testdata/hooks/|^repo/.*/(H06|H09|H13|S07-events)`,
		),
		hooks: "claude-code",
	},
	{names: re(`^hooks-captured/codex/|/codex/hooks/|^repo/internal/agent/codex/testdata/hooks/`), hooks: "codex"},
	{names: re(`^hooks-captured/gemini/|/gemini/hooks/|^repo/internal/agent/gemini/testdata/hooks/`), hooks: "gemini"},
	{names: re(`^hooks-captured/pi/`), hooks: "pi"},
	{names: re(`/cursor/.*hook-stdin`), hooks: "cursor"},
	{names: re(`/copilot/.*hook-stdin`), hooks: "copilot"},
	{names: re(`/droid/.*hook-stdin`), hooks: "droid"},

	// Rows of databases.
	{names: re(`\.sqlite-rows\.jsonl$`), rows: "transcript_events"},
	{names: re(`/1\.18-event-table\.jsonl$`), rows: "event"},
	{names: re(`/1\.18-session-message-part\.jsonl$`), rows: "session"},

	// Transcripts that say whose they are.
	{names: re(`.`)},
}

var re = regexp.MustCompile
