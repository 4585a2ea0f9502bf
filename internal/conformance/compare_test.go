package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func scenario(name string, statuses ...string) result {
	r := result{Scenario: name}
	for _, s := range statuses {
		r.Checks = append(r.Checks, check{ID: name + "-" + strings.ToLower(s), Status: s, Error: "why"})
	}
	return r
}

func TestOnlyAScenarioWithEveryCheckFineAndNothingLeftOutPasses(t *testing.T) {
	t.Parallel()
	for want, statuses := range map[string][]string{
		"passes":        {"SUCCESS", "INFO"},
		"fails":         {"SUCCESS", "FAILURE", "WARNING"},
		"warns":         {"SUCCESS", "WARNING"},
		"partly tested": {"SUCCESS", "SKIPPED"},
		"not tested":    {"INFO"},
	} {
		r := scenario("s", statuses...)
		if got, _, _ := r.verdict(); got != want {
			t.Errorf("%v: %s, want %s", statuses, got, want)
		}
	}
}

func TestWhatIsNotAsExpectedIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result result
		gaps   []gap
		want   string // the beginning of the one fault; empty for none
	}{
		"a scenario that passes":                {scenario("s", "SUCCESS"), nil, ""},
		"a failure that nobody expects":         {scenario("s", "FAILURE"), nil, "s fails (0 of 1 checks pass): s-failure: why"},
		"a warning that nobody expects":         {scenario("s", "SUCCESS", "WARNING"), nil, "s warns"},
		"a failure that is expected":            {scenario("s", "FAILURE"), []gap{{scenario: "s"}}, ""},
		"a scenario that was expected to fail":  {scenario("s", "SUCCESS"), []gap{{scenario: "s"}}, "s passes; take it out"},
		"one that passes without a test":        {scenario("s", "SUCCESS"), []gap{{scenario: "s", vacuous: true}}, ""},
		"a check that may fail":                 {scenario("s", "SUCCESS", "FAILURE"), []gap{{scenario: "s", checks: []string{"s-failure"}}}, ""},
		"a check that may not":                  {scenario("s", "SUCCESS", "FAILURE"), []gap{{scenario: "s", checks: []string{"other"}}}, "s: s-failure fails: why"},
		"a gap in a scenario that is not there": {scenario("s", "SUCCESS"), []gap{{scenario: "gone"}}, "gone stands in"},
	} {
		got := strings.Join(compare([]result{c.result}, c.gaps), "\n")
		if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestTheRequirementsAreReadInTheirOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "requirements"), 0o700); err != nil {
		t.Fatal(err)
	}
	yaml := "# server:\nserver:\n  - b\n  - a\n\nclient:\n  - c\n\nnot_scored:\n  - scenario: d\n    leg: client\n    reason: extension\n" +
		"  - scenario: e\n    leg: server\n    reason: pending\n    note: >-\n      a note\n"
	if err := os.WriteFile(filepath.Join(dir, "requirements", "r.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := (&suite{dir: dir}).requirements("r")
	if want := []result{{Scenario: "b"}, {Scenario: "a"}, {Scenario: "e", Aside: "pending"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v %v, want %v", got, err, want)
	}
}

func TestWhatDiffersFromRunToRunIsLeftOut(t *testing.T) {
	t.Parallel()
	c := check{
		Status:  "FAILURE",
		Error:   "no answer of http://127.0.0.1:40123/mcp at 2026-11-30T15:04:16.005Z, request 171d1dcbf881b72d",
		Details: []byte(`{"date":"Mon, 30 Nov 2026 15:30:00 GMT","session":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"}`),
	}
	c.settle()
	if want := "no answer of http://127.0.0.1:PORT/mcp at TIME, request REQUEST"; c.Error != want {
		t.Errorf("%s, want %s", c.Error, want)
	}
	if want := `{"date":"DATE","session":"RANDOM"}`; string(c.Details) != want {
		t.Errorf("%s, want %s", c.Details, want)
	}
}
