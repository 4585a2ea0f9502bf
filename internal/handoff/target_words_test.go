package handoff

import "testing"

func TestATargetIsSaidInALine(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"strategy":"direct","agent_id":"frank@acme"}`:               "frank@acme",
		`{"strategy":"capability","capability":"review"}`:             "capability review",
		`{"strategy":"capability","capability":["review","deploy"]}`:  "capability review or deploy",
		`{"strategy":"role","role":"lead"}`:                           "role lead",
		`{"strategy":"tag","selector":{"team":["a","b"],"area":"x"}}`: "tag area=x and team=a|b",
		`{"strategy":"tag","selector":[{"key":"k","operator":"NotIn","values":["v"]},{"key":"e","operator":"Exists"},{"key":"d","operator":"DoesNotExist"}]}`: "tag k≠v and e and no d",
		`{"strategy":"broadcast"}`: "any agent",
		`{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"mixed","rules":[{"strategy":"role","role":"s"}]}]}`: "(role r) or ((role s))",
		`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":60}`:                                              "a, after 60 s also any agent",
	} {
		target, err := ParseTarget([]byte(raw), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got := target.Words(); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
	if got := (*Target)(nil).Words(); got != "" {
		t.Errorf("no target: %q", got)
	}
}
