package secrecy

import (
	"strings"
	"testing"

	"handclasp/internal/hubtest"
)

func TestNobodyButItsClaimantIsEverShownAPayload(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind)
			w.play()
			tools := w.tools()
			for _, round := range []string{"as it was played", "after everyone did everything", "after the operator did everything"} {
				w.seen = map[string]bool{}
				w.read(tools)
				w.complete(round)
				switch round {
				case "as it was played":
					w.outputs()
					w.visit(false)
					w.act(tools)
				case "after everyone did everything":
					w.visit(true)
				default:
					w.outputs()
					w.visit(false)
				}
			}
			w.aside()
		})
	}
}

// complete checks that whoever may see a secret did: a hub that shows nothing keeps secrets too.
func (w *world) complete(round string) {
	w.t.Helper()
	shown := 0
	for _, a := range w.everyone() {
		for _, o := range w.offers {
			h := w.row(o.id)
			if a.root != o.root {
				continue
			}
			for what, has := range map[string]bool{
				"payload": true, "result": strings.Contains(string(h.Result), w.vault.letters), "feedback": h.Verdict != nil && strings.Contains(h.Verdict.Feedback, w.vault.letters),
			} {
				if !has || !w.may(a, o.secret(what)) {
					continue
				}
				shown++
				if !w.seen[a.name+" "+o.secret(what)] {
					w.t.Errorf("%s: %s may see the %s and was not shown it", round, a.name, o.secret(what))
				}
			}
		}
	}
	if round == "as it was played" && shown < 30 {
		w.t.Errorf("%s: only %d secrets were shown to whom they concern: this proves little", round, shown)
	}
}

// aside searches what is said to nobody in particular.
func (w *world) aside() {
	w.t.Helper()
	families, err := w.Metrics.Registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	var metrics strings.Builder
	for _, f := range families {
		metrics.WriteString(f.String())
	}
	w.mu.Lock()
	heard := strings.Join(w.heard, " ")
	w.mu.Unlock()
	for what, text := range map[string]string{"the log": w.Log.String(), "the metrics": metrics.String(), "what nodes tell each other": heard} {
		if len(text) < 1000 && (what != "what nodes tell each other" || w.kind == "postgres") {
			w.t.Errorf("%s is empty: %q", what, text)
		}
		if traces := w.vault.Search([]byte(text)); len(traces) > 0 {
			w.t.Errorf("secret shown: %s holds %v", what, traces)
		}
	}
}
