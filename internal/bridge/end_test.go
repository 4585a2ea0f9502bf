package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"handclasp/internal/bridge"
)

// parked is a hub whose calls wait until the test lets them go, or their caller leaves.
type parked struct {
	arrived chan asked
	left    chan asked
	goOn    chan struct{}
}

func park() *parked {
	return &parked{make(chan asked, 1000), make(chan asked, 1000), make(chan struct{})}
}

func (h *parked) RoundTrip(r *http.Request) (*http.Response, error) {
	a := ask(r)
	h.arrived <- a
	select {
	case <-h.goOn:
		return a.result("{}")
	case <-r.Context().Done():
		h.left <- a
		return nil, r.Context().Err()
	}
}

const cancelOne = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"r"}}`

func TestACancelledCallEndsAtTheHubAndBringsNoAnswer(t *testing.T) {
	t.Parallel()
	hub := park()
	s := open(t, hub)
	s.send(inboxCall, strings.Replace(inboxCall, `"id":1`, `"id":"1"`, 1))
	<-hub.arrived
	<-hub.arrived
	for _, nonsense := range []string{`{"requestId":99}`, `{"requestId":null}`, `{"requestId":{}}`, `{}`, `[1]`, `1`} {
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":` + nonsense + `}`)
	}
	s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, cancelOne)
	if a := <-hub.left; a.id != "1" {
		t.Errorf("%s was ended", a.id)
	}
	close(hub.goOn)
	if got := s.next(); string(got.ID) != `"1"` {
		t.Errorf("got %s", got.line)
	}
	_ = s.in.Close()
	if rest := s.end(); len(rest) != 0 {
		t.Errorf("the cancelled call was answered: %v", rest)
	}
}

func TestTwoRequestsWithOneIDAreBothAnsweredAndBothCancelled(t *testing.T) {
	t.Parallel()
	hub := park()
	s := open(t, hub)
	s.send(inboxCall, inboxCall)
	one, two := <-hub.arrived, <-hub.arrived
	if one.header.Get("Idempotency-Key") == two.header.Get("Idempotency-Key") {
		t.Error("two calls share a key")
	}
	hub.goOn <- struct{}{}
	s.next()
	s.send(cancelOne) // the one that is left, whichever came first
	<-hub.left
	s.send(inboxCall, inboxCall)
	<-hub.arrived
	<-hub.arrived
	s.send(cancelOne)
	<-hub.left
	<-hub.left
	_ = s.in.Close()
	if rest := s.end(); len(rest) != 0 {
		t.Errorf("cancelled calls were answered: %v", rest)
	}
}

func TestCallsStillEndAfterTheClientHasClosedItsEnd(t *testing.T) {
	t.Parallel()
	hub := park()
	s := open(t, hub)
	s.send(inboxCall)
	<-hub.arrived
	_ = s.in.Close()
	hub.goOn <- struct{}{}
	if got := s.next(); got.Result == nil {
		t.Errorf("got %s", got.line)
	}
	s.end()
}

func TestCallsThatOutlastTheLingerAreEnded(t *testing.T) {
	t.Parallel()
	hub := park()
	s := open(t, hub, func(c *bridge.Config) { c.Linger = time.Millisecond })
	s.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`, inboxCall)
	<-hub.arrived
	_ = s.in.Close()
	<-hub.left
	if rest := s.end(); len(rest) != 0 {
		t.Errorf("got %v", rest)
	}
}

func TestNothingIsRepeatedForLongOnceTheClientHasClosedItsEnd(t *testing.T) {
	t.Parallel()
	tried := make(chan struct{}, 1)
	s := open(t, hubFunc(func(*http.Request) (*http.Response, error) {
		select {
		case tried <- struct{}{}:
		default:
		}
		return refused()
	}), func(c *bridge.Config) { c.Patience, c.Linger = time.Hour, 20*time.Millisecond })
	s.send(inboxCall)
	<-tried
	_ = s.in.Close()
	rest := s.end()
	if len(rest) > 1 {
		t.Fatalf("got %v", rest)
	}
	for _, m := range rest { // unless the linger was over first
		m.wantToolError(t, "1", "unavailable", "Nothing was sent.")
	}
}

func TestAClientThatNoLongerReadsEndsTheSessionAndItsCalls(t *testing.T) {
	t.Parallel()
	hub := park()
	s := open(t, hub)
	s.send(inboxCall, strings.Replace(inboxCall, `"id":1`, `"id":2`, 1))
	<-hub.arrived
	<-hub.arrived
	_ = s.out.Close()
	hub.goOn <- struct{}{}
	<-hub.left // the other call
	s.end()    // although stdin is open
}

func TestASignalEndsTheSessionAtOnce(t *testing.T) {
	t.Parallel()
	for _, first := range []string{inboxCall, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`} {
		hub := park()
		s := open(t, hub)
		s.send(first)
		<-hub.arrived
		s.stop()
		<-hub.left
		if rest := s.end(); len(rest) != 0 {
			t.Errorf("got %v", rest)
		}
	}
	idle := open(t, park())
	idle.stop()
	idle.end()
}

// stuck is a client that neither reads nor leaves.
type stuck struct{ reached, goOn chan struct{} }

func (w stuck) Write(p []byte) (int, error) {
	close(w.reached)
	<-w.goOn
	return len(p), nil
}

func TestASignalEndsASessionWhoseClientDoesNotRead(t *testing.T) {
	t.Parallel()
	out := stuck{make(chan struct{}), make(chan struct{})}
	t.Cleanup(func() { close(out.goOn) })
	s := open(t, &recorder{}, func(c *bridge.Config) { c.Out = out })
	s.send(ping)
	<-out.reached
	s.stop()
	s.end()
}

func TestAFaultOfReadingEndsTheSessionWithIt(t *testing.T) {
	t.Parallel()
	s := open(t, &recorder{})
	s.send(ping)
	s.next()
	fault := errors.New("input/output error")
	_ = s.in.CloseWithError(fault)
	if err := <-s.ended; !errors.Is(err, fault) {
		t.Errorf("got %v", err)
	}
}

// TestWhateverComesIsAnsweredInProtocol sends lines that were damaged and lets a hub give damaged
// answers. Every line is checked by the kit.
func TestWhateverComesIsAnsweredInProtocol(t *testing.T) {
	t.Parallel()
	seeds := []string{
		ping, inboxCall, `{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		tool(`"ü"`, `"{\"idempotency_key\":[null],\"metadata\":\"{}\"}"`), `{"jsonrpc":"2.0","id":1,"result":{}}`, `[1]`,
	}
	for seed := range 8 {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			damage := newDamage(uint64(seed))
			hubs := newDamage(uint64(seed) + 100)
			s := open(t, hubFunc(func(r *http.Request) (*http.Response, error) {
				a := ask(r)
				good := `{"jsonrpc":"2.0","id":` + a.id + `,"result":{"a":[1.10,"x"]}}`
				switch hubs.pick(6) {
				case 0:
					return refused()
				case 1:
					return reply(200+hubs.pick(400), "application/json", hubs.bytes(good))
				case 2:
					return reply(200, "text/event-stream", "data: "+hubs.bytes(good)+"\n\ndata: "+good+"\n\n")
				case 3:
					return reply(hubs.pick(600), hubs.bytes("text/html"), hubs.bytes("<p>"))
				}
				return a.result(`{}`)
			}), func(c *bridge.Config) { c.Patience, c.MaxLine = time.Nanosecond, 4096 })
			go func() {
				for range 1500 {
					_, _ = io.WriteString(s.in, damage.bytes(seeds[damage.pick(len(seeds))])+"\n")
				}
				_ = s.in.Close()
			}()
			for line := range s.lines {
				wantMessage(t, line)
			}
			if err := <-s.ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func FuzzBridge(f *testing.F) {
	f.Add([]byte(ping+"\n"+inboxCall), []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`), false)
	f.Add([]byte("\xef\xbb\xbf[1]\r\n"+tool(`"x"`, `"null"`)), []byte("data: "+notNow+"\n\n"), true)
	f.Fuzz(func(t *testing.T, in, answer []byte, stream bool) {
		kind := "application/json"
		if stream {
			kind = "text/event-stream"
		}
		s := open(t, hubFunc(func(*http.Request) (*http.Response, error) { return reply(200, kind, string(answer)) }),
			func(c *bridge.Config) { c.Patience, c.MaxLine = time.Nanosecond, 4096 })
		go func() {
			_, _ = s.in.Write(in)
			_ = s.in.Close()
		}()
		for line := range s.lines {
			m := wantMessage(t, line)
			if !json.Valid([]byte(m.line)) {
				t.Errorf("%q", line)
			}
		}
		if err := <-s.ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
