package main

import (
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"belay/internal/wire"
)

// version names the build: the module's version, else the commit, else a checksum that changes with each build, so that
// two can be told apart in any case: doctor compares the daemon's with its own.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}

	if ok {
		if v := commit(info.Settings); v != "" {
			return v
		}
	}

	sum, err := ownSum()
	if err != nil {
		return "devel"
	}

	return fmt.Sprintf("devel-%08x", sum)
}

func commit(settings []debug.BuildSetting) string {
	revision, dirty := "", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}

	if revision == "" {
		return ""
	}

	return revision + dirty
}

// buildIDWithin is where the go tool writes its build id, which changes with every byte of the program. Reading all of
// the file would take a third of the daemon's start.
const buildIDWithin = 32 << 10

// ownSum is a checksum over the beginning of the program's own file.
func ownSum() (uint32, error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, err
	}

	f, err := os.Open(exe)
	if err != nil {
		return 0, err
	}

	defer f.Close() // read only
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	if _, err := io.Copy(h, io.LimitReader(f, buildIDWithin)); err != nil {
		return 0, err
	}

	return h.Sum32(), nil
}

// versionLine is what `belay --version` prints.
func versionLine() string {
	return fmt.Sprintf(
		"belay %s (protocol %d, %s, %s/%s)", version(), wire.Version, runtime.Version(), runtime.GOOS,
		runtime.GOARCH,
	)
}
