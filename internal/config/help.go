package config

// help says what each setting means, for `belay config` and docs/settings.md.
var help = map[string]string{
	"state_dir": "Folder of journal, checkpoints and socket; empty means $XDG_STATE_HOME/belay, else " +
		"~/.local/state/belay.",
	"gates.sparse.time":   "Time between two SPARSE checkpoints of a session.",
	"gates.sparse.rounds": "Rounds between two SPARSE checkpoints of a session.",
	"gates.full.time":     "Time between two FULL checkpoints of a session.",
	"gates.forced.time":   "Time between two forced checkpoints of a session.",
	"heartbeat.every":     "When the heartbeat asks for a FULL checkpoint: a cron line.",
	"breaker.failures":    "Failures in a row of the store that open its breaker (degraded mode).",
	"breaker.pause":       "Pause before the first probe of an open breaker; it doubles with each failed probe.",
	"breaker.max_pause":   "Longest pause between two probes.",
	"breaker.heal":        "Whether a probe closes the breaker, or only belay reset and a restart.",
	"recovery.adopt": "What a new session gets of a crashed one: the brief of a proven predecessor, " +
		"the list only, or " +
		"nothing.",
	"recovery.window":       "How long ago a proven predecessor may have crashed.",
	"recovery.max_bytes":    "Most bytes of a brief, frame included; the agent's own limit is kept too.",
	"recovery.delta_bytes":  "Most bytes of belay recover --format delta.",
	"recovery.max_messages": "Most messages of belay recover --format delta.",
	"recovery.roles":        "Whose messages belay recover --format delta shows.",
	"retention.count":       "Checkpoints kept of a session; never without the last good FULL.",
	"retention.bytes":       "Bytes of checkpoints kept of a session.",
	"retention.age":         "How long checkpoints are kept.",
	"retention.total_bytes": "Bytes kept of all sessions together: checkpoints, mirrors and states. The oldest " +
		"go first; the last " +
		"good FULL of each stays.",
	"spool.bytes":     "Bytes of events kept while no daemon runs.",
	"spool.age":       "How long such events are kept.",
	"journal.segment": "Size of a journal segment.",
	"journal.memory":  "Events kept in memory while the journal's disk fails.",
	"mirror": "Whether a compressed copy of each transcript is kept: without secrets, or exact and encrypted, or " +
		"none.",
	"watch.notify":               "Whether the kernel's change events are used; polling goes on in any case.",
	"watch.poll":                 "Shortest time between two looks at a transcript in use.",
	"watch.poll_max":             "Longest time between two looks, reached while it does not change.",
	"worktree.enabled":           "Whether a FULL checkpoint holds the state of the git work tree.",
	"log.level":                  "Least level of what is logged.",
	"log.bytes":                  "Size at which the log file is changed.",
	"log.files":                  "Old log files kept.",
	"idle.exit":                  "A daemon started by a hook ends after so long without a live agent.",
	"limits.connections":         "Most connections to the socket at a time.",
	"limits.sessions_per_minute": "Most new sessions in a minute.",
}
