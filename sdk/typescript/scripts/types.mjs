// SPDX-License-Identifier: Apache-2.0
// Writes src/schema.ts from an OpenAPI document: node scripts/types.mjs openapi.json [target]
import { readFileSync, writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";

const [source, target = new URL("../src/schema.ts", import.meta.url).pathname] = process.argv.slice(2);
const document = JSON.parse(readFileSync(source, "utf8"));

// Objects, and the bodies of requests by the names of their operations: what the client needs.
const schemas = structuredClone(document.components.schemas);
// There may be more codes than today: a text for the client.
for (const schema of Object.values(schemas)) if (schema.properties?.code?.["x-codes"]) delete schema.properties.code.enum;
for (const path of Object.values(document.paths))
  for (const operation of Object.values(path)) {
    const schema = operation.requestBody?.content?.["application/json"]?.schema;
    if (!schema?.properties) continue;
    const name = operation.operationId[0].toUpperCase() + operation.operationId.slice(1);
    schemas[name in document.components.schemas ? `${name}Body` : name] = { ...schema, description: `${operation.summary}: its body` };
  }
const small = { openapi: document.openapi, info: document.info, paths: {}, components: { schemas: Object.fromEntries(Object.entries(schemas).sort()) } };
const text = astToString(await openapiTS(small, { alphabetize: false }));
const parts = text.slice(text.indexOf("export interface components"), text.indexOf("export type $defs"));
writeFileSync(target, `// Documents of the API as types. Written by scripts/sdk from the OpenAPI document: do not edit.\n\n${parts.trim()}\n\nexport type Schemas = components["schemas"];\n`);
