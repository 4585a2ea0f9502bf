package main

import (
	"fmt"
	"io"
	"time"
)

const (
	progressAfter = time.Second // what is done sooner needs none
	progressTTY   = 200 * time.Millisecond
	progressLog   = 5 * time.Second
)

// progress tells on stderr how far something is that takes over a second: on a terminal one line
// that is written anew, elsewhere a line every few seconds.
type progress struct {
	w           io.Writer
	quiet, tty  bool
	next        time.Time
	shown, tick int
}

// newProgress begins to count; quiet says nothing at all.
func newProgress(w io.Writer, quiet bool) *progress {
	return &progress{w: w, quiet: quiet, tty: isTerminal(w), next: time.Now().Add(progressAfter)}
}

// show is called as often as it likes; text is asked only when it is time for it.
func (p *progress) show(text func() string) {
	if p.tick++; p.quiet || p.tick%64 != 1 { // asking for the time costs more than a row
		return
	}
	now := time.Now()
	if now.Before(p.next) {
		return
	}
	p.shown++
	if p.tty {
		p.next = now.Add(progressTTY)
		fmt.Fprintf(p.w, "\r\x1b[K%s", text())
		return
	}
	p.next = now.Add(progressLog)
	fmt.Fprintln(p.w, text())
}

// end clears the line.
func (p *progress) end() {
	if p.tty && p.shown > 0 {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
