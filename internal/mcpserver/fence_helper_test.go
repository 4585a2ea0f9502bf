package mcpserver

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// outsideFences returns what a reader of s may take for the hub's own words. s is either form of
// a result: of the text block it removes the fenced region; of the structured JSON it removes the
// values listed in provenance.untrusted and the fenced regions of every string, and returns the
// remaining names and strings, one a line. A canary that another actor wrote must not be in it.
//
// The marker is read where only the hub can have written it: from the provenance of the outermost
// object, or from the first fence of a text block, above which nothing untrusted stands.
func outsideFences(s string) string {
	var root map[string]any
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	if dec.Decode(&root) == nil && len(bytes.TrimSpace([]byte(s))) == int(dec.InputOffset()) {
		fence := ""
		if p, ok := root["provenance"].(map[string]any); ok {
			fence, _ = p["fence"].(string)
		}
		var out []string
		remains(root, fence, &out)
		return strings.Join(out, "\n")
	}
	m := regexp.MustCompile(`(?m)^«untrusted ([0-9a-f]{16,})»$`).FindStringSubmatch(s)
	if m == nil {
		return s
	}
	return unfence(s, m[1])
}

// unfence removes the fenced regions of one text; a fence that is not closed removes nothing.
func unfence(s, fence string) string {
	if fence == "" {
		return s
	}
	var b strings.Builder
	for {
		before, rest, opened := strings.Cut(s, "«untrusted "+fence+"»")
		_, after, closed := strings.Cut(rest, "«/untrusted "+fence+"»")
		if !opened || !closed {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(before)
		s = after
	}
}

func remains(v any, fence string, out *[]string) {
	switch v := v.(type) {
	case string:
		*out = append(*out, unfence(v, fence))
	case json.Number:
		*out = append(*out, v.String())
	case []any:
		for _, e := range v {
			remains(e, fence, out)
		}
	case map[string]any:
		if p, ok := v["provenance"].(map[string]any); ok && fence != "" {
			paths, _ := p["untrusted"].([]any)
			for _, path := range paths {
				if path, ok := path.(string); ok {
					drop(v, path)
				}
			}
		}
		for name, e := range v {
			*out = append(*out, name)
			remains(e, fence, out)
		}
	}
}

// drop removes the value at a path such as messages[1].payload from v.
func drop(v any, path string) {
	head, rest, more := strings.Cut(path, ".")
	name, index, indexed := strings.Cut(strings.TrimSuffix(head, "]"), "[")
	object, ok := v.(map[string]any)
	if !ok {
		return
	}
	next := object[name]
	if indexed {
		list, ok := next.([]any)
		var i int
		if !ok || json.Unmarshal([]byte(index), &i) != nil || i >= len(list) {
			return
		}
		next = list[i]
	}
	if more {
		drop(next, rest)
		return
	}
	if !indexed {
		delete(object, name)
	}
}
