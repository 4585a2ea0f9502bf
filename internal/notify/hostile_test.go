package notify

import (
	"context"
	"strings"
	"testing"
	"time"

	"handclasp/internal/handoff"
)

// upTo plays a server that behaves until it is to answer the command that begins with stop, and
// then does what it is told. The message itself is the command ".".
func upTo(stop string, then func(*line)) func(*line) {
	return func(l *line) {
		if stop == "" {
			then(l)
			return
		}
		l.say("220 hello")
		for {
			command := l.hear()
			if command == "" {
				return
			}
			if strings.HasPrefix(command, stop) {
				then(l)
				return
			}
			switch command {
			case "DATA":
				l.say("354 go on")
				if !l.hearMessage() {
					return
				}
				if stop == "." {
					then(l)
					return
				}
				l.say("250 taken as 42")
			case "QUIT":
				l.say("221 bye")
				return
			default:
				l.say("250 fine")
			}
		}
	}
}

func TestAServerThatLeavesAtAnyStepIsBelievedOnlyWhatItSaid(t *testing.T) {
	t.Parallel()
	leave := func(*line) {}
	say := func(s string) func(*line) { return func(l *line) { l.say(s); l.hang() } }
	tests := []struct {
		name   string
		at     string
		then   func(*line)
		kind   handoff.OutcomeKind
		reason string
	}{
		{"no greeting", "", leave, handoff.OutcomeFailed, ReasonUnreachable},
		{"a greeting that is no mail server's", "", say("* OK IMAP4 ready"), handoff.OutcomeFailed, ReasonUnreachable},
		{"a greeting that closes", "", say("554 no service here"), handoff.OutcomeFailed, "provider_554"},
		{"too many connections", "", say("421 come back later"), handoff.OutcomeFailed, "provider_421"},
		{"gone at EHLO", "EHLO", leave, handoff.OutcomeFailed, ReasonUnreachable},
		{"gone at MAIL", "MAIL", leave, handoff.OutcomeFailed, ReasonUnreachable},
		{"gone at RCPT", "RCPT", leave, handoff.OutcomeFailed, ReasonUnreachable},
		{"gone at DATA", "DATA", leave, handoff.OutcomeFailed, ReasonUnreachable},
		{"shutting down at RCPT", "RCPT", func(l *line) { l.say("421 shutting down") }, handoff.OutcomeFailed, "provider_421"},
		{"DATA refused", "DATA", func(l *line) { l.say("554 no valid recipients") }, handoff.OutcomeRefused, "provider_554"},
		{"DATA taken for done", "DATA", say("250 done"), handoff.OutcomeFailed, ReasonUnreachable},
		{"gone right after the dot", ".", leave, handoff.OutcomeUnknown, ReasonNoAnswer},
		{"noise after the dot", ".", say("???"), handoff.OutcomeUnknown, ReasonNoAnswer},
		{"half an answer after the dot", ".", func(l *line) { _, _ = l.Write([]byte("25")) }, handoff.OutcomeUnknown, ReasonNoAnswer},
		{"a question after the dot", ".", say("354 and then?"), handoff.OutcomeUnknown, ReasonNoAnswer},
		{"a refusal after the dot", ".", func(l *line) { l.say("550 spam") }, handoff.OutcomeRefused, "provider_550"},
		{"later after the dot", ".", func(l *line) { l.say("451 greylisted") }, handoff.OutcomeFailed, "provider_451"},
		{"taken and gone", ".", func(l *line) { l.say("250 taken") }, handoff.OutcomeSent, ""},
		{"gone at QUIT", "QUIT", leave, handoff.OutcomeSent, ""},
		{"refused at QUIT", "QUIT", func(l *line) { l.say("550 stay") }, handoff.OutcomeSent, ""},
		{"silent at QUIT", "QUIT", (*line).hang, handoff.OutcomeSent, ""},
		{"endless at QUIT", "QUIT", func(l *line) { l.dribble("221-bye\r\n") }, handoff.OutcomeSent, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := emailTo(t, script(t, upTo(tt.at, tt.then)), unprotected)
			wantOutcome(t, e.Send(t.Context(), aNotification()), tt.kind, tt.reason)
		})
	}
}

func TestNoServerHoldsASenderLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	ways := map[string]func(*line){
		"silent":           (*line).hang,
		"endless lines":    func(l *line) { l.dribble("250-and\r\n") },
		"an endless line":  func(l *line) { l.dribble("250-andandand") },
		"endless banners":  func(l *line) { l.dribble("220-welcome\r\n") },
		"a byte at a time": func(l *line) { drip(l, "2") },
	}
	steps := map[string]handoff.OutcomeKind{
		"": handoff.OutcomeFailed, "EHLO": handoff.OutcomeFailed, "MAIL": handoff.OutcomeFailed, "RCPT": handoff.OutcomeFailed,
		"DATA": handoff.OutcomeFailed, ".": handoff.OutcomeUnknown,
	}
	for step, kind := range steps {
		for way, then := range ways {
			t.Run(step+" "+way, func(t *testing.T) {
				t.Parallel()
				e := emailTo(t, script(t, upTo(step, then)), func(c *EmailConfig) { unprotected(c); c.Timeout = 300 * time.Millisecond })
				begun := time.Now()
				o := e.Send(t.Context(), aNotification())
				if o.Kind != kind {
					t.Errorf("outcome %+v, want %s", o, kind)
				}
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		}
	}
}

// drip says s slowly for as long as anybody listens.
func drip(l *line, s string) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := l.Write([]byte(s)); err != nil {
			return
		}
	}
}

func TestASilentTLSHandshakeEndsWithTheTimeout(t *testing.T) {
	t.Parallel()
	starttls := func(l *line) {
		l.say("220 hello")
		l.hear()
		l.say("250-hello")
		l.say("250 STARTTLS")
		l.hear()
		l.say("220 go on")
		l.hang()
	}
	for name, tt := range map[string]struct {
		play func(*line)
		mode TLSMode
	}{"starttls": {starttls, TLSStart}, "implicit": {(*line).hang, TLSImplicit}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := emailTo(t, script(t, tt.play), func(c *EmailConfig) { c.TLS, c.Timeout = tt.mode, 200*time.Millisecond })
			wantOutcome(t, e.Send(t.Context(), aNotification()), handoff.OutcomeFailed, ReasonUnreachable)
			if e.Check(t.Context()) == nil {
				t.Error("the check passes")
			}
		})
	}
}

func TestACancelledCallEndsAtOnce(t *testing.T) {
	t.Parallel()
	for step, kind := range map[string]handoff.OutcomeKind{"RCPT": handoff.OutcomeFailed, ".": handoff.OutcomeUnknown} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			e := emailTo(t, script(t, upTo(step, func(l *line) { cancel(); l.hang() })), unprotected)
			if o := e.Send(ctx, aNotification()); o.Kind != kind {
				t.Errorf("outcome %+v, want %s", o, kind)
			}
		})
	}
}

// A server, or somebody in between, that answers in the clear for what comes after STARTTLS.
func TestWhatWasSaidBeforeTLSCountsForNothing(t *testing.T) {
	t.Parallel()
	secrets := make(chan string, 1)
	play := func(l *line) {
		l.say("220 hello")
		l.hear()
		l.say("250-hello")
		l.say("250-AUTH PLAIN")
		l.say("250 STARTTLS")
		l.hear()
		l.say("220 go on\r\n250-hello\r\n250 AUTH PLAIN\r\n235 welcome\r\n250 ok\r\n250 ok\r\n354 go on\r\n250 taken")
		secrets <- l.hear()
	}
	e := emailTo(t, script(t, play), nil)
	if o := e.Send(t.Context(), aNotification()); o.Kind != handoff.OutcomeFailed {
		t.Errorf("outcome %+v", o)
	}
	if said := <-secrets; strings.Contains(said, "AUTH") || strings.Contains(said, "EHLO") {
		t.Errorf("it goes on in the clear: %q", said)
	}
}

func TestALyingServerDoesNotGetThePasswordInTheClear(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 1)
	play := func(l *line) {
		l.say("220 hello")
		l.hear()
		l.say("250-hello")
		l.say("250 AUTH PLAIN LOGIN")
		heard <- l.hear()
	}
	e := emailTo(t, script(t, play), nil)
	wantOutcome(t, e.Send(t.Context(), aNotification()), handoff.OutcomeFailed, ReasonTLS)
	if said := <-heard; said != "" {
		t.Errorf("it says %q", said)
	}
}

func TestAServerThatAsksForMoreAndMoreGetsNothingMore(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "LOGIN", "CRAM-MD5"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			play := func(l *line) {
				l.say("220 hello")
				l.hear()
				l.say("250-hello")
				l.say("250 AUTH " + mechanism)
				for l.hear() != "" {
					l.say("334 bW9yZQ==")
				}
			}
			e := emailTo(t, script(t, play), func(c *EmailConfig) { c.TLS = TLSNone; c.Timeout = 2 * time.Second })
			if o := e.Send(t.Context(), aNotification()); o.Kind != handoff.OutcomeFailed {
				t.Errorf("outcome %+v", o)
			} else {
				wantOutcome(t, o, o.Kind, o.Reason)
			}
		})
	}
}
