package telemetry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"io"
	"log/slog"
	"regexp"
)

type requestIDKey struct{}

var requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// WithRequestID gives ctx the id of a request: the one that a proxy in front chose if it is
// well formed, else a new one.
func WithRequestID(ctx context.Context, given string) (context.Context, string) {
	id := given
	if !requestID.MatchString(id) {
		b := make([]byte, 8)
		_, _ = rand.Read(b) // never fails (crypto/rand)
		id = hex.EncodeToString(b)
	}
	return context.WithValue(ctx, requestIDKey{}, id), id
}

// RequestID is the id that ctx carries; empty when there is none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// NewLogger writes to w as "text" or "json"; every line of a request carries its id.
func NewLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(w, options)
	if format == "json" {
		h = slog.NewJSONHandler(w, options)
	}
	return slog.New(contextHandler{h})
}

type contextHandler struct{ slog.Handler }

func (h contextHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := RequestID(ctx); id != "" {
		r.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

func (h contextHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return contextHandler{h.Handler.WithAttrs(attrs)}
}

func (h contextHandler) WithGroup(name string) slog.Handler {
	return contextHandler{h.Handler.WithGroup(name)}
}
