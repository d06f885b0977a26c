// SPDX-License-Identifier: Apache-2.0
// Lines to copy that use exactly this session from elsewhere.

import { base, me } from "../api";
import { copy, h } from "../dom";
import type { Context, Tab } from "../session";

const origin = (): string => base.href.replace(/\/$/, "");

function snippets(id: string, owner: string): [string, string, string][] {
  const isOff = me.auth_mode === "none", key = isOff ? "$(cat STATE_DIR/token-PORT)" : "$SANDGLASS_API_KEY";
  const behalf = isOff && owner ? ` \\\n  -H 'X-Sandglass-On-Behalf-Of: ${owner}'` : "";
  const variable = isOff && owner ? `SANDGLASS_ON_BEHALF_OF='${owner}' ` : "";
  const python = isOff && owner ? `Client(owner=${JSON.stringify(owner)})` : "Client()";
  return [
    ["Command line", `${variable}sandglass exec -it ${id} -- bash\n${variable}sandglass execute --session ${id} --code 'print(6 * 7)'\n${variable}sandglass cp ${id}:result.csv .`,
      "On the machine of the daemon; elsewhere with SANDGLASS_URL and SANDGLASS_API_KEY."],
    ["curl", `curl -s ${origin()}/api/v1/sessions/${id}/executions \\\n  -H "Authorization: Bearer ${key}"${behalf} \\\n  -H 'Content-Type: application/json' -d '{"command": "uname -a"}'`, ""],
    ["Python", `from sandglass import Client\n\nsession = ${python}.attach("${id}")\nprint(session.run("uname -a").stdout)\nprint(session.execute("print(6 * 7)").stdout)`,
      "The package is sdk/python; it needs the standard library alone."],
    ["TypeScript", `const answer = await fetch("${origin()}/api/v1/execute", {\n  method: "POST",\n  headers: { Authorization: \`Bearer \${process.env.SANDGLASS_API_KEY}\`, "Content-Type": "application/json"${isOff && owner ? `,\n    "X-Sandglass-On-Behalf-Of": ${JSON.stringify(owner)}` : ""} },\n  body: JSON.stringify({ session_id: "${id}", code: "print(6 * 7)" }),\n});\nconst { stdout, exit_code } = await answer.json();\nconsole.log(exit_code, stdout);`, ""],
    ["MCP", `{"mcpServers": {"sandglass": {"command": "sandglass", "args": ["mcp"]}}}`, `Then tell the model to work in session_id "${id}".`],
  ];
}

export function snippetsTab(context: Context): Tab {
  const session = context.session();
  return { element: h("div", { class: "snippets" }, snippets(session.id, session.owner).map(([title, text, note]) => h("section", null,
    h("div", { class: "bar-row" }, h("h2", null, title), h("button", { class: "small", onclick: () => void copy(text), "aria-label": `Copy for ${title}` }, "Copy")),
    h("pre", { tabindex: "0" }, text), note ? h("p", { class: "muted" }, note) : null))) };
}
