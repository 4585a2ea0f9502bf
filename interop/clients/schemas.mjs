// What VS Code and Cursor document of their files, as JSON Schema: strict, so that a field which
// they do not know is found.
import { Ajv } from "ajv";

const text = { type: "string", minLength: 1 };
const texts = { type: "object", additionalProperties: { type: "string" } };
const closed = (required, properties) => ({ type: "object", additionalProperties: false, required, properties });
const stdio = closed(["type", "command"], {
  type: { const: "stdio" },
  command: text,
  args: { type: "array", items: { type: "string" } },
  env: texts,
  envFile: text,
  cwd: text,
});
const url = { type: "string", pattern: "^https?://." };
const servers = (root, http) => closed([root], { [root]: { type: "object", minProperties: 1, additionalProperties: { oneOf: [stdio, http] } } });

// https://code.visualstudio.com/docs/agents/reference/mcp-configuration, where type is required;
// field by field as in mcpServerSchema of microsoft/vscode,
// src/vs/workbench/contrib/mcp/common/mcpConfiguration.ts.
const vscode = servers("servers", closed(["type", "url"], { type: { enum: ["http", "sse"] }, url, headers: texts }));

// https://cursor.com/docs/mcp: a remote server is told by its url.
const cursor = servers("mcpServers", closed(["url"], { url, headers: texts }));

const ajv = new Ajv({ allErrors: true });
export const schemas = { vscode: ajv.compile(vscode), cursor: ajv.compile(cursor) };
