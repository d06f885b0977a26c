// SPDX-License-Identifier: Apache-2.0
// Loaded before a client (node --import): every request carries the token in MCP_TOKEN, which these programs have no option for.
import { subscribe } from 'node:diagnostics_channel';

subscribe('undici:request:create', ({ request }) => request.addHeader('authorization', `Bearer ${process.env.MCP_TOKEN}`));
