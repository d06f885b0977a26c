// SPDX-License-Identifier: Apache-2.0
// Prints docs/reference/sdk-typescript.md: the public classes with their calls, from the source.
import ts from "typescript";

const root = new URL("..", import.meta.url).pathname;
const files = ["client", "session", "execution", "context", "files", "approval", "scope", "models", "errors", "transport"];
const program = ts.createProgram([`${root}/src/index.ts`], { strict: true, target: ts.ScriptTarget.ES2022 });
const checker = program.getTypeChecker();
const exported = new Set(checker.getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(`${root}/src/index.ts`))).map((one) => one.name));

const out = [`# Reference of the TypeScript SDK

Written by \`scripts/sdk\` from \`sdk/typescript\`. [How to use it](typescript-sdk.md) is another page. \`Schemas["Session"]\` and so on are the
documents of the API; their fields are in \`sdk/typescript/src/schema.ts\` and in the daemon's \`/openapi.json\`.`];

const textOf = (node) => ts.getJSDocCommentsAndTags(node).filter(ts.isJSDoc).map((doc) => ts.getTextOfJSDocComment(doc.comment) ?? "").join(" ").replace(/\s+/g, " ").trim();
const isHidden = (member) => (ts.getCombinedModifierFlags(member) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) !== 0;
const squeeze = (text) => text.replace(/\s+/g, " ").replace(/;? \}/g, " }").trim();

function describe(member) {
  const source = member.getSourceFile();
  const name = member.name?.getText(source) ?? "constructor";
  if (ts.isConstructorDeclaration(member) || isHidden(member) || name.startsWith("[")) return undefined;
  const type = member.type ? `: ${squeeze(member.type.getText(source))}` : "";
  const takes = member.parameters && !ts.isGetAccessor(member) ? `(${member.parameters.map((one) => squeeze(one.getText(source))).join(", ")})` : "";
  const text = textOf(member);
  return `- \`${name}${member.questionToken ? "?" : ""}${takes}${type}\`${text ? `  \n  ${text}` : ""}`;
}

for (const file of files)
  for (const node of program.getSourceFile(`${root}/src/${file}.ts`).statements) {
    if (!(ts.isClassDeclaration(node) || ts.isInterfaceDeclaration(node)) || !exported.has(node.name.text)) continue;
    const base = node.heritageClauses?.find((clause) => clause.token === ts.SyntaxKind.ExtendsKeyword)?.types[0]?.getText();
    out.push(`## ${node.name.text}${base ? ` (${base})` : ""}`, textOf(node));
    out.push(node.members.map(describe).filter(Boolean).join("\n"));
  }
process.stdout.write(`${out.filter(Boolean).join("\n\n")}\n`);
