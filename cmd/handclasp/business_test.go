package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"handclasp/internal/restapi"
)

// imports runs an import of a file with this text.
func imports(t *testing.T, data, text string, flags ...string) *program {
	t.Helper()
	file := writeFile(t, filepath.Join(t.TempDir(), "b.json"), text)
	return runProgram(context.Background(), append([]string{"business", "import", file, "--data", data}, flags...)...)
}

func TestAnImportTellsAllFaultsOfAFileAtOnceAndConfiguresNothing(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "hub")
	mustRun(t, "business", "add", "taken", "--channel", "email", "--email", "a@b.example", "--data", data)
	p := imports(t, data, `[
		{"slug": "good", "lead_routing_json": {"preferred": "email", "email_to": "jo@garage.example"}},
		7,
		{"slug": "Bad Slug", "daily_messages": "50", "timezone": "Mars", "mail": 1},
		{"slug": 3, "email": "a@b"},
		{"slug": "mixed", "lead_routing_json": {"preferred": "sms", "phone": "+49 30 901820"}},
		{"slug": "two", "region": "DE", "lead_routing_json": {"preferred_channel": "email", "email": "a\u0007b@c", "phone": "1"}},
		{"slug": "good", "channel": "fax"},
		{"slug": "half", "daily_messages": 1.5},
		{"slug": "taken"}
	]`)
	for _, line := range []string{
		"handclasp: 14 faults, and nothing was changed:",
		`[1]: a number came; an object is accepted, such as {"slug": "corner-shop"}`,
		`[2].slug: "Bad Slug" came; 1 to 63`,
		"[2].daily_messages: a string came; a whole number is accepted",
		`[2].timezone: "Mars" came; an IANA name`,
		"[2].mail: is not a field here; accepted are slug, name",
		"[3].slug: 3 came; a string is accepted",
		"[3].channel: nothing came, and an address did",
		"[4].lead_routing_json: two shapes are mixed: phone of one and preferred of the other came; the fields of one are accepted, either preferred_channel, phone, email, form_url, or preferred, sms_to, email_to",
		"[5].lead_routing_json.phone: it is no valid telephone number",
		`[5].lead_routing_json.email: "a\ab@c" came; an e-mail address`,
		`[6].slug: "good" stands in [0] already`,
		`[6].channel: "fax" came`,
		`[7].daily_messages: 1.5 came; a whole number is accepted`,
		`[8].slug: "taken" is configured already. Edit it with handclasp business edit taken, or replace it as a whole with handclasp business import --replace`,
	} {
		if p.code != 1 || !strings.Contains(p.stderr.String(), line) {
			t.Errorf("exit %d, it lacks %s", p.code, line)
		}
	}
	if text := p.stderr.String(); strings.Contains(text, "unmarshal") || strings.Contains(text, "hub.") || strings.Count(text, "\n") != 15 {
		t.Error(text)
	}
	if list := runJSON[restapi.Businesses](t, "business", "list", "--data", data); len(list.Businesses) != 1 {
		t.Errorf("something was configured: %+v", list)
	}
	var many strings.Builder
	for i := range 30 {
		fmt.Fprintf(&many, `,{"slug":"s%d","timezone":"Mars"}`, i)
	}
	if text := imports(t, data, "["+many.String()[1:]+"]").stderr.String(); !strings.Contains(text, "30 faults") || !strings.Contains(text, "and 10 more") || strings.Count(text, "\n") != 22 {
		t.Error(text)
	}
	for text, says := range map[string]string{
		`[{"slug":"taken"}]`:    "[0].slug: \"taken\" is configured already",
		`{"slug":"x"}`:          "b.json: an object came; a list of businesses is accepted",
		"[\n{\"slug\":\"x\",}]": "b.json: line 2: it is no valid JSON here",
		`{"businesses":7}`:      "b.json: a number came; a list of businesses is accepted",
		`[]`:                    "b.json: it holds no business",
		`[{"slug":"x","email":"","channel":"fax"}]`: `[0].channel: "fax" came; sms, email and form are accepted`,
	} {
		if p := imports(t, data, text); p.code != 1 || !strings.Contains(p.stderr.String(), says) || strings.Count(p.stderr.String(), "\n") != 1 {
			t.Errorf("%s: exit %d, %s", text, p.code, p.stderr.String())
		}
	}
}

func TestAnImportReplacesAsAWholeAndWarnsOfWhatIsGone(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "hub")
	mustRun(t, "business", "add", "shop", "--channel", "email", "--email", "a@b.example", "--timezone", "Europe/Berlin", "--daily-messages", "5", "--daily-cost", "2", "--data", data)
	p := imports(t, data, `[{"slug":"shop","channel":"email","email":"c@b.example","daily_cost":1},{"slug":"odd","lead_routing_json":{"preferred":"sms","email_to":"a@b.example"}},
		{"slug":"none"},{"slug":"form","channel":"form","form_url":"https://b.example/"}]`, "--replace")
	p.wants(t, "configured 4 businesses\nodd: nobody can be told: routing_shape_mismatch\nnone: nobody can be told: no_recipient_configured\n")
	if says := p.stderr.String(); !strings.HasPrefix(says, "warning: shop has no --daily-messages any more") || strings.Count(says, "\n") != 1 {
		t.Error(says)
	}
	if b := runJSON[restapi.Business](t, "business", "show", "shop", "--data", data); b.Email != "c@b.example" || b.Timezone != "UTC" || b.DailyMessages != 0 || b.DailyCost != 1 {
		t.Errorf("%+v", b)
	}
}

func TestABusinessCanBeTheFirstThingOfAHub(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "hub")
	refused(t, 1, "handclasp business add", "business", "list", "--data", data)
	out := mustRun(t, "business", "add", "garage", "--channel", "Phone", "--phone", "030 901820", "--region", "DE", "--data", data)
	if !strings.Contains(out, "configured garage (phone means sms: a text message)") || !strings.Contains(out, "channel         sms") {
		t.Error(out)
	}
	refused(t, 1, `email: "nobody" came; an e-mail address`, "business", "edit", "garage", "--channel", "email", "--email", "nobody", "--data", data)
}
