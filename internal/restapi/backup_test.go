package restapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/restapi"
	"handclasp/internal/store"
)

func operator(f *hubtest.Fixture) http.Handler {
	return restapi.Operator(f.Hub, slog.New(slog.NewTextHandler(f.Log, nil)))
}

func TestABackupIsStreamedWhole(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Agent("anna@acme")
		srv := httptest.NewServer(operator(f))
		defer srv.Close()
		resp, err := http.Get(srv.URL + "/operator/backup")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		info, err := store.CheckBackup(resp.Body, nil)
		if err != nil || info.Rows["agents"] != 1 || resp.Header.Get("Content-Type") != "application/gzip" {
			t.Errorf("%v, %+v, %v", err, info, resp.Header)
		}
	})
}

func TestABackupThatCannotBeginIsAProblem(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	if err := f.Store.Close(); err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	operator(f).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/operator/backup", http.NoBody))
	if answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), "shutting down") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

// slow is an answer that waits at its first byte.
type slow struct {
	http.ResponseWriter
	gate *hubtest.Gate
}

func (s *slow) Write(p []byte) (int, error) {
	s.gate.Pass()
	return s.ResponseWriter.Write(p)
}

func TestABackupThatFailsInItsMiddleBreaksTheConnectionOff(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		for i := range 50 {
			if _, err := f.Hub.AddAgent(context.Background(), hubtest.Operator(), hub.AgentInput{Handle: fmt.Sprintf("agent%d@acme", i)}); err != nil {
				t.Fatal(err)
			}
		}
		s := &slow{gate: hubtest.NewGate()}
		h := operator(f)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.ResponseWriter = w
			h.ServeHTTP(s, r)
		}))
		defer srv.Close()
		closed := make(chan error, 1)
		go func() {
			<-s.gate.Reached
			closed <- f.Store.Close()
		}()
		go func() {
			<-s.gate.Reached
			hubtest.Eventually(t, func() bool { return f.Store.Ping(context.Background()) != nil })
			close(s.gate.Opened)
		}()
		resp, err := http.Get(srv.URL + "/operator/backup")
		var got []byte
		if err == nil { // else nothing at all came
			got, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Error("the answer ended as if it were whole")
		}
		if _, err := store.CheckBackup(bytes.NewReader(got), nil); !errors.As(err, new(store.BadBackupError)) {
			t.Errorf("what came is taken for whole: %v", err)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if !strings.Contains(f.Log.String(), "a backup broke off") {
			t.Errorf("the log says nothing: %s", f.Log)
		}
	})
}
