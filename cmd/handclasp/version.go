package main

import (
	"fmt"
	"runtime/debug"

	"handclasp/internal/store"
)

// release is set by the build: -ldflags "-X main.release=1.2.3".
var release = "0.1.0-dev"

func version() string { return release }

type versionCmd struct {
	output `embed:""`
}

// Help is printed by --help.
func (*versionCmd) Help() string {
	return `Example:

  handclasp version --json`
}

func (c *versionCmd) Run(e *env) error {
	commit := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	v := map[string]any{"version": release, "commit": commit, "schema": store.SchemaVersion, "mcp": []string{"2026-07-28", "2025-11-25"}}
	if c.JSON {
		return printJSON(e, v)
	}
	_, err := fmt.Fprintf(e.stdout, "handclasp %s\ncommit  %s\nschema  %d\nMCP     2026-07-28, 2025-11-25\n", release, commit, store.SchemaVersion)
	return err
}
