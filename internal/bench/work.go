package main

import (
	"sort"
	"sync"
	"time"
)

// warmup is how long work goes on before it counts: caches, prepared statements, connections.
const warmup = 700 * time.Millisecond

// work calls do from n goroutines at once and counts what is finished after the warm-up.
func work(n int, d time.Duration, do func(worker, i int) error) outcome {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []time.Duration
	var out outcome
	start := time.Now()
	from, until := start.Add(warmup), start.Add(warmup+d)
	for w := range n {
		wg.Go(func() {
			var took []time.Duration
			errors, last := 0, ""
			for i := 0; ; i++ {
				began := time.Now()
				if began.After(until) {
					break
				}
				err := do(w, i)
				end := time.Now()
				if err != nil {
					errors, last = errors+1, err.Error()
					if errors > 10 {
						break
					}
				}
				if end.After(from) && end.Before(until) {
					took = append(took, end.Sub(began))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			out.Errors += errors
			if last != "" {
				out.LastError = last
			}
		})
	}
	wg.Wait()
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	out.PerSecond = float64(len(all)) / d.Seconds()
	if len(all) > 0 {
		out.P50, out.P99 = all[len(all)/2], all[len(all)*99/100]
	}
	return out
}
