package httpserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestAJoinLinkIsRedeemedWithoutACredentialAndNotByAnotherSite(t *testing.T) {
	t.Parallel()
	l := listen(t)
	link, err := l.Hub.Invite(context.Background(), hubtest.Operator(), hub.InviteInput{Handle: "frank@acme", Inviter: "anna@acme"})
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(link.URL, "#")
	path := "/invites/" + link.ID + "/redeem"
	redeem := func(header, value string) answer {
		r := l.request(http.MethodPost, path, fmt.Sprintf(`{"token":%q}`, token))
		r.Header.Del("Authorization")
		if header != "" {
			r.Header.Set(header, value)
		}
		return l.send(r)
	}
	redeem("Origin", "https://evil.example").want(t, "another origin", http.StatusForbidden, "permission_denied")
	redeem("Sec-Fetch-Site", "cross-site").want(t, "another site", http.StatusForbidden, "permission_denied")
	l.get(path).want(t, "looking", http.StatusNotFound, "not_found")
	large := l.request(http.MethodPost, path, strings.Repeat("x", 5<<20))
	l.send(large).want(t, "a large body", http.StatusRequestEntityTooLarge, "content_too_large")

	a := redeem("Origin", "https://hub.example")
	a.want(t, "our own page", http.StatusCreated, "")
	if a.header.Get("Cache-Control") != "no-store" || !strings.Contains(a.body, `"api_key":"hc_live_`) {
		t.Errorf("%s %v", a.body, a.header)
	}
	again := redeem("", "")
	again.want(t, "again", http.StatusGone, "")
	if strings.TrimSpace(again.body) != `{"error":"already_used"}` {
		t.Errorf("%s", again.body)
	}
	log := l.Log.String()
	if !strings.Contains(log, "/invites/{jti}/redeem") || strings.Contains(log, token) || strings.Contains(log, link.ID) || strings.Contains(log, "hc_live_") {
		t.Errorf("%s", log)
	}
}
