// The hub as a process, and the operator's commands against it.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

const run = promisify(execFile);

export class Hub {
  constructor(binary, data, pidFile, ...flags) {
    Object.assign(this, { binary, data, pidFile, flags, listen: "127.0.0.1:0", log: [] });
  }

  // start serves on a free port; started again, on the same one.
  async start() {
    const child = spawn(this.binary, ["serve", "--listen", this.listen, "--data", this.data, ...this.flags], { stdio: ["ignore", "ignore", "pipe"] });
    this.child = child;
    writeFileSync(this.pidFile, String(child.pid));
    this.exit = once(child, "exit").then(([code, signal]) => ({ code, signal }));
    const ready = new Promise((resolve) => {
      createInterface({ input: child.stderr }).on("line", (line) => {
        this.log.push(line);
        if (line.startsWith("listening on ")) resolve(line.slice("listening on ".length));
      });
    });
    const url = await Promise.race([ready, this.exit, after(20_000)]);
    if (typeof url !== "string") throw new Error(`the hub did not start:\n${this.log.join("\n")}`);
    this.url = url;
    this.listen = new URL(url).host;
  }

  async kill() {
    this.child.kill("SIGKILL");
    await this.exit;
  }

  // stop asks the hub to end and says how it did and how long it took.
  async stop() {
    const began = Date.now();
    this.child.kill("SIGTERM");
    const exit = await Promise.race([this.exit, after(10_000)]);
    return { ...exit, ms: Date.now() - began };
  }

  // operator runs a command with --json against the data folder, as a person would beside the
  // serving hub.
  async operator(...args) {
    const { stdout } = await run(this.binary, [...args, "--data", this.data, "--json"]);
    return JSON.parse(stdout);
  }
}

export function after(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms).unref());
}
