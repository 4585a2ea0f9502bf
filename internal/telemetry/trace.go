package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// ValidTraceParent reports whether s is a traceparent of W3C Trace Context with a trace id and
// a parent id that are not all zero.
func ValidTraceParent(s string) bool {
	if s == "" {
		return false
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": s})
	return trace.SpanContextFromContext(ctx).IsValid()
}
