// Command conformance runs the official MCP conformance suite against the hub, and against the
// hub's door with the fixtures that most of the suite's scenarios ask for by name. It writes what
// came out below docs/conformance, and fails if anything is not as expected.go says.
//
// scripts/conformance fetches the suite and starts this.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// run is one pass of the suite: a target at one revision of the protocol.
type run struct {
	target   *target
	revision string
	results  []result
}

func (r *run) name() string { return r.target.name + "-" + r.revision }

func main() {
	node := flag.String("node", "node", "the program that runs the suite, Node 22 or newer")
	dir := flag.String("suite", "", "folder of the npm package @modelcontextprotocol/conformance")
	binary := flag.String("hub", "", "the handclasp program")
	work := flag.String("work", "", "an empty folder for what is thrown away")
	out := flag.String("out", "docs/conformance", "where the results are kept")
	without := flag.String("without", "", "leave out this fixture tool, to see that the run then fails; nothing is kept")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &suite{node: *node, dir: *dir, work: *work}
	faults, err := all(ctx, s, *binary, *work, *out, *without)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
	for _, f := range faults {
		fmt.Println("NOT as expected:", f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

func all(ctx context.Context, s *suite, binary, work, out, without string) (faults []string, err error) {
	hub, err := startHub(ctx, binary, filepath.Join(work, "hub"))
	if err != nil {
		return nil, err
	}
	defer hub.stop()
	plain, err := startFixture(ctx, filepath.Join(work, "fixture"), false, without)
	if err != nil {
		return nil, err
	}
	defer plain.stop()
	sessions, err := startFixture(ctx, filepath.Join(work, "sessions"), true, without)
	if err != nil {
		return nil, err
	}
	defer sessions.stop()

	fmt.Println(summaryHead)
	runs := []*run{
		{target: hub, revision: "2026-07-28"},
		{target: hub, revision: "2025-11-25"},
		{target: plain, revision: "2026-07-28"},
		{target: plain, revision: "2025-11-25"},
		{target: sessions, revision: "2025-11-25"},
	}
	for _, r := range runs {
		if r.results, err = s.run(ctx, r.name(), r.target.url, r.revision); err != nil {
			return nil, err
		}
		wrong := compare(r.results, expected[r.name()])
		fmt.Println(r.summary())
		for _, f := range wrong {
			faults = append(faults, r.name()+": "+f)
		}
	}
	if without != "" {
		return faults, nil
	}
	version, err := s.version()
	if err != nil {
		return nil, err
	}
	return faults, keep(out, version, runs)
}
