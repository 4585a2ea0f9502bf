package bridge_test

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"handclasp/internal/bridge"
)

// asManyAsRun calls are answered at the same time; further ones wait.
const asManyAsRun = 256

// full is a session whose calls, from id 1000 on, have taken every place at the hub.
func full(t *testing.T, hub *parked, change ...func(*bridge.Config)) *session {
	t.Helper()
	s := open(t, hub, change...)
	for i := range asManyAsRun {
		s.send(tool(strconv.Itoa(1000+i), `{}`))
	}
	for range asManyAsRun {
		<-hub.arrived
	}
	return s
}

func cancelled(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

func TestACancellationIsSeenAlthoughEveryPlaceIsTaken(t *testing.T) {
	t.Parallel()
	hub := park()
	s := full(t, hub)
	s.send(tool("1", `{}`), tool("2", `{}`), cancelled("1"), cancelled("1007"))
	if a := <-hub.left; a.id != "1007" {
		t.Errorf("%s was ended", a.id)
	}
	if a := <-hub.arrived; a.id != "2" { // it has the place that became free
		t.Errorf("%s reached the hub", a.id)
	}
	close(hub.goOn)
	_ = s.in.Close()
	answered := map[string]bool{}
	for _, m := range s.end() {
		answered[string(m.ID)] = true
	}
	if len(answered) != asManyAsRun || answered["1"] || answered["1007"] || !answered["2"] {
		t.Errorf("%d calls were answered: %v", len(answered), answered)
	}
}

func TestASessionEndsAlthoughEveryPlaceIsTaken(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*session){
		"the client closes its end": func(s *session) { _ = s.in.Close() },
		"a signal comes":            func(s *session) { s.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := park()
			s := full(t, hub, func(c *bridge.Config) { c.Linger = time.Millisecond })
			s.send(tool("1", `{}`))
			end(s)
			for range asManyAsRun {
				<-hub.left
			}
			if rest := s.end(); len(rest) != 0 {
				t.Errorf("got %v", rest)
			}
			if len(hub.arrived) != 0 {
				t.Error("the call that waited was sent after the end")
			}
		})
	}
}

// The hub takes a second for each call, and only so many run at a time.
func TestWhoWritesManyCallsAndLeavesGetsAllAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, hubFunc(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return ask(r).result("{}")
		}), func(c *bridge.Config) { c.Linger = 2200 * time.Millisecond })
		for i := range 8 * asManyAsRun {
			s.send(tool(strconv.Itoa(i), `{}`))
		}
		_ = s.in.Close()
		if rest := s.end(); len(rest) != 8*asManyAsRun {
			t.Errorf("%d of %d calls were answered", len(rest), 8*asManyAsRun)
		}
	})
}

func TestAHandshakeBehindManyCallsGoesThrough(t *testing.T) {
	t.Parallel()
	hub := park()
	s := full(t, hub)
	s.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
	for i := range asManyAsRun {
		s.send(tool(strconv.Itoa(i), `{}`))
	}
	close(hub.goOn)
	for range 2*asManyAsRun + 1 {
		if m := s.next(); m.Result == nil || m.Result.IsError {
			t.Fatalf("got %s", m.line)
		}
	}
}
