package mcpserver

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"handclasp/internal/handoff"
)

// The reference cannot go stale: what the table of tools has, it must have.

// references are the pages of the toolsets.
var references = map[string]func() string{"team": teamReference, "pool": poolReference, "desk": deskReference}

// section is what stands under a heading of the reference of a toolset.
func section(t *testing.T, set, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(references[set](), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("the reference has no section %s", heading)
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	return body
}

func TestTheReferenceHasEveryToolAndParameterAndCode(t *testing.T) {
	t.Parallel()
	for _, text := range references {
		if strings.Contains(text(), "<!--") {
			t.Error("a mark was not replaced: it names no tool, or one twice")
		}
	}
	for i := range allTools {
		d := &allTools[i]
		body := section(t, d.set, d.name)
		for _, part := range []string{"**When:**", "**Not:**", "**Changes:**", "**Returns:**", "**Refused"} {
			if !strings.Contains(body, part) {
				t.Errorf("%s does not say %s", d.name, part)
			}
		}
		for j := range d.params {
			if !strings.Contains(body, "| `"+d.params[j].name+"` |") {
				t.Errorf("%s has no row for %s", d.name, d.params[j].name)
			}
		}
		_, returns, _ := strings.Cut(body, "**Returns:**")
		for j := range d.output {
			name := d.output[j].name
			everywhere := name == "provenance" || name == "thread_id" || name == "door"
			if d.output[j].required && !everywhere && !sameAsOther(d) && !regexp.MustCompile("`"+name+"\\??`").MatchString(returns) {
				t.Errorf("%s does not say that it returns %s", d.name, name)
			}
		}
		for _, w := range snakeWord.FindAllString(d.desc, -1) {
			if isCode(w) && !strings.Contains(body, "`"+w+"`") {
				t.Errorf("the description of %s names %s, and its section does not", d.name, w)
			}
		}
	}
}

// sameAsOther reports whether a tool returns what view_thread or handoff_get does, whose section says it.
func sameAsOther(d *tool) bool {
	return d.name != "check_inbox" && len(d.output) == len(threadOut) || d.name != "handoff_get" && len(d.output) >= len(workOut)
}

func isCode(w string) bool { return slices.Contains(handoff.Codes(), handoff.Code(w)) }

func TestTheExamplesOfTheReferenceAreAcceptedCalls(t *testing.T) {
	t.Parallel()
	for i := range allTools {
		d := &allTools[i]
		_, example, found := strings.Cut(section(t, d.set, d.name), "```json\n")
		example, _, _ = strings.Cut(example, "\n```")
		if !found || !json.Valid([]byte(example)) {
			t.Errorf("%s has no example: %q", d.name, example)
			continue
		}
		if _, err := decodeArgs(d.params, json.RawMessage(example)); err != nil {
			t.Errorf("the example of %s is refused: %v", d.name, err)
		}
	}
	var calls [][]string
	for set := range references {
		calls = append(calls, regexp.MustCompile("`([a-z_]+) (\\{.*?\\})`").FindAllStringSubmatch(section(t, set, "A whole handoff, call by call"), -1)...)
	}
	if len(calls) < 14 {
		t.Fatalf("%d calls in the stories", len(calls))
	}
	for _, c := range calls {
		i := slices.IndexFunc(allTools, func(d tool) bool { return d.name == c[1] })
		if i < 0 {
			t.Errorf("the story calls %s", c[1])
			continue
		}
		if _, err := decodeArgs(allTools[i].params, json.RawMessage(c[2])); err != nil {
			t.Errorf("the story calls %s as it refuses: %v", c[1], err)
		}
	}
}

// elsewhere are codes that no tool of a toolset answers with: they belong to the protocol, to other
// doors or to the operator.
var elsewhere = map[string][]handoff.Code{
	"team": slices.Concat([]handoff.Code{
		handoff.CodePermissionDenied, handoff.CodeSessionRequired, handoff.CodeFeatureDisabled, handoff.CodeVerifierNotEligible,
		handoff.CodeDependencyNotFound, handoff.CodeDependencyNotMet, handoff.CodeCursorExpired, handoff.CodeWorkspaceUnresolved,
	}, atTheDesk, noTool),
	"pool": slices.Concat([]handoff.Code{handoff.CodeNotAParticipant, handoff.CodeInvalidIntentPayload}, atTheDesk, noTool),
	"desk": slices.Concat([]handoff.Code{
		handoff.CodePermissionDenied, handoff.CodeSessionRequired, handoff.CodeVerifierNotEligible, handoff.CodeNotAParticipant, handoff.CodeInvalidIntentPayload,
		handoff.CodeDependencyNotFound, handoff.CodeDependencyNotMet, handoff.CodeCursorExpired, handoff.CodeWorkspaceUnresolved,
		handoff.CodeRecipientNotFound, handoff.CodeAlreadyClaimed, handoff.CodeNotEligibleToClaim,
	}, noTool),
}

var atTheDesk = []handoff.Code{
	handoff.CodeBusinessNotFound, handoff.CodeContinuationMalformed,
	handoff.CodeContinuationSignature, handoff.CodeContinuationWrongScope, handoff.CodeContinuationExpired, handoff.CodeContinuationRedeemed,
}

var noTool = []handoff.Code{handoff.CodeParseError, handoff.CodeInvalidRequest, handoff.CodeMethodNotFound, handoff.CodeUnauthenticated}

func TestEveryCodeIsExplainedOrBelongsElsewhere(t *testing.T) {
	t.Parallel()
	for set, text := range references {
		rows := section(t, set, "Refusals and what to do next")
		for _, code := range handoff.Codes() {
			explained := strings.Contains(rows, "| `"+string(code)+"` |")
			if explained == slices.Contains(elsewhere[set], code) {
				t.Errorf("%s: explained %v; explain it in reference/%s.md, or list it as belonging elsewhere", code, explained, set)
			}
			if !explained && strings.Contains(text(), "`"+string(code)+"`") {
				t.Errorf("%s is named in %s and not explained", code, set)
			}
		}
	}
}

func TestTheReferenceStatesTheLimitsThatAreEnforced(t *testing.T) {
	t.Parallel()
	lim := handoff.DefaultLimits()
	for name, same := range map[string]bool{
		"64 KiB": lim.Summary == 64<<10 && lim.Payload == 64<<10, "8 KiB": lim.ShortText == 8<<10, "4 KiB": lim.Reason == 4<<10, "512 KiB": lim.Diff == 512<<10,
		"16 KiB": lim.Metadata == 16<<10, "50 artifacts": lim.Artifacts == 50, "100 `target_files`": lim.TargetFiles == 100, "10,000 messages": lim.Messages == 10_000, "100 drafts": lim.Drafts == 100,
	} {
		if !same || !strings.Contains(section(t, "team", "Limits"), name) {
			t.Errorf("the limit %s is stated otherwise", name)
		}
	}
	if pageBytes != 48<<10 || listedHandoffs != 20 {
		t.Error("the reference says 48 KiB a page and 20 handoffs in resources/list")
	}
}

func TestReferenceAndPromptsUseNoUnknownName(t *testing.T) {
	t.Parallel()
	own := regexp.MustCompile("data_only|client_idempotency_key|content_trust|did_you_mean|instruction_policy|next_page|request_id|retry_after_seconds|sender_verified")
	for set, text := range references {
		nothingUnknown(t, "the reference of "+set, own.ReplaceAllString(text(), ""))
	}
	nothingUnknown(t, "the grammar", own.ReplaceAllString(targetGrammar, ""))
	nothingUnknown(t, "hand_off", handOffSteps)
	nothingUnknown(t, "review_inbox", reviewSteps)
	for _, set := range append(Toolsets(), "") {
		nothingUnknown(t, "the instructions of "+set, instructions(set))
	}
	for i := range teamPrompts {
		p := &teamPrompts[i]
		nothingUnknown(t, p.name, p.desc)
		if len(p.title) <= len(p.name) || p.desc == "" {
			t.Errorf("%s: title %q, description %q", p.name, p.title, p.desc)
		}
		for j := range p.params {
			if p.params[j].desc == "" {
				t.Errorf("%s.%s has no description", p.name, p.params[j].name)
			}
		}
	}
}
