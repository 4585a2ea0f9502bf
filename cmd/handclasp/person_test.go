package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

const someDiff = "diff --git a/list.kt b/list.kt\n--- a/list.kt\n+++ b/list.kt\n@@ -1 +1 @@\n-val page = 0\n+val cursor = \"\"\n"

func TestAPersonSendsReadsAndFollowsWithoutAServer(t *testing.T) {
	t.Parallel()
	data, _ := withAgents(t, "anna@acme", "frank@acme")
	sent := runWithInput(someDiff, "send", "frank@acme", "Please \x1b[31mreview", "--diff", "-", "--link", "https://example.com/1", "--as", "anna@acme", "--data", data, "--json")
	var out struct {
		ThreadID string `json:"thread_id"`
	}
	if err := json.Unmarshal(sent.stdout.Bytes(), &out); err != nil || out.ThreadID == "" {
		t.Fatalf("%v %s %s", err, sent.stdout.String(), sent.stderr.String())
	}
	runWithInput("", "inbox", "--as", "frank@acme", "--data", data).wants(t, out.ThreadID, "pending", "anna@acme", "1 unread")
	open := runWithInput("", "inbox", out.ThreadID, "--as", "frank@acme", "--data", data)
	open.wants(t, "#1 anna@acme", "file_diff  list.kt", "+val cursor", "link  https://example.com/1")
	if strings.ContainsRune(open.stdout.String(), 0x1b) {
		t.Error("an escape sequence of a stranger reaches the terminal")
	}
	runWithInput("", "inbox", "--as", "frank@acme", "--data", data).wants(t, "0 unread", "handclasp inbox THREAD --as frank@acme --data "+data)
	runWithInput("", "inbox", out.ThreadID[:13], "--as", "frank@acme", "--data", data).wants(t, out.ThreadID)
	runWithInput("", "tail", "--after", "0", "--no-follow", "--data", data).wants(t, "agent.added", "handoff.created", "anna@acme", out.ThreadID)
	lines := runWithInput("", "tail", "--after", "0", "--no-follow", "--as", "frank@acme", "--data", data, "--json")
	for line := range bytes.Lines(lines.stdout.Bytes()) {
		var e struct{ Cursor, Type string }
		if err := json.Unmarshal(line, &e); err != nil || e.Cursor == "" || e.Type == "" {
			t.Errorf("%v %s", err, line)
		}
	}
}

func TestTheSameCommandsWorkAtAHubsAddress(t *testing.T) {
	t.Parallel()
	data, keys := withAgents(t, "anna@acme", "frank@acme")
	url := startServe(t, "--data", data)
	keyFile := filepath.Join(t.TempDir(), "frank.key")
	if err := os.WriteFile(keyFile, []byte(keys["frank@acme"]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	runWithInput("The summary comes from stdin.\n", "send", "frank@acme", "--question", "Can it wait?", "--as", "anna@acme", "--data", data).wants(t, "handed to frank@acme", url+"/inbox/")
	runWithInput("", "inbox", "--url", url, "--key-file", keyFile).wants(t, "ask_question", "The summary comes from stdin.")
	config := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(config, []byte(`{"url":"`+url+`/mcp/team","key_file":"`+keyFile+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	runWithInput("", "inbox", "--config", config).wants(t, "ask_question")
}

func TestAPersonWorksOnPostgreSQLToo(t *testing.T) {
	t.Parallel()
	at := []string{"--database-url", hubtest.PostgresURL(t)}
	aHub(t, at, "anna@acme", "frank@acme")
	runWithInput("", append([]string{"send", "frank@acme", "a summary", "--as", "anna@acme"}, at...)...).wants(t, "handed to frank@acme")
	inbox := runWithInput("", append([]string{"inbox", "--as", "frank@acme"}, at...)...)
	inbox.wants(t, "a summary", "1 unread", "inbox THREAD --as frank@acme --database-url …")
	if strings.Contains(inbox.stdout.String(), at[1]) {
		t.Error("the address of the database, which may hold a password, is repeated")
	}
	hubtest.Eventually(t, func() bool {
		p := runWithInput("", append([]string{"tail", "--after", "0", "--no-follow"}, at...)...)
		return p.code == 0 && strings.Contains(p.stdout.String(), "handoff.created")
	})
}

func TestAPersonsMistakesAreExplained(t *testing.T) {
	t.Parallel()
	data, _ := withAgents(t, "anna@acme")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"send", "nobody@acme", "x", "--as", "anna@acme", "--data", data}, 1, "handclasp agent list"},
		{[]string{"send", "frank@acme", "--as", "anna@acme", "--data", data}, 2, "second argument"},
		{[]string{"send", "frank@acme", "x", "--as", "anna@acme", "--data", data, "--diff", empty}, 1, "git diff"},
		{[]string{"send", "frank@acme", "-", "--as", "anna@acme", "--data", data, "--diff", "-"}, 2, "both want stdin"},
		{[]string{"inbox", "none", "--as", "anna@acme", "--data", data}, 1, "first 8 characters"},
		{[]string{"inbox", "01a22d09-none", "--as", "anna@acme", "--data", data}, 1, "no handoff"},
		{[]string{"inbox", "--as", "anna@acme", "--data", ""}, 2, "--data: it is empty"},
		{[]string{"--data", data, "agent", "list"}, 2, "flags stand behind the command"},
		{[]string{"send", "anna@acme", "x", "--as", "anna@acme", "--data", data}, 1, "handclasp agent list"},
		{[]string{"inbox", "--as", "ann@acme", "--data", data}, 1, "did you mean anna@acme? See handclasp agent list"},
		{[]string{"inbox", "--data", data}, 2, "--as is missing"},
		{[]string{"inbox", "--as", "anna@acme", "--url", "http://127.0.0.1:1"}, 2, "exclude each other"},
		{[]string{"inbox", "--url", "http://127.0.0.1:1"}, 2, "HANDCLASP_KEY"},
		{[]string{"inbox", "--url", "ftp://h", "--key-file", empty}, 2, "http or https"},
		{[]string{"inbox", "--url", "http://127.0.0.1:1", "--key-file", empty}, 2, "does not hold one API key"},
		{[]string{"inbox", "--config", empty}, 2, "as one JSON object"},
		{[]string{"inbox", "--as", "anna@acme", "--data", data, "--status", "open"}, 1, "pending"},
		{[]string{"tail", "--after", "x", "--data", data}, 1, "next_cursor"},
		{[]string{"tail", "--as", "ann@acme", "--data", data}, 1, "no agent"},
		{[]string{"tail", "--data", filepath.Join(data, "typo")}, 1, "there is no hub in"},
	} {
		p := runWithInput("", c.args...)
		if p.code != c.code || !strings.Contains(p.stderr.String(), c.want) {
			t.Errorf("%v: exit %d, %s", c.args, p.code, p.stderr.String())
		}
	}
}

func TestAHubThatRedirectsSendsTheKeyNowhereElse(t *testing.T) {
	t.Parallel()
	var strangers atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers.Add(1) }))
	t.Cleanup(elsewhere.Close)
	liar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(liar.Close)
	key := filepath.Join(t.TempDir(), "anna.key")
	if err := os.WriteFile(key, []byte("hc_live_0123"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"inbox"}, {"send", "frank@acme", "a summary"}} {
		p := runWithInput("", append(args, "--url", liar.URL, "--key-file", key)...)
		if p.code != 1 || !strings.Contains(p.stderr.String(), "root address") || strangers.Load() != 0 {
			t.Errorf("%v: exit %d, the stranger was asked %d times, %s", args, p.code, strangers.Load(), p.stderr.String())
		}
	}
}

func TestALongThreadIsOneDocumentWithAllItsMessages(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	id := w.send(0, "a long story")[0]
	const more = 60 // a page has 50
	w.within(func(h *hub.Hub, as func(string) hub.Call) {
		for i := range more {
			if _, err := h.Send(context.Background(), as("anna@acme"), hub.SendInput{ThreadID: id, Body: fmt.Sprint("message ", i)}); err != nil {
				t.Fatal(err)
			}
		}
	})
	var thread struct {
		ThreadID string `json:"thread_id"`
		HasMore  bool   `json:"has_more"`
		Messages []struct {
			Seq int `json:"sequence_no"`
		} `json:"messages"`
	}
	if err := json.Unmarshal([]byte(w.ok("inbox", id, "--as", "frank@acme", "--json")), &thread); err != nil {
		t.Fatal(err)
	}
	if thread.ThreadID != id || thread.HasMore || len(thread.Messages) != more+1 || thread.Messages[more].Seq != more+1 {
		t.Errorf("%d messages: %+v", len(thread.Messages), thread)
	}
}
