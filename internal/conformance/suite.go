package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// suite is the npm package, unpacked.
type suite struct{ node, dir, work string }

// result is what came out of one scenario.
type result struct {
	Scenario string `json:"scenario"`
	// Aside says why a scenario does not count towards conformance: an extension, or written
	// after the revision. Empty for those that count.
	Aside  string  `json:"not_scored,omitempty"`
	Checks []check `json:"checks"`
}

// check is one check as the suite writes it down, without what differs from run to run.
type check struct {
	ID          string          `json:"id"`
	Status      string          `json:"status"` // SUCCESS, FAILURE, WARNING, SKIPPED, INFO
	Description string          `json:"description"`
	Error       string          `json:"errorMessage,omitempty"`
	Details     json.RawMessage `json:"details,omitempty"`
}

// run lets the suite talk to a server and collects what it wrote, in the order of the
// requirements of the revision. The suite ends with 1 if anything failed; what that is worth is
// decided elsewhere.
func (s *suite) run(ctx context.Context, name, url, revision string) ([]result, error) {
	results, err := s.requirements(revision)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	dir := filepath.Join(s.work, "results", name)
	cmd := exec.CommandContext(ctx, s.node, filepath.Join(s.dir, "dist", "index.js"), "server", "--url", url, "--requirements", revision, "--output-dir", dir)
	cmd.Env = append(os.Environ(), "CI=true", "NO_COLOR=1")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	ended := cmd.Run()
	folders, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("the suite wrote nothing (%w):\n%s", ended, tail(said.String()))
	}
	where := map[string]string{}
	for _, f := range folders {
		if m := folderName.FindStringSubmatch(f.Name()); m != nil {
			where[m[1]] = filepath.Join(dir, f.Name(), "checks.json")
		}
	}
	for i := range results {
		r := &results[i]
		b, err := os.ReadFile(where[r.Scenario])
		if err != nil {
			return nil, fmt.Errorf("the suite did not run %s (%w):\n%s", r.Scenario, ended, tail(said.String()))
		}
		if err := json.Unmarshal(b, &r.Checks); err != nil {
			return nil, fmt.Errorf("results of %s: %w", r.Scenario, err)
		}
		for j := range r.Checks {
			r.Checks[j].settle()
		}
	}
	return results, nil
}

var folderName = regexp.MustCompile(`^server-(.+)-\d{4}-\d{2}-\d{2}T[0-9-]+Z$`)

// requirements lists what a revision asks of a server: the suite's own frozen list, a small YAML
// file of two kinds of lines.
func (s *suite) requirements(revision string) ([]result, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, "requirements", revision+".yaml"))
	if err != nil {
		return nil, err
	}
	var list []result
	section, aside := "", ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimRight(line, "\n")
		if name, ok := strings.CutSuffix(line, ":"); ok && !strings.HasPrefix(line, " ") {
			section = name
			continue
		}
		word, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "- "), ": ")
		switch {
		case section == "server" && strings.HasPrefix(line, "  - "):
			list = append(list, result{Scenario: word})
		case section == "not_scored" && word == "scenario":
			aside = value
		case section == "not_scored" && word == "leg" && value == "server":
			list = append(list, result{Scenario: aside, Aside: "?"})
		case section == "not_scored" && word == "reason" && len(list) > 0 && list[len(list)-1].Scenario == aside:
			list[len(list)-1].Aside = value
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s.yaml names no scenario", revision)
	}
	return list, nil
}

// What differs from run to run: addresses, random ids, times.
var unsettled = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "127.0.0.1:PORT"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "UUID"},
	{regexp.MustCompile(`\b\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d+Z`), "TIME"},
	{regexp.MustCompile(`\b[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT\b`), "DATE"},
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "REQUEST"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\.`), "SEAL."},
	{regexp.MustCompile(`\b[A-Z2-7]{26}(_\d+)?\b`), "RANDOM"},
	{regexp.MustCompile(`\b1[0-9]{12}\b`), "1000000000000"},
}

func (c *check) settle() {
	clean := func(b []byte) []byte {
		for _, u := range unsettled {
			b = u.pattern.ReplaceAll(b, []byte(u.instead))
		}
		return b
	}
	c.Description, c.Error = string(clean([]byte(c.Description))), string(clean([]byte(c.Error)))
	if c.Details = clean(c.Details); c.Status == "SUCCESS" || c.Status == "INFO" {
		c.Details = nil // whole answers, and nobody asks about them
	}
}

// version is that of the package.
func (s *suite) version() (string, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, "package.json"))
	if err != nil {
		return "", err
	}
	var p struct{ Version string }
	return p.Version, json.Unmarshal(b, &p)
}

func tail(s string) string {
	const most = 4000
	if len(s) > most {
		s = "…" + s[len(s)-most:]
	}
	return s
}
