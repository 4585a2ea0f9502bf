package bridge_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"handclasp/internal/bridge"
)

var giant = strings.Repeat("x", 300<<10)

func TestALineThatIsNoMessageIsAnsweredAndTheNextOneWorks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ line, id, code string }{
		"broken JSON":          {`{"jsonrpc":"2.0","id":1,`, "null", "parse_error"},
		"a word":               {`hello`, "null", "parse_error"},
		"two documents":        {ping + ping, "null", "parse_error"},
		"a batch":              {`[` + ping + `]`, "null", "invalid_request"},
		"an empty batch":       {`[]`, "null", "invalid_request"},
		"a string":             {`"x"`, "null", "invalid_request"},
		"a number":             {`1.5`, "null", "invalid_request"},
		"null":                 {`null`, "null", "invalid_request"},
		"nothing in it":        {`{}`, "null", "invalid_request"},
		"no method":            {`{"jsonrpc":"2.0","id":7}`, "7", "invalid_request"},
		"an empty method":      {`{"jsonrpc":"2.0","id":7,"method":""}`, "7", "invalid_request"},
		"a method of a number": {`{"jsonrpc":"2.0","id":"a","method":7}`, `"a"`, "invalid_request"},
		"an id of null":        {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", "invalid_request"},
		"an id of an object":   {`{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, "null", "invalid_request"},
		"an id of a list":      {`{"jsonrpc":"2.0","id":[1],"method":"ping"}`, "null", "invalid_request"},
		"an id of true":        {`{"jsonrpc":"2.0","id":true,"method":"ping"}`, "null", "invalid_request"},
		"an id of bad UTF-8":   {"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}", "null", "invalid_request"},
		"bad UTF-8":            {"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{\"t\":\"\xc3\x28\"}}", "7", "parse_error"},
		"NUL":                  {"\x00", "null", "parse_error"},
		"NUL in a string":      {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\x00\"}", "null", "parse_error"},
		"NUL after it":         {ping + "\x00", "null", "parse_error"},
		"UTF-16":               {"\xff\xfe{\x00}\x00", "null", "parse_error"},
		"a giant":              {`{"jsonrpc":"2.0","id":7,"method":"` + giant + `"}`, "7", "content_too_large"},
		"its id in second":     {`{ "method" : "tools/call", "id" : "a-7" , "params":{"t":"` + giant + `"}}`, `"a-7"`, "content_too_large"},
		"its id at the end":    {`{"method":"tools/call","params":{"id":8,"t":"` + giant + `"},"jsonrpc":"2.0","id":7}`, "7", "content_too_large"},
		"its id with spaces":   {`{"params":{"t":"` + giant + `"}, "id" : -7 } ` + "\r", "-7", "content_too_large"},
		"its id within":        {`{"params":{"t":"` + giant + `"},"id":7,"jsonrpc":"2.0"}`, "null", "content_too_large"},
		"another's id":         {`{"params":{"t":"` + giant + `","id":7}}`, "null", "content_too_large"},
		"an id of its text":    {`{"params":{"id":7,"t":"` + giant + `,\"id\":7}"}}`, "null", "content_too_large"},
		"an odd id":            {`{"id":007,"params":{"t":"` + giant + `"}}`, "null", "content_too_large"},
		"an escaped id":        {`{"id":"\u0041","params":{"t":"` + giant + `"}}`, "null", "content_too_large"},
		"a giant of nothing":   {strings.Repeat("\x00", 300<<10), "null", "content_too_large"},
		"deep nesting":         {strings.Repeat("[", 60<<10), "null", "parse_error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := &recorder{}
			s := open(t, hub, func(cfg *bridge.Config) { cfg.MaxLine = 128 << 10 })
			s.send(c.line)
			s.next().wantError(t, c.id, c.code)
			s.send(ping)
			if got := s.next(); got.Result == nil || string(got.ID) != "1" {
				t.Errorf("the next line: %s", got.line)
			}
			if came := hub.all(); len(came) != 1 {
				t.Errorf("the hub got %d messages", len(came))
			}
		})
	}
}

func TestSpaceAroundAMessageMeansNothing(t *testing.T) {
	t.Parallel()
	hub := &recorder{}
	s := open(t, hub)
	if _, err := io.WriteString(s.in, "\xef\xbb\xbf"+ping+"\r\n\n\r\n  \t\n"+"  "+ping+"  \n\xef\xbb\xbf\n"+ping); err != nil {
		t.Fatal(err)
	}
	_ = s.in.Close() // the last line has no newline
	if rest := s.end(); len(rest) != 3 {
		t.Errorf("got %v", rest)
	}
	for _, a := range hub.all() {
		if a.body != ping {
			t.Errorf("the hub got %q", a.body)
		}
	}
}

func TestALineOfExactlyTheLimitPassesAndOneByteMoreIsSkipped(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{200, 64 << 10, 64<<10 + 1, 100 << 10} {
		for _, end := range []string{"\n", ""} {
			hub := &recorder{}
			s := open(t, hub, func(cfg *bridge.Config) { cfg.MaxLine = limit })
			fits := `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"t":"` + strings.Repeat("x", limit-len(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"t":""}}`)) + `"}}`
			long := strings.Replace(fits, `"x`, `"xx`, 1)
			if _, err := io.WriteString(s.in, fits+"\n"+long+"\n"+fits+"\n"+long+end); err != nil {
				t.Fatal(err)
			}
			_ = s.in.Close()
			good, bad := 0, 0
			for _, m := range s.end() {
				if m.Error != nil {
					m.wantError(t, "1", "content_too_large")
					bad++
				} else {
					good++
				}
			}
			if good != 2 || bad != 2 || len(hub.all()) != 2 {
				t.Errorf("of limit %d, end %q: %d passed, %d were refused", limit, end, good, bad)
			}
		}
	}
}

func TestAnAnswerOfTheClientIsTakenAndGoesNowhere(t *testing.T) {
	t.Parallel()
	hub := &recorder{}
	s := open(t, hub)
	s.send(`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`, `{"jsonrpc":"2.0","id":{},"result":null}`)
	_ = s.in.Close()
	if rest := s.end(); len(rest) != 0 || len(hub.all()) != 0 {
		t.Errorf("answered %v, sent %v", rest, hub.all())
	}
}

func TestThreeHundredRequestsAtOnceAreAllAnswered(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	arrived := make(chan struct{}, 300)
	s := open(t, hubFunc(func(r *http.Request) (*http.Response, error) {
		a := ask(r)
		arrived <- struct{}{}
		<-goOn
		return a.result("{}")
	}))
	written := make(chan error, 1)
	go func() {
		for i := range 300 {
			if _, err := fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", i); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for range 256 { // as many as run at the same time
		<-arrived
	}
	close(goOn)
	seen := map[string]bool{}
	for range 300 {
		m := s.next()
		if m.Result == nil || seen[string(m.ID)] {
			t.Fatalf("got %s", m.line)
		}
		seen[string(m.ID)] = true
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}
