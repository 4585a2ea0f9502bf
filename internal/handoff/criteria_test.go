package handoff

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCriteriaAreOneToTwentyUniqueStrings(t *testing.T) {
	t.Parallel()
	numbered := func(n int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("criterion %d", i)
		}
		return list
	}
	for _, list := range [][]string{numbered(1), numbered(20), {strings.Repeat("é", 500)}, {" spaced ", "Spaced"}} {
		if got, err := ParseCriteria(list, DefaultLimits()); err != nil || !cmp.Equal(got, list) {
			t.Errorf("%.60q gave %v", list, err)
		}
	}
	tests := []struct {
		list  []string
		field string
	}{
		{nil, "acceptance_criteria: 0 came, 1 to 20"},
		{numbered(21), "acceptance_criteria: 21 came, 1 to 20"},
		{[]string{"a", " "}, "acceptance_criteria[1]"},
		{[]string{"a", "b", " a"}, "acceptance_criteria[2]: repeats acceptance_criteria[0]"},
		{[]string{"a", strings.Repeat("é", 501)}, "acceptance_criteria[1]: 501 characters"},
		{[]string{"a\x00"}, "acceptance_criteria[0]"},
	}
	for _, test := range tests {
		_, err := ParseCriteria(test.list, DefaultLimits())
		wantCode(t, err, CodeInvalidParams, test.field)
	}
}

func TestDependenciesAreUniqueIds(t *testing.T) {
	t.Parallel()
	const id = "019236d0-1111-7abc-8def-0123456789ab"
	if err := CheckDependsOn([]string{id, "no such form"}, DefaultLimits()); err != nil {
		t.Error(err)
	}
	wantCode(t, CheckDependsOn(nil, DefaultLimits()), CodeInvalidParams, "depends_on")
	wantCode(t, CheckDependsOn(make([]string, 21), DefaultLimits()), CodeInvalidParams, "depends_on")
	wantCode(t, CheckDependsOn([]string{id, ""}, DefaultLimits()), CodeInvalidParams, "depends_on[1]")
	wantCode(t, CheckDependsOn([]string{id, strings.ToUpper(id)}, DefaultLimits()), CodeInvalidParams, "depends_on[1]")
}

func TestVerifyByIsReadByKind(t *testing.T) {
	t.Parallel()
	good := map[string]VerifyBy{
		``:                                  {Kind: VerifyByCreator},
		`null`:                              {Kind: VerifyByCreator},
		`{"kind":"creator"}`:                {Kind: VerifyByCreator},
		`{"kind":"agent","agent_id":"a@b"}`: {Kind: VerifyByAgent, AgentID: "a@b"},
		`{"kind":"capability","capability":"review"}`: {Kind: VerifyByCapability, Capability: "review"},
	}
	for raw, want := range good {
		got, err := ParseVerifyBy(json.RawMessage(raw), DefaultLimits())
		if err != nil || *got != want {
			t.Errorf("%s gave %+v, %v", raw, got, err)
			continue
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if reread, err := ParseVerifyBy(again, DefaultLimits()); err != nil || *reread != want {
			t.Errorf("%s was written as %s", raw, again)
		}
	}
	bad := map[string]string{
		`7`:                                     `verify_by: a number came, an object such as {"kind":"creator"}`,
		`{`:                                     "verify_by",
		`{}`:                                    "verify_by.kind",
		`{"kind":"Creator"}`:                    "did you mean creator?",
		`{"kind":"creator","agent_id":"a"}`:     "verify_by.agent_id",
		`{"kind":"agent"}`:                      "verify_by.agent_id",
		`{"kind":"agent","agent":"a"}`:          "did you mean agent_id?",
		`{"kind":"agent","agent_id":["a"]}`:     "verify_by.agent_id: a list came",
		`{"kind":"capability","capability":""}`: "verify_by.capability",
		`{"kind":"agent","agent_id":"a\ud800"}`: "verify_by",
	}
	for raw, field := range bad {
		_, err := ParseVerifyBy(json.RawMessage(raw), DefaultLimits())
		wantCode(t, err, CodeInvalidParams, field)
	}
}
