package restapi

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"handclasp/internal/hubtest"
)

// operate makes one request as the command line does.
func operate(t *testing.T, h http.Handler, method, path, body string) (status int, answer map[string]any, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	text = w.Body.String()
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return w.Code, answer, text
}

func TestTheOperatorsRoutesShowEditBlockAndInvite(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Agent("anna@acme")
		_, secret := f.AgentWithKey("frank@acme")
		h := Operator(f.Hub, slog.New(slog.DiscardHandler))
		for _, c := range []struct {
			method, path, body string
			status             int
			says               []string
		}{
			{"GET", "/operator/agents/FRANK@acme", "", 200, []string{`"capabilities":[]`, `"tags":{}`, `"unlisted":false`, `"blocks":[]`, `"blocked_by":[]`, `"handoffs":{"open":0,"held":0}`, `"email":""`}},
			{"POST", "/operator/agents/frank@acme/edit", `{"role":"backend","skills":["go"],"tags":{"team":["x"]},"unlisted":true}`, 200, []string{`"role":"backend"`, `"skills":["go"]`, `"tags":{"team":["x"]}`, `"unlisted":true`}},
			{"POST", "/operator/agents/frank@acme/edit", `{"skills":[]}`, 200, []string{`"role":"backend"`, `"skills":[]`}},
			{"POST", "/operator/agents/frank@acme/edit", `{}`, 400, []string{`"code":"invalid_params"`}},
			{"POST", "/operator/agents/frank@acme/edit", `{"handle":"root@acme"}`, 400, []string{"there is no such field here"}},
			{"POST", "/operator/agents/frnk@acme/edit", `{"role":"x"}`, 404, []string{`"near_matches":["frank@acme"]`}},
			{"POST", "/operator/agents/anna@acme/block", `{"other":"frank@acme","reason":"floods"}`, 200, []string{`{"handle":"anna@acme","other":"frank@acme","blocked":true,"changed":true}`}},
			{"GET", "/operator/agents/frank@acme", "", 200, []string{`"blocked_by":[{"handle":"anna@acme","reason":"floods","since":"2026-`}},
			{"POST", "/operator/agents/anna@acme/unblock", `{"other":"frank@acme"}`, 200, []string{`"blocked":false,"changed":true`}},
			{"POST", "/operator/agents/anna@acme/unblock", `{"other":""}`, 404, []string{"handclasp agent list"}},
			{"POST", "/operator/invites", `{"handle":"bob@acme","inviter_handle":"anna@acme","role":"ops","expires_in_seconds":3600}`, 200, []string{`"url":"https://hub.example/join#`, `"inviter_handle":"anna@acme"`, `"expires_at":"2026-`}},
			{"POST", "/operator/invites", `{"handle":"anna@acme"}`, 400, []string{"given out before"}},
			{"GET", "/operator/invites", "", 200, []string{`"handle":"bob@acme"`, `"status":"open"`, `"redeemed_at":null`, `"role":"ops"`}},
			{"POST", "/operator/invites/none/revoke", "", 404, []string{"handclasp invite list"}},
		} {
			status, _, text := operate(t, h, c.method, c.path, c.body)
			if status != c.status || strings.Contains(text, secret) {
				t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, status, text)
			}
			for _, part := range c.says {
				if !strings.Contains(text, part) {
					t.Errorf("%s %s %s lacks %s: %s", c.method, c.path, c.body, part, text)
				}
			}
		}
		_, list, text := operate(t, h, "GET", "/operator/invites", "")
		jti := list["invites"].([]any)[0].(map[string]any)["jti"].(string)
		if strings.Contains(text, "eyJ") {
			t.Errorf("the list holds a token: %s", text)
		}
		if status, out, _ := operate(t, h, "POST", "/operator/invites/"+jti+"/revoke", ""); status != 200 || out["revoked"] != true {
			t.Errorf("%d %v", status, out)
		}
	})
}
