// SPDX-License-Identifier: Apache-2.0
// What openapi-typescript makes of the whole document: answers have types. Checked by the compiler, never run.
import type { operations, paths } from "./document.js";

type Answer<O extends keyof operations, S extends number> =
  operations[O]["responses"] extends { [K in S]: { content: { "application/json": infer T } } } ? T : never;

declare const execution: Answer<"startExecution", 201>;
const stdout: string | undefined = execution.stdout;
const state: "queued" | "running" | "exited" | "timeout" | "output_limit" | "cancelled" | "crashed" = execution.state;

declare const session: Answer<"getSession", 200>;
const memory: number | null = session.limits.memory_bytes;

declare const failure: operations["getSession"]["responses"][404]["content"]["application/json"];
const code: string = failure.error.code;

// @ts-expect-error: a field that does not exist
const wrong = session.memroy;

type Body = NonNullable<paths["/api/v1/sessions"]["post"]["requestBody"]>["content"]["application/json"];
const body: Body = { memory: "512m", labels: { a: "b" } };
// @ts-expect-error: a misspelt option
const misspelt: Body = { memroy: "512m" };

export { body, code, memory, misspelt, state, stdout, wrong };
