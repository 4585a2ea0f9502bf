package mcpserver

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// budgets are the bytes of name, description and input schema that a toolset may take in a
// model's context.
var budgets = map[string]int{"team": 14_000, "pool": 18_000, "desk": 14_000}

func TestGoldenToolsListIsReviewedAndWithinItsBudget(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		set, file string
		most      int
		strict    bool
	}{{"team", "team", 15, false}, {"pool", "pool", 15, false}, {"pool", "pool-strict", 16, true}, {"desk", "desk", 15, false}} {
		set, tools := one.set, ofSet(allTools, one.set, one.strict)
		if len(tools) > one.most {
			t.Errorf("%s has %d tools, %d are the limit", one.file, len(tools), one.most)
		}
		total := 0
		var list []any
		for i := range tools {
			d := tools[i].definition()
			in, err := json.Marshal(d.InputSchema)
			if err != nil {
				t.Fatal(err)
			}
			size := len(d.Name) + len(d.Description) + len(in)
			total += size
			t.Logf("%-24s %5d bytes", d.Name, size)
			if len(d.Description) > 900 {
				t.Errorf("the description of %s has %d characters, 900 are the limit", d.Name, len(d.Description))
			}
			list = append(list, d)
		}
		t.Logf("/mcp/%s (%s): %d of %d bytes", set, one.file, total, budgets[set])
		if total > budgets[set] {
			t.Errorf("/mcp/%s (%s) takes %d bytes, %d are the limit", set, one.file, total, budgets[set])
		}
		golden(t, filepath.Join("testdata", "golden", "tools-"+one.file+".json"), list)
	}
}

func TestGoldenPromptsAndResourcesAreReviewed(t *testing.T) {
	t.Parallel()
	var prompts []any
	for i := range teamPrompts {
		prompts = append(prompts, teamPrompts[i].definition())
	}
	golden(t, filepath.Join("testdata", "golden", "prompts.json"), prompts)
	golden(t, filepath.Join("testdata", "golden", "resources.json"), []any{pages[0].resource, pages[1].resource, pages[2].resource})
	golden(t, filepath.Join("testdata", "golden", "resource_templates.json"), []any{handoffTemplate, handoffPageTemplate})
	goldenText(t, filepath.Join("testdata", "golden", "team.md"), teamReference())
}

// golden compares v, as JSON, with the file.
func golden(t *testing.T, path string, v any) {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	goldenText(t, path, b.String())
}

func goldenText(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (make golden writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; if that is meant, run make golden and review its diff (-golden +now):\n%s", path, diff)
	}
}
