// Command bench measures the hub against the raw limit of the machine it runs on.
//
// Every pair that is compared is measured in the same run, alternating, and each measurement
// has a process of its own; over MCP the load comes from a further process. Ratios are what
// counts, absolutes are printed with them.
//
//	go run ./internal/bench            # everything, some minutes
//	go run ./internal/bench -seconds 2 -only sqlite
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sort"
	"strings"
	"time"

	"handclasp/internal/hubtest"
)

// job is one measurement, carried out by a child process.
type job struct {
	Kind     string        `json:"kind"` // raw, hub, cycle, load
	Database string        `json:"database"`
	URL      string        `json:"url"`
	Key      string        `json:"key"`
	Path     string        `json:"path"`
	Body     string        `json:"body"`
	Expect   string        `json:"expect"` // what an answer must hold; "thread_id" if empty
	Callers  int           `json:"callers"`
	Duration time.Duration `json:"duration"`
}

// outcome is what a child reports.
type outcome struct {
	PerSecond float64       `json:"per_second"`
	P50       time.Duration `json:"p50"`
	P99       time.Duration `json:"p99"`
	Errors    int           `json:"errors"`
	LastError string        `json:"last_error,omitempty"`
}

func main() {
	seconds := flag.Float64("seconds", 4, "length of one measurement")
	rounds := flag.Int("rounds", 3, "measurements of each kind; the median counts")
	only := flag.String("only", "", "sqlite, postgres, claims, backlog, wake, mcp, desk or resident: just that part")
	child := flag.String("child", "", "internal: carry out one measurement")
	serve := flag.String("serve", "", "internal: serve bare or noop")
	flag.Parse()
	if *serve != "" {
		fail(serveChild(*serve))
	}
	if *child != "" {
		var j job
		if err := json.Unmarshal([]byte(*child), &j); err != nil {
			fail(err)
		}
		var out any
		var err error
		switch j.Kind {
		case "backlog":
			out, err = j.backlog()
		case "due":
			out, err = j.due()
		case "redeem":
			out, err = j.redeem()
		case "wake-load":
			out, err = j.wakeLoad()
		case "park-load":
			out, err = j.parkLoad()
		default:
			out, err = j.run()
		}
		if err != nil {
			fail(err)
		}
		_ = json.NewEncoder(os.Stdout).Encode(out)
		return
	}
	b := &bench{duration: time.Duration(*seconds * float64(time.Second)), rounds: *rounds}
	fmt.Printf("%s, %d cores, %s, %s\n", time.Now().UTC().Format(time.RFC3339), runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH, runtime.Version())
	parts := map[string]func() error{"sqlite": b.sqlite, "postgres": b.postgres, "claims": b.claims, "backlog": b.backlog, "wake": b.wake, "mcp": b.mcp, "desk": b.desk, "resident": b.resident}
	for _, name := range []string{"sqlite", "postgres", "claims", "backlog", "wake", "mcp", "desk", "resident"} {
		if *only != "" && *only != name {
			continue
		}
		if err := parts[name](); err != nil {
			fail(fmt.Errorf("%s: %w", name, err))
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

type bench struct {
	duration time.Duration
	rounds   int
}

// measure runs the jobs in turn, round by round, and returns the median of each.
func (b *bench) measure(jobs ...job) ([]outcome, error) {
	all := make([][]outcome, len(jobs))
	for range b.rounds {
		for i, j := range jobs {
			j.Duration = b.duration
			out, err := j.inChild()
			if err != nil {
				return nil, err
			}
			if out.Errors > 0 {
				return nil, fmt.Errorf("%s had %d errors: %s", j.Kind, out.Errors, out.LastError)
			}
			all[i] = append(all[i], out)
		}
	}
	medians := make([]outcome, len(jobs))
	for i, outs := range all {
		sort.Slice(outs, func(x, y int) bool { return outs[x].PerSecond < outs[y].PerSecond })
		medians[i] = outs[len(outs)/2]
	}
	return medians, nil
}

// inChild carries out the job in a process of its own.
func (j job) inChild() (outcome, error) {
	var out outcome
	return out, j.child(&out)
}

// child carries out the job in a process of its own, which reports in the shape of out.
func (j job) child(out any) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	arg, err := json.Marshal(j)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), self, "-child", string(arg))
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", j.Kind, err)
	}
	return json.Unmarshal(text, out)
}

func (j job) run() (outcome, error) {
	switch j.Kind {
	case "raw", "raw-desk":
		return j.raw()
	case "desk":
		return j.desk()
	case "mail":
		return j.mail()
	case "hub", "cycle":
		return j.hub()
	case "claim-next", "claim-ids":
		return j.claims()
	case "raw-claims", "raw-ids":
		return j.rawClaims()
	case "load":
		return j.load()
	}
	return outcome{}, fmt.Errorf("unknown kind %q", j.Kind)
}

var callers = []int{1, 16, 64}

func (b *bench) sqlite() error { return b.database("sqlite", "") }

func (b *bench) postgres() error { return onPostgres(b.database) }

func (b *bench) claims() error {
	if err := b.claimTable("sqlite", ""); err != nil {
		return err
	}
	return onPostgres(b.claimTable)
}

// onPostgres runs a part on a cluster of its own.
func onPostgres(part func(name, url string) error) error {
	c, err := hubtest.StartCluster(true)
	if err != nil {
		fmt.Println("\nPostgreSQL: not measured:", err)
		return nil
	}
	defer func() { _ = c.Close() }()
	return part("postgres", c.URL("postgres"))
}

// database compares the hub's create with the same rows written as fast as the driver can,
// and shows the full cycle create, accept, complete.
func (b *bench) database(name, url string) error {
	fmt.Printf("\n%s: the rows of one create, per second (median of %d)\n\n", name, b.rounds)
	fmt.Println("| callers | raw limit | hub create | ratio | p50 | p99 | full cycle |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, n := range callers {
		j := job{Database: name, URL: url, Callers: n}
		raw, hub, cycle := j, j, j
		raw.Kind, hub.Kind, cycle.Kind = "raw", "hub", "cycle"
		out, err := b.measure(raw, hub, cycle)
		if err != nil {
			return err
		}
		fmt.Printf("| %d | %.0f | %.0f | %.2f | %s | %s | %.0f |\n", n, out[0].PerSecond, out[1].PerSecond, out[1].PerSecond/out[0].PerSecond, ms(out[1].P50), ms(out[1].P99), out[2].PerSecond)
	}
	return nil
}

func ms(d time.Duration) string {
	return strings.TrimSuffix(fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000), "")
}
