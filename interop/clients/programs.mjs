// Claude Code and Codex, each with a home folder of its own, no telemetry, no updates, no way to
// the network but to this machine, and a limit of time.
import { execFile, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { after } from "../hub.mjs";

const run = promisify(execFile);
const bin = join(dirname(fileURLToPath(import.meta.url)), "node_modules/.bin");
const limit = 60_000;

// The Home of a person who has just installed the programs, with one project in it.
export class Home {
  constructor(dir) {
    this.dir = dir;
    this.project = join(dir, "project");
    mkdirSync(this.project, { recursive: true });
    const nowhere = "http://127.0.0.1:9";
    this.env = {
      PATH: `${bin}:${process.env.PATH}`,
      HOME: dir,
      LANG: "C.UTF-8",
      HTTPS_PROXY: nowhere,
      HTTP_PROXY: nowhere,
      NO_PROXY: "127.0.0.1,localhost",
      // https://code.claude.com/docs/en/env-vars
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      DISABLE_AUTOUPDATER: "1",
      DISABLE_ERROR_REPORTING: "1",
      DISABLE_TELEMETRY: "1",
    };
  }

  write(file, text) {
    const path = join(this.dir, file);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }

  // run gives what a program said; shell runs a line as a person types it.
  async run(program, ...args) {
    const { stdout } = await run(program, args, { cwd: this.project, env: this.env, timeout: limit, killSignal: "SIGKILL" });
    return stdout;
  }

  shell(line) {
    return this.run("sh", "-c", line);
  }

  // useCodex writes ~/.codex/config.toml: the table that was printed, after what keeps Codex
  // quiet (https://developers.openai.com/codex/config-reference).
  useCodex(table) {
    this.write(".codex/config.toml", `check_for_update_on_startup = false\n\n[analytics]\nenabled = false\n\n[features]\napps = false\nplugins = false\nremote_plugin = false\n\n${table}\n`);
  }

  // codexTools lets Codex start its servers, as for a conversation, and tells what each offers.
  async codexServers() {
    const child = spawn("codex", ["app-server"], { cwd: this.project, env: this.env, stdio: ["pipe", "pipe", "ignore"] });
    const answers = new Map();
    createInterface({ input: child.stdout }).on("line", (line) => {
      const message = JSON.parse(line);
      answers.get(message.id)?.(message);
    });
    const ask = (id, method, params) => {
      const answer = new Promise((resolve) => answers.set(id, resolve));
      child.stdin.write(`${JSON.stringify({ id, method, params })}\n`);
      return Promise.race([answer, after(limit)]);
    };
    try {
      await ask(1, "initialize", { clientInfo: { name: "handclasp-clients", title: "Handclasp", version: "0" } });
      child.stdin.write(`${JSON.stringify({ method: "initialized" })}\n`);
      const status = await ask(2, "mcpServerStatus/list", {});
      if (!status?.result) throw new Error(`codex app-server did not list its servers: ${JSON.stringify(status)}`);
      return status.result.data;
    } finally {
      child.stdin.end();
      child.kill("SIGKILL");
    }
  }
}
