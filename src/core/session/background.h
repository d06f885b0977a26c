/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Work that no client waits for: a job behind "&", or one that an execution has left. It has no
 * hold on the session, so the idle clock looks for it: once at half of the idle timeout, and
 * again when that has run out. A sandbox that has used processor time, written files or begun
 * processes between the two works; its idle clock begins anew, and it is not evicted. After
 * session.background_limit without a hold it counts no longer.
 */

#include "core/session/session.h"

/* When the first look is due, by the loop's clock; -1 when there is nothing to look at. */
int64_t background_look_us(const struct session *session);
void background_look(struct session *session);

/* The earliest instant at which the idle clock may judge, by the loop's clock; -1 while a look is
 * under way. A first look that came late moves it, and so does an init that has not answered since
 * a restart: work needs time to show. */
int64_t background_verdict_us(const struct session *session);

/* The idle clock has run out: true when it has to wait for a second look. */
bool background_judge(struct session *session);

/* A hold, or a request for the session: work that was seen before does not count. */
void background_reset(struct session *session);

/* Work was seen, and it keeps the session. */
bool background_works(const struct session *session);

/* Then: which process, how much it worked between the last two looks, and how long that counts. */
void background_write_json(const struct session *session, struct json_writer *json);
