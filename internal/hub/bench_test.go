package hub_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func BenchmarkCreate(b *testing.B) {
	for _, kind := range hubtest.Kinds() {
		b.Run(kind, func(b *testing.B) {
			f := hubtest.New(b, kind, hubtest.RealClock())
			anna := f.Agent("anna@acme")
			f.Agent("frank@acme")
			var n atomic.Int64
			b.SetParallelism(32)
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					_, err := f.Hub.Create(context.Background(), anna, hub.CreateInput{To: "frank@acme", Intent: handoff.Inform, Summary: "a summary of the work", IdempotencyKey: fmt.Sprint("k", n.Add(1))})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
