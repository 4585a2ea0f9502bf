package handoff

import (
	"strings"
	"testing"
)

func TestAQuoteOfOneEndlessGraphemeIsShort(t *testing.T) {
	t.Parallel()
	if q := Quote("a" + strings.Repeat("\u0301", 300_000)); len(q) > 4*2048 || !strings.HasSuffix(q, "…") {
		t.Fatalf("%d bytes", len(q))
	}
}
