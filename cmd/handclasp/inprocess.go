package main

import (
	"fmt"
	"io"
	"net/http"
	"sync"
)

// inProcess answers requests with a handler, without a connection. The answer streams: the handler
// runs on until the body is read to its end or closed. So a hub that only this process uses has no
// address.
type inProcess struct{ h http.Handler }

// RoundTrip calls the handler and returns once it began to answer.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, w := io.Pipe()
	a := &answer{header: http.Header{}, body: w, began: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if p := recover(); p != nil { // http.ErrAbortHandler: the answer broke off
				_ = w.CloseWithError(fmt.Errorf("the answer broke off: %v", p))
			}
			a.WriteHeader(http.StatusOK)
		}()
		p.h.ServeHTTP(a, r)
		a.WriteHeader(http.StatusOK)
		_ = w.Close()
	}()
	<-a.began
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, Body: &answerBody{body, ended}, ContentLength: -1, Request: r,
	}, nil
}

// answer is the handler's side.
type answer struct {
	header, sent http.Header
	body         *io.PipeWriter
	once         sync.Once
	began        chan struct{}
	status       int
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		close(a.began)
	})
}

// Flush has nothing to do: what is written is read at once.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// answerBody is the reader's side. Closing it lets the handler end, and waits for that: the database
// is closed next.
type answerBody struct {
	*io.PipeReader
	ended chan struct{}
}

func (b *answerBody) Close() error {
	err := b.PipeReader.Close()
	<-b.ended
	return err
}
