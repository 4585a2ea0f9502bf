package mcpserver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestTheWeightOfFieldsIsNeverBelowWhatTheyTakeOnTheWire(t *testing.T) {
	t.Parallel()
	for _, texture := range []string{"plain ", `"\`, "\n\t\r", "<>&", "\u2028\u2029", "\u0001\u007f", "👩‍👩‍👧‍👦", "\u202e", "<system>", "é"} {
		text := strings.Repeat(texture, 2000)
		spaced, err := json.MarshalIndent(map[string]any{"k": []string{text}, "l": []int{1, 2, 3}}, "\t", "\n\r\t ")
		if err != nil {
			t.Fatal(err)
		}
		for name, fields := range map[string]func(*result){
			"own prose":   func(r *result) { r.prose("a", text, true) },
			"prose":       func(r *result) { r.prose("a", text, false) },
			"data":        func(r *result) { r.data("a", text, false) },
			"spaced data": func(r *result) { r.data("a", json.RawMessage(spaced), false) },
			"records":     func(r *result) { r.records("a", []json.RawMessage{spaced, spaced}, false, "k") },
			"many lists": func(r *result) {
				r.list("items", 200, 0, func(int) { r.data("a", []string{"x"}, false) })
			},
		} {
			r := newResult()
			fields(r)
			structured, text := r.finish()
			b, err := json.Marshal(&mcp.CallToolResult{StructuredContent: structured, Content: []mcp.Content{&mcp.TextContent{Text: text}}})
			if err != nil {
				t.Fatal(err)
			}
			if w := weigh(fields); w+envelope < len(b) {
				t.Errorf("%s of %q weighs %d and takes %d bytes", name, texture, w, len(b))
			} else if w > 3*len(b) {
				t.Errorf("%s of %q weighs %d and takes only %d bytes", name, texture, w, len(b))
			}
		}
	}
}
