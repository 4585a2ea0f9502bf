package mcpserver

import "math"

// The tables that the tests decode with mirror tools of the contracts.

func testArtifact() param {
	return object("", "",
		enum("type", "Kind of artifact.", "file_diff", "file_ref", "test_command", "api_contract", "link").need(),
		str("path", "File.").limit(1, 1024),
		str("diff", "Unified diff.").limit(1, 512<<10),
		str("git_sha", "Commit."),
		list("lines", "[from, to].", integer("", "", 0, math.MaxInt32)).items(2, 2),
		str("command", "Shell command.").limit(1, 8<<10),
		str("cwd", "Where to run it."),
		str("schema_url", "OpenAPI document.").match(`^https?://`, "https://host/path"),
		raw("inline", "The contract itself."),
		str("url", "Address.").match(`^https?://`, "https://host/path"),
		str("title", "Link text."),
	).open().
		when("type", "file_diff", "path", "diff").
		when("type", "file_ref", "path").
		when("type", "test_command", "command").
		when("type", "api_contract").
		when("type", "link", "url").
		eg(`{"type":"link","url":"https://example.com/x"}`)
}

var testTools = map[string][]param{
	"handoff_to_teammate": {
		str("to", "Recipient.").match(`^[A-Za-z0-9._-]+@[A-Za-z0-9._-]+$`, "name@team").limit(0, 256).need(),
		enum("intent", "What you want.", "inform", "ask_question", "propose_action").need(),
		str("summary", "One or two paragraphs.").limit(1, 64<<10).need(),
		list("artifacts", "Attachments.", testArtifact()).items(0, 50).fallback([]string{}),
		str("question", "The first question.").limit(0, 8<<10),
		object("proposed_action", "With propose_action.",
			str("description", "What to do.").limit(1, 8<<10).need(),
			list("target_files", "Relative paths.", str("", "").limit(1, 1024)).items(1, 100).need(),
			str("rationale", "Why.").limit(1, 8<<10).need(),
			str("suggested_diff", "Unified diff.").limit(0, 512<<10),
		),
		object("metadata", "Free key-value object.").open().limit(0, 16<<10),
		integer("expires_in_seconds", "Deadline.", 60, 31_536_000),
		str("idempotency_key", "Same key, same effect.").limit(1, 255),
	},
	"check_inbox": {
		list("status", "States.", enum("", "", "pending", "accepted", "completed", "declined", "cancelled", "expired")).items(1, 0),
		str("since", "RFC 3339."),
		integer("limit", "Page size.", 1, 200).fallback(50),
		str("cursor", "Where to go on.").numeric(),
		enum("role", "Your side.", "recipient", "sender"),
		integer("wait_seconds", "Parks.", 0, 50).fallback(0),
	},
	"send_message": {
		str("thread_id", "The handoff.").need(),
		str("body", "Markdown.").limit(1, 64<<10).need(),
		raw("payload", "Any JSON.").limit(0, 64<<10),
		list("artifacts", "Attachments.", testArtifact()).items(0, 50),
		boolean("expects_reply", "Holder only."),
	},
	"handoff_create": {
		str("project_root", "Workspace.").need(),
		str("from_agent_id", "You.").need(),
		object("target", "Who may claim.").open().need().eg(`{"strategy":"broadcast"}`),
		enum("visibility", "Who may see.", "public", "eligible", "private").need(),
		raw("payload", "Any JSON.").limit(0, 64<<10),
		list("acceptance_criteria", "What done means.", str("", "").chars(1, 500)).items(1, 20),
		object("verify_by", "Who checks.",
			enum("kind", "Kind.", "creator", "agent", "capability").need(), str("agent_id", "Handle."), str("capability", "Name."),
		).when("kind", "agent", "agent_id").when("kind", "capability", "capability"),
		list("depends_on", "Ids.", str("", "")).items(1, 20),
		str("session_secret", "Secret.").match(`^hs_[a-z0-9]+$`, "hs_…").hide(),
		number("weight", "A number.").between(0, 1),
	},
	"agent_whoami": {},
}

var testArgs = map[string]string{
	"handoff_to_teammate": `{"to":"frank@acme","intent":"inform","summary":"The cache is warm."}`,
	"check_inbox":         `{}`,
	"send_message":        `{"thread_id":"0198","body":"hello"}`,
	"handoff_create":      `{"project_root":"/p","from_agent_id":"ana","target":{"strategy":"broadcast"},"visibility":"public"}`,
}
