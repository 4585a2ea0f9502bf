package main

import (
	"fmt"
	"slices"
	"strings"
)

// verdict puts a scenario into one word, and counts its checks. It passes if every check does:
// what the suite warns of or leaves out is not good enough.
func (r *result) verdict() (word string, passed, total int) {
	seen := map[string]int{}
	for _, c := range r.Checks {
		seen[c.Status]++
	}
	passed, total = seen["SUCCESS"], seen["SUCCESS"]+seen["FAILURE"]
	switch {
	case seen["FAILURE"] > 0:
		word = "fails"
	case seen["WARNING"] > 0:
		word = "warns"
	case passed == 0:
		word = "not tested"
	case seen["SKIPPED"] > 0:
		word = "partly tested"
	default:
		word = "passes"
	}
	return word, passed, total
}

// compare says in sentences what is not as expected: a scenario that does not pass and has no
// gap, a check that fails outside of its gap, and a gap that is none any more.
func compare(results []result, gaps []gap) (faults []string) {
	for i := range results {
		r := &results[i]
		word, passed, total := r.verdict()
		g := find(gaps, r.Scenario)
		switch {
		case g == nil && word != "passes":
			faults = append(faults, fmt.Sprintf("%s %s (%d of %d checks pass): %s", r.Scenario, word, passed, total, strings.Join(failing(r), "; ")))
		case g != nil && word == "passes" && !g.vacuous:
			faults = append(faults, r.Scenario+" passes; take it out of internal/conformance/expected.go")
		case g != nil && g.checks != nil:
			for _, c := range r.Checks {
				if c.Status == "FAILURE" && !slices.Contains(g.checks, c.ID) {
					faults = append(faults, fmt.Sprintf("%s: %s fails: %s", r.Scenario, c.ID, c.Error))
				}
			}
		}
	}
	for _, g := range gaps {
		if !slices.ContainsFunc(results, func(r result) bool { return r.Scenario == g.scenario }) {
			faults = append(faults, g.scenario+" stands in internal/conformance/expected.go, and the suite has no such scenario")
		}
	}
	return faults
}

func find(gaps []gap, scenario string) *gap {
	for i := range gaps {
		if gaps[i].scenario == scenario {
			return &gaps[i]
		}
	}
	return nil
}

func failing(r *result) (list []string) {
	for _, c := range r.Checks {
		if c.Status != "SUCCESS" && c.Status != "INFO" {
			list = append(list, c.ID+": "+c.Error)
		}
	}
	return list
}
