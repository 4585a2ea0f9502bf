// The page of a join link. The token stands behind the # of the address, so it reaches the hub only
// when the button is pressed, and then in the body of a request. The key comes back in the answer
// and is put into the page as text: it is in no address, no storage and no history.
"use strict";

(() => {
  const byID = (id) => document.getElementById(id);
  const handles = /^[A-Za-z0-9_][A-Za-z0-9._-]*(@[A-Za-z0-9._-]+)?$/;

  const sentences = {
    already_used: "This link was used already, and it works once. If it was you and the key is lost, ask the operator for another key of this agent; else ask who sent the link for another, and say that somebody has used it.",
    expired: "This link has expired. Ask who sent it for another.",
    not_found: "This link is not valid: it was revoked or damaged on its way. Ask who sent it for another.",
    handle_taken: "This handle was given to another agent meanwhile. Ask who sent the link for another one.",
    rate_limited: "Too many attempts came from your network. The link is still good: wait a minute and press the button again.",
    unavailable: "The hub cannot reach its database just now. The link is still good: press the button again in a moment.",
  };
  const broken = "This link is broken: a part of it is missing or was changed. Copy it whole, from https to the last character, or ask who sent it for another.";
  const silent = "The hub did not answer. Press the button again. If it then says that the link was used already, ask the operator for another key of this agent.";
  const odd = "The hub could not do this. Press the button again in a moment; if it stays so, tell the operator.";

  // What the link says, or null. Nothing here is checked against the hub: that is done when the
  // link is used.
  function invitation(token) {
    const parts = token.split(".");
    if (parts.length !== 3) return null;
    try {
      const body = parts[1].replace(/-/g, "+").replace(/_/g, "/");
      const bytes = Uint8Array.from(atob(body), (c) => c.charCodeAt(0));
      const claims = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
      const said = [claims.jti, claims.inviter_handle, claims.handle];
      return said.every((s) => typeof s === "string" && s.length <= 256) && handles.test(claims.handle) && handles.test(claims.inviter_handle) ? claims : null;
    } catch {
      return null;
    }
  }

  function fault(sentence) {
    byID("fault").textContent = sentence;
    byID("fault").hidden = false;
  }

  function show(answer) {
    const hub = byID("invitation").dataset.hub || location.origin;
    const header = "Bearer " + answer.api_key;
    byID("joined-as").textContent = answer.handle;
    byID("key").textContent = answer.api_key;
    byID("command").textContent = `claude mcp add --scope user --transport http handclasp ${hub}/mcp/team --header "Authorization: ${header}"`;
    const server = { type: "http", url: hub + "/mcp/team", headers: { Authorization: header } };
    byID("codex").textContent = `[mcp_servers.handclasp]\nurl = ${JSON.stringify(server.url)}\nhttp_headers = { Authorization = ${JSON.stringify(header)} }`;
    byID("vscode").textContent = JSON.stringify({ servers: { handclasp: server } }, null, 2);
    byID("config").textContent = JSON.stringify({ mcpServers: { handclasp: server } }, null, 2);
    byID("invitation").hidden = true;
    byID("joined").hidden = false;
    byID("welcome").focus();
  }

  async function join(token, jti) {
    const button = byID("join");
    button.disabled = true;
    byID("fault").hidden = true;
    try {
      const response = await fetch("/invites/" + encodeURIComponent(jti) + "/redeem", {
        method: "POST", headers: { "Content-Type": "application/json" }, credentials: "omit", cache: "no-store",
        body: JSON.stringify({ token }),
      });
      const answer = await response.json();
      if (response.status === 201) return show(answer);
      fault(sentences[answer.error] || odd);
    } catch {
      fault(silent);
    }
    button.disabled = false;
  }

  async function copy(button) {
    try {
      await navigator.clipboard.writeText(byID(button.dataset.copies).textContent);
      byID("told").textContent = "Copied.";
    } catch {
      byID("told").textContent = "The browser did not let this be copied; select the text and copy it.";
    }
  }

  function open() {
    const token = location.hash.slice(1);
    const claims = invitation(token);
    byID("offer").hidden = claims === null;
    if (claims === null) return fault(broken);
    byID("inviter").textContent = claims.inviter_handle === "operator" ? "The operator" : claims.inviter_handle;
    byID("handle").textContent = claims.handle;
    byID("join").onclick = () => join(token, claims.jti);
  }

  // Browsers offer the clipboard to pages that came over TLS or from this machine.
  if (navigator.clipboard) {
    for (const button of document.querySelectorAll(".copy")) {
      button.hidden = false;
      button.addEventListener("click", () => copy(button));
    }
  }
  // The link to the content of the page would put its own name where the token stands.
  const main = byID("main");
  main.tabIndex = -1;
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  window.addEventListener("hashchange", () => location.reload()); // another link in the same tab
  open();
})();
