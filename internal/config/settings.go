package config

import "time"

// Settings are all settings. This struct is their one source: the key tags make the keys, default is the value in the
// file's form, and min, max, oneof, atmost and form are what is allowed. What each means is in help.
type Settings struct {
	StateDir string `key:"state_dir" default:"" form:"abs"`

	Gates struct {
		Sparse struct {
			Time   time.Duration `key:"time" default:"5m" min:"0s"`
			Rounds int           `key:"rounds" default:"5" min:"1"`
		} `key:"sparse"`
		Full struct {
			Time time.Duration `key:"time" default:"5m" min:"0s"`
		} `key:"full"`
		Forced struct {
			Time time.Duration `key:"time" default:"1s" min:"0s"`
		} `key:"forced"`
	} `key:"gates"`

	Heartbeat struct {
		Every string `key:"every" default:"@every 30m" form:"cron"`
	} `key:"heartbeat"`

	Breaker struct {
		Failures int           `key:"failures" default:"3" min:"1"`
		Pause    time.Duration `key:"pause" default:"30s" min:"1s" atmost:"breaker.max_pause"`
		MaxPause time.Duration `key:"max_pause" default:"10m" min:"1s"`
		Heal     string        `key:"heal" default:"auto" oneof:"auto,manual"`
	} `key:"breaker"`

	Recovery struct {
		Adopt       string        `key:"adopt" default:"auto" oneof:"auto,list,never"`
		Window      time.Duration `key:"window" default:"24h" min:"1m"`
		MaxBytes    int           `key:"max_bytes" default:"9000" min:"200" max:"1000000"`
		DeltaBytes  int           `key:"delta_bytes" default:"2048" min:"200" max:"1000000"`
		MaxMessages int           `key:"max_messages" default:"5" min:"1" max:"1000"`
		Roles       []string      `key:"roles" default:"assistant" oneof:"assistant,user"`
	} `key:"recovery"`

	Retention struct {
		Count      int           `key:"count" default:"50" min:"1"`
		Bytes      Size          `key:"bytes" default:"64MB" min:"1MB" atmost:"retention.total_bytes"`
		Age        time.Duration `key:"age" default:"30d" min:"1h"`
		TotalBytes Size          `key:"total_bytes" default:"2GB" min:"1MB"`
	} `key:"retention"`

	Spool struct {
		Bytes Size          `key:"bytes" default:"64MB" min:"64KB"`
		Age   time.Duration `key:"age" default:"7d" min:"1m"`
	} `key:"spool"`

	Journal struct {
		Segment Size `key:"segment" default:"16MB" min:"64KB" max:"1GB"`
		Memory  Size `key:"memory" default:"4MB" min:"64KB" max:"1GB"`
	} `key:"journal"`

	Mirror string `key:"mirror" default:"redacted" oneof:"redacted,exact,off"`

	Watch struct {
		Notify  bool          `key:"notify" default:"true"`
		Poll    time.Duration `key:"poll" default:"1s" min:"100ms" atmost:"watch.poll_max"`
		PollMax time.Duration `key:"poll_max" default:"30s" min:"100ms" max:"10m"`
	} `key:"watch"`

	Worktree struct {
		Enabled bool `key:"enabled" default:"true"`
	} `key:"worktree"`

	Log struct {
		Level string `key:"level" default:"info" oneof:"debug,info,warn,error"`
		Bytes Size   `key:"bytes" default:"10MB" min:"1MB" max:"1GB"`
		Files int    `key:"files" default:"3" min:"1" max:"100"`
	} `key:"log"`

	Idle struct {
		Exit time.Duration `key:"exit" default:"1h" min:"10s"`
	} `key:"idle"`

	Limits struct {
		Connections       int `key:"connections" default:"512" min:"8" max:"100000"`
		SessionsPerMinute int `key:"sessions_per_minute" default:"5000" min:"1"`
	} `key:"limits"`
}
