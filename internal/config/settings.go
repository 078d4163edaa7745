package config

import "time"

// Settings are all settings. This struct is their one source: the key tags make the keys, default is the value in the
// file's form, help is the text of `belay config` and docs/settings.md, and min, max, oneof, atmost and form are what is
// allowed.
type Settings struct {
	StateDir string `key:"state_dir" default:"" form:"abs" help:"Folder of journal, checkpoints and socket; empty means $XDG_STATE_HOME/belay, else ~/.local/state/belay."`

	Gates struct {
		Sparse struct {
			Time   time.Duration `key:"time" default:"5m" min:"0s" help:"Time between two SPARSE checkpoints of a session."`
			Rounds int           `key:"rounds" default:"5" min:"1" help:"Rounds between two SPARSE checkpoints of a session."`
		} `key:"sparse"`
		Full struct {
			Time time.Duration `key:"time" default:"5m" min:"0s" help:"Time between two FULL checkpoints of a session."`
		} `key:"full"`
		Forced struct {
			Time time.Duration `key:"time" default:"1s" min:"0s" help:"Time between two forced checkpoints of a session."`
		} `key:"forced"`
	} `key:"gates"`

	Heartbeat struct {
		Every string `key:"every" default:"@every 30m" form:"cron" help:"When the heartbeat asks for a FULL checkpoint: a cron line."`
	} `key:"heartbeat"`

	Breaker struct {
		Failures int           `key:"failures" default:"3" min:"1" help:"Failures in a row of the store that open its breaker (degraded mode)."`
		Pause    time.Duration `key:"pause" default:"30s" min:"1s" atmost:"breaker.max_pause" help:"Pause before the first probe of an open breaker; it doubles with each failed probe."`
		MaxPause time.Duration `key:"max_pause" default:"10m" min:"1s" help:"Longest pause between two probes."`
		Heal     string        `key:"heal" default:"auto" oneof:"auto,manual" help:"Whether a probe closes the breaker, or only belay reset and a restart."`
	} `key:"breaker"`

	Recovery struct {
		Adopt       string        `key:"adopt" default:"auto" oneof:"auto,list,never" help:"What a new session gets of a crashed one: the brief of a proven predecessor, the list only, or nothing."`
		Window      time.Duration `key:"window" default:"24h" min:"1m" help:"How long ago a proven predecessor may have crashed."`
		MaxBytes    int           `key:"max_bytes" default:"9000" min:"200" max:"1000000" help:"Most bytes of a brief, frame included; the agent's own limit is kept too."`
		DeltaBytes  int           `key:"delta_bytes" default:"2048" min:"200" max:"1000000" help:"Most bytes of belay recover --format delta."`
		MaxMessages int           `key:"max_messages" default:"5" min:"1" max:"1000" help:"Most messages of belay recover --format delta."`
		Roles       []string      `key:"roles" default:"assistant" oneof:"assistant,user" help:"Whose messages belay recover --format delta shows."`
	} `key:"recovery"`

	Retention struct {
		Count      int           `key:"count" default:"50" min:"1" help:"Checkpoints kept of a session; never without the last good FULL."`
		Bytes      Size          `key:"bytes" default:"64MB" min:"1MB" atmost:"retention.total_bytes" help:"Bytes of checkpoints kept of a session."`
		Age        time.Duration `key:"age" default:"30d" min:"1h" help:"How long checkpoints are kept."`
		TotalBytes Size          `key:"total_bytes" default:"2GB" min:"1MB" help:"Bytes kept of all sessions together: checkpoints, mirrors and states. The oldest go first; the last good FULL of each stays."`
	} `key:"retention"`

	Spool struct {
		Bytes Size          `key:"bytes" default:"64MB" min:"64KB" help:"Bytes of events kept while no daemon runs."`
		Age   time.Duration `key:"age" default:"7d" min:"1m" help:"How long such events are kept."`
	} `key:"spool"`

	Journal struct {
		Segment Size `key:"segment" default:"16MB" min:"64KB" max:"1GB" help:"Size of a journal segment."`
		Memory  Size `key:"memory" default:"4MB" min:"64KB" max:"1GB" help:"Events kept in memory while the journal's disk fails."`
	} `key:"journal"`

	Mirror string `key:"mirror" default:"redacted" oneof:"redacted,exact,off" help:"Whether a compressed copy of each transcript is kept: without secrets, or exact and encrypted, or none."`

	Watch struct {
		Notify  bool          `key:"notify" default:"true" help:"Whether the kernel's change events are used; polling goes on in any case."`
		Poll    time.Duration `key:"poll" default:"1s" min:"100ms" atmost:"watch.poll_max" help:"Shortest time between two looks at a transcript in use."`
		PollMax time.Duration `key:"poll_max" default:"30s" min:"100ms" max:"10m" help:"Longest time between two looks, reached while it does not change."`
	} `key:"watch"`

	Worktree struct {
		Enabled bool `key:"enabled" default:"true" help:"Whether a FULL checkpoint holds the state of the git work tree."`
	} `key:"worktree"`

	Log struct {
		Level string `key:"level" default:"info" oneof:"debug,info,warn,error" help:"Least level of what is logged."`
		Bytes Size   `key:"bytes" default:"10MB" min:"1MB" max:"1GB" help:"Size at which the log file is changed."`
		Files int    `key:"files" default:"3" min:"1" max:"100" help:"Old log files kept."`
	} `key:"log"`

	Idle struct {
		Exit time.Duration `key:"exit" default:"1h" min:"10s" help:"A daemon started by a hook ends after so long without a live agent."`
	} `key:"idle"`

	Limits struct {
		Connections       int `key:"connections" default:"512" min:"8" max:"100000" help:"Most connections to the socket at a time."`
		SessionsPerMinute int `key:"sessions_per_minute" default:"5000" min:"1" help:"Most new sessions in a minute."`
	} `key:"limits"`
}
