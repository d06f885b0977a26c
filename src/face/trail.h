/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes requests, and ends of sessions and executions, into the audit log. */

struct audit_trail;
struct faces;
struct request;

struct audit_trail *audit_trail_new(struct faces *faces); /* NULL without a log */
void audit_trail_free(struct audit_trail *trail);         /* NULL is fine */

/* The caller is known: finds what no line about the request may tell. */
void audit_trail_begin(struct request *request);

/* Keeps what may be told of the body, before a handler takes it apart. */
void audit_trail_body(struct request *request);

/* The exchange is over. */
void audit_trail_request(struct request *request);
